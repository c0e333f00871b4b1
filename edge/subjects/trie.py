"""The interest trie: which sinks want a subject.

One `Node` per token of a pattern; `star` and `tail` are the wildcard branches. Depth is bounded by
the subject's tokens, size by the number of subscriptions. It knows nothing of connections.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.kernel.kernel import Sink
from cython.cimports.libc.string import memchr, memcmp

DOT = cython.declare(cython.int, 46)


@cython.cclass
class Match:
    """Everything that wants one literal subject: plain sinks, and queue groups of sinks."""

    def __init__(self, plain: tuple, queues: tuple):
        self.plain = plain
        self.queues = queues


@cython.cclass
class Node:
    """Interest that shares one prefix of tokens. With a million subscriptions most nodes have one
    sink, or one node below them, so what a node may have more of is made when it is wanted."""


@cython.cfunc
@cython.inline
def descend(node: Node, token: bytes) -> Node:
    """The child of `node` for one token of a pattern, made when absent."""
    child: Node
    if token == b"*":
        if node.star is None:
            node.star = Node()
        return node.star
    if token == b">":
        if node.tail is None:
            node.tail = Node()
        return node.tail
    child = literal_child(node, token)
    if child is not None:
        return child
    child = Node()
    if node.children is not None:
        node.children[token] = child
    elif node.only is None:
        node.token = token
        node.only = child
    else:
        node.children = {node.token: node.only, token: child}
        node.token = node.only = None
    return child


@cython.cfunc
@cython.inline
def literal_child(node: Node, token: bytes) -> Node:
    """The child of `node` for a token that is no wildcard; None when there is none."""
    if node.only is not None:
        return node.only if node.token == token else None
    return None if node.children is None else node.children.get(token)


@cython.cfunc
@cython.inline
def child_at(node: Node, text: cython.p_const_uchar, n: cython.Py_ssize_t) -> Node:
    """`literal_child` for a token of `n` bytes."""
    token: bytes = node.token
    if token is not None:
        if PyBytes_GET_SIZE(token) == n and memcmp(PyBytes_AS_STRING(token), text, n) == 0:
            return node.only
        return None
    if not node.children:
        return None
    return node.children.get(PyBytes_FromStringAndSize(cython.cast(cython.p_char, text), n))


@cython.cfunc
def empty(node: Node) -> cython.bint:
    """Whether nothing hangs on `node`, so that its parent may forget it."""
    return (
        not node.children
        and node.only is None
        and node.star is None
        and node.tail is None
        and node.first is None
        and not node.queues
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_whole(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether no token of a subject is empty."""
    i: cython.Py_ssize_t
    for i in range(n):
        if subject[i] == DOT and (i == 0 or subject[i - 1] == DOT):
            return False
    return n > 0 and subject[n - 1] != DOT


@cython.cclass
class Walk:
    """One search: what it has found so far.

    `fixed` is where the part of the subject ends that a remembered match would share; `varied` is
    set when interest depends on what stands after it. That is one token, or any number of them
    when the subject is `open_ended`.
    """

    def __cinit__(self):
        self.plain = []
        self.queues = None
        self.varied = False

    @cython.cfunc
    def collect(self, node: Node):
        """Add the sinks that end at `node`."""
        if node.first is not None:
            self.plain.append(node.first)
            if node.more is not None:
                self.plain.extend(node.more)
        if node.queues:
            if self.queues is None:
                self.queues = {}
            for name, members in node.queues.items():
                found = self.queues.get(name)
                if found is None:
                    self.queues[name] = list(members)
                else:
                    found.extend(members)

    @cython.cfunc
    def step(self, node: Node, subject: cython.p_const_uchar, n: cython.Py_ssize_t):
        """Collect all sinks below `node` that match the remaining `n` bytes of a subject."""
        at: cython.p_const_uchar
        length: cython.Py_ssize_t
        child: Node
        while True:
            if node.tail is not None:
                self.collect(node.tail)
            at = cython.cast(cython.p_const_uchar, memchr(subject, DOT, n))
            length = n if at == cython.NULL else at - subject
            if subject > self.fixed and (
                node.children
                or node.only is not None
                or (node.star is not None and (self.open_ended or length < n))
            ):
                self.varied = True
            if node.star is not None and length > 0:
                if length == n:
                    self.collect(node.star)
                else:
                    self.step(node.star, subject + length + 1, n - length - 1)
            child = child_at(node, subject, length)
            if child is None:
                return
            if length == n:
                self.collect(child)
                return
            node = child
            subject += length + 1
            n -= length + 1

    @cython.cfunc
    def result(self) -> Match:
        """The match found."""
        if self.queues is None:
            return Match(tuple(self.plain), ())
        return Match(tuple(self.plain), tuple([tuple(group) for group in self.queues.values()]))


@cython.cfunc
def gather(node: Node, found: list):
    """Collect every sink at and below `node`."""
    if node.first is not None:
        found.append(node.first)
    if node.more is not None:
        found.extend(node.more)
    if node.queues:
        for members in node.queues.values():
            found.extend(members)
    if node.star is not None:
        gather(node.star, found)
    if node.tail is not None:
        gather(node.tail, found)
    if node.only is not None:
        gather(node.only, found)
    if node.children is not None:
        for child in node.children.values():
            gather(cython.cast(Node, child), found)


@cython.cfunc
def add_plain(node: Node, sink: Sink):
    """Hang a sink without a queue on `node`, after those that are there."""
    if node.first is None:
        node.first = sink
    elif node.more is None:
        node.more = [sink]
    else:
        node.more.append(sink)


@cython.cclass
class Trie:
    """All interest of one account."""

    def __init__(self):
        self.root = Node()
        self.size = 0

    def everything(self) -> list:
        """Every sink there is."""
        found: list = []
        gather(self.root, found)
        return found

    @cython.cfunc
    def match(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> Match:
        """The sinks that want a literal subject of `n` bytes: none when a token is empty."""
        walk: Walk = Walk()
        walk.fixed = subject + n
        if is_whole(subject, n):
            walk.step(self.root, subject, n)
        return walk.result()

    @cython.cfunc
    def walk(
        self,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        fixed: cython.Py_ssize_t,
        open_ended: cython.bint,
    ) -> Walk:
        """`match` that also tells whether only the first `fixed` bytes mattered."""
        walk: Walk = Walk()
        walk.fixed = subject + fixed
        walk.open_ended = open_ended
        if is_whole(subject, n):
            walk.step(self.root, subject, n)
        else:
            walk.varied = True
        return walk

    def find(self, subject: bytes) -> tuple:
        """`match` for interpreted callers: (plain sinks, queue groups)."""
        found: Match = self.match(subject, len(subject))
        return found.plain, found.queues

    @cython.ccall
    def insert(self, sink: Sink):
        """Add a sink under its own subject and queue."""
        node: Node = self.root
        for token in sink.subject.split(b"."):
            node = descend(node, token)
        if sink.queue is None:
            add_plain(node, sink)
        else:
            if node.queues is None:
                node.queues = {}
            node.queues.setdefault(sink.queue, []).append(sink)
        self.size += 1

    @cython.ccall
    def remove(self, sink: Sink) -> cython.bint:
        """Take a sink out; False when it was not there."""
        path: list = [self.root]
        node: Node = self.root
        tokens = sink.subject.split(b".")
        for token in tokens:
            node = self.child(node, token)
            if node is None:
                return False
            path.append(node)
        if not self.unhook(node, sink):
            return False
        self.size -= 1
        self.prune(path, tokens)
        return True

    @cython.cfunc
    def child(self, node: Node, token: bytes) -> Node:
        if token == b"*":
            return node.star
        if token == b">":
            return node.tail
        return literal_child(node, token)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def unhook(self, node: Node, sink: Sink) -> cython.bint:
        members: list = node.more
        if sink.queue is not None:
            members = node.queues.get(sink.queue) if node.queues else None
        elif sink is node.first:
            node.first = node.more.pop(0) if node.more else None
            return True
        if members is None:
            return False
        for i in range(len(members)):
            if members[i] is sink:
                del members[i]
                if sink.queue is not None and not members:
                    del node.queues[sink.queue]
                return True
        return False

    @cython.cfunc
    def prune(self, path: list, tokens: list):
        """Drop the nodes at the end of `path` that became empty."""
        parent: Node
        depth: cython.Py_ssize_t = len(path) - 1
        while depth > 0 and empty(cython.cast(Node, path[depth])):
            parent = path[depth - 1]
            token = tokens[depth - 1]
            if token == b"*":
                parent.star = None
            elif token == b">":
                parent.tail = None
            elif parent.only is not None:
                parent.token = parent.only = None
            else:
                del parent.children[token]
            depth -= 1
