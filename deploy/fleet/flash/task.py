"""What all gateways of one run share."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headwater.deploy.fleet.flash.inventory import Inventory
from headwater.deploy.fleet.flash.links import KnownHosts
from headwater.deploy.fleet.flash.plan import LocalBundle
from headwater.deploy.fleet.flash.results import HostResult


class Board(Protocol):
    """Whoever shows how far a run is."""

    def begun(self, host: str, phase: str) -> None:
        """A host is in another phase."""

    def finished(self, host: str, result: HostResult) -> None:
        """A host is done."""

    def to_upload(self, count: int) -> None:
        """So many bytes more are to be uploaded."""

    def uploaded(self, count: int) -> None:
        """So many bytes more have been."""


@dataclass
class Task:
    """One run over an inventory."""

    inventory: Inventory
    bundles: Sequence[LocalBundle]
    known: KnownHosts
    board: Board
    agent: bytes
    uploads: asyncio.Semaphore
    accept_new: bool = False
    dry_run: bool = False
    one_way: bool = False
    set_clock: bool = False
    seen: dict[str, Any] = field(default_factory=dict)
    """Facts by host, of runs that look only."""
    with_logs: bool = False
    logs: dict[str, str] = field(default_factory=dict)
    """Ends of nodes' logs by host."""
