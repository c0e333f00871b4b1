"""Files as a port: whatever the store does to a file goes through a path's methods or through the
functions here, never through `os` or `shutil`.

A path is a `pathlib.Path`, or a `TwinPath` of `headwater.edge.twins`, which has the same methods
and lives in memory. Names are looked up by methods of paths (`exists`, `is_dir`, `iterdir`, `glob`,
`stat`, `read_bytes`, `open("rb")`);
everything else is a function here that takes a path or a descriptor. All raise OSError. What
changes how much a directory takes (`remove`, `rename`, `new_directory`, writes) tells its
allocation.

A descriptor below FIRST_TWIN is the operating system's, and compiled code may use it without the
GIL. One at or above it belongs to a twin: compiled code calls `read_at`, `write_at`, `sync_data`.
"""

import errno
import fcntl
import os
import struct
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from headwater.edge.ports.allocation import Allocation, blocks_of

FIRST_TWIN = 1 << 30
FLAGS = struct.Struct("l")
"""Flags of a file, as ioctl_iflags(2) has them."""
GET_FLAGS = 2 << 30 | FLAGS.size << 16 | 0x6601
SET_FLAGS = 1 << 30 | FLAGS.size << 16 | 0x6602
NO_COW = 0x00800000
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
READ_ONLY = os.O_RDONLY
WRITE = os.O_RDWR | os.O_CREAT
"""Make the file when it is not there."""
REPLACE = os.O_RDWR | os.O_CREAT | os.O_TRUNC
EXISTING = os.O_RDWR
UNKNOWN_ROOM = 1 << 60
"""Of a file system that a sandbox hides: a write says when it is full."""
BLOCK = 4096
"""What a device reads, or cannot read, as a whole."""
NO_SUCH_CALL = (errno.ENOSYS, errno.EPERM)
ZEROS = 1 << 20
"""Bytes written at once where room cannot be taken otherwise."""
UNREADABLE = b"\xee"


class OpenTwin(Protocol):
    """What a twin's descriptor stands for."""

    written: tuple[Allocation, Path] | None
    """The allocation that hears of changes, and the name that it knows."""

    def read(self, length: int, offset: int) -> bytes:
        """At most `length` bytes; none at the end."""

    def write(self, data: bytes, offset: int) -> int:
        """How many bytes were written; may be fewer than given."""

    def sync(self) -> None:
        """Make content, or the names of a directory, durable."""

    def truncate(self, size: int) -> None:
        """Cut off, or extend with zeros."""

    def allocate(self, size: int) -> None:
        """Have room for `size` bytes."""

    def size(self) -> int:
        """Bytes."""

    def lock(self) -> None:
        """Raises BlockingIOError when somebody else has the lock."""

    def close(self) -> None:
        """The descriptor is gone."""


_allocations: WeakValueDictionary[tuple[int, str], Allocation] = WeakValueDictionary()
_written: dict[int, tuple[Allocation, Path]] = {}
# Of disks that nobody has any more, nothing is kept here.
_twins: WeakValueDictionary[int, OpenTwin] = WeakValueDictionary()
_numbers = count(FIRST_TWIN)


def register(twin: OpenTwin) -> int:
    """A descriptor for an open file of a twin, which keeps `twin` as long as it is open."""
    fd = FIRST_TWIN + (next(_numbers) - FIRST_TWIN) % FIRST_TWIN
    _twins[fd] = twin
    return fd


def forget(fd: int) -> None:
    """The twin closed a descriptor by itself, as a power cut does."""
    _twins.pop(fd, None)


def _twin(fd: int) -> OpenTwin:
    try:
        return _twins[fd]
    except KeyError:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None


def track_allocation(allocation: Allocation) -> None:
    """Tell an allocation of every change below its directory from now on, instead of an earlier
    one."""
    _allocations[_key(allocation.root)] = allocation
    allocation.scan(allocation.root)


def forget_allocation(allocation: Allocation) -> None:
    """Nobody asks any more what a directory takes."""
    if _allocations.get(_key(allocation.root)) is allocation:
        del _allocations[_key(allocation.root)]


def _key(path: Path) -> tuple[int, str]:
    return id(getattr(path, "disk", None)), str(path)


def _allocation_of(path: Path) -> Allocation | None:
    disk, name = _key(path)
    while name:
        allocation = _allocations.get((disk, name))
        if allocation is not None:
            return allocation
        name = name.rpartition("/")[0]
    return None


def _measure(path: Path) -> None:
    allocation = _allocation_of(path)
    if allocation is not None:
        allocation.measure(path)


def _known(fd: int) -> tuple[Allocation, Path] | None:
    if fd < FIRST_TWIN:
        return _written.get(fd)
    twin = _twins.get(fd)
    return None if twin is None else twin.written


def _measure_open(fd: int) -> None:
    known = _known(fd)
    if known is not None:
        known[0].measure(known[1])


def claim(fd: int, size: int) -> None:
    """A file is about to be written up to `size` bytes. Raises OSError (ENOSPC) when the budget of
    its directory (`track_allocation`) has no room for that. Who writes by other means calls it."""
    known = _known(fd)
    if known is not None:
        known[0].claim(known[1], size)


def is_twin(path: Path) -> bool:
    """Whether a path lives in memory; then nothing about it may need a thread."""
    return not isinstance(path, Path)


def boot_id(path: Path) -> bytes:
    """Names the time since the machine that holds a path was started: as long as it is the same,
    what a process has written is there. Empty when nobody knows."""
    if isinstance(path, Path):
        with suppress(OSError):
            return BOOT_ID.read_bytes().strip()
        return b""
    boot: bytes = path.disk.boot
    return boot


def open_file(path: Path, flags: int) -> int:
    """A descriptor; `flags` is one of the constants above. A directory can be opened READ_ONLY."""
    if isinstance(path, Path):
        fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    else:
        fd = int(path.open_descriptor(flags))
    allocation = _allocation_of(path) if flags != READ_ONLY else None
    if allocation is not None:
        if fd < FIRST_TWIN:
            _written[fd] = (allocation, path)
        else:
            _twin(fd).written = (allocation, path)
        if flags & os.O_TRUNC:
            allocation.measure(path)
    return fd


def open_direct(path: Path) -> int:
    """A second descriptor of a file, for aligned writes that bypass the page cache; -1 where there
    is no such thing. Raises OSError."""
    if not isinstance(path, Path):
        return -1
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_DIRECT", 0))
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
            return -1
        raise


def close(fd: int) -> None:
    """Give a descriptor back."""
    known = _known(fd)
    if fd < FIRST_TWIN:
        _written.pop(fd, None)
        os.close(fd)
    else:
        _twin(fd).close()
        forget(fd)
    if known is not None:
        known[0].measure(known[1])


def read_at(fd: int, length: int, offset: int) -> bytes:
    """At most `length` bytes from `offset`; fewer only at the end of the file."""
    return os.pread(fd, length, offset) if fd < FIRST_TWIN else _twin(fd).read(length, offset)


def read_parts(fd: int, length: int, offset: int) -> tuple[bytes, list[tuple[int, int]]]:
    """As `read_at`, but what the device cannot read is UNREADABLE bytes; and where those begin and
    end in the file, in steps of BLOCK. Raises OSError for what is no read error."""
    try:
        return read_at(fd, length, offset), []
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    end = min(offset + length, size_of(fd))
    if end <= offset:
        return b"", []
    if offset // BLOCK == (end - 1) // BLOCK:
        return UNREADABLE * (end - offset), [(offset, end)]
    middle = (offset + end) // 2 // BLOCK * BLOCK
    middle = middle if middle > offset else (offset // BLOCK + 1) * BLOCK
    first, bad = read_parts(fd, middle - offset, offset)
    second, more = read_parts(fd, end - middle, middle)
    if bad and more and bad[-1][1] == more[0][0]:
        more[0] = (bad.pop()[0], more[0][1])
    return first + second, bad + more


def read_file(path: Path) -> tuple[bytes, list[tuple[int, int]]]:
    """A whole file, as `read_parts`. Raises OSError when it cannot be opened."""
    fd = open_file(path, READ_ONLY)
    try:
        return read_parts(fd, size_of(fd), 0)
    finally:
        close(fd)


def write_at(fd: int, data: bytes | bytearray | memoryview, offset: int) -> int:
    """Write once; returns how many bytes were taken. Raises OSError (ENOSPC) without room, or when
    the directory's budget (`track_allocation`) has none."""
    claim(fd, offset + len(data))
    if fd < FIRST_TWIN:
        return os.pwrite(fd, data, offset)
    return _twin(fd).write(bytes(data), offset)


def write_all(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write until everything is written."""
    view = memoryview(data)
    while view:
        n = write_at(fd, view, offset)
        if n <= 0:
            raise OSError(errno.EIO, "nothing was written")
        offset += n
        view = view[n:]


def sync(fd: int) -> None:
    """Make a file's content and size durable (`fsync`)."""
    if fd < FIRST_TWIN:
        os.fsync(fd)
    else:
        _twin(fd).sync()
    _measure_open(fd)


def sync_data(fd: int) -> None:
    """Make a file's content durable (`fdatasync`)."""
    if fd < FIRST_TWIN:
        os.fdatasync(fd)
    else:
        _twin(fd).sync()
    _measure_open(fd)


def truncate(fd: int, size: int) -> None:
    """Cut a file off, or extend it with zeros."""
    if fd < FIRST_TWIN:
        os.ftruncate(fd, size)
    else:
        _twin(fd).truncate(size)
    _measure_open(fd)


def allocate(fd: int, size: int) -> None:
    """Take the room for `size` bytes now. Raises OSError (ENOSPC), as `write_at`."""
    claim(fd, size)
    if fd >= FIRST_TWIN:
        _twin(fd).allocate(size)
    else:
        try:
            os.posix_fallocate(fd, 0, size)
        except OSError as error:
            if error.errno not in NO_SUCH_CALL:
                raise
            _lengthen(fd, size)
    _measure_open(fd)


def _lengthen(fd: int, size: int) -> None:
    """Write zeros behind the end, where the system has no call that takes room (a sandbox). Where
    the file system has none, the C library does the same."""
    end = os.fstat(fd).st_size
    while end < size:
        end += os.pwrite(fd, bytes(min(size - end, ZEROS)), end)


def space_of(path: Path | str) -> os.statvfs_result | None:
    """What the file system of a path has; None where a sandbox refuses to say it."""
    try:
        return os.statvfs(path)
    except OSError as error:
        if error.errno not in NO_SUCH_CALL:
            raise
        return None


def device_bytes(path: Path) -> int:
    """Size of the file system on which a path is, or will be; of a disk in memory what is free.
    UNKNOWN_ROOM where nobody says it."""
    if not isinstance(path, Path):
        return int(path.free_bytes())
    while not path.exists():
        path = path.parent
    state = space_of(path)
    return UNKNOWN_ROOM if state is None else state.f_blocks * state.f_frsize


def tree_bytes(path: Path) -> int:
    """What a directory of the system's files takes on its device; files that go away meanwhile
    count nothing."""
    taken = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                taken += allocated_bytes(Path(folder, name))
    return taken


def size_of(fd: int) -> int:
    """Bytes of an open file."""
    return os.fstat(fd).st_size if fd < FIRST_TWIN else _twin(fd).size()


def lock(fd: int) -> None:
    """Take the lock of a file, for this process. Raises BlockingIOError."""
    if fd < FIRST_TWIN:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        _twin(fd).lock()


def overwrite_in_place(path: Path) -> None:
    """Ask a file system that copies on write (btrfs) to overwrite blocks where they stand, in files
    that are made in this directory from now on, and in its directories. Then what is preallocated
    needs no more room, and what is overwritten is gone. Others do so unasked, or never.
    """
    if not isinstance(path, Path):
        return
    fd = open_file(path, READ_ONLY)
    try:
        with suppress(OSError):
            (flags,) = FLAGS.unpack(fcntl.ioctl(fd, GET_FLAGS, bytes(FLAGS.size)))
            if not flags & NO_COW:
                fcntl.ioctl(fd, SET_FLAGS, FLAGS.pack(flags | NO_COW))
    finally:
        close(fd)


def sync_directory(path: Path) -> None:
    """Make names that were created, renamed or removed in a directory durable."""
    fd = open_file(path, READ_ONLY)
    try:
        sync(fd)
    finally:
        close(fd)
    _measure(path)


def cut_file(path: Path, size: int) -> None:
    """`truncate` by path; not durable."""
    fd = open_file(path, EXISTING)
    try:
        truncate(fd, size)
    finally:
        close(fd)


def write_file(path: Path, data: bytes | bytearray) -> None:
    """Make or replace a file and sync its content; its name is not durable yet."""
    fd = open_file(path, REPLACE)
    try:
        write_all(fd, data, 0)
        sync(fd)
    finally:
        close(fd)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file and sync the copy."""
    write_file(target, source.read_bytes())


def _remove_folder(path: str | Path) -> None:
    """What `shutil.rmtree` does for a directory of the store's own. Nothing that a node loads
    imports `shutil`, and its import takes milliseconds while the loop serves nobody."""
    with os.scandir(path) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            _remove_folder(entry.path)
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it."""
    try:
        if isinstance(path, Path):
            _remove_folder(path)
        else:
            path.remove_tree()
    finally:
        allocation = _allocation_of(path)
        if allocation is not None:
            allocation.scan(path)


def remove(path: Path, missing_ok: bool = False) -> None:
    """Remove a file (`unlink`)."""
    path.unlink(missing_ok=missing_ok)
    _measure(path)


def rename(old: Path, new: Path) -> None:
    """Give a file or directory another name, in the place of a file that has it."""
    old.rename(new)
    allocation = _allocation_of(new) or _allocation_of(old)
    if allocation is None:
        return
    for fd, (_, path) in list(_written.items()):
        if path == old:
            _written[fd] = (allocation, new)
    for twin in list(_twins.values()):
        if twin.written is not None and twin.written[1] == old:
            twin.written = (allocation, new)
    allocation.renamed(old, new)


def new_directory(path: Path, exist_ok: bool = False) -> None:
    """Make a directory (`mkdir`) for this user alone; its name is not durable yet."""
    path.mkdir(0o700, exist_ok=exist_ok)
    _measure(path)


def can_write(path: Path) -> bool:
    """Whether the process may make files in a directory."""
    return os.access(path, os.W_OK | os.X_OK) if isinstance(path, Path) else True


def free_bytes(path: Path) -> int:
    """Room that is left on the file system of a path; UNKNOWN_ROOM where nobody says it."""
    if isinstance(path, Path):
        found = space_of(path)
        return UNKNOWN_ROOM if found is None else found.f_bavail * found.f_frsize
    return int(path.free_bytes())


def allocated_bytes(path: Path) -> int:
    """What a file really takes on its device, holes not counted and preallocation counted."""
    return blocks_of(path)
