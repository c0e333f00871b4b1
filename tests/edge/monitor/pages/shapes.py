"""Comparing JSON by shape: the keys and the kinds of values, not the values."""

from typing import Any

NUMBER = "number"


def shape(value: Any, ignore: frozenset[str]) -> Any:
    """What is left of `value` without its values; keys in `ignore` are left out everywhere."""
    if isinstance(value, dict):
        return {name: shape(v, ignore) for name, v in sorted(value.items()) if name not in ignore}
    if isinstance(value, list):
        return _merged([shape(item, ignore) for item in value])
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return NUMBER if isinstance(value, int | float) else type(value).__name__


def _merged(shapes: list[Any]) -> list[Any]:
    """One shape for a list: records count with every key that any of them has.

    The real server lists subscriptions in no order, and a key that is omitted when it is empty
    would come and go with the first of them.
    """
    if shapes and all(isinstance(each, dict) for each in shapes):
        return [{name: each[name] for each in shapes for name in sorted(each)}]
    return shapes[:1]
