"""The route protocol on one connection between nodes of a cluster (NATS route protocol).

The peer's interest stands in all accounts. A message goes over one route at most: what came by a
route never leaves by another one, since every node of a cluster has a route to every other.
"""

import logging

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.broker.authorize import PUBLISH, authorize
from cython.cimports.headwater.edge.broker.halts import Halts
from cython.cimports.headwater.edge.broker.link import Link, RemoteSub
from cython.cimports.headwater.edge.kernel.kernel import KIND_LEAF, Endpoint, Kernel, Msg
from cython.cimports.headwater.federation.leaf.leaf_conn import LeafConn
from cython.cimports.libc.string import memcmp

from headwater.edge.subjects.tokens import clean_word

# Beside the kinds of the broker: connections to other nodes of the cluster.
KIND_ROUTE = 3

# The sender has checked its own limit; this bounds what a broken peer can make a node keep.
PAYLOAD_MAX = 64 << 20

# A buffer of a route is kept up to this: what is replicated comes in frames of up to 1 MiB, and
# fresh memory for each costs more than its copy.
BUFFER_KEPT = cython.declare(cython.Py_ssize_t, 4 << 20)

# Bytes of interest in accounts that are unknown here, and what an entry of it takes besides text.
ASIDE_BYTES_MAX = 4 << 20
ASIDE_OVERHEAD = 256

# The account of what nodes say to each other. It is no UTF-8, so no account is named like it.
NODE_ACCOUNT = b"\xffNODE"
NODE_NAME = cython.declare(cython.p_const_char, b"\xffNODE")
NODE_LEN = cython.declare(cython.Py_ssize_t, 5)

# How the reply subject of a message begins that a consumer hands out.
ACK_NAME = cython.declare(cython.p_const_char, b"$JS.ACK.")
ACK_LEN = cython.declare(cython.Py_ssize_t, 8)

# After which what comes is asked about: this node stood still, or heard nothing of the other one.
STALE_NS = cython.declare(cython.longlong, 1_000_000_000)

# Bytes that may still come from a node that was asked to hold them back: those of many publishers.
ON_THE_WAY = 64 << 20

log = logging.getLogger("headwater.route")


@cython.cclass
class RouteConn(Link):
    """One route, on either end."""

    def __init__(
        self, session: object, kernel: Kernel, cid: int, max_pending: int, accounts: object
    ):
        Link.__init__(self, session, kernel, cid, max_pending, b"R", True)
        self.own = None
        self.kind = KIND_ROUTE
        self.accounts = accounts
        self.max_payload = PAYLOAD_MAX
        self.kept = BUFFER_KEPT
        self.tells_origin = True
        self.origins = False
        self.ignored = frozenset()
        self.aside = {}
        self.on_frame = None
        self.late = self.stale = None
        self.halts = Halts(kernel, ON_THE_WAY)

    def dedicate(self, account: bytes) -> None:
        """Be the route of one account, which its lines do not name."""
        self.own = account
        self.named = False

    # --- messages ----------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def handle(self, n: cython.Py_ssize_t) -> cython.int:
        """As of `Conn`."""
        if self.stale is not None and self.received_ns - self.fresh_ns > STALE_NS:
            self.stale(self)
        return Link.handle(self, n)

    @cython.cfunc
    def account_for(self, name: cython.p_const_uchar, n: cython.Py_ssize_t) -> Account:
        """The account of that name, None when this node has none; that of the previous message
        when it is the same one."""
        if (
            self.last_name is None
            or self.last_account is None
            or PyBytes_GET_SIZE(self.last_name) != n
            or memcmp(PyBytes_AS_STRING(self.last_name), name, n) != 0
        ):
            self.last_name = PyBytes_FromStringAndSize(cython.cast(cython.p_char, name), n)
            self.last_account = self.accounts(self.last_name.decode("utf-8", "replace"))
        return self.last_account

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def inbound(
        self,
        name: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        m: cython.pointer(Msg),
        only: tuple,
    ) -> cython.int:
        """Route a message of the peer to everybody on this node who wants it."""
        if self.own is not None:
            if m.subject_len == NODE_LEN and memcmp(m.subject, NODE_NAME, NODE_LEN) == 0:
                # Such lines name no account, so what nodes say has its kind where replies are.
                m.subject, m.subject_len = m.reply, m.reply_len
                self.node_frame(m)
                return 0
            name = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.own))
            n = PyBytes_GET_SIZE(self.own)
        elif n == NODE_LEN and memcmp(name, NODE_NAME, n) == 0:
            self.node_frame(m)
            return 0
        account: Account = self.account_for(name, n)
        if account is None or not authorize(
            self.principal, PUBLISH, m.subject, m.subject_len, m.via, None
        ):
            return 0
        if self.late is not None and self.comes_late(m, name, n):
            return 0
        self.route(account, m, account.match(m.subject, m.subject_len), only)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def comes_late(
        self, m: cython.pointer(Msg), name: cython.p_const_uchar, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Whether a message is a delivery of a leader that was replaced, and goes no further."""
        if m.reply_len <= ACK_LEN or memcmp(m.reply, ACK_NAME, ACK_LEN) != 0:
            return False
        at: cython.p_char = cython.cast(cython.p_char, m.body)
        return self.late(
            self,
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, name), n),
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len),
            PyBytes_FromStringAndSize(at, m.header_len),
            PyBytes_FromStringAndSize(at + m.header_len, m.size - m.header_len),
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def node_frame(self, m: cython.pointer(Msg)) -> cython.int:
        """Hand on what the peer's node says to this one. It is no message, and not counted."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        self.in_msgs -= 1
        self.in_bytes -= m.size
        self.kernel.in_msgs -= 1
        self.kernel.in_bytes -= m.size
        if self.on_frame is not None and m.header_len == 0:
            self.on_frame(
                self,
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                PyBytes_FromStringAndSize(body, m.size),
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_leave(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message may go to the peer: not when it came by a route, or from the hub, which
        tells each node of this cluster by its own link, or is not exported."""
        by: Endpoint = self.kernel.arrived_by if self.kernel.arrived == m else None
        if by is not None and (by.kind != KIND_LEAF or cython.cast(LeafConn, by).spoke):
            return False
        return Link.may_leave(self, m)

    @cython.cfunc
    def origin_of(self, m: cython.pointer(Msg)) -> bytes:
        """The cluster that a message came from by a leaf link: the peer may have one to it, too."""
        if self.kernel.arrived != m or not self.kernel.arrived_from or not self.origins:
            return None
        return self.kernel.arrived_from

    @cython.cfunc
    def asked_for(self, account: Account) -> bytes:
        """As of Link: by its name, since a route serves several."""
        return account.name.encode()

    @cython.cfunc
    def written_for(self) -> bytes:
        """As of Link."""
        return self.name if self.own is None else self.own

    # --- interest ----------------------------------------------------

    def interest_added(self, args: list) -> None:
        """RS+ <account> <subject> [<queue> <weight>], without the account when it has the route
        for itself."""
        self.interest_of(None, args)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def verb(self, line: bytes) -> cython.int:
        """Act on one control line; LS+ and LS- are RS+ and RS- of a cluster behind a leaf link of
        the peer, which is named first."""
        head: bytes = line[:4].upper()
        if head != b"LS+ " and head != b"LS- ":
            return Link.verb(self, line)
        if self.admitted():
            args: list = line[4:].split()
            if len(args) < 2 or not clean_word(args[0]):
                self.broken("Parse Error")
            elif head == b"LS+ ":
                self.interest_of(args[0], args[1:])
            else:
                self.interest_ended(args[0], args[1:])
        return 0

    def interest_of(self, origin: bytes | None, args: list) -> None:
        """The peer wants something, for a cluster that is linked to it, or for all others."""
        if self.own is not None:
            args.insert(0, self.own)
        wanted = self.wanted(args[1:])
        if wanted is None or args[1] in self.ignored:
            return
        if not clean_word(args[0]):
            self.broken("Parse Error")
            return
        if not self.principal.may_subscribe(args[1]):
            return
        subject, queue, weight = wanted
        account = self.accounts(args[0].decode("utf-8", "replace"))
        if account is None:
            self.put_aside((args[0], subject, queue, origin), weight)
            return
        sub = RemoteSub(self, subject, queue, weight, args[0], origin)
        self.keep_interest((args[0], subject, queue, origin), account, sub)

    def put_aside(self, key: tuple, weight: int) -> None:
        """Keep interest in an account that this node does not have, for when it gets it."""
        size: int = self.aside_size(key)
        if key in self.aside:
            self.aside[key] = weight
        elif self.aside_bytes + size <= ASIDE_BYTES_MAX:
            self.aside[key] = weight
            self.aside_bytes += size
        elif not self.aside_full:
            self.aside_full = True
            log.warning(
                "rid:%d - the peer names more accounts that are unknown here than are kept; "
                "messages "
                "for the others may not reach it: give both nodes the same accounts",
                self.cid,
            )

    def account_made(self, account: Account) -> None:
        """This node has got an account: what the peer wants in it is in force."""
        name: bytes = account.name.encode()
        for key in [key for key in self.aside if key[0] == name]:
            sub = RemoteSub(self, key[1], key[2], self.drop_aside(key), name, key[3])
            self.keep_interest(key, account, sub)

    def drop_aside(self, key: tuple) -> int:
        """Forget interest that was put aside; returns its weight, 0 when there was none."""
        weight: int = self.aside.pop(key, 0)
        if weight:
            self.aside_bytes -= self.aside_size(key)
        return weight

    def aside_size(self, key: tuple) -> int:
        """Bytes that an entry takes."""
        return sum([len(each) for each in key if each is not None]) + ASIDE_OVERHEAD

    def interest_removed(self, args: list) -> None:
        """RS- <account> <subject> [<queue>], without the account when it has the route for
        itself."""
        self.interest_ended(None, args)

    def interest_ended(self, origin: bytes | None, args: list) -> None:
        """The peer wants something no more, for that cluster, or for all others."""
        if self.own is not None:
            args.insert(0, self.own)
        if not 2 <= len(args) <= 3:
            self.broken("Parse Error")
            return
        key = (args[0], args[1], args[2] if len(args) == 3 else None, origin)
        self.drop_aside(key)
        sub = self.subs.pop(key, None)
        if sub is not None:
            self.forget(sub)

    def forget(self, sub: RemoteSub) -> None:
        """Take one subscription of the peer out of its account."""
        self.accounts(sub.account.decode("utf-8", "replace")).remove(sub)

    def forget_account(self, name: bytes) -> None:
        """Take all of the peer's interest in one account away: it is told on another route."""
        for key in [key for key in self.subs if key[0] == name]:
            self.forget(cython.cast(RemoteSub, self.subs.pop(key)))
        for key in [key for key in self.aside if key[0] == name]:
            self.drop_aside(key)

    def ended(self) -> None:
        """Forget the peer's interest, and what it asked to hold back."""
        self.ready = False
        self.halts.end()
        for sub in list(self.subs.values()):
            self.forget(cython.cast(RemoteSub, sub))
        self.subs.clear()
        self.aside.clear()
