"""Shows how far a run is: a bar for each phase on a terminal, plain lines elsewhere."""

from types import TracebackType

from headwater.deploy.console import Bars
from headwater.deploy.fleet.flash.host_run import PHASES
from headwater.deploy.fleet.flash.results import GOOD, HostResult

MIB = 1 << 20


class PhaseBoard:
    """Counts hosts that have come through each phase. Use as a context manager."""

    def __init__(self, hosts: int, quiet: bool = False) -> None:
        self._hosts = hosts
        self._bars = None if quiet else Bars()
        self._at: dict[str, int] = {}
        self._done = [0] * len(PHASES)
        self._to_upload = self._uploaded = 0

    def __enter__(self) -> "PhaseBoard":
        if self._bars is not None:
            self._bars.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.__exit__(kind, error, trace)

    def begun(self, host: str, phase: str) -> None:
        """A host is in another phase."""
        self._pass(host, PHASES.index(phase))

    def finished(self, host: str, result: HostResult) -> None:
        """A host is done; who failed is named at once."""
        self._pass(host, len(PHASES))
        if self._bars is not None and result.state not in GOOD:
            self._bars.say(f"  {host}  {result.state} in {result.phase}: {result.error}")

    def to_upload(self, count: int) -> None:
        """So many bytes more are to be uploaded."""
        self._to_upload += count

    def uploaded(self, count: int) -> None:
        """So many bytes more have been."""
        self._uploaded += count
        if self._bars is not None:
            done, total = self._uploaded // MIB, -(-self._to_upload // MIB)
            self._bars.update("uploaded MiB", min(done, total - 1) if done < total else done, total)

    def _pass(self, host: str, index: int) -> None:
        """The host has left every phase before `index`."""
        for each in range(self._at.get(host, 0), index):
            self._done[each] += 1
            if self._bars is not None:
                self._bars.update(PHASES[each], self._done[each], self._hosts)
        self._at[host] = max(index, self._at.get(host, 0))
