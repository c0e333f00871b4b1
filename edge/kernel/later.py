"""Awaitables that may be left alone: whoever asked may go, or fail, before he awaits."""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Later(Generic[Result]):
    """Calls `work`, and waits for it, when it is awaited; once. What is never awaited does nothing,
    where a coroutine would warn that nobody awaited it."""

    __slots__ = ("_arguments", "_work")

    def __init__(
        self, work: Callable[..., Coroutine[Any, Any, Result]], *arguments: object
    ) -> None:
        self._work = work
        self._arguments = arguments

    def __await__(self) -> Generator[Any, None, Result]:
        return self._work(*self._arguments).__await__()


class Then(Generic[Result]):
    """Awaits `first`, and is what `work` makes of it. Who never awaits it closes it: a coroutine
    as the argument of another one is not closed with it before that has begun."""

    __slots__ = ("_first", "_work")

    def __init__(self, first: Awaitable[Any], work: Callable[[Any], Result]) -> None:
        self._first = first
        self._work = work

    def __await__(self) -> Generator[Any, None, Result]:
        found = yield from self._first.__await__()
        return self._work(found)

    def close(self) -> None:
        """Nobody will await it, or nobody does any more."""
        close(self._first)


def close(awaitable: object) -> None:
    """Close a coroutine, or what waits for one."""
    if isinstance(awaitable, Coroutine | Then):
        awaitable.close()
