"""What one node says to another of a stream's leadership."""

import msgspec


class Notice(msgspec.Struct, array_like=True, frozen=True):
    """Who leads a stream, or led it, is whoever sends it."""

    account: str
    stream: str
    group: int
    term: int
