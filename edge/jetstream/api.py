"""The router of the JetStream API: requests on `$JS.API.>` of one account.

A handler is `handler(account_js, tokens, payload, ctx)`. `tokens` are the subject's tokens behind
the handler's name, so `CONSUMER.INFO.ORDERS.worker` calls INFO with `["ORDERS", "worker"]`. It
returns the answer (a msgspec Struct), or an awaitable of one when the answer must wait for
durability, or None when it answers by itself; it raises JetStreamError to refuse.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.jetstream import errors, headers
from headwater.edge.jetstream.errors import JetStreamError
from headwater.edge.jetstream.times import ZERO_TIME
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.version import API_LEVEL

if TYPE_CHECKING:
    from headwater.edge.jetstream.account_js import AccountJetStream

log = logging.getLogger("headwater.jetstream")

TYPE_PREFIX = "io.nats.jetstream.api.v1."
PREFIX = "$JS.API."
CONSUMER_TYPES = {
    "CREATE": "consumer_create",
    "DURABLE.CREATE": "consumer_create",
    "NAMES": "consumer_names",
    "LIST": "consumer_list",
    "INFO": "consumer_info",
    "DELETE": "consumer_delete",
    "PAUSE": "consumer_pause",
    "UNPIN": "consumer_unpin",
    "RESET": "consumer_reset",
}
_PAGE = {"total": 0, "offset": 0, "limit": 0}
# Fields that an answer of this kind has even when it is an error.
REFUSED: dict[str, dict[str, Any]] = {
    "stream_info": _PAGE,
    "stream_names": {**_PAGE, "streams": None},
    "stream_list": {**_PAGE, "streams": []},
    "consumer_names": {**_PAGE, "consumers": []},
    "consumer_list": {**_PAGE, "consumers": []},
    "stream_purge": {"purged": 0},
    "stream_restore": {"deliver_subject": ""},
    "consumer_pause": {"paused": False, "pause_until": ZERO_TIME},
    "consumer_reset": {"reset_seq": 0},
}
# Requests that wait for durability at most, per account; more are refused as overload.
WAITING_MAX = 10_000


class Context(msgspec.Struct, kw_only=True):
    """What a handler may want to know besides tokens and payload."""

    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes
    strict: bool
    pedantic: bool = False
    """Handlers set it from the request's body."""
    origin: Any = None


Handler = Callable[["AccountJetStream", list[str], bytes, Context], Any]


class Route(msgspec.Struct):
    """A handler, the type of its answer, and how many tokens its subject may have."""

    handler: Handler
    kind: str
    least: int
    most: int


def routes() -> dict[str, Route]:
    """Every request that is served, by its name below `$JS.API.`."""
    from headwater.edge.jetstream import api_consumer, api_stream

    found = {
        "INFO": Route(api_stream.account_info, "account_info", 0, 0),
        "STREAM.CREATE": Route(api_stream.create, "stream_create", 1, 1),
        "STREAM.UPDATE": Route(api_stream.update, "stream_update", 1, 1),
        "STREAM.NAMES": Route(api_stream.names, "stream_names", 0, 0),
        "STREAM.LIST": Route(api_stream.listing, "stream_list", 0, 0),
        "STREAM.INFO": Route(api_stream.info, "stream_info", 1, 1),
        "STREAM.DELETE": Route(api_stream.delete, "stream_delete", 1, 1),
        "STREAM.PURGE": Route(api_stream.purge, "stream_purge", 1, 1),
        "STREAM.MSG.GET": Route(api_stream.message_get, "stream_msg_get", 1, 1),
        "STREAM.MSG.DELETE": Route(api_stream.message_delete, "stream_msg_delete", 1, 1),
        "STREAM.SNAPSHOT": Route(api_stream.snapshot, "stream_snapshot", 1, 1),
        "STREAM.RESTORE": Route(api_stream.restore, "stream_restore", 1, 1),
        "STREAM.LEADER.STEPDOWN": Route(api_stream.not_clustered, "stream_leader_stepdown", 1, 1),
        "STREAM.PEER.REMOVE": Route(api_stream.not_clustered, "stream_remove_peer", 1, 1),
        "CONSUMER.LEADER.STEPDOWN": Route(
            api_stream.not_clustered, "consumer_leader_stepdown", 2, 2
        ),
    }
    for name, handler in api_consumer.HANDLERS.items():
        least, most = (1, 1) if name in ("NAMES", "LIST") else (2, 2)
        if name == "CREATE":
            least, most = 1, 1 << 20
        found[f"CONSUMER.{name}"] = Route(handler, CONSUMER_TYPES[name], least, most)
    return found


def find_route(table: dict[str, Route], tokens: list[str]) -> tuple[str, Route | None]:
    """The route for the tokens behind `$JS.API.`; the longest name wins."""
    for length in (3, 2, 1):
        name = ".".join(tokens[:length])
        route = table.get(name)
        rest = len(tokens) - length
        if route is not None and len(tokens) >= length and route.least <= rest <= route.most:
            return name, route
    return "", None


class Router:
    """Dispatches the requests of one account."""

    def __init__(self, account_js: "AccountJetStream", table: dict[str, Route]) -> None:
        self.account_js = account_js
        self.table = table
        self.waiting: set[asyncio.Task[None]] = set()

    def serve(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, origin: object
    ) -> None:
        """Take one request; the callback of the account's ApiSink."""
        try:
            tokens = subject.decode().split(".")[2:]
        except UnicodeDecodeError:
            tokens = []
        name, route = find_route(self.table, tokens)
        if route is None:
            # Silent as nats-server is: somebody else may serve the subject, or a stream store it.
            return
        context = Context(
            subject=subject,
            reply=reply,
            headers=block,
            payload=payload,
            strict=self.account_js.strict,
            origin=origin,
        )
        rest = tokens[name.count(".") + 1 :]
        try:
            check_level(block)
            answer = route.handler(self.account_js, rest, payload, context)
        except Exception as error:
            self.failed(context, route.kind, error)
            return
        if isinstance(answer, Awaitable):
            self.spawn(self.finish(answer, context, route.kind))
        elif answer is not None:
            self.respond(context, route.kind, answer)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that belongs to this account's API until it is done or the node stops."""
        task = asyncio.ensure_future(work)
        self.waiting.add(task)
        task.add_done_callback(self.waiting.discard)

    async def finish(self, answer: Awaitable[Any], context: Context, kind: str) -> None:
        """Await and send one answer."""
        try:
            done = await answer
        except Exception as error:
            self.failed(context, kind, error)
            return
        if done is not None:
            self.respond(context, kind, done)

    def failed(self, context: Context, kind: str, error: Exception) -> None:
        """Answer a request whose handler raised: nobody may wait for an answer in vain."""
        if isinstance(error, JetStreamError):
            self.refuse(context, kind, error)
            return
        reason: object = error
        if not isinstance(error, StoreError):
            log.error("A JetStream API request (%s) failed", kind, exc_info=error)
            reason = "internal error, see the server's log"
        self.refuse(context, kind, errors.STREAM_GENERAL_ERROR.error(err=reason))

    def respond(
        self, context: Context, kind: str, answer: msgspec.Struct, block: bytes = b""
    ) -> None:
        """Send an answer, with its type in front; `block` is its headers."""
        body = msgspec.json.encode(answer)
        head = f'{{"type":"{TYPE_PREFIX}{kind}_response"'.encode()
        body = head + (b"," + body[1:] if body != b"{}" else b"}")
        if kind == "stream_msg_get":
            self.send(context, body, block)
            return
        self.account_js.api.total += 1
        self.send(context, body, block)
        self.audit(context, body)

    def refuse(self, context: Context, kind: str, error: JetStreamError) -> None:
        """Send an error."""
        self.account_js.api.total += 1
        self.account_js.api.errors += 1
        fields: dict[str, Any] = {"type": f"{TYPE_PREFIX}{kind}_response", "error": error.wire()}
        fields.update(REFUSED.get(kind, {}))
        body = msgspec.json.encode(fields)
        self.send(context, body)
        self.audit(context, body)

    def send(self, context: Context, body: bytes, block: bytes = b"") -> None:
        """Publish an answer."""
        if context.reply:
            self.account_js.account.send(context.reply, body, b"", block)

    def audit(self, context: Context, answer: bytes) -> None:
        """Tell who asked what, and what was answered. Reads of messages are not told."""
        account = self.account_js.account
        node = self.account_js.node
        if not node.advisories.wanted(account, "API"):
            return
        fields: dict[str, Any] = {
            "server": node.server_name,
            "client": self.client(context),
            "subject": context.subject.decode("utf-8", "replace"),
            "response": answer.decode("utf-8", "replace"),
        }
        if context.payload:
            fields["request"] = context.payload.decode("utf-8", "replace")
        node.advisories.send(account, "API", "api_audit", fields)

    def client(self, context: Context) -> dict[str, Any]:
        """Who asks, for advisories."""
        js = self.account_js
        via = b""
        if getattr(context.origin, "account", js.account) is not js.account:
            via = headers.get(context.headers, b"Nats-Request-Info") or b""
        return js.node.describe(context.origin, js.account, via)

    def stop(self) -> None:
        """Give up the answers that still wait."""
        for task in self.waiting:
            task.cancel()


def check_level(block: bytes) -> None:
    """Refuse a request that needs a later API than this one (ADR-44)."""
    wanted = headers.get(block, b"Nats-Required-Api-Level") if block else None
    if wanted and (not wanted.isdigit() or int(wanted) > API_LEVEL):
        raise errors.REQUIRED_API_LEVEL.error()


def require_empty(payload: bytes) -> None:
    """Refuse a body where none belongs; an empty JSON object passes."""
    if not payload:
        return
    try:
        if msgspec.json.decode(payload) == {}:
            return
    except msgspec.DecodeError:
        pass
    raise errors.NOT_EMPTY_REQUEST.error()


def is_json(payload: bytes) -> bool:
    """Whether a body is meant as a JSON object or array."""
    return payload.lstrip()[:1] in (b"{", b"[")
