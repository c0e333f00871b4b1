"""How long the head of an HTTP request may be: as long as nats-server's, Go's, lets it be.

One alone may have a MiB; all that have not ended share what those beyond `SMALL` may have, so that
many of them are no memory of the node's.
"""

import re
from typing import Final

HEAD_MAX: Final = (1 << 20) + 4096
"""Bytes of a request's first line and fields, with the blank line that ends them."""
FIELDS_MAX: Final = 500
SMALL: Final = 16 << 10
"""Bytes that each may have, whatever others have."""
LARGE_TOGETHER: Final = 8 << 20
END: Final = re.compile(rb"\r?\n\r?\n")


class HeadTooLarge(Exception):
    """A head that gets 431; the text says why."""


def check_fields(count: int) -> None:
    """Refuse a complete head of so many fields. Raises HeadTooLarge."""
    if count > FIELDS_MAX:
        raise HeadTooLarge(f"a head of more than {FIELDS_MAX} fields")


class HeadRoom:
    """What large heads of one listener take together."""

    def __init__(self) -> None:
        self.used = 0


class HeadCount:
    """Counts the head that one connection is sending."""

    def __init__(self, room: HeadRoom) -> None:
        self._room = room
        self._bytes = self._lines = 0
        self._tail = b""

    def add(self, data: bytes) -> None:
        """More of it has come, and perhaps what follows. Raises HeadTooLarge."""
        found = END.search(self._tail + data)
        end = found.end() - len(self._tail) if found is not None else len(data)
        self._tail = (self._tail + data)[-3:]
        before = max(0, self._bytes - SMALL)
        self._bytes += end
        self._lines += data.count(b"\n", 0, end)
        self._room.used += max(0, self._bytes - SMALL) - before
        if self._bytes > HEAD_MAX:
            raise HeadTooLarge(f"a head of more than {HEAD_MAX} bytes")
        check_fields(self._lines - 2)
        if self._room.used > LARGE_TOGETHER:
            raise HeadTooLarge("too many large heads at a time")

    def end(self) -> None:
        """The head is complete, or given up; another may follow."""
        self._room.used -= max(0, self._bytes - SMALL)
        self._bytes = self._lines = 0
        self._tail = b""
