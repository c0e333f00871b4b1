"""How far the recovery of a starting node is, for those who ask from other threads."""

from collections.abc import Callable


class StartProgress:
    """How far a recovery is, in segments of streams; written by one thread, read by others."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """`clock` gives ns since any moment, in every thread."""
        self._clock = clock
        self._began = clock()
        self.now = (0, 0)

    def seconds(self) -> float:
        """Since the beginning."""
        return (self._clock() - self._began) / 1e9

    def numbers(self) -> dict[str, float]:
        """Segments done and in all, and seconds since the beginning."""
        done, total = self.now
        seconds = round(self.seconds(), 3)
        return {"recovered_segments": done, "recovery_segments": total, "recovery_seconds": seconds}
