"""Atomic batches (ADR-50): messages that are held back until their commit, then stored together.

All messages of a batch are appended in one turn, so that they share a commit; until then they are
in memory only, bounded by BATCHES_MAX and MESSAGES_MAX of each stream, and by the node's BatchRoom.
"""

import logging
from typing import Any

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.model.headers import PublishHeaders, scan_publish
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg
from cython.cimports.headwater.edge.wire.numbers import parse_number
from cython.cimports.libc.string import memset

from headwater.edge.jetstream.config.stream_budget import COST_MORE
from headwater.edge.jetstream.model import errors, headers, ttl
from headwater.edge.jetstream.model.bounds import decimal
from headwater.edge.jetstream.model.requests import LEVEL, check_level
from headwater.edge.jetstream.publish import special
from headwater.edge.jetstream.publish.fast_batch import FastBatches
from headwater.edge.jetstream.stream.stream_wire import last_sequence
from headwater.edge.jetstream.stream.usage import REFUSALS
from headwater.edge.storage.format.errors import StoreFull

BATCHES_MAX = 50
NODE_BATCHES_MAX = 1000
MESSAGES_MAX = 1000
ID_MAX = 64
TIMEOUT_S = 10.0
NUMBER_MAX = 1 << 63
# Bytes that the record of a message takes besides its content, at most: header, seal, filling.
RECORD_MORE = 128
# Room for what limits remove while a batch is stored.
REMOVALS_ROOM = 64 << 10
HELD_MAX = 256 << 20
EDGE_HELD_MAX = 32 << 20

log = logging.getLogger("headwater.jetstream")


@cython.final
@cython.cclass
class BatchRoom:
    """What the open batches of a node may hold together, for they are in memory."""

    def __init__(self, edge: bool, limits: Any):
        self.bytes_max = EDGE_HELD_MAX if edge else HELD_MAX
        self.bound_by(limits)

    def bound_by(self, limits: Any) -> None:
        """Go by these `BatchLimitOptions` from now on."""
        self.most = limits.max_inflight_total or NODE_BATCHES_MAX

    def enter(self) -> bool:
        """Count one more batch; whether there may be one."""
        if self.count >= self.most:
            return False
        self.count += 1
        return True

    def leave(self, batch: Batch) -> None:
        """A batch is closed."""
        self.count -= 1
        self.bytes -= batch.size


@cython.final
@cython.cclass
class HeldMessage:
    """A message of a batch that is still open."""

    def __init__(self, subject: bytes, block: bytes, payload: bytes):
        h: PublishHeaders
        self.subject = subject
        self.body = block + payload if block else payload
        self.header_len = PyBytes_GET_SIZE(block)
        scan_publish(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block)),
            self.header_len,
            cython.address(h),
        )
        self.plain = not h.any and not h.more

    @property
    def block(self) -> bytes:
        """Its header block."""
        return self.body[: self.header_len]

    @property
    def payload(self) -> bytes:
        """What is behind the header block."""
        return self.body[self.header_len :]

    @cython.cfunc
    @cython.exceptval(check=False)
    def cost(self) -> cython.Py_ssize_t:
        """Bytes of its subject and content."""
        return PyBytes_GET_SIZE(self.subject) + PyBytes_GET_SIZE(self.body)


@cython.final
@cython.cclass
class Batch:
    """Messages of one batch that is still open."""

    def __init__(self):
        self.messages = []
        self.plain = True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def append(self, held: HeldMessage) -> cython.int:
        self.messages.append(held)
        self.size += held.cost()
        self.largest = max(self.largest, PyBytes_GET_SIZE(held.body))
        self.plain = self.plain and held.plain
        return 0

    def replace(self, at: int, held: HeldMessage) -> None:
        """Have another message in the place of one."""
        old: HeldMessage = self.messages[at]
        self.messages[at] = held
        self.size += held.cost() - old.cost()
        self.largest = max(self.largest, PyBytes_GET_SIZE(held.body))
        self.plain = self.plain and held.plain


@cython.final
@cython.cclass
class Batches:
    """The open batches of one stream."""

    def __init__(self, stream: Stream, limits: Any):
        self.stream = stream
        self.room = stream.node.batch_room
        self.open = {}
        self.bound_by(limits)

    def bound_by(self, limits: Any) -> None:
        """Go by these `BatchLimitOptions` from now on."""
        self.limits = limits
        self.most = limits.max_inflight_per_stream or BATCHES_MAX
        self.messages_max = limits.max_messages or MESSAGES_MAX
        self.timeout_s = limits.timeout or TIMEOUT_S
        if self.fast is not None:
            self.fast.bound_by(limits)

    def permit_fast(self, allowed: bool) -> None:
        """Take fast batches from now on, or no longer."""
        if allowed and self.fast is None:
            self.fast = FastBatches(self.stream, self.limits)
        elif not allowed and self.fast is not None:
            self.fast.stop()
            self.fast = None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hold(self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)) -> cython.bint:
        """Add a message that is just the next one of an open batch; whether it is. All others,
        first and last ones too, are for `add`."""
        batch: Batch
        held: HeldMessage
        if h.any or h.more or h.batch_commit.n >= 0 or not self.stream.config.allow_atomic:
            return False
        batch = self.open.get(
            PyBytes_FromStringAndSize(cython.cast(cython.p_char, h.batch_id.at), h.batch_id.n)
        )
        if batch is None:
            return False
        count: cython.Py_ssize_t = len(batch.messages)
        size: cython.Py_ssize_t = m.subject_len + m.size
        if (
            parse_number(h.batch_sequence.at, h.batch_sequence.n) != count + 1
            or count >= self.messages_max
            or self.room.bytes + size > self.room.bytes_max
        ):
            return False
        held = HeldMessage.__new__(HeldMessage)
        held.subject = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        held.body = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.size)
        held.header_len = m.header_len
        held.plain = True
        self.room.bytes += size
        batch.append(held)
        batch.touched_ns = self.stream.kernel.monotonic_ns()
        if m.reply_len:
            reply = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)
            self.stream.answers.owe_text(reply, 0, b"", True)
        return True

    def add(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, found: dict
    ) -> None:
        """Add one message to its batch. Raises JetStreamError, which abandons the batch."""
        batch_id = found[b"Nats-Batch-Id"]
        if not batch_id or len(batch_id) > ID_MAX:
            raise errors.ATOMIC_PUBLISH_INVALID_BATCH_ID.error()
        position = number(found.get(b"Nats-Batch-Sequence"))
        if position is None:
            raise errors.ATOMIC_PUBLISH_MISSING_SEQ.error()
        commit = found.get(b"Nats-Batch-Commit", b"")
        try:
            batch = self.find(batch_id, position, commit)
            if commit not in (b"", b"1", b"eob"):
                raise errors.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT.error()
            block = self.met(batch_id, block)
            if position != len(batch.messages) + 1 or (position == 1 and commit == b"eob"):
                self.abandon(batch_id, "incomplete")
                raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
            if commit != b"eob":
                self.admit(batch_id, batch, HeldMessage(subject, block, payload))
            if len(batch.messages) > self.messages_max:
                size = self.messages_max
                self.abandon(batch_id, "large")
                raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.error(size=size)
        except errors.JetStreamError:
            self.close(batch_id)
            raise
        if commit:
            self.close(batch_id)
            if commit == b"eob" and batch.messages:
                self.mark_last(batch)
            self.commit(batch_id, batch, reply)
            return
        self.stream.answers.owe_text(reply, 0, b"", True)

    def admit(self, batch_id: bytes, batch: Batch, held: HeldMessage) -> None:
        """Add a message, if the node has room for it. Raises JetStreamError, which abandons the
        batch."""
        if self.room.bytes + held.cost() > self.room.bytes_max:
            log.warning(
                "batch %r of stream %s is refused: open batches of this node hold %d bytes already,"
                " and %d is the most; commit smaller batches, or fewer at a time",
                batch_id.decode("utf-8", "replace"),
                self.stream.name,
                self.room.bytes,
                self.room.bytes_max,
            )
            self.abandon(batch_id, "large")
            raise errors.INSUFFICIENT_RESOURCES.error()
        self.room.bytes += held.cost()
        batch.append(held)

    def met(self, batch_id: bytes, block: bytes) -> bytes:
        """A header block without the API level that a message requires. Raises JetStreamError when
        this server has a lower one, which abandons the batch."""
        if LEVEL not in block:
            return block
        try:
            check_level(block)
        except errors.JetStreamError:
            self.abandon(batch_id, "unsupported")
            raise
        return headers.without(block, lambda key: key == LEVEL)

    def find(self, batch_id: bytes, position: int, commit: bytes) -> Batch:
        """The batch of message `position`, opened by its first one. Raises JetStreamError."""
        batch: Batch = self.open.get(batch_id)
        if batch is None:
            if position != 1:
                if position - (commit == b"eob") > self.messages_max:
                    size = self.messages_max
                    raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.error(size=size)
                raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
            if len(self.open) >= self.most or not self.room.enter():
                raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
            batch = self.open[batch_id] = Batch()
            self.wait(batch_id, batch, self.timeout_s)
        batch.touched_ns = self.stream.kernel.monotonic_ns()
        return batch

    def wait(self, batch_id: bytes, batch: Batch, seconds: float) -> None:
        """Look at a batch after this time."""
        loop = self.stream.kernel.loop
        batch.timer = loop.call_later(seconds, self.look, batch_id, batch)

    def look(self, batch_id: bytes, batch: Batch) -> None:
        """Give a batch up to which nothing came for too long."""
        idle: float = (self.stream.kernel.monotonic_ns() - batch.touched_ns) / 1e9
        if idle + 1e-3 < self.timeout_s:
            self.wait(batch_id, batch, self.timeout_s - idle)
        else:
            self.abandon(batch_id, "timeout")

    def mark_last(self, batch: Batch) -> None:
        """Have the last message say that it ends the batch, when what said so is not stored."""
        last: HeldMessage = batch.messages[len(batch.messages) - 1]
        block: bytes = headers.add(last.block, b"Nats-Batch-Commit", b"1")
        batch.replace(len(batch.messages) - 1, HeldMessage(last.subject, block, last.payload))

    def close(self, batch_id: bytes) -> None:
        """Forget an open batch."""
        batch: Batch = self.open.pop(batch_id, None)
        if batch is not None:
            batch.timer.cancel()
            self.room.leave(batch)

    def abandon(self, batch_id: bytes, reason: str) -> None:
        """Give a batch up and say so."""
        self.close(batch_id)
        text = batch_id.decode("utf-8", "replace")
        self.stream.node.advisories.batch_abandoned(self.stream, text, reason)

    def commit(self, batch_id: bytes, batch: Batch, reply: bytes) -> None:
        """Check and store a whole batch. Raises JetStreamError or StoreError, and then nothing was
        stored."""
        stream = self.stream
        self.check(batch)
        if stream.replicator is not None:
            stream.replicator.hold()
        try:
            self.store(batch_id, batch, reply)
        finally:
            if stream.replicator is not None:
                stream.replicator.release()

    def store(self, batch_id: bytes, batch: Batch, reply: bytes) -> None:
        """Store a checked batch, and owe the answer."""
        m: Msg
        held: HeldMessage
        stream: Stream = self.stream
        sequence: cython.ulonglong
        rollups: list = []
        now: cython.longlong = stream.kernel.clock()
        for item in batch.messages:
            held = item
            memset(cython.address(m), 0, cython.sizeof(Msg))
            m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held.subject))
            m.subject_len = PyBytes_GET_SIZE(held.subject)
            m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(held.body))
            m.size = PyBytes_GET_SIZE(held.body)
            m.header_len = held.header_len
            m.via = MADE
            sequence = stream.append_import(cython.address(m), now, 0, None)
            stream.last_msg_id = b""
            if not held.plain:
                self.remember(held, sequence, now, rollups)
        # Behind all messages: what removals write must not take the room that was made for them.
        for subject, sequence in rollups:
            stream.purge(subject, sequence)
        last = stream.newest()
        text = batch_id.decode("utf-8", "replace")
        extra = f',"batch":"{text}","count":{len(batch.messages)}}}'
        stream.answers.owe_text(reply, last, stream.answers.head + b"%d" % last + extra.encode())

    def remember(self, held: HeldMessage, sequence: int, now: int, rollups: list) -> None:
        """Remember the id of a message that was stored, and list the roll-up that it asks for."""
        stream: Stream = self.stream
        block: bytes = held.block
        msg_id = headers.get(block, b"Nats-Msg-Id")
        if msg_id:
            stream.last_msg_id = msg_id
            stream.dedupe.remember(msg_id, sequence, now - stream.age_offset)
        rollup = headers.get(block, b"Nats-Rollup")
        if rollup:
            rollups.append((b"" if rollup.lower() == b"all" else held.subject, sequence))

    def check(self, batch: Batch) -> None:
        """Refuse a batch one of whose messages would be refused alone; counters and schedules
        become what is stored of them. Raises JetStreamError."""
        stream, config = self.stream, self.stream.config
        if not stream.dedupe.loaded:
            stream.load_ids()
        self.check_room(batch)
        if not batch.plain or config.allow_msg_counter:
            self.check_each(batch)
        self.make_room(batch)

    def check_each(self, batch: Batch) -> None:
        """`check` of what messages ask for in their headers."""
        stream, config = self.stream, self.stream.config
        next_seq = stream.newest() + 1
        lasts: dict[bytes, int] = {}
        counts: dict[bytes, tuple[bytes, bytes]] = {}
        ids: set[bytes] = set()
        for i, held in enumerate(list(batch.messages)):
            subject, block, payload = held.subject, held.block, held.payload
            found = headers.parse(block)
            if found.get(b"Nats-Expected-Last-Msg-Id"):
                header = "Nats-Expected-Last-Msg-Id"
                raise errors.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH.error(header=header)
            special.check_increment(stream, payload, found)
            self.check_rights(found)
            self.check_id(found.get(b"Nats-Msg-Id"), ids)
            special.check_source(found)
            if config.allow_msg_counter:
                block, payload, _ = special.count(
                    stream, subject, block, found, counts.get(subject)
                )
                counts[subject] = block, payload
            self.check_expected(found, subject, i, next_seq, lasts)
            if not config.allow_msg_counter:
                block = special.scheduled(stream, subject, block, found)
            self.check_rollup(headers.get(block, b"Nats-Rollup"), i, subject in lasts)
            lasts[subject] = next_seq + i
            if block != held.block or payload != held.payload:
                batch.replace(i, HeldMessage(subject, block, payload))
        if config.allow_msg_counter or config.allow_msg_schedules:
            self.check_room(batch)

    def check_expected(
        self,
        found: dict[bytes, bytes],
        subject: bytes,
        position: int,
        next_seq: int,
        lasts: dict[bytes, int],
    ) -> None:
        """Refuse a message that expects another last sequence, or one of the batch itself; `lasts`
        are those within the batch, which begins with `next_seq`."""
        wanted = found.get(b"Nats-Expected-Last-Sequence")
        if wanted:
            last = next_seq - 1 + position
            if number(wanted) != last:
                raise errors.STREAM_WRONG_LAST_SEQUENCE.error(seq=last)
            if position:
                raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.error()
        wanted = found.get(b"Nats-Expected-Last-Subject-Sequence")
        other = found.get(b"Nats-Expected-Last-Subject-Sequence-Subject")
        if wanted:
            other = other or subject
            if other in lasts:
                raise errors.STREAM_WRONG_LAST_SEQUENCE_CONSTANT.error()
            last = last_sequence(self.stream, other)
            if number(wanted) != last:
                raise errors.STREAM_WRONG_LAST_SEQUENCE.error(seq=last)
        elif other:
            raise errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID.error()

    def check_room(self, batch: Batch) -> None:
        """Refuse what a full stream that discards new messages has no room for."""
        stream, config = self.stream, self.stream.config
        if 0 <= config.max_msg_size < batch.largest:
            raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.error()
        count = len(batch.messages)
        size = batch.size + 34 * count
        full = stream.usage.refuses(size)
        if full:
            raise REFUSALS[full].error()
        if config.discard != "new":
            return
        held = stream.store.messages
        if stream.replicator is not None:
            held += stream.replicator.messages
        if 0 < config.max_msgs < held + count:
            raise errors.STREAM_STORE_FAILED.error(err="maximum messages exceeded")
        subjects = sum(len(one.subject) + COST_MORE for one in batch.messages)
        if not stream.has_room(size, subjects):
            raise errors.STREAM_STORE_FAILED.error(err="maximum bytes exceeded")

    def make_room(self, batch: Batch) -> None:
        """Have room for all records of a batch in the log, or raise StoreError."""
        if self.stream.config.storage == "file":
            size = batch.size + RECORD_MORE * len(batch.messages)
            try:
                self.stream.node.store().log.ensure(size + REMOVALS_ROOM)
            except StoreFull as failure:
                log.warning(
                    "a batch of stream %s is refused, and nothing of it is stored: %s",
                    self.stream.name,
                    failure,
                )
                raise

    def check_id(self, msg_id: bytes | None, ids: set[bytes]) -> None:
        """Refuse an id that is in the window or in the batch already."""
        if not msg_id:
            return
        if msg_id in ids or self.stream.dedupe.sequence_of(msg_id, self.stream.timers.now()):
            raise errors.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE.error()
        ids.add(msg_id)

    def check_rights(self, found: dict[bytes, bytes]) -> None:
        """Refuse a TTL or stream that would be refused outside of a batch."""
        stream, config = self.stream, self.stream.config
        expected = found.get(b"Nats-Expected-Stream")
        if expected and expected != stream.name_bytes:
            raise errors.STREAM_NOT_MATCH.error()
        value = found.get(b"Nats-TTL")
        if value:
            if ttl.parse_ttl(value) != 0 and not config.allow_msg_ttl:
                raise errors.MESSAGE_TTL_DISABLED.error()
            if ttl.parse_ttl(value) is None:
                raise errors.MESSAGE_TTL_INVALID.error()

    def check_rollup(self, rollup: bytes | None, position: int, again: bool) -> None:
        """Refuse a roll-up that would be refused outside of a batch, or takes a part of the batch;
        `again` when the batch has a message of that subject before it."""
        if not rollup:
            return
        rollup = rollup.lower()
        fault = ""
        if not self.stream.config.allow_rollup_hdrs:
            fault = "rollup not permitted"
        elif rollup not in (b"sub", b"all"):
            fault = f'rollup value invalid: "{rollup.decode("utf-8", "replace")}"'
        elif again if rollup == b"sub" else position:
            fault = f"batch rollup {rollup.decode()} invalid"
        if fault:
            raise errors.STREAM_ROLLUP_FAILED.error(err=fault)

    def stop(self) -> None:
        """Forget all open batches, of both kinds."""
        self.permit_fast(False)
        for batch_id in list(self.open):
            self.close(batch_id)


def number(value: bytes | None) -> int | None:
    """A decimal header value; None when it is none, or does not fit 63 bits."""
    found = None if value is None else decimal(value, NUMBER_MAX)
    return None if found == NUMBER_MAX else found
