"""Accounts: one subject space each, with its interest, its match cache and its routing.

Routing follows NATS: every plain sink gets the message, one member of every queue group does, and
members on this node are preferred to remote ones. An account knows sinks, not connections.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.authorize import admits
from cython.cimports.headwater.edge.broker.match_cache import MatchCache
from cython.cimports.headwater.edge.kernel.kernel import (
    FROM_PEER,
    KIND_CLIENT,
    MADE,
    OWN,
    Endpoint,
    Kernel,
    Msg,
    Sink,
)
from cython.cimports.headwater.edge.subjects.tokens import is_literal, is_valid
from cython.cimports.headwater.edge.subjects.trie import Match, Trie, Walk
from cython.cimports.libc.string import memcmp, memset

from headwater.edge.subjects.tokens import clean_word

# What the alias of a domain stands for: requests of the API, and views of it with own names.
API_NAMES = (b"STREAM.", b"CONSUMER.", b"DIRECT.", b"META.", b"SERVER.", b"ACCOUNT.", b"BLOCK.")
OWN_NAMES = (b"$KV.", b"$OBJ.")
# Shadows of one account's subscriptions: about 120 bytes each.
SHADOWS_MAX = 1 << 20
# Shadows that are made or ended before others have a turn of the loop.
SHADOWS_AT_ONCE = 2000
DOORKEEPER_MASK = cython.declare(cython.uint, 4095)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fingerprint(text: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.uint:
    h: cython.uint = 2166136261
    i: cython.Py_ssize_t
    for i in range(n):
        h = (h ^ text[i]) * 16777619
    return h | 1


@cython.cfunc
@cython.exceptval(check=False)
def set_message(
    m: cython.pointer(Msg),
    subject: bytes,
    body: bytes,
    header_len: cython.Py_ssize_t,
    reply: bytes,
    shown: bytes,
) -> cython.void:
    """Point `m` at bytes that the caller keeps; `body` begins with its header block, if any."""
    m.via = MADE
    m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
    m.subject_len = PyBytes_GET_SIZE(subject)
    m.reply = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply))
    m.reply_len = PyBytes_GET_SIZE(reply)
    m.shown = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(shown))
    m.shown_len = PyBytes_GET_SIZE(shown)
    m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
    m.header_len = header_len
    m.size = PyBytes_GET_SIZE(body)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fixed_part(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Bytes of a subject before the part that is new with every message; 0 when there is none.

    Inboxes end in a token that is used once, and acknowledgements (`$JS.ACK.<stream>.<consumer>.`)
    in numbers. Remembering the matches of such whole subjects would only cost memory.
    """
    i: cython.Py_ssize_t
    dots: cython.int = 0
    if n > 7 and memcmp(subject, cython.cast(cython.p_const_char, b"_INBOX."), 7) == 0:
        i = n - 1
        while subject[i] != 46:
            i -= 1
        return i
    if n > 8 and memcmp(subject, cython.cast(cython.p_const_char, b"$JS.ACK."), 8) == 0:
        for i in range(8, n):
            if subject[i] == 46:
                dots += 1
                if dots == 2:
                    return i
    return 0


@cython.cfunc
def of_clients(match: Match) -> Match:
    """The part of a match that clients of this node have asked for."""
    found: Match = Match.__new__(Match)
    groups: list = [tuple([sink for sink in group if is_client(sink)]) for group in match.queues]
    found.plain = tuple([sink for sink in match.plain if is_client(sink)])
    found.queues = tuple([group for group in groups if group])
    return found


@cython.cfunc
@cython.exceptval(-1, check=False)
def is_client(sink: Sink) -> cython.bint:
    return not sink.remote and sink.owner is not None and sink.owner.kind == KIND_CLIENT


@cython.cclass
class Account:
    """One tenant's subject space."""

    def __init__(self, name: str, kernel: Kernel):
        self.name = name
        self.kernel = kernel
        self.trie = Trie()
        self.cache = MatchCache(kernel.chance.below(1 << 64))
        self.prefixes = MatchCache(kernel.chance.below(1 << 64))
        self.endings = MatchCache(kernel.chance.below(1 << 64))
        self.generation = 1
        self.watchers = []
        self.limits = {}
        memset(cython.address(self.doorkeeper[0]), 0, cython.sizeof(self.doorkeeper))

    @property
    def is_full(self) -> bool:
        """Whether its subscriptions have so many shadows that it takes no more of them."""
        return self.shadows >= SHADOWS_MAX

    def tires(self) -> bool:
        """Whether so many shadows were made or ended that others are to have their turn; then it
        counts from nothing again."""
        if self.turned < SHADOWS_AT_ONCE:
            return False
        self.turned = 0
        return True

    @cython.ccall
    def insert(self, sink: Sink):
        """Add interest. Raises ValueError for what no peer could be told of."""
        if not is_valid(sink.subject, len(sink.subject)) or (
            sink.queue is not None and not clean_word(sink.queue)
        ):
            raise ValueError(f"interest in {sink.subject!r} for {sink.queue!r} makes no subject")
        self.trie.insert(sink)
        self.forget(sink.subject)
        for watcher in self.watchers:
            watcher.interest_added(sink)

    @cython.ccall
    def remove(self, sink: Sink):
        """Take interest away; nothing happens when it was not there."""
        sink.closed = True
        if self.trie.remove(sink):
            self.forget(sink.subject)
            for watcher in self.watchers:
                watcher.interest_removed(sink)

    @cython.cfunc
    def forget(self, subject: bytes):
        """Drop the cached matches that a change of interest in `subject` makes untrue."""
        text: cython.p_const_uchar = subject
        fixed: cython.Py_ssize_t = fixed_part(text, len(subject))
        self.generation += 1
        if fixed and is_literal(text, fixed) and subject[fixed:] != b".>":
            self.prefixes.drop(text, fixed)
            if is_literal(text, len(subject)):
                self.endings.drop(text, len(subject))
            else:
                self.endings.clear()
        elif is_literal(text, len(subject)):
            self.cache.drop(text, len(subject))
        else:
            self.cache.clear()
            self.prefixes.clear()
            self.endings.clear()

    @cython.ccall
    def served_as(self, subject: bytes) -> bytes:
        """The subject under which what is published on `subject` is served: another one for the
        alias of the JetStream domain. Rights are asked for this one."""
        rest: bytes
        if self.domain_prefix is None or not subject.startswith(self.domain_prefix):
            return subject
        rest = subject[len(self.domain_prefix) :]
        if rest.startswith(OWN_NAMES):
            return rest
        return b"$JS.API." + rest if rest == b"INFO" or rest.startswith(API_NAMES) else subject

    @cython.cfunc
    @cython.exceptval(check=False)
    def remaps(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
        """Whether `mapped` has to be asked for a subject."""
        if self.mappings is not None:
            return True
        if self.domain_prefix is None or n == 0 or subject[0] != 36:
            return False
        prefix: bytes = self.domain_prefix
        length: cython.Py_ssize_t = PyBytes_GET_SIZE(prefix)
        return n > length and memcmp(subject, PyBytes_AS_STRING(prefix), length) == 0

    @cython.ccall
    def mapped(self, subject: bytes) -> bytes:
        """Where a message goes that a client, a link or an importer puts on a subject.

        It is empty when the message is to be lost, and `subject` itself when nothing maps it. The
        account's own mappings go before the alias of its JetStream domain.
        """
        if self.mappings is not None:
            to: bytes = self.mappings.apply(subject)
            if to is not subject:
                return to
        return self.served_as(subject)

    def add_watcher(self, watcher: object) -> None:
        """Tell `watcher.interest_added(sink)` / `interest_removed(sink)` of every change."""
        self.watchers.append(watcher)

    def drop_watcher(self, watcher: object) -> None:
        """Stop telling `watcher`."""
        self.watchers = [w for w in self.watchers if w is not watcher]

    @cython.cfunc
    def match(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> Match:
        """Who wants a literal subject. Remembered from the second time it is asked for."""
        found: Match
        fixed: cython.Py_ssize_t = fixed_part(subject, n)
        self.lookups += 1
        if fixed:
            return self.match_prefix(subject, n, fixed)
        found = self.cache.find(subject, n)
        if found is None:
            self.walks += 1
            found = self.trie.match(subject, n)
            self.remember(self.cache, subject, n, found)
        return found

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remember(
        self,
        cache: MatchCache,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        found: Match,
    ) -> cython.int:
        """Put a match in a cache when its subject was seen before."""
        seen: cython.uint = fingerprint(subject, n)
        at: cython.uint = (seen >> 1) & DOORKEEPER_MASK
        if self.doorkeeper[at] == seen or self.doorkeeper[at ^ 1] == seen:
            cache.put(subject, n, found)
        else:
            # Two subjects that want one entry, in turn, both stay remembered.
            self.doorkeeper[at ^ 1] = self.doorkeeper[at]
            self.doorkeeper[at] = seen
        return 0

    @cython.cfunc
    def match_prefix(
        self, subject: cython.p_const_uchar, n: cython.Py_ssize_t, fixed: cython.Py_ssize_t
    ) -> Match:
        """`match` of a subject whose end is new with every message."""
        walk: Walk
        found: Match = self.prefixes.find(subject, fixed)
        if found is None and self.endings.count:
            found = self.endings.find(subject, n)
        if found is not None:
            return found
        self.walks += 1
        # Of an inbox one token is left, of an acknowledgement several.
        walk = self.trie.walk(subject, n, fixed, subject[0] == 36)
        found = walk.result()
        if walk.varied:
            self.remember(self.endings, subject, n, found)
        else:
            self.prefixes.put(subject, fixed, found)
        return found

    @cython.ccall
    def has_interest(self, subject: bytes) -> cython.bint:
        """Whether anything, here or behind a link, would get a message on `subject`."""
        found: Match = self.match(subject, len(subject))
        return bool(found.plain) or bool(found.queues)

    def fanouts(self) -> list[int]:
        """How many receivers each subject has whose match is remembered."""
        return self.cache.fanouts() + self.prefixes.fanouts() + self.endings.fanouts()

    def sinks(self, subject: bytes) -> list:
        """All sinks that match a literal subject, queue members included."""
        found: Match = self.match(subject, len(subject))
        return list(found.plain) + [sink for group in found.queues for sink in group]

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publish(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.Py_ssize_t:
        """Route a message; returns how many receivers took it."""
        return self.route(m, sender, self.match(m.subject, m.subject_len), None)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def route(
        self, m: cython.pointer(Msg), sender: Endpoint, match: Match, only: tuple
    ) -> cython.Py_ssize_t:
        """Route by a match already made.

        `only` names the queue groups that may take the message, for one that came over a link
        (the sending node has chosen them); None lets every group take it.
        """
        count: cython.Py_ssize_t = 0
        far: list = None
        touched: list
        sink: Sink
        admitted: cython.int = 1 if m.via == FROM_PEER else admits(m)
        if admitted != 1:
            self.refused += 1
            if admitted == 0:
                return 0
            match = of_clients(match)
        for item in match.plain:
            sink = cython.cast(Sink, item)
            if not sink.remote:
                count += sink.deliver(m, sender)
            elif sink.owner is not sender:
                if far is None:
                    far = []
                far.append(sink)
        if match.queues:
            for group in match.queues:
                sink = self.pick(cython.cast(tuple, group), m, sender, only)
                if sink is None:
                    continue
                if not sink.remote:
                    count += 1
                    continue
                if far is None:
                    far = []
                far.append(sink)
        if far is not None:
            # Only now, so that what local receivers publish meanwhile is collected by itself.
            touched = []
            for item in far:
                sink = cython.cast(Sink, item)
                if sink.owner.collect(sink):
                    touched.append(sink.owner)
            for item in touched:
                count += cython.cast(Endpoint, item).emit(m, sender)
        return count

    @cython.cfunc
    def pick(self, group: tuple, m: cython.pointer(Msg), sender: Endpoint, only: tuple) -> Sink:
        """Give the message to one member of a queue group, chosen by chance.

        A local member has taken it on return; a remote one is only chosen.
        """
        n: cython.Py_ssize_t = len(group)
        start: cython.Py_ssize_t
        i: cython.Py_ssize_t
        sink: Sink = cython.cast(Sink, group[0])
        chosen: Sink = None
        if only is not None and sink.queue not in only:
            return None
        start = cython.cast(cython.Py_ssize_t, self.kernel.random() % n)
        for i in range(n):
            sink = cython.cast(Sink, group[(start + i) % n])
            if sink.remote:
                if chosen is None and sink.owner is not sender and sink.owner.may_reach(m):
                    chosen = sink
            elif sink.deliver(m, sender) > 0:
                return sink
        return chosen

    def answer(self, reply: bytes, payload: bytes, headers: bytes = b"") -> None:
        """Answer for a service that the servers have for each account; see `send`.

        Like an answer from another account it goes where this account's mappings lead it, maybe
        nowhere.
        """
        to: bytes = self.mapped(reply)
        if to:
            self.send(to, payload, b"", headers)

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def send(
        self,
        subject: bytes,
        payload: bytes,
        reply: bytes = b"",
        headers: bytes = b"",
        shown: bytes = b"",
        sender: Endpoint = None,
        own: cython.bint = False,
    ) -> cython.Py_ssize_t:
        """Publish from Python; `headers` is a whole block or empty.

        `own` says that this node chose the subject, so that services may hear it.
        """
        m: Msg
        body: bytes = headers + payload if headers else payload
        set_message(cython.address(m), subject, body, PyBytes_GET_SIZE(headers), reply, shown)
        m.via = OWN if own else MADE
        count: cython.Py_ssize_t = self.publish(cython.address(m), sender)
        if not self.kernel.turning:
            self.kernel.kick()
        return count
