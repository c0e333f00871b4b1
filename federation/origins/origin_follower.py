"""One mirror or source at work: asks its origin for a consumer, watches it, asks again.

A follower never gives up. It begins anew at once when a link comes up, when a delivery was lost,
when the consumer falls silent or is gone, and when there is backlog without progress; otherwise
with growing pauses. Where it goes on is known from what is stored, not from what was asked before.
"""

import asyncio
import contextlib
import logging
from typing import Any, Protocol

import msgspec

from headwater.edge.facts.version import peer_block
from headwater.edge.jetstream.config.link_choices import keeps_last
from headwater.edge.jetstream.model.bounds import SEQUENCE_MAX, decimal
from headwater.edge.jetstream.model.models import SourceInfo, StreamSource
from headwater.edge.jetstream.model.name_hash import name_hash
from headwater.edge.jetstream.model.times import format_time, parse_time
from headwater.edge.ports.draws import draw_between
from headwater.edge.subjects.transform import transform
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.federation.origins.health import (
    LIVE,
    LIVE_MESSAGES,
    NEW,
    OFFLINE,
    RECREATED,
    SAMPLE_MIN,
    WELL,
    Health,
)
from headwater.federation.origins.origin_cursor import earlier_in_cursor
from headwater.federation.origins.origin_delay import PROMPT_S, OriginDelay
from headwater.federation.origins.origin_errors import (
    Barred,
    KeptOut,
    LinkChanged,
    Nobody,
    OriginError,
    Refilling,
    Refused,
)
from headwater.federation.origins.origin_place import OriginPlace, PlaceKeeper
from headwater.federation.origins.origin_questions import OriginQuestions
from headwater.federation.origins.origin_request import (
    CONSUMER_NOT_FOUND,
    IDENTITY_MISMATCH,
    STREAM_NOT_FOUND,
    Answer,
    OriginRequest,
    StartPoint,
    heartbeat_fields,
    source_parts,
)
from headwater.federation.origins.origin_sink import SOURCE_HEADER, OriginSink
from headwater.federation.origins.origin_window import OriginWindow

log = logging.getLogger("headwater.origin")

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
NEAR = 10
"""Messages that a mirror may lack when it begins to answer direct gets of its origin, as with
nats-server."""
SILENCE_S = 5.0
"""Without a heartbeat for this long (five are due) the consumer is taken for lost."""

SILENCE_MAX_S = 60.0
MISSED_S = 2.5
"""Two heartbeats were due: reason enough where something else tells of an end, too."""

CHECK_S = 10.0
"""How often the origin is asked what is still to come."""

CHECK_BEHIND_S = 2.0
"""The same for a stream that is behind, while the origin answers quickly."""

CHECK_SHARE = 10
"""Times that an answer took which pass before the next question."""

STALLED_S = 15.0
"""Backlog without progress for this long is a stall: it is reported, and a new consumer made. Twice
the time of an answer is added, as answers to flow control take that long as well."""

QUIET_TRIES = 3
"""Consumers in a row of which nothing came, although they sent: more are no accident."""

REPEAT_LOG_S = 60.0

CAUSES_MAX = 8
"""Causes that are remembered as logged."""


class FollowerOwner(PlaceKeeper, Protocol):
    """What drives the followers of one stream, as they see it: an `OriginDriver`.

    Its `manager` knows cursors, links and bounds of all streams of the node."""

    stream: Any

    def begin_again(self) -> None:
        """The stream was emptied: every follower begins anew."""

    def is_near(self) -> None:
        """The mirror has nearly all that its origin has."""

    def has_twins(self, source: StreamSource) -> bool:
        """Whether the stream has another source of the same name."""

    def add_sink(self, sink: OriginSink) -> None:
        """Messages of this follower come in by `sink`."""

    def drop_sink(self, sink: OriginSink) -> None:
        """They do no more."""


class OriginFollower:
    """The way of one origin's messages into one stream."""

    def __init__(self, driver: FollowerOwner, source: StreamSource, *, mirror: bool) -> None:
        self.driver = driver
        self.stream = driver.stream
        self.source = source
        self.mirror = mirror
        self.phase = "waiting"
        """"waiting", "asking", "flowing" or "stopped"."""
        self.error: dict[str, Any] | None = None
        self.health = Health()
        self._announced = OFFLINE
        """The state that the last advisory told."""
        self.recreations = 0
        self.failures = 0
        self.sink: OriginSink | None = None
        self.questions = OriginQuestions(driver.manager, driver.stream, source)
        self.place = OriginPlace(driver, driver.stream, source, self.questions, mirror=mirror)
        self.name = self.place.name
        self._again = asyncio.Event()
        self._reason = ""
        self._task: asyncio.Task[None] | None = None
        self._logged: dict[str, float] = {}
        """When each cause was logged, of the last minute's."""
        self._quiet_tries = 0
        self._progress = (0, 0)
        self._progressed = self._begun = self._check_at = 0.0
        self._came_at = -SILENCE_S
        """When a part of a large message came last."""
        self._answered_at = 0.0
        """When the origin answered last what is still to come."""
        self._round_s = 0.0
        """That the last answer of the origin to such a request took, or was waited for."""
        self._asked_again = False
        """Whether the last heartbeat said that the origin waits for a flow control answer."""
        self._info_answers = True
        self._refused_s = 0.0
        """How long the last message that could not be stored waits; 0 when storing goes well."""
        self.window = OriginWindow()
        self._heard = False
        """Whether the present consumer delivered anything, heartbeats included."""
        self._withheld: bool | None = None
        """Whether the origin says that nothing of it can be on its way; None without an answer."""

    # --- life ----------------------------------------------------

    def start(self) -> None:
        """Begin in the background."""
        self.place.restore()
        self.health.last_lag = 1
        self._task = self.stream.kernel.loop.create_task(self._run())

    def stop(self) -> None:
        """End for good."""
        self.phase = "stopped"
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._drop_sink()

    def leave(self) -> None:
        """Ask the origin to end the consumer that was made for this; no answer is awaited. One that
        the source names is not its own."""
        if self.sink is not None and self.source.consumer is None:
            self.questions.say(f"CONSUMER.DELETE.{self.source.name}.{self.sink.consumer.decode()}")

    def kick(self) -> None:
        """A link came up: begin anew unless all is well."""
        sink = self.sink
        self._info_answers = self.place.history.answers = True
        if self.phase == "flowing" and sink is not None:
            if sink.cut() or self._silent_s(sink) > MISSED_S:
                self._restart("the link is new")
        elif self.phase == "waiting":
            self._again.set()
        else:
            self.questions.interrupt()

    def purged(self) -> None:
        """Messages of the stream were purged: a mirror of a former origin may be empty now."""
        if self.phase == "waiting" and self.health.trouble == RECREATED:
            self._again.set()

    async def _run(self) -> None:
        """Ask for a consumer, watch what it delivers, and after a pause do so again, until this is
        cancelled or another stream takes this one's place."""
        await asyncio.sleep(self._between(0, KICK_JITTER_S))
        while True:
            self._again.clear()
            self._reason = ""
            try:
                async with self.driver.manager.setups:
                    self.phase = "asking"
                    await self._set_up()
                self.failures = 0
                self.error = None
                self.phase = "flowing"
                await self._watch()
                pause = self._between(0, KICK_JITTER_S)
            except LinkChanged:
                pause = self._between(0, KICK_JITTER_S)
            except OriginError as error:
                pause = self._failed(error)
            except Exception as error:
                log.exception(
                    "%s: a fault of this node; it begins anew where it was; report this fault",
                    self.place.label(),
                )
                pause = self._failed(OriginError(f"a fault of this node: {error!r}"))
            finally:
                self._drop_sink()
            self.phase = "waiting"
            if self.health.trouble == RECREATED and await self._emptied(pause):
                return
            try:
                async with asyncio.timeout(pause):
                    await self._again.wait()
                await asyncio.sleep(self._between(0, KICK_JITTER_S))
            except TimeoutError:
                continue

    def _now_s(self) -> float:
        """Seconds since any moment, as timers count."""
        return float(self.stream.kernel.loop.time())

    def _between(self, low: float, high: float) -> float:
        return draw_between(self.stream.kernel.chance, low, high)

    def _failed(self, error: OriginError) -> float:
        """Remember a failure; returns the pause."""
        self.failures += 1
        self.error = error.error
        text = str(error)
        self.health.trouble, self.health.cause, self.health.kept_out = error.state, text, ""
        self._announce_state()
        self._warn(text)
        longest = NOBODY_RETRY_MAX_S if isinstance(error, Nobody | Refilling) else RETRY_MAX_S
        pause = min(RETRY_MIN_S * 2.0 ** min(self.failures - 1, 10), longest)
        return float(pause * self._between(0.8, 1.2))

    def _warn(self, text: str) -> None:
        """Log why it does not go on, the same text now and then only: causes may take turns."""
        now = self._now_s()
        recent = {each: at for each, at in self._logged.items() if now - at <= REPEAT_LOG_S}
        self._logged = recent
        if text not in recent:
            if len(recent) >= CAUSES_MAX:
                del recent[next(iter(recent))]
            recent[text] = now
            log.warning("%s: cannot follow it: %s; it is tried again", self.place.label(), text)

    async def _emptied(self, pause: float) -> bool:
        """Wait for a mirror of a former origin to be purged, for `pause` seconds. If it is empty
        then, a stream of the same name takes its place and this one ends."""
        if self.stream.store.messages:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._again.wait()
        if self.stream.store.messages:
            return False
        label = self.place.label()
        log.warning("%s: was purged, and begins again with the origin as it is now", label)
        self.driver.begin_again()
        return True

    def _restart(self, reason: str) -> None:
        """Have a new consumer made."""
        if not self._again.is_set() or not self._reason:
            self._reason = reason
            self._again.set()

    # --- asking ----------------------------------------------------

    async def _set_up(self) -> None:
        """Get a consumer and listen to it. Raises OriginError."""
        self.window = OriginWindow()
        request = self._new_request()
        await self._identify(request)
        self._listen(request, await self._ask_for_consumer(request))

    def _new_request(self) -> OriginRequest:
        return OriginRequest(
            self.source,
            self.stream.kernel.chance,
            mirror=self.mirror,
            stream=self.stream.name,
            account=self.stream.account.name,
            domain=self.driver.manager.domain,
            start=StartPoint(),
            identity=self.place.identity,
            twins=self.driver.has_twins(self.source),
            choices=self.stream.config.metadata,
        )

    async def _ask_for_consumer(self, request: OriginRequest) -> Answer:
        """A consumer that begins where this stream ends. Raises OriginError."""
        request.identity = self.place.identity
        request.start = self.place.start()
        request.window = self.window.messages(self._mean())
        self._see_that_it_may_deliver(request.deliveries())
        answer = await self._create(request)
        last = keeps_last(self.stream.config.metadata) and not request.start.time
        if last and answer.pending > LIVE_MESSAGES:
            request.only_last = True
            answer = await self._create(request)
        return answer

    def _mean(self) -> float:
        """Bytes of the messages that come, on the average; 0 while unknown."""
        sink = self.sink
        if sink is None or sink.messages < SAMPLE_MIN:
            return self.health.message_bytes
        return float(sink.bytes_stored) / float(sink.messages)

    def _see_that_it_may_deliver(self, subject: str) -> None:
        """Whoever answered may be kept from delivering, which no answer tells. Raises KeptOut."""
        barrier = self.driver.manager.kept_out(self.stream.account, self.questions.via, subject)
        if barrier:
            raise KeptOut(f"deliveries on {subject!r} do not come in: {barrier}")

    async def _identify(self, request: OriginRequest) -> None:
        """Find out whether the origin is still the stream it was; skipped when it does not say."""
        if not self._info_answers:
            return
        try:
            headers, payload = await self.questions.ask(
                request.info_subject(), INFO_TIMEOUT_S, peer_block()
            )
            fields = msgspec.json.decode(payload)
            self.window.meet(self.source.external is not None, headers, fields["config"])
            created = parse_time(fields["created"])
            state = fields["state"]
            messages = int(state["messages"])
            span = int(state["first_seq"]), int(state["last_seq"])
            restored = messages > 0 and parse_time(state["first_ts"]) < created
            behind = int(fields["mirror"]["lag"]) if fields.get("mirror") else -1
            self.health.message_bytes = int(state["bytes"]) / messages if messages else 0.0
        except LinkChanged:
            raise
        except (OriginError, *BAD_JSON, KeyError, TypeError, ValueError) as error:
            # Whoever may not ask for this may still have a consumer.
            self._info_answers = not isinstance(error, OriginError) or isinstance(error, Nobody)
            return
        identity = name_hash(format_time(created))
        place = self.place
        if behind >= 0:
            place.await_refill(identity, span[1], behind)
        if not self.mirror and restored and place.identity and not place.knows(identity):
            await place.meet_restored(request.message_subject(), span, created, identity)
        place.meet(identity)
        await place.compare(request.message_subject(), span)

    async def _create(self, request: OriginRequest) -> Answer:
        """The consumer, in the newest form that the origin knows. Raises OriginError."""
        while True:
            timeout = min(ANSWER_TIMEOUT_S * 2 ** min(self.failures, 4), ANSWER_TIMEOUT_MAX_S)
            asked = self._now_s()
            request.round_s = self._round_s
            try:
                headers, payload = await self.questions.ask(
                    request.subject(), timeout, request.headers(), request.body()
                )
            finally:
                self._round_s = self._now_s() - asked
            answer = request.read(headers, payload)
            if not answer.code:
                break
            if answer.code == IDENTITY_MISMATCH:
                self.place.meet(answer.identity or "unknown")
                request.identity = ""
                request.start = self.place.start()
                continue
            if not request.downgrade(answer.code):
                raise Refused(answer)
        if answer.identity:
            self.place.meet(answer.identity)
        if request.durable and answer.ack_policy != "flow_control":
            raise Barred("the named consumer of the origin must use ack policy flow_control")
        if not answer.deliver_subject or not answer.name:
            raise OriginError("the origin's answer names no deliver subject")
        return answer

    # --- flowing ----------------------------------------------------

    def _listen(self, request: OriginRequest, answer: Answer) -> None:
        """Take what the consumer delivers from now on. Raises OriginError."""
        stream = self.stream
        sink = OriginSink(stream, self, answer.deliver_subject.encode(), answer.name.encode())
        sink.mirror = self.mirror
        sink.identity = self.place.identity.encode()
        sink.earlier = earlier_in_cursor(self.place.earlier)
        sink.pending = answer.pending
        sink.foreign = self.window.foreign and not request.durable
        had = self.place.had()
        if request.only_last:
            sink.sparse = answer.pending
            sink.left_out = max(answer.delivered - had, 0)
        if self.mirror:
            if answer.delivered > stream.store.last_seq:
                stream.skip(answer.delivered)
            sink.sseq = max(answer.delivered, stream.store.last_seq)
        else:
            sink.sseq = max(answer.delivered, self.place.seq)
            origin, pattern, destination = source_parts(self.source)
            sink.head = SOURCE_HEADER + f"{origin} ".encode()
            sink.middle = f" {pattern} {destination} ".encode()
        sink.transforms = [
            transform(item.src, item.dest) for item in self.source.subject_transforms if item.dest
        ]
        self.driver.manager.bind(sink, self.name)
        sink.via = self.questions.via
        self.sink = sink
        self.health.delay = OriginDelay()
        self.health.begin(sink, answer.pending)
        self._announce_state()
        self.place.since_ns = 0
        self._request = request
        self._heard = False
        self._withheld = None
        self._progress = (0, 0)
        self.health.hidden_since = 0.0
        self._progressed = self._begun = self._now_s()
        self.window.distance_s = self.questions.distance_s
        self.window.begin(self._begun, 0, 0)
        self._check_at = self._begun + CHECK_BEHIND_S
        self.driver.add_sink(sink)
        stream.account.insert(sink)
        log.log(
            logging.DEBUG if self._refused_s else logging.INFO,
            "%s: goes on at %d, %d messages behind%s",
            self.place.label(),
            sink.sseq + 1,
            answer.pending,
            ", the last of each subject" if request.only_last else "",
        )

    def _drop_sink(self) -> None:
        """Listen to the consumer no more, and remember how far it came."""
        sink = self.sink
        self._end_check()
        if sink is None:
            return
        self.place.came(sink)
        self.health.end()
        self.sink = None
        self.stream.account.remove(sink)
        self.driver.drop_sink(sink)
        self.stream.kernel.kick()

    async def _watch(self) -> None:
        """Stay until a new consumer is needed."""
        while True:
            sink = self.sink
            if sink is None:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._again.wait()
            if not self._again.is_set():
                self._tick(sink)
                if self.questions.under_way is not None and self.questions.under_way.done():
                    done = self.questions.under_way
                    self.questions.under_way = None
                    done.result()
                if self.questions.under_way is None and self._now_s() > self._check_at:
                    task = self.stream.kernel.loop.create_task(self._ask_what_comes(sink))
                    self.questions.under_way = task
            elif self._reason:
                break
            else:
                await self._refit(sink)
        self.recreations += 1
        self.health.trouble, self.health.cause = OFFLINE, self._reason
        if not self._refused_s:
            log.info("%s: a new consumer is needed: %s", self.place.label(), self._reason)

    async def _refit(self, sink: OriginSink) -> None:
        """Go on with a consumer of another window; of this one, nothing is on its way. Raises
        OriginError."""
        self._again.clear()
        self._end_check()
        self.phase = "asking"
        self.place.seq, rate = sink.sseq, self.health.rate
        request = self._new_request()
        async with self.driver.manager.setups:
            answer = await self._ask_for_consumer(request)
        self._drop_sink()
        self._listen(request, answer)
        if not self._reason:
            self._again.clear()  # The former consumer has said meanwhile again that it waits.
        self.health.rate, self.phase = rate, "flowing"

    def _silent_s(self, sink: OriginSink) -> float:
        return sink.silent_ns() / 1e9

    def _tick(self, sink: OriginSink) -> None:
        """Look at signs of life and progress."""
        now = self._now_s()
        if sink.closed:
            self._announce_state()
            return
        if sink.messages and now - self._begun > self._refused_s:
            self._refused_s = 0.0
        if sink.heard:
            self._heard = True
            self.health.kept_out = ""
        self.health.tick(WATCH_S)
        if sink.cut():
            # What comes by another link now begins behind the last message that is here.
            self._restart("the link by which it came has ended")
            return
        arrived = sink.arriving()
        if arrived > self._progress[1] > 0:
            self._came_at = now
        # Between two messages, or while something else has its turn, none is in the midst.
        large = now - self._came_at < SILENCE_S
        if sink.dseq != self._progress[0] or large:
            self._progressed = now
            self._quiet_tries = 0
            self.health.hidden_since = 0.0
        self._progress = (sink.dseq, arrived)
        if self.health.stalled and not self.health.known_lag():
            self.health.stalled = False
        elif self.health.stalled and now - self._begun > self._stalls_after():
            self.health.stalled = now - self._progressed > WATCH_S
        self._see_delay(sink, now)
        silent = self._silent_s(sink)
        if silent > MISSED_S:
            self._check_at = min(self._check_at, now)
        lost_after = self._lost_after()
        crowded = large and silent > lost_after and now - self._answered_at > CHECK_S
        self.health.hears(large or (silent <= lost_after and self._tells(now)), crowded)
        if silent > lost_after and not self.health.stalled:
            self.health.cause = f"nothing was heard for {lost_after:.0f} s"
            self.driver.manager.doubt(self.stream.account)
        patience = min(lost_after * 2**self._quiet_tries, SILENCE_MAX_S)
        if silent > patience and not large:
            self._quiet_tries = min(self._quiet_tries + 1, 8)
            if not self._heard and (self._withheld or self._withholds_again()):
                self.health.kept_out = (
                    f"the origin answers, and nothing that it delivers on "
                    f"{self._request.deliveries()!r} comes in: a rule on its side may keep it out"
                )
            self._restart(f"nothing was heard for {patience:.0f} s")
        elif self.health.known_lag() and now - self._progressed > self._stalls_after():
            self._stall()
        lag = self.health.lag()
        if self.mirror and lag is not None and lag < NEAR:
            self.driver.is_near()
        self._announce_state()

    def _lost_after(self) -> float:
        """Seconds of silence. Before the first message, the origin hears where it is to send."""
        return SILENCE_S if self._heard else SILENCE_S + 2 * self._round_s

    def _stalls_after(self) -> float:
        return STALLED_S + 2 * self._round_s

    def _see_delay(self, sink: OriginSink, now: float) -> None:
        """Whether what comes is late, so that what it tells is old."""
        delay = self.health.delay
        delay.came(now, int(sink.dseq), int(sink.last_ts))
        self.health.unseen = delay.unseen(now)
        if delay.late_s > PROMPT_S and self.health.state == LIVE:
            self._check_at = min(self._check_at, now)

    def _tells(self, now: float) -> bool:
        """Whether the origin told of late what is still to come. One that waits for an answer to
        flow control may have any number of messages; it is asked for it."""
        hidden = now - self.health.hidden_since if self.health.hidden_since else 0.0
        if hidden > MISSED_S:
            self._check_at = min(self._check_at, now)
        if hidden > SILENCE_S and not self.health.stalled:
            self.health.cause = "the origin gets no answer from here"
        return hidden <= SILENCE_S

    def _withholds_again(self) -> bool:
        """Whether several consumers in a row sent something that did not come, as they say."""
        return self._withheld is False and self._quiet_tries > QUIET_TRIES

    def _announce_state(self) -> None:
        """Publish an advisory when the state is another than at the last one."""
        if self.health.state != self._announced:
            self._announced = self.health.state
            kept = ("kind", "origin", "external")
            named = {key: value for key, value in self.status().items() if key in kept}
            report = {**named, **self.health.report()}
            self.stream.node.advisories.origin_state(self.stream, report)

    def _stall(self) -> None:
        """There is backlog and nothing comes, although the consumer lives."""
        self.health.stalled = True
        self.health.cause = f"stalled: {self.health.known_lag()} messages behind without progress"
        if self._asked_again:
            self.health.cause += "; the origin does not get the answers on $JS.FC.>"
        self._restart(self.health.cause)

    def _end_check(self) -> None:
        """What was asked of a consumer is of no use any more."""
        if self.questions.under_way is not None:
            self.questions.under_way.cancel()
            self.questions.under_way = None

    async def _ask_what_comes(self, sink: OriginSink) -> None:
        """Ask the origin what is still to come, so that lag is what the origin says."""
        asked = self._now_s()
        self.health.delay.asked(asked)
        try:
            _, payload = await self.questions.ask(
                self._request.consumer_info_subject(sink.consumer.decode()), INFO_TIMEOUT_S
            )
            fields = msgspec.json.decode(payload)
            code = (fields.get("error") or {}).get("err_code")
            gone = code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND)
            # A cluster of nats-servers says so of all that mirrors and sources have.
            if gone and self._silent_s(sink) > MISSED_S:
                self._restart("the origin no longer has the consumer")
                return
            delivered = int(fields["delivered"]["consumer_seq"])
            # What it has sent may still be on its way. Heartbeats cannot: they come in between.
            self._withheld = not delivered or not fields.get("push_bound")
            if self._listens_to(sink):
                self.health.hidden_since = 0.0
                self._answered_at = self._now_s()
                self.health.said(int(fields["num_pending"]) + max(0, delivered - sink.dseq))
        except (OriginError, *BAD_JSON, KeyError, TypeError, ValueError, AttributeError):
            pass
        now = self._now_s()
        self.health.delay.answered(now)
        self.health.unseen = self.health.delay.unseen(now)
        pause = CHECK_S if self.health.state == LIVE else CHECK_BEHIND_S
        self._check_at = now + max(pause, CHECK_SHARE * (now - asked)) * self._between(1.0, 1.1)

    # --- what the sink tells ----------------------------------------------------

    def _listens_to(self, sink: OriginSink) -> bool:
        """Whether `sink` is not of an earlier consumer."""
        return self.sink is sink

    def gap(self, sink: OriginSink) -> None:
        """A delivery was lost."""
        if self._listens_to(sink):
            self._restart(f"deliveries after {sink.dseq} were lost")

    def heartbeat(self, sink: OriginSink, block: bytes) -> None:
        """The consumer is idle; check that nothing was lost at its end."""
        if not self._listens_to(sink):
            return
        fields = heartbeat_fields(block)
        delivered = decimal(fields.get(b"nats-last-consumer", b""), SEQUENCE_MAX)
        if delivered is not None and delivered > sink.dseq:
            self._restart(f"deliveries after {sink.dseq} were lost")
            return
        stalled = fields.get(b"nats-consumer-stalled")
        self._asked_again = bool(stalled)
        if not stalled:
            self.health.hidden_since = 0.0
        elif not self.health.hidden_since:
            self.health.hidden_since = self._now_s()
        if stalled and not self.window.held:
            sink.owe(stalled)
        elif stalled:
            self._again.set()
        elif int(delivered or 0) == sink.dseq:
            self.health.delay.heard_all()
            self.health.unseen = 0
            self.health.said(0)

    def holds(self, sink: OriginSink) -> bool:
        """The origin asks whether all has arrived: whether it gets no answer, since another window
        is wanted. What an open consumer has on its way is there with the next heartbeat."""
        if not self._listens_to(sink):
            return False
        bounded = self.window.size > 0
        behind = int(float(sink.pending) * (self._mean() or 1.0))
        size = int(sink.bytes_stored)
        held = self.window.asked(self._now_s(), int(sink.messages), size, behind)
        if held and bounded:
            self._again.set()
        return held

    def failed(self, sink: OriginSink, text: str) -> None:
        """The stream cannot store: ask again for the same message, after a growing pause. Each
        time, all that the origin may send ahead comes by the link and is of no use."""
        if self._listens_to(sink):
            text = f"a message could not be stored: {text}"
            self.error = {"code": 503, "err_code": 10077, "description": text}
            self.health.stalled, self.health.cause = True, text
            sink.closed = True
            self._refused_s = min(max(RETRY_MIN_S, 2 * self._refused_s), RETRY_MAX_S)
            self._warn(text)
            self.stream.kernel.loop.call_later(self._refused_s, self._restart_after, sink, text)

    def _restart_after(self, sink: OriginSink, reason: str) -> None:
        """Have a new consumer made, unless that has happened meanwhile. A stream that refuses
        whatever comes need not ask for it."""
        if not self._listens_to(sink):
            return
        if self.stream.is_full():
            self.stream.kernel.loop.call_later(WATCH_S, self._restart_after, sink, reason)
        else:
            self._restart(reason)

    # --- facts ----------------------------------------------------

    def info(self) -> tuple[SourceInfo, dict[str, Any]]:
        """How far this follower is, as INFO shows it, and the report of its health."""
        sink, health = self.sink, self.health
        error = self.error
        report = health.report()
        if report["cause"] not in ("", NEW) and error is None:
            error = {"code": 503, "err_code": 0, "description": report["cause"]}
        active = -1
        if sink is not None:
            active = sink.silent_ns()
        shown = SourceInfo(
            name=self.source.name,
            external=self.source.external,
            lag=health.shown_lag(),
            seq=0 if self.mirror else (sink and sink.stored) or self.place.seq,
            active=active,
            error=error,
            filter_subject=self.source.filter_subject,
            subject_transforms=self.source.subject_transforms,
        )
        return shown, report

    def status(self) -> dict[str, Any]:
        """Facts for monitoring."""
        sink = self.sink
        return {
            "account": self.stream.account.name,
            "stream": self.stream.name,
            "kind": "mirror" if self.mirror else "source",
            "origin": self.source.name,
            "external": self.source.external.api if self.source.external is not None else "",
            **self.health.report(),
            "sequence": sink.sseq if sink is not None else self.place.seq,
            "well": self.health.state in WELL,
            "stalled": self.health.stalled,
            "recreations": self.recreations,
        }
