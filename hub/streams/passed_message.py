"""A message of a stream that one node passes to another, which leads the stream."""

import msgspec


class PassedMessage(msgspec.Struct, array_like=True, frozen=True):
    """`headers` is a whole block or empty, and `group` the stream's."""

    account: str
    stream: str
    group: int
    subject: bytes
    reply: bytes
    headers: bytes
    payload: bytes


class Delivery(PassedMessage, array_like=True, frozen=True):
    """One that a consumer has handed out."""

    by: int = 0
    """The number of the node that did, when it may lead still; 0: it was replaced."""
