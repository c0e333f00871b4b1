"""How many rows everything has that a node holds: dictionaries, lists, sets and queues."""

import asyncio
import gc
import types
from collections import OrderedDict, deque
from typing import Any

from _pytest.logging import LogCaptureHandler

COUNTED = (dict, list, set, deque, OrderedDict)
NOT_OURS = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.CoroutineType,
    asyncio.AbstractEventLoop,
    LogCaptureHandler,
)
"""What is not gone through: it leads from one node to all that the process has, as to all tests."""

Rows = dict[int, tuple[Any, int, str]]
"""Of each container, by its id: itself, its rows, and the types on the way to it."""

WAY = 4
"""Types on the way that are told."""


def rows_of(root: object) -> Rows:
    """All containers that can be reached from `root`, which are held so that no id is used
    again."""
    gc.collect()
    seen = {id(root)}
    found: Rows = {}
    waiting: list[tuple[object, tuple[str, ...]]] = [(root, ())]
    while waiting:
        one, way = waiting.pop()
        if type(one) in COUNTED:
            found[id(one)] = (one, len(one), " > ".join(way))  # type: ignore[arg-type]
        for each in gc.get_referents(one):
            if id(each) not in seen and not isinstance(each, NOT_OURS):
                seen.add(id(each))
                waiting.append((each, (*way[1 - WAY :], type(each).__name__)))
    return found


def grown(before: Rows, after: Rows, least: int) -> set[int]:
    """The ids of what has `least` rows more, or more than that."""
    return {
        key
        for key, (_, rows, _) in after.items()
        if key in before and rows - before[key][1] >= least
    }
