"""Login decisions that need a slow password hash, made without holding up the event loop.

A decision is tried at once. When it turns out to need bcrypt (`security.errors.HashNeeded`), the
hash is computed in a thread, its verdict is put into the request, and the decision is tried again:
so every listener decides by the same code, and nothing of it runs beside the loop.

Addresses take turns, so that one that guesses passwords makes only itself wait.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headwater.security import passwords
from headwater.security.errors import (
    AccountNeeded,
    AuthError,
    CalloutRequired,
    HashNeeded,
    SecurityError,
)
from headwater.security.identity import AuthRequest

log = logging.getLogger("headwater.broker")

WAITING_MAX = 1024
"""Logins that may wait for their hash; more are refused at once."""

WAITING_MAX_OF_ONE = 256
"""The same, for one address."""

Outcome = Any
"""What a decision returned, or the SecurityError that it raised."""


AskService = Callable[[Any, AuthRequest, CalloutRequired, Callable[[Outcome], None]], None]


SeekAccount = Callable[[str, Callable[[], None]], bool]
"""Looks for an account's token and calls back when it was found, or was not; False when too many
wait already."""


class _Waiting:
    """One login whose hash has to be computed."""

    __slots__ = ("attempt", "conn", "done", "needed", "request")

    def __init__(
        self,
        conn: Any,
        request: AuthRequest,
        attempt: Callable[[AuthRequest], Any],
        done: Callable[[Outcome], None],
        needed: HashNeeded,
    ) -> None:
        self.conn = conn
        self.request = request
        self.attempt = attempt
        self.done = done
        self.needed = needed


class PasswordChecks:
    """All login decisions of a node. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()
        self._busy = False
        self.waiting = 0
        """Logins that wait for their hash."""
        self.ask_service: AskService | None = None
        """Lets the callout service decide; without one, whoever it has to decide on is refused."""
        self.seek_account: SeekAccount | None = None
        """Looks for tokens of accounts that are not held; None where there is no other place."""

    def decide(
        self,
        conn: Any,
        request: AuthRequest,
        attempt: Callable[[AuthRequest], Any],
        done: Callable[[Outcome], None],
    ) -> None:
        """Call `done` with what `attempt(request)` returns, or with the SecurityError it raises.

        At once, or later when a hash has to be computed: `conn` is halted meanwhile, unless it
        has logged in before, and `done` is not called when it has ended by then.
        """
        if request.verdicts is None:
            request.verdicts = {}
        if request.sought is None and self.seek_account is not None:
            request.sought = set()
        try:
            outcome = attempt(request)
        except HashNeeded as needed:
            self._wait(_Waiting(conn, request, attempt, done, needed))
            return
        except CalloutRequired as needed:
            if self.ask_service is not None:
                self.ask_service(conn, request, needed, done)
                return
            outcome = needed
        except AccountNeeded as needed:
            self._seek(conn, request, attempt, done, needed.account)
            return
        except SecurityError as error:
            outcome = error
        done(outcome)

    def _seek(
        self,
        conn: Any,
        request: AuthRequest,
        attempt: Callable[[AuthRequest], Any],
        done: Callable[[Outcome], None],
        account: str,
    ) -> None:
        """Decide again when the account's token was looked for."""
        assert request.sought is not None and self.seek_account is not None
        request.sought.add(account)
        if not conn.ready:
            conn.halt()

        def resumed(outcome: Outcome) -> None:
            done(outcome)
            conn.proceed()

        def sought() -> None:
            if not conn.closed:
                self.decide(conn, request, attempt, resumed)

        if not self.seek_account(account, sought):
            resumed(AuthError("too many logins wait for the token of their account"))

    def _wait(self, waiting: _Waiting) -> None:
        queue = self._queues.setdefault(waiting.request.host, deque())
        if self.waiting >= WAITING_MAX or len(queue) >= WAITING_MAX_OF_ONE:
            waiting.done(AuthError("too many logins wait for their password to be checked"))
            return
        if not waiting.conn.ready:
            waiting.conn.halt()
        queue.append(waiting)
        self.waiting += 1
        self._next()

    def _next(self) -> None:
        """Compute the hash of the next login, taking addresses in turn."""
        while self._queues and not self._busy:
            host, queue = self._queues.popitem(last=False)
            if not queue:
                continue
            waiting = queue.popleft()
            self.waiting -= 1
            if queue:
                self._queues[host] = queue
            if not waiting.conn.closed:
                self._compute(waiting)

    def _compute(self, waiting: _Waiting) -> None:
        self._busy = True
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        needed = waiting.needed
        computed = self._loop.run_in_executor(
            self._pool, passwords.matches, needed.configured, needed.presented
        )
        computed.add_done_callback(lambda future: self._computed(waiting, future))

    def _computed(self, waiting: _Waiting, future: "asyncio.Future[bool]") -> None:
        self._busy = False
        conn, needed = waiting.conn, waiting.needed
        if future.cancelled():
            return
        verdict = future.exception() is None and future.result()
        if not conn.closed:
            assert waiting.request.verdicts is not None
            waiting.request.verdicts[needed.configured, needed.presented] = verdict
            self.decide(conn, waiting.request, waiting.attempt, self._resumed(waiting))
        self._next()

    def _resumed(self, waiting: _Waiting) -> Callable[[Outcome], None]:
        def done(outcome: Outcome) -> None:
            waiting.done(outcome)
            waiting.conn.proceed()

        return done

    def stop(self) -> None:
        """Compute no more; logins that wait get no answer."""
        self._queues.clear()
        self.waiting = 0
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
