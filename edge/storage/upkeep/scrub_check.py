"""Verifies records in bytes read from a segment or log slot, without the GIL."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.storage.format.record import (
    HEADER_BYTES,
    RecordHeader,
    body_ok,
    header_ok,
    record_size,
)

# Bad places that one call tells; more are found by going on from where it ended.
FOUND_MAX = cython.declare(cython.int, 64)
ANY_ROOM = cython.declare(cython.Py_ssize_t, 1 << 40)


@cython.cclass
class RecordCheck:
    """Goes through the records of one file; `bad` collects (offset, end, kind, sequence), with
    kind 0 where not even a header verifies."""

    seed: cython.uint
    number: cython.uint
    start: cython.Py_ssize_t[64]
    end: cython.Py_ssize_t[64]
    kind: cython.int[64]
    sequence: cython.ulonglong[64]
    count: cython.int
    bad: list

    def __init__(self, seed: int, number: int):
        self.seed = seed
        self.number = number
        self.bad = []

    def found(self) -> list:
        """What is wrong so far; neighbours without a header are one."""
        return self.bad

    def part(self, data: bytes, offset: cython.Py_ssize_t, last: cython.bint) -> int:
        """Check `data`, which stands at `offset` of the file; returns how much of it is done. The
        rest is the begin of a record that goes on behind, none when this is the `last` part."""
        at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
        length: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
        done: cython.Py_ssize_t = 0
        before: cython.Py_ssize_t = -1
        while before != done and done < length:
            before = done
            self.count = 0
            with cython.nogil:
                done = self.run(at, length, done, offset, last)
            self.drain_run()
        return done

    def drain_run(self) -> None:
        """Move what one run found to `bad`."""
        i: cython.int
        for i in range(self.count):
            row = (self.start[i], self.end[i], self.kind[i], self.sequence[i])
            if self.bad and row[2] == 0:
                known = self.bad[len(self.bad) - 1]
                if known[2] == 0 and known[1] == row[0]:
                    self.bad[len(self.bad) - 1] = (known[0], row[1], 0, 0)
                    continue
            self.bad.append(row)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def run(
        self,
        data: cython.p_const_uchar,
        length: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        offset: cython.Py_ssize_t,
        last: cython.bint,
    ) -> cython.Py_ssize_t:
        """Go on until the part ends or FOUND_MAX places are bad; returns where."""
        header: cython.pointer(RecordHeader)
        begin: cython.Py_ssize_t
        size: cython.Py_ssize_t
        while at < length and self.count < FOUND_MAX:
            if length - at < HEADER_BYTES and not last:
                return at
            if self.header_at(data, length, at, offset):
                header = cython.cast(cython.pointer(RecordHeader), data + at)
                size = record_size(header.length)
                if size <= length - at:
                    if not body_ok(data + at):
                        self.add_finding(offset + at, size, header.kind, header.sequence)
                    at += size
                    continue
                if not last:
                    return at
            begin = at
            at += 8
            while at + HEADER_BYTES <= length and not self.header_at(data, length, at, offset):
                at += 8
            if at + HEADER_BYTES > length and last:
                at = length
            self.add_finding(offset + begin, at - begin, 0, 0)
        return at

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def header_at(
        self,
        data: cython.p_const_uchar,
        length: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        offset: cython.Py_ssize_t,
    ) -> cython.bint:
        if length - at < HEADER_BYTES:
            return False
        return header_ok(
            data + at, ANY_ROOM, self.seed, self.number, cython.cast(cython.uint, offset + at)
        )

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def add_finding(
        self,
        start: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        kind: cython.int,
        sequence: cython.ulonglong,
    ) -> cython.void:
        self.start[self.count] = start
        self.end[self.count] = start + size
        self.kind[self.count] = kind
        self.sequence[self.count] = sequence
        self.count += 1
