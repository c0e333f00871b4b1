"""What could not be used is kept aside: list it, put a stream back, or remove it for good.

Works on the store's directory alone, so it serves a running node and a stopped store alike; the
caller of `restore` and `purge` holds the directory's lock. Nothing here is ever removed except by
`purge` with the whole name.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from headwater.edge.ports.files import remove, remove_tree, rename, sync_directory
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.metas import decode_meta
from headwater.edge.storage.format.errors import StoreError

REASON = ".reason"
# Entries that one listing reads; more are only counted.
LISTED_MAX = 10_000


@dataclass
class Aside:
    """One thing in quarantine."""

    name: str
    """Its name there; `restore` and `purge` want it whole."""
    kind: str
    """"stream" (a directory of segments), "log" (a slot of the commit log) or "file"."""
    reason: str
    bytes: int
    """What its files take."""
    moved_ns: int
    """When it was put aside, ns since the epoch; 0 when the name does not tell."""
    account: str = ""
    stream: str = ""
    """Of a stream whose meta can be read."""
    restorable: bool = False
    """Whether `restore` would put it back: a stream whose meta can be read."""


class Quarantine:
    """The `quarantine` directory of a store; `root` is `<store_dir>/jetstream`."""

    def __init__(self, root: Path) -> None:
        self.path = root / "quarantine"
        self._streams = root / "streams"

    def names(self) -> list[str]:
        """Everything that is there, without the files of reasons, oldest name first."""
        if not self.path.is_dir():
            return []
        return sorted(
            entry.name for entry in self.path.iterdir() if not entry.name.endswith(REASON)
        )

    def items(self) -> list[Aside]:
        """Everything that is there, at most LISTED_MAX."""
        return [self._describe(self.path / name) for name in self.names()[:LISTED_MAX]]

    def _describe(self, path: Path) -> Aside:
        reason = path.with_name(path.name + REASON)
        found = Aside(
            name=path.name,
            kind=kind_of(path),
            reason=reason.read_text("utf-8", "replace").strip() if reason.exists() else "",
            bytes=size_of(path),
            moved_ns=moved_at(path.name),
        )
        identity = read_identity(path) if found.kind == "stream" else None
        if identity is not None:
            found.account, found.stream = identity["account"], identity["name"]
            found.restorable = True
        return found

    def _named(self, name: str) -> Path:
        """Raises StoreError unless something has exactly this name."""
        if name not in self.names():
            raise StoreError(
                f"there is no '{name}' in quarantine; give a whole name as the list shows it"
            )
        return self.path / name

    def restore(self, name: str) -> str:
        """Put a stream's directory back among the streams; returns its incarnation. It is opened
        at the next start, or by the node that asked. Raises StoreError and leaves everything as
        it is when the meta cannot be read or a stream of that incarnation is there."""
        path = self._named(name)
        identity = read_identity(path)
        if identity is None:
            raise StoreError(
                f"'{name}' is not a stream with a readable meta file; put a good copy of "
                f"{path / 'meta'} there first, or leave it in quarantine"
            )
        target = self._streams / identity["incarnation"]
        if target.exists():
            raise StoreError(
                f"a stream with the incarnation of '{name}' is there already, in {target}; "
                f"'{name}' stays in quarantine: back that stream up and delete it first"
            )
        rename(path, target)
        sync_directory(self._streams)
        remove(path.with_name(path.name + REASON), True)
        sync_directory(self.path)
        return identity["incarnation"]

    def purge(self, name: str) -> int:
        """Remove one thing for good; returns the bytes that it took. Raises StoreError, OSError."""
        path = self._named(name)
        size = size_of(path)
        if path.is_dir():
            remove_tree(path)
        else:
            remove(path)
        remove(path.with_name(path.name + REASON), True)
        sync_directory(self.path)
        return size


def kind_of(path: Path) -> str:
    if path.is_dir():
        return "stream"
    return "log" if path.name.startswith(("slot-", "log-")) else "file"


def size_of(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())


def moved_at(name: str) -> int:
    """The time at the end of a name, ns since the epoch."""
    tail = name.rpartition("-")[2]
    return int(tail) if tail.isdigit() and len(tail) >= 18 else 0


def read_identity(path: Path) -> dict[str, str] | None:
    """Who a stream's directory belongs to; None when its meta cannot be read."""
    try:
        content = TwoCopyFile(path / "meta").read()
        identity = decode_meta(content)[0] if content is not None else {}
    except (StoreError, OSError, json.JSONDecodeError):
        return None
    wanted = {"id", "incarnation", "account", "name"}
    return identity if wanted <= set(identity) else None
