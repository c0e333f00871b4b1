"""Backups of streams: a snapshot sent in chunks under flow control, and a restore from such chunks.

The receiver of a snapshot confirms chunks on `$JS.SNAPSHOT.ACK...`; the sender of a restore gets an
empty message for each chunk, and the outcome in answer to its last, empty one. Whoever falls
silent for STALL_S ends the transfer; a restore that fails leaves no stream behind.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.core import CallbackSink
from headwater.edge.jetstream import archive, errors, s2, stream_life
from headwater.edge.jetstream.consumer_events import unique_id
from headwater.edge.jetstream.errors import JetStreamError
from headwater.edge.jetstream.models import (
    ConsumerConfig,
    SnapshotRequest,
    StreamConfig,
    StreamCreated,
    StreamState,
)
from headwater.edge.jetstream.stream import Stream
from headwater.edge.jetstream.stream_info import stream_info, stream_state
from headwater.edge.storage.errors import Damaged, StoreError

if TYPE_CHECKING:
    from headwater.edge.jetstream.account_js import AccountJetStream

log = logging.getLogger("headwater.jetstream")

STALL_S = 5.0
CHUNK_BYTES = (1 << 10, 128 << 10, 1 << 20)
"""Least, default and most bytes of a chunk."""
WINDOW_BYTES = (1 << 10, 8 << 20, 32 << 20)
"""Least, default and most bytes that are on the way."""
FAILURES = (JetStreamError, StoreError, ValueError, msgspec.MsgspecError)
CREATE_TYPE = "io.nats.jetstream.api.v1.stream_create_response"


def within(wanted: int, bounds: tuple[int, int, int]) -> int:
    least, usual, most = bounds
    return min(max(wanted, least), most) if wanted > 0 else usual


class Snapshot:
    """Sends one stream to `deliver_subject`."""

    def __init__(self, stream: Stream, request: SnapshotRequest) -> None:
        self.stream = stream
        self.subject = request.deliver_subject.encode()
        self.chunk = within(request.chunk_size, CHUNK_BYTES)
        self.window = within(request.window_size, WINDOW_BYTES)
        self.with_consumers = not request.no_consumers
        self.state = stream_state(stream)
        self.acks = f"$JS.SNAPSHOT.ACK.{stream.name}.{unique_id()}".encode()
        self.on_the_way = 0
        self.sent = 0
        self.confirmed = asyncio.Event()

    async def run(self) -> None:
        """Send everything, then the end mark with the outcome."""
        account = self.stream.account
        sink = CallbackSink(self.acks + b".>", self.on_ack)
        account.insert(sink)
        outcome = b"NATS/1.0 204\r\n\r\n"
        try:
            outcome = await self.send_all() or outcome
        except (StoreError, ValueError) as error:
            outcome = b"NATS/1.0 500 " + str(error).encode() + b"\r\n\r\n"
        finally:
            account.remove(sink)
        account.send(self.subject, b"", b"", outcome)

    async def send_all(self) -> bytes:
        """Send the archive; the header block of a failure, or b""."""
        held = bytearray(s2.IDENTIFIER)
        for piece in self.pieces():
            held += s2.frames(piece)
            while len(held) >= self.chunk:
                failure = await self.send(bytes(held[: self.chunk]))
                if failure:
                    return failure
                del held[: self.chunk]
        return await self.send(bytes(held)) if held else b""

    def pieces(self) -> Any:
        """The archive, in pieces of about a chunk."""
        held = bytearray(archive.MAGIC)
        for entry in self.entries():
            held += archive.packed(entry)
            if len(held) >= self.chunk:
                yield bytes(held)
                held.clear()
        yield bytes(held)

    def entries(self) -> Any:
        """State, consumers, messages, end."""
        now = self.stream.kernel.clock()
        consumers = list(self.stream.consumers.values()) if self.with_consumers else []
        self.state.consumer_count = len(consumers)
        yield archive.Entry(b"state.json", now, 0, b"", msgspec.json.encode(self.state))
        for consumer in consumers:
            name = f"consumers/{consumer.name}".encode()
            yield archive.Entry(name, now, 0, b"", consumer_entry(consumer))
        store = self.stream.store
        everything = store.filter(())
        at = store.next_matching(everything, 0)
        while at and at <= self.state.last_seq:
            try:
                message = store.get(at)
            except Damaged as error:
                log.warning("snapshot of stream %s: %s", self.stream.name, error)
                message = None
            if message is not None:
                yield archive.Entry(
                    message.subject, message.timestamp, at, message.headers, message.payload
                )
            at = store.next_matching(everything, at + 1)
        yield archive.END

    async def send(self, chunk: bytes) -> bytes:
        """Send a chunk when the window lets it; the header block of a failure, or b""."""
        account = self.stream.account
        while self.on_the_way + len(chunk) > self.window and self.on_the_way:
            self.confirmed.clear()
            try:
                await asyncio.wait_for(self.confirmed.wait(), STALL_S)
            except TimeoutError:
                return b"NATS/1.0 408 No Flow Response\r\n\r\n"
        if self.stream.deleted or not account.has_interest(self.subject):
            return b"NATS/1.0 408 No Interest\r\n\r\n"
        self.sent += 1
        self.on_the_way += len(chunk)
        account.send(self.subject, chunk, b"%b.%d.%d" % (self.acks, len(chunk), self.sent))
        await asyncio.sleep(0)
        return b""

    def on_ack(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, origin: object
    ) -> None:
        """A chunk was taken; its size is in the subject."""
        tokens = subject.split(b".")
        if len(tokens) >= 2 and tokens[-2].isdigit():
            self.on_the_way = max(self.on_the_way - int(tokens[-2]), 0)
            self.confirmed.set()


def consumer_entry(consumer: Any) -> bytes:
    """A consumer as it is written: unacknowledged messages are to be delivered again."""
    from headwater.edge.jetstream.consumer_info import consumer_info

    info = consumer_info(consumer)
    floor = {
        "consumer_seq": info.ack_floor.consumer_seq,
        "stream_seq": info.ack_floor.stream_seq,
    }
    delivered = {
        "consumer_seq": info.delivered.consumer_seq,
        "stream_seq": info.delivered.stream_seq,
    }
    state = {"delivered": floor if info.num_ack_pending else delivered, "ack_floor": floor}
    return msgspec.json.encode({"config": consumer.config, "state": state})


class Position(msgspec.Struct):
    """A pair of sequences in an archived consumer."""

    consumer_seq: int = 0
    stream_seq: int = 0


class Positions(msgspec.Struct):
    """Progress of an archived consumer."""

    delivered: Position = msgspec.field(default_factory=Position)
    ack_floor: Position = msgspec.field(default_factory=Position)


class ArchivedConsumer(msgspec.Struct):
    """A consumer as archives have it."""

    config: ConsumerConfig
    state: Positions = msgspec.field(default_factory=Positions)


class Restore:
    """Takes one stream from chunks on `subject`."""

    def __init__(self, js: "AccountJetStream", config: StreamConfig) -> None:
        self.js = js
        self.config = config
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{unique_id()}"
        self.sink = CallbackSink(self.subject.encode(), self.on_chunk)
        self.frames = s2.Reader()
        self.entries = archive.Reader()
        self.stream: Stream | None = None
        self.state = StreamState()
        self.consumers: list[ArchivedConsumer] = []
        self.complete = False
        self.watch: Any = None
        self.waits: list[Awaitable[None]] = []
        """Consumers that are on their way to the disk."""
        self.task: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Listen for chunks."""
        self.js.account.insert(self.sink)
        self.rearm()

    def rearm(self) -> None:
        """Wait for the next chunk, but not for ever."""
        if self.watch is not None:
            self.watch.cancel()
        self.watch = self.js.account.kernel.loop.call_later(STALL_S, self.stalled)

    def stalled(self) -> None:
        """Nothing came for too long."""
        log.warning("restore of stream %s is stalled", self.config.name)
        self.end(failed=True)

    def end(self, failed: bool) -> None:
        """Listen no more; what was restored in part is removed."""
        self.watch.cancel()
        self.js.account.remove(self.sink)
        if failed and self.stream is not None:
            self.js.delete(self.stream)
            self.stream = None

    def on_chunk(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, origin: object
    ) -> None:
        """One chunk, or the end when it is empty."""
        if not reply:
            self.end(failed=True)
            return
        self.rearm()
        try:
            if payload:
                for entry in self.entries.feed(self.frames.feed(payload)):
                    self.take(entry)
                self.js.account.send(reply, b"")
                return
            self.fill()
        except FAILURES as error:
            self.fail(reply, error)
            return
        self.watch.cancel()
        self.task = asyncio.ensure_future(self.settle(reply))

    async def settle(self, reply: bytes) -> None:
        """Everything has come. When it is durable, the stream counts and lives, in this order."""
        node = self.js.node
        try:
            for waiting in self.waits:
                await waiting
            durable = node.durable(self.stream) if self.stream is not None else None
            if durable is not None:
                await durable
            if self.stream is None:
                raise s2.FormatError("more came behind the end")
            if durable is not None:
                node.store().finish_stream(self.stream.store)
            self.answer(reply, self.finish())
        except (*FAILURES, OSError) as error:
            self.fail(reply, error)

    def fail(self, reply: bytes, error: Exception) -> None:
        """Leave nothing behind, and tell why."""
        log.warning("restore of stream %s failed: %s", self.config.name, error)
        self.end(failed=True)
        known = error if isinstance(error, JetStreamError) else None
        refusal = known or errors.STREAM_RESTORE.error(err=error)
        self.answer(reply, {"error": refusal.wire()})

    def answer(self, reply: bytes, content: dict[str, Any] | StreamCreated) -> None:
        head = msgspec.json.encode({"type": CREATE_TYPE})
        self.js.account.send(reply, head[:-1] + b"," + msgspec.json.encode(content)[1:])

    def take(self, entry: archive.Entry) -> None:
        """Restore one entry. Raises JetStreamError, StoreError, ValueError."""
        if self.complete:
            raise s2.FormatError("archive goes on after its end")
        if self.stream is None:
            if entry.name != b"state.json":
                raise s2.FormatError("expected state.json first")
            self.state = msgspec.json.decode(entry.payload, type=StreamState)
            self.stream = self.make()
        elif entry == archive.END:
            self.complete = True
        elif entry.sequence == 0 and entry.name.startswith(b"consumers/"):
            self.consumers.append(msgspec.json.decode(entry.payload, type=ArchivedConsumer))
        else:
            self.stream.store.add_message(
                entry.name, entry.payload, entry.headers, entry.timestamp, entry.sequence
            )

    def make(self) -> Stream:
        """The stream, empty and deaf, at its first sequence. A start removes what was not
        finished."""
        storage = self.js.node.store()
        before, storage.making = storage.making, True
        try:
            stream = self.js.create(self.config, False)
        finally:
            storage.making = before
        stream.listen([])
        if self.state.first_seq > 1:
            stream.store.purge(None, self.state.first_seq)
        return stream

    def fill(self) -> None:
        """Everything has come: do what follows it. Raises JetStreamError, StoreError,
        ValueError."""
        from headwater.edge.jetstream import consumers

        stream = self.stream
        if stream is None or not self.complete:
            raise s2.FormatError("archive is not complete")
        if self.state.last_seq > stream.store.last_seq:
            stream.store.skip(self.state.last_seq)
        for found in self.consumers:
            name = found.config.name or found.config.durable_name
            consumer, waiting = consumers.create_consumer(stream, found.config, name)
            if waiting is not None:
                self.waits.append(waiting)
            if found.state.delivered.stream_seq:
                consumer.reset(found.state.ack_floor.stream_seq + 1)

    def finish(self) -> StreamCreated:
        """Let the restored stream live."""
        stream = self.stream
        assert stream is not None
        stream_life.revive(self.js, stream)
        self.end(failed=False)
        info = stream_info(stream)
        fields = {name: getattr(info, name) for name in info.__struct_fields__}
        return StreamCreated(**fields)
