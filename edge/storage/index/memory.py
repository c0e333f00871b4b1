"""The memory store: bodies in slabs that go away as their messages do.

Small bodies share slabs of 64 KiB; a slab that is mostly dead is emptied into the newest one, so
that a few old messages cannot keep much memory. Large bodies get an allocation each. Everything
is durable at once, as far as memory can be.
"""

import cython
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.storage.index.index import IndexEntry
from cython.cimports.headwater.edge.storage.index.store import MessageStore, Record
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy, memset
from cython.cimports.posix.stdlib import posix_memalign

SLAB_BYTES = cython.declare(cython.uint, 65536)
# Larger bodies are allocated by themselves, so that a slab's unused end stays small.
SHARED_MAX = cython.declare(cython.Py_ssize_t, 8192)
LARGE = cython.declare(cython.uint, 2)
# A slab with no more than this part alive (1/4) is emptied: moving costs less than it frees.
ALIVE_SHIFT = cython.declare(cython.uint, 2)


@cython.cclass
class MemoryStore(MessageStore):
    """Messages of one stream, in memory only."""

    def __cinit__(self, *args, **kwargs):
        self.overhead = 16

    def __dealloc__(self):
        self.free_all()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_all(self) -> cython.int:
        """Free every body; the index must not be used for bodies afterwards."""
        sequence: cython.ulonglong = self.next_alive(self.first_seq)
        entry: cython.pointer(cython.const[IndexEntry])
        slab: cython.pointer(Slab) = self.active
        while sequence:
            entry = self.entry(sequence)
            if entry.flags & LARGE:
                free(cython.cast(cython.p_void, entry.location))
            sequence = self.next_alive(sequence + 1)
        while slab != cython.NULL:
            self.active = slab.before
            free(slab)
            slab = self.active
        return 0

    @cython.cfunc
    def new_slab(self) -> cython.pointer(Slab):
        """A new active slab."""
        block: cython.p_void = cython.NULL
        slab: cython.pointer(Slab)
        if posix_memalign(cython.address(block), SLAB_BYTES, SLAB_BYTES) != 0:
            raise MemoryError
        slab = cython.cast(cython.pointer(Slab), block)
        slab.used = cython.sizeof(Slab)
        slab.dead = 0
        slab.after = cython.NULL
        slab.before = self.active
        if self.active != cython.NULL:
            self.active.after = slab
        self.active = slab
        return slab

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop_slab(self, slab: cython.pointer(Slab)) -> cython.int:
        """Take a slab, which is not the active one, out and free it."""
        if slab.before != cython.NULL:
            slab.before.after = slab.after
        slab.after.before = slab.before
        free(slab)
        return 0

    @cython.cfunc
    def allocate(
        self, sequence: cython.ulonglong, size: cython.Py_ssize_t, flags: cython.p_uint
    ) -> cython.p_uchar:
        """Room for a body of `size` bytes."""
        slab: cython.pointer(Slab) = self.active
        item: cython.pointer(Item)
        need: cython.uint
        room: cython.p_uchar
        if size > SHARED_MAX:
            room = cython.cast(cython.p_uchar, malloc(size))
            if room == cython.NULL:
                raise MemoryError
            flags[0] = LARGE
            return room
        need = cython.cast(cython.uint, (size + cython.sizeof(Item) + 3) & ~3)
        if slab == cython.NULL or slab.used + need > SLAB_BYTES:
            slab = self.new_slab()
        item = cython.cast(cython.pointer(Item), cython.cast(cython.p_uchar, slab) + slab.used)
        item.low = cython.cast(cython.uint, sequence)
        item.high = cython.cast(cython.uint, sequence >> 32)
        item.size = cython.cast(cython.uint, size)
        slab.used += need
        flags[0] = 0
        return cython.cast(cython.p_uchar, item) + cython.sizeof(Item)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def append(
        self, m: cython.pointer(Msg), timestamp: cython.longlong, sequence: cython.ulonglong
    ) -> cython.ulonglong:
        """Store a message; see MessageStore.append. It is committed when this returns."""
        subject: cython.uint
        entry: cython.pointer(IndexEntry)
        room: cython.p_uchar
        self.check_append(m, sequence)
        if sequence == 0:
            sequence = self.last_seq + 1
        subject = self.names.intern(m.subject, m.subject_len)
        try:
            entry = self.prepare(sequence)
            room = self.allocate(sequence, m.size, cython.address(entry.flags))
        except BaseException:
            if self.names.items[subject].count == 0:
                self.names.free_number(subject)
            raise
        memcpy(room, m.body, m.size)
        entry.location = cython.cast(cython.ulonglong, room)
        entry.timestamp = max(timestamp, self.last_ts)
        entry.size = cython.cast(cython.uint, m.size)
        entry.header_len = cython.cast(cython.uint, m.header_len)
        self.usage.bytes += self.cost(subject, entry)
        self.add(sequence, subject, entry)
        self.committed = sequence
        self.scheduled_listener()
        return sequence

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def load_body(
        self,
        sequence: cython.ulonglong,
        entry: cython.pointer(cython.const[IndexEntry]),
        out: cython.pointer(Record),
    ) -> cython.int:
        out.body = cython.cast(cython.p_const_uchar, entry.location)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def before_erase(self, sequence: cython.ulonglong) -> cython.int:
        entry: cython.pointer(cython.const[IndexEntry]) = self.at(sequence)
        memset(cython.cast(cython.p_void, entry.location), 0, entry.size)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def free_location(self, entry: cython.pointer(cython.const[IndexEntry])) -> cython.int:
        """Free a body, and its slab when little else of it is alive."""
        slab: cython.pointer(Slab)
        if entry.flags & LARGE:
            free(cython.cast(cython.p_void, entry.location))
            # Nothing of this store is packed, so this is the entry itself.
            cython.cast(cython.pointer(IndexEntry), entry).flags = 0
            return 0
        slab = cython.cast(
            cython.pointer(Slab),
            entry.location & ~cython.cast(cython.ulonglong, SLAB_BYTES - 1),
        )
        slab.dead += (entry.size + cython.sizeof(Item) + 3) & ~3
        if slab == self.active:
            if slab.dead + cython.sizeof(Slab) == slab.used:
                slab.used = cython.sizeof(Slab)
                slab.dead = 0
        elif slab.used - slab.dead <= SLAB_BYTES >> ALIVE_SHIFT:
            cython.cast(cython.pointer(IndexEntry), entry).location = 0
            self.evacuate(slab)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def evacuate(self, slab: cython.pointer(Slab)) -> cython.int:
        """Move what is alive to the active slab and free this one."""
        at: cython.uint = cython.sizeof(Slab)
        item: cython.pointer(Item)
        body: cython.p_uchar
        room: cython.p_uchar
        found: cython.pointer(cython.const[IndexEntry])
        entry: cython.pointer(IndexEntry)
        sequence: cython.ulonglong
        while at < slab.used:
            item = cython.cast(cython.pointer(Item), cython.cast(cython.p_uchar, slab) + at)
            body = cython.cast(cython.p_uchar, item) + cython.sizeof(Item)
            sequence = (cython.cast(cython.ulonglong, item.high) << 32) | item.low
            found = self.at(sequence)
            if found != cython.NULL and found.location == cython.cast(cython.ulonglong, body):
                entry = self.opened(sequence)
                room = self.allocate(sequence, item.size, cython.address(entry.flags))
                memcpy(room, body, item.size)
                entry.location = cython.cast(cython.ulonglong, room)
            at += (item.size + cython.sizeof(Item) + 3) & ~3
        return self.drop_slab(slab)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def move_to(self, first: cython.ulonglong, last: cython.ulonglong) -> cython.int:
        self.free_all()
        self.usage.bytes -= self.bytes
        self.clear(first)
        self.committed = last
        self.scheduled_listener()
        return 0

    def skip_to(self, sequence: int) -> None:
        self.last_seq = sequence
        self.committed = sequence

    def close(self) -> None:
        """Refuse further appends and give all memory back."""
        if not self.closed:
            self.closed = True
            self.free_all()
            self.usage.bytes -= self.bytes
            self.clear(self.last_seq + 1)
