"""Two servers in turn under the same patterns: rounds, medians, ratios.

All servers live for a whole round; those that are not measured are stopped by SIGSTOP, so that
their garbage collectors and timers cost the others nothing. The order flips with every round.
"""

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import build
from bench.machine import Machine, look
from bench.patterns import Figure, Load, Mismatch, Pattern
from bench.servers import Recipe, Server
from bench.wire import Link
from headwater.edge.wire.message import WireError


@dataclass
class Side:
    """One server in a comparison, and what was seen of it. Seconds and MiB, one per round."""

    recipe: Recipe
    version: str = ""
    startup: list[float] = field(default_factory=list)
    startup_bare: list[float] = field(default_factory=list)
    rss_idle: list[float] = field(default_factory=list)
    rss_after: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    """All rounds of one pattern for both sides; `errors` says what could not be measured."""

    pattern: Pattern
    ours: list[Figure] = field(default_factory=list)
    theirs: list[Figure] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def value(self, figure: Figure) -> float:
        """The compared number: messages per second, or what the pattern's `part` is of."""
        return figure.latency[self.pattern.part] if self.pattern.latency else figure.rate

    def median(self, figures: Sequence[Figure]) -> float | None:
        """Median over rounds of the compared number; None when no round succeeded."""
        return statistics.median(map(self.value, figures)) if figures else None

    def ratio(self) -> float | None:
        """How many times better ours is than theirs, by medians."""
        ours, theirs = self.median(self.ours), self.median(self.theirs)
        if ours is None or theirs is None:
            return None
        return theirs / ours if self.pattern.latency else ours / theirs

    def spread(self) -> tuple[float, float] | None:
        """Lowest and highest ratio of a single round."""
        pairs = [
            (self.value(mine), self.value(other))
            for mine, other in zip(self.ours, self.theirs, strict=False)
        ]
        if not pairs:
            return None
        ratios = [other / mine if self.pattern.latency else mine / other for mine, other in pairs]
        return min(ratios), max(ratios)


@dataclass(frozen=True)
class Step:
    """Progress: one measurement is about to run, or (with a figure or an error) has run."""

    done: int
    total: int
    round: int
    pattern: Pattern
    server: str
    figure: Figure | None = None
    error: str = ""


@dataclass(frozen=True)
class Plan:
    """What to run: sides, patterns, rounds, the scale of messages and the cap in seconds."""

    ours: Recipe
    theirs: Recipe
    patterns: tuple[Pattern, ...]
    synced: Recipe | None = None
    rounds: int = 3
    scale: float = 1.0
    messages: int | None = None
    seconds: float = 10.0
    timeout: float = 15.0
    parent: Path | None = None

    def load(self, pattern: Pattern) -> Load:
        """The load of one run of the pattern."""
        messages = self.messages or max(100, int(pattern.messages * self.scale))
        return Load(messages, self.seconds, self.timeout)


@dataclass
class Report:
    """Everything that a comparison found."""

    machine: Machine
    ours: Side
    theirs: Side
    outcomes: list[Outcome]
    synced: Side | None = None

    def sides(self) -> list[Side]:
        """Ours, theirs, and theirs with every write synced when a pattern asks for it."""
        return [side for side in (self.ours, self.theirs, self.synced) if side is not None]

    def failed(self) -> list[str]:
        """Measurements that did not happen or cannot be trusted."""
        return [error for outcome in self.outcomes for error in outcome.errors]

    def below(self, floors: dict[str, float]) -> list[str]:
        """Names of patterns whose ratio is under their floor (`""` is the floor for all)."""
        low = []
        for outcome in self.outcomes:
            general = None if outcome.pattern.unequal else floors.get("")
            floor = floors.get(outcome.pattern.name, general)
            ratio = outcome.ratio()
            if floor is not None and (ratio is None or ratio < floor):
                low.append(outcome.pattern.name)
        return low


class Comparison:
    """Runs a plan. `watch` is told before and after every measurement."""

    def __init__(self, plan: Plan, watch: Callable[[Step], None]) -> None:
        self._plan = plan
        self._watch = watch
        self._done = 0
        self._total = plan.rounds * len(plan.patterns) * 2
        self.report = Report(
            look(plan.parent),
            Side(plan.ours),
            Side(plan.theirs),
            [Outcome(pattern) for pattern in plan.patterns],
        )
        if plan.synced is not None and any(pattern.synced for pattern in plan.patterns):
            self.report.synced = Side(plan.synced)

    def run(self) -> Report:
        """All rounds; raises `ServerFailed` when a server cannot be started at all."""
        build.generator()
        for number in range(self._plan.rounds):
            self._round(number)
        return self.report

    def _round(self, number: int) -> None:
        for side in self.report.sides():
            with Server(side.recipe.bare(), parent=self._plan.parent) as server:
                side.startup_bare.append(server.startup)
        with contextlib.ExitStack() as stack:
            servers = [
                (side, stack.enter_context(Server(side.recipe, parent=self._plan.parent)))
                for side in self.report.sides()
            ]
            for side, server in servers:
                self._meet(side, server)
                server.pause()
            for outcome in self.report.outcomes:
                other = servers[-1] if outcome.pattern.synced else servers[1]
                turns = [(servers[0][1], outcome.ours), (other[1], outcome.theirs)]
                for server, figures in turns if number % 2 == 0 else turns[::-1]:
                    self._measure(number, outcome, figures, server)
            for side, server in servers:
                side.rss_after.append(server.rss())

    def _meet(self, side: Side, server: Server) -> None:
        with Link(server.port, self._plan.timeout) as link:
            side.version = str(link.info.get("version", ""))
        side.startup.append(server.startup)
        side.rss_idle.append(server.rss())

    def _measure(
        self, number: int, outcome: Outcome, figures: list[Figure], server: Server
    ) -> None:
        pattern, name = outcome.pattern, server.recipe.name
        self._watch(Step(self._done, self._total, number + 1, pattern, name))
        figure, error = self._attempt(pattern, server)
        self._done += 1
        if figure is not None:
            figures.append(figure)
        else:
            outcome.errors.append(f"{pattern.name}: {name}: {error}")
        self._watch(Step(self._done, self._total, number + 1, pattern, name, figure, error))

    def _attempt(self, pattern: Pattern, server: Server) -> tuple[Figure | None, str]:
        """One measurement; a server that died, or may be in a bad state, is started afresh."""
        load_error = build.generator().LoadError
        server.resume()
        try:
            return pattern.run(server, self._plan.load(pattern)), ""
        except (load_error, Mismatch, WireError, OSError) as error:
            text = str(error) or type(error).__name__
            if not server.alive():
                text += f"; the server ended\n{server.log[-500:]}"
            server.stop()
            server.start()
            return None, text
        finally:
            server.pause()


def timed(watch: Callable[[Step, float], None]) -> Callable[[Step], None]:
    """A watcher that also tells the seconds still to go, by the mean of the steps done."""
    begin = time.monotonic()

    def told(step: Step) -> None:
        passed = time.monotonic() - begin
        watch(step, passed / step.done * (step.total - step.done) if step.done else 0.0)

    return told
