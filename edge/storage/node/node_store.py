"""All stored data of one node: opens the directory, recovers, makes and removes streams.

File-backed streams share one commit log; each has its directory of segments. Messages of
memory streams are not on disk.
"""

import asyncio
import errno
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.files import is_twin
from headwater.edge.ports.nameless import can_map
from headwater.edge.storage.device.background import Background
from headwater.edge.storage.directory.directory import (
    BUNDLES_FORMAT,
    ENTRIES_FORMAT,
    STEMS_FORMAT,
    StoreDirectory,
)
from headwater.edge.storage.directory.disk_budget import DiskBudget
from headwater.edge.storage.directory.entry_keys import ENTRIES_OWNER, EntryKeys
from headwater.edge.storage.directory.leaving import Leaving
from headwater.edge.storage.directory.metas import Metas, encode_meta
from headwater.edge.storage.directory.packers import (
    Packers,
    list_dictionary,
    sealed_meta,
)
from headwater.edge.storage.directory.quarantine import Quarantine
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.erase.eraser import Eraser
from headwater.edge.storage.format.durability import Durability
from headwater.edge.storage.format.errors import StoreClosed, StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.index.page_spill import PageSpill
from headwater.edge.storage.index.store import MessageStore, Usage
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.log.log_files import SLOT_MIN, LogFiles
from headwater.edge.storage.log.log_restart import LogRestart
from headwater.edge.storage.node.descriptions import Descriptions
from headwater.edge.storage.node.found_streams import FoundStreams
from headwater.edge.storage.node.leftovers import Leftovers
from headwater.edge.storage.node.spare_memory import SpareMemory
from headwater.edge.storage.node.stream_opener import StreamOpener
from headwater.edge.storage.packing.packing import Packer
from headwater.edge.storage.recovery.log_recovery import LogRecovery, seed_of
from headwater.edge.storage.recovery.put_back import put_back_tail
from headwater.edge.storage.recovery.restore import restore_ends
from headwater.edge.storage.recovery.state_copy import StateCopy, position_of
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.segments.damage_report import DamageReport
from headwater.edge.storage.segments.dead_space import let_dead_go
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.index_writing import write_indexes
from headwater.edge.storage.segments.loss import keep_sizes
from headwater.edge.storage.segments.manifest import Manifest
from headwater.edge.storage.segments.manifests import Manifests
from headwater.edge.storage.segments.reservations import SequenceReservations
from headwater.edge.storage.segments.segment_files import OpenFiles
from headwater.edge.storage.segments.segment_jobs import remove_segments
from headwater.edge.storage.upkeep.checkpoint import Checkpointer
from headwater.edge.storage.upkeep.compact import Compactor
from headwater.edge.storage.upkeep.repack import Repacker
from headwater.edge.storage.upkeep.scrubber import Scrubber

SEGMENT_BYTES_MIN = 64 << 10
SEGMENT_BYTES_MAX = 1 << 30
# A clean stop that cannot finish moving messages in this time leaves them to the next start.
CLOSE_SECONDS = 20.0
# Attempts to move the messages of one log segment, at a clean stop; a second one lies between two.
CLOSE_TRIES = 3
# Log segments beyond the kept ones that may wait for checkpointing while `keep_up` returns.
KEEP_UP_SEGMENTS = 3
# Read buffers that were not used between two of these checks are given back.
HOUSEKEEPING_SECONDS = 30.0
# After so long a store of an earlier format gets bundles with stems, which older programs cannot
# read: an upgrade that fails has been taken back by then.
BUNDLES_AFTER = 3600.0

# A start needs a slot of the log, of this size at least, and some for its lists.
ROOM_HINT = f"; free {2 * SLOT_MIN >> 10} KiB or more on its device and start again: all is kept"

log = logging.getLogger("headwater.storage")


class NodeStore:
    """See the module. `open`, then use, then `await close()`."""

    def __init__(self, kernel: Kernel, options: StoreOptions) -> None:
        if not SEGMENT_BYTES_MIN <= options.segment_bytes <= SEGMENT_BYTES_MAX:
            raise StoreError(
                f"segment size must be {SEGMENT_BYTES_MIN} to {SEGMENT_BYTES_MAX} bytes"
            )
        self.kernel = kernel
        self.options = options
        self.directory = StoreDirectory(options.directory, options.clock, options.chance)
        self.file_usage = Usage()
        self.file_usage.limit = options.max_store
        self.memory_usage = Usage()
        self.memory_usage.limit = options.max_memory
        self.disk = DiskBudget(
            self.directory.root,
            options.disk_budget,
            options.segment_bytes,
            options.stream_segment_bytes,
        )
        self.problems: list[Problem] = []
        """What this start found wrong, and what was added since by `report`."""
        self.unserved = 0
        self.clean_start = True
        self.found_batch = 0
        """Number of the newest batch of the log that the start has found."""
        self.recovery: dict[str, float] = {}
        """How long the start took, and what it read (see `numbers`)."""
        self.making = False
        """While set, streams that are made count only once `finish_stream` was called; a start
        removes those for which it was not."""
        self.metas = Metas(self.directory)
        self.descriptions = Descriptions(self.metas)
        self.state_copy = StateCopy(self.directory.root)
        self.packers = Packers(self.directory, options.keys)
        self.entry_keys = EntryKeys(self.directory, self.packers)
        self.quarantine = Quarantine(self.directory.root)
        self.damage = DamageReport(kernel.loop, self.descriptions.label)
        self.damage.on_logged = lambda store: keep_sizes(self.log, store)
        self._leftovers = Leftovers(kernel)
        self._files = OpenFiles()
        self._spill: PageSpill | None = None
        self._stores: dict[str, MessageStore] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._clean = False
        self._fresh = False

    # Start and stop.

    def open(self) -> list[RecoveredStream]:
        """Recover everything, and measure it; see `_recover`."""
        clock = self.directory.clock
        began = clock.monotonic_ns()
        found = self._recover()
        self.recovery["recovery_seconds"] = round((clock.monotonic_ns() - began) / 1e9, 6)
        self.recovery["recovery_streams"] = len(found)
        return found

    def _recover(self) -> list[RecoveredStream]:
        """Recover everything; returns the file-backed streams that were found.

        Raises StoreLocked, FormatError or StoreError when the directory cannot be used at all.
        """
        self.directory.open()
        try:
            self.disk.open()
            self.packers.check(self.entry_keys.content)
            return self._open()
        except OSError as error:
            self._give_up()
            what = ROOM_HINT if error.errno == errno.ENOSPC else ""
            raise StoreError(f"cannot use {self.directory.root}: {error}{what}") from error
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        self.disk.close()
        self.directory.close()

    def _make_parts(self) -> None:
        """Everything that works on the log and the streams, connected."""
        on_device = not is_twin(self.directory.root)
        self.background = Background(self.kernel.loop, on_device)
        if on_device and self.options.keys is None and can_map():
            self._spill = PageSpill(self.directory.trash, self.options.index_memory)
        files = LogFiles(self.directory.log, self.options.segment_bytes, self.disk.allocation)
        self.log = CommitLog(
            self.kernel,
            files,
            seed_of(self.directory.node_id),
            self.directory.node_id,
        )
        self.restart = LogRestart(self.log)
        self.restart.on_dead_weight = partial(let_dead_go, self.log)
        self.manifests = Manifests(self.log, self.descriptions.identities)
        self.reservations = SequenceReservations(self.log)
        self.checkpointer = Checkpointer(self.log, self.background)
        self.checkpointer.on_copied = self._put_manifests
        self.checkpointer.on_write = self.metas.flush
        self.checkpointer.on_done = SpareMemory(self.log).segment_done
        self.compactor = Compactor(self.log, self.background)
        self.compactor.on_gone = self._put_manifest
        self.eraser = Eraser(self.log, self.background, self.checkpointer)
        self.leaving = Leaving(self.log, self.directory, self.background)
        self.leaving.on_room = self.restart.look_for_room
        self.repacker = Repacker(self, self.descriptions.identities)
        self.scrubber = Scrubber(self, self.options.scrub_rate, self.options.scrub_pause)
        self.log.on_checkpoint = self.checkpointer.wake
        try:
            self.log.progress.watermarks.open(self.directory.root, self.log.seed)
        except OSError as error:
            log.warning(
                "the file tidemarks of %s cannot be used (%s): what a damaged end of the log takes "
                "is not named",
                self.directory.root,
                error,
            )
            self.log.progress.watermarks.close()

    def _open(self) -> list[RecoveredStream]:
        """The steps of a start, in their order: `find` says which segments of the log count,
        `open_all` reads each stream from its own segments, and `replay` puts the log over them.
        Only then the log goes on, and what is lost is written behind what was read."""
        self.directory.empty_trash()
        clean = self.directory.consume_clean_stop()
        fresh = not any(self.directory.log.iterdir()) and not any(self.directory.streams.iterdir())
        self.clean_start = clean is not None or fresh
        self._clean = clean is not None
        self._fresh = fresh
        self._make_parts()
        self.entry_keys.open(self.problems)
        self._use_entry_keys()
        recovery = LogRecovery(self.log, self.directory)
        recovery.copied = self.state_copy.read(self.problems)
        recovery.find(clean, not fresh)
        self.metas.load(self.log, recovery.metas, not recovery.problems)
        self.packers.check_metas([partial(bytes, content) for content in self.metas.contents()])
        opener = self._opener = StreamOpener(
            self.log, self.directory, self.metas, self.packers, self._make_file_store, self._forget
        )
        opener.begin(recovery, self.recovery, self.options.progress)
        streams = FoundStreams(
            opener.open_all(self.problems), self.log, self.options, self.problems
        )
        for stream in streams.found:
            self._register(stream)
        streams.watch(recovery)
        recovery.replay()
        self.problems += self.directory.problems + recovery.problems
        streams.advance(recovery, self._remove_deleted)
        self._start_log(recovery)
        self.eraser.resume(opener.erases_left, recovery.erase_done)
        streams.restore_lost()
        self.metas.start(self.background)
        self.problems += self.state_copy.start(self.log, self.background, recovery.touched)
        self._report_vanished()
        for store in streams.unwanted():
            self.delete_stream(store)
        reservations = None if self._clean else self.reservations
        streams.go_on(recovery.skip, recovery.exact, reservations, self.set_durability)
        self._accept_slots_later()
        try:
            self.log.files.top_up()
        except OSError as error:
            self.log.no_room(error)
        self.checkpointer.wake()
        now = self.directory.clock.wall_ns()
        self.problems = [problem.found(now) for problem in self.problems]
        for problem in self.problems:
            log.warning("%s", problem)
        self._timer = self.kernel.loop.call_later(HOUSEKEEPING_SECONDS, self._housekeeping)
        self.scrubber.start()
        self.directory.mark_boot()
        self.repacker.resume()
        return streams.served()

    def expect_entries(self) -> None:
        """There are to be entries of replicated streams: they are sealed when there is a key to
        seal with, and older programs refuse the store. Raises StoreError, OSError, SealingError."""
        self.directory.raise_format(ENTRIES_FORMAT)
        if self.entry_keys.begin(self._fresh):
            self._use_entry_keys()
            self.repacker.resume_entries()

    def _use_entry_keys(self) -> None:
        if self.entry_keys.packer is not None:
            self.log.table.packers[ENTRIES_OWNER] = self.entry_keys.packer

    def _start_log(self, recovery: LogRecovery) -> None:
        """Go on in a new segment behind what was found, in memory where there is no room."""
        slot, full = self.restart.first_slot()
        self.found_batch = recovery.batch - 1
        self.log.start(
            slot,
            recovery.batch,
            recovery.chain,
            recovery.next_number,
            recovery.number,
            recovery.end,
        )
        if full is None:
            self.log.active.write_header()
            self._begin_bundles()
        else:
            self.restart.wait_for_file(full)

    def _begin_bundles(self) -> None:
        """Have gathered messages share headers, and what their subjects begin with. An older
        program may have to take this store over again when an upgrade fails. So one that is not
        new waits with what its format does not have."""
        if not self.options.bundles:
            return
        self.log.bundles = self.directory.format >= BUNDLES_FORMAT
        if self._fresh or self.directory.format >= STEMS_FORMAT:
            self._write_bundles()
        else:
            self.kernel.loop.call_later(BUNDLES_AFTER, self._write_bundles)

    def _write_bundles(self) -> None:
        """Write bundles with stems from now on, and have older programs refuse the store."""
        if self._closed:
            return
        try:
            self.directory.raise_format(STEMS_FORMAT)
        except OSError as error:
            log.warning(
                "the file HEADWATER in %s cannot be written (%s): until the next start, gathered "
                "messages take more room in the log",
                self.directory.root,
                error,
            )
            return
        self.log.bundles = self.log.stems = True

    def _accept_slots_later(self) -> None:
        """What is missing is expected no more once what was said of it is durable."""
        if self.problems:
            lsn = self.log.hand_over()
            self.log.when_durable(lsn, self._accept_slots)
        else:
            self._accept_slots()

    def _accept_slots(self) -> None:
        """Write down which files the log has from now on."""
        try:
            self.log.files.accept()
        except OSError as error:
            log.warning(
                "the list of log slots beside %s cannot be written (%s): the next start lists "
                "them anew, and reports that",
                self.directory.log,
                error,
            )

    def _register(self, stream: RecoveredStream) -> None:
        """A stream was opened: the node has it from now on."""
        incarnation = stream.incarnation
        self.descriptions.add(incarnation, dict(stream.identity), stream.meta)
        self._stores[incarnation] = stream.store

    def _remove_deleted(self, store: FileStore) -> None:
        """The log says that a stream was deleted, and its files are still there."""
        self.metas.forget(store.incarnation)
        self._forget(store)
        self._trash(store)

    def _put_manifests(self, stores: list[FileStore]) -> None:
        """A log segment was checkpointed: write to the log how far the segments of these streams
        are."""
        self.eraser.put_again()
        self.leaving.put_again()
        self.manifests.put(stores)
        self.state_copy.wake()

    def _put_manifest(self, store: FileStore) -> int:
        """A segment's messages were taken over by another: write that down; returns the lsn."""
        self.manifests.put([store])
        return int(self.log.hand_over())

    def _report_vanished(self) -> None:
        """Streams that the log knows and nobody removed, but that cannot be served."""
        for incarnation, manifest in self.manifests.others(self._stores):
            self.unserved += 1
            path = self.directory.streams / incarnation
            text = (
                f"stream '{manifest.label}' is not served: its directory {path} is missing or "
                "was put aside"
            )
            problem = Problem(ProblemKind.UNSERVED, text, manifest.label, str(path))
            self.problems.append(problem)
            self.manifests.drop(incarnation)

    def _make_file_store(
        self, packer: Packer, incarnation: str, path: Path, meta: bytes
    ) -> FileStore:
        stream_id = packer.stream
        if stream_id in self.log.stores:
            raise StoreError(f"two streams have the id {stream_id:x}")
        store = FileStore(
            self.log,
            packer,
            incarnation,
            path,
            self._files,
            self.file_usage,
            self.disk.stream_segment,
        )
        if self.options.counts_as_memory(meta):
            store.count_as_memory()
        store.open_least = store.open_wanted = self.options.open_pages
        if self._spill is not None:
            store.spill = self._spill
        store.packs_index = self.options.pack_indexes
        store.failure = self.log.failure
        store.on_trim = self._trim
        store.on_compact = self.compactor.add
        store.on_damage = self.damage.report
        store.on_erase = self.repacker.before_erase
        self.log.stores[stream_id] = store
        self.log.table.packers[incarnation.encode()] = packer
        return store

    async def close(self) -> None:
        """Stop cleanly: everything moves to segments with indexes, so that the next start reads
        almost nothing. Falls back on the log when that takes too long or fails."""
        if self._closed:
            return
        self._closed = True
        for store in self._stores.values():
            if not isinstance(store, FileStore):
                store.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._checkpoint_all()
        except (TimeoutError, StoreError, OSError) as error:
            log.warning(
                "messages stay in the log of %s at this stop (%r): the next start reads them there",
                self.directory.root,
                error,
            )
        self._finish(clean=self.log.failure is None)

    async def _checkpoint_all(self) -> None:
        """Move everything that lives in the log to segments. Raises StoreError."""
        if self.log.failure is not None:
            raise self.log.failure
        await self.metas.flush_all(partial(asyncio.sleep, 0.001))
        await self.log.wait_durable(self.log.hand_over())
        await self.eraser.wait()
        self.log.begin_next()
        # States are put again at the tail: what is written from now on stays.
        last = self.log.active.number
        self.checkpointer.before = last
        self.checkpointer.failures = 0
        self.repacker.stopped = True
        self.checkpointer.wake()
        while self.log.live[0].number < last or self.checkpointer.step != "idle":
            if self.log.failure is not None:
                raise self.log.failure
            if self.checkpointer.failures >= CLOSE_TRIES:
                raise StoreError("storage takes nothing, as the log says above")
            lsn = self.log.durable_lsn
            await asyncio.sleep(0)
            if self.log.durable_lsn == lsn:
                await asyncio.sleep(0.001)
            self.kernel.turn()

    async def keep_up(self) -> None:
        """Return once everything is durable and the log has room again: whoever appends without
        clients that wait for acks calls this every few MiB. Raises StoreError."""
        await self.log.wait_durable(self.log.hand_over())
        self.kernel.turn()
        most = self.log.keep + KEEP_UP_SEGMENTS
        while len(self.log.live) > most + 2 * self.log.table.bytes // self.log.segment_bytes:
            if self.log.failure is not None:
                raise self.log.failure
            await asyncio.sleep(0.001)
            self.kernel.turn()

    def stop_now(self) -> None:
        """Stop as after a crash, but without losing what was handed over; blocks shortly."""
        if not self._closed:
            self._closed = True
            self._finish(clean=False)

    def _finish(self, clean: bool) -> None:
        """End all work, write and sync what is queued, and, if the stop is `clean`, say so last."""
        if self._timer is not None:
            self._timer.cancel()
        self.scrubber.stop()
        self.damage.stop()
        self.eraser.stopped = self.repacker.stopped = True
        self.checkpointer.stopped = self.compactor.stopped = True
        self.log.finish_now()
        self.log.progress.watermarks.close(clean)
        self.background.close()
        self.eraser.close_files()
        if clean:
            try:
                write_indexes(self._stores.values(), self.log.progress.position()["segment"])
                self.state_copy.write_last(position_of(self.log.progress.position()))
                self.directory.record_clean_stop(self.log.progress.position())
            except OSError as error:
                log.warning(
                    "the clean-stop record of %s cannot be written (%s): the next start is like "
                    "one after a crash, and loses nothing",
                    self.directory.root,
                    error,
                )
        for store in list(self._stores.values()):
            store.close()
        self._files.close()
        self.log.close_files()
        self._give_up()

    def _housekeeping(self) -> None:
        for store in self._stores.values():
            if isinstance(store, FileStore):
                store.window.drop_unused()
        if self._spill is not None:
            self._spill.rest()
        if self.log.files.ballast.there:
            self.disk.allocation.tighten()
        self._timer = self.kernel.loop.call_later(HOUSEKEEPING_SECONDS, self._housekeeping)

    # Streams.

    def create_stream(
        self,
        account: str,
        name: str,
        meta: bytes,
        storage: str = "file",
        first_seq: int = 1,
        incarnation: str = "",
    ) -> MessageStore:
        """A new store; `storage` is "file" or "memory". A file-backed one is durable when what the
        log has now is. `incarnation` (hex) is made up when empty. Raises StoreError."""
        if self._closed:
            raise StoreClosed("the node's store is closed")
        incarnation = incarnation or self.directory.make_id().hex()
        if incarnation in self._stores:
            raise StoreError(f"incarnation {incarnation} exists already")
        if storage == "memory":
            memory = MemoryStore(self.kernel, self.memory_usage)
            memory.incarnation = incarnation
            self._stores[incarnation] = memory
            if first_seq > 1:
                memory.purge(None, first_seq)
            return memory
        if self.log.failure is not None:
            raise self.log.failure.with_traceback(None)
        path = self.directory.streams / incarnation
        stream_id = int.from_bytes(self.directory.make_id()[:8], "big") >> 1 | 1
        identity: dict[str, Any] = {
            "id": f"{stream_id:x}",
            "incarnation": incarnation,
            "account": account,
            "name": name,
        }
        if self.making:
            identity["unfinished"] = True
        packer = self.packers.open(identity)
        self.metas.put(incarnation, encode_meta(identity, sealed_meta(packer, meta)), True)
        store = self._make_file_store(packer, incarnation, path, meta)
        self._stores[incarnation] = store
        self.descriptions.add(incarnation, identity, meta)
        self.log.progress.watermarks.add(store)
        self.set_durability(store)
        if first_seq > 1:
            store.purge(None, first_seq)
        try:
            self.manifests.begin(incarnation, Manifest(account, name))
        except StoreError as error:
            log.warning(
                "the manifest of stream '%s > %s' cannot be written (%s): the next checkpoint "
                "writes it",
                account,
                name,
                error,
            )
        return store

    def update_meta(self, store: MessageStore, meta: bytes) -> None:
        """Replace a stream's meta; durable when what the log has now is. Raises StoreError."""
        if isinstance(store, FileStore):
            self.descriptions.update(store, meta)

    def finish_stream(self, store: FileStore, replaced: FileStore | None = None) -> None:
        """A stream made while `making` was set is whole and durable: it counts from now on, and
        `replaced` goes away, both in one step. Raises OSError, and then nothing has changed."""
        self.descriptions.finish(store, replaced)
        if replaced is not None:
            self.delete_stream(replaced)

    def finish_in_log(self, store: FileStore) -> None:
        """The same of a stream that replaces none, and without waiting for a file: it counts when
        what the log has now is durable. Raises StoreError, and then nothing has changed."""
        self.descriptions.finish_in_log(store)

    def rewrite_meta(self, store: FileStore, always: bool = False) -> bool:
        """Write a stream's meta again; if not `always`, when a copy is damaged or missing."""
        return self.descriptions.rewrite(store, always)

    def stores(self) -> list[MessageStore]:
        """Every store that is open."""
        return list(self._stores.values())

    def meta_of(self, store: MessageStore) -> bytes | None:
        """The meta stored last; None for memory streams."""
        return self.descriptions.meta_of(store)

    @property
    def default_durability(self) -> Durability:
        """That of file-backed streams that say nothing themselves."""
        interval = self.options.sync_interval
        return Durability(interval > 0, interval or self.options.max_delay)

    def set_durability(self, store: MessageStore, wanted: Durability | None = None) -> None:
        """When what is stored in a file-backed stream from now on is acknowledged, and how long its
        sync may wait; None takes the default. What is there already is synced soon."""
        if not isinstance(store, FileStore):
            return
        wanted = wanted or self.default_durability
        before = (store.acks_written, store.sync_delay_ns)
        store.acks_written = wanted.interval
        store.sync_delay_ns = wanted.delay_ns
        # A stream that takes its sequences from another one has none to give out.
        numbered = self.options.numbered_elsewhere(self.descriptions.meta_of(store) or b"")
        self.reservations.need(store, wanted.interval and not numbered)
        if before != (wanted.interval, wanted.delay_ns):
            self.log.hurry(self.log.hand_over())

    def set_compression(self, store: MessageStore, on: bool) -> None:
        """Whether what is appended to a file-backed stream from now on is compressed."""
        if isinstance(store, FileStore) and store.packer.compress != on:
            store.packer.set_compression(on, lambda samples: self._train(store, samples))

    def _train(self, store: FileStore, samples: list[bytes]) -> None:
        """There are enough messages to make a stream's dictionary from."""
        known = self.descriptions.identities[store.incarnation].get("dictionaries", [])
        number, last = max(known, default=0) + 1, store.last_seq + 1

        def save_number(content: bytes) -> None:
            identity = self.descriptions.identities[store.incarnation]
            list_dictionary(identity, number, content)
            identity["sampled"], identity["erased"] = last, 0
            self.update_meta(store, self.meta_of(store) or b"")

        self.metas.flush()
        self.packers.train(store, samples, self.background, number, save_number)

    def delete_stream(self, store: MessageStore) -> None:
        """Remove a stream and the states whose owner is its incarnation. The files go away once
        the tombstone is durable."""
        self._leftovers.add(store)
        if not isinstance(store, FileStore):
            self._stores.pop(store.incarnation, None)
            store.close()
            with suppress(StoreError):
                self._delete_states(store)
            return
        self._delete_states(store)
        self.manifests.drop(store.incarnation)
        self.metas.forget(store.incarnation)
        lsn = self.leaving.write(store.stream_id, store.incarnation)
        self._forget(store)
        self.log.when_durable(lsn, lambda: self._trash(store))

    def _delete_states(self, store: MessageStore) -> None:
        owner = store.incarnation.encode()
        for key in self.log.table.keys(owner):
            self.log.delete_state(owner, key)

    def _forget(self, store: FileStore) -> None:
        store.close()
        self.log.stores.pop(store.stream_id, None)
        self.reservations.forget(store)
        self.log.progress.watermarks.drop(store)
        self.log.table.packers.pop(store.incarnation.encode(), None)
        self.file_usage.bytes -= store.bytes
        self._stores.pop(store.incarnation, None)
        self.descriptions.forget(store.incarnation)

    def _trash(self, store: FileStore) -> None:
        for segment in store.segments:
            self._files.forget(segment.path)
        self.leaving.remove(store.stream_id, store.incarnation)

    def _trim(self, paths: list[Path]) -> None:
        self.background.submit(lambda: remove_segments(paths), self.leaving.given_back)

    def restore_quarantined(self, name: str) -> RecoveredStream:
        """Put a stream back from quarantine and open it. Raises StoreError or OSError; it is in
        quarantine again then."""
        if self._closed:
            raise StoreClosed("the node's store is closed")
        path = self.directory.streams / self.quarantine.restore(name)
        problems: list[Problem] = []
        try:
            stream = self._opener.open(path, problems)
        except Exception as error:
            self.directory.put_aside(path, f"it could not be opened: {error!r}")
            raise StoreError(f"'{name}' cannot be opened: {error}") from error
        for problem in problems:
            self.report(problem)
        if stream is None or stream.recovery is None:
            why = "; ".join(map(str, problems))
            raise StoreError(f"'{name}' cannot be opened: {why}")
        self._register(stream)
        stream.recovery.finish(0)
        stream.recovery = None
        store = stream.store
        restore_ends(store, 0, store.last_seq, 0)
        store.first_log_segment = self.log.active.number
        self.set_durability(store)
        self.log.progress.watermarks.add(store)
        put_back_tail(store, self.quarantine)
        store.log_lost()
        for problem in stream.listed_problems():
            self.report(problem)
        manifest = Manifest(stream.account, stream.name, first_log_segment=store.first_log_segment)
        self.manifests.begin(store.incarnation, manifest)
        self.manifests.put([store])
        return stream

    def account_of(self, store: MessageStore) -> str:
        """The account of a file-backed stream."""
        return self.descriptions.account_of(store)

    def report(self, problem: Problem) -> None:
        """List what was found wrong after the start."""
        self.problems.append(problem.found(self.directory.clock.wall_ns()))

    def problem_counts(self) -> dict[str, int]:
        """How many problems there are of each kind."""
        return {kind: sum(each.kind == kind for each in self.problems) for kind in ProblemKind}

    def label(self, store: MessageStore) -> str:
        """Account and name of a stream, for people."""
        return self.descriptions.label(store)

    # Numbers.

    @property
    def store_bytes(self) -> int:
        """Bytes that file-backed messages count."""
        return int(self.file_usage.bytes)

    @property
    def memory_bytes(self) -> int:
        """Bytes that messages in memory count."""
        return int(self.memory_usage.bytes)

    @property
    def quarantined(self) -> int:
        """How many things are in quarantine."""
        return len(self.quarantine.names())

    @property
    def lost(self) -> int:
        """Messages known to be damaged."""
        return sum(len(store.lost) for store in self._stores.values())

    def numbers(self) -> dict[str, float]:
        """Counters for monitoring."""
        return {
            **self.log.numbers(),
            **self.recovery,
            "store_bytes": self.store_bytes,
            "memory_bytes": self.memory_bytes,
            "lost": self.lost,
            "found_damaged": self.damage.found,
            "quarantined": self.quarantined,
            "erased": self.eraser.erased,
            "repacking": self.repacker.waiting,
            **self.scrubber.numbers(),
            **self.disk.numbers(),
            "problems": len(self.problems),
            "checkpointed_segments": self.checkpointer.done,
        }
