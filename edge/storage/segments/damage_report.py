"""Tells of messages that were found damaged: a line in the log, and whoever listens.

Findings of one moment are told together, so that a bad region of a device is one line and not
thousands. It knows neither streams nor consumers.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headwater.edge.storage.segments.manifest import runs_text

Listener = Callable[[Any, dict[int, str]], None]
"""Called with a store and {sequence: what is wrong}, outside of any read of that store."""

# Findings after the first ones are collected for this long, in seconds.
GATHER_SECONDS = 1.0

log = logging.getLogger("headwater.storage")


class DamageReport:
    """Collects findings per store; `label` names a store for people."""

    def __init__(self, loop: asyncio.AbstractEventLoop, label: Callable[[Any], str]) -> None:
        self.listeners: list[Listener] = []
        self.at_once: list[Callable[[Any], None]] = []
        """Called with a store as soon as a message of it is found damaged, amid a read of it."""
        self.on_logged: Callable[[Any], None] = lambda store: None
        """Called with a store of which damage was logged, once a second at most."""
        self.found = 0
        """Messages found damaged since the start."""
        self._loop = loop
        self._label = label
        self._fresh: dict[Any, dict[int, str]] = {}
        self._unlogged: dict[Any, dict[int, str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def report(self, store: Any, sequence: int, reason: str) -> None:
        """A message was taken out because it is damaged."""
        self.found += 1
        for each in self.at_once:
            each(store)
        if not self._fresh:
            self._loop.call_soon(self._hand_on)
        self._fresh.setdefault(store, {})[sequence] = reason

    def _hand_on(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for store, rows in fresh.items():
            self._unlogged.setdefault(store, {}).update(rows)
            for listener in self.listeners:
                listener(store, rows)
        if self._timer is None:
            self._log_findings()

    def _log_findings(self) -> None:
        """Write what is known by now, and gather what follows soon."""
        self._timer = None
        unlogged, self._unlogged = self._unlogged, {}
        for store, rows in unlogged.items():
            self.on_logged(store)
            reason = rows[min(rows)]
            log.warning(
                "stream '%s': %d messages are damaged and lost: %s (%s); all others are served",
                self._label(store),
                len(rows),
                runs_text(list(rows)),
                reason,
            )
        if unlogged:
            self._timer = self._loop.call_later(GATHER_SECONDS, self._log_findings)

    def stop(self) -> None:
        """Write what was not told yet."""
        if self._timer is not None:
            self._timer.cancel()
        self._log_findings()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
