"""Every session of a node that has logged in: clients (WebSocket ones, too) and leaf links.

What ends or changes a session while it lasts is here, once for all kinds: its own expiry, that of
its account, revocation, a configuration or token that changed, the limits of its account, and the
operator's word. A route is no session of an account; it shares the numbering only.
"""

import asyncio
import functools
import heapq
from collections.abc import Callable, Iterable
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.kernel.wall_window import FOR_EVER, WallWindow
from headwater.security.errors import AuthError, SecurityError
from headwater.security.identity import Identity

Outcome = Identity | SecurityError
"""What was decided on a login: who it is, or why not."""

End = tuple[float, int, str]
"""When a session or an account ends, in Unix seconds; the number of the one, or the other's name.
"""
ENDED_KEPT = 64
"""Ends that are kept of what has ended before, besides as many as there are others."""
SWEEP_S = 0.25
"""How often the bytes of sessions with a limit of them are looked at."""

TOO_MANY = ("maximum account active connections exceeded", "Maximum Account Connections Exceeded")
ACCOUNT_EXPIRED = ("Account Authentication Expired", "Authentication Expired")
USER_EXPIRED = ("User Authentication Expired", "Authentication Expired")
DATA_EXCEEDED = ("maximum data exceeded", "Maximum Data Exceeded")
"""What the peer is told, and the reason that monitoring shows."""


class Session:
    """One session. Its makers say how it is ended and judged again."""

    __slots__ = (
        "account",
        "apply_limits",
        "conn",
        "decide",
        "end",
        "identity",
        "is_leaf",
        "rebind",
    )

    def __init__(
        self,
        conn: Any,
        account: Account,
        identity: Identity,
        *,
        end: Callable[[str, str], None],
        apply_limits: Callable[[], None],
        is_leaf: bool = False,
        decide: Callable[[Callable[[Outcome], None]], None] | None = None,
        rebind: Callable[[Identity], None] | None = None,
    ) -> None:
        """`end(text, reason)` tells the peer and closes; `apply_limits()` puts the limits of node,
        account and identity into force; `decide(done)` calls `done`, now or
        later, with the identity that the peer would have now or with why it has none, and
        `rebind(identity)` puts it into force. A link that this node dialled has neither."""
        self.conn = conn
        self.account = account
        self.identity = identity
        self.is_leaf = is_leaf
        self.end = end
        self.apply_limits = apply_limits
        self.decide = decide
        self.rebind = rebind

    def data_limit(self) -> int:
        """Bytes that this session may move; -1 is any number."""
        return self.identity.limits.max_data

    def moved(self) -> int:
        """Bytes of messages in both directions."""
        return int(self.conn.in_bytes + self.conn.out_bytes)


class Registry:
    """The sessions of one node, by connection, in the order in which they came."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._loop: asyncio.AbstractEventLoop = kernel.loop
        self._sessions: dict[int, Session] = {}
        self._by_account: dict[str, dict[int, Session]] = {}
        """The same of each account that has any. A reload, and each word about an account's
        connections, asks for those of one account; others may have thousands."""
        self._counts: dict[str, tuple[int, int]] = {}
        """Clients and leaf links of each account that has any."""
        self._metered: set[int] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._ends: dict[str, int] = {}
        """When the accounts end that do."""
        self._due: list[End] = []
        """A heap of when sessions and accounts end; what has ended before stays for a while."""
        self._accounts: dict[str, Account] = {}
        """Those that end."""
        self._first_end = WallWindow(kernel, self._end_due)
        self._last_cid = 0
        self._elsewhere: dict[str, tuple[int, int]] = {}
        """Clients and leaf links that accounts have on other servers of the cluster."""
        self.leaf_hook: Callable[[str], None] = _nobody
        """Called with the account's name a moment after a leaf link has come or gone."""

    def next_cid(self) -> int:
        """Number for a new connection of any kind; never used before."""
        self._last_cid += 1
        return self._last_cid

    # --- who is there ---

    def of_account(self, account: Account) -> list[Session]:
        """Sessions of an account, the oldest first."""
        there = self._by_account.get(account.name, {})
        return [session for session in there.values() if session.account is account]

    def all(self) -> list[Session]:
        """Every session, the oldest first."""
        return list(self._sessions.values())

    def find(self, cid: int) -> Session | None:
        """The session of a connection."""
        return self._sessions.get(cid)

    def has_room(self, account: Account, *, leaf: bool) -> bool:
        """Whether an account lasts and its limits leave room for one session more.

        Leaf links have a limit of their own, and count among the connections that a client's
        login is measured by.
        """
        if 0 < self._ends.get(account.name, 0) <= self._kernel.wall_ns() / 1e9:
            return False
        limit = account.limits.get("max_leafnodes" if leaf else "max_connections", -1)
        if limit < 0:
            return True
        clients, leafs = self._counts.get(account.name, (0, 0))
        other_clients, other_leafs = self._elsewhere.get(account.name, (0, 0))
        return bool(limit > (leafs + other_leafs if leaf else clients + leafs + other_clients))

    def busy(self) -> list[str]:
        """Names of the accounts that have sessions here."""
        return list(self._counts)

    def has_sessions(self, account: str) -> bool:
        """Whether an account has sessions here."""
        return account in self._counts

    def elsewhere(self, account: Account, clients: int, leafs: int) -> None:
        """What an account has on other servers now; those who are too many by that are ended, the
        newest first. The other servers may do the same, and some will come back."""
        if clients or leafs:
            self._elsewhere[account.name] = (clients, leafs)
        else:
            self._elsewhere.pop(account.name, None)
        there = self.of_account(account)
        links = [session for session in there if session.is_leaf]
        limits = account.limits
        over = _surplus(there, limits.get("max_connections", -1), clients)
        over += _surplus(links, limits.get("max_leafnodes", -1), leafs)
        for session in {id(each): each for each in over}.values():
            session.end(*TOO_MANY)

    # --- coming and going ---

    def enter(self, session: Session) -> None:
        """A session has logged in, or is now under another identity."""
        cid = session.conn.cid
        old = self._sessions.get(cid)
        if old is not None:
            self._leave_account(old)
        self._sessions[cid] = session
        self._by_account.setdefault(session.account.name, {})[cid] = session
        self._count(session, 1)
        self._metered.discard(cid)
        if session.identity.expires > 0:
            self._ends_at((session.identity.expires, cid, ""))
        if session.data_limit() > 0:
            self._metered.add(cid)
            if self._sweeper is None:
                self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    def leave(self, cid: int) -> None:
        """The connection of a session has ended; nothing happens when it was none."""
        session = self._sessions.pop(cid, None)
        self._metered.discard(cid)
        if session is not None:
            self._leave_account(session)

    def _leave_account(self, session: Session) -> None:
        name = session.account.name
        there = self._by_account[name]
        del there[session.conn.cid]
        if not there:
            del self._by_account[name]
        self._count(session, -1)

    def _count(self, session: Session, by: int) -> None:
        name = session.account.name
        clients, leafs = self._counts.get(name, (0, 0))
        if session.is_leaf:
            leafs += by
            self._loop.call_soon(self.leaf_hook, name)
        else:
            clients += by
        if clients or leafs:
            self._counts[name] = (clients, leafs)
        else:
            self._counts.pop(name, None)

    def _sweep(self) -> None:
        for cid in list(self._metered):
            session = self._sessions[cid]
            if session.moved() > session.data_limit():
                session.end(*DATA_EXCEEDED)
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep) if self._metered else None

    # --- what changes while they last ---

    def expire_account(self, account: Account, at: int) -> None:
        """End an account's sessions at `at` (Unix seconds); 0 takes the appointment back."""
        self._ends.pop(account.name, None)
        self._accounts.pop(account.name, None)
        if at > 0:
            self._ends[account.name] = at
            self._accounts[account.name] = account
            self._ends_at((at, 0, account.name))

    def _ends_at(self, end: End) -> None:
        heapq.heappush(self._due, end)
        if len(self._due) > 2 * (len(self._sessions) + len(self._ends)) + ENDED_KEPT:
            self._due = [each for each in self._due if self._is_due(each)]
            heapq.heapify(self._due)
        self._await_first()

    def _is_due(self, end: End) -> bool:
        """Whether that is still when it ends."""
        at, cid, name = end
        if name:
            return self._ends.get(name) == at
        session = self._sessions.get(cid)
        return session is not None and session.identity.expires == at

    def _await_first(self) -> None:
        self._first_end.watch(0, self._due[0][0] if self._due else FOR_EVER)

    def _end_due(self) -> None:
        now = self._first_end.now_s()
        while self._due and self._due[0][0] <= now:
            end = heapq.heappop(self._due)
            if self._is_due(end):
                self._loop.call_soon(self._end, end)
        self._await_first()

    def _end(self, end: End) -> None:
        if not self._is_due(end):
            return
        _, cid, name = end
        if name:
            self.end_account(self._accounts[name])
        else:
            self._sessions[cid].end(*USER_EXPIRED)

    def end_account(self, account: Account, text: tuple[str, str] = ACCOUNT_EXPIRED) -> None:
        """End every session of an account."""
        for session in self.of_account(account):
            session.end(*text)

    def apply_limits(self, account: Account) -> None:
        """End the sessions that are too many by the account's limits now, the newest first."""
        connections = account.limits.get("max_connections", -1)
        leafs = account.limits.get("max_leafnodes", -1)
        there = self.of_account(account)
        surplus = there[connections:] if connections >= 0 else []
        links = [session for session in there if session.is_leaf]
        for session in {id(s): s for s in surplus + (links[leafs:] if leafs >= 0 else [])}.values():
            session.end(*TOO_MANY)

    def judge(self, sessions: Iterable[Session]) -> None:
        """Decide again who these sessions are, and end those that would not be admitted now."""
        for session in list(sessions):
            if session.decide is not None and not session.conn.closed:
                session.decide(functools.partial(self._judged, session))

    def _judged(self, session: Session, outcome: Outcome) -> None:
        if isinstance(outcome, AuthError):
            session.end(outcome.ended_text, outcome.reason_shown)
        elif isinstance(outcome, SecurityError) or session.rebind is None:
            session.end(AuthError.ended_text, AuthError.reason_shown)
        else:
            session.rebind(outcome)

    def stop(self) -> None:
        """End all timers."""
        self._first_end.stop()
        if self._sweeper is not None:
            self._sweeper.cancel()


def _surplus(sessions: list[Session], limit: int, elsewhere: int) -> list[Session]:
    """The newest of `sessions` (oldest first) that are too many beside those elsewhere."""
    over = len(sessions) + elsewhere - limit if limit >= 0 else 0
    return sessions[max(0, len(sessions) - over) :] if over > 0 else []


def _nobody(account: str) -> None:
    """Is told of leaf links where nobody else is."""
