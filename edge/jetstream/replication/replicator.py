"""What the leader of a stream has decided and its group has not applied yet.

With one replica a stream has no Replicator, and what it decides goes straight to its store. With
more, the leader's decisions are operations (operations.py). Those of one round of the loop are one
entry, which is proposed to the group; every replica applies it when a quorum has it on disk. So a
store holds only what is committed. What a decision needs of earlier ones that are still on their
way is here: last sequences, counts, sizes.

It has the record verbs of the commit log for states, so consumers save their progress in it as they
do in the log; a log sequence number is the number of an entry then.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.replication.operations import (
    ENTRY_VERSION,
    FLAG_ERASE,
    OP_CONFIG,
    OP_MESSAGE,
    OP_PURGE,
    OP_REMOVE,
    OP_SKIP,
    OP_STATE_DELETE,
    OP_STATE_DELTA,
    OP_STATE_PUT,
    Operation,
)
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Kernel, Msg, Task
from cython.cimports.headwater.edge.storage.index.store import MessageStore
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.log_waiters import Waiters
from cython.cimports.headwater.edge.subjects.tokens import subject_matches
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.format.errors import StoreClosed, StoreError

# An entry that has come to this is proposed at once: one message to a follower.
ENTRY_BYTES = cython.declare(cython.Py_ssize_t, 1 << 20)
# So many entries on their way let little that was decided behind them wait: an entry costs every
# replica more than a message, and what waits becomes one.
FEW = cython.declare(cython.Py_ssize_t, 2)
# And less than so many bytes are little.
LITTLE = cython.declare(cython.Py_ssize_t, 8 << 10)
# Of entries on their way: beyond it, producers wait.
FLYING_MAX = cython.declare(cython.Py_ssize_t, 8 << 20)
# The whole value of a state is written again after so many bytes of additions, as replicas keep
# these in memory.
GROWN_MAX = cython.declare(cython.Py_ssize_t, 64 << 10)
# The last sequence that a store takes.
SEQUENCES = cython.declare(cython.ulonglong, 0x7FFF_FFFF_FFFF_FFFF)
# As a time: the end of what has none.
NEVER = cython.declare(cython.longlong, (1 << 63) - 1)
# What a small buffer begins with.
FIRST_BYTES = cython.declare(cython.Py_ssize_t, 4096)

log = logging.getLogger("headwater.jetstream")


@cython.cclass
class Proposals(Task):
    """Proposes what the streams that a node leads have decided. What was read from many sockets at
    once is many turns; it is one entry of each stream, as an entry costs more than a message."""

    def __init__(self, kernel: Kernel, soon: Callable[[], None], stood: Callable[[], None]):
        """`soon` has `offer` called when the sockets that are readable now were read. `stood` is
        called before anything is sent in a turn that ends when another node may lead a stream
        which handed out messages in it: the process stood still meanwhile."""
        self.kernel = kernel
        self.soon = soon
        self.stood = stood
        self.due = []
        self.until = self.until_wall = NEVER

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """A turn ends."""
        late: cython.bint
        if self.due:
            self.soon()
        if self.until != NEVER:
            late = (
                self.kernel.monotonic_ns() >= self.until
                or self.kernel.wall_ns() >= self.until_wall
            )
            self.until = self.until_wall = NEVER
            if late:
                self.stood()
        return 0

    def offer(self) -> None:
        """Have each propose; what is not taken now is offered again when its group is looked at."""
        batch: list = self.due
        one: Replicator
        self.due = []
        for item in batch:
            one = item
            one.due = False
            one.offer()


@cython.cclass
class Replicator:
    """See the module. Made when a node has begun to lead, `close`d when it leads no more."""

    def __init__(
        self,
        kernel: Kernel,
        store: MessageStore,
        commit_log: CommitLog,
        proposals: Proposals,
        propose: Callable[[bytes], bool],
        keeps_bodies: bool = False,
    ):
        """`propose` is called with an entry, and says whether the group takes it now; what it does
        not take is kept."""
        self.kernel = kernel
        self.store = store
        self.log = commit_log
        self.proposals = proposals
        self.propose = propose
        self.keeps_bodies = keeps_bodies
        self.last_seq = store.last_seq
        self.last_ts = store.last_ts
        self.lasts = {}
        self.counts = {}
        self.bodies = {}
        self.grown = {}
        self.turn = 1
        self.sizes = deque()
        self.waiters = Waiters(kernel)
        self.gate = Endpoint()
        self.asked = deque()
        self.unsure = []
        self.sure_until = self.sure_wall = NEVER
        self.futures = set()

    def __dealloc__(self):
        free(self.buffer)

    # --- the entry being filled ----------------------------------------------------------------

    @cython.cfunc
    def space_for(self, need: cython.Py_ssize_t) -> cython.p_uchar:
        """Room for `need` bytes at the end of the entry. Raises StoreClosed."""
        grown: cython.p_void
        size: cython.Py_ssize_t
        if self.closed:
            raise StoreClosed("this node leads the stream no more")
        if not self.held and self.used + need > ENTRY_BYTES and self.used:
            self.flush()
        size = max(self.capacity, FIRST_BYTES)
        while size < self.used + need + 1:
            size *= 2
        if size > self.capacity:
            grown = realloc(self.buffer, size)
            if grown == cython.NULL:
                raise MemoryError
            self.buffer = cython.cast(cython.p_uchar, grown)
            self.capacity = size
        if self.used == 0:
            self.buffer[0] = ENTRY_VERSION
            self.used = 1
        if not self.due:
            self.due = True
            self.proposals.due.append(self)
            if not self.kernel.turning:
                self.kernel.kick()
        return self.buffer + self.used

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write(
        self,
        op: cython.pointer(Operation),
        first: cython.p_const_uchar,
        rest: cython.p_const_uchar,
    ) -> cython.int:
        """Add an operation: its head, `first` and what is left of its length from `rest`."""
        need: cython.Py_ssize_t = cython.sizeof(Operation) + op.length
        at: cython.p_uchar = self.space_for(need)
        memcpy(at, op, cython.sizeof(Operation))
        at += cython.sizeof(Operation)
        if op.first:
            memcpy(at, first, op.first)
        if op.length > op.first:
            memcpy(at + op.first, rest, op.length - op.first)
        self.used += need
        return 0

    @cython.ccall
    def flush(self):
        """Propose what was decided so far; whether nothing is left."""
        size: cython.Py_ssize_t = self.used
        if size == 0 or self.closed:
            return True
        entry = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self.buffer), size)
        if not self.propose(entry):
            return False
        self.used = 0
        self.turn += 1
        self.sizes.append(size)
        self.flying += size
        if self.capacity > 2 * ENTRY_BYTES:
            free(self.buffer)
            self.buffer = cython.NULL
            self.capacity = 0
        return True

    @cython.ccall
    def offer(self):
        """Propose what was decided so far; little of it waits until one of the entries that are on
        their way is applied."""
        if self.used >= LITTLE or len(self.sizes) < FEW:
            self.flush()

    def hold(self) -> None:
        """What is written until `release` is one entry: all replicas get all of it, or none."""
        if not self.held and self.used > ENTRY_BYTES // 2:
            self.flush()
        self.held += 1

    def release(self) -> None:
        """See `hold`."""
        self.held -= 1

    # --- decisions -----------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def append(
        self,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
        kind: cython.int,
    ) -> cython.ulonglong:
        """Decide on a message; returns its sequence. See MessageStore.append."""
        op: Operation
        self.store.check_append(m, 0)
        if sequence == 0:
            sequence = self.last_seq + 1
        elif sequence <= self.last_seq:
            raise StoreError(f"sequence {sequence} is not above {self.last_seq}")
        if sequence > SEQUENCES:
            # The store may be behind what was decided, and no replica could apply this.
            raise StoreError("the stream has no sequence left")
        if timestamp < self.last_ts:
            timestamp = self.last_ts
        op.kind = cython.cast(cython.uchar, kind)
        op.flags = 0
        op.first = cython.cast(cython.ushort, m.subject_len)
        op.header_len = cython.cast(cython.uint, m.header_len) if kind == OP_MESSAGE else 0
        op.length = op.first
        if kind == OP_MESSAGE:
            op.length += cython.cast(cython.uint, m.size)
        op.sequence = sequence
        op.timestamp = timestamp
        self.write(cython.address(op), m.subject, m.body)
        self.last_seq = sequence
        self.last_ts = timestamp
        if kind == OP_MESSAGE:
            self.track(m, sequence)
        full: Endpoint = self.full_gate()
        if full is not None:
            self.kernel.congested = full
        return sequence

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def track(self, m: cython.pointer(Msg), sequence: cython.ulonglong) -> cython.int:
        """Remember what later decisions need of a message."""
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        self.lasts[subject] = sequence
        self.counts[subject] = self.counts.get(subject, 0) + 1
        self.messages += 1
        self.stored_bytes += self.cost(m.subject_len, m.header_len, m.size)
        if self.keeps_bodies:
            self.bodies[subject] = (
                PyBytes_FromStringAndSize(body, m.header_len),
                PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len),
            )
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def cost(
        self, subject_len: cython.Py_ssize_t, header_len: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Bytes that the store will count for a message."""
        more: cython.Py_ssize_t = self.store.header_overhead if header_len else 0
        return subject_len + size + self.store.overhead + more

    def remove(self, sequence: int, erase: bool = False) -> None:
        """Decide that a message is taken out."""
        op: Operation
        memset(cython.address(op), 0, cython.sizeof(Operation))
        op.kind = OP_REMOVE
        op.flags = FLAG_ERASE if erase else 0
        op.sequence = sequence
        self.write(cython.address(op), cython.NULL, cython.NULL)

    def purge(
        self,
        subject: bytes,
        sequence: int,
        keep: int,
        then: Callable[[int], None] | None = None,
    ) -> None:
        """Decide on a purge, see MessageStore.purge. `then` is called with how many went."""
        op: Operation
        memset(cython.address(op), 0, cython.sizeof(Operation))
        op.kind = OP_PURGE
        op.first = len(subject)
        op.length = op.first
        op.sequence = sequence or 0
        op.timestamp = keep or 0
        self.write(
            cython.address(op),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject)),
            cython.NULL,
        )
        self.asked.append(then)
        if subject in (b"", b">") and sequence and not keep:
            # As each replica's store: the next message is at that sequence, or above it.
            self.last_seq = max(self.last_seq, sequence - 1)

    async def purge_count(self, subject: bytes, sequence: int, keep: int) -> int:
        """Purge; returns how many messages went, once that is committed. Raises StoreError."""
        counts: list = []
        self.purge(subject, sequence, keep, counts.append)
        await self.wait_durable(self.hand_over())
        return counts[0]

    def purged(self, count: int) -> None:
        """The oldest purge that was proposed was applied."""
        then = self.asked.popleft() if self.asked else None
        if then is not None:
            then(count)

    def skip(self, sequence: int) -> None:
        """Decide that `sequence` is the last one, without a message."""
        op: Operation
        if sequence <= self.last_seq:
            return
        memset(cython.address(op), 0, cython.sizeof(Operation))
        op.kind = OP_SKIP
        op.sequence = sequence
        self.write(cython.address(op), cython.NULL, cython.NULL)
        self.last_seq = sequence

    def configure(self, description: bytes) -> int:
        """Decide on a new description of the stream; returns the number of its entry."""
        op: Operation
        memset(cython.address(op), 0, cython.sizeof(Operation))
        op.kind = OP_CONFIG
        op.length = len(description)
        self.write(
            cython.address(op),
            cython.NULL,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(description)),
        )
        return self.turn

    # --- states: the verbs of the commit log ----------------------------------------------------

    def write_state(self, kind: cython.int, key: bytes, value: bytes) -> None:
        """Decide on a state of the stream."""
        op: Operation
        memset(cython.address(op), 0, cython.sizeof(Operation))
        if len(key) > 65535:
            raise StoreError("the name of a state is too long")
        op.kind = cython.cast(cython.uchar, kind)
        op.first = len(key)
        op.length = len(key) + len(value)
        self.write(
            cython.address(op),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key)),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(value)),
        )

    @cython.ccall
    @cython.exceptval(0, check=False)
    def put_state(
        self,
        owner: bytes,
        key: bytes,
        value: bytes,
        delay_ns: cython.longlong = 0,
        near: cython.bint = False,
    ) -> cython.ulonglong:
        """Decide on the whole value of a state; returns the number of the entry."""
        self.write_state(OP_STATE_PUT, key, value)
        self.grown.pop(key, None)
        return self.turn

    @cython.ccall
    @cython.exceptval(0, check=False)
    def add_delta(
        self, owner: bytes, key: bytes, value: bytes, delay_ns: cython.longlong = 0
    ) -> cython.ulonglong:
        """Decide on an addition to a state; returns the number of the entry."""
        self.write_state(OP_STATE_DELTA, key, value)
        self.grown[key] = self.grown.get(key, 0) + PyBytes_GET_SIZE(value) + 64
        return self.turn

    def delete_state(self, owner: bytes, key: bytes, delay_ns: int = 0) -> int:
        """Decide that a state is forgotten; returns the number of the entry."""
        self.write_state(OP_STATE_DELETE, key, b"")
        self.grown.pop(key, None)
        return self.turn

    def is_long(self, key: bytes) -> bool:
        """Whether a state has so many additions that its whole value is due."""
        return self.grown.get(key, 0) > GROWN_MAX

    def states(self, owner: bytes) -> dict:
        """What the log has of an owner's states: what is committed."""
        return self.log.states(owner)

    def encode_with(self, owner: bytes, key: bytes, encode: object) -> None:
        """Not used: what a leader has in memory is ahead of what is committed."""

    def hand_over(self, tell: bool = False) -> int:
        """The number of the entry that holds everything decided so far."""
        return self.turn if self.used else self.turn - 1

    @cython.ccall
    def when_durable(self, lsn: cython.ulonglong, waiter: object):
        """Schedule `waiter` (a Task), or call it, once that entry is committed and applied."""
        if lsn <= self.done:
            self.waiters.let_go(waiter)
        else:
            self.waiters.add(lsn, waiter)

    async def wait_durable(self, lsn: int, written: bool = False) -> None:
        """Return once that entry is committed and applied. Raises StoreClosed when this node leads
        no more: nobody here knows then what became of it."""
        if lsn <= self.done:
            return
        if self.closed:
            raise StoreClosed("this node leads the stream no more")
        future: asyncio.Future[None] = self.kernel.loop.create_future()
        self.futures.add(future)
        self.when_durable(lsn, lambda: future.done() or future.set_result(None))
        try:
            await future
        finally:
            self.futures.discard(future)

    # --- whether this node leads for sure -------------------------------------------------------

    def use_confirm(self, confirm: Callable[[], None]) -> None:
        """From now on what a leader does by itself waits while `sure` does not say for how long it
        may. `confirm` is called then; it has `sure` or `close` called."""
        self.confirm = confirm
        self.sure_until = self.sure_wall = 0

    def sure(self, left_ns: int) -> None:
        """For `left_ns` no other node leads; 0 when that is not known."""
        waiting: list
        self.sure_until = self.kernel.monotonic_ns() + left_ns
        # A machine that was suspended has another time of day at once.
        self.sure_wall = self.kernel.wall_ns() + left_ns
        if left_ns and self.unsure:
            waiting = self.unsure
            self.unsure = []
            for item in waiting:
                self.kernel.schedule(cython.cast(Task, item))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def must_wait(
        self, task: Task, now: cython.longlong, wall: cython.longlong
    ) -> cython.bint:
        """Whether another node may lead by now, `now` on the monotonic clock and `wall` o'clock;
        then `task` is scheduled when this node is known to lead."""
        if now < self.sure_until and wall < self.sure_wall:
            self.proposals.until = min(self.proposals.until, self.sure_until)
            self.proposals.until_wall = min(self.proposals.until_wall, self.sure_wall)
            return False
        if task not in self.unsure:
            self.unsure.append(task)
        if len(self.unsure) == 1:
            self.confirm()
        return True

    # --- what is on its way --------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def last_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """The last sequence proposed on a literal subject and not applied; 0 for none."""
        if not self.lasts:
            return 0
        return self.lasts.get(PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n), 0)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Messages proposed on a literal subject and not applied."""
        if not self.counts:
            return 0
        return self.counts.get(PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n), 0)

    def last_matching(self, pattern: bytes) -> int:
        """The last sequence proposed on subjects that match, and not applied; 0 for none."""
        found: cython.ulonglong = 0
        text: bytes
        for text, sequence in self.lasts.items():
            if sequence > found and subject_matches(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(pattern)),
                PyBytes_GET_SIZE(pattern),
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text)),
                PyBytes_GET_SIZE(text),
            ):
                found = sequence
        return found

    def body_of(self, subject: bytes) -> tuple | None:
        """Headers and payload of the last message proposed on a counter's subject."""
        return self.bodies.get(subject)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def applied(
        self,
        subject: cython.p_const_uchar,
        n: cython.Py_ssize_t,
        sequence: cython.ulonglong,
        cost: cython.ulonglong,
    ) -> cython.int:
        """A message that was proposed is in the store."""
        text: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, subject), n)
        left: cython.longlong = self.counts.get(text, 0) - 1
        if left > 0:
            self.counts[text] = left
        else:
            self.counts.pop(text, None)
        if self.lasts.get(text) == sequence:
            del self.lasts[text]
            self.bodies.pop(text, None)
        self.messages -= 1
        self.stored_bytes -= min(cost, self.stored_bytes)
        return 0

    def entry_applied(self) -> None:
        """The oldest entry that was proposed is applied."""
        self.done += 1
        if self.sizes:
            self.flying -= self.sizes.popleft()
        self.waiters.release(self.done)
        if self.gate.waiters and self.flying + self.used <= FLYING_MAX // 2:
            self.kernel.resume_producers(self.gate)

    @cython.cfunc
    def full_gate(self) -> Endpoint:
        """Where producers wait for room: while too much is on its way, or while this node's log has
        more than its device keeps up with. It takes entries further than messages, but not for
        ever, and then nothing of any stream. None: there is room."""
        if self.flying + self.used > FLYING_MAX:
            return self.gate
        return self.log.gate if self.log.is_congested() else None

    @property
    def idle(self) -> bool:
        """Whether everything that was decided is applied."""
        return self.used == 0 and self.done + 1 == self.turn

    def close(self) -> None:
        """This node leads no more: what is not applied may or may not be committed, and nobody
        is told anything about it."""
        if self.closed:
            return
        self.closed = True
        self.used = 0
        for future in list(self.futures):
            if not future.done():
                future.set_exception(StoreClosed("this node leads the stream no more"))
        self.kernel.resume_producers(self.gate)
