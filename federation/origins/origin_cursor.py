"""How far an origin has been taken, as a node keeps it."""

import msgspec


class EarlierOrigin(msgspec.Struct, array_like=True):
    """Another incarnation of the origin, which was taken before."""

    identity: str
    seq: int
    """The last sequence that was taken of it."""
    timed: int
    time: int
    """As of the cursor."""


class Cursor(msgspec.Struct, omit_defaults=True):
    """The cursor of a mirror or source: a part of the format, see docs/STORAGE.md."""

    seq: int = 0
    """Sequence at the origin."""
    local: int = 0
    """Last sequence of this stream when the cursor was kept."""
    identity: str = ""
    """Of the origin; "" while unknown."""
    time: int = 0
    """The origin's time of its message `timed`, in ns since 1970; 0 when it is unknown."""
    timed: int = 0
    """0: that of the message `seq`."""
    earlier: list[EarlierOrigin] = msgspec.field(default_factory=list)
    """Incarnations that were taken before, oldest first: one of them may come back."""


def earlier_in_cursor(earlier: list[EarlierOrigin]) -> bytes:
    """What `earlier` adds to a cursor's JSON before its closing brace."""
    return b',"earlier":' + msgspec.json.encode(earlier) if earlier else b""
