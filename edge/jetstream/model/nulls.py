"""What `null` means in a request body: nothing, so that its field has the zero of its type.

In a list or a map of texts it stands for an element that is zero. Choices among names are refused
instead, with the texts that the protocol's reference decoder has for them.
"""

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from headwater.edge.jetstream.model import errors

_REFUSED = {
    "action": "unknown consumer action: null",
    "compression": "unknown compression algorithm",
    "priority_policy": "unknown priority policy: null",
}
_REFUSED_OTHERWISE = 'can not unmarshal "null"'


def without_nulls(value: Any, kind: Any) -> Any:
    """`value`, decoded JSON that is meant as a `kind`, without its nulls.

    Raises JetStreamError 10025 for a choice that is null.
    """
    kind = _inner(kind)
    if isinstance(value, dict):
        return _without_null_fields(value, kind)
    if isinstance(value, list):
        inner = get_args(kind)[0] if get_origin(kind) is list else Any
        return [_zero(inner) if v is None else without_nulls(v, inner) for v in value]
    return value


def _without_null_fields(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    if get_origin(kind) is dict:
        inner = get_args(kind)[1]
        return {k: _zero(inner) if v is None else without_nulls(v, inner) for k, v in value.items()}
    known = _fields(kind) if _is_struct(kind) else {}
    found = {}
    for name, item in value.items():
        field = known.get(name.lower(), Any)
        if item is not None:
            found[name] = without_nulls(item, field)
        elif name.lower() in _REFUSED or get_origin(field) is Literal:
            raise errors.INVALID_JSON.error(err=_REFUSED.get(name.lower(), _REFUSED_OTHERWISE))
        elif field is Any:
            found[name] = None
    return found


def fields_of(kind: Any) -> dict[str, Any]:
    """The types of the fields of a `kind`, by name; none of what is no object."""
    kind = _inner(kind)
    return _fields(kind) if _is_struct(kind) else {}


def may_be_absent(kind: Any) -> bool:
    """Whether a field of this type is without a value when it is null: a list, a map, or what is
    declared so. An object that is always there stays as it is."""
    declared = get_origin(kind) in (Union, types.UnionType)
    return declared or get_origin(kind) in (list, dict)


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _inner(kind: Any) -> Any:
    """`kind` without its `| None` and its bounds."""
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(one for one in get_args(kind) if one is not types.NoneType)
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _zero(kind: Any) -> Any:
    kind = _inner(kind)
    if _is_struct(kind):
        return {}
    return kind() if isinstance(kind, type) and kind is not Any else None
