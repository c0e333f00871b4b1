"""One mirror or source at work: asks its origin for a consumer, watches it, asks again.

A feed never gives up. It begins anew at once when a link comes up, when a delivery was lost, when
the consumer falls silent or is gone, and when there is backlog without progress; otherwise with
growing pauses. Where it goes on is known from what is stored, not from what was asked before.
"""

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.core import CallbackSink
from headwater.edge.jetstream.models import SourceInfo, StreamSource
from headwater.edge.jetstream.name_hash import name_hash
from headwater.edge.jetstream.times import format_time, parse_time
from headwater.edge.storage.errors import Damaged
from headwater.edge.subjects.transform import transform
from headwater.federation.inflow import SOURCE_HEADER, Inflow
from headwater.federation.origin_request import (
    CONSUMER_NOT_FOUND,
    IDENTITY_MISMATCH,
    Answer,
    OriginRequest,
    Start,
    random_token,
    source_parts,
)

if TYPE_CHECKING:
    from headwater.federation.upstream import Upstream

log = logging.getLogger("headwater.upstream")

ANSWER_TIMEOUT_S = 10.0
"""Time for an answer at first; it doubles with failures up to `ANSWER_TIMEOUT_MAX_S`."""

ANSWER_TIMEOUT_MAX_S = 60.0
INFO_TIMEOUT_S = 5.0
RETRY_MIN_S = 0.25
RETRY_MAX_S = 10.0
NOBODY_RETRY_MAX_S = 1.0
"""Pause when nobody listens where the origin should be: asking costs nothing then."""

KICK_JITTER_S = 0.1
WATCH_S = 1.0
SILENCE_S = 5.0
"""Without a heartbeat for this long (five are due) the consumer is taken for lost."""

SILENCE_MAX_S = 60.0
CHECK_S = 10.0
"""How often the origin is asked what is still to come."""

STALLED_S = 15.0
"""Backlog without progress for this long is a stall: it is reported, and a new consumer made."""

REPEAT_LOG_S = 60.0


class OriginError(Exception):
    """The origin refuses or cannot be reached; `error` is the API's form of it."""

    def __init__(self, text: str, error: dict[str, Any] | None = None) -> None:
        super().__init__(text)
        self.error = error or {"code": 503, "err_code": 0, "description": text}


class Nobody(OriginError):
    """No one listens on the origin's API subject."""


class LinkChanged(OriginError):
    """A link came up while an answer was awaited: the request may have gone down with the old."""


class Feed:
    """The way of one origin's messages into one stream."""

    def __init__(self, upstream: "Upstream", source: StreamSource, *, mirror: bool) -> None:
        self.upstream = upstream
        self.stream = upstream.stream
        self.source = source
        self.mirror = mirror
        self.name = " ".join(source_parts(source))
        self.state = "waiting"
        """"waiting", "asking", "flowing" or "stopped"."""
        self.error: dict[str, Any] | None = None
        self.stalled = False
        self.recreations = 0
        self.failures = 0
        self.lag = 0
        self.identity = ""
        self.inflow: Inflow | None = None
        self.rate = 0.0
        """Messages per second, over the last ticks."""
        self._again = asyncio.Event()
        self._reason = ""
        self._task: asyncio.Task[None] | None = None
        self._answered: asyncio.Future[tuple[bytes, bytes]] | None = None
        self._logged: tuple[str, float] = ("", 0.0)
        self._quiet_tries = 0
        self._progress = (0, time.monotonic())
        self._checked = 0.0
        self._messages = 0
        self._sseq = 0
        self._rebuilt = False

    # --- life ----------------------------------------------------

    def start(self) -> None:
        """Begin in the background."""
        self._restore()
        self._task = self.stream.kernel.loop.create_task(self._run())

    def stop(self) -> None:
        """End for good."""
        self.state = "stopped"
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._drop_inflow()

    async def stopped(self) -> None:
        """Wait until nothing runs any more; after `stop`."""

    def kick(self) -> None:
        """A link came up: begin anew unless all is well."""
        inflow = self.inflow
        if self.state == "flowing" and inflow is not None:
            if inflow.cut() or self._silent_s(inflow) > 2.5:
                self._restart("the link is new")
        elif self.state == "waiting":
            self._again.set()
        elif self._answered is not None and not self._answered.done():
            self._answered.set_exception(LinkChanged("a link came up"))

    async def _run(self) -> None:
        await asyncio.sleep(random.uniform(0, KICK_JITTER_S))
        while True:
            self._again.clear()
            try:
                async with self.upstream.manager.setups:
                    self.state = "asking"
                    await self._set_up()
                self.failures = 0
                self.error = None
                self.state = "flowing"
                await self._watch()
                pause = random.uniform(0, KICK_JITTER_S)
            except LinkChanged:
                pause = random.uniform(0, KICK_JITTER_S)
            except OriginError as error:
                pause = self._failed(error)
            finally:
                self._drop_inflow()
            self.state = "waiting"
            try:
                await asyncio.wait_for(self._again.wait(), pause)
                await asyncio.sleep(random.uniform(0, KICK_JITTER_S))
            except TimeoutError:
                continue

    def _failed(self, error: OriginError) -> float:
        """Note a failure; returns the pause."""
        self.failures += 1
        self.error = error.error
        text = str(error)
        now = time.monotonic()
        if text != self._logged[0] or now - self._logged[1] > REPEAT_LOG_S:
            self._logged = (text, now)
            log.warning("%s: %s", self._label(), text)
        longest = NOBODY_RETRY_MAX_S if isinstance(error, Nobody) else RETRY_MAX_S
        pause = min(RETRY_MIN_S * 2.0 ** min(self.failures - 1, 10), longest)
        return float(pause * random.uniform(0.8, 1.2))

    def _label(self) -> str:
        kind = "mirror" if self.mirror else "source"
        return f"{kind} {self.source.name!r} of stream '{self.stream.account.name} > " \
               f"{self.stream.name}'"

    def _restart(self, reason: str) -> None:
        """Have a new consumer made."""
        if not self._again.is_set():
            self._reason = reason
            self._again.set()

    # --- where to go on ----------------------------------------------------

    def _restore(self) -> None:
        """Take up the cursor that was kept, and what the last messages know beyond it."""
        kept = self.upstream.manager.cursor(self.stream, self.name, self.mirror)
        self._sseq, self.identity = kept.seq, kept.identity
        if self.mirror:
            return
        store = self.stream.store
        at = store.last_seq
        end = max(store.first_seq, kept.local + 1)
        end = max(end, at - self.upstream.manager.scan_max)
        while at >= end:
            at -= 1
            try:
                found = store.get(at + 1)
            except Damaged:
                continue
            if found is None or SOURCE_HEADER not in found.headers:
                continue
            name, sequence, identity = self.upstream.source_of(found.headers)
            if name == self.name:
                self._sseq = max(self._sseq, sequence)
                self.identity = identity or self.identity
                return

    def _start(self) -> Start:
        """Where the origin is to begin."""
        source, store = self.source, self.stream.store
        if self.mirror:
            if store.last_seq > 0 and (store.messages or store.last_seq >= store.first_seq):
                return Start(sequence=store.last_seq + 1)
            return self._configured_start()
        if self._sseq > 0:
            return Start(sequence=self._sseq + 1)
        if self._rebuilt or not source.opt_start_time:
            return self._configured_start()
        configured = parse_time(source.opt_start_time)
        if store.messages and store.last_ts > configured:
            return Start(time=format_time(store.last_ts))
        return self._configured_start()

    def _configured_start(self) -> Start:
        source = self.source
        if source.opt_start_seq > 0:
            return Start(sequence=source.opt_start_seq)
        return Start(time=source.opt_start_time or "")

    # --- asking ----------------------------------------------------

    async def _set_up(self) -> None:
        """Get a consumer and listen to it. Raises OriginError."""
        manager = self.upstream.manager
        request = OriginRequest(
            self.source,
            mirror=self.mirror,
            stream=self.stream.name,
            account=self.stream.account.name,
            domain=manager.domain,
            start=Start(),
            identity=self.identity,
            twins=self.upstream.has_twins(self.source),
        )
        await self._identify(request)
        request.identity = self.identity
        request.start = self._start()
        answer = await self._create(request)
        self._listen(request, answer)

    async def _identify(self, request: OriginRequest) -> None:
        """Find out whether the origin is still the stream it was; skipped when it does not say."""
        try:
            _, payload = await self._ask(request.info_subject(), b"", b"", INFO_TIMEOUT_S)
            fields = msgspec.json.decode(payload)
            created = parse_time(fields["created"])
            last = int(fields["state"]["last_seq"])
        except (Nobody, LinkChanged):
            raise
        except (OriginError, msgspec.DecodeError, KeyError, TypeError, ValueError):
            return
        self._meet(name_hash(format_time(created)), last)

    def _meet(self, identity: str, last: int | None) -> None:
        """The origin says who it is. Raises OriginError when a mirror cannot go on with it."""
        if not identity or identity == self.identity:
            return
        if not self.identity:
            self._remember(identity)
            return
        if self.mirror:
            raise OriginError(
                "the origin was deleted and made again: this mirror holds messages of the former "
                "one; purge it or make it anew",
                {"code": 409, "err_code": IDENTITY_MISMATCH, "description": "origin was recreated"},
            )
        log.warning("%s: the origin was made again, all of it is taken", self._label())
        self._sseq = 0
        self._rebuilt = True
        self._remember(identity)

    def _remember(self, identity: str) -> None:
        self.identity = identity
        self.upstream.manager.keep_cursor(
            self.stream, self.name, self.mirror, self._sseq, identity
        )

    async def _create(self, request: OriginRequest) -> Answer:
        """The consumer, in the newest form that the origin knows. Raises OriginError."""
        while True:
            timeout = min(ANSWER_TIMEOUT_S * 2 ** min(self.failures, 4), ANSWER_TIMEOUT_MAX_S)
            headers, payload = await self._ask(
                request.subject(), request.headers(), request.body(), timeout
            )
            answer = request.read(headers, payload)
            if not answer.code:
                break
            if answer.code == IDENTITY_MISMATCH:
                self._meet(answer.identity or "unknown", None)
                request.identity = ""
                request.start = self._start()
                continue
            if not request.downgrade(answer.code):
                error = answer.error or {}
                raise OriginError(str(error.get("description", "refused")), answer.error)
        if answer.identity:
            self._meet(answer.identity, None)
        if request.durable and answer.ack_policy != "flow_control":
            raise OriginError("the named consumer of the origin must use ack policy flow_control")
        if not answer.deliver_subject or not answer.name:
            raise OriginError("the origin's answer names no deliver subject")
        return answer

    async def _ask(
        self, subject: str, headers: bytes, body: bytes, timeout: float
    ) -> tuple[bytes, bytes]:
        """One request; returns (headers, payload). Raises OriginError."""
        account = self.stream.account
        reply = f"$JSC.R.{random_token()}".encode()
        loop = self.stream.kernel.loop
        answered: asyncio.Future[tuple[bytes, bytes]] = loop.create_future()
        self._answered = answered

        def take(_: bytes, __: bytes, block: bytes, payload: bytes, ___: object) -> None:
            if not answered.done():
                answered.set_result((block, payload))

        sink = CallbackSink(reply, take)
        account.insert(sink)
        try:
            if not account.send(subject.encode(), body, reply, headers):
                raise Nobody(f"nobody answers on {subject!r}: the origin is not connected")
            block, payload = await asyncio.wait_for(answered, timeout)
        except TimeoutError:
            raise OriginError(f"no answer from the origin on {subject!r}") from None
        finally:
            account.remove(sink)
            self._answered = None
        if block.startswith(b"NATS/1.0 503"):
            raise Nobody(f"nobody answers on {subject!r}: the origin is not connected")
        return block, payload

    # --- flowing ----------------------------------------------------

    def _listen(self, request: OriginRequest, answer: Answer) -> None:
        """Take what the consumer delivers from now on. Raises OriginError."""
        stream = self.stream
        inflow = Inflow(stream, self, answer.deliver_subject.encode(), answer.name.encode())
        inflow.mirror = self.mirror
        inflow.identity = self.identity
        inflow.pending = answer.pending
        if self.mirror:
            if answer.delivered > stream.store.last_seq:
                stream.store.skip(answer.delivered)
            inflow.sseq = max(answer.delivered, stream.store.last_seq)
        else:
            inflow.sseq = max(answer.delivered, self._sseq)
            origin, pattern, destination = source_parts(self.source)
            inflow.head = SOURCE_HEADER + f"{origin} ".encode()
            inflow.middle = f" {pattern} {destination} ".encode()
        inflow.transforms = [
            transform(item.src, item.dest) for item in self.source.subject_transforms if item.dest
        ]
        self.upstream.manager.bind(inflow, self.name)
        self.inflow = inflow
        self.lag = answer.pending
        self._request = request
        self._messages = 0
        self._progress = (inflow.dseq, time.monotonic())
        self._checked = time.monotonic()
        self.upstream.add_inflow(inflow)
        stream.account.insert(inflow)
        log.info(
            "%s: goes on at %d, %d messages behind", self._label(), inflow.sseq + 1, answer.pending
        )

    def _drop_inflow(self) -> None:
        inflow = self.inflow
        if inflow is None:
            return
        self._sseq = inflow.sseq
        self.inflow = None
        self.stream.account.remove(inflow)
        self.upstream.drop_inflow(inflow)
        self.upstream.manager.note_cursor(self.stream, self.name, self._sseq, self.identity)
        self.stream.kernel.kick()

    async def _watch(self) -> None:
        """Stay until a new consumer is needed."""
        while not self._again.is_set():
            inflow = self.inflow
            if inflow is None:
                return
            try:
                await asyncio.wait_for(self._again.wait(), WATCH_S)
                break
            except TimeoutError:
                self._tick(inflow)
            if time.monotonic() - self._checked > CHECK_S:
                self._checked = time.monotonic() + random.uniform(0, 1)
                await self._check(inflow)
        self.recreations += 1
        log.info("%s: a new consumer is needed: %s", self._label(), self._reason)

    def _silent_s(self, inflow: Inflow) -> float:
        return float(self.stream.kernel.clock() - inflow.heard_ns) / 1e9

    def _tick(self, inflow: Inflow) -> None:
        """Look at signs of life and progress."""
        now = time.monotonic()
        self.rate = 0.7 * self.rate + 0.3 * (inflow.messages - self._messages) / WATCH_S
        self._messages = inflow.messages
        if inflow.dseq != self._progress[0]:
            self._progress = (inflow.dseq, now)
            self.lag = inflow.pending
            self.stalled = False
            self._quiet_tries = 0
        patience = min(SILENCE_S * 2**self._quiet_tries, SILENCE_MAX_S)
        if self._silent_s(inflow) > patience and not inflow.receiving():
            self._quiet_tries = min(self._quiet_tries + 1, 8)
            self._restart(f"nothing was heard for {patience:.0f} s")
        elif self.lag > 0 and now - self._progress[1] > STALLED_S:
            self.stalled = True
            self._restart(f"{self.lag} messages behind without progress")

    async def _check(self, inflow: Inflow) -> None:
        """Ask the origin what is still to come, so that lag is what the origin says."""
        try:
            _, payload = await self._ask(
                self._request.consumer_info_subject(inflow.consumer.decode()),
                b"", b"", INFO_TIMEOUT_S,
            )
            fields = msgspec.json.decode(payload)
            if (fields.get("error") or {}).get("err_code") == CONSUMER_NOT_FOUND:
                self._restart("the origin no longer has the consumer")
                return
            delivered = int(fields["delivered"]["consumer_seq"])
            self.lag = int(fields["num_pending"]) + max(0, delivered - inflow.dseq)
        except (OriginError, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
            return

    # --- what the inflow tells ----------------------------------------------------

    def _listens_to(self, inflow: Inflow) -> bool:
        """Whether `inflow` is not of an earlier consumer."""
        return self.inflow is inflow

    def gap(self, inflow: Inflow) -> None:
        """A delivery was lost."""
        if self._listens_to(inflow):
            self._restart(f"deliveries after {inflow.dseq} were lost")

    def heartbeat(self, inflow: Inflow, block: bytes) -> None:
        """The consumer is idle; check that nothing was lost at its end."""
        if not self._listens_to(inflow):
            return
        fields = heartbeat_fields(block)
        delivered = fields.get(b"nats-last-consumer", b"")
        if delivered.isdigit() and int(delivered) > inflow.dseq:
            self._restart(f"deliveries after {inflow.dseq} were lost")
            return
        stalled = fields.get(b"nats-consumer-stalled")
        if stalled:
            self.stream.account.send(stalled, b"")

    def failed(self, inflow: Inflow, text: str) -> None:
        """The stream cannot store: ask again later for the same message."""
        if self._listens_to(inflow):
            self.error = {"code": 503, "err_code": 10077, "description": text}
            inflow.closed = True
            self._restart(f"a message could not be stored: {text}")

    # --- facts ----------------------------------------------------

    def info(self) -> SourceInfo:
        """How far this feed is, as INFO shows it."""
        inflow = self.inflow
        error = self.error
        if self.stalled and error is None:
            text = f"stalled: {self.lag} messages behind without progress"
            error = {"code": 503, "err_code": 0, "description": text}
        active = -1
        if inflow is not None:
            active = max(0, self.stream.kernel.clock() - inflow.heard_ns)
        return SourceInfo(
            name=self.source.name,
            external=self.source.external,
            lag=self.current_lag(),
            active=active,
            error=error,
            filter_subject=self.source.filter_subject,
            subject_transforms=self.source.subject_transforms,
        )

    def current_lag(self) -> int:
        """Messages that the origin has and this stream has not, as last known."""
        inflow = self.inflow
        if inflow is not None and inflow.dseq != self._progress[0]:
            return int(inflow.pending)
        return self.lag

    def status(self) -> dict[str, Any]:
        """Facts for monitoring."""
        inflow = self.inflow
        lag = self.current_lag()
        return {
            "account": self.stream.account.name,
            "stream": self.stream.name,
            "kind": "mirror" if self.mirror else "source",
            "origin": self.source.name,
            "external": self.source.external.api if self.source.external is not None else "",
            "state": self.state,
            "sequence": inflow.sseq if inflow is not None else self._sseq,
            "lag": lag,
            "rate": round(self.rate, 1),
            "eta_s": round(lag / self.rate, 1) if lag and self.rate > 0 else None,
            "stalled": self.stalled,
            "recreations": self.recreations,
            "error": self.error["description"] if self.error else "",
        }


def heartbeat_fields(block: bytes) -> dict[bytes, bytes]:
    """Headers of a status message, keys in lower case."""
    found: dict[bytes, bytes] = {}
    for line in block.split(b"\r\n")[1:]:
        key, colon, value = line.partition(b":")
        if colon:
            found[key.strip().lower()] = value.strip()
    return found
