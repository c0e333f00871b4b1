"""Scheduled messages of one stream (ADR-51): checked when published, kept, and fired when due.

A schedule is a stored message, one per subject. What it fires is stored on its target with headers
that say where it came from and when it comes next; storing that moves the schedule on, or removes
it. So the schedules are a function of the stored messages, and are read from them after a start.
"""

import heapq
import logging
from typing import Any

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.model.cron import ScheduleError, next_time, zone_named
from headwater.edge.jetstream.model.times import SECOND, format_time, parse_time
from headwater.edge.jetstream.model.ttl import header_ttl, parse_ttl
from headwater.edge.storage.format.errors import Damaged, StoreError
from headwater.edge.subjects.tokens import literal_subject, matches

log = logging.getLogger("headwater.jetstream")

# Stored messages looked at in one turn after a start.
SLICE = 1000
# Schedules that are fired in one turn.
FIRED = 100
# A schedule is fired at most this early after it was stored, so that bursts share a turn.
GRAIN_S = 0.05
RETRY_NS = SECOND

PATTERN = b"Nats-Schedule"
TARGET = b"Nats-Schedule-Target"
SOURCE = b"Nats-Schedule-Source"
TTL = b"Nats-Schedule-TTL"
ROLLUP = b"Nats-Schedule-Rollup"
ZONE = b"Nats-Schedule-Time-Zone"
NEXT = b"Nats-Schedule-Next"
SCHEDULER = b"Nats-Scheduler"
# Headers of a schedule that the messages it fires do not have.
_DROPPED = (b"Nats-Msg-Id", b"Nats-TTL", b"Nats-Rollup")


def check(stream: Any, subject: bytes, block: bytes, found: dict[bytes, bytes]) -> bytes:
    """The header block to store for a publish with schedule headers. Raises JetStreamError."""
    allowed = stream.config.allow_msg_schedules
    pattern = found.get(PATTERN, b"")
    if pattern or ZONE in found:
        if not allowed:
            raise errors.MESSAGE_SCHEDULES_DISABLED.error()
        due(pattern, found, stream.kernel.clock(), stream.kernel.now_ns)
        if pattern:
            block = check_schedule(stream, subject, block, found)
    check_next(stream, subject, found)
    return block


def due(pattern: bytes, found: dict[bytes, bytes], base_ns: int, now_ns: int) -> tuple[int, bool]:
    """When a schedule is due, and whether it repeats. Raises JetStreamError."""
    try:
        zone = zone_named(found[ZONE].decode(), now_ns) if ZONE in found else None
    except (ScheduleError, UnicodeDecodeError):
        raise errors.MESSAGE_SCHEDULES_TIME_ZONE_INVALID.error() from None
    try:
        return next_time(pattern.decode(), zone, base_ns, now_ns)
    except (ScheduleError, UnicodeDecodeError):
        raise errors.MESSAGE_SCHEDULES_PATTERN_INVALID.error() from None


def check_schedule(stream: Any, subject: bytes, block: bytes, found: dict[bytes, bytes]) -> bytes:
    """Refuse a bad schedule; the stored one rolls its subject up. Raises JetStreamError."""
    ttl = found.get(TTL, b"")
    if ttl and parse_ttl(ttl) is None:
        raise errors.MESSAGE_SCHEDULES_TTL_INVALID.error()
    if found.get(ROLLUP, b"") not in (b"", b"sub"):
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID.error()
    if ttl and not stream.config.allow_msg_ttl:
        raise errors.MESSAGE_TTL_DISABLED.error()
    target = found.get(TARGET, b"")
    if not literal_subject(target) or target == subject:
        raise errors.MESSAGE_SCHEDULES_TARGET_INVALID.error()
    source = found.get(SOURCE, b"")
    if source and (source in (target, subject) or not literal_subject(source)):
        raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID.error()
    if not listens_on(stream, target):
        raise errors.MESSAGE_SCHEDULES_TARGET_INVALID.error()
    if source and not listens_on(stream, source):
        raise errors.MESSAGE_SCHEDULES_SOURCE_INVALID.error()
    rollup = found.get(b"Nats-Rollup", b"").lower()
    if not rollup:
        return bytes(headers.add(block, b"Nats-Rollup", b"sub"))
    if rollup != b"sub":
        raise errors.MESSAGE_SCHEDULES_ROLLUP_INVALID.error()
    return block


def listens_on(stream: Any, subject: bytes) -> bool:
    """Whether a stream listens on a subject."""
    return any(matches(pattern.encode(), subject) for pattern in stream.config.subjects)


def check_next(stream: Any, subject: bytes, found: dict[bytes, bytes]) -> None:
    """Clients may only end a schedule by these headers, and not by a message on its subject."""
    following = found.get(NEXT, b"")
    scheduler = found.get(SCHEDULER, b"")
    if not following:
        if scheduler:
            raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()
        return
    if following != b"purge" or scheduler == subject or not literal_subject(scheduler):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()
    if not stream.config.allow_msg_schedules:
        raise errors.MESSAGE_SCHEDULES_DISABLED.error()
    last = stream.store.last_by_subject(scheduler)
    if last is not None and not headers.get(last.headers, PATTERN):
        raise errors.MESSAGE_SCHEDULES_SCHEDULER_INVALID.error()


class Schedules:
    """The schedules of a stream, by subject, with a timer for the next one."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.by_subject: dict[bytes, tuple[int, int]] = {}
        self.queue: list[tuple[int, bytes]] = []
        self.timer: Any = None
        self.armed = 0
        """When the timer is for."""
        self.scanned = 0
        if stream.store.messages:
            stream.kernel.loop.call_soon(self.scan)

    def scan(self) -> None:
        """Take the schedules among the stored messages, a slice per turn."""
        store = self.stream.store
        everything = store.filter(())
        for _ in range(SLICE):
            at = store.next_matching(everything, self.scanned + 1)
            if not at or self.stream.deleted:
                self.clock_set(0)
                return
            self.scanned = at
            try:
                message = store.get(at)
            except Damaged:
                continue
            if message.headers and message.subject not in self.by_subject:
                self.add(at, message.subject, headers.parse(message.headers), message.timestamp)
        self.stream.kernel.loop.call_soon(self.scan)

    def stored(self, sequence: int, subject: bytes, block: bytes, timestamp: int) -> None:
        """Act on a message just stored: a new schedule, the end of one, or its next time."""
        if PATTERN not in block:
            self.by_subject.pop(subject, None)
            return
        found = headers.parse(block)
        self.add(sequence, subject, found, timestamp)
        following = found.get(NEXT)
        scheduler = found.get(SCHEDULER)
        if not following or not scheduler:
            return
        if following == b"purge":
            self.by_subject.pop(scheduler, None)
            self.stream.purge(scheduler)
        elif scheduler in self.by_subject:
            try:
                self.put(scheduler, self.by_subject[scheduler][0], parse_time(following.decode()))
            except ValueError:
                log.warning(
                    "stream %s: message %d names no time for its schedule, which ends: publish the "
                    "schedule again",
                    self.stream.name,
                    sequence,
                )

    def add(self, sequence: int, subject: bytes, found: dict[bytes, bytes], timestamp: int) -> None:
        """Take a stored message as its subject's schedule, if it is one."""
        pattern = found.get(PATTERN)
        if not pattern:
            self.by_subject.pop(subject, None)
            return
        # By the wall clock as it is set now.
        base = self.stream.timers.age_start_of(sequence, timestamp) + self.stream.age_offset
        try:
            at, _ = due(pattern, found, base, base)
        except errors.JetStreamError:
            return
        self.put(subject, sequence, at)

    def put(self, subject: bytes, sequence: int, at: int) -> None:
        """Set when a subject's schedule is due."""
        self.by_subject[subject] = sequence, at
        if len(self.queue) > 2 * len(self.by_subject) + SLICE:
            # What was there before of subjects that have another schedule now, or none.
            self.queue = [(due_at, name) for name, (_, due_at) in self.by_subject.items()]
            heapq.heapify(self.queue)
        else:
            heapq.heappush(self.queue, (at, subject))
        if self.timer is None or self.queue[0][0] < self.armed:
            self.arm()

    def clock_set(self, step_ns: int) -> None:
        """The wall clock was set by `step_ns`. Times of day stay; intervals go on as if it had not
        been; nothing that repeats waits for longer than from now to its next time."""
        now = self.stream.kernel.clock()
        self.queue = []
        for subject, (sequence, at) in self.by_subject.items():
            try:
                message = self.stream.store.get(sequence)
                found = headers.parse(message.headers) if message is not None else {}
                pattern = found.get(PATTERN, b"")
                following, repeats = due(pattern, found, now, now)
            except (StoreError, errors.JetStreamError):
                following, repeats = at, False
            if repeats:
                at = min(at + step_ns if pattern.startswith(b"@every") else at, following)
            self.by_subject[subject] = sequence, at
            self.queue.append((at, subject))
        heapq.heapify(self.queue)
        self.arm()

    def arm(self) -> None:
        """Set the timer for the schedule that is due next."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.queue:
            self.armed = self.queue[0][0]
            wait = (self.queue[0][0] - self.stream.kernel.clock()) / SECOND
            self.timer = self.stream.kernel.loop.call_later(max(wait, GRAIN_S), self.on_timer)

    def on_timer(self) -> None:
        """Fire what is due, a part of it in each turn."""
        self.timer = None
        now = self.stream.kernel.clock()
        left = FIRED
        while left and self.queue and self.queue[0][0] <= now:
            left -= 1
            at, subject = heapq.heappop(self.queue)
            sequence, current = self.by_subject.get(subject, (0, 0))
            if not sequence or current != at:
                continue
            try:
                self.fire(subject, sequence, at, now)
            except StoreError as error:
                log.warning(
                    "stream %s: the schedule on %r cannot be published: %s; tried again in a "
                    "second",
                    self.stream.name,
                    subject,
                    error,
                )
                self.put(subject, sequence, now + RETRY_NS)
        self.arm()
        if not left and self.timer is not None:
            self.timer.cancel()
            self.timer = self.stream.kernel.loop.call_later(0, self.on_timer)
        self.stream.kernel.turn()

    def fire(self, subject: bytes, sequence: int, at: int, now: int) -> None:
        """Store the message of one schedule on its target. Raises StoreError."""
        store = self.stream.store
        message = store.get(sequence)
        if message is None:
            self.by_subject.pop(subject, None)
            return
        found = headers.parse(message.headers)
        try:
            following, repeats = due(found.get(PATTERN, b""), found, at, now)
        except errors.JetStreamError:
            self.by_subject.pop(subject, None)
            return
        source = found.get(SOURCE)
        content = (store.last_by_subject(source) if source else None) or message
        block = headers.without(content.headers, is_own) if content.headers else b""
        block = headers.add(block, SCHEDULER, subject)
        moment = format_time(following).encode() if repeats else b"purge"
        block = headers.add(block, NEXT, moment)
        for key, name in ((TTL, b"Nats-TTL"), (ROLLUP, b"Nats-Rollup")):
            if found.get(key):
                block = headers.add(block, name, found[key])
        target = found[TARGET]
        stored = self.stream.import_message(target, block, content.payload, now, 0)
        ttl_s = header_ttl(block)
        if ttl_s > 0 and self.stream.timers is not None:
            self.stream.timers.add(stored, self.stream.timers.now() + ttl_s * SECOND)
        if found.get(ROLLUP):
            self.stream.purge(target, 0, 1)

    def stop(self) -> None:
        """No more timers."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def is_own(key: bytes) -> bool:
    """Whether a header belongs to the schedule, not to what it fires."""
    return key.startswith((PATTERN, b"Nats-Expected-")) or key in _DROPPED
