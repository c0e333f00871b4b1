"""Keys and dictionaries of a node's streams: which packer a stream works with.

Data keys lie wrapped in a stream's meta file, dictionaries in files of their own beside it. What
cannot be unwrapped stops the start before anything is touched: a missing key is no damage.
"""

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from headwater.edge.storage.device.background import Background
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.directory import StoreDirectory
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.format.errors import KeyMissing, StoreError
from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.packing.packing import Packer, make_dictionary
from headwater.security.errors import SealingError
from headwater.security.sealing import DataKey, KeyRing

PURPOSE = b"dictionary"
META_PURPOSE = b"meta"
# Streams that an error about keys names.
NAMED_MAX = 10

log = logging.getLogger("headwater.storage")


class Packers:
    """Makes packers, and writes what they need. Identities are the JSON of meta files."""

    def __init__(self, directory: StoreDirectory, ring: KeyRing | None) -> None:
        self.ring = ring
        self._directory = directory
        self._random: Callable[[int], bytes] = directory.chance.randbytes

    def check(self, entries: Callable[[], bytes | None]) -> None:
        """Raise KeyMissing, naming the streams, when there are some that no key here opens.
        `entries` reads the file of `EntryKeys`."""
        paths = sorted(self._directory.streams.iterdir())
        self.check_metas([*(TwoCopyFile(path / "meta").read for path in paths), entries])

    def check_metas(self, readers: Iterable[Callable[[], bytes | None]]) -> None:
        """The same for what these return, or raise, as contents of meta files."""
        bad = []
        for read in readers:
            try:
                content = read()
                identity = json.loads(content.split(b"\n", 1)[0]) if content else {}
                self._unwrap(identity)
            except SealingError as error:
                bad.append(f"{identity.get('label') or _name(identity)} ({error})")
            except (OSError, ValueError, StoreError):
                continue
        if bad:
            more = f" and {len(bad) - NAMED_MAX} more" if len(bad) > NAMED_MAX else ""
            raise KeyMissing(
                f"{len(bad)} streams are sealed and cannot be opened: "
                f"{', '.join(bad[:NAMED_MAX])}{more}. Configure their key (or the previous one); "
                "nothing was changed"
            )

    def _unwrap(self, identity: dict[str, Any]) -> list[DataKey]:
        rows = identity.get("keys", [])
        if rows and self.ring is None:
            raise SealingError("it is sealed, and no key is configured")
        return [self.ring.unwrap(row, context(identity)) for row in rows] if self.ring else []

    def make(self, stream_id: int) -> Packer:
        """A packer that knows no key and no dictionary."""
        begin = self._directory.clock.wall_ns() & (1 << 64) - 1
        return Packer(stream_id, begin.to_bytes(8, "little") + self._random(16))

    def open(self, identity: dict[str, Any], found: bool = False) -> Packer:
        """The packer of a stream that was `found` or is new. Puts a new data key into `identity`,
        and wraps the others again, when the node's key or cipher is new to it; what a stream has is
        to be packed again then. Raises SealingError."""
        ring, rows = self.ring, identity.get("keys", [])
        keys = self._unwrap(identity)
        packer = self.make(int(identity["id"], 16))
        if ring is None:
            return packer
        if not ring.fits(rows):
            self._append_key(ring, identity, keys)
            if found:
                identity["repack"] = True
        for key in keys:
            packer.add_key(key, ring.newest is not None and key is keys[-1])
        return packer

    def renew(self, identity: dict[str, Any]) -> DataKey:
        """A new data key for a stream that has others, put into `identity`; what the stream has is
        to be packed again. Raises SealingError."""
        if self.ring is None or self.ring.newest is None:
            raise SealingError("no key to seal with is configured")
        keys = self._unwrap(identity)
        self._append_key(self.ring, identity, keys)
        identity["repack"] = True
        return keys[-1]

    def _append_key(self, ring: KeyRing, identity: dict[str, Any], keys: list[DataKey]) -> None:
        number = max((key.number for key in keys), default=0) + 1
        keys.append(ring.make(number, self._random))
        identity["keys"] = [ring.wrap(key, context(identity), self._random) for key in keys]

    def load_dictionaries(
        self, path: Path, identity: dict[str, Any], packer: Packer, problems: list[Problem]
    ) -> None:
        """Have the packer know the dictionaries that a stream's identity lists."""
        for number in identity.get("dictionaries", []):
            file = TwoCopyFile(dictionary_path(path, number))
            content, damaged = None, False
            try:
                stored = file.read()
                damaged = bool(file.damaged)
                content = packer.open_blob(stored, PURPOSE) if stored is not None else None
                if content is not None and is_another(identity, number, content):
                    content = None
                if content is not None:
                    packer.use_dictionary(number, content)
            except (OSError, StoreError) as error:
                problems.append(Problem.of(ProblemKind.FAILED, file.path, f": {error}"))
            if content is None:
                text = " is missing or damaged: messages compressed with it cannot be read"
                problems.append(Problem.of(ProblemKind.LOST, file.path, text))
            elif damaged and stored is not None:
                text = ": a copy was damaged; it was written again"
                problems.append(Problem.of(ProblemKind.REPAIRED, file.path, text))
                file.write(stored)

    def train(
        self,
        store: Any,
        samples: list[bytes],
        background: Background,
        number: int,
        save_number: Callable[[bytes], None],
    ) -> None:
        """Make a dictionary from messages, store it durably, `save_number` in the stream's meta,
        and compress with it from then on. In the background; without one when that fails."""

        def made(content: bytes | None, error: BaseException | None) -> None:
            if content and not store.closed:
                data = store.packer.seal_blob(content, PURPOSE)
                file = TwoCopyFile(dictionary_path(store.directory, number))
                background.submit(lambda: file.write(data), lambda _, bad: written(content, bad))
            else:
                store.packer.on_samples = None

        def written(content: bytes, error: BaseException | None) -> None:
            if store.closed:
                return
            try:
                if error is not None:
                    raise error
                save_number(content)
                store.packer.use_dictionary(number, content)
            except (OSError, StoreError) as failure:
                store.packer.on_samples = None
                log.warning(
                    "the stream in %s compresses without a dictionary, since none can be "
                    "stored: %s",
                    store.directory,
                    failure,
                )

        background.submit(lambda: make_dictionary(samples), made)


def list_dictionary(identity: dict[str, Any], number: int, content: bytes) -> None:
    """Put a new dictionary in a stream's identity, and what it is known by."""
    identity["dictionaries"] = [*identity.get("dictionaries", []), number]
    identity.setdefault("dictionary_sums", {})[str(number)] = int(checksum(content))


def is_another(identity: dict[str, Any], number: int, content: bytes) -> bool:
    """Whether this is the dictionary of another stream, or an earlier one."""
    known = identity.get("dictionary_sums", {}).get(str(number))
    return known is not None and known != int(checksum(content))


def _name(identity: dict[str, Any]) -> str:
    return f"'{identity.get('account')} > {identity.get('name')}'"


def context(identity: dict[str, Any]) -> bytes:
    """What a stream's data keys are bound to."""
    return f"{identity['id']}:{identity['incarnation']}".encode()


def sealed_meta(packer: Packer, meta: bytes) -> bytes:
    """The stream layer's part of a meta file."""
    return bytes(packer.seal_blob(meta, META_PURPOSE))


def write_dictionary(store: Any, number: int) -> bool:
    """Write a dictionary again, sealed with the newest key; whether it is known. Raises OSError."""
    content = store.packer.dictionary_content(number)
    if content is None:
        return False
    file = TwoCopyFile(dictionary_path(store.directory, number))
    file.replace(store.packer.seal_blob(content, PURPOSE))
    return True


def dictionary_path(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.dict"
