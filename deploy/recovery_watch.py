"""Shows how far a start has come: a bar on a terminal, log lines elsewhere, systemd's status."""

import logging
import sys
import time
from typing import Any

from headwater.deploy.notify import Notifier

QUIET_SECONDS = 1.0
"""A start that is over sooner says nothing."""
LINE_SECONDS = 5.0
"""Time between two log lines."""
TELL_SECONDS = 0.5
"""Time between two notifications of systemd, and two looks of the bar."""
EXTEND_USEC = 60_000_000
"""By how much each notification puts systemd's patience off."""

log = logging.getLogger("headwater.node")


class RecoveryWatch:
    """Called with segments read and segments in all, as often as one likes."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier
        self._began = time.monotonic()
        self._told = self._began
        self._lined = self._began
        self._bars: Any = None

    def __call__(self, done: int, total: int) -> None:
        if done >= total:
            self.close()
            return
        now = time.monotonic()
        spent = now - self._began
        if spent < QUIET_SECONDS or now - self._told < TELL_SECONDS:
            return
        self._told = now
        left = spent * (total - done) / done if done else 0.0
        text = f"recovering: {done} of {total} segments, {left:.0f} s left"
        self.notifier.send(STATUS=text, EXTEND_TIMEOUT_USEC=EXTEND_USEC)
        if sys.stderr.isatty():
            self._show(done, total)
        elif now - self._lined >= LINE_SECONDS:
            self._lined = now
            log.info("  Recovering: %d of %d segments, %.0f s left", done, total, left)

    def _show(self, done: int, total: int) -> None:
        if self._bars is None:
            from headwater.deploy.console import Bars

            self._bars = Bars()
            self._bars.__enter__()
        self._bars.update("recovering segments", done, total)

    def close(self) -> None:
        """The start is over."""
        if self._bars is not None:
            self._bars.__exit__(None, None, None)
            self._bars = None
