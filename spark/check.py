"""One finding of the doctor."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """What was looked at, and what was found. `ok` is False when jobs cannot run because of it.

    `executor` and `host` say where, and are empty for this machine.
    """

    name: str
    ok: bool
    detail: str
    executor: str = ""
    host: str = ""

    @property
    def title(self) -> str:
        """Name and place, for people."""
        if not self.executor:
            return self.name
        return f"executor {self.executor} on {self.host}, {self.name}"
