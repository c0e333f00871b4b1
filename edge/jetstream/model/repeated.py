"""Fields that stand several times in an object: each is read, and one is laid over the other.

The reference decodes every occurrence into the same field, also where letters of its key are large
or small. So each must be a good value, and the last ones count.
"""

import json
from collections.abc import Iterable
from itertools import chain
from types import NoneType
from typing import Any

from headwater.edge.jetstream.model import errors

FREE_KEYS: dict[str, type] = {"metadata": str, "subjects": int}
"""Maps whose keys are texts of clients, and of what kind their values are."""

MOST = 16
"""Occurrences of one field that are read; a body with more is refused."""


class _Pairs(list[tuple[str, Any]]):
    """An object as it stands in the text."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)


def is_suspect(raw: Any, payload: bytes) -> bool:
    """Whether a field may stand in a body several times; never False when one does. `raw` is the
    decoded body."""
    return payload.count(b":") > _fields(raw)


def _fields(value: Any) -> int:
    """How many fields of different names there are in a decoded body."""
    if isinstance(value, dict):
        return len({key.lower() for key in value}) + sum(map(_fields, value.values()))
    return sum(map(_fields, value)) if isinstance(value, list) else 0


def versions(text: str) -> list[Any]:
    """An object as it is with the first occurrence of each repeated field, with the second, and so
    on; one where none is repeated. Raises JetStreamError 10025 when there are more than `MOST`."""
    try:
        return _versions(_DECODER.decode(text))
    except (ValueError, RecursionError):
        # This decoder reads fewer digits and levels than the one that has decoded it.
        return []


def _versions(value: Any, free: type | None = None) -> list[Any]:
    if isinstance(value, _Pairs):
        return _of_object(value, free)
    if not isinstance(value, list):
        return [value]
    of_each = [_versions(one) for one in value]
    return [[_at(one, n) for one in of_each] for n in range(_longest(of_each))]


def _of_object(pairs: _Pairs, free: type | None) -> list[Any]:
    names: dict[str, str] = {}
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        name = key if free else names.setdefault(key.lower(), key)
        found.setdefault(name, []).append(_versions(value, FREE_KEYS.get(key.lower())))
    if free:
        return [{name: _decisive(chain.from_iterable(each), free) for name, each in found.items()}]
    flat = {name: list(chain.from_iterable(each)) for name, each in found.items()}
    longest = _longest(list(flat.values()))
    if longest > MOST:
        raise errors.INVALID_JSON.error(err=f"a field stands in it more than {MOST} times")
    return [{name: _at(each, n) for name, each in flat.items()} for n in range(longest)]


def _decisive(values: Iterable[Any], kind: type) -> Any:
    """Of the values of one key of a client the last, or one of another kind, which is refused."""
    every = list(values)
    return next((one for one in every if type(one) not in (kind, NoneType)), every[-1])


def _longest(lists: list[list[Any]]) -> int:
    return max(map(len, lists), default=1)


def _at(values: list[Any], n: int) -> Any:
    return values[min(n, len(values) - 1)]
