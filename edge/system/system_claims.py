"""Account tokens by way of the system account: `$SYS.REQ.CLAIMS.*` (operator mode).

Every node that has the same directory of tokens answers; nodes of a cluster ask one another for
what they lack from time to time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.ports.draws import draw_text
from headwater.edge.view.system_info import ServerInfo
from headwater.security import jwt
from headwater.security.errors import JWTError
from headwater.security.nkeys import is_public_key
from headwater.security.resolvers.directory import DirectoryResolver
from headwater.security.resolvers.lookup import CacheResolver

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")

SYNC_S = 60.0
"""Seconds between two questions to the other nodes, unless the resolver's `interval` says so."""

FIRST_SYNC_S = 1.0
"""Seconds after the start to the first one: routes are there by then."""

OK = 200
ERROR = 500
NO_ACCOUNT = "n/a"

Handler = Callable[[bytes, bytes, bytes], None]


class ClaimsService:
    """Updates, and with a directory lookups, lists, deletion and synchronisation."""

    name = "claims"

    def __init__(self) -> None:
        self._sinks: list[CallbackSink] = []
        self._timer: asyncio.TimerHandle | None = None
        self._retold: set[str] = set()
        """Deletions that were handed on since the last synchronisation began."""
        self._what = "jwt update"
        """What answers to updates speak of."""

    def start(self, node: "NodeView") -> None:
        """Listen in the system account."""
        self._node = node
        self._system: Account = node.account(node.system_account)
        self._info = ServerInfo(node)
        self._listen("$SYS.REQ.CLAIMS.UPDATE", self._on_update)
        self._listen("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", self._on_update)
        self._listen("$SYS.ACCOUNT.*.CLAIMS.UPDATE", self._on_update)
        if not isinstance(node.authenticator.resolver, DirectoryResolver):
            return
        self._listen("$SYS.REQ.CLAIMS.LIST", self._on_list)
        self._listen("$SYS.REQ.CLAIMS.DELETE", self._on_delete)
        if isinstance(node.authenticator.resolver, CacheResolver):
            self._what = "jwt update cache"
            return
        self._inbox = f"$SYS._INBOX.{draw_text(node.kernel.chance)}".encode()
        self._listen("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._on_lookup)
        self._listen("$SYS.REQ.CLAIMS.PACK", self._on_pack)
        self._listen(self._inbox.decode(), self._on_packed)
        self._timer = node.loop.call_later(FIRST_SYNC_S, self._sync)

    async def stop(self) -> None:
        """Answer no longer."""
        if self._timer is not None:
            self._timer.cancel()
        for sink in self._sinks:
            self._system.remove(sink)
        self._sinks.clear()

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what monitoring knows."""
        return {}

    def _listen(self, subject: str, handle: Handler) -> None:
        sink = CallbackSink(
            subject.encode(),
            lambda subject, reply, headers, payload, sender: handle(subject, reply, payload),
        )
        self._system.insert(sink)
        self._sinks.append(sink)

    # --- updates ---

    def _on_update(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        account = NO_ACCOUNT
        try:
            token = payload.decode("ascii", "replace").strip()
            claims = jwt.decode_account(token)
            account = claims.sub
            named = subject.decode("utf-8", "replace").split(".CLAIMS.")[0].rpartition(".")[2]
            if is_public_key(named, "A") and named != account:
                account = named
                raise JWTError("subject does not match jwt content")
            resolver = self._node.authenticator.resolver
            if isinstance(resolver, CacheResolver) and resolver.token(account) is None:
                self._respond(reply, account, f"{self._what} skipped")
                return
            self._node.authenticator.update_account(token, claims)
        except JWTError as error:
            self._respond(reply, account, f"{self._what} resulted in error", error)
            return
        self._node.account_changed(account)
        self._respond(reply, account, self._what.replace("update", "updated"))

    def _respond(
        self, reply: bytes, account: str, message: str, error: Exception | None = None
    ) -> None:
        named = {"account": account} if account else {}
        if error is None:
            log.info("%s %s", message, account)
            body = {"data": {**named, "code": OK, "message": message}}
        else:
            log.error("%s %s: %s", message, account, error)
            text = f"{message} - {error}"
            body = {"error": {**named, "code": ERROR, "description": text}}
        if reply:
            answer = {"server": self._info.next(), **body}
            self._system.send(reply, msgspec.json.encode(answer))

    # --- what a directory answers ---

    def _directory(self) -> DirectoryResolver:
        found = self._node.authenticator.resolver
        assert isinstance(found, DirectoryResolver)
        return found

    def _on_lookup(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        account = subject.decode("utf-8", "replace").split(".")[3]
        if reply:
            self._system.send(reply, (self._directory().token(account) or "").encode())

    def _on_list(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        if reply:
            answer = {"server": self._info.next(), "data": self._directory().accounts()}
            self._system.send(reply, msgspec.json.encode(answer))

    def _on_delete(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        signer = ""
        try:
            text = payload.decode("ascii", "replace").strip()
            request = jwt.decode_generic(text)
            signer = request.sub
            self._directory().check_deletes()
            accounts = self._deletable(request)
            for account in accounts:
                self._directory().delete(account, text, request.iat)
                self._node.account_changed(account)
        except JWTError as error:
            self._respond(reply, "", f"delete accounts request by {signer} failed", error)
            return
        self._respond(reply, "", f"deleted {len(accounts)} accounts")

    def _deletable(self, request: Any) -> list[str]:
        """Accounts that a request of an operator names. Raises JWTError."""
        if request.sub != request.iss:
            raise JWTError("not self signed")
        if request.iss not in self._node.authenticator.trusted_keys:
            raise JWTError("not trusted")
        if jwt.expired(request, self._node.kernel.now_ns / 1e9):
            raise JWTError("the request has expired")
        accounts = request.nats.get("accounts")
        if not isinstance(accounts, list) or not all(
            isinstance(account, str) and is_public_key(account, "A") for account in accounts
        ):
            raise JWTError("malformed request")
        if self._node.system_account in accounts:
            raise JWTError("not allowed to delete system account")
        return accounts

    # --- synchronisation ---

    def _sync(self) -> None:
        """Ask the others for what they have, unless it is the same."""
        digest = self._directory().digest()
        self._retold.clear()
        self._system.send(b"$SYS.REQ.CLAIMS.PACK", digest, self._inbox, own=True)
        interval = self._node.options.operator.resolver.interval or SYNC_S
        self._timer = self._node.loop.call_later(interval, self._sync)

    def _on_pack(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        if not reply:
            return
        directory = self._directory()
        if payload != directory.digest():
            for account in directory.accounts():
                line = f"{account}|{directory.token(account)}"
                self._system.send(reply, line.encode())
        self._system.send(reply, b"")

    def _tell_deletion(self, account: str) -> None:
        """Another server has an account that was deleted here: hand on what the operator signed."""
        request = self._directory().deletions.standing(account)
        if request and request not in self._retold:
            self._retold.add(request)
            self._system.send(b"$SYS.REQ.CLAIMS.DELETE", request.encode(), own=True)

    def _on_packed(self, subject: bytes, reply: bytes, payload: bytes) -> None:
        """Tokens that another node has; the newer one of each account stays."""
        for line in payload.decode("ascii", "replace").splitlines():
            account, _, token = line.partition("|")
            if not token or self._directory().token(account) == token:
                continue
            try:
                claims = jwt.decode_account(token)
                if claims.sub != account:
                    raise JWTError("it is the token of another account")
                self._node.authenticator.learn_account(token, claims)
            except JWTError as error:
                self._tell_deletion(account)
                log.error(
                    "account token of %s from another node is not taken: %s; push a token that is "
                    "right",
                    account,
                    error,
                )
            else:
                self._node.account_changed(account)
