"""NKeys: Ed25519 keys in the text form that NATS uses for identities.

A key's text is upper-case base32 without padding of a prefix byte, the raw key and a
CRC-16/XMODEM (little-endian) over both. Seeds carry two prefix bytes: "seed" and the kind.
"""

import base64
import binascii
import functools
import os
from typing import TYPE_CHECKING, Final

from headwater.security.errors import NKeyError

if TYPE_CHECKING:
    from nacl.public import Box

PREFIX_ACCOUNT: Final = "A"
PREFIX_CLUSTER: Final = "C"
PREFIX_SERVER: Final = "N"
PREFIX_OPERATOR: Final = "O"
PREFIX_USER: Final = "U"
PREFIX_CURVE: Final = "X"
PREFIX_PRIVATE: Final = "P"

_SEED_BYTE: Final = 18 << 3
_PREFIX_BYTES: Final = {
    "A": 0,
    "C": 2 << 3,
    "N": 13 << 3,
    "O": 14 << 3,
    "P": 15 << 3,
    "U": 20 << 3,
    "X": 23 << 3,
}
_PREFIX_LETTERS: Final = {byte: letter for letter, byte in _PREFIX_BYTES.items()}
_PUBLIC_PREFIXES: Final = frozenset("ACNOUX")
_SIGNING_PREFIXES: Final = frozenset("ACNOU")

KEY_BYTES: Final = 32
PUBLIC_KEY_LENGTH: Final = 56
SEED_LENGTH: Final = 58
SIGNATURE_BYTES: Final = 64
KNOWN_KEYS: Final = 4096
"""Public keys whose raw bytes are remembered."""
CURVE_VERSION: Final = b"xkv1"
"""How what curve keys encrypt begins; 24 bytes of nonce follow."""


def encode(prefix: str, raw: bytes) -> str:
    """Text of a key of kind `prefix` (one letter). Raises NKeyError on an unknown kind."""
    byte = _PREFIX_BYTES.get(prefix)
    if byte is None:
        raise NKeyError(f"unknown key prefix {prefix!r}")
    if len(raw) != KEY_BYTES:
        raise NKeyError(f"a key has {KEY_BYTES} bytes, not {len(raw)}")
    return _seal(bytes([byte]) + raw)


def decode(text: str) -> tuple[str, bytes]:
    """Kind letter and raw bytes of a public or private key. Raises NKeyError."""
    body = _unseal(text)
    letter = _PREFIX_LETTERS.get(body[0])
    if letter is None or len(body) != 1 + KEY_BYTES:
        raise NKeyError("not a public key")
    return letter, body[1:]


def encode_seed(prefix: str, seed: bytes) -> str:
    """Text of a seed of kind `prefix`. Raises NKeyError."""
    byte = _PREFIX_BYTES.get(prefix)
    if byte is None or prefix not in _PUBLIC_PREFIXES:
        raise NKeyError(f"unknown key prefix {prefix!r}")
    if len(seed) != KEY_BYTES:
        raise NKeyError(f"a seed has {KEY_BYTES} bytes, not {len(seed)}")
    return _seal(bytes([_SEED_BYTE | byte >> 5, (byte & 31) << 3]) + seed)


def decode_seed(text: str) -> tuple[str, bytes]:
    """Kind letter and raw 32-byte seed. Raises NKeyError."""
    body = _unseal(text)
    if len(body) != 2 + KEY_BYTES or body[0] & 0xF8 != _SEED_BYTE:
        raise NKeyError("not a seed")
    letter = _PREFIX_LETTERS.get((body[0] & 7) << 5 | body[1] >> 3)
    if letter is None or letter not in _PUBLIC_PREFIXES:
        raise NKeyError("seed of an unknown kind")
    return letter, body[2:]


def is_public_key(text: str, prefixes: str = "ACNOUX") -> bool:
    """Whether `text` is a well-formed public key of one of the kinds in `prefixes`."""
    if len(text) != PUBLIC_KEY_LENGTH or text[0] not in prefixes:
        return False
    try:
        letter, _ = _decode_public(text)
    except NKeyError:
        return False
    return letter in prefixes


@functools.lru_cache(KNOWN_KEYS)
def _decode_public(text: str) -> tuple[str, bytes]:
    """`decode` of what is no secret: the same few keys sign at every login."""
    letter, raw = decode(text)
    if letter not in _PUBLIC_PREFIXES:
        raise NKeyError("not a public key")
    return letter, raw


def verify(public_key: str, data: bytes, signature: bytes) -> bool:
    """Whether `signature` over `data` was made by the owner of `public_key`."""
    try:
        if len(public_key) != PUBLIC_KEY_LENGTH:
            return False
        letter, raw = _decode_public(public_key)
    except NKeyError:
        return False
    if letter not in _SIGNING_PREFIXES or len(signature) != SIGNATURE_BYTES:
        return False
    from nacl.bindings import crypto_sign_open
    from nacl.exceptions import BadSignatureError

    try:
        crypto_sign_open(signature + data, raw)
    except BadSignatureError:
        return False
    return True


def _curve_public(seed: bytes) -> bytes:
    # Each start makes such a key, and the library's own wrappers take ten times as long to load.
    from nacl._sodium import ffi, lib  # type: ignore[import-not-found]

    public = ffi.new("unsigned char[]", KEY_BYTES)
    lib.sodium_init()
    lib.crypto_scalarmult_base(public, seed)
    return bytes(ffi.buffer(public, KEY_BYTES))


class KeyPair:
    """A key that can sign (or, kind X, only be named). Owns its seed; keep it short-lived."""

    __slots__ = ("_prefix", "_public", "_secret", "_seed")

    def __init__(self, prefix: str, seed: bytes) -> None:
        """A key pair of kind `prefix` from a raw 32-byte seed. Raises NKeyError."""
        if prefix not in _PUBLIC_PREFIXES:
            raise NKeyError(f"unknown key prefix {prefix!r}")
        if len(seed) != KEY_BYTES:
            raise NKeyError(f"a seed has {KEY_BYTES} bytes, not {len(seed)}")
        self._prefix = prefix
        self._seed = seed
        if prefix == PREFIX_CURVE:
            self._public = encode(prefix, _curve_public(seed))
            self._secret = seed
        else:
            from nacl.bindings import crypto_sign_seed_keypair

            public, self._secret = crypto_sign_seed_keypair(seed)
            self._public = encode(prefix, public)

    @classmethod
    def create(cls, prefix: str) -> "KeyPair":
        """A fresh key pair of kind `prefix`, from the system's randomness."""
        return cls(prefix, os.urandom(KEY_BYTES))

    @classmethod
    def from_seed(cls, seed: str | bytes) -> "KeyPair":
        """The key pair of a seed's text. Raises NKeyError."""
        if isinstance(seed, bytes):
            try:
                seed = seed.decode("ascii")
            except UnicodeDecodeError as error:
                raise NKeyError("a seed is ASCII text") from error
        return cls(*decode_seed(seed.strip()))

    def __repr__(self) -> str:
        return f"KeyPair({self._public})"

    @property
    def prefix(self) -> str:
        """Kind letter: one of A C N O U X."""
        return self._prefix

    @property
    def public_key(self) -> str:
        """Public key text, 56 characters."""
        return self._public

    @property
    def seed(self) -> str:
        """Seed text, 58 characters. Secret."""
        return encode_seed(self._prefix, self._seed)

    def sign(self, data: bytes) -> bytes:
        """Ed25519 signature of `data`, 64 bytes. Raises NKeyError for curve keys."""
        if self._prefix == PREFIX_CURVE:
            raise NKeyError("curve keys cannot sign")
        from nacl.bindings import crypto_sign

        return crypto_sign(data, self._secret)[:SIGNATURE_BYTES]

    def seal(self, data: bytes, receiver: str) -> bytes:
        """`data` encrypted for the curve key `receiver`. Raises NKeyError."""
        return CURVE_VERSION + self._box(receiver).encrypt(data)

    def open(self, data: bytes, sender: str) -> bytes:
        """What `seal` was given, encrypted by the curve key `sender`. Raises NKeyError."""
        from nacl.exceptions import CryptoError

        if not data.startswith(CURVE_VERSION):
            raise NKeyError("not encrypted by a curve key")
        try:
            return self._box(sender).decrypt(data[len(CURVE_VERSION) :])
        except (CryptoError, ValueError, TypeError) as error:
            raise NKeyError("not encrypted by that curve key for this one") from error

    def _box(self, peer: str) -> "Box":
        from nacl.public import Box, PrivateKey, PublicKey

        letter, raw = decode(peer)
        if letter != PREFIX_CURVE or self._prefix != PREFIX_CURVE:
            raise NKeyError("encryption takes two curve keys")
        return Box(PrivateKey(self._secret), PublicKey(raw))


def _seal(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return base64.b32encode(body + checksum).decode("ascii").rstrip("=")


def _unseal(text: str) -> bytes:
    """Bytes before a correct checksum. Raises NKeyError."""
    if not 6 <= len(text) <= SEED_LENGTH or not text.isascii():
        raise NKeyError("not an NKey: wrong length or alphabet")
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError) as error:
        raise NKeyError("not an NKey: not base32") from error
    body, checksum = raw[:-2], raw[-2:]
    if len(body) < 2 or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise NKeyError("not an NKey: checksum mismatch")
    return body
