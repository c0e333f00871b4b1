"""Lines that anybody on the network can bring about: a few are logged, the others counted."""


class FewLines:
    """Decides which lines of one kind are logged. Times are seconds since any moment."""

    def __init__(self, lines: int, while_s: float) -> None:
        """Of each `while_s` seconds, which begin with a line, so many `lines` are logged."""
        self._lines = lines
        self._while_s = while_s
        self._begun: float | None = None
        self._logged = 0
        self._left_out = 0

    def has_room(self, now: float) -> bool:
        """Whether a line may be logged; otherwise it is counted as left out."""
        if self._over(now):
            self._begun, self._logged = now, 0
        if self._logged < self._lines:
            self._logged += 1
            return True
        self._left_out += 1
        return False

    def left_out(self, now: float) -> int:
        """How many were left out, to be told once their while is over; 0 before, and once told."""
        if not self._over(now):
            return 0
        count, self._left_out = self._left_out, 0
        return count

    def _over(self, now: float) -> bool:
        return self._begun is None or now - self._begun >= self._while_s
