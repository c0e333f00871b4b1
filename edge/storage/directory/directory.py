"""The directory of a node's store: its identity, its lock, and what it must not be.

<store_dir>/jetstream/HEADWATER    identity and format, two slots
<store_dir>/jetstream/lock         held while a node runs; its process id and the boot id
<store_dir>/jetstream/clean        where the log ended at a clean stop
<store_dir>/jetstream/log/         slots of the commit log
<store_dir>/jetstream/consumers    consumers as they were a while ago (see state_copy)
<store_dir>/jetstream/slots        which slots there are, and their sizes
<store_dir>/jetstream/streams/     one directory per stream, by incarnation
<store_dir>/jetstream/quarantine/  what could not be used, each with a reason
<store_dir>/jetstream/trash/       streams that are being removed
<store_dir>/jetstream/raft/        hard state of replicated groups (hub/stored)
"""

import json
import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.ports.files import sync_directory
from headwater.edge.ports.ports import Clock, Random, SystemClock, SystemRandom
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.known_ids import ids_in_files
from headwater.edge.storage.directory.store_lock import process_of, unlockable
from headwater.edge.storage.format.errors import FormatError, StoreError, StoreLocked
from headwater.edge.storage.format.problem import Problem, ProblemKind

FORMAT = 4
"""The newest that this program knows. Stores are made with the first; those of nodes of a cluster
have the second, whose log may hold messages in entries; in the third there may be bundles, and in
the fourth bundles with stems."""
FIRST_FORMAT = 1
ENTRIES_FORMAT = 2
BUNDLES_FORMAT = 3
STEMS_FORMAT = 4
ENTRY_KEYS = "log.keys"
OWN_NAMES = {
    "HEADWATER", "ballast", "lock", "clean", "slots", "log", "streams", "quarantine", "trash",
    "raft", "tidemarks", "consumers", ENTRY_KEYS,
}  # fmt: skip
UNFINISHED = {"HEADWATER.tmp", "clean.tmp", "slots.tmp", "consumers.tmp", f"{ENTRY_KEYS}.tmp"}


class StoreDirectory:
    """Opens, checks and locks the directory. Everything in it below the names above is ours."""

    def __init__(
        self, store_dir: str | Path, clock: Clock | None = None, chance: Random | None = None
    ) -> None:
        base = Path(store_dir) if isinstance(store_dir, str) else store_dir
        self.root = base / "jetstream"
        self.clock = clock or SystemClock()
        self.chance = chance or SystemRandom()
        self.log = self.root / "log"
        self.streams = self.root / "streams"
        self.quarantine = self.root / "quarantine"
        self.trash = self.root / "trash"
        self.node_id = b""
        self.same_boot = False
        """Whether the system has run ever since the store was open last; set by `open`."""
        self.problems: list[Problem] = []
        self._lock_fd = -1
        self._identity = b""

    def open(self) -> None:
        """Make what is missing and take the lock.

        Raises StoreLocked, FormatError, or StoreError when the directory cannot be used.
        """
        try:
            make_directory(self.root)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreError(f"could not create storage directory {self.root}: {reason}") from error
        if not files.can_write(self.root):
            raise StoreError(f"cannot use {self.root}: no permission to write")
        self._refuse_others()
        self._lock_directory()
        try:
            self._identify()
            for path in (self.log, self.streams, self.quarantine, self.trash):
                files.new_directory(path, True)
            for path in (self.log, self.streams):
                files.overwrite_in_place(path)
            sync_directory(self.root)
        except BaseException:
            self.close()
            raise

    def _refuse_others(self) -> None:
        """Raises FormatError when something else has written here."""
        names = {entry.name for entry in self.root.iterdir()}
        if "HEADWATER" in names or not names - OWN_NAMES - UNFINISHED:
            return
        foreign = any((self.root / name / "streams").is_dir() for name in names)
        if foreign or any(name.startswith("$") or name == "_js_" for name in names):
            raise FormatError(
                f"{self.root} was written by nats-server; choose another store_dir, and copy "
                "streams over with a mirror"
            )
        raise FormatError(
            f"{self.root} is not empty and was not written by Headwater; choose another "
            "store_dir, or move away what is there"
        )

    def _lock_directory(self) -> None:
        """Take the lock, and see whether the last one was taken since the system started: then what
        was written is there, synced or not. Raises StoreLocked, StoreError."""
        path = self.root / "lock"
        try:
            fd = files.open_file(path, files.WRITE)
        except OSError as error:
            raise StoreError(f"cannot lock {path}: {error.strerror}") from error
        try:
            files.lock(fd)
        except BlockingIOError as error:
            pid = process_of(fd)
            files.close(fd)
            raise StoreLocked(
                f"{self.root} is in use by process {pid}; stop it, or choose another store_dir"
            ) from error
        except OSError as error:
            files.close(fd)
            raise unlockable(path, error) from error
        boot = files.boot_id(self.root)
        self.same_boot = bool(boot) and files.read_at(fd, 256, 0).split(b"\n")[1:2] == [boot]
        self._lock_fd = fd
        with suppress(OSError):
            known = b"%s\n" % boot if self.same_boot else b""
            self._write_lock(b"%d\n%s" % (os.getpid(), known))

    def mark_boot(self) -> None:
        """The store is open: whoever finds this since the same start of the system knows that all
        is there that was written."""
        text = b"%d\n%s\n" % (os.getpid(), files.boot_id(self.root))
        with suppress(OSError):
            self._write_lock(text)

    def _write_lock(self, text: bytes) -> None:
        """In place: a full device may have no room for it a second time. Raises OSError."""
        files.write_all(self._lock_fd, text, 0)
        files.truncate(self._lock_fd, len(text))

    def _identify(self) -> None:
        """Read the file HEADWATER. The log and segments name the store's id, too: when the file is
        damaged, it is made again from them. Raises FormatError."""
        file = TwoCopyFile(self.root / "HEADWATER")
        content = file.read()
        identity = json.loads(content) if content is not None else None
        if identity is not None and identity["format"] > FORMAT:
            raise FormatError(
                f"{self.root} has format {identity['format']}; this program knows {FORMAT}: "
                "use a newer one"
            )
        known = bytes.fromhex(identity["node_id"]) if identity is not None else b""
        found = self._id_in_files(known)
        if content is not None and found in (known, b""):
            if file.damaged:
                text = ": a copy was damaged; it was written again"
                self.problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
                file.write(content)
            self._identity, self.node_id = content, known
            return
        if found:
            what = "is another store's" if known else "is missing or damaged in both copies"
            text = f" {what}; it was made again from the log and segments"
            self.problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
        elif file.damaged or any(self.streams.glob("*")) or any(self.log.glob("*")):
            raise FormatError(
                f"{file.path} is missing or damaged in both copies; restore it from a backup"
            )
        self.node_id = found or self.make_id()
        self._identity = json.dumps(
            {"format": FIRST_FORMAT, "node_id": self.node_id.hex(), "created": self.clock.wall_ns()}
        ).encode()
        file.write(self._identity)

    def _id_in_files(self, known: bytes) -> bytes:
        """The id that most slots and segments name; `known` when any does, b"" when none does."""
        found: Counter[bytes] = Counter()
        for node_id in ids_in_files(self.log, self.streams):
            found[node_id] += 1
            if node_id == known:
                return known
        return found.most_common(1)[0][0] if found else b""

    @property
    def format(self) -> int:
        """Of what is written here."""
        return int(json.loads(self._identity)["format"])

    def raise_format(self, least: int) -> None:
        """What only formats from `least` on have may be written from now on: programs that do not
        know them refuse the folder. Raises OSError."""
        identity = json.loads(self._identity)
        if identity["format"] < least:
            self._identity = json.dumps({**identity, "format": least}).encode()
            TwoCopyFile(self.root / "HEADWATER").replace(self._identity)

    def write_identity(self) -> bool:
        """Write HEADWATER again when a copy of it is damaged or missing. Raises OSError."""
        file = TwoCopyFile(self.root / "HEADWATER")
        if file.read() is not None and not file.damaged:
            return False
        file.write(self._identity)
        return True

    def consume_clean_stop(self) -> dict[str, int] | None:
        """Where the log ended when the node stopped cleanly; the mark is gone afterwards."""
        file = TwoCopyFile(self.root / "clean")
        content = file.read()
        if content is None and not file.damaged:
            return None
        files.remove(file.path)
        sync_directory(self.root)
        if content is None:
            text = " was damaged; this start is like one after a crash"
            self.problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
            return None
        mark: dict[str, int] = json.loads(content)
        return mark

    def record_clean_stop(self, position: dict[str, int]) -> None:
        """The node stopped cleanly and its log ends here."""
        TwoCopyFile(self.root / "clean").write(json.dumps(position).encode())

    def put_aside(self, path: Path, reason: str) -> Path:
        """Move something unusable to quarantine, with the reason beside it; returns where."""
        base = self.quarantine / f"{path.name}-{self.clock.wall_ns()}"
        files.rename(path, base)
        self._explain(base, reason)
        return base

    def put_foreign_aside(self, path: Path) -> None:
        """The same for a segment that stands in the directory of another stream."""
        self.put_aside(path, f"{path} is a segment of another stream")

    def keep_copy(self, path: Path, name: str, reason: str) -> None:
        """Copy something that will be used again to quarantine, once."""
        target = self.quarantine / name
        if not target.exists():
            files.copy_file(path, target)
            self._explain(target, reason)

    def _explain(self, path: Path, reason: str) -> None:
        try:
            files.write_file(path.with_name(path.name + ".reason"), f"{reason}\n".encode())
            sync_directory(self.quarantine)
        except OSError as error:
            text = f": the reason ({reason}) is not beside it: {error}"
            self.problems.append(Problem.of(ProblemKind.FAILED, path, text))

    def empty_trash(self) -> None:
        """Remove streams whose deletion is durable."""
        for path in self.trash.iterdir():
            discard_tree(path)

    def make_id(self) -> bytes:
        """16 bytes that nothing else has."""
        return b"".join([self.chance.below(1 << 32).to_bytes(4, "big") for _ in range(4)])

    def close(self) -> None:
        """Give the lock back."""
        if self._lock_fd >= 0:
            files.close(self._lock_fd)
            self._lock_fd = -1


def make_directory(path: Path) -> None:
    """Make a directory and what it lies in, durably. Raises OSError."""
    if path.is_dir():
        return
    if not path.parent.exists():
        make_directory(path.parent)
    files.new_directory(path, True)
    sync_directory(path.parent)


def discard_tree(path: Path) -> None:
    """Remove a directory; what cannot be removed now is left to the next start."""
    with suppress(OSError):
        files.remove_tree(path)
