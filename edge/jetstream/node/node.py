"""JetStream of a node: its storage, the accounts that use it, recovery and shared limits.

The node calls `open` before anything listens (recovery is done when it returns), `enable` for each
account that has JetStream, and `close` at the end. Upper floors plug in by `origin_driver_factory`.
"""

import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import AccountJetStreamOptions, JetStreamOptions, Options
from headwater.edge.facts.version import API_LEVEL
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.account.holdings import Holdings
from headwater.edge.jetstream.api.api import Router
from headwater.edge.jetstream.api.api_routes import routes
from headwater.edge.jetstream.config import stream_budget, stream_durability
from headwater.edge.jetstream.config.sealing_keys import key_ring
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import ClusterInfo, StreamConfig
from headwater.edge.jetstream.node.age_watch import AgeWatch
from headwater.edge.jetstream.publish.batch import BatchRoom
from headwater.edge.jetstream.read.blocks import Transfers
from headwater.edge.jetstream.read.direct_batch import DirectTurns
from headwater.edge.jetstream.stream import stream_states
from headwater.edge.jetstream.stream.advisories import Advisories
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.usage import Usage
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.kernel.later import Later
from headwater.edge.ports.files import device_bytes, tree_bytes
from headwater.edge.storage.directory.disk_budget import least_budget
from headwater.edge.storage.directory.store_lock import holder
from headwater.edge.storage.directory.store_options import (
    DEFAULT_OPEN_PAGES,
    DEFAULT_SEGMENT_BYTES,
    StoreOptions,
)
from headwater.edge.storage.format.durability import Durability
from headwater.edge.storage.format.errors import NoLogFile, StoreError, StoreFull
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.node.node_store import NodeStore
from headwater.security.auth_options import SYSTEM_ACCOUNT

log = logging.getLogger("headwater.jetstream")

# Messages looked at in one turn when a change of interest makes a stream drop messages.
SWEEP_SLICE = 2000
MEMORY_SHARE = 0.75
"""Of the machine's memory, the default limit of memory storage."""
FILE_SHARE = 0.75
"""Of the free space of the device, the default limit of file storage."""
UNKNOWN_LIMIT = 1 << 40
MOST_MEMORY = 1 << 46
"""No machine has more, in bytes."""
# A segment of the log is at most one of so many of the device, but not smaller than this.
DEVICE_SEGMENTS = 64
DEVICE_SEGMENT_MIN = 256 << 10
EDGE_SEGMENT_BYTES = 352 << 10
"""Of a gateway: an empty store, with five of them, takes less than 2 MiB."""
EDGE_SEGMENT_SMALL = 256 << 10
"""Where it may store less than this:"""
EDGE_SMALL_LIMIT = 32 << 20
LOG_SEGMENTS = 12
"""Of the log, with its ballast, while a gateway stores as fast as it can."""
EDGE_OPEN_PAGES = 16
EDGE_MEMORY_BYTES = 32 << 20
"""Of a gateway's memory streams, when `max_mem` is not set: a share of the machine would be more
than the node has for all the rest."""
CLUSTER_SEGMENT_BYTES = 16 << 20

APPLIED_SYNC_SECONDS = 0.2
"""How long the sync of what a group has committed may wait: its entries are on the device."""

TEMPORARY_MAX = 100
"""Folders in the system's temporary one that nodes without a store_dir try."""

NOTHING_GRANTED = AccountJetStreamOptions(max_memory=0, max_store=0)
"""Limits of what an account without JetStream has stored before."""

OriginDriverFactory = Callable[[Stream], Any]


def temporary_directory() -> Path:
    """Where a node stores that was told no place: the first folder that no other such node holds.
    With nats-server several share one, which loses messages."""
    import tempfile

    first = found = Path(tempfile.gettempdir()) / "nats" / "jetstream"
    number = 1
    while number < TEMPORARY_MAX and holder(found):
        number += 1
        found = first.parent.with_name(f"nats-{number}") / "jetstream"
    return found


class NodeJetStream:
    """JetStream of one node; all methods are for the loop's thread."""

    def __init__(self, kernel: Kernel, options: Options, account: Callable[[str], Account]) -> None:
        self.kernel = kernel
        self.options = options
        self.lookup = account
        settings = options.jetstream
        self.domain = settings.domain
        self.server_name = options.server_name
        """Shown as the leader of every asset; the node sets it when it makes up a name."""
        self.clustered = False
        """Whether streams are placed by a cluster, which says so before `open`."""
        self.strict = settings.strict
        self.limits = settings.limits
        """What streams and consumers that are made or changed from now on may be."""
        self.holdings = Holdings(options.headwater)
        self.request_queue_limit = settings.request_queue_limit
        self.direct_bytes_max = max(options.max_pending, 1)
        self.direct_turns = DirectTurns(kernel)
        self.transfers = Transfers()
        self.batch_room = BatchRoom(options.headwater.profile == "edge", self.limits.batch)
        self.accounts: dict[str, AccountJetStream] = {}
        self.advisories = Advisories(self.domain)
        self.describe: Callable[[Any, Account, bytes], dict[str, Any]] = lambda *sender: {}
        """Who made a request, by sender, account and what a crossing said: `RequestInfo.client`."""
        self.origin_driver_factory: OriginDriverFactory | None = None
        self.directory = self._directory()
        self.usage = {"memory": Usage("memory"), "file": Usage("file")}
        self.storage: NodeStore | None = None
        self._routes: dict[str, Any] | None = None
        self.make_routes: Callable[[], dict[str, Any]] = routes
        """The handlers of the API; a cluster puts its own around them before `open`."""
        self.api_subjects: tuple[bytes, ...] = (b"$JS.API.>",)
        """What accounts listen on for requests of the API."""
        self.idle_replicas: list[tuple[str, str]] = []
        """Account and name of streams of a cluster that are stored here; this node runs alone."""
        self.on_near: Callable[[Stream], None] = lambda stream: None
        """Called with a mirror that is driven here when it lacks little of its origin."""
        self.on_stored: Callable[[list[Any]], list[Any]] = lambda found: found
        """Given the streams that storage has found; returns those to bring back as they are."""
        self.stream_cluster_info: Callable[[Stream], ClusterInfo] | None = None
        """Says where a stream is, on a node of a cluster."""
        self.consumer_cluster_info: Callable[[Any], ClusterInfo] | None = None
        """The same for a consumer."""
        self.on_consumer_made: Callable[[Any], None] = lambda consumer: None
        """Called with each new consumer that is led here."""
        self.cluster_view: Any = None
        """Facts for monitoring, on a node of a cluster; see `hub.node.cluster_view`."""
        self._resting: dict[str, list[tuple[str, bytes, Any]]] = {}
        """By account that has no JetStream: name, meta and store of the streams it had."""
        self.on_rest: Callable[[str], None] = lambda account: None
        """Called with an account that has no JetStream any more, on a node of a cluster."""
        self.on_wake: Callable[[str], None] = lambda account: None
        """Called with such an account when it has JetStream again."""
        self.served_elsewhere: Callable[[str], Awaitable[bool] | None] = lambda account: None
        """Whether another node of a cluster answers for an account that has no JetStream here;
        None: none does."""
        self._denials: dict[str, Any] = {}
        """Of the accounts that are told that they have no JetStream."""
        self.granted: Callable[[str], AccountJetStreamOptions | None] = self._configured
        """What an account is granted; None when it has no JetStream."""
        self._sweeps: dict[Stream, int] = {}
        self.age_watch: AgeWatch | None = None
        self.saver: Any = None  # saver.Saver of the consumers' progress, made with the first one
        self.progress: Callable[[int, int], None] = lambda done, total: None
        """Called while `open` recovers; see StoreOptions."""
        self.closed = False

    def _configured(self, name: str) -> AccountJetStreamOptions | None:
        found = self.options.accounts.get(name)
        return AccountJetStreamOptions() if found is None else found.jetstream

    def _directory(self) -> Path:
        parent = self.options.jetstream.store_dir
        return Path(parent) / "jetstream" if parent else temporary_directory()

    # --- life ------------------------------------------------------------------------------

    @property
    def window_max_ns(self) -> int:
        """The longest window of deduplication of streams; 0 without a bound."""
        return int(self.limits.duplicate_window * 1e9)

    def resize(self, settings: JetStreamOptions) -> None:
        """Take at most so much; what is stored or was made beyond a lower limit stays."""
        self.limits = settings.limits
        self.batch_room.bound_by(self.limits.batch)
        for js in self.accounts.values():
            for stream in js.streams.values():
                if stream.batches is not None:
                    stream.batches.bound_by(self.limits.batch)
        self.usage["memory"].limit = memory_limit(self.options, settings.max_memory_store)
        self.usage["file"].limit = file_limit(settings.max_file_store, self.directory)
        if self.storage is not None:
            self.storage.memory_usage.limit = self.usage["memory"].limit
            self.storage.file_usage.limit = self.usage["file"].limit

    def _say_limits(self) -> None:
        """In nats-server's words: programs look for the store directory in logs."""
        log.info("  Max Memory:      %s", readable(self.usage["memory"].limit))
        log.info("  Max Storage:     %s", readable(self.usage["file"].limit))
        log.info('  Store Directory: "%s"', self.directory)
        if self.domain:
            log.info("  Domain:          %s", self.domain)
        log.info("  API Level:       %d", API_LEVEL)

    def open(self) -> None:
        """Recover everything that is stored. Raises StoreError with a text for people."""
        if not self.options.jetstream.store_dir and self.directory.parent.name != "nats":
            log.warning(
                "other nodes use the temporary folders before %s: set store_dir to say where "
                "streams belong",
                self.directory,
            )
        self.resize(self.options.jetstream)
        self._say_limits()
        self.storage = NodeStore(self.kernel, self.store_options())
        self.storage.damage.listeners.append(self._on_damage)
        recovered = 0
        streams = self.on_stored(self.storage.open())
        self.age_watch = AgeWatch(
            self.kernel,
            self._timers,
            self.storage.log,
            lambda: stream_states.newest_age(self.store().log, streams),
        )
        for found in streams:
            if stream_lifecycle.group_of(found.meta):
                # A node in a cluster has taken these out: its groups say when they live.
                self._on_replica(found)
                continue
            js = self.account_js(found.account)
            recovered += self._recover(js, found.name, found.meta, found.store)
        self.age_watch.start()
        if recovered:
            log.info("  Restored %d streams", recovered)

    def _recover(self, js: AccountJetStream, name: str, meta: bytes, store: Any) -> bool:
        """Bring one stream back; whether it is served. Whatever is wrong with it, the others and
        the node go on."""
        label = f"{js.name} > {name}"
        try:
            stream_lifecycle.recover(js, meta, store)
        except Exception as error:
            log.error(
                "stream '%s' is kept, and not served: %s; mend that, and start the node again",
                label, error,
            )  # fmt: skip
            stream_lifecycle.abandon(js, name)
            text = f"stream '{label}' is kept but not served: {error}"
            self.store().report(Problem(ProblemKind.UNSERVED, text, label))
            return False
        return True

    def _on_replica(self, found: Any) -> None:
        """A replica of a cluster's stream is stored here, and this node runs alone."""
        if found.account == stream_lifecycle.CLUSTERS_OWN:
            return
        text = (
            f"stream '{found.label}' is kept, and not served: it has replicas on other nodes, and "
            "this node is in no cluster. Start it with its `cluster` block, or put a copy of the "
            "stream elsewhere: `headwater store backup` and `restore`"
        )
        log.error("%s", text)
        self.idle_replicas.append((found.account, found.name))
        self.store().report(Problem(ProblemKind.UNSERVED, text, found.label))

    def store_options(self) -> StoreOptions:
        """How the node stores, by its options."""
        return StoreOptions(
            directory=self.directory.parent,
            segment_bytes=segment_bytes(self.options, self.directory),
            stream_segment_bytes=edge_stream_segment(self.options),
            sync_interval=sync_interval(self.options),
            max_delay=self.options.headwater.commit_max_delay,
            max_store=self.usage["file"].limit,
            max_memory=self.usage["memory"].limit,
            disk_budget=disk_budget(self.options),
            open_pages=open_pages(self.options),
            pack_indexes=self.options.headwater.profile == "edge",
            bundles=self.options.headwater.profile == "edge",
            scrub_rate=self.options.headwater.scrub_rate,
            scrub_pause=self.options.headwater.scrub_pause,
            progress=self.progress,
            numbered_elsewhere=stream_lifecycle.numbered_elsewhere,
            counts_as_memory=stream_lifecycle.is_in_memory,
            keys=key_ring(self.options),
            clock=self.kernel.source(),
            chance=self.kernel.chance,
        )

    def _on_damage(self, store: Any, found: dict[int, str]) -> None:
        """Messages were found damaged: consumers pass over them, and whoever listens is told."""
        for js in self.accounts.values():
            for stream in js.streams.values():
                if stream.store is store:
                    if not any(consumer.halted for consumer in stream.consumers.values()):
                        stream.passed_over()
                    self.advisories.messages_lost(stream, found)

    def restore_quarantined(self, name: str) -> Stream:
        """Put a stream back from quarantine and serve it. Raises StoreError or OSError."""
        storage = self.store()
        item = next((item for item in storage.quarantine.items() if item.name == name), None)
        if item is None or not item.restorable:
            raise StoreError(
                f"'{name}' is no stream in quarantine with a readable meta file; give a whole name "
                "that the list shows as restorable"
            )
        js = self.account_js(item.account)
        if item.stream in js.streams:
            raise StoreError(
                f"a stream '{item.account} > {item.stream}' is there already, so '{name}' stays in "
                "quarantine; back that stream up and delete it first"
            )
        found = storage.restore_quarantined(name)
        try:
            stream = stream_lifecycle.recover(js, found.meta, found.store)
        except Exception as error:
            stream_lifecycle.abandon(js, item.stream)
            raise StoreError(f"'{name}' is kept but cannot be served: {error}") from error
        self.kernel.kick()
        return stream

    def _timers(self) -> list[Any]:
        return [stream.timers for js in self.accounts.values() for stream in js.streams.values()]

    def system_account(self) -> Account:
        """The account that hears of the server itself."""
        return self.lookup(self.options.system_account or SYSTEM_ACCOUNT)

    def account_js(self, name: str) -> AccountJetStream:
        """JetStream of an account by name; made when it is first asked for."""
        found = self.accounts.get(name)
        if found is None:
            account = self.lookup(name)
            found = AccountJetStream(self, account, self.granted(name) or NOTHING_GRANTED)
            self.accounts[name] = found
            account.jetstream = found
        return found

    def enable(
        self, account: Account, limits: AccountJetStreamOptions | None = None
    ) -> AccountJetStream:
        """Serve the JetStream API in an account, with these limits where any are given."""
        denial = self._denials.pop(account.name, None)
        if denial is not None:
            denial.stop()
        found = self.account_js(account.name)
        if limits is not None:
            found.set_limits(limits)
        rested = account.name in self._resting
        for name, meta, store in self._resting.pop(account.name, []):
            self._recover(found, name, meta, store)
        if found.router is None:
            found.router = Router(found, self.routes(), self.domain)
            found.router.listen()
        if rested:
            self.on_wake(account.name)
        return found

    def deny(self, account: Account, *, system: bool = False) -> None:
        """Tell the clients of an account without JetStream so, instead of leaving them waiting.

        What an account has stored while it had JetStream stays on disk, and is not served.
        """
        if account.name in self._denials:
            return
        from headwater.edge.jetstream.api.denial import Denial

        self.withdraw(account)
        denial = Denial(account, self.routes(), self.domain, system)
        denial.elsewhere = lambda: self.served_elsewhere(account.name)
        self._denials[account.name] = denial
        denial.listen()

    def withdraw(self, account: Account) -> None:
        """Say nothing in an account: it has no JetStream here, and asks for it elsewhere."""
        denial = self._denials.pop(account.name, None)
        if denial is not None:
            denial.stop()
        had = self.accounts.get(account.name)
        if had is not None:
            had.silence()
            had.set_limits(NOTHING_GRANTED)

    def rest(self, account: Account) -> None:
        """Let the streams of an account live no more until `enable`. As with nats-server, those in
        memory are gone. Replicated ones are left to `on_rest`."""
        resting = self._resting.setdefault(account.name, [])
        js = self.accounts.get(account.name)
        if js is None:
            return
        for stream in [each for each in js.streams.values() if not each.group]:
            meta = self.store().meta_of(stream.store)
            stream_lifecycle.rest(js, stream, stream_lifecycle.SHUTDOWN)
            if meta is not None:
                resting.append((stream.name, meta, stream.store))
                continue
            log.warning(
                "Account %r has no JetStream any more: its stream %r, which was in memory, is gone",
                js.name, stream.name,
            )  # fmt: skip
            self.store().delete_stream(stream.store)
        self.on_rest(account.name)

    def rests(self, account: str) -> bool:
        """Whether the streams of an account rest."""
        return account in self._resting

    def resting(self) -> list[str]:
        """Accounts whose streams rest, also those that have none."""
        return list(self._resting)

    def leave(self) -> None:
        """Serve nothing any more in a node that goes on; `shutdown` closes what is stored."""
        self._stop_accounts()
        for denial in self._denials.values():
            denial.stop()
        self._denials.clear()
        for js in self.accounts.values():
            js.account.jetstream = None

    async def shutdown(self) -> None:
        """Stop all streams and leave storage so that the next start has little to read."""
        if not self.closed:
            self._stop_accounts()
        if self.storage is not None:
            await self.storage.close()
        if self.saver is not None:
            self.kernel.remove_turn_hook(self.saver)

    def close(self) -> None:
        """Stop at once: what was handed over is synced, the rest is left to recovery."""
        if not self.closed:
            self._stop_accounts()
            if self.storage is not None:
                self.storage.stop_now()

    def _stop_accounts(self) -> None:
        self.closed = True
        if self.age_watch is not None:
            self.age_watch.stop()
        for js in self.accounts.values():
            js.close()

    def routes(self) -> dict[str, Any]:
        """The API's routes, made when the first account listens."""
        if self._routes is None:
            self._routes = self.make_routes()
        return self._routes

    # --- storage ---------------------------------------------------------------------------

    def store(self) -> NodeStore:
        """The node's storage. Raises StoreError before `open`."""
        if self.storage is None:
            raise StoreError("JetStream is not open")
        return self.storage

    def create_store(
        self, account: str, config: StreamConfig, meta: bytes, incarnation: str
    ) -> Any:
        """Storage for a new stream; see `durable`."""
        try:
            return self.store().create_stream(
                account, config.name, meta, config.storage, config.first_seq or 1, incarnation
            )
        except StoreError as error:
            log.error(
                "stream '%s > %s' is not made, since storage does not take it: %s; make it again "
                "when "
                "that is mended",
                account,
                config.name,
                error,
            )
            text = "error creating store for stream"
            raise errors.STREAM_CREATE.error(err=text) from error

    def set_compression(self, stream: Stream) -> None:
        """Compress a stream's messages from now on, or no more, as its configuration says. A
        gateway spares its device unasked: all but streams of a group, which would be in the log
        twice."""
        asked = stream.config.compression == "s2"
        spared = self.options.headwater.profile == "edge" and not stream.group
        self.store().set_compression(stream.store, asked or spared)

    def set_durability(self, stream: Stream) -> None:
        """Acknowledge and sync a stream's messages from now on as its configuration says."""
        storage = self.store()
        if stream.group:
            storage.set_durability(stream.store, Durability(False, APPLIED_SYNC_SECONDS))
            return
        lazy = self.options.jetstream.sync_interval
        try:
            wanted = stream_durability.durability(stream.config, storage.default_durability, lazy)
        except errors.JetStreamError as error:
            log.error(
                "stream '%s' is synced before every ack, and not by an interval: %s; change its "
                "configuration",
                stream.name,
                error,
            )
            wanted = Durability()
        storage.set_durability(stream.store, wanted)

    def set_disk_budget(self, stream: Stream) -> None:
        """Bound what a stream takes on its device as its configuration says. Not in a group: what
        is on one device is no reason to remove something on all."""
        if stream.group:
            return
        try:
            of_gateway = self.options.headwater.profile == "edge"
            share = self._share(stream) if of_gateway else 0
            stream_budget.apply(stream, self.store().disk, share)
        except errors.JetStreamError as error:
            log.error(
                "stream '%s' has no disk budget: %s; only its limits bound it: change its "
                "configuration",
                stream.name,
                error,
            )

    def _share(self, stream: Stream) -> int:
        """Bytes of a gateway's device for a stream that has a bound and no budget of its own: the
        streams' bounds together are no more than `max_file`, and leave room for the log."""
        promised, limit = stream_budget.promised(stream.config), self.usage["file"].limit
        storage = self.store()
        room = storage.disk.allocation.budget - LOG_SEGMENTS * storage.options.segment_bytes
        return promised * room // limit if 0 < room < limit else promised

    def update_meta(self, stream: Stream, meta: bytes) -> None:
        """Keep a stream's new description; see `durable`."""
        try:
            self.store().update_meta(stream.store, meta)
        except StoreError as error:
            raise errors.STREAM_UPDATE.error(err=error) from error

    def delete_store(self, stream: Stream) -> Awaitable[None] | None:
        """Remove a stream's data for good; the awaitable is done when that is durable, and on a
        full device when there is the room that it leaves."""
        self.store().delete_stream(stream.store)
        durable = self.durable(stream)
        if durable is not None and isinstance(self.store().log.failure, StoreFull):
            return self.store().leaving.freed(durable, stream.store.incarnation)
        return durable

    def durable(self, stream: Stream) -> Awaitable[None] | None:
        """Done when what was done to a stream so far is durable; None for a memory stream."""
        if stream.replicator is not None:
            return self._committed(stream)
        if stream.config.storage != "file":
            return None
        commit_log = self.store().log
        return Later(commit_log.wait_durable, commit_log.hand_over())

    def _committed(self, stream: Stream) -> Awaitable[None]:
        """Done when what was decided on a stream so far is committed by its group."""
        group = stream.replicator
        return Later(group.wait_durable, group.hand_over())

    def check_removable(self, stream: Stream) -> None:
        """Raise JetStreamError when the log has no file that a removal could be written to."""
        if stream.config.storage == "file" and isinstance(self.store().log.failure, NoLogFile):
            raise errors.INSUFFICIENT_RESOURCES.error()

    def kept(self, stream: Stream) -> Awaitable[None] | None:
        """Done when what was done to a stream's messages is as safe as an acknowledged message."""
        if stream.replicator is not None:
            return self._committed(stream)
        if stream.config.storage != "file":
            return None
        commit_log = self.store().log
        early = stream.store.acks_written
        return Later(commit_log.wait_durable, commit_log.hand_over(early), early)

    def erased(self, stream: Stream) -> Awaitable[None] | None:
        """Done when what was to be erased of a stream is overwritten, in a group on this node; None
        for a memory stream."""
        if stream.replicator is not None:
            return self._erased_here(stream)
        if stream.config.storage != "file":
            return None
        self.store().log.hand_over()
        return self.store().eraser.wait()

    async def _erased_here(self, stream: Stream) -> None:
        await self._committed(stream)
        self.store().log.hand_over()
        await self.store().eraser.wait()

    # --- retention -------------------------------------------------------------------------

    def sweep(self, stream: Stream) -> None:
        """Drop, a slice per turn, what no consumer of an interest stream needs any more."""
        idle = not self._sweeps
        self._sweeps[stream] = stream.store.first_seq
        if idle:
            self.kernel.loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        for stream, at in list(self._sweeps.items()):
            following = 0 if stream.deleted else stream.sweep_some(at, SWEEP_SLICE)
            if following:
                self._sweeps[stream] = following
            else:
                del self._sweeps[stream]
        if self._sweeps:
            self.kernel.loop.call_soon(self._sweep)
        self.kernel.turn()

    # --- numbers ---------------------------------------------------------------------------

    def cluster_info(self) -> ClusterInfo | None:
        """Where an asset lives: on this node alone."""
        if not self.server_name:
            return None
        return ClusterInfo(name=self.options.cluster.name, leader=self.server_name)

    def info(self) -> dict[str, Any]:
        """Totals in the form of `/jsz`."""
        streams = [stream for js in self.accounts.values() for stream in js.streams.values()]
        return {
            "memory": self.usage["memory"].used,
            "storage": self.usage["file"].used,
            "reserved_memory": self.usage["memory"].reserved,
            "reserved_storage": self.usage["file"].reserved,
            "accounts": len(self.accounts),
            "ha_assets": 0,
            "api": {
                "level": API_LEVEL,
                "total": sum(js.api.total for js in self.accounts.values()),
                "errors": sum(js.api.errors for js in self.accounts.values()),
            },
            "streams": len(streams),
            "consumers": sum(len(stream.consumers) for stream in streams),
            "messages": sum(stream.store.messages for stream in streams),
            "bytes": sum(stream.store.bytes for stream in streams),
            "config": {
                "max_memory": self.usage["memory"].limit,
                "max_storage": self.usage["file"].limit,
                "store_dir": str(self.directory),
                "sync_interval": int(self.options.jetstream.sync_interval * 1e9),
                "domain": self.domain,
            },
        }


def sync_interval(options: Options) -> float:
    """Seconds between syncs; 0 syncs before every acknowledgement.

    The `jetstream` block decides when it says anything about syncing, else `headwater.durability`.
    """
    settings = options.jetstream
    if settings.sync_always:
        return 0.0
    if settings.sync_is_set:
        return max(settings.sync_interval, 0.0)
    return 0.0 if options.headwater.durability == "fsync" else settings.sync_interval


def segment_bytes(options: Options, directory: Path) -> int:
    """Size of a commit-log segment: small alone, larger in a cluster, and never more than a small
    share of the device, since a handful of them is always taken."""
    if options.headwater.commit_segment_bytes:
        return options.headwater.commit_segment_bytes
    if options.headwater.profile == "edge":
        return edge_segment_bytes(options)
    size = CLUSTER_SEGMENT_BYTES if options.cluster.port else DEFAULT_SEGMENT_BYTES
    device = device_bytes(directory)
    if options.headwater.disk_budget:
        device = min(device, options.headwater.disk_budget)
    while size > DEVICE_SEGMENT_MIN and size * DEVICE_SEGMENTS > device:
        size //= 2
    return size


def edge_segment_bytes(options: Options) -> int:
    """Size of a commit-log segment of a gateway: each that is checkpointed costs some pages of the
    device, and a small store has no room for large ones."""
    limit = options.headwater.disk_budget or options.jetstream.max_file_store
    return EDGE_SEGMENT_SMALL if 0 < limit < EDGE_SMALL_LIMIT else EDGE_SEGMENT_BYTES


def edge_stream_segment(options: Options) -> int:
    """Bytes of a stream's segment on a gateway with room: two of the log's, since an index says
    each subject once for each segment. 0: as the log's."""
    limit = options.headwater.disk_budget or options.jetstream.max_file_store
    if options.headwater.profile != "edge" or 0 < limit < 2 * EDGE_SMALL_LIMIT:
        return 0
    return 2 * (options.headwater.commit_segment_bytes or EDGE_SEGMENT_BYTES)


def disk_budget(options: Options) -> int:
    """Bytes that the store may take on its device; 0 is any number. A gateway that says its
    `max_file` alone has a tenth more for everything besides messages."""
    budget, limit = options.headwater.disk_budget, options.jetstream.max_file_store
    if budget or limit <= 0 or options.headwater.profile != "edge":
        return budget
    least = least_budget(options.headwater.commit_segment_bytes or edge_segment_bytes(options))
    return max(limit + limit // 10, least)


def open_pages(options: Options) -> int:
    """Pages of a stream's index that stay open."""
    return EDGE_OPEN_PAGES if options.headwater.profile == "edge" else DEFAULT_OPEN_PAGES


def memory_limit(options: Options, wanted: int) -> int:
    """Bytes that memory streams may hold; -1 chooses by the machine, and little on a gateway."""
    if wanted >= 0:
        return wanted
    if options.headwater.profile == "edge":
        return EDGE_MEMORY_BYTES
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return UNKNOWN_LIMIT
    # Where a sandbox refuses sysinfo(2), the C library answers with any number.
    return int(memory * MEMORY_SHARE) if 0 < memory < MOST_MEMORY else UNKNOWN_LIMIT


def file_limit(wanted: int, directory: Path) -> int:
    """Bytes that file streams may hold; -1 chooses by what the device has for the store, which is
    what is free and what the store takes already."""
    if wanted >= 0:
        return wanted
    there = next(path for path in [directory, *directory.parents] if path.exists())
    try:
        space = os.statvfs(there)
    except OSError:
        return UNKNOWN_LIMIT
    room = space.f_bavail * space.f_frsize + tree_bytes(directory)
    return int(room * FILE_SHARE)


def readable(size: int) -> str:
    """Bytes as nats-server writes them: 1.00 KB are 1,024."""
    value, units = float(size), ["B", "KB", "MB", "GB", "TB", "PB", "EB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.2f} {units[0]}" if size >= 1024 else f"{size} B"
