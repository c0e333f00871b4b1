"""A bundle: one signed file with everything that a slot of one kind of gateway needs.

It is a tar archive without compression (its wheels have their own): first `manifest.json`, then
`manifest.sig`, then the files that the manifest names with size and SHA-256, and no others. The
signature is Ed25519 over `CONTEXT` and the manifest's bytes.
"""

import base64
import binascii
import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from headwater.deploy.fleet.device.signature import verify

FORMAT = 1
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
CONTEXT = b"headwater bundle 1\n"
MANIFEST_BYTES_MAX = 1 << 20
FILE_BYTES_MAX = 1 << 30
INTERPRETER = "python.tar.gz"
BYTECODE = "bytecode.zip"
PIECE = 1 << 20


class BundleError(Exception):
    """A bundle is damaged, is not signed by a pinned key, or is for other machines."""


class Bundle:
    """An open bundle. `manifest` is verified when the constructor returns; files, as they are
    read. Raises BundleError and OSError."""

    def __init__(self, path: Path, pinned: list[str]) -> None:
        self.path = path
        try:
            self._tar = tarfile.open(path, "r:")  # noqa: SIM115
            raw = self._small(MANIFEST)
            signed = json.loads(self._small(SIGNATURE))
            signature = base64.b64decode(signed["signature"], validate=True)
            self.key: str = signed["key"]
        except (tarfile.TarError, ValueError, KeyError, TypeError, binascii.Error) as error:
            raise BundleError(f"{path.name} is no whole bundle: {error}; copy it again") from error
        if self.key not in pinned:
            raise BundleError(
                f"{path.name} is signed by {self.key}, which is not among the keys that are "
                "pinned here; sign the next key with the old one to change it"
            )
        if not verify(self.key, CONTEXT + raw, signature):
            raise BundleError(f"the signature of {path.name} is wrong: do not use this file")
        self.digest = hashlib.sha256(raw).hexdigest()
        self.manifest = checked_manifest(json.loads(raw))

    def close(self) -> None:
        """Close the file."""
        self._tar.close()

    def files(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Name and content of every file, each verified before it is handed out."""
        expected = {entry["path"]: entry for entry in self.manifest["files"]}
        try:
            for member in self._tar:
                if member.name in (MANIFEST, SIGNATURE):
                    continue
                entry = expected.pop(member.name, None)
                if entry is None or not member.isreg() or member.size != entry["size"]:
                    raise BundleError(f"{member.name} is not as the manifest says: copy it again")
                self._check(member, entry["sha256"])
                content = self._tar.extractfile(member)
                assert content is not None
                yield member.name, content
        except (tarfile.TarError, EOFError, OSError) as error:
            raise BundleError(f"{self.path.name} is cut off or damaged: {error}") from error
        if expected:
            raise BundleError(f"{self.path.name} is cut off: {sorted(expected)[0]} is missing")

    def _check(self, member: tarfile.TarInfo, sha256: str) -> None:
        content = self._tar.extractfile(member)
        assert content is not None
        digest = hashlib.sha256()
        while piece := content.read(PIECE):
            digest.update(piece)
        if digest.hexdigest() != sha256:
            raise BundleError(f"{member.name} in {self.path.name} is damaged: copy it again")

    def _small(self, name: str) -> bytes:
        member = self._tar.getmember(name)
        if member.size > MANIFEST_BYTES_MAX:
            raise ValueError(f"{name} is too long")
        content = self._tar.extractfile(member)
        if content is None:
            raise ValueError(f"{name} is no file")
        return content.read()


def checked_manifest(manifest: Any) -> dict[str, Any]:
    """The manifest, if it is one that this program understands. Raises BundleError."""
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError("the bundle is of a later format: upgrade the program that flashes")
    for entry in manifest["files"]:
        path, size = str(entry["path"]), entry["size"]
        if path.startswith("/") or ".." in path.split("/") or not 0 <= size <= FILE_BYTES_MAX:
            raise BundleError(f"the manifest names an impossible file {path!r}")
    return manifest
