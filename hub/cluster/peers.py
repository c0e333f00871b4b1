"""Who a node is to its cluster: a number for Raft and a short id for people, both of its name.

The id is nats-server's: eight characters, made of the SHA-256 of the server's name. Its bytes are
the number, so either can be had from the other.
"""

import hashlib
from functools import lru_cache

DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
ID_BYTES = 8
NAMES_MAX = 1024
"""Names whose numbers are remembered."""


def peer_id(server_name: str) -> str:
    """The id of the node with that name, as `peer` in answers of the API."""
    digest = hashlib.sha256(server_name.encode()).digest()[:ID_BYTES]
    return bytes(DIGITS[byte % len(DIGITS)] for byte in digest).decode()


def number_of(peer: str) -> int:
    """The node number of an id. Raises ValueError when it is none."""
    data = peer.encode()
    if len(data) != ID_BYTES or not set(data) <= set(DIGITS):
        raise ValueError(f"{peer!r} is no peer id")
    return int.from_bytes(data, "big")


def peer_of(number: int) -> str:
    """The id of a node number."""
    return number.to_bytes(ID_BYTES, "big").decode("ascii", "replace")


@lru_cache(NAMES_MAX)
def number_of_name(server_name: str) -> int:
    """The node number of the node with that name: asked for with every frame."""
    return number_of(peer_id(server_name))
