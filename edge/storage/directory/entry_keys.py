"""The node's own data keys: they seal what the log has of entries before these are a stream's.

Entries of replicated streams come before the stream that they fill, and carry the messages of any.
So they belong to no stream's key. Each node seals them with a key of its own, wrapped by the node's
key as those of streams are, in the two-copy file `log.keys`. The wire between nodes is not its
concern.
"""

import json
import logging
from typing import Any, Final

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.directory import ENTRY_KEYS, StoreDirectory
from headwater.edge.storage.directory.packers import Packers
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.packing.packing import Packer

ENTRIES_OWNER: Final = b"\0raft"
"""The owner of states of the log that hold such entries."""
LABEL: Final = "the entries of replicated streams"

log = logging.getLogger("headwater.storage")


class EntryKeys:
    """`open` at a start, `begin` once there are to be entries. `packer` is None until one of them
    has found keys or made one."""

    def __init__(self, directory: StoreDirectory, packers: Packers) -> None:
        self.packer: Packer | None = None
        self.closed = False
        """Never: it takes its turn among the streams that are packed again."""
        self._packers = packers
        self._file = TwoCopyFile(directory.root / ENTRY_KEYS)
        self._identity: dict[str, Any] = {}

    def content(self) -> bytes | None:
        """What the file has, for `Packers.check_metas`. Raises OSError, StoreError."""
        return self._file.read()

    def open(self, problems: list[Problem]) -> None:
        """Know the keys that are there; a new one is made, and on disk, when the node's key or
        cipher was replaced. Raises StoreError, OSError, SealingError."""
        content = self._file.read()
        if content is None:
            if self._file.path.exists():
                text = f" is damaged: {LABEL} cannot be opened; they are asked of other nodes"
                problems.append(Problem.of(ProblemKind.DAMAGED, self._file.path, text))
                self.packer = self._packers.make(0)
            return
        self._identity = json.loads(content)
        self._use(True)
        if self._file.damaged:
            self._write()
            text = ": a copy was damaged; it was written again"
            problems.append(Problem.of(ProblemKind.REPAIRED, self._file.path, text))

    def begin(self, fresh: bool) -> bool:
        """Seal from now on, when the node has a key to seal with; whether this is new here. In a
        store that is not `fresh`, older entries are to be sealed, too. Raises StoreError, OSError,
        SealingError."""
        ring = self._packers.ring
        if self._identity or ring is None or ring.newest is None:
            return False
        self._identity = {"id": "0" * 16, "incarnation": "log", "label": LABEL}
        self._use(not fresh)
        return True

    def _use(self, found: bool) -> None:
        before = list(self._identity.get("keys", []))
        try:
            packer = self._packers.open(self._identity, found)
            if self._identity.get("keys", []) != before:
                self._write()
        except BaseException:
            self._identity = {}
            raise
        self.packer = packer

    def _write(self) -> None:
        self._file.replace(json.dumps(self._identity).encode())

    @property
    def keys(self) -> list[dict[str, Any]]:
        """The data keys as they are kept, wrapped; the last one seals."""
        return list(self._identity.get("keys", []))

    @property
    def is_pending(self) -> bool:
        """Whether the log has entries that are still to be sealed again."""
        return bool(self._identity.get("repack"))

    def forget_older(self) -> bool:
        """Nothing in the log needs older keys any more; whether the file says so now."""
        kept = dict(self._identity)
        kept.pop("repack", None)
        kept["keys"] = kept.get("keys", [])[-1:]
        before, self._identity = self._identity, kept
        try:
            self._write()
        except (OSError, StoreError) as error:
            self._identity = before
            log.warning("%s cannot be written: %s; tried again", self._file.path, error)
            return False
        if self.packer is not None:
            self.packer.forget_older(set())
        log.info("%s are sealed again, with the newest key", LABEL)
        return True
