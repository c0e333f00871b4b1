"""How far the log and every stream had come when something was acknowledged last.

It is a small file beside the log that is written whenever acknowledgements go out, and never
synced. What the end of the process alone leaves is exact, so a start sees what a damaged page at
the end of the log has taken, and can name it. After a power cut it may be older than the log, and
then it says less, but nothing that is not true.
"""

import logging
from contextlib import suppress
from pathlib import Path

import cython
from cython.cimports.headwater.edge.storage.device.file_calls import write_some
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.libc.stdlib import free, realloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.ports import files

NAME = "tidemarks"
WATERMARK_BYTES = cython.declare(cython.Py_ssize_t, 32)
CRC_AT = cython.declare(cython.Py_ssize_t, 28)
# The first watermarks are those of the log: synced, and written.
FIRST = cython.declare(cython.uint, 2)
SYNCED = cython.declare(cython.uint, 1)
# Streams beyond this many have no watermark; the file grows by so many.
WATERMARKS_MAX = cython.declare(cython.uint, 1 << 16)
GROWTH = cython.declare(cython.uint, 128)

log = logging.getLogger("headwater.storage")


@cython.cclass
class Watermarks:
    """One watermark per stream. Without the file it does nothing."""

    def __init__(self) -> None:
        self.fd = -1
        self.found = {}
        self.positions = [(0, 0, 0), (0, 0, 0)]
        self.free = []
        self.rows = {}
        self.used = FIRST

    def __dealloc__(self):
        free(self.watermarks)

    def open(self, root: Path, seed: int) -> None:
        """Read what is there; what does not verify says nothing. Raises OSError."""
        watermark: cython.pointer(Watermark)
        row: cython.uint
        self.path = root / NAME
        self.seed = seed
        content: bytes = files.read_file(self.path)[0] if self.path.exists() else b""
        self.fd = files.open_file(self.path, files.WRITE)
        self.grow(max(len(content) // WATERMARK_BYTES, GROWTH), len(content))
        if content:
            memcpy(
                self.watermarks,
                cython.cast(cython.p_char, content),
                min(len(content), self.bytes()),
            )
        for row in range(self.capacity):
            watermark = cython.address(self.watermarks[row])
            if watermark.crc != self.crc_of(row) or not watermark.value:
                memset(watermark, 0, WATERMARK_BYTES)
            elif row < FIRST:
                self.positions[row] = (watermark.segment, watermark.end, watermark.value)
            elif watermark.stream and watermark.stream not in self.found:
                self.found[watermark.stream] = (watermark.value, bool(watermark.flags & SYNCED))
                self.rows[watermark.stream] = row
                self.used = row + 1
        self.free = [n for n in range(FIRST, self.used) if not self.watermarks[n].value]
        self.low = self.capacity

    def bytes(self) -> int:
        """Of the file."""
        return self.capacity * WATERMARK_BYTES

    def grow(self, capacity: cython.uint, size: cython.Py_ssize_t) -> None:
        """Have room for more watermarks; the file has `size` bytes. Raises OSError."""
        grown: cython.p_void
        capacity = min(capacity, WATERMARKS_MAX)
        if capacity * WATERMARK_BYTES > size:
            files.write_all(self.fd, bytes(capacity * WATERMARK_BYTES - size), size)
        grown = realloc(self.watermarks, capacity * WATERMARK_BYTES)
        if grown == cython.NULL:
            raise MemoryError
        self.watermarks = cython.cast(cython.pointer(Watermark), grown)
        memset(self.watermarks + self.capacity, 0, (capacity - self.capacity) * WATERMARK_BYTES)
        self.capacity = capacity

    def sure(self, stream: int, exact: bool) -> int:
        """The sequence up to which messages of a stream were acknowledged; 0 when nothing tells.
        `exact`: nothing but the process has ended since that was written."""
        last, synced = self.found.get(stream, (0, False))
        return last if exact or synced else 0

    def position(self, exact: bool) -> tuple[int, int, int]:
        """Segment, end and number of the last batch of the log of which the same is true."""
        return max(self.positions) if exact else self.positions[0]

    def add(self, store: LoggedStore) -> None:
        """Give a stream a watermark, the one that it has in the file or a free one."""
        if self.fd < 0 or store.watermark:
            return
        if store.stream_id in self.rows:
            store.watermark = self.rows[store.stream_id]
            return
        if self.free:
            store.watermark = self.free.pop()
            return
        if self.used == self.capacity:
            try:
                self.grow(self.capacity + GROWTH, self.bytes())
            except OSError as error:
                log.debug("no watermark for stream %x: %s", store.stream_id, error)
                return
            if self.used == self.capacity:
                return
        store.watermark = self.used
        self.used += 1

    def drop(self, store: LoggedStore) -> None:
        """A stream is gone."""
        if store.watermark and self.fd >= 0:
            self.set(store.watermark, 0, 0, 0, 0, 0)
            self.free.append(store.watermark)
            self.rows.pop(store.stream_id, None)
        store.watermark = 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def crc_of(self, row: cython.uint) -> cython.uint:
        return crc32c(
            self.seed + row,
            cython.cast(cython.p_const_uchar, cython.address(self.watermarks[row])),
            CRC_AT,
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def set(
        self,
        row: cython.uint,
        stream: cython.ulonglong,
        value: cython.ulonglong,
        segment: cython.uint,
        end: cython.uint,
        flags: cython.uint,
    ) -> cython.int:
        watermark: cython.pointer(Watermark)
        if row >= self.capacity:
            return 0
        watermark = cython.address(self.watermarks[row])
        watermark.stream = stream
        watermark.value = value
        watermark.segment = segment
        watermark.end = end
        watermark.flags = flags
        watermark.crc = self.crc_of(row)
        self.low = min(self.low, row)
        self.high = max(self.high, row + 1)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def raise_to(
        self, store: LoggedStore, last: cython.ulonglong, synced: cython.bint
    ) -> cython.int:
        """Messages up to `last` are synced or written, and may be acknowledged."""
        watermark: cython.pointer(Watermark)
        if store.watermark == 0 or self.fd < 0:
            return 0
        watermark = cython.address(self.watermarks[store.watermark])
        if watermark.stream == store.stream_id and last < watermark.value:
            return 0
        return self.set(store.watermark, store.stream_id, last, 0, 0, SYNCED if synced else 0)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def reach(
        self,
        segment: cython.uint,
        end: cython.Py_ssize_t,
        batch: cython.ulonglong,
        synced: cython.bint,
    ) -> cython.int:
        """The log is synced or written up to the end of a batch."""
        if self.fd >= 0:
            self.set(0 if synced else 1, 0, batch, segment, cython.cast(cython.uint, end), 0)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flush(self) -> cython.int:
        """Write what changed."""
        n: cython.Py_ssize_t
        length: cython.Py_ssize_t
        if self.low >= self.high or self.fd < 0:
            return 0
        length = (self.high - self.low) * WATERMARK_BYTES
        n = write_some(
            self.fd,
            cython.cast(cython.p_const_uchar, self.watermarks + self.low),
            length,
            self.low * WATERMARK_BYTES,
        )
        if n != length:
            log.warning(
                "%s cannot be written (error %d): what a damaged end of the log takes is not named",
                self.path,
                -n,
            )
            self.give_up()
        self.low = self.capacity
        self.high = 0
        return 0

    def give_up(self) -> None:
        """What is there is out of date from now on."""
        self.close()
        with suppress(OSError):
            files.remove(self.path, True)

    def close(self, sync: bool = False) -> None:
        """Write no more; `sync`: the node stops in order."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            try:
                if sync:
                    files.sync(fd)
            except OSError as error:
                log.debug("tidemarks are not synced: %s", error)
            finally:
                files.close(fd)
