"""How far the recovery of a starting node is, for those who ask from other threads."""

import time


class StartProgress:
    """How far a recovery is, in segments of streams; written by one thread, read by others."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.now = (0, 0)

    def numbers(self) -> dict[str, float]:
        """Segments done and in all, and seconds since the beginning."""
        done, total = self.now
        seconds = round(time.monotonic() - self.began, 3)
        return {"recovered_segments": done, "recovery_segments": total, "recovery_seconds": seconds}
