"""Atomic batches (ADR-50): messages that are held back until their commit, then stored together.

All messages of a batch are appended in one turn, so that they share a commit; until then they are
in memory only, bounded by BATCHES_MAX and MESSAGES_MAX per stream.
"""

from typing import Any

from headwater.edge.jetstream.config.stream_budget import COST_MORE
from headwater.edge.jetstream.model import errors, headers, ttl
from headwater.edge.jetstream.model.bounds import decimal
from headwater.edge.jetstream.model.requests import LEVEL, check_level
from headwater.edge.jetstream.publish import special
from headwater.edge.jetstream.publish.fast_batch import FastBatches
from headwater.edge.jetstream.stream.stream_wire import last_sequence
from headwater.edge.jetstream.stream.usage import REFUSALS

BATCHES_MAX = 50
MESSAGES_MAX = 1000
ID_MAX = 64
TIMEOUT_S = 10.0
NUMBER_MAX = 1 << 63
# Bytes that the record of a message takes besides its content, at most: header, seal, filling.
RECORD_MORE = 128
# Room for what limits remove while a batch is stored.
REMOVALS_ROOM = 64 << 10


class Batch:
    """Messages of one batch that is still open."""

    def __init__(self) -> None:
        self.messages: list[tuple[bytes, bytes, bytes]] = []
        self.timer: Any = None


class Batches:
    """The open batches of one stream."""

    def __init__(self, stream: Any, limits: Any) -> None:
        self.stream = stream
        self.open: dict[bytes, Batch] = {}
        self.fast: FastBatches | None = None
        """The other kind of batches; None where it is not allowed."""
        self.bound_by(limits)

    def bound_by(self, limits: Any) -> None:
        """Go by these `BatchLimitOptions` from now on; an open batch keeps its time."""
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

    def add(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, found: dict[bytes, bytes]
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
                batch.messages.append((subject, block, payload))
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
        batch = self.open.get(batch_id)
        if batch is None:
            if position != 1:
                if position - (commit == b"eob") > self.messages_max:
                    size = self.messages_max
                    raise errors.ATOMIC_PUBLISH_TOO_LARGE_BATCH.error(size=size)
                raise errors.ATOMIC_PUBLISH_INCOMPLETE_BATCH.error()
            if len(self.open) >= self.most:
                raise errors.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT.error()
            batch = self.open[batch_id] = Batch()
        if batch.timer is not None:
            batch.timer.cancel()
        loop = self.stream.kernel.loop
        batch.timer = loop.call_later(self.timeout_s, self.abandon, batch_id, "timeout")
        return batch

    def mark_last(self, batch: Batch) -> None:
        """Have the last message say that it ends the batch, when what said so is not stored."""
        subject, block, payload = batch.messages[-1]
        batch.messages[-1] = subject, headers.add(block, b"Nats-Batch-Commit", b"1"), payload

    def close(self, batch_id: bytes) -> None:
        """Forget an open batch."""
        batch = self.open.pop(batch_id, None)
        if batch is not None and batch.timer is not None:
            batch.timer.cancel()

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
        stream = self.stream
        rollups = []
        now = stream.kernel.clock()
        for subject, block, payload in batch.messages:
            sequence = stream.import_message(subject, block, payload, now, 0)
            msg_id = headers.get(block, b"Nats-Msg-Id")
            stream.last_msg_id = msg_id or b""
            if msg_id:
                stream.dedupe.remember(msg_id, sequence, now - stream.age_offset)
            rollup = headers.get(block, b"Nats-Rollup")
            if rollup:
                rollups.append((b"" if rollup.lower() == b"all" else subject, sequence))
        # Behind all messages: what removals write must not take the room that was made for them.
        for subject, sequence in rollups:
            stream.purge(subject, sequence)
        last = stream.newest()
        text = batch_id.decode("utf-8", "replace")
        extra = f',"batch":"{text}","count":{len(batch.messages)}}}'
        stream.answers.owe_text(reply, last, stream.answers.head + b"%d" % last + extra.encode())

    def check(self, batch: Batch) -> None:
        """Refuse a batch one of whose messages would be refused alone; counters and schedules
        become what is stored of them. Raises JetStreamError."""
        stream, config = self.stream, self.stream.config
        next_seq = stream.newest() + 1
        lasts: dict[bytes, int] = {}
        counts: dict[bytes, tuple[bytes, bytes]] = {}
        ids: set[bytes] = set()
        if not stream.dedupe.loaded:
            stream.load_ids()
        self.check_room(batch)
        for i, (subject, block, payload) in enumerate(batch.messages):
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
            batch.messages[i] = subject, block, payload
        if config.allow_msg_counter or config.allow_msg_schedules:
            self.check_room(batch)
        self.make_room(batch)

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
        if config.max_msg_size >= 0:
            for _, block, payload in batch.messages:
                if len(block) + len(payload) > config.max_msg_size:
                    raise errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM.error()
        size = sum(len(s) + len(b) + len(p) + 34 for s, b, p in batch.messages)
        full = stream.usage.refuses(size)
        if full:
            raise REFUSALS[full].error()
        if config.discard != "new":
            return
        held = stream.store.messages
        if stream.replicator is not None:
            held += stream.replicator.messages
        if 0 < config.max_msgs < held + len(batch.messages):
            raise errors.STREAM_STORE_FAILED.error(err="maximum messages exceeded")
        if not stream.has_room(size, sum(len(s) + COST_MORE for s, _, _ in batch.messages)):
            raise errors.STREAM_STORE_FAILED.error(err="maximum bytes exceeded")

    def make_room(self, batch: Batch) -> None:
        """Have room for all records of a batch in the log, or raise StoreError."""
        if self.stream.config.storage == "file":
            size = sum(len(s) + len(b) + len(p) + RECORD_MORE for s, b, p in batch.messages)
            self.stream.node.store().log.ensure(size + REMOVALS_ROOM)

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
