"""Servers that are started and ended together."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from bench.servers import Server


class Started:
    """A context manager that starts servers, and ends all of them."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.servers = servers
        self._stack = ExitStack()

    def ready(self) -> None:
        """Return when they are of use. Raises ServerFailed, and then all end."""

    def __enter__(self) -> Self:
        with self._stack as started:
            for server in self.servers:
                started.enter_context(server)
            self.ready()
            self._stack = started.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
