"""Which names JetStream assets may have, and the hash that the protocol makes of names."""

import hashlib

NAME_MAX = 255
FORBIDDEN = frozenset(" \t\r\n\f.*>/\\")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def valid_name(name: str) -> bool:
    """Whether `name` may name a stream or consumer; its length is checked apart."""
    return bool(name) and FORBIDDEN.isdisjoint(name)


def has_path_separator(name: str) -> bool:
    """Whether `name` holds a slash or backslash."""
    return "/" in name or "\\" in name


def name_hash(name: str) -> str:
    """The eight characters by which peers, groups and accounts are named on the wire."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join(_DIGITS[b % 62] for b in digest[:8])
