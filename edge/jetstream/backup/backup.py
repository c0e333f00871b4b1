"""Backups of streams: a snapshot sent in chunks under flow control, and a restore from such chunks.

The receiver of a snapshot confirms chunks on `$JS.SNAPSHOT.ACK...`; the sender of a restore gets an
empty message for each chunk, and the outcome in answer to its last, empty one. Whoever falls
silent for STALL_S ends the transfer; a restore that fails leaves no stream behind.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.backup.archived_consumer import ArchivedConsumer, consumer_entry
from headwater.edge.jetstream.config import consumer_config
from headwater.edge.jetstream.model import archive, errors, s2
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import (
    SnapshotRequest,
    StreamConfig,
    StreamCreated,
    StreamState,
)
from headwater.edge.jetstream.model.names import valid_name
from headwater.edge.jetstream.model.times import format_time
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_info import stream_info, stream_state
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.ports.draws import draw_text
from headwater.edge.storage.format.errors import Damaged, StoreError
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.subjects.tokens import clean_word, literal_subject
from headwater.edge.wire.json_objects import BAD_JSON, escaped

if TYPE_CHECKING:
    from headwater.edge.jetstream.account.account_js import AccountJetStream

log = logging.getLogger("headwater.jetstream")

STALL_S = 5.0
INTEREST_S = 2.0
"""How long a snapshot waits for somebody to subscribe to its very subject: the `nats` tool does so
after the answer, and has a wildcard subscription above it from before."""
CHUNK_BYTES = (1 << 10, 128 << 10, 1 << 20)
"""Least, default and most bytes of a chunk."""
WINDOW_BYTES = (1 << 10, 8 << 20, 32 << 20)
"""Least, default and most bytes that are on the way."""
HELD_MAX = 128 << 20
"""Bytes of chunks that wait, from who sends on without waiting for the answers."""
SLICE_BYTES = 4 << 20
ENTRY_BYTES = 2048
"""How much is restored at once, and what an entry costs besides its bytes."""
CONSUMERS_AT_ONCE = 50
FAILURES = (JetStreamError, StoreError, ValueError, *BAD_JSON, OSError)
"""What may be wrong with a backup or the place for it; anything else is a bug."""
CREATE_TYPE = "io.nats.jetstream.api.v1.stream_create_response"


def within(wanted: int, bounds: tuple[int, int, int]) -> int:
    least, usual, most = bounds
    return min(max(wanted, least), most) if wanted > 0 else usual


class Receiver:
    """Follows whether somebody subscribes to the very `subject`, not only to a pattern above it."""

    def __init__(self, account: Any, subject: bytes) -> None:
        self.account = account
        self.subject = subject
        self.changed = asyncio.Event()
        account.add_watcher(self)

    def close(self) -> None:
        """Follow no more."""
        self.account.drop_watcher(self)

    def interest_added(self, sink: Any) -> None:
        """The account has one more sink."""
        if sink.subject == self.subject:
            self.changed.set()

    interest_removed = interest_added

    def there(self) -> bool:
        """Whether somebody subscribes to the subject."""
        return any(sink.subject == self.subject for sink in self.account.sinks(self.subject))

    async def arrival(self) -> bool:
        """Wait for INTEREST_S at most; whether somebody subscribes to the subject."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTEREST_S):
                while not self.there():
                    self.changed.clear()
                    await self.changed.wait()
        return self.there()


class BackupSender:
    """Sends one stream to `deliver_subject`; `client` is who asked, for advisories."""

    def __init__(
        self, stream: Stream, request: SnapshotRequest, client: dict[str, Any] | None = None
    ) -> None:
        self.stream = stream
        self.client = client or {}
        self.start_ns = stream.kernel.clock()
        self.subject = request.deliver_subject.encode()
        self.chunk = within(request.chunk_size, CHUNK_BYTES)
        self.window = within(request.window_size, WINDOW_BYTES)
        self.with_consumers = not request.no_consumers
        self.state = stream_state(stream)
        self.acks = f"$JS.SNAPSHOT.ACK.{stream.name}.{draw_text(stream.kernel.chance)}".encode()
        self.on_the_way = 0
        self.sent = 0
        self.confirmed = asyncio.Event()

    async def run(self) -> None:
        """Send everything, then the end mark with the outcome."""
        account = self.stream.account
        self.send_advisory("snapshot_create", state=msgspec.to_builtins(self.state))
        sink = CallbackSink(self.acks + b".>", self.on_ack)
        account.insert(sink)
        self.receiver = Receiver(account, self.subject)
        failure = ""
        try:
            self.literal = await self.receiver.arrival()
            failure = await self.send_all()
        except (StoreError, ValueError) as error:
            failure = f"500 {error}"
        finally:
            self.receiver.close()
            account.remove(sink)
        account.send(self.subject, b"", b"", f"NATS/1.0 {failure or 204}\r\n\r\n".encode())
        times = {
            "start": format_time(self.start_ns),
            "end": format_time(self.stream.kernel.clock()),
        }
        self.send_advisory("snapshot_complete", **times, **({"error": failure} if failure else {}))

    def send_advisory(self, action: str, **fields: Any) -> None:
        """An advisory."""
        stream = self.stream
        fields["client"] = self.client
        stream.node.advisories.transfer(stream.account, stream.name, action, fields)

    async def send_all(self) -> str:
        """Send the archive; the status of a failure, or ""."""
        held = bytearray(s2.IDENTIFIER)
        for piece in self.pieces():
            held += s2.frames(piece)
            while len(held) >= self.chunk:
                failure = await self.send(bytes(held[: self.chunk]))
                if failure:
                    return failure
                del held[: self.chunk]
        return await self.send(bytes(held)) if held else ""

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
        yield archive.ArchiveEntry(b"state.json", now, 0, b"", msgspec.json.encode(self.state))
        for consumer in consumers:
            name = f"consumers/{consumer.name}".encode()
            entry = consumer_entry(consumer, self.state.last_seq)
            yield archive.ArchiveEntry(name, now, 0, b"", entry)
        store = self.stream.store
        everything = store.filter(())
        at = store.next_matching(everything, 0)
        while at and at <= self.state.last_seq:
            try:
                message = store.get(at)
            except Damaged as error:
                log.warning(
                    "backup of stream %s leaves message %d out: %s; restore cannot bring it back, "
                    "keep "
                    "an older backup",
                    self.stream.name,
                    at,
                    error,
                )
                message = None
            if message is not None:
                yield archive.ArchiveEntry(
                    message.subject, message.timestamp, at, message.headers, message.payload
                )
            at = store.next_matching(everything, at + 1)
        yield archive.END

    async def send(self, chunk: bytes) -> str:
        """Send a chunk when the window lets it; the status of a failure, or ""."""
        account = self.stream.account
        while self.on_the_way + len(chunk) > self.window and self.on_the_way:
            self.confirmed.clear()
            try:
                async with asyncio.timeout(STALL_S):
                    await self.confirmed.wait()
            except TimeoutError:
                return "408 No Flow Response"
        heard = self.receiver.there() if self.literal else account.has_interest(self.subject)
        if self.stream.deleted or not heard:
            return "408 No Interest"
        self.sent += 1
        self.on_the_way += len(chunk)
        account.send(self.subject, chunk, b"%b.%d.%d" % (self.acks, len(chunk), self.sent))
        await asyncio.sleep(0)
        return ""

    def on_ack(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """A chunk was taken; its size is in the subject."""
        tokens = subject.split(b".")
        if len(tokens) >= 2 and tokens[-2].isdigit():
            self.on_the_way = max(self.on_the_way - int(tokens[-2]), 0)
            self.confirmed.set()


def check_message(entry: archive.ArchiveEntry) -> None:
    """Refuse what no publisher could have stored. Raises FormatError."""
    if not literal_subject(entry.name) or not clean_word(entry.name):
        raise s2.FormatError(f"message {entry.sequence} of the archive has an invalid subject")
    if not 0 < entry.sequence < 1 << 63 or not -(1 << 63) <= entry.timestamp < 1 << 63:
        raise s2.FormatError("a message of the archive has a sequence or a time out of all bounds")
    block = entry.headers
    if block and not (block.startswith(b"NATS/1.0") and block.endswith(b"\r\n\r\n")):
        raise s2.FormatError(f"message {entry.sequence} of the archive has invalid headers")


class Restore:
    """Takes one stream from chunks on `subject`; `client` is who brings it, for advisories."""

    def __init__(
        self,
        js: "AccountJetStream",
        config: StreamConfig,
        client: dict[str, Any] | None = None,
    ) -> None:
        self.js = js
        self.client = client or {}
        self.start_ns = js.account.kernel.clock()
        self.bytes = 0
        self.chunks: deque[tuple[bytes, bytes]] = deque()
        """Replies and payloads of chunks that wait until those before them are restored."""
        self.held = 0
        """Their bytes."""
        self.ended = False
        self.config = config
        self.subject = f"$JS.SNAPSHOT.RESTORE.{config.name}.{draw_text(js.account.kernel.chance)}"
        self.sink = CallbackSink(self.subject.encode(), self.on_chunk)
        self.frames = s2.FrameReader()
        self.entries = archive.ArchiveReader()
        self.stream: Stream | None = None
        self.state = StreamState()
        self.consumers: dict[str, ArchivedConsumer] = {}
        self.complete = False
        self.watch: Any = None
        self.waits: list[Awaitable[None]] = []
        """Consumers that are on their way to the disk."""
        self.task: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Listen for chunks."""
        self.js.account.insert(self.sink)
        self.rearm()
        self.send_advisory("restore_create")

    def send_advisory(self, action: str, **fields: Any) -> None:
        """An advisory."""
        fields["client"] = self.client
        js = self.js
        js.node.advisories.transfer(js.account, self.config.name, action, fields)

    def rearm(self) -> None:
        """Wait for the next chunk, but not for ever."""
        if self.watch is not None:
            self.watch.cancel()
        self.watch = self.js.account.kernel.loop.call_later(STALL_S, self.stalled)

    def stalled(self) -> None:
        """Nothing came for too long."""
        log.warning(
            "restore of stream %s ends, since nothing came for %d s: what was restored is removed; "
            "start it again",
            self.config.name,
            STALL_S,
        )
        self.end(failed=True)

    def end(self, failed: bool) -> None:
        """Listen no more; what was restored in part is removed."""
        self.ended = True
        now = self.js.account.kernel.clock()
        times = {"start": format_time(self.start_ns), "end": format_time(now)}
        self.send_advisory("restore_complete", **times, bytes=self.bytes)
        self.watch.cancel()
        self.js.account.remove(self.sink)
        if not failed:
            return
        unawaited = list(self.waits)
        if self.stream is not None:
            removed = self.js.delete(self.stream)
            unawaited += [removed] if removed is not None else []
            self.stream = None
        for waiting in unawaited:
            if asyncio.iscoroutine(waiting):
                waiting.close()

    def on_chunk(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """One chunk, or the end when it is empty."""
        if not reply:
            self.end(failed=True)
            return
        self.rearm()
        self.bytes += len(payload)
        self.held += len(payload)
        if self.held > HELD_MAX:
            self.fail(reply, s2.FormatError("more chunks came than were asked for"))
            return
        self.chunks.append((reply, payload))
        if self.task is None or self.task.done():
            self.task = asyncio.ensure_future(self.restore_chunks())

    async def restore_chunks(self) -> None:
        """Restore what has come, chunk by chunk; others are served between slices of one."""
        while self.chunks:
            reply, payload = self.chunks.popleft()
            self.held -= len(payload)
            try:
                if payload:
                    await self.restore_chunk(payload)
                else:
                    await self.fill()
            except Exception as error:
                if not self.ended:
                    self.fail(reply, error)
                return
            if self.ended:
                return
            if not payload:
                await self.finish_when_durable(reply)
                return
            self.js.account.send(reply, b"")

    async def restore_chunk(self, payload: bytes) -> None:
        """Restore the entries of a chunk. Raises JetStreamError, StoreError, ValueError."""
        left = SLICE_BYTES
        for content in self.frames.contents(payload):
            left -= ENTRY_BYTES + len(content)
            for entry in self.entries.entries(content):
                self.restore_entry(entry)
                left -= ENTRY_BYTES + len(entry.payload)
                if left < 0:
                    left = SLICE_BYTES
                    await self.pause()
            if left < 0:
                left = SLICE_BYTES
                await self.pause()

    async def pause(self) -> None:
        """Let others be served; what is under way here does not stall meanwhile. Raises
        FormatError when the restore has ended meanwhile."""
        await asyncio.sleep(0)
        if self.ended:
            raise s2.FormatError("the restore has ended")
        if self.watch is not None:
            self.rearm()

    async def finish_when_durable(self, reply: bytes) -> None:
        """Everything has come. When it is durable, the stream counts and lives, in this order."""
        node = self.js.node
        self.watch.cancel()
        try:
            for waiting in self.waits:
                await waiting
            durable = node.durable(self.stream) if self.stream is not None else None
            if durable is not None:
                await durable
            if self.stream is None:
                raise s2.FormatError("more came behind the end")
            if durable is not None:
                node.store().finish_stream(cast("FileStore", self.stream.store))
            self.answer(reply, self.finish())
        except Exception as error:
            self.fail(reply, error)

    def fail(self, reply: bytes, error: Exception) -> None:
        """Leave nothing behind, and tell why."""
        bug = None if isinstance(error, FAILURES) else error
        log.warning(
            "restore of stream %s failed: %s; what was restored is removed: mend that, and start "
            "it "
            "again",
            self.config.name,
            error,
            exc_info=bug,
        )
        self.end(failed=True)
        known = error if isinstance(error, JetStreamError) else None
        refusal = known or errors.STREAM_RESTORE.error(err=error)
        self.answer(reply, {"error": refusal.wire()})

    def answer(self, reply: bytes, content: dict[str, Any] | StreamCreated) -> None:
        head = msgspec.json.encode({"type": CREATE_TYPE})
        self.js.account.send(reply, head[:-1] + b"," + escaped(msgspec.json.encode(content))[1:])

    def restore_entry(self, entry: archive.ArchiveEntry) -> None:
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
            name = entry.name.removeprefix(b"consumers/").decode()
            self.consumers[name] = msgspec.json.decode(entry.payload, type=ArchivedConsumer)
        else:
            check_message(entry)
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

    async def fill(self) -> None:
        """Everything has come: do what follows it. Raises JetStreamError, StoreError,
        ValueError."""
        from headwater.edge.jetstream.consumer import consumers

        stream = self.stream
        if stream is None or not self.complete:
            raise s2.FormatError("archive is not complete")
        if self.state.last_seq > stream.store.last_seq:
            stream.store.skip(self.state.last_seq)
        for number, (name, found) in enumerate(self.consumers.items()):
            if number % CONSUMERS_AT_ONCE == CONSUMERS_AT_ONCE - 1:
                await self.pause()
            if not valid_name(name):
                raise errors.CONSUMER_BAD_DURABLE_NAME.error()
            consumer_config.check(found.config, stream.config, consumer_config.Limits())
            _, waiting = consumers.create_consumer(stream, found.config, name, found.state.resume)
            if waiting is not None:
                self.waits.append(waiting)

    def finish(self) -> StreamCreated:
        """Let the restored stream live."""
        stream = self.stream
        assert stream is not None
        stream_lifecycle.revive(self.js, stream)
        self.end(failed=False)
        info = stream_info(stream)
        fields = {name: getattr(info, name) for name in info.__struct_fields__}
        return StreamCreated(**fields)
