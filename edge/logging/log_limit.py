"""How many lines a log takes: from one peer, and from one place in the program, each second.

Debugging and tracing lines pass, since somebody asked for them, and so do those that end a node.
"""

import logging
import re
from collections.abc import Callable

from headwater.edge.ports.ports import SystemClock

PEER_LINES = 20
"""Lines of one second that begin with one peer's address."""

CALL_SITE_LINES = 200
"""Lines of one second that one statement of the program logs."""

TRACEBACK_S = 10.0
"""From one traceback that a statement logs to its next; the lines between name the error only."""

KEYS_MAX = 4096
"""Peers and places that are counted; when there are more in one second, all share what is left."""

_PEER = re.compile(r"\[?([0-9A-Fa-f:.]{2,45})\]?:\d{1,5} - ")

_CLOCK = SystemClock()


def _machine_seconds() -> float:
    return _CLOCK.monotonic_ns() / 1e9


class LineLimit(logging.Filter):
    """Lets a handler's records pass within the limits, and tells how many it left out."""

    def __init__(
        self,
        tell: Callable[[logging.LogRecord], object],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`tell(record)` handles the records that say how many lines are missing; `clock` gives
        seconds since any moment, None is the machine's."""
        super().__init__()
        self._tell = tell
        self._clock = clock or _machine_seconds
        self._second = 0
        self._counts: dict[object, int] = {}
        self._left_out: dict[str, int] = {}
        self._shown: dict[tuple[str, int], float] = {}
        self._telling = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may pass."""
        if self._telling or not logging.INFO <= record.levelno < logging.CRITICAL:
            return True
        now = self._clock()
        if int(now) != self._second:
            self._next_second(int(now))
        call_site = (record.pathname, record.lineno)
        if not self._passes(record, call_site):
            return False
        if record.exc_info:
            self._shorten(record, call_site, now)
        return True

    def _passes(self, record: logging.LogRecord, call_site: tuple[str, int]) -> bool:
        found = _PEER.match(record.getMessage())
        if found is not None and self._count(found[1]) > PEER_LINES:
            self._leave_out(f"about {found[1]}")
            return False
        if self._count(call_site) > CALL_SITE_LINES:
            self._leave_out(f"of {record.name}")
            return False
        return True

    def _count(self, key: object) -> int:
        if key not in self._counts and len(self._counts) >= KEYS_MAX:
            key = None
        self._counts[key] = self._counts.get(key, 0) + 1
        return self._counts[key]

    def _leave_out(self, what: str) -> None:
        if what in self._left_out or len(self._left_out) < KEYS_MAX:
            self._left_out[what] = self._left_out.get(what, 0) + 1

    def _next_second(self, second: int) -> None:
        self._second = second
        self._counts.clear()
        left_out, self._left_out = self._left_out, {}
        self._telling = True
        try:
            for what, count in list(left_out.items())[:PEER_LINES]:
                text = "%d further lines %s were left out"
                self._tell(
                    logging.LogRecord(
                        "headwater", logging.WARNING, __file__, 0, text, (count, what), None
                    )
                )
        finally:
            self._telling = False

    def _shorten(
        self, record: logging.LogRecord, call_site: tuple[str, int], now: float
    ) -> None:
        """Leave the traceback away when the last one of this place was a moment ago."""
        if now - self._shown.get(call_site, -TRACEBACK_S) >= TRACEBACK_S:
            self._shown[call_site] = now
            return
        assert record.exc_info is not None
        record.msg = f"{record.getMessage()}: {record.exc_info[1]!r}"
        record.args = ()
        record.exc_info = record.exc_text = None
