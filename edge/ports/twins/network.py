"""A network in memory: loss, delay, duplicates, disorder, and links that are cut one way."""

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.edge.ports.ports import Random


@dataclass
class Weather:
    """Probabilities in per mille, delays in microseconds."""

    loss: int = 0
    duplicate: int = 0
    delay_min_us: int = 200
    delay_spread_us: int = 800
    late: int = 0
    """How many packets are held back much longer, which puts them out of order."""
    late_us: int = 200_000


@dataclass
class TwinNet:
    """`later(delay_us, packet)` schedules a delivery. Bounded by what its owner schedules."""

    chance: Random
    later: Callable[[int, int, object], None]
    """delay in µs, receiver, packet"""
    weather: Weather = field(default_factory=Weather)
    cut: set[tuple[int, int]] = field(default_factory=set)
    """Links (sender, receiver) that carry nothing."""
    lost: int = 0

    def send(self, sender: int, to: int, packet: object) -> None:
        weather = self.weather
        if (sender, to) in self.cut or self.chance.below(1000) < weather.loss:
            self.lost += 1
            return
        copies = 2 if self.chance.below(1000) < weather.duplicate else 1
        for _ in range(copies):
            delay = weather.delay_min_us + self.chance.below(weather.delay_spread_us + 1)
            if self.chance.below(1000) < weather.late:
                delay += self.chance.below(weather.late_us)
            self.later(delay, to, packet)
