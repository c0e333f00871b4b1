"""A server under a fault script: starts that are measured, and promises that are checked."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.faults.tally import Tally
from bench.faults.workload import NO_STREAM, Workload
from bench.servers import Recipe, Server, ServerFailed
from bench.wire import Link
from headwater.edge.wire.client import ApiError
from headwater.edge.wire.message import WireError

READY_SECONDS = 20.0
"""How long a stream may answer with errors after a start."""

RETRY_SECONDS = 0.02
FEW_CHARACTERS = 500
LINK_SECONDS = 10.0
"""How long a single answer may take."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Script:
    """How much of a fault script to run, on which server."""

    recipe: Recipe
    rounds: int = 5
    seed: int = 1
    parent: Path | None = None
    """Where temporary stores are made; the system's place for them if None."""
    tell: Tell = lambda line: None


def patiently(action: Callable[[], None], seconds: float = READY_SECONDS) -> None:
    """Run `action` again while it raises WireError or OSError: a recovery may answer errors."""
    deadline = time.monotonic() + seconds
    waiter = threading.Event()
    while True:
        try:
            action()
            return
        except (WireError, OSError):
            if time.monotonic() > deadline:
                raise
            waiter.wait(RETRY_SECONDS)


class Trial:
    """One server with its workload and tally. A context manager that ends the server; it does not
    start it."""

    def __init__(self, script: Script, workload: Workload, store: Path | None = None) -> None:
        """On a store that stays, or on a temporary one."""
        self.server = Server(script.recipe, store, script.parent)
        self.workload = workload
        self.tally: Tally = workload.tally

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.server.close()

    def link(self) -> Link:
        """A new connection."""
        return Link(self.server.port, LINK_SECONDS)

    def start(self, occasion: str) -> bool:
        """Start, and wait until every stream answers; False counts as a refused start."""
        began = time.monotonic()
        try:
            self.server.start()
            patiently(self._answering)
        except (ServerFailed, WireError, OSError) as error:
            self.tally.refuse(f"{occasion}: {str(error)[-FEW_CHARACTERS:]}")
            return False
        self.tally.ready.append(time.monotonic() - began)
        return True

    def _answering(self) -> None:
        with self.link() as link:
            for stream in self.workload.books:
                try:
                    link.api(f"STREAM.INFO.{stream}")
                except ApiError as error:
                    if error.err_code != NO_STREAM:
                        raise

    def check(self, occasion: str) -> bool:
        """Compare with every promise; whether that could be done."""
        return self.try_to(f"check {occasion}", lambda link: self.workload.check(link, self._named))

    def _named(self, stream: str) -> bool:
        """Whether the server complained of a stream, or of what all of them rely on."""
        words = (stream, *self.server.recipe.shared)
        return any(word in line for line in self.server.complaints for word in words)

    def try_to(self, what: str, action: Callable[[Link], object]) -> bool:
        """Do something that has to work; whether it did."""
        try:
            with self.link() as link:
                action(link)
        except (WireError, OSError) as error:
            self.tally.stick(f"{what}: {error!r}"[:400])
            return False
        return True
