"""Chance from a seed."""

import random


class SeededRandom(random.Random):
    """`random.Random` as the random port. The same seed gives the same numbers for ever."""

    def below(self, n: int) -> int:
        return int(self.random() * n)

    def fork(self, name: str) -> "SeededRandom":
        """Another source; what is drawn from it does not change what is drawn here."""
        return SeededRandom(f"{self.random()}/{name}")
