"""The router of the JetStream API: requests on `$JS.API.>` of one account."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine
from typing import Any

import msgspec

from headwater.edge.broker.conn import Conn
from headwater.edge.facts.version import PEER_HEADER, peer_block
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.api.api_sinks import ApiSink, DomainSink
from headwater.edge.jetstream.api.routed_requests import Routed, RoutedRequests
from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.requests import (
    REFUSED,
    TYPE_PREFIX,
    Context,
    Route,
    check_level,
    find_route,
)
from headwater.edge.kernel.later import close
from headwater.edge.storage.format.errors import StoreClosed, StoreError
from headwater.edge.wire.json_objects import escaped

log = logging.getLogger("headwater.jetstream")

# Requests that may wait in an account behind long ones of the same senders, unless
# `request_queue_limit` says another number, and their bytes; more are refused as overload.
WAITING_MAX = 10_000
LINE_BYTES_MAX = 64 << 20
# Requests of one peer that are handled before others have their turn. Where several ask for much,
# they share it.
TURN_REQUESTS = 32
# Requests of an account that wait for something, beyond which others get in one by one.
UNDER_WAY_MAX = 1_000
# Between two reports of requests that were refused.
REPORT_SECONDS = 1.0
# The kind of connections between nodes of a cluster (`hub.routes.route_conn`).
KIND_ROUTE = 3
# The reference serves these beside its API: they are neither counted nor told in advisories.
UNCOUNTED = ("stream_msg_get", "consumer_reset")
RESPONSE_TYPE = b"Nats-Response-Type"
Waiting = tuple[bytes, bytes, bytes, bytes]
"""Subject, reply, headers and payload of a request that waits."""


class Router:
    """Dispatches the requests of one account."""

    def __init__(self, account_js: AccountJetStream, table: dict[str, Route], domain: str) -> None:
        self.account_js = account_js
        self.table = table
        self.waiting: set[asyncio.Task[None]] = set()
        self.lines: dict[object, deque[Waiting]] = {}
        """By sender of a request that is done in slices: what it has asked for meanwhile."""
        self.in_line = 0
        self.line_bytes = 0
        self.limit = account_js.node.request_queue_limit or WAITING_MAX
        self.overload = 0
        """Requests that were refused, and are not reported yet."""
        self.turn: dict[object, int] = {}
        """Requests that came in this turn of the loop, by sender; not those of routes."""
        self.routed = RoutedRequests(
            account_js.account.kernel.loop, self.admit_routed, self.is_busy
        )
        subjects = account_js.node.api_subjects
        self.sinks: list[Any] = [ApiSink(subject, self.serve) for subject in subjects]
        self.alias = DomainSink(account_js.account, domain) if domain else None

    def listen(self) -> None:
        """Begin to serve."""
        for sink in self.sinks:
            self.account_js.account.insert(sink)
        if self.alias is not None:
            self.alias.listen()

    def serve(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """Take one request; the callback of the account's ApiSink."""
        if getattr(sender, "kind", None) != KIND_ROUTE:
            self.count(sender)
            self.admit(subject, reply, block, payload, sender)
            return
        self.serve_routed((subject, reply, block, payload, sender, None))

    def serve_routed(self, request: Routed) -> None:
        """Take one request that another node passed on."""
        if not self.routed.serve(request, TURN_REQUESTS, self.limit, LINE_BYTES_MAX):
            # The node that leads may have room for it, so nothing is answered.
            self.count_overload()

    def admit_routed(self, request: Routed) -> None:
        """Handle a request that another node passed on."""
        subject, reply, block, payload, sender, passing = request
        if passing is None:
            self.admit(subject, reply, block, payload, sender)
        else:
            self.begin(subject, reply, block, payload, sender, passing)

    def admit(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """Handle a request, unless it waits behind a long one of its sender."""
        line = self.lines.get(sender)
        if line is None:
            self.begin(subject, reply, block, payload, sender)
        elif self.in_line < self.limit and self.line_bytes + len(payload) < LINE_BYTES_MAX:
            line.append((subject, reply, block, payload))
            self.in_line += 1
            self.line_bytes += len(payload)
        else:
            self.refuse_overload(reply)

    def is_in_line(self, subject: bytes, reply: bytes) -> bool:
        """Whether a request waits here."""
        if self.routed.has(subject, reply):
            return True
        return bool(self.in_line) and any(
            (waiting[0], waiting[1]) == (subject, reply)
            for line in self.lines.values()
            for waiting in line
        )

    def count(self, sender: object) -> None:
        """Have a peer wait for its next turn that asks for much: a request costs a hundred times
        what a message does, and one read brings thousands."""
        if not self.turn:
            self.account_js.account.kernel.loop.call_soon(self.turn.clear)
        asked = self.turn[sender] = self.turn.get(sender, 0) + 1
        much = asked * len(self.turn) >= TURN_REQUESTS or self.is_busy()
        if much and isinstance(sender, Conn):
            sender.rest()

    def is_busy(self) -> bool:
        """Whether enough requests are under way."""
        return len(self.waiting) >= UNDER_WAY_MAX

    def refuse_overload(self, reply: bytes) -> None:
        """Refuse a request that has no place to wait; the system account hears how many were."""
        if reply:
            refusal = {"error": errors.CLUSTER_NOT_AVAIL.error().wire()}
            self.account_js.account.answer(reply, msgspec.json.encode(refusal))
        self.count_overload()

    def count_overload(self) -> None:
        """A request is refused because too many wait: the system account hears of it."""
        self.overload += 1
        if self.overload == 1:
            loop = self.account_js.account.kernel.loop
            loop.call_later(REPORT_SECONDS, self.report_overload)

    def report_overload(self) -> None:
        """Tell the system account how many requests were refused lately."""
        refused, self.overload = self.overload, 0
        node = self.account_js.node
        log.warning(
            "requests to JetStream of account %s are refused: too many wait; %d were refused; ask "
            "for less at once, or raise request_queue_limit",
            self.account_js.name,
            refused,
        )
        node.advisories.requests_refused(node.system_account(), node.server_name, refused)

    def begin(
        self,
        subject: bytes,
        reply: bytes,
        block: bytes,
        payload: bytes,
        sender: object,
        passing: Any = None,
    ) -> None:
        """Have a request handled now; `passing` as of `Context`."""
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
            sender=sender,
            passing=passing,
        )
        rest = tokens[name.count(".") + 1 :]
        try:
            _check(route, payload, context)
            answer = route.handler(self.account_js, rest, payload, context)
        except Exception as error:
            self.failed(context, route.kind, error)
            return
        if isinstance(answer, Awaitable):
            if context.holds:
                self.lines[sender] = deque()
            self.spawn(self.finish(answer, context, route.kind), answer)
        elif answer is not None:
            self.respond(context, route.kind, answer)

    def spawn(self, work: Coroutine[Any, Any, None], answer: object = None) -> None:
        """Run something that belongs to this account's API until it is done or the node stops. A
        coroutine `answer`, which it awaits, is closed then: it may have been stopped before."""
        task = asyncio.ensure_future(work)
        self.waiting.add(task)

        def over(_: object) -> None:
            self.waiting.discard(task)
            close(answer)

        task.add_done_callback(over)

    async def finish(self, answer: Awaitable[Any], context: Context, kind: str) -> None:
        """Await and send one answer."""
        try:
            done = await answer
        except Exception as error:
            self.failed(context, kind, error)
        else:
            if done is not None:
                self.respond(context, kind, done)
        if context.holds:
            await self.go_on(context.sender)

    async def go_on(self, sender: object) -> None:
        """Handle what the sender of a long request has asked for meanwhile, in its order."""
        line = self.lines.pop(sender, deque())
        while line:
            subject, reply, block, payload = line.popleft()
            self.in_line -= 1
            self.line_bytes -= len(payload)
            self.begin(subject, reply, block, payload, sender)
            if sender in self.lines:
                # Another long one: it goes on with the rest when it is done.
                self.lines[sender] = line
                return

    def failed(self, context: Context, kind: str, error: Exception) -> None:
        """Answer a request whose handler raised: nobody may wait for an answer in vain."""
        if isinstance(error, JetStreamError):
            self.refuse(context, kind, error)
            return
        if isinstance(error, StoreClosed):
            # Nobody here knows what becomes of it: another node leads the stream, or will.
            self.refuse(context, kind, errors.CLUSTER_NOT_AVAIL.error())
            return
        reason: object = error
        if not isinstance(error, StoreError):
            log.error(
                "a JetStream API request (%s) of account %s failed; it is answered with an error; "
                "report this fault",
                kind,
                self.account_js.name,
                exc_info=error,
            )
            reason = "internal error, see the server's log"
        self.refuse(context, kind, errors.STREAM_GENERAL_ERROR.error(err=reason))

    def respond(
        self, context: Context, kind: str, answer: msgspec.Struct, block: bytes = b""
    ) -> None:
        """Send an answer, with its type in front; `block` is its headers."""
        body = escaped(msgspec.json.encode(answer))
        head = f'{{"type":"{answer_type(context, kind)}"'.encode()
        body = head + (b"," + body[1:] if body != b"{}" else b"}")
        if not block and headers.get(context.headers, PEER_HEADER) is not None:
            block = peer_block()
        if kind in UNCOUNTED:
            self.send(context, body, block)
            return
        self.account_js.api.total += 1
        self.send(context, body, block)
        self.audit(context, body)

    def refuse(self, context: Context, kind: str, error: JetStreamError) -> None:
        """Send an error."""
        fields: dict[str, Any] = {"type": answer_type(context, kind), "error": error.wire()}
        fields.update(REFUSED.get(kind, {}))
        body = escaped(msgspec.json.encode(fields))
        self.send(context, body)
        if kind == "consumer_reset":
            return
        self.account_js.api.total += 1
        self.account_js.api.errors += error.refused
        self.audit(context, body)

    def send(self, context: Context, body: bytes, block: bytes = b"") -> None:
        """Publish an answer."""
        if context.reply:
            self.account_js.account.answer(context.reply, body, block)

    def audit(self, context: Context, answer: bytes) -> None:
        """Tell who asked what, and what was answered. Reads of messages are not told."""
        account = self.account_js.account
        node = self.account_js.node
        if not node.advisories.wanted(account, "API"):
            return
        fields = {"server": node.server_name, "client": self.client(context)}
        node.advisories.audit(account, fields, context.subject, context.payload, answer)

    def client(self, context: Context) -> dict[str, Any]:
        """Who asks, for advisories."""
        js = self.account_js
        via = b""
        if getattr(context.sender, "account", js.account) is not js.account:
            via = headers.get(context.headers, b"Nats-Request-Info") or b""
        return js.node.describe(context.sender, js.account, via)

    def stop(self) -> None:
        """Stop serving, and give up the answers that still wait."""
        for sink in self.sinks:
            self.account_js.account.remove(sink)
        if self.alias is not None:
            self.alias.stop()
        self.routed.stop()
        for task in self.waiting:
            task.cancel()


def answer_type(context: Context, kind: str) -> str:
    """What an answer says that it is. Who asks for a stream as one that it would have made hears
    that it is the answer to that."""
    if kind == "stream_info" and headers.get(context.headers, RESPONSE_TYPE) == b"create":
        kind = "stream_create"
    return f"{TYPE_PREFIX}{kind}_response"


def _check(route: Route, payload: bytes, context: Context) -> None:
    """Refuse a request that needs a later API, unless its body is refused before."""
    if route.own_level:
        return
    try:
        check_level(context.headers)
    except JetStreamError:
        if route.check is not None:
            route.check(payload, context)
        raise
