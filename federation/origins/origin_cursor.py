"""How far an origin has been taken, as a node keeps it."""

import msgspec


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
