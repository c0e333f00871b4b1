"""The commit log of a node: one append-only sequence of records for everything that must survive.

Records are encoded straight into the image of the active segment. At the end of a kernel turn the
batch gets its footer and goes to the commit thread; when the thread says that it is durable, the
stores learn how far they are committed. A log sequence number (lsn) is the number of a batch.
A batch is synced as soon as its most impatient record asks; stores whose acks come after the write
learn of that before. When all that a batch holds may wait for its sync, it stays open over many
turns and is written once: a page of the device then takes what came meanwhile.

When a write or sync fails, nothing that was pending is acknowledged; log_restart.py says how the
log goes on.
"""

import asyncio
import errno as errors_by_name
import logging
import os

import cython
from cython.cimports.cpython.bytes import PyBytes_GET_SIZE
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel, Task
from cython.cimports.headwater.edge.storage.format.record import (
    FILE_HEADER_BYTES,
    FLAG_LAZY,
    FLAG_PART,
    KIND_CHECKPOINT,
    KIND_STATE_DELETE,
    KIND_STATE_DELTA,
    KIND_STATE_PUT,
    record_size,
)
from cython.cimports.headwater.edge.storage.log.adopted_records import AdoptedRecords
from cython.cimports.headwater.edge.storage.log.batch_writer import (
    FOOTER_BYTES,
    RUN_BYTES,
    BatchWriter,
)
from cython.cimports.headwater.edge.storage.log.block_fit import fits_best
from cython.cimports.headwater.edge.storage.log.commit_progress import CommitProgress
from cython.cimports.headwater.edge.storage.log.commit_thread import (
    BLOCK_BYTES,
    NO_SYNC,
    CommitThread,
)
from cython.cimports.headwater.edge.storage.log.log_segment import LogSegment
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.headwater.edge.storage.log.lone_commit import LoneCommit
from cython.cimports.headwater.edge.storage.log.second_copies import SecondCopies

from headwater.edge.kernel.turn_order import TurnStage
from headwater.edge.ports.files import FIRST_TWIN
from headwater.edge.storage.format.errors import (
    InvariantBroken,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
)
from headwater.edge.storage.log.commit_stepper import CommitStepper
from headwater.edge.storage.log.log_files import LogFiles, LogHeader, LogSlot
from headwater.edge.storage.log.states import Encoder, StateTable

# Full segments' worth of records that may wait to be checkpointed before appends are refused. What
# counts is bytes: starts that follow each other quickly leave many segments that hold little.
LIVE_MAX = cython.declare(cython.Py_ssize_t, 8)
# Other records than messages may go on for longer, but not for ever.
LIVE_LIMIT = cython.declare(cython.Py_ssize_t, 12)
# Checkpointing that is this far behind slows producers down.
LIVE_SLOW = cython.declare(cython.Py_ssize_t, 5)
# Unsynced bytes at which producers are paused; a segment or this, whichever is less.
UNSYNCED_MAX = 32 << 20
# Batches that may wait for a sync; beyond them it is not put off any more.
UNSYNCED_BATCHES_MAX = cython.declare(cython.Py_ssize_t, 16384)
# Values of states up to this size are written twice: what is damaged is one copy.
TWICE_MAX = cython.declare(cython.Py_ssize_t, 64 << 10)
# Damage that comes as a whole page does not reach across this.
PAGE_BYTES = cython.declare(cython.Py_ssize_t, 4096)
# Where that is less than this part of a log segment. (Smaller ones are for tests.)
PAGES_MIN = cython.declare(cython.Py_ssize_t, 8)
# A batch that is gathered over turns goes out when it has so many bytes: then there are many
# messages for each page that is written.
GATHERED_MAX = cython.declare(cython.Py_ssize_t, 64 << 10)
# A delay of less is not worth a timer.
GATHER_NS_MIN = cython.declare(cython.longlong, 1000000)
# What of a delay a batch may stay open; the rest is for writing it.
GATHER_SHARE = cython.declare(cython.double, 0.95)

# What says that a device has no room, not that it fails.
FULL = (errors_by_name.ENOSPC, errors_by_name.EDQUOT, errors_by_name.EFBIG)

log = logging.getLogger("headwater.storage")


@cython.cclass
class TurnEnd(Task):
    """Hands the batch over when the kernel's turn ends."""

    def __init__(self, log: CommitLog):
        self.log = log

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        return self.log.end_turn()


@cython.cclass
class CommitLog(BatchWriter):
    """See the module. Made by NodeStore; `start` follows once recovery has set the position."""

    def __init__(
        self,
        kernel: Kernel,
        files: LogFiles,
        seed: int,
        node_id: bytes,
    ):
        BatchWriter.__init__(self, kernel, seed)
        self.files = files
        self.directory = files.directory
        self.segment_bytes = files.segment_bytes
        self.node_id = node_id
        self.table = StateTable()
        self.live = []
        self.keep = 1
        self.turn_stores = []
        self.progress = CommitProgress(kernel)
        self.gate = Endpoint()
        self.again = SecondCopies()
        self.held = -1
        self.high_water = min(files.segment_bytes, UNSYNCED_MAX)

    def start(
        self, slot: LogSlot, batch: int, chain: int, number: int, previous: int, end: int
    ) -> None:
        """Begin segment `number`, in `slot`, after what recovery found: number and end of the last
        one that counts, the checksum of its last record, and the first batch number. Starts the
        thread. Raises OSError."""
        self.batch = batch
        self.thread = CommitThread(batch)
        self.lone = LoneCommit(self.kernel, self.thread, self.drain_results)
        self.chain = chain
        self.begin_segment(slot, number, previous, end, chain)
        self.progress.begin(batch - 1, previous, end, chain)
        loop = self.kernel.loop
        if self.active.fd < FIRST_TWIN:
            loop.add_reader(self.thread.start(), self.on_done)
        else:
            self.stepper = CommitStepper(self.thread, loop, self.drain_results)
        self.watching = True
        self.turn_hook = TurnEnd(self)
        self.kernel.add_turn_hook(self.turn_hook, TurnStage.BATCH)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin_segment(
        self,
        slot: object,
        number: cython.uint,
        previous: cython.uint,
        previous_end: cython.Py_ssize_t,
        previous_chain: cython.uint,
    ) -> cython.int:
        """Make `slot` the active segment; its header goes out with its first batch."""
        segment: LogSegment = LogSegment(number, slot, self.donor)
        self.donor = None
        oldest = self.live[0].number if self.live else number
        header = LogHeader(
            number,
            previous,
            previous_end,
            previous_chain,
            oldest,
            segment.capacity,
            self.kernel.now_ns,
            self.batch,
        )
        segment.fill(header.encode(self.seed, self.node_id), 0)
        segment.end = FILE_HEADER_BYTES
        segment.previous = previous
        segment.previous_end = previous_end
        segment.previous_chain = previous_chain
        self.live.append(segment)
        self.active = segment
        self.slow = self.backlog() >= LIVE_SLOW * self.segment_bytes + 2 * self.table.bytes
        self.batch_start = 0
        return 0

    @cython.cfunc
    def reserve(self, length: cython.Py_ssize_t, message: cython.bint) -> cython.p_uchar:
        """Where the next record goes, with room for it and for the batch's footers. Raises
        StoreFull, StoreFailed."""
        need: cython.Py_ssize_t = record_size(length)
        footers: cython.Py_ssize_t = BLOCK_BYTES + self.footer_room(1)
        if self.failure is not None and message:
            raise self.failure.with_traceback(None)  # else it keeps each call that met it
        self.close_bundle()
        if self.active.end + need + footers > self.active.capacity:
            self.roll(need + footers, message)
            if self.active.end + need + footers > self.active.capacity:
                raise InvariantBroken(f"{need} bytes do not fit log segment {self.active.number}")
        if (self.batch_records == 0 or self.gather_timer is not None) and not self.kernel.turning:
            self.kernel.kick()
        if message and self.is_congested():
            self.kernel.congested = self.gate
        return self.active.image + self.active.end

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def extend(self, need: cython.Py_ssize_t) -> cython.bint:
        """Whether `need` bytes fit into the bundle that is open. Raises StoreFull, StoreFailed."""
        footers: cython.Py_ssize_t = BLOCK_BYTES + self.footer_room(1)
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if record_size(self.active.end + need) + footers > self.active.capacity:
            return False
        if self.gather_timer is not None and not self.kernel.turning:
            self.kernel.kick()
        if self.is_congested():
            self.kernel.congested = self.gate
        return True

    def ensure(self, size: int) -> None:
        """Have room for messages of `size` bytes in one segment. Raises StoreFull, StoreFailed."""
        kept: AdoptedRecords = self.active.adopted
        rest: cython.Py_ssize_t = self.active.capacity - self.active.end
        if size > LIVE_MAX * self.segment_bytes:
            most = LIVE_MAX * self.segment_bytes
            text = f"{size} bytes are more than the log takes at once, which is {most}"
            raise StoreFull(f"{text}; commit_segment_bytes makes it larger")
        if kept is not None and kept.bytes and kept.bytes + size > rest:
            # Records in memory count as if they were in the file: so memory stays bounded.
            self.reserve(rest, True)
        self.reserve(size, True)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def roll(self, need: cython.Py_ssize_t, message: cython.bint) -> cython.int:
        """End the active segment and begin the next."""
        last: LogSegment = self.active
        if self.closed:
            raise StoreClosed("the log is closed")
        most = (LIVE_MAX if message else LIVE_LIMIT) * self.segment_bytes + 2 * self.table.bytes
        if self.backlog() >= most and not self.checkpointing:
            raise StoreFull("the device is too slow: too many log segments wait to be checkpointed")
        try:
            slot = self.files.allocate(need + FILE_HEADER_BYTES, not message)
        except OSError as error:
            raise self.no_room(error) from error
        self.close_batch(True)
        self.begin_segment(slot, last.number + 1, last.number, last.end, self.chain)
        if self.on_checkpoint is not None:
            self.on_checkpoint()
        return 0

    def no_room(self, error: OSError) -> StoreError:
        """What to raise when there is no file to go on with; the log is full until there is."""
        if error.errno not in FULL:
            return StoreFailed(f"cannot make a log segment: {error}")
        failure = StoreFull(f"no room in {self.directory}: {error.strerror}")
        if self.failure is None:
            self.fail(failure)
            for lsn in (self.batch - 1, self.batch):  # what was stored is acknowledged, and soon
                self.hurry(lsn)
            self.open_gate()
            self.on_full(failure)
        return failure

    def block(self, error: OSError) -> None:
        """Segments cannot be checkpointed because the device is full: refuse publishes."""
        self.blocked = True
        self.no_room(error)

    def unblock(self) -> None:
        """A segment could be checkpointed."""
        self.blocked = False

    def fail(self, failure: StoreError | None) -> None:
        """Set or clear what stops appends, and notify every store."""
        store: LoggedStore
        self.failure = failure
        for item in self.stores.values():
            store = item
            store.failure = failure
            store.scheduled_listener()
        self.kernel.kick()

    def write_twice(self, kind: int, stream: int, body: bytes) -> int:
        """Append a record that is no message in two pages; returns its lsn."""
        lsn: int = self.write_record(kind, stream, 0, body, b"", b"")
        self.again.add(kind, stream, body, b"", b"", self.active.end)
        return lsn

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def join_turn(self, store: LoggedStore) -> cython.int:
        """Call `store.flush_turn` before the batch is handed over."""
        if not store.in_turn:
            store.in_turn = True
            self.turn_stores.append(store)
            if not self.kernel.turning:
                self.kernel.kick()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def end_turn(self) -> cython.int:
        """Hand over what this turn wrote."""
        store: LoggedStore
        stores: list
        if self.closed or self.active is None:
            return 0
        if self.turn_stores and not isinstance(self.failure, StoreFailed):
            stores = self.turn_stores
            self.turn_stores = []
            for item in stores:
                store = item
                store.in_turn = False
                try:
                    store.flush_turn()
                except StoreFull:
                    self.join_turn(store)
                except StoreError:
                    log.exception(
                        "removals of the stream in %s are not written; a start now finds what they "
                        "took out; report this fault",
                        store.directory,
                    )
        if self.batch_notify and self.failure is None:
            stores = self.touched[:]
            for item in stores:
                store = item
                if store.last_seq > store.reserve_at:
                    self.on_low(store)
        if self.gathers():
            return 0
        return self.close_batch(False)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def gathers(self) -> cython.bint:
        """Whether the batch stays open for what later turns write; a timer ends it in time."""
        size: cython.Py_ssize_t = self.active.end - self.batch_start
        if (
            self.batch_delay_ns < GATHER_NS_MIN
            or self.batch_delay_ns >= cython.cast(cython.longlong, NO_SYNC)
            or self.batch_notify
            or not self.batch_strict
            or self.again.rows
            or self.failure is not None
            or size > GATHERED_MAX
        ):
            return False
        now: cython.double = self.kernel.loop.time()
        due: cython.double = now + self.batch_delay_ns * GATHER_SHARE / 1e9
        if self.gather_timer is None:
            self.gather_began = now
            self.gather_first = size
        elif self.active.direct_fd >= 0 and now > self.gather_began:
            more: cython.double = (size - self.gather_first) / (now - self.gather_began)
            more *= self.gather_due - now
            records: cython.Py_ssize_t = max(self.batch_records, self.joined)
            if fits_best(size, records, self.footer_room(0), more, self.bundle_head()):
                self.stop_gathering()
                self.batch_delay_ns = 0  # a sync at once is what spares pages of the page cache
                return False
        if self.gather_timer is None or due < self.gather_due:
            self.stop_gathering()
            self.gather_due = due
            self.gather_timer = self.kernel.loop.call_at(due, self.gathered)
        return True

    def gathered(self) -> None:
        """What the batch holds has waited as long as it may."""
        self.stop_gathering()
        self.batch_delay_ns = 0
        self.kernel.kick()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def stop_gathering(self) -> cython.int:
        if self.gather_timer is not None:
            self.gather_timer.cancel()
            self.gather_timer = None
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def left_to_wait(self) -> cython.longlong:
        """How long the sync of the batch may still wait, of which it spent some time open."""
        left: cython.double
        if self.gather_timer is None:
            return self.batch_delay_ns
        left = max(self.gather_due - self.kernel.loop.time(), 0.0)
        return min(self.batch_delay_ns, cython.cast(cython.longlong, left * 1e9))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def defer_batch(self, align: cython.Py_ssize_t) -> cython.int:
        """End the batch, up to a multiple of `align`; it is handed over with the next one."""
        self.write_footers(self.lazy_flag(), align, self.thread.newest_synced())
        self.held = self.batch_start
        return self.next_batch()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_copies(self) -> cython.int:
        """Write what the batch has put once so far a second time, behind its footers and in another
        page; what is synced together with the batch is a batch of its own. Ends the first one."""
        rows: list = self.again.drain()
        delay_ns: cython.longlong = self.batch_delay_ns
        footers: cython.Py_ssize_t = self.footer_room(0)
        page: cython.Py_ssize_t = PAGE_BYTES
        need: cython.Py_ssize_t
        while page * PAGES_MIN > self.segment_bytes:
            page //= 2
        need = page + BLOCK_BYTES + 2 * record_size(FOOTER_BYTES + RUN_BYTES)
        for _, _, first, second, rest in rows:
            need += record_size(
                PyBytes_GET_SIZE(first) + PyBytes_GET_SIZE(second) + PyBytes_GET_SIZE(rest)
            )
        if ((self.again.end + page - 1) & ~(page - 1)) <= self.active.end + footers:
            page = BLOCK_BYTES
        together = self.active.end + footers + need <= self.active.capacity
        if page >= BLOCK_BYTES and together:
            self.defer_batch(page)
        elif page >= BLOCK_BYTES:
            self.close_batch(False)
        try:
            if page >= BLOCK_BYTES and not together:
                self.roll(min(need, self.segment_bytes - FILE_HEADER_BYTES), False)
            for kind, stream, first, second, rest in rows:
                self.write_record(kind, stream, 0, first, second, rest, delay_ns)
        except StoreError as error:
            log.debug("not all second copies of states are written: %s", error)
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def lazy_flag(self) -> cython.int:
        """Whether this batch may be notified of before its sync."""
        return FLAG_LAZY if self.batch_delay_ns > 0 and not self.batch_strict else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def close_batch(self, part: cython.bint) -> cython.int:
        """Write the footer, twice, and queue the batch for the thread. A `part` of a batch counts,
        and is released, only together with what follows in the next segment."""
        segment: LogSegment = self.active
        length: cython.Py_ssize_t
        delay_ns: cython.longlong = NO_SYNC if part else self.left_to_wait()
        notify: cython.bint = self.batch_notify and not part
        here: cython.bint = False
        start: cython.Py_ssize_t
        if self.batch_records == 0 or isinstance(self.failure, StoreFailed):
            return 0
        self.close_bundle()
        if self.again.rows and not part:
            self.write_copies()
            segment = self.active
            if self.batch_records == 0 and self.held < 0:
                return 0
            delay_ns = self.batch_delay_ns
            notify = self.batch_notify
        if self.progress.batches() >= UNSYNCED_BATCHES_MAX:
            delay_ns = self.batch_delay_ns = 0
        self.write_footers(
            FLAG_PART if part else self.lazy_flag(), BLOCK_BYTES, self.thread.newest_synced()
        )
        start = self.held if self.held >= 0 else self.batch_start
        self.held = -1
        length = segment.end - start
        if not part:
            self.progress.hand_over(
                self.batch,
                segment.number,
                segment.end,
                self.chain,
                self.touched,
                self.written,
                notify,
            )
            self.touched = []
            self.stop_gathering()
            self.batch_delay_ns = NO_SYNC
            self.batch_notify = self.batch_strict = False
            here = self.lone.accepts(length, self.progress.batches(), delay_ns, notify)
        if self.thread.submit(
            segment.fd,
            segment.direct_fd,
            segment.image + start,
            length,
            start,
            self.batch,
            delay_ns,
            notify,
            not here,
        ):
            raise StoreFull("the commit thread's queue is full")
        if here:
            self.lone.leave()
        if self.stepper is not None:
            self.stepper.ask()
        return self.next_batch()

    def on_done(self) -> None:
        """The commit thread completed or failed something."""
        try:
            os.eventfd_read(self.thread.done_fd)
        except BlockingIOError:
            return
        self.drain_results()

    def drain_results(self) -> None:
        """Learn how far the thread is."""
        written: cython.ulonglong = 0
        synced: cython.ulonglong = 0
        error: cython.int
        error = self.thread.results(cython.address(written), cython.address(synced))
        self.advance(written, synced)
        if error and not isinstance(self.failure, StoreFailed):
            self.sync_failures += 1
            reason = os.strerror(error)
            self.fail(StoreFailed(f"the commit log cannot be written: {reason}"))
            self.on_broken(reason)
        self.kernel.turn()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance(self, written: cython.ulonglong, synced: cython.ulonglong) -> cython.int:
        """The thread has written and synced batches up to these."""
        self.progress.advance(written, synced)
        return self.let_go_on()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def let_go_on(self) -> cython.int:
        """Schedule paused producers when there is room again."""
        if (
            self.gate.waiters
            and self.written - self.progress.flushed
            <= cython.cast(cython.ulonglong, self.high_water // 2)
            and not self.slow
        ):
            self.open_gate()
        return 0

    def open_gate(self) -> None:
        """Schedule every producer that was paused."""
        self.kernel.resume_producers(self.gate)

    @property
    def durable_lsn(self) -> int:
        """Every record with an lsn up to this is durable."""
        return self.progress.durable

    @property
    def unsynced(self) -> int:
        """Bytes of records that are not durable yet."""
        return self.written - self.progress.durable_bytes

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_congested(self) -> cython.bint:
        return (
            self.written - self.progress.flushed > cython.cast(cython.ulonglong, self.high_water)
            or self.slow
        )

    @property
    def congested(self) -> bool:
        """Whether producers should wait."""
        return self.is_congested()

    def backlog(self) -> int:
        """Bytes in segments that are not checkpointed; one for a very large message counts as
        full."""
        segment: LogSegment
        size: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        for item in self.live:
            segment = item
            size = segment.end
            if segment.adopted is not None:
                size += segment.adopted.bytes
            total += min(size, self.segment_bytes)
        return total

    @cython.ccall
    def when_durable(self, lsn: cython.ulonglong, waiter: object):
        """Schedule `waiter` (a Task), or call it, once everything up to `lsn` is durable."""
        if self.progress.await_durable(lsn, waiter):
            self.hurry(lsn)

    @cython.ccall
    def when_written(self, lsn: cython.ulonglong, waiter: object):
        """The same, once it is written: it survives the end of the process."""
        if self.progress.await_written(lsn, waiter):
            self.batch_notify = self.batch_notify or lsn >= self.batch
            if self.progress.notified < lsn < self.batch:
                self.hurry(lsn)

    @cython.ccall
    def hurry(self, lsn: cython.ulonglong):
        """Do not put off the sync of what was written up to `lsn`."""
        if lsn >= self.batch:
            self.batch_delay_ns = 0
            if not self.kernel.turning:
                self.kernel.kick()
        elif lsn > self.progress.durable:
            self.thread.hurry(lsn)
            if self.stepper is not None:
                self.stepper.ask()

    async def wait_durable(self, lsn: int, written: bool = False) -> None:
        """Return once everything up to `lsn` is durable or, with `written`, written."""
        if lsn <= self.progress.durable:
            return
        future: asyncio.Future[None] = self.kernel.loop.create_future()
        wait = self.when_written if written else self.when_durable
        wait(lsn, lambda: future.done() or future.set_result(None))
        await future

    @cython.ccall
    @cython.exceptval(0, check=False)
    def put_state(
        self,
        owner: bytes,
        key: bytes,
        value: bytes,
        delay_ns: cython.longlong = 0,
        near: cython.bint = False,
        once: cython.bint = False,
    ) -> cython.ulonglong:
        """Store the whole value of a state, when it is small in two pages or, with `near`, twice in
        a row, or only `once`; returns its lsn."""
        value = self.table.sealed(owner, key, value)
        lsn = self.write_record(KIND_STATE_PUT, 0, 0, owner, key, value, delay_ns)
        self.again.drop(owner, key)
        if near:
            lsn = self.write_record(KIND_STATE_PUT, 0, 0, owner, key, value, delay_ns)
        elif not once and len(value) <= TWICE_MAX:
            self.again.add(KIND_STATE_PUT, 0, owner, key, value, self.active.end)
        self.table.put(owner, key, value, self.active.number)
        return lsn

    @cython.ccall
    @cython.exceptval(0, check=False)
    def add_delta(
        self,
        owner: bytes,
        key: bytes,
        value: bytes,
        delay_ns: cython.longlong = 0,
        more: bytes = b"",
    ) -> cython.ulonglong:
        """Store an addition to a state; returns its lsn. `more` is the end of a long one, which is
        not copied to join it when nobody keeps it."""
        if more and (self.again.rows or not self.table.passes(owner, key)):
            value, more = value + more, b""
        value = self.table.sealed(owner, key, value)
        lsn = self.write_record(KIND_STATE_DELTA, 0, 0, owner, key, value, delay_ns, more)
        self.again.follow(KIND_STATE_DELTA, owner, key, value)
        self.table.delta(owner, key, value, self.active.number)
        return lsn

    def delete_state(self, owner: bytes, key: bytes, delay_ns: int = 0) -> int:
        """Forget a state; returns the lsn. A sync for it may wait `delay_ns`."""
        lsn = self.write_record(KIND_STATE_DELETE, 0, 0, owner, key, b"", delay_ns)
        self.again.follow(KIND_STATE_DELETE, owner, key, b"")
        self.table.delete(owner, key)
        return lsn

    def states(self, owner: bytes) -> dict[bytes, tuple[bytes | None, list[bytes]]]:
        """key -> (value, deltas since) of everything kept for an owner."""
        return self.table.owned(owner)

    def encode_with(self, owner: bytes, key: bytes, encoder: Encoder | None) -> None:
        """Ask `encoder()` for the whole value when the log must write it again; value and deltas
        are not kept in memory any more. The answer may include additions that are still to be
        logged, so deltas must bear being applied twice. None: keep them again."""
        self.table.encode_with(owner, key, encoder)

    def drop_oldest(self) -> LogSegment:
        """Take the oldest segment out: nothing needs it any more. The caller recycles its file."""
        segment: LogSegment = self.live.pop(0)
        self.donor = segment
        self.slow = self.backlog() >= LIVE_SLOW * self.segment_bytes + 2 * self.table.bytes
        self.let_go_on()
        return segment

    def let_spare_go(self) -> None:
        """Free memory that waits for the next segment and its records."""
        segment: LogSegment
        self.donor = None
        for item in self.live:
            segment = item
            if segment.adopted is not None:
                segment.adopted.let_spare_go()

    def rewind(self, slot: LogSlot) -> tuple[list, set]:
        """Forget everything that is not durable, and begin again behind it with a segment in
        `slot`. Returns the segments that hold what was forgotten, the oldest one in part, and the
        stores that wait for it."""
        at: CommitProgress = self.progress
        self.close_bundle()
        old = [item for item in self.live if item.number >= at.durable_segment]
        number: cython.uint = self.active.number + 1
        waiting = at.forget_pending() | set(self.touched)
        self.thread.clear_error()
        self.failure = None
        self.touched = []
        self.stop_gathering()
        self.runs.count = 0
        self.batch_records = self.joined = 0
        self.batch += 1
        self.written = at.durable_bytes
        self.batch_delay_ns = 0
        self.chain = at.durable_chain
        self.begin_segment(slot, number, at.durable_segment, at.durable_end, at.durable_chain)
        return old, waiting

    def forget(self, old: list) -> None:
        """What `rewind` returned of segments was written again."""
        segment: LogSegment
        for item in old:
            segment = item
            if segment.number == self.progress.durable_segment:
                segment.end = self.progress.durable_end
                segment.suspect = True
                segment.slot.blank = False
            else:
                self.live.remove(segment)
                self.files.discard(segment.slot)

    def begin_next(self) -> None:
        """End the active segment, so that all others can be checkpointed."""
        part: cython.bint = self.batch_records > 0
        if self.active.end > FILE_HEADER_BYTES:
            self.roll(FILE_HEADER_BYTES, False)
            if part:
                # A part of a batch counts with what follows it, so something has to follow.
                self.write_record(KIND_CHECKPOINT, 0, self.live[0].number, b"", b"", b"")

    def hand_over(self, notify: bool = False) -> int:
        """Hand over what is written now, outside of a turn; returns the lsn of all of it, also of
        removals that cannot be written yet. `notify`: somebody will wait for that to be written."""
        self.batch_notify = self.batch_notify or notify
        self.end_turn()
        if not self.closed and self.gather_timer is not None:
            self.close_batch(False)
        return self.batch if self.turn_stores else self.handed

    @property
    def handed(self) -> int:
        """The newest batch that was handed over."""
        return self.batch - 1

    def finish_now(self) -> None:
        """Write and sync everything that is queued, and stop the thread (blocks)."""
        self.hand_over()
        if self.watching:
            self.watching = False
            if self.stepper is None:
                self.kernel.loop.remove_reader(self.thread.done_fd)
            else:
                self.stepper.stopped = True
            self.thread.stop()
            self.advance(self.thread.written, self.thread.synced)
        self.closed = True
        self.kernel.remove_turn_hook(self.turn_hook)

    def close_files(self) -> None:
        """Close every descriptor."""
        for segment in self.live:
            segment.slot.close()
        self.live = []
        self.files.close()

    def numbers(self) -> dict[str, int]:
        """Counters for monitoring."""
        return {
            **self.thread.counters(),
            "segments": len(self.live),
            "unsynced": self.unsynced,
            "sync_failures": self.sync_failures,
            "batches": self.progress.durable,
        }
