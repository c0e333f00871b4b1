"""A clock that is set by hand and lies as told."""


class ManualClock:
    """Follows a true time that its owner sets; `jump_ns`, `frozen` and `rate` spoil it."""

    def __init__(self) -> None:
        self.true_ns = 0
        self.wall_offset_ns = 1_700_000_000_000_000_000
        self.jump_ns = 0
        self.rate_percent = 100
        self._frozen_at: int | None = None

    def wall_ns(self) -> int:
        return self.true_ns + self.wall_offset_ns

    def monotonic_ns(self) -> int:
        true = self.true_ns if self._frozen_at is None else self._frozen_at
        return max(0, true * self.rate_percent // 100 + self.jump_ns)

    @property
    def frozen(self) -> bool:
        """Whether it stands still."""
        return self._frozen_at is not None

    def freeze(self, frozen: bool) -> None:
        """Stand still, or go on where true time is by now."""
        self._frozen_at = self.true_ns if frozen else None
