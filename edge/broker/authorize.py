"""Who may do what: `authorize(principal, action, subject, via)` answers it for every path.

The principal is a connection: a `Login` (a client, over TCP or WebSocket, of whatever name or
token) or a `Peer` (a leaf link or a route). None is the node itself. Tables of permissions are
read here and nowhere else (`tests/edge/broker/authorize/test_one_door.py`).

A message carries how it came to be (`Msg.via`). One from a peer was taken out of a frame, so its
words are clean, and its connection has asked for its rights here. One that the node makes itself
goes where somebody else said: the subject of a push consumer, the reply of a request, a republish,
a snapshot, the answer of an imported service. Such a subject never reaches what the node serves,
since whoever named it may lack the right to ask for that, and it never reaches a wire unless it is
clean: it may come out of JSON, an archive or a transform. `Account.route` asks `admits` for every
message that is not a peer's.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.rights.rules import Rules
from cython.cimports.headwater.edge.kernel.kernel import FROM_PEER, MADE, Msg
from cython.cimports.headwater.edge.subjects.word_scan import is_clean
from cython.cimports.libc.string import memcmp

from headwater.edge.subjects.tokens import literal_subject

JETSTREAM = cython.declare(cython.p_const_char, b"$JS.")
SYSTEM = cython.declare(cython.p_const_char, b"$SYS.")
# Where servers of a cluster wait for answers to their own requests.
SYSTEM_INBOX = cython.declare(cython.p_const_char, b"$SYS._INBOX")
REPLICATION = cython.declare(cython.p_const_char, b"$NRG.")
ACK = cython.declare(cython.p_const_char, b"$JS.ACK.")
RESPONSE = cython.declare(cython.p_const_char, b"_R_.")
# What the node serves below `$JS.`, and below `$JS.<domain>.`.
API = cython.declare(cython.p_const_char, b"API.")
ACKS = cython.declare(cython.p_const_char, b"ACK.")
TRANSFERS = cython.declare(cython.p_const_char, b"SNAPSHOT.")
# Interest by which links find loops, and interest that servers tell of for themselves.
LOOP = b"$LDS."
LINKS_OWN = (LOOP, b"$GR.", b"_GR_.")
# Answers that find their way back over gateways, in older and newer servers.
ROUTED = cython.declare(cython.p_const_char, b"_GR_.")
ROUTED_BEFORE = cython.declare(cython.p_const_char, b"$GR.")


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def starts(
    text: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    prefix: cython.p_const_char,
    prefix_len: cython.Py_ssize_t,
) -> cython.bint:
    return n > prefix_len and memcmp(text, prefix, prefix_len) == 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reserved(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a subject is one on which the node serves: its API, acknowledgements, transfers of
    backups, the system's requests and events, replication."""
    i: cython.Py_ssize_t
    if n < 5 or subject[0] != 36:
        return False
    if starts(subject, n, SYSTEM, 5):
        return not starts(subject, n, SYSTEM_INBOX, 11)
    if starts(subject, n, REPLICATION, 5):
        return True
    if not starts(subject, n, JETSTREAM, 4):
        return False
    subject += 4
    n -= 4
    if (
        starts(subject, n, API, 4)
        or starts(subject, n, ACKS, 4)
        or starts(subject, n, TRANSFERS, 9)
    ):
        return True
    for i in range(n):
        if subject[i] == 46:
            return starts(subject + i + 1, n - i - 1, API, 4)
    return False


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def reserved_reply(reply: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a client may not ask for an answer on this subject: it is an acknowledgement or the
    answer of an imported service, which the node gives meaning to, or one of gateways."""
    if n < 5 or (reply[0] != 36 and reply[0] != 95):
        return False
    return starts(reply, n, RESPONSE, 4) or starts(reply, n, ACK, 8) or routed(reply, n)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def routed(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a subject is an answer's on its way over gateways, which no client makes."""
    return starts(subject, n, ROUTED, 5) or starts(subject, n, ROUTED_BEFORE, 4)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def exempt(subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a message may cross a link against any rule: acknowledgements and the answers of
    imported services reach what asked for them."""
    return n > 4 and (starts(subject, n, RESPONSE, 4) or starts(subject, n, ACK, 8))


@cython.cfunc
@cython.exceptval(-1, check=False)
def authorize(
    principal: Principal,
    action: cython.int,
    subject: cython.p_const_uchar,
    n: cython.Py_ssize_t,
    via: cython.int,
    queue: bytes,
) -> cython.int:
    """Whether `principal` may do that; 1 or 0.

    `via` says how the message in hand came to be; it counts for what the node does itself. `queue`
    is the group that a subscription or delivery is for, None without one. A right to answer that
    was granted for a number of messages is used up by the PUBLISH that it allows.
    """
    if principal is not None:
        return principal.may(action, subject, n, queue)
    if via == FROM_PEER:
        return 1
    if action == PUBLISH:
        return n > 0 and is_clean(subject, n) and not (via == MADE and reserved(subject, n))
    return is_clean(subject, n)


@cython.cfunc
@cython.exceptval(-1, check=False)
def admits(m: cython.pointer(Msg)) -> cython.int:
    """Whether a message that the node makes may be routed: each of its words is asked for.

    0 is nowhere, 1 everywhere, 2 to clients alone: a subject on which the node serves is one that
    clients may listen on, too, but no service may hear what somebody else named it for.
    """
    # `authorize` for a message's three words at once: all are clean, and one more rule holds for
    # what is published.
    if (
        m.subject_len == 0
        or not is_clean(m.subject, m.subject_len)
        or (m.reply_len and not is_clean(m.reply, m.reply_len))
        or (m.shown_len and not is_clean(m.shown, m.shown_len))
    ):
        return 0
    return 2 if m.via == MADE and reserved(m.subject, m.subject_len) else 1


@cython.cclass
class Principal:
    """Whose rights count. The methods for interpreted callers ask `authorize`, too."""

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may(
        self,
        action: cython.int,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        queue: bytes,
    ) -> cython.int:
        """The verdict of this kind of principal; `authorize` is the only caller."""
        return 0

    @cython.cfunc
    def served(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> bytes:
        """The subject under which what is published on `subject` is served: another one for the
        alias of a JetStream domain. Rights are asked for this one."""
        name: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        if self.account is None or not starts(subject, n, JETSTREAM, 4):
            return name
        return self.account.served_as(name)

    def may_publish(self, subject: bytes) -> bool:
        """Whether a message may be put on a literal subject."""
        return bool(authorize(self, PUBLISH, subject, len(subject), FROM_PEER, None))

    def may_subscribe(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether messages of `subject`, which may hold wildcards, may be wanted."""
        return bool(authorize(self, SUBSCRIBE, subject, len(subject), FROM_PEER, queue))

    def may_receive(self, subject: bytes, queue: bytes | None = None) -> bool:
        """Whether a message on a literal subject may be given to it."""
        return bool(authorize(self, RECEIVE, subject, len(subject), FROM_PEER, queue))

    def may_be_asked(self, subject: bytes) -> bool:
        """Whether it may be told that this node wants messages of `subject`."""
        return bool(authorize(self, ASK, subject, len(subject), FROM_PEER, None))


@cython.cclass
class Login(Principal):
    """What one client may do: `rights` of its login, None when nothing is denied."""

    def __init__(self, account: object = None, rights: object = None):
        self.account = account
        self.rights = rights
        self.verdicts = {} if rights is None else rights.publish_cache

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may(
        self,
        action: cython.int,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        queue: bytes,
    ) -> cython.int:
        """Subjects that servers give meaning to among themselves are denied to everybody."""
        name: bytes
        if action == REPLY:
            return not reserved_reply(subject, n)
        if action == PUBLISH and may_be_servers(subject, n):
            if routed(subject, n):
                return 0
            if starts(subject, n, REPLICATION, 5) and not self.administrates():
                return 0
        if self.rights is None:
            return 1
        if action == PUBLISH:
            return self.publishes(subject, n)
        name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        if action == SUBSCRIBE:
            return 1 if self.rights.can_subscribe(name, queue) else 0
        return 0 if self.rights.withholds(name, queue) else 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def administrates(self) -> cython.bint:
        """Whether it is a user of the system account."""
        return self.account is not None and self.account.system

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def publishes(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """The verdict on a publish. Most clients publish on one subject again and again."""
        name: bytes = self.last
        if (
            name is not None
            and PyBytes_GET_SIZE(name) == n
            and memcmp(PyBytes_AS_STRING(name), subject, n) == 0
        ):
            return 1
        name = self.served(subject, n)
        if self.verdicts.get(name) is not True and not self.rights.can_publish(name):
            return 0
        # Not what was granted for a number of messages, nor what an alias stands for.
        if self.verdicts.get(name) is True and not starts(subject, n, JETSTREAM, 4):
            self.last = name
        return 1

    def filters(self, subject: bytes, queue: bytes | None) -> bool:
        """Whether deliveries to an allowed subscription have to be asked for one by one."""
        return self.rights is not None and self.rights.filters(subject, queue)

    def answered(self, reply: bytes) -> None:
        """A message with this reply was delivered: the right to answer is granted."""
        self.rights.grant_reply(reply)

    def named(self, subject: bytes) -> bytes:
        """The subject that a refusal of a publish names."""
        return self.served(subject, len(subject))


@cython.cclass
class Peer(Principal):
    """What one link may do. What is not given is not restricted."""

    def __init__(
        self,
        account: object = None,
        *,
        comes: Rules = None,
        aliased: Rules = None,
        leaves: Rules = None,
        wants: Rules = None,
        asks: Rules = None,
        acks_leave: bool = False,
        wide: bool = False,
    ):
        self.account = account
        self.comes = comes or Rules()
        self.aliased = aliased or Rules()
        self.leaves = leaves or Rules()
        self.wants = wants or Rules()
        self.asks = asks or Rules()
        self.acks_leave = acks_leave
        self.wide = wide

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may(
        self,
        action: cython.int,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        queue: bytes,
    ) -> cython.int:
        """Another server has judged replies already, when its client sent them."""
        name: bytes
        if action == PUBLISH:
            if exempt(subject, n):
                return 1
            if not self.comes.permits(subject, n):
                return 0
            if not self.aliased.deny or not starts(subject, n, JETSTREAM, 4):
                return 1
            name = self.served(subject, n)
            return self.aliased.permits(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(name)), PyBytes_GET_SIZE(name)
            )
        if action == RECEIVE:
            return self.leaves.permits(subject, n) or (self.acks_leave and exempt(subject, n))
        if action == REPLY:
            return 1
        name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        if action == SUBSCRIBE:
            if name.startswith(LINKS_OWN) or (self.wide and not literal_subject(name)):
                return 1
            return 1 if self.wants.permits_interest(name) else 0
        return 1 if name.startswith(LOOP) or self.asks.permits_interest(name) else 0


def is_reserved(subject: bytes) -> bool:
    """`reserved` for interpreted callers."""
    return reserved(subject, len(subject))
