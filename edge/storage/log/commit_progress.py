"""How far the batches that were handed to the commit thread are written and synced.

The commit log hands a batch over and says so here. When the thread tells how far it is, the stores
of those batches learn what is committed, the watermarks rise, and whoever waited is released.
Two things are known of a batch: that it is written, which survives the end of the process, and that
it is durable, which survives the loss of power. Batches of stores whose acks come after the write
count at the first, all others at the second.
"""

from collections import deque

import cython
from cython.cimports.headwater.edge.kernel.kernel import Kernel
from cython.cimports.headwater.edge.storage.log.log_waiters import Waiters
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.headwater.edge.storage.log.watermarks import Watermarks


@cython.cclass
class CommitProgress:
    """See the module. Made with the log; `begin` follows once recovery has set the position."""

    def __init__(self, kernel: Kernel):
        self.watermarks = Watermarks()
        self.pending = deque()
        self.unwritten = deque()
        self.waiters = Waiters(kernel)
        self.early_waiters = Waiters(kernel)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(
        self,
        batch: cython.ulonglong,
        segment: cython.uint,
        end: cython.Py_ssize_t,
        chain: cython.uint,
    ) -> cython.int:
        """Everything up to `batch` is durable; it ended at `end` of `segment`, and `chain` is the
        header checksum of its last record."""
        self.durable = batch
        self.reached = batch
        self.durable_segment = segment
        self.durable_end = end
        self.durable_chain = chain
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def hand_over(
        self,
        batch: cython.ulonglong,
        segment: cython.uint,
        end: cython.Py_ssize_t,
        chain: cython.uint,
        touched: list,
        written: cython.ulonglong,
        notify: cython.bint,
    ) -> cython.int:
        """A batch goes to the thread. `touched` are the LoggedStores with messages in it, `written`
        the bytes of records up to its end; `notify`: the thread tells when it is written."""
        stores: list = [(store, cython.cast(LoggedStore, store).last_seq) for store in touched]
        self.pending.append((batch, segment, end, chain, stores, written))
        if notify:
            self.notified = batch
            self.unwritten.append((batch, stores, written, segment, end))
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def batches(self) -> cython.Py_ssize_t:
        """How many are handed over and not durable."""
        return len(self.pending)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance(self, written: cython.ulonglong, synced: cython.ulonglong) -> cython.int:
        """The thread has written batches up to `written` and synced those up to `synced`."""
        self.advance_written(written)
        self.advance_durable(synced)
        return self.watermarks.flush()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance_written(self, batch: cython.ulonglong) -> cython.int:
        """Release what waited for batches up to `batch` to be written, synced or not."""
        store: LoggedStore
        if batch <= self.reached:
            return 0
        self.reached = batch
        while self.unwritten and self.unwritten[0][0] <= batch:
            number, stores, self.flushed, segment, end = self.unwritten.popleft()
            self.watermarks.reach(segment, end, number, False)
            for item, last in stores:
                store = item
                if not store.may_reach(last):
                    continue
                store.reached = last
                if store.acks_written:
                    self.watermarks.raise_to(store, last, False)
                store.rise()
        return self.early_waiters.release(batch)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def advance_durable(self, batch: cython.ulonglong) -> cython.int:
        """Release what waited for batches up to `batch` to be durable."""
        store: LoggedStore
        if batch <= self.durable:
            return 0
        while self.pending and self.pending[0][0] <= batch:
            number, segment, end, chain, stores, written = self.pending.popleft()
            self.durable = number
            self.durable_segment = segment
            self.durable_end = end
            self.durable_chain = chain
            self.durable_bytes = written
            for item, last in stores:
                store = item
                if not store.may_reach(last):
                    continue
                self.watermarks.raise_to(store, last, True)
                if last > store.committed:
                    store.committed = last
                    store.scheduled_listener()
        self.watermarks.reach(self.durable_segment, self.durable_end, self.durable, True)
        self.flushed = max(self.flushed, self.durable_bytes)
        return self.waiters.release(self.durable)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def await_durable(self, batch: cython.ulonglong, waiter: object) -> cython.bint:
        """Release `waiter` once `batch` is durable; whether it has to wait for that."""
        if batch <= self.durable:
            self.waiters.let_go(waiter)
            return False
        self.waiters.add(batch, waiter)
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def await_written(self, batch: cython.ulonglong, waiter: object) -> cython.bint:
        """Release `waiter` once `batch` is written; whether it has to wait for that."""
        if batch <= self.reached or batch <= self.durable:
            self.early_waiters.let_go(waiter)
            return False
        self.early_waiters.add(batch, waiter)
        return True

    @cython.cfunc
    def forget_pending(self) -> set:
        """What is not durable was not written, and comes again with new numbers. Returns the stores
        that wait for it."""
        waiting: set = {row[0] for batch in self.pending for row in batch[4]}
        self.pending.clear()
        self.unwritten.clear()
        self.flushed = self.durable_bytes
        return waiting

    def position(self) -> dict[str, int]:
        """Where the durable part of the log ends."""
        return {
            "segment": self.durable_segment,
            "end": self.durable_end,
            "batch": self.durable,
            "chain": self.durable_chain,
        }
