"""Simulated time of several machines: clocks, and event loops that take turns in one order.

Every start of a node has a loop of its own, so that what it asked for ends with it. Sockets between
loops are real, nobody else's, and looked at in the order in which they were entered.
"""

import asyncio
import logging
import select
from collections.abc import Callable
from typing import Any

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.edge.storage.log.commit_stepper import CommitStepper
from tests.sim.checks.checker import Violation

SECOND_NS = 1_000_000_000
EPOCH_NS = 1_700_000_000 * SECOND_NS
ROUNDS_MAX = 2_000_000
"""Rounds of loops in one run; more means that something spins."""
SPIN_MAX = 20_000
"""Rounds in which time stands still."""
Callback = Callable[..., Any]


class MachineClock:
    """The clocks of one machine. As `headwater.edge.ports.ports.Clock`."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.started_ns = 0
        self.set_by_ns = 0
        """By how much the wall clock is wrong."""
        self.starts = 1

    @property
    def true_ns(self) -> int:
        """Since this machine was switched on; nobody sets it."""
        return self.world.now_ns - self.started_ns

    @property
    def boot(self) -> str:
        """Names this run of the machine."""
        return f"boot {self.starts}"

    def wall_ns(self) -> int:
        return EPOCH_NS + self.world.now_ns + self.set_by_ns

    def monotonic_ns(self) -> int:
        return self.true_ns

    def switch_on(self) -> None:
        """The machine starts again."""
        self.starts += 1
        self.started_ns = self.world.now_ns - SECOND_NS


class _Waiter:
    """The selector of a loop: says which sockets are ready, and never waits."""

    def __init__(self, loop: "SimLoop") -> None:
        self.loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        return self.loop.ready_sockets()

    def close(self) -> None:
        """Nothing is open."""


class SimLoop(TwinLoop):
    """A loop with sockets, whose owner says when it runs."""

    _ready: Any
    _scheduled: Any

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self._selector = _Waiter(self)  # type: ignore[assignment]
        self.readers: dict[int, tuple[Callback, tuple[Any, ...]]] = {}
        self.writers: dict[int, tuple[Callback, tuple[Any, ...]]] = {}
        self._poller = select.poll()
        self._changed = False
        self.write_delay_s = 0.0
        """What the device takes for a write and sync of the commit log."""
        self.still_until_ns = 0
        """Of the world's time: till then the process stands still, as by SIGSTOP, and its clocks go
        on."""
        self.ended = False
        """The node is off: what its coroutines do when they are cleared away counts no more."""

    def ready_sockets(self) -> list[tuple[Callback, tuple[Any, ...]]]:
        """What is to be called, in the order in which it was asked for."""
        if not self.readers and not self.writers:
            return []
        if self._changed:
            self._changed = False
            self._poller = select.poll()
            for fd in {**self.readers, **self.writers}:
                wanted = select.POLLIN if fd in self.readers else 0
                self._poller.register(fd, wanted | (select.POLLOUT if fd in self.writers else 0))
        events = dict(self._poller.poll(0))
        if not events:
            return []
        ends = select.POLLHUP | select.POLLERR
        found = [row for fd, row in self.readers.items() if events.get(fd, 0) & (1 | ends)]
        return found + [row for fd, row in self.writers.items() if events.get(fd, 0) & (4 | ends)]

    def is_ready(self) -> bool:
        """Whether anything can run now."""
        if self._ready or (self._scheduled and self._scheduled[0].when() <= self.time()):
            return True
        return bool(self.ready_sockets())

    def next_ns(self) -> int | None:
        """When the next timer is due, on the clock of the machine."""
        if not self._scheduled:
            return None
        return int(self._scheduled[0].when() * SECOND_NS) + 1

    def call_soon(self, callback: Callback, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        if self.ended:
            return None
        owner = getattr(callback, "__self__", None)
        if self.write_delay_s and isinstance(owner, CommitStepper):
            return self.call_later(self.write_delay_s, callback, *args)
        return super().call_soon(callback, *args, context=context)

    def _process_events(self, event_list: list[Any]) -> None:
        for callback, args in event_list:
            super().call_soon(callback, *args)

    def add_reader(self, fd: Any, callback: Callback, *args: Any) -> None:  # type: ignore[override]
        self._changed = True
        self.readers[fd] = (callback, args)

    def add_writer(self, fd: Any, callback: Callback, *args: Any) -> None:  # type: ignore[override]
        self._changed = True
        self.writers[fd] = (callback, args)

    def remove_reader(self, fd: Any) -> bool:
        self._changed = True
        return self.readers.pop(fd, None) is not None

    def remove_writer(self, fd: Any) -> bool:
        self._changed = True
        return self.writers.pop(fd, None) is not None

    def drop(self) -> None:
        super().drop()
        self.readers.clear()
        self.writers.clear()


class FaultLog(logging.Handler):
    """Collects what the product logs as an exception: nothing of a run may be one."""

    def __init__(self, world: "World") -> None:
        super().__init__(logging.INFO)
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            raised = record.exc_info[1]
            self.world.wrong(f"{record.getMessage()}: {type(raised).__name__}: {raised}")
        elif record.levelno >= logging.WARNING:
            self.world.note(f"  log: {record.getMessage()}")


class World:
    """One run: its time, its loops, what happened, and what is wrong."""

    def __init__(self, seed: int) -> None:
        self.chance = SeededRandom(seed)
        self.now_ns = 0
        self.loops: list[SimLoop] = []
        self.after: list[Callable[[], None]] = []
        """Called after every round of a loop."""
        self.trace: list[str] = []
        self.problem = ""
        self.rounds = 0
        self.own = self.loop(MachineClock(self))
        self._faults = FaultLog(self)
        self._root = logging.getLogger("headwater")
        self._before = (self._root.level, self._root.propagate)

    # -- what happened ----------------------------------------------------------

    def note(self, text: str) -> None:
        """A line of the transcript."""
        self.trace.append(f"{self.now_ns / SECOND_NS:10.4f} {text}")

    def wrong(self, what: str) -> None:
        """Something does not hold. It is raised when the round ends: a sink may raise nothing."""
        if not self.problem:
            self.problem = what
            self.note(f"WRONG {what}")

    def check(self, holds: bool, what: str) -> None:
        """`wrong` unless it holds."""
        if not holds:
            self.wrong(what)

    def judge(self) -> None:
        """Raise Violation for what was wrong in this round, or behind the last one."""
        if self.problem:
            raise Violation(self.problem)

    def __enter__(self) -> "World":
        self._root.addHandler(self._faults)
        self._root.setLevel(logging.WARNING)
        self._root.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        self._root.removeHandler(self._faults)
        self._root.setLevel(self._before[0])
        self._root.propagate = self._before[1]
        for loop in list(self.loops):
            self.forget(loop)

    # -- time -------------------------------------------------------------------

    def loop(self, clock: MachineClock) -> SimLoop:
        """Another loop."""
        made = SimLoop(clock)
        made.set_exception_handler(self._caught)
        self.loops.append(made)
        return made

    def forget(self, loop: SimLoop) -> None:
        """A loop has ended, with everything that was asked of it."""
        loop.set_exception_handler(lambda loop, context: None)
        loop.ended = True
        loop.drop()
        self.loops.remove(loop)

    def _caught(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.wrong(f"{context['message']}: {type(error).__name__}: {error}")

    def later(self, delay_ns: int, action: Callback, *args: Any) -> None:
        """Call something of the world's, not of a node's."""
        self.own.call_later(delay_ns / SECOND_NS, action, *args)

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time go on until something is true, at most for so long; whether it is."""
        end = self.now_ns + int(seconds * SECOND_NS)
        spins = 0
        while not condition():
            self.rounds += 1
            spins += 1
            if self.rounds > ROUNDS_MAX or spins > SPIN_MAX:
                raise Violation("something spins")
            if self._run_loops():
                continue
            spins = 0
            due = [loop.next_ns() for loop in self.loops]
            times = [
                max(at + loop.clock.started_ns, loop.still_until_ns)  # type: ignore[attr-defined]
                for loop, at in zip(self.loops, due, strict=True)
                if at is not None
            ]
            if self.now_ns >= end:
                return condition()
            self.now_ns = max(self.now_ns, min([*times, end]))
        return True

    def _run_loops(self) -> bool:
        ran = False
        for loop in list(self.loops):
            if loop in self.loops and loop.still_until_ns <= self.now_ns and loop.is_ready():
                ran = True
                loop.run_ready()
                for action in self.after:
                    action()
                self.judge()
        return ran

    def sleep(self, seconds: float) -> None:
        """Let time go on."""
        self.wait(lambda: False, seconds)
