"""Sealing at rest: the node's keys, the data keys of streams, and the ciphers.

A node key comes from the configuration, a file, the environment or a command. It never seals
data: it wraps random data keys, so replacing it costs one small write per stream. The storage
calls the ciphers themselves through a pair of C functions (see `functions`), libsodium's, which
PyNaCl brings along.
"""

import hashlib
import hmac
import importlib
import os
import shlex
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headwater.security.errors import SealingError
from headwater.security.whole_file import sync_directory

KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
CHACHA: Final = "xchacha20poly1305"
AES: Final = "aes256gcm"
NONCE_BYTES: Final = {CHACHA: 24, AES: 12}
COMMAND_SECONDS: Final = 30.0
SECRET_MIN: Final = 8
"""Characters of the shortest secret that is accepted. It is not stretched: use 32 random bytes."""


@dataclass(frozen=True)
class NodeKey:
    """One version of the node's key. `name` tells versions apart and gives nothing away."""

    secret: bytes
    name: str

    @classmethod
    def of(cls, text: bytes) -> "NodeKey":
        """From what an operator gave, without the white space around it. Raises SealingError."""
        text = text.strip()
        if len(text) < SECRET_MIN:
            raise SealingError(f"a key for sealing needs at least {SECRET_MIN} characters")
        secret = hmac.digest(b"headwater node key", text, hashlib.sha256)
        return cls(secret, hmac.digest(secret, b"name", hashlib.sha256)[:8].hex())


@dataclass(frozen=True)
class DataKey:
    """What seals a stream's data. `number` stands in everything it sealed."""

    number: int
    cipher: str
    secret: bytes


class KeyRing:
    """The node keys of a process: the `newest` wraps (None: nothing new is sealed), all unwrap."""

    def __init__(
        self, newest: NodeKey | None, previous: tuple[NodeKey, ...] = (), cipher: str = CHACHA
    ) -> None:
        if cipher not in NONCE_BYTES:
            raise SealingError(f"unknown cipher '{cipher}'")
        self.newest = newest
        self.cipher = usable(cipher)
        self._keys = {key.name: key for key in (*previous, newest) if key is not None}

    def make(self, number: int, random: Callable[[int], bytes] = os.urandom) -> DataKey:
        """A new data key; `random` returns so many random bytes."""
        return DataKey(number, self.cipher, random(KEY_BYTES))

    def wrap(
        self, key: DataKey, context: bytes, random: Callable[[int], bytes] = os.urandom
    ) -> dict[str, Any]:
        """A data key as it may be stored; `context` (who it belongs to) must be given again to
        unwrap it. Raises SealingError without a newest key."""
        from nacl import bindings

        if self.newest is None:
            raise SealingError("there is no key to seal with")
        nonce = random(NONCE_BYTES[CHACHA])
        box = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(
            key.secret, _bound(key.number, key.cipher, context), nonce, self.newest.secret
        )
        return {
            "number": key.number,
            "cipher": key.cipher,
            "by": self.newest.name,
            "key": (nonce + box).hex(),
        }

    def unwrap(self, row: dict[str, Any], context: bytes) -> DataKey:
        """Raises SealingError when no node key here opens it."""
        from nacl import bindings
        from nacl.exceptions import CryptoError

        node_key = self._keys.get(str(row.get("by")))
        if node_key is None:
            raise SealingError("it is sealed with a key that is not configured")
        try:
            number, cipher = int(row["number"]), usable(str(row["cipher"]))
            box = bytes.fromhex(row["key"])
            size = NONCE_BYTES[CHACHA]
            secret = bindings.crypto_aead_xchacha20poly1305_ietf_decrypt(
                box[size:], _bound(number, cipher, context), box[:size], node_key.secret
            )
        except (CryptoError, KeyError, ValueError, TypeError) as error:
            raise SealingError(f"its wrapped key is damaged: {error}") from error
        return DataKey(number, cipher, secret)

    def is_newest(self, row: dict[str, Any]) -> bool:
        """Whether a wrapped key needs no wrapping again."""
        return self.newest is None or row.get("by") == self.newest.name

    def fits(self, rows: list[dict[str, Any]]) -> bool:
        """Whether the wrapped keys of a stream, the last of which seals, are as configured."""
        if self.newest is None:
            return True
        same = bool(rows) and rows[-1].get("cipher") == self.cipher
        return same and all(map(self.is_newest, rows))


def _bound(number: int, cipher: str, context: bytes) -> bytes:
    return b"headwater data key\0%d\0%s\0%s" % (number, cipher.encode(), context)


def usable(cipher: str) -> str:
    """`cipher`, or SealingError when this machine cannot do it."""
    if cipher not in NONCE_BYTES:
        raise SealingError(f"unknown cipher '{cipher}'")
    if cipher == AES and not _sodium().lib.crypto_aead_aes256gcm_is_available():
        raise SealingError("this processor has no AES instructions: use cipher chacha")
    return cipher


def _sodium() -> Any:
    """libsodium as PyNaCl binds it, initialised by its `bindings`: before that it knows of no
    instructions that the processor has."""
    importlib.import_module("nacl.bindings")
    return importlib.import_module("nacl._sodium")


def functions(cipher: str) -> tuple[int, int]:
    """Addresses of the C functions that seal and open, with libsodium's arguments for an AEAD."""
    ffi, lib = _sodium().ffi, _sodium().lib
    name = "crypto_aead_aes256gcm" if cipher == AES else "crypto_aead_xchacha20poly1305_ietf"

    def address(verb: str) -> int:
        return int(ffi.cast("uintptr_t", ffi.addressof(lib, f"{name}_{verb}")))

    return address("encrypt"), address("decrypt")


def key_from_file(path: str) -> NodeKey:
    """A key that stands in a file, which nobody else may read. Raises SealingError."""
    try:
        mode = Path(path).stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise SealingError(f"{path} can be used by others: its mode must be 0600")
        return NodeKey.of(Path(path).read_bytes())
    except OSError as error:
        raise SealingError(f"cannot read the key in {path}: {error.strerror}") from error


def write_new_key(path: str) -> NodeKey:
    """Make a random key and write it to a new file that only this user can read. Raises OSError,
    FileExistsError when there is one."""
    text = os.urandom(KEY_BYTES).hex().encode() + b"\n"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    # Without this key, what is sealed with it is lost.
    sync_directory(Path(path).parent)
    return NodeKey.of(text)


def key_from_environment(name: str) -> NodeKey:
    """A key from an environment variable. Raises SealingError."""
    value = os.environ.get(name)
    if value is None:
        raise SealingError(f"the environment has no {name}, which is to hold a key")
    return NodeKey.of(value.encode())


def key_from_command(command: str) -> NodeKey:
    """A key that a command prints. Raises SealingError."""
    import subprocess

    try:
        done = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        kind = type(error).__name__
        raise SealingError(f"the command that prints the key failed ({kind})") from error
    return NodeKey.of(done.stdout)
