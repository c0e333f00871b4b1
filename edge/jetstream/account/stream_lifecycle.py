"""Making, changing, recovering and deleting streams: where a stream meets its node and account."""

import logging
from collections.abc import Awaitable
from typing import Any, Protocol, cast

import msgspec

from headwater.edge.jetstream.consumer import consumer_recovery, consumer_wiring
from headwater.edge.jetstream.consumer.delivery import DELETED
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.host import Host
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.progress import consumer_events
from headwater.edge.jetstream.publish.batch import Batches
from headwater.edge.jetstream.publish.ingest import IngestSink, LastIngest
from headwater.edge.jetstream.read.blocks import BlockGet
from headwater.edge.jetstream.read.direct import QUEUE, DirectGet
from headwater.edge.jetstream.read.last_sink import LastSink
from headwater.edge.jetstream.stream import stream_states
from headwater.edge.jetstream.stream.expiry import Expiry
from headwater.edge.jetstream.stream.schedules import Schedules
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.file_store import FileStore

log = logging.getLogger("headwater.jetstream")

REPLACED = "Leadership Change"
"""What waiting pulls hear of a stream that another node leads, or another one replaces."""


SHUTDOWN = "Server Shutdown"
"""And of one whose account has no JetStream any more."""


class StreamOwner(Protocol):
    """What a stream needs of its account's JetStream."""

    name: str
    account: Any
    streams: dict[str, Stream]
    subjects: Any
    tiers: Any

    def incarnation(self) -> str:
        """A new one."""

    @property
    def node(self) -> Host:
        """Where the stream is."""


_CONFIG = msgspec.json.Decoder(StreamConfig)


class Meta(msgspec.Struct, omit_defaults=True):
    """What is kept of a stream besides its messages."""

    config: msgspec.Raw
    created_ns: int
    incarnation: str
    group: int = 0
    """Number of its Raft group; 0 with one replica."""
    cluster: str = ""
    """Identity of the cluster that the group is of."""


def pack(
    config: StreamConfig, created_ns: int, incarnation: str, group: int = 0, cluster: str = ""
) -> bytes:
    """The stored form of a stream's description."""
    raw = msgspec.Raw(msgspec.json.encode(config))
    return msgspec.json.encode(Meta(raw, created_ns, incarnation, group, cluster))


CLUSTERS_OWN = "$RAFT"
"""The account of what a cluster keeps for itself: no stream of it is for anybody."""


def group_of(meta: bytes) -> int:
    """The Raft group of the stream that `pack` described; 0 with one replica."""
    try:
        return msgspec.json.decode(meta, type=Meta).group
    except msgspec.DecodeError:
        return 0


def incarnation_of(meta: bytes) -> str:
    """The incarnation of the stream that `pack` described; empty for none."""
    try:
        return msgspec.json.decode(meta, type=Meta).incarnation
    except msgspec.DecodeError:
        return ""


def is_mirror(meta: bytes) -> bool:
    """Whether what `pack` returned describes a mirror."""
    try:
        return _CONFIG.decode(msgspec.json.decode(meta, type=Meta).config).mirror is not None
    except msgspec.DecodeError:
        return False


def is_in_memory(meta: bytes) -> bool:
    """Whether what `pack` returned describes a stream in memory. Replicas keep it in a log."""
    try:
        return _CONFIG.decode(msgspec.json.decode(meta, type=Meta).config).storage == "memory"
    except msgspec.DecodeError:
        return False


def numbered_elsewhere(meta: bytes) -> bool:
    """Whether the sequences of a stream come from another one, or from the log of its group."""
    return group_of(meta) != 0 or is_mirror(meta)


def create(
    js: StreamOwner, config: StreamConfig, incarnation: str, created_ns: int = 0
) -> Stream:
    """Make a stream from a checked configuration; `created_ns` 0 is now. Raises JetStreamError."""
    now = created_ns or js.account.kernel.clock()
    meta = pack(config, now, incarnation)
    store = js.node.create_store(js.name, config, meta, incarnation)
    try:
        usage = js.tiers.usage(config.storage, config.num_replicas)
        stream = Stream(js.account, store, config, incarnation, now, js.node, usage)
        start(js, stream)
    except Exception:
        # What cannot live now could not be recovered either.
        abandon(js, config.name)
        js.node.store().delete_stream(store)
        raise
    return stream


def described(js: StreamOwner, meta: bytes, store: Any) -> Stream:
    """A stream as its stored description says, which does not live. Raises msgspec.DecodeError."""
    found = msgspec.json.decode(meta, type=Meta)
    config = _CONFIG.decode(found.config)
    stream = Stream(
        js.account,
        store,
        config,
        found.incarnation,
        found.created_ns,
        js.node,
        js.tiers.usage(config.storage, config.num_replicas),
    )
    stream.group = found.group
    stream.cluster = found.cluster
    return stream


def follow(js: StreamOwner, meta: bytes, store: Any) -> Stream:
    """A replica of a stream, on a node that does not lead it: it applies what its group has
    committed, keeps its limits, and says nothing. Raises msgspec.DecodeError."""
    stream = described(js, meta, store)
    stream.mute()
    return stream


def lead(js: StreamOwner, stream: Stream) -> None:
    """Let a replica live that `follow` made: its node leads the group now, and `replicator` is
    set."""
    stream.configure(stream.config)
    start(js, stream)
    revive_consumers(stream)


def detach(js: StreamOwner, stream: Stream, reason: str = REPLACED) -> None:
    """End a stream whose group its node leads no more. `follow` goes on with its store, unless
    `reason` says that it is deleted."""
    if js.streams.get(stream.name) is stream:
        del js.streams[stream.name]
        js.subjects.leave(stream)
        stream.usage.reserve(-max(stream.config.max_bytes, 0))
    if not stream.deleted:
        stream.answers.abandon(errors.CLUSTER_NOT_AVAIL.error())
    if reason == DELETED:
        for consumer in stream.consumers.values():
            # Its state goes with the store; a leader that was cannot propose that.
            consumer.key = b""
    stop(stream, reason, deleted=True)


def rest(js: StreamOwner, stream: Stream, reason: str) -> None:
    """End a stream of this node alone, which `recover` brings back while the node runs."""
    states = _states(stream)
    detach(js, stream, reason)
    _put_states(stream, states)


def _states(stream: Stream) -> list[tuple[bytes, bytes, bytes]]:
    """Owner, key and value of the state of each consumer that has one."""
    kept = [one for one in stream.consumers.values() if one.key]
    return [(one.owner, one.key, one.save_whole()) for one in kept]


def _put_states(stream: Stream, states: list[tuple[bytes, bytes, bytes]]) -> None:
    """Have the log keep what the consumers of a stream said of themselves before they ended."""
    commit_log = stream_states.log_of(stream)
    for owner, key, value in states if commit_log is not None else ():
        commit_log.encode_with(owner, key, None)
        try:
            commit_log.put_state(owner, key, value)
        except StoreError as error:
            log.warning(
                "the state %r of stream %s is not written (%s): its consumer is served again "
                "after the node's next start",
                key, stream.name, error,
            )  # fmt: skip


def recover(js: StreamOwner, meta: bytes, store: Any) -> Stream:
    """Bring a stored stream back, with its consumers. Raises msgspec.DecodeError."""
    stream = described(js, meta, store)
    start(js, stream)
    revive_consumers(stream)
    return stream


def revive_consumers(stream: Stream) -> None:
    """Bring the consumers of a stream back that its states tell of."""
    consumer_recovery.recover(stream)
    consumers = stream.consumers
    consumers.doubtful = stream_states.consumer_states(stream) > len(consumers)
    consumers.changed()


def start(js: StreamOwner, stream: Stream) -> None:
    """Let a stream listen."""
    js.streams[stream.name] = stream
    js.subjects.enter(stream)
    config = stream.config
    stream.usage.reserve(max(config.max_bytes, 0))
    stream.timers = Expiry(stream)
    if config.max_age:
        stream.timers.arm()
    set_parts(js, stream)
    stream.listen(sinks(js, stream))


def revive(js: StreamOwner, stream: Stream) -> None:
    """Let a stream live whose messages were put into its store directly."""
    stream.timers.stop()
    stream.timers = Expiry(stream)
    stream.timers.arm()
    if stream.schedules is not None:
        stream.schedules.scan()
    stream.dedupe.loaded = False
    stream.listen(sinks(js, stream))
    stream.trim_all()


def set_parts(js: StreamOwner, stream: Stream) -> None:
    """Make what a stream's features need, and let federation drive mirrors and sources."""
    config = stream.config
    js.node.set_compression(stream)
    js.node.set_durability(stream)
    js.node.set_disk_budget(stream)
    if (config.allow_atomic or config.allow_batched) and stream.batches is None:
        stream.batches = Batches(stream, js.node.limits.batch)
    if stream.batches is not None:
        stream.batches.permit_fast(config.allow_batched)
    if config.allow_msg_schedules and stream.schedules is None:
        stream.schedules = Schedules(stream)
    factory = js.node.origin_driver_factory
    if (config.mirror is not None or config.sources) and factory is not None:
        stream.origin_driver = factory(stream)


def sinks(js: StreamOwner, stream: Stream) -> list[Any]:
    """Everything a stream listens on: its subjects and its direct gets."""
    config = stream.config
    found: list[Any] = [IngestSink(stream, subject.encode()) for subject in config.subjects]
    found.extend(block_sinks(js, stream))
    return found + read_sinks(js, stream)


def read_sinks(js: StreamOwner, stream: Stream, near: bool = False) -> list[Any]:
    """Direct gets: those of the stream, and those of its origin once a mirror has nearly all that
    is there. Only the node that leads a mirror knows that, and tells its replicas: `near`."""
    config = stream.config
    found: list[Any] = []
    if config.allow_direct:
        found.extend(direct_sinks(js, stream, stream.name))
    near = near or (stream.origin_driver is not None and stream.origin_driver.near)
    mirrored = config.mirror_direct and config.mirror is not None
    if near and mirrored and config.mirror.external is None:
        found.extend(direct_sinks(js, stream, config.mirror.name))
    return found


def serve_mirrored(js: StreamOwner, stream: Stream) -> None:
    """A mirror has come near to its origin: let it answer in its place."""
    if not stream.deleted:
        stream.listen(sinks(js, stream))
        js.node.on_near(stream)


def serve_reads(js: StreamOwner, stream: Stream, near: bool) -> None:
    """Let a replica that `follow` made answer direct gets; `near`: if it is one of a mirror that
    lacks little, those of its origin, too."""
    stream.listen(read_sinks(js, stream, near))


def accept_in_flight(js: StreamOwner, stream: Stream, senders: set[Any]) -> None:
    """Have other nodes send no more publishes here; what is on its way from `senders` (routes) is
    still taken, but for those that hold it. Pull requests and acks are for others from now on."""
    shut = next((sink.shut for sink in stream.sinks if isinstance(sink, IngestSink)), None)
    others = [sink for sink in sinks(js, stream) if not isinstance(sink, IngestSink)]
    last = [LastIngest(stream, each.encode(), senders) for each in stream.config.subjects]
    for sink in last:
        sink.shut = shut
    stream.listen(others + last)
    for consumer in stream.consumers.values():
        consumer_wiring.hush(consumer)


def refuse_publishes(js: StreamOwner, stream: Stream) -> None:
    """Take no more publishes: whoever asks for an ack hears that nobody takes them."""
    stream.listen([sink for sink in sinks(js, stream) if not isinstance(sink, IngestSink)])


def accept_publishes(js: StreamOwner, stream: Stream) -> None:
    """Take publishes from everywhere, and what consumers are told."""
    stream.listen(sinks(js, stream))
    for consumer in stream.consumers.values():
        consumer_wiring.unhush(consumer)


def direct_sinks(js: StreamOwner, stream: Stream, name: str) -> list[Any]:
    """Sinks that serve the direct gets of the stream `name` from `stream`."""
    gets = DirectGet(stream, js.node.direct_turns, js.node.direct_bytes_max)
    prefix = f"$JS.API.DIRECT.GET.{name}".encode()
    return [
        CallbackSink(prefix, gets.on_request, QUEUE),
        LastSink(stream, prefix + b".", gets.on_subject, QUEUE),
    ]


def block_sinks(js: StreamOwner, stream: Stream) -> list[Any]:
    """Sinks that serve the block reads of a stream."""
    reads = BlockGet(stream, js.node.transfers)
    prefix = f"$JS.API.BLOCK.GET.{stream.name}".encode()
    return [
        CallbackSink(prefix, reads.on_request, QUEUE),
        CallbackSink(prefix + b".>", reads.on_request, QUEUE),
    ]


def update(js: StreamOwner, stream: Stream, config: StreamConfig) -> int:
    """Act on a checked new configuration. Raises JetStreamError, and then nothing changed.

    Returns where `Stream.trim_some` has to go on, 0 when the limits hold for all that is stored."""
    old = stream.config
    js.node.update_meta(stream, description(stream, config))
    stream.usage.reserve(-max(old.max_bytes, 0))
    _choose_tier(js, stream, config)
    stream.usage.reserve(max(config.max_bytes, 0))
    if stream.origin_driver is not None and (
        config.mirror != old.mirror or config.sources != old.sources
    ):
        stream.origin_driver.leave([config.mirror] if config.mirror else config.sources)
        stream.origin_driver.stop()
        stream.origin_driver = None
    moved = config.subjects != old.subjects
    if moved:
        js.subjects.leave(stream)
    stream.configure(config)
    if moved:
        js.subjects.enter(stream)
    if stream.origin_driver is None:
        set_parts(js, stream)
    else:
        js.node.set_compression(stream)
        js.node.set_durability(stream)
        js.node.set_disk_budget(stream)
    stream.listen(sinks(js, stream))
    left = stream.trim_some(1)
    stream.timers.renew()
    if config.retention != old.retention:
        stream.consumers.changed()
    return left


def _choose_tier(js: StreamOwner, stream: Stream, config: StreamConfig) -> None:
    usage = js.tiers.usage(config.storage, config.num_replicas)
    if usage is not stream.usage:
        stream.draw_on(usage)


def description(stream: Stream, config: StreamConfig) -> bytes:
    """What is kept of a stream with another configuration."""
    born = (stream.created_ns, stream.incarnation)
    return pack(config, *born, stream.group, stream.cluster)


def change(js: StreamOwner, stream: Stream, meta: bytes) -> None:
    """Act on a description that the stream's group has committed, whoever leads it. Raises
    JetStreamError, msgspec.DecodeError, and then nothing changed."""
    config = _CONFIG.decode(msgspec.json.decode(meta, type=Meta).config)
    if stream.replicator is not None:
        if update(js, stream, config):
            stream.trim_all()
        return
    js.node.update_meta(stream, meta)
    _choose_tier(js, stream, config)
    stream.configure(config)
    stream.mute()
    if stream.sinks:
        serve_reads(js, stream, near=False)
    stream.trim_all()


def stop(stream: Stream, reason: str, deleted: bool = False) -> None:
    """End a stream and its consumers; the data stays."""
    for consumer in list(stream.consumers.values()):
        consumer.stop(reason)
    stream.consumers.clear()
    if stream.origin_driver is not None:
        if reason == DELETED:
            stream.origin_driver.leave([])
        stream.origin_driver.end()
    if stream.batches is not None:
        stream.batches.stop()
    if stream.schedules is not None:
        stream.schedules.stop()
    stream.stop(deleted)


async def renew(js: StreamOwner, stream: Stream) -> None:
    """Put an empty stream of the same configuration and with the same consumers in the place of
    one, in one step that a crash does not tear: sequences begin again. Raises JetStreamError,
    StoreError or OSError, and then nothing has changed."""
    from headwater.edge.jetstream.consumer.consumers import create_consumer

    storage, config, now = js.node.store(), stream.config, js.account.kernel.clock()
    incarnation = js.incarnation()
    storage.making = True
    try:
        meta = pack(config, now, incarnation)
        store = js.node.create_store(js.name, config, meta, incarnation)
    finally:
        storage.making = False
    try:
        if config.storage == "file":
            await storage.log.wait_durable(storage.log.hand_over())
        if stream.deleted or stream.config is not config:
            raise StoreError("the stream was changed meanwhile")
        consumers = _replace(js, stream, store)
    except BaseException:
        storage.delete_stream(store)
        raise
    made = Stream(js.account, store, config, incarnation, now, js.node, stream.usage)
    start(js, made)
    waiting = [create_consumer(made, consumer, name)[1] for name, consumer in consumers]
    for durable in waiting:
        if durable is not None:
            await durable


def _replace(js: StreamOwner, stream: Stream, store: Any) -> list[tuple[str, Any]]:
    """End a stream in favour of `store`; returns its consumers. Raises OSError, and then it lives
    on as it was."""
    from headwater.edge.jetstream.consumer.consumers import limitable

    storage = js.node.store()
    consumers = [(one.name, one.config) for one in limitable(stream)]
    meta, old = storage.meta_of(stream.store), stream.store
    states = _states(stream)
    js.subjects.leave(stream)
    stream.usage.reserve(-max(stream.config.max_bytes, 0))
    stop(stream, REPLACED, deleted=True)
    if meta is None:
        storage.delete_stream(old)
        return consumers
    try:
        storage.finish_stream(store, cast("FileStore", old))  # it has a meta, so it has files
    except OSError:
        _put_states(stream, states)
        recover(js, meta, old)
        raise
    return consumers


def abandon(js: StreamOwner, name: str) -> None:
    """Take back what `start` did for a stream that cannot live; its data stays."""
    stream = js.streams.pop(name, None)
    if stream is not None:
        js.subjects.leave(stream)
        stream.usage.reserve(-max(stream.config.max_bytes, 0))
        stop(stream, "Stream Unusable")


def delete(js: StreamOwner, stream: Stream, moved: bool = False) -> Awaitable[None] | None:
    """End a stream and remove what is here of it; the awaitable is done when that is durable.
    `moved`: another node has it now, so its consumers are not deleted, nor those that it has at
    origins. Raises StoreError, OSError, when the data is not removed; the stream has ended then."""
    del js.streams[stream.name]
    js.subjects.leave(stream)
    stream.usage.reserve(-max(stream.config.max_bytes, 0))
    for consumer in stream.consumers.values() if not moved else ():
        consumer_events.deleted(consumer)
    stop(stream, REPLACED if moved else DELETED, deleted=True)
    return js.node.delete_store(stream)
