"""A disk with directories in memory, as bad as asked: it keeps apart what is synced.

A power cut keeps any of the writes that were not synced, in part, in any combination, at the
granularity of sectors, and any of the names. A rename is one change: both of its names, or none.
A lying disk says that it synced and may lose the last few syncs of a file all the same. After a
failed sync the content reads as written and is never written any more, as on Linux. `capacity`
counts blocks, preallocated ones too. It is deterministic: chance comes in where it is needed.
"""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.edge.ports import files
from headwater.edge.ports.ports import Random
from headwater.edge.ports.twins.inode import (
    BLOCK_BYTES,
    Change,
    Node,
    TwinDirectory,
    TwinFile,
    failed,
)
from headwater.edge.ports.twins.paths import TwinPath

Watch = Callable[[str, str], None]
"""Called with what is about to be done and the path; raise OSError to make it fail."""


@dataclass(slots=True, eq=False)
class NameChange:
    """Names that appear (with what) or go away (None) together."""

    names: list[tuple[TwinDirectory, str, Node | None]]

    def apply(self) -> None:
        for directory, name, node in self.names:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


class TwinFiles:
    """`root` is the path to begin with. Reads see every write; see the module for the rest."""

    CLAIMED_MAX = 4
    """Syncs of a file that a lying disk may lose."""

    def __init__(self) -> None:
        self.tree = TwinDirectory()
        self.name_changes: list[NameChange] = []
        self.lying = False
        self.capacity = 0
        """Bytes; 0 is unlimited."""
        self.operations = 0
        """Changes and syncs so far."""
        self.syncs = 0
        self.boot = b"first"
        """Another one after every power cut."""
        self.watch: Watch | None = None
        self._descriptors: dict[int, OpenNode] = {}

    @property
    def root(self) -> TwinPath:
        return TwinPath(self, ())

    def record(self, what: str, path: str) -> None:
        """An operation is about to happen."""
        if what not in ("read", "list"):
            self.operations += 1
        if self.watch is not None:
            self.watch(what, path)

    # -- names ----------------------------------------------------------------

    def node(self, parts: tuple[str, ...]) -> Node | None:
        """What has a name; None when nothing has it."""
        node: Node | None = self.tree
        for name in parts:
            if not isinstance(node, TwinDirectory):
                return None
            node = node.names.get(name)
        return node

    def directory(self, parts: tuple[str, ...]) -> TwinDirectory:
        """Raises FileNotFoundError, NotADirectoryError."""
        node = self.node(parts)
        if node is None:
            raise failed(errno.ENOENT, text(parts))
        if isinstance(node, TwinFile):
            raise failed(errno.ENOTDIR, text(parts))
        return node

    def file(self, parts: tuple[str, ...]) -> TwinFile:
        """Raises FileNotFoundError, IsADirectoryError."""
        node = self.node(parts)
        if node is None:
            raise failed(errno.ENOENT, text(parts))
        if isinstance(node, TwinDirectory):
            raise failed(errno.EISDIR, text(parts))
        return node

    def _enter(self, *names: tuple[TwinDirectory, str, Node | None]) -> None:
        for directory, name, node in names:
            old = directory.names.pop(name, None)
            if isinstance(old, TwinFile):
                old.links -= 1
            if node is not None:
                directory.names[name] = node
                if isinstance(node, TwinFile):
                    node.links += 1
        self.name_changes.append(NameChange(list(names)))

    def make_directory(self, parts: tuple[str, ...]) -> None:
        """Raises FileExistsError."""
        parent = self.directory(parts[:-1])
        if parts[-1] in parent.names:
            raise failed(errno.EEXIST, text(parts))
        self.record("mkdir", text(parts))
        self._enter((parent, parts[-1], TwinDirectory()))

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """Replace `new` by `old`, which may be a directory when nothing is there."""
        node = self.node(old)
        if node is None:
            raise failed(errno.ENOENT, text(old))
        target = self.directory(new[:-1])
        if isinstance(target.names.get(new[-1]), TwinDirectory):
            raise failed(errno.EEXIST, text(new))
        self.record("rename", text(old))
        self._enter((self.directory(old[:-1]), old[-1], None), (target, new[-1], node))

    def unlink(self, parts: tuple[str, ...]) -> None:
        self.file(parts)
        self.record("unlink", text(parts))
        self._enter((self.directory(parts[:-1]), parts[-1], None))

    def remove_directory(self, parts: tuple[str, ...]) -> None:
        """Raises OSError unless it is empty."""
        if self.directory(parts).names:
            raise failed(errno.ENOTEMPTY, text(parts))
        self.record("rmdir", text(parts))
        self._enter((self.directory(parts[:-1]), parts[-1], None))

    def sync_names(self, directory: TwinDirectory) -> None:
        """Make what happened in a directory durable."""
        left = []
        synced_names = set()
        for change in reversed(self.name_changes):
            keys = {(id(row[0]), row[1]) for row in change.names}
            if any(row[0] is directory for row in change.names):
                synced_names |= keys
                left.append((True, change))
            else:
                change.names = [
                    row for row in change.names if (id(row[0]), row[1]) not in synced_names
                ]
                left.append((False, change))
        for synced, change in reversed(left):
            if synced:
                change.apply()
        self.name_changes = [change for synced, change in reversed(left) if not synced]

    # -- content --------------------------------------------------------------

    def open(self, parts: tuple[str, ...], flags: int) -> int:
        """A descriptor of a file or directory."""
        node = self.node(parts)
        if node is None:
            if not flags & os.O_CREAT:
                raise failed(errno.ENOENT, text(parts))
            parent = self.directory(parts[:-1])
            self.record("create", text(parts))
            node = TwinFile()
            self._enter((parent, parts[-1], node))
        opened = OpenNode(self, node, text(parts))
        if flags & os.O_TRUNC and isinstance(node, TwinFile) and node.content:
            opened.truncate(0)
        if isinstance(node, TwinFile):
            node.opened += 1
        fd = files.register(opened)
        opened.fd = fd
        self._descriptors[fd] = opened
        return fd

    def closed(self, fd: int) -> None:
        self._descriptors.pop(fd, None)

    @property
    def used(self) -> int:
        """Bytes of all blocks; of files that are open too, although nothing names them."""
        opened = [one.node for one in self._descriptors.values()]
        nodes = {id(node): node for node in opened if isinstance(node, TwinFile)}
        nodes.update({id(node): node for _, node in self.walk()})
        return sum(node.blocks() for node in nodes.values())

    def room(self, file: TwinFile, size: int) -> int:
        """The size up to which a file can grow now, at most `size`."""
        if not self.capacity or size <= file.blocks():
            return size
        free = max(self.capacity - self.used, 0) // BLOCK_BYTES * BLOCK_BYTES
        return min(size, file.blocks() + free)

    def walk(self) -> list[tuple[tuple[str, ...], TwinFile]]:
        """Every file with its path, sorted."""
        found: list[tuple[tuple[str, ...], TwinFile]] = []
        left: list[tuple[tuple[str, ...], Node]] = [((), self.tree)]
        while left:
            parts, node = left.pop()
            if isinstance(node, TwinFile):
                found.append((parts, node))
            else:
                left += [((*parts, name), child) for name, child in node.names.items()]
        return sorted(found, key=lambda row: row[0])

    # -- what happens to it ---------------------------------------------------

    def power_cut(self, chance: Random, lose: str = "some") -> None:
        """What is not durable may be lost: "nothing" of it, "everything", or "some", whole or in
        part. Every descriptor is gone."""
        self.boot = b"after operation %d" % self.operations
        for change in self.name_changes:
            kept = lose == "nothing" or (lose == "some" and chance.below(2))
            if kept:
                change.apply()
        self.name_changes = []
        for fd in self._descriptors:
            files.forget(fd)
        self._descriptors = {}
        reached: dict[int, TwinFile] = {}
        left = [self.tree]
        while left:
            directory = left.pop()
            directory.names = dict(directory.durable)
            for _, node in sorted(directory.names.items()):
                if isinstance(node, TwinDirectory):
                    left.append(node)
                    continue
                if id(node) not in reached:
                    node.cut(chance, lose)
                    node.links = 0
                reached[id(node)] = node
                node.links += 1

    def kill(self) -> None:
        """The process is gone and the machine goes on: nothing is lost, nothing is open."""
        for fd in sorted(self._descriptors):
            files.close(fd)

    def sync_all(self) -> None:
        """Everything is durable, as after a while without a crash."""
        for change in self.name_changes:
            change.apply()
        self.name_changes = []
        for _, node in self.walk():
            node.sync(0)

    def flip(self, parts: tuple[str, ...], offset: int, bit: int) -> None:
        """Rot: one bit of a file changes, on the platter and for all who read."""
        node = self.file(parts)
        for image in (node.content, node.durable):
            if offset < len(image):
                image[offset] ^= 1 << bit

    def spoil(self, parts: tuple[str, ...], offset: int, data: bytes) -> None:
        """Rot: other bytes stand in a file that keeps its size, on the platter and for all."""
        node = self.file(parts)
        for image in (node.content, node.durable):
            end = min(offset + len(data), len(image))
            image[offset:end] = data[: max(end - offset, 0)]

    def copy(self) -> "TwinFiles":
        """Another disk with the same content and the same unsynced changes; nothing is open."""
        made = TwinFiles()
        made.lying, made.capacity, made.boot = self.lying, self.capacity, self.boot
        known: dict[int, Any] = {}

        def twin(node: Node) -> Any:
            if id(node) not in known:
                if isinstance(node, TwinFile):
                    known[id(node)] = TwinFile(
                        bytearray(node.content),
                        bytearray(node.durable),
                        list(node.unsynced),
                        [list(changes) for changes in node.claimed],
                        list(node.unreadable),
                        node.links,
                    )
                else:
                    known[id(node)] = copied = TwinDirectory()
                    copied.names = {name: twin(child) for name, child in node.names.items()}
                    copied.durable = {name: twin(child) for name, child in node.durable.items()}
            return known[id(node)]

        made.tree = twin(self.tree)
        for change in self.name_changes:
            rows = [
                (twin(where), name, None if node is None else twin(node))
                for where, name, node in change.names
            ]
            made.name_changes.append(NameChange(rows))
        return made


class OpenNode:
    """An open file or directory of a twin; see `headwater.edge.ports.files.OpenTwin`."""

    def __init__(self, disk: TwinFiles, node: Node, path: str) -> None:
        self.disk = disk
        self.node = node
        self.path = path
        self.fd = -1
        self.written: Any = None

    @property
    def file(self) -> TwinFile:
        if isinstance(self.node, TwinDirectory):
            raise failed(errno.EISDIR, self.path)
        return self.node

    def read(self, length: int, offset: int) -> bytes:
        self.disk.record("read", self.path)
        return self.file.read(length, offset, self.path)

    def write(self, data: bytes, offset: int) -> int:
        self.disk.record("write", self.path)
        end = self.disk.room(self.file, offset + len(data))
        if end <= offset and data:
            raise failed(errno.ENOSPC, self.path)
        self.file.change(Change(offset, data[: end - offset]))
        return min(len(data), end - offset)

    def sync(self) -> None:
        self.disk.syncs += 1
        if isinstance(self.node, TwinDirectory):
            self.disk.record("sync names", self.path)
            self.disk.sync_names(self.node)
            return
        try:
            self.disk.record("sync", self.path)
        except OSError:
            self.node.unsynced = []
            raise
        self.node.sync(self.disk.CLAIMED_MAX if self.disk.lying else 0)

    def truncate(self, size: int) -> None:
        self.disk.record("truncate", self.path)
        self.file.change(Change(size))

    def allocate(self, size: int) -> None:
        self.disk.record("allocate", self.path)
        if self.disk.room(self.file, size) < size:
            raise failed(errno.ENOSPC, self.path)
        if size > len(self.file.content):
            self.file.change(Change(size))

    def size(self) -> int:
        return len(self.file.content) if isinstance(self.node, TwinFile) else 0

    def lock(self) -> None:
        if self.file.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", self.path)
        self.file.locked = True

    def close(self) -> None:
        if isinstance(self.node, TwinFile):
            self.node.opened -= 1
            self.node.locked = self.node.locked and self.node.opened > 0
        self.disk.closed(self.fd)


def text(parts: tuple[str, ...]) -> str:
    return "/" + "/".join(parts)
