"""What the commit log needs of the stores that write to it."""

import logging

import cython
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.storage.format.record import (
    FLAG_COMPRESSED,
    FLAG_SEALED,
    HEADER_BYTES,
    RecordHeader,
)
from cython.cimports.headwater.edge.storage.index.index import IndexEntry
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.format.errors import InvariantBroken, broken

log = logging.getLogger("headwater.storage")

NO_RESERVATION = cython.declare(cython.ulonglong, cython.cast(cython.ulonglong, -1))


@cython.cclass
class LoggedStore(MessageStore):
    """A store whose messages go through the commit log."""

    def __cinit__(self, *args, **kwargs):
        self.reserved_to = self.reserve_at = NO_RESERVATION

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rise(self) -> cython.int:
        """Commit what is written, as far as the reservation and the stream's durability permit."""
        top: cython.ulonglong = min(self.reached, self.reserved_to)
        if self.acks_written and top > self.committed:
            self.committed = top
            self.scheduled_listener()
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def may_reach(self, last: cython.ulonglong) -> cython.bint:
        """Whether messages up to `last` can be safe: not when the stream ends before. Then nothing
        of it is acknowledged, or written down as such, and it takes no more messages."""
        if last <= self.last_seq:
            return True
        if not isinstance(self.failure, InvariantBroken):
            try:
                broken(f"the log has sequence {last} of a stream that ends at {self.last_seq}")
            except InvariantBroken as error:
                self.failure = error
            log.error(
                "the stream in %s takes no more messages: %s; what it has is kept: back it up, and "
                "start the node again",
                self.directory,
                self.failure,
            )
            self.scheduled_listener()
        return False

    def lift(self, reserved_to: int) -> None:
        """Sequences up to `reserved_to` are reserved."""
        if self.reserved_to != NO_RESERVATION and reserved_to > self.reserved_to:
            self.reserved_to = reserved_to
            self.rise()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def body_size(self, m: cython.pointer(Msg)) -> cython.Py_ssize_t:
        """Bytes that the body of a message's record will take; `write_body` follows."""
        if self.packer.packs:
            return self.packer.prepare(m)
        return m.subject_len + m.size

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def write_body(
        self, header: cython.pointer(RecordHeader), m: cython.pointer(Msg)
    ) -> cython.int:
        """Put the body behind a header whose other fields are set."""
        at: cython.p_uchar = cython.cast(cython.p_uchar, header) + HEADER_BYTES
        if self.packer.packs:
            return self.packer.fill(header, m)
        memcpy(at, m.subject, m.subject_len)
        memcpy(at + m.subject_len, m.body, m.size)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def body_length(self, entry: cython.pointer(cython.const[IndexEntry])) -> cython.Py_ssize_t:
        """Bytes that the body of a stored message's record has."""
        packed: cython.Py_ssize_t = entry.flags >> 1
        if packed:
            return packed
        return cython.cast(cython.Py_ssize_t, entry.size) + self.names.items[entry.subject].size

    @cython.cfunc
    def plain_body(self, record: cython.p_const_uchar) -> cython.p_const_uchar:
        """Subject, headers and payload of a verified record, until the next call; NULL when it
        does not open."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        if not header.flags & (FLAG_SEALED | FLAG_COMPRESSED):
            return record + HEADER_BYTES
        if not self.packer.open(record):
            return cython.NULL
        return self.packer.plain

    @cython.cfunc
    @cython.exceptval(check=False)
    def plain_size(self, record: cython.p_const_uchar) -> cython.Py_ssize_t:
        """Bytes of what `plain_body` just returned."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        if not header.flags & (FLAG_SEALED | FLAG_COMPRESSED):
            return header.length
        return self.packer.plain_length

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def flush_turn(self) -> cython.int:
        """Write what was collected during the turn (removals) to the log."""
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def before_erase(self, sequence: cython.ulonglong) -> cython.int:
        if self.on_erase is not None:
            self.on_erase(self, sequence)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def moved(
        self, sequence: cython.ulonglong, old: cython.ulonglong, new: cython.ulonglong
    ) -> cython.int:
        """The log wrote a record again; 1 when the message is still wanted at its old address."""
        return 0
