"""The disk of a node with a real store, for the faults: files by their whole path."""

import errno

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.inode import TwinFile, failed

CHANGES = ("write", "sync", "sync names", "rename", "unlink", "create", "truncate", "allocate")


class StoreDisk:
    """`twin` is replaced by a wipe, and by a power cut in the middle of something."""

    def __init__(self) -> None:
        self.twin = TwinFiles()
        self._countdown = 0
        self._cut: TwinFiles | None = None
        self._sync_fails = False
        self._unreadable = False
        self.failed_syncs = 0

    # -- what faults ask ------------------------------------------------------

    @property
    def lying(self) -> bool:
        return self.twin.lying

    @lying.setter
    def lying(self, on: bool) -> None:
        self.twin.lying = on

    @property
    def full(self) -> bool:
        return self.twin.capacity > 0

    @full.setter
    def full(self, on: bool) -> None:
        self.twin.capacity = self.twin.used + 4096 if on else 0

    @property
    def sync_fails(self) -> bool:
        """Whether the next sync fails."""
        return self._sync_fails

    @sync_fails.setter
    def sync_fails(self, on: bool) -> None:
        self._sync_fails = on
        self.twin.watch = self._watch

    @property
    def unreadable(self) -> bool:
        """Whether no file can be read."""
        return self._unreadable

    @unreadable.setter
    def unreadable(self, on: bool) -> None:
        self._unreadable = on
        self.twin.watch = self._watch

    @property
    def files(self) -> dict[str, TwinFile]:
        return {"/".join(parts): file for parts, file in self.twin.walk()}

    def names(self) -> list[str]:
        return ["/".join(parts) for parts, _ in self.twin.walk()]

    def read(self, name: str) -> bytes:
        return bytes(self.twin.file(tuple(name.split("/"))).content)

    def flip(self, name: str, offset: int, bit: int) -> None:
        self.twin.flip(tuple(name.split("/")), offset, bit)

    def wipe(self) -> None:
        """Another disk, with nothing on it."""
        self.twin = TwinFiles()

    def flush(self) -> None:
        """Everything is durable: a disk begins to lie only after the start."""
        lying, self.twin.lying = self.twin.lying, False
        self.twin.sync_all()
        self.twin.lying = lying

    # -- power cuts -----------------------------------------------------------

    def cut_after(self, operations: int) -> None:
        """Remember the disk as it is before the last of so many operations from now on."""
        self._countdown = operations
        self._cut = None
        self.twin.watch = self._watch

    def spare(self) -> None:
        """The moment that `cut_after` chose is not to come."""
        self._countdown = 0

    @property
    def is_cut(self) -> bool:
        """Whether the moment that `cut_after` chose has passed: nothing counts from there on."""
        return self._cut is not None

    def _watch(self, what: str, path: str) -> None:
        if what == "read" and self._unreadable:
            raise failed(errno.EIO, path)
        if what not in CHANGES:
            return
        if self._countdown:
            self._countdown -= 1
            if not self._countdown:
                self._cut = self.twin.copy()
        if self._sync_fails and what == "sync":
            self._sync_fails = False
            self.failed_syncs += 1
            raise failed(errno.EIO, path)

    def power_cut(self, chance: SeededRandom) -> None:
        """Back to what was durable, at the moment that `cut_after` chose, or now."""
        self._go_back(chance)
        self.twin.power_cut(chance)

    def kill(self, chance: SeededRandom) -> None:
        """The process ends at the moment that `cut_after` chose, or now; the machine goes on."""
        self._go_back(chance)
        self.twin.kill()

    def _go_back(self, chance: SeededRandom) -> None:
        if self._cut is not None:
            self.twin.power_cut(chance, "everything")
            self.twin = self._cut
        self._cut, self._countdown = None, 0
        self.twin.watch = self._watch
