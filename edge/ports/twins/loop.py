"""An event loop on a clock set by hand: nothing waits, nothing runs beside it, no descriptors.

When nothing is ready the clock goes on to the next timer at once. Deterministic: callbacks run in
the order in which they were asked for, timers in the order of their times.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from headwater.edge.ports.twins.clock import ManualClock

SECOND_NS = 1_000_000_000


class _Waiter:
    """The selector of a loop without sockets: waiting means that the clock goes on."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.frozen = False

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing will ever happen on this loop")
        if timeout > 0 and not self.frozen:
            self.clock.true_ns += int(timeout * SECOND_NS) + 1
        return []

    def close(self) -> None:
        pass


class TwinLoop(asyncio.BaseEventLoop):
    """Give it and its clock to a `Kernel`; then `run_ready` or `run_until`."""

    _ready: Any
    _scheduled: Any

    def __init__(self, clock: ManualClock | None = None) -> None:
        super().__init__()
        self.clock = clock or ManualClock()
        self._selector = _Waiter(self.clock)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.clock.true_ns / SECOND_NS

    def run_ready(self) -> None:
        """Run what is ready now, once; what it asks for in turn is left for the next call."""
        self.call_soon(self.stop)
        self._selector.frozen = True
        try:
            self.run_forever()
        finally:
            self._selector.frozen = False

    def run_until(self, condition: Callable[[], bool], rounds: int = 100_000) -> None:
        """Run until something is true, going on to the next timer whenever nothing is ready.
        Raises TimeoutError after so many rounds."""
        for _ in range(rounds):
            if condition():
                return
            self.call_soon(self.stop) if self._ready else self._wait_for_timer()
            self.run_forever()
        raise TimeoutError("it did not happen")

    def _wait_for_timer(self) -> None:
        if not self._scheduled:
            raise TimeoutError("it will not happen: nothing is left to do")
        self.call_at(self._scheduled[0].when(), self.stop)

    def drop(self) -> None:
        """Forget everything that was asked for, as when the machine is off."""
        self._ready.clear()
        self._scheduled.clear()

    # What BaseEventLoop leaves to loops with sockets.

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def add_reader(self, fd: Any, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        pass

    def remove_reader(self, fd: Any) -> bool:
        return False
