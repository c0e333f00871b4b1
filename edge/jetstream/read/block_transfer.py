"""One answer to a block read: messages of a stream as columns, many in one message.

A block is, little-endian, each part padded to 8 bytes:

    4  b"HWB1"
    4  columns: 1 subjects, 2 payloads, 4 header blocks
    4  rows
    4  flags: 1 says that the answer ends with this block
    8  next: every wanted message below this sequence was sent
    8  sequences (int64 each), then times (int64 each, ns since the epoch)
       for each column: offsets (int32, rows + 1 of them), then the bytes

The first 32 bytes are the head. These are the buffers of Apache Arrow's columnar format, so that
a reader uses them where they are. No message becomes an object here: records are copied from
the store's own bytes into columns.

As a task it copies at most STEP_BYTES or STEP_ROWS in one turn and looks at SCAN_MAX sequences.
It waits while its receiver is slow, and ends when nobody listens any more.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg, Task
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.libc.stdint import int32_t
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.format.errors import Damaged, broken

HEAD_BYTES = cython.declare(cython.Py_ssize_t, 32)
# What one turn copies and looks at, so that it holds the loop for well under a millisecond.
STEP_BYTES = cython.declare(cython.Py_ssize_t, 128 << 10)
STEP_ROWS = cython.declare(cython.int, 1024)
SCAN_MAX = cython.declare(cython.ulonglong, 1 << 16)

# Runs: two of fixed width, then offsets and bytes of each column.
SEQUENCE = cython.declare(cython.int, 0)
TIME = cython.declare(cython.int, 1)
SUBJECT = cython.declare(cython.int, 2)
PAYLOAD = cython.declare(cython.int, 4)
HEADER = cython.declare(cython.int, 6)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def padded(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    return (size + 7) & ~7


@cython.final
@cython.cclass
class BlockTransfer(Task):
    """Sends the messages `start` to `end` that pass `filter`, at most about `max_bytes` of them.

    `columns` is the sum of the bits of the wanted columns. `on_end()` is called once, when nothing
    more will be sent.
    """

    def __init__(
        self,
        stream: Stream,
        reply: bytes,
        filter: object,
        start: int,
        end: int,
        columns: int,
        block_bytes: int,
        max_bytes: int,
        on_end: object,
    ):
        self.stream = stream
        self.store = stream.store
        self.account = stream.account
        self.kernel = stream.kernel
        self.reply = reply
        self.filter = filter
        self.at = max(start, 1)
        self.end = end
        self.columns = columns
        self.block_bytes = block_bytes
        self.left = max_bytes
        self.on_end = on_end
        self.begin()

    def __dealloc__(self):
        i: cython.int
        for i in range(RUNS):
            free(self.runs[i].data)

    def start(self) -> None:
        """Begin to send."""
        self.kernel.schedule(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """Do a part of the work, unless the receiver is slow."""
        if self.done:
            return 0
        if self.stream.deleted:
            return self.finish()
        if self.waiting_for is not None:
            if self in self.waiting_for.waiters and not self.waiting_for.closed:
                return 0
            self.waiting_for = None
        try:
            self.step()
        except BaseException:
            self.finish()
            raise
        if self.done:
            return 0
        if self.kernel.congested is not None:
            self.waiting_for = self.kernel.congested
            self.kernel.congested = None
            self.waiting_for.waiters.append(self)
            return 0
        return self.kernel.schedule_later(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def step(self) -> cython.int:
        """Copy what one turn may; send the block when it is full, or the last one. Raises
        InvariantBroken."""
        record: Record
        sequence: cython.ulonglong
        need: cython.Py_ssize_t
        loaded: cython.int
        count: cython.int = 0
        copied: cython.Py_ssize_t = 0
        stop: cython.ulonglong = min(self.end, self.store.committed)
        limit: cython.ulonglong = min(stop, self.at + SCAN_MAX - 1)
        self.kernel.congested = None
        if self.store.committed > self.store.last_seq:
            # Whoever reads on from there would never see what is stored meanwhile.
            broken(
                f"a block of stream '{self.stream.name}' would reach {self.store.committed}, and "
                f"the stream ends at {self.store.last_seq}"
            )
        while count < STEP_ROWS and copied < STEP_BYTES and self.at <= limit:
            if self.filter is None:
                sequence = self.store.next_alive(self.at)
            else:
                sequence = self.filter.next_until(self.at, limit)
            if sequence == 0 or sequence > limit:
                self.at = limit + 1
                break
            count += 1
            loaded = 0
            try:
                loaded = self.store.load(sequence, cython.address(record))
            except Damaged:
                loaded = 0  # the store has reported it
            if not loaded:
                self.at = sequence + 1
                continue
            need = self.cost(record.subject_len, record.header_len, record.size)
            if self.rows and self.used + need > self.block_bytes:
                # A last block of a few rows would cost its reader as much as a full one.
                return self.send(self.left < self.used // 2)
            self.add(cython.address(record))
            self.left -= need
            copied += need
            self.at = sequence + 1
        if self.at > stop or self.left <= 0:
            return self.send(True)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def cost(
        self,
        subject: cython.Py_ssize_t,
        headers: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Bytes that a message takes in a block."""
        need: cython.Py_ssize_t = 16
        if self.columns & SUBJECTS:
            need += 4 + subject
        if self.columns & PAYLOADS:
            need += 4 + size - headers
        if self.columns & HEADERS:
            need += 4 + headers
        return need

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(self, record: cython.pointer(Record)) -> cython.int:
        """Append one row."""
        body: cython.p_const_uchar = record.body
        self.put(SEQUENCE, cython.cast(cython.p_const_uchar, cython.address(record.sequence)), 8)
        self.put(TIME, cython.cast(cython.p_const_uchar, cython.address(record.timestamp)), 8)
        if self.columns & SUBJECTS:
            self.put_text(SUBJECT, record.subject, record.subject_len)
        if self.columns & PAYLOADS:
            self.put_text(PAYLOAD, body + record.header_len, record.size - record.header_len)
        if self.columns & HEADERS:
            self.put_text(HEADER, body, record.header_len)
        self.rows += 1
        self.used += self.cost(record.subject_len, record.header_len, record.size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put(
        self, column: cython.int, data: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.int:
        run: cython.pointer(Run) = cython.address(self.runs[column])
        if run.used + size > run.capacity:
            self.grow(run, run.used + size)
        memcpy(run.data + run.used, data, size)
        run.used += size
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def grow(self, run: cython.pointer(Run), need: cython.Py_ssize_t) -> cython.int:
        """Make room for `need` bytes in all. Raises MemoryError."""
        capacity: cython.Py_ssize_t = max(run.capacity * 2, need, 4096)
        grown: cython.p_void = realloc(run.data, capacity)
        if grown == cython.NULL:
            raise MemoryError
        run.data = cython.cast(cython.p_uchar, grown)
        run.capacity = capacity
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def put_text(
        self, column: cython.int, data: cython.p_const_uchar, size: cython.Py_ssize_t
    ) -> cython.int:
        """Append to a column of texts: its bytes, and where they end."""
        end: int32_t
        self.put(column + 1, data, size)
        end = cython.cast(int32_t, self.runs[column + 1].used)
        return self.put(
            column, cython.cast(cython.p_const_uchar, cython.address(end)), cython.sizeof(int32_t)
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def begin(self) -> cython.int:
        """Begin an empty block."""
        i: cython.int
        zero: int32_t = 0
        for i in range(RUNS):
            self.runs[i].used = 0
        for i in range(3):
            if self.columns & (1 << i):
                self.put(
                    SUBJECT + 2 * i,
                    cython.cast(cython.p_const_uchar, cython.address(zero)),
                    cython.sizeof(int32_t),
                )
        self.rows = 0
        self.used = HEAD_BYTES
        return 0

    @cython.cfunc
    def pack(self, last: cython.bint) -> bytes:
        """The block as it goes over the wire."""
        i: cython.int
        size: cython.Py_ssize_t = HEAD_BYTES
        block: bytes
        out: cython.p_char
        flags: cython.uint = LAST if last else 0
        for i in range(RUNS):
            size += padded(self.runs[i].used)
        block = PyBytes_FromStringAndSize(cython.NULL, size)
        out = PyBytes_AS_STRING(block)
        memcpy(out, cython.cast(cython.p_const_char, b"HWB1"), 4)
        memcpy(out + 4, cython.address(self.columns), 4)
        memcpy(out + 8, cython.address(self.rows), 4)
        memcpy(out + 12, cython.address(flags), 4)
        memcpy(out + 16, cython.address(self.at), 8)
        memset(out + 24, 0, 8)
        out += HEAD_BYTES
        for i in range(RUNS):
            size = self.runs[i].used
            if size:
                memcpy(out, self.runs[i].data, size)
                memset(out + size, 0, padded(size) - size)
                out += padded(size)
        return block

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def send(self, last: cython.bint) -> cython.int:
        """Send the block. Whoever asked may have gone: then this was the last one."""
        m: Msg
        block: bytes = self.pack(last)
        memset(cython.address(m), 0, cython.sizeof(Msg))
        m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.reply))
        m.subject_len = PyBytes_GET_SIZE(self.reply)
        m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
        m.size = PyBytes_GET_SIZE(block)
        m.via = MADE
        if self.account.publish(cython.address(m), None) == 0 or last:
            return self.finish()
        return self.begin()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(self) -> cython.int:
        """Send nothing more."""
        if not self.done:
            self.done = True
            self.on_end()
        return 0
