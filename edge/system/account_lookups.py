"""Looks for account tokens that are not held: at a URL, or with the other servers of the system.

A login that needs a token waits for it, a bounded time. Accounts that an account imports from are
looked for with it, since its imports are in force only with them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.ports.draws import draw_text
from headwater.edge.system.wanted_accounts import WantedAccounts
from headwater.security import jwt
from headwater.security.errors import JWTError, SecurityError
from headwater.security.resolvers.lookup import UrlResolver

if TYPE_CHECKING:
    from headwater.edge.broker.account import Account
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

LOOKUPS_MAX = 256
"""Accounts that are looked for at one time; logins that need more are refused."""

WAITING_MAX = 4096
"""Logins that wait for them."""

URL_S = 2.0
"""Seconds that an HTTP server may take, as nats-server."""

AT_ONCE = 8
"""Requests to it at one time."""

PEERS_S = 1.0
"""Seconds that the other nodes have to get a token that was found here."""

LOOKUP = b"$SYS.REQ.ACCOUNT.%b.CLAIMS.LOOKUP"
"""Asks every server for the token of an account."""

WANTED = b"$SYS._HEADWATER.ACCOUNT.%b.WANTED"
"""Asks every node to have the token of an account, and to say so."""


class AccountLookups:
    """The lookups of one node: the service that plugs into it."""

    name = "lookups"

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._waiting = 0
        self._fetcher: _Fetcher | None = None
        self._questions: dict[bytes, _Question] = {}
        self._sink: CallbackSink | None = None

    def start(self, node: "NodeView") -> None:
        """Let logins look for tokens here. Raises SecurityError when a URL cannot be had."""
        self._node = node
        if isinstance(node.authenticator.resolver, UrlResolver):
            self._fetcher = _Fetcher(node.options)
            self._fetcher.check()
        self._system = node.account(node.system_account)
        self._inbox = f"$SYS._INBOX.{draw_text(node.kernel.chance)}.".encode()
        self._sink = CallbackSink(
            self._inbox + b"*",
            lambda subject, reply, headers, payload, sender: self._answered(subject, payload),
        )
        self._wanted_sink = CallbackSink(
            WANTED % b"*",
            lambda subject, reply, headers, payload, sender: self._on_wanted(subject, reply),
        )
        self._system.insert(self._sink)
        self._system.insert(self._wanted_sink)
        node.sessions.checks.seek_account = self.seek
        self._wanted = WantedAccounts(node, self._held)
        node.account_wanted = self._wanted.want
        node.account_hooks.append(self._made)
        for name in node.accounts:
            self._wanted.want(name)
        if node.authenticator.account_claims(node.system_account) is None:
            self.seek(node.system_account, lambda: None)

    async def stop(self) -> None:
        """Look for nothing any more."""
        self._node.sessions.checks.seek_account = None
        self._node.account_wanted = lambda name: None
        self._node.account_hooks.remove(self._made)
        self._wanted.stop()
        if self._sink is not None:
            self._system.remove(self._sink)
            self._system.remove(self._wanted_sink)
        for task in list(self._asked.values()):
            task.cancel()
        if self._fetcher is not None:
            self._fetcher.stop()

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what monitoring knows."""
        return {}

    def seek(self, account: str, done: Callable[[], None]) -> bool:
        """Call `done` when the token of an account was found, or was not. False when too many
        wait already; then `done` is not called."""
        if self._waiting >= WAITING_MAX:
            return False
        task = self._task(account, login=True)
        if task is None:
            return False
        self._waiting += 1
        task.add_done_callback(lambda task: self._found(task, done))
        return True

    def _task(self, account: str, login: bool) -> "asyncio.Task[None] | None":
        """What looks for an account, begun if nothing does; None when there are too many."""
        task = self._asked.get(account)
        if task is None and len(self._asked) < LOOKUPS_MAX:
            task = self._node.loop.create_task(self._look(account, login))
            self._asked[account] = task
            task.add_done_callback(lambda _: self._asked.pop(account, None))
        return task

    def _made(self, account: "Account") -> None:
        self._wanted.want(account.name)

    async def _held(self, account: str) -> bool:
        """Look for an account's token; whether it is held now."""
        task = self._task(account, login=False)
        if task is not None:
            await asyncio.shield(task)
        return self._node.authenticator.account_claims(account) is not None

    def _found(self, task: "asyncio.Task[None]", done: Callable[[], None]) -> None:
        self._waiting -= 1
        if not task.cancelled():
            task.exception()
            done()
            self._node.kernel.kick()

    async def _look(self, account: str, login: bool) -> None:
        """Find the token of an account, and those of the accounts that it imports from. A `login`
        goes on when the other nodes have it, too: one of them may lead the cluster, and is to hear
        the account's first request."""
        if not await self._learn(account):
            return
        claims = self._node.authenticator.account_claims(account)
        known = self._node.authenticator.resolver.claims
        others = {item.account for item in claims.nats.imports} if claims is not None else set()
        missing = sorted(other for other in others if known(other) is None)[:LOOKUPS_MAX]
        for other in missing:
            await self._learn(other)
        self._node.account_changed(account)
        if login:
            await self._question(WANTED, account, PEERS_S)

    async def _learn(self, account: str) -> bool:
        """Have the token of one account; False when there is none that counts."""
        try:
            if self._fetcher is not None:
                token = await self._fetcher.fetch(account)
            else:
                token = await self._ask(account)
            if not token:
                raise JWTError("nobody has it")
            claims = jwt.decode_account(token)
            if claims.sub != account:
                raise JWTError("it is the token of another account")
            self._node.authenticator.learn_account(token, claims)
        except SecurityError as error:
            log.warning(
                "the token of account %s was not found: %s; its logins are refused until it is: "
                "push it",
                account,
                error,
            )
            return False
        return True

    # --- other servers ---

    async def _ask(self, account: str) -> str:
        """The token that another server has; empty when nobody says so in time."""
        options = self._node.options.operator.resolver
        return await self._question(LOOKUP, account, options.timeout)

    async def _question(self, pattern: bytes, account: str, seconds: float) -> str:
        """The first answer that is not empty; empty when all have answered so, or time is up. Who
        only reads what the system says answers nothing."""
        subject = pattern % account.encode()
        served = pattern % b"*"
        asked = sum(sink.subject == served for sink in self._system.sinks(subject))
        inbox = self._inbox + draw_text(self._node.kernel.chance).encode()
        question = self._questions[inbox] = _Question(self._node.loop.create_future())
        try:
            self._system.send(subject, b"", inbox, own=True)
            question.sent(asked)
            self._node.kernel.kick()
            async with asyncio.timeout(seconds):
                return await question.answer
        except TimeoutError:
            return ""
        finally:
            del self._questions[inbox]

    def _on_wanted(self, subject: bytes, reply: bytes) -> None:
        """Another node has let an account in, or this one is about to."""

        def answer() -> None:
            self._system.send(reply, b"", own=True)
            self._node.kernel.kick()

        self._wanted.want(subject.split(b".")[3].decode("utf-8", "replace"), answer)

    def _answered(self, subject: bytes, payload: bytes) -> None:
        question = self._questions.get(subject)
        if question is not None and len(payload) <= jwt.MAX_TOKEN_BYTES:
            question.answered(payload.decode("ascii", "replace").strip())


class _Question:
    """One question to the other servers. The first that has the token decides; when all who were
    asked have said that they do not, there is none."""

    def __init__(self, answer: "asyncio.Future[str]") -> None:
        self.answer = answer
        self._asked = -1
        self._without = 0

    def sent(self, asked: int) -> None:
        """The question is on its way to so many."""
        self._asked = asked
        self._resolve("")

    def answered(self, token: str) -> None:
        """One has answered; an empty token is none."""
        if token:
            self._resolve(token)
        else:
            self._without += 1
            self._resolve("")

    def _resolve(self, token: str) -> None:
        if not self.answer.done() and (token or 0 <= self._asked <= self._without):
            self.answer.set_result(token)


class _Fetcher:
    """Requests to the HTTP server of a URL resolver, in threads of its own."""

    def __init__(self, options: Any) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self._url = options.operator.resolver.url
        if not self._url.startswith(("http://", "https://")):
            raise JWTError(f"the resolver's URL {self._url!r} is none of HTTP")
        if not self._url.endswith("/"):
            self._url += "/"
        self._context = _client_tls(options.resolver_tls) if options.resolver_tls else None
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tokens")

    def check(self) -> None:
        """Raises SecurityError unless the URL itself is answered: a node that could admit nobody
        should say so at once."""
        self._get("")

    async def fetch(self, account: str) -> str:
        """The token that the server has of an account. Raises SecurityError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._get, account)

    def _get(self, account: str) -> str:
        import http.client
        import urllib.request

        request = urllib.request.Request(self._url + account)
        try:
            with urllib.request.urlopen(request, timeout=URL_S, context=self._context) as answer:
                if answer.status != http.client.OK:
                    raise JWTError(f"could not fetch {account!r}: status {answer.status}")
                text: bytes = answer.read(jwt.MAX_TOKEN_BYTES + 1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise JWTError(f"could not fetch {account!r}: {error}") from error
        return text.decode("ascii", "replace").strip()

    def stop(self) -> None:
        """Fetch no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _client_tls(tls: Any) -> Any:
    """The context of `resolver_tls`. Raises TLSConfigError."""
    from headwater.edge.conf.tls_section import certificate_pairs
    from headwater.security.tls.contexts import client_context

    return client_context(
        certificate_pairs(tls),
        ca_file=tls.ca_file,
        insecure=tls.insecure,
        min_version=tls.min_version,
        cipher_suites=tls.cipher_suites,
    )
