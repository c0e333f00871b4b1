"""Awaitables that may be left alone: whoever asked may go, or fail, before he awaits."""

from collections.abc import Callable, Coroutine, Generator
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
