"""The short hash that NATS servers make of names: accounts, streams' identities, peers."""

import hashlib

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LENGTH = 8


def name_hash(name: str) -> str:
    """Eight letters and digits from the SHA-256 of `name`."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:_LENGTH])
