"""Comparing JSON by shape: the keys and the kinds of values, not the values."""

from typing import Any

NUMBER = "number"


def shape(value: Any, ignore: frozenset[str]) -> Any:
    """What is left of `value` without its values; keys in `ignore` are left out everywhere."""
    if isinstance(value, dict):
        return {name: shape(v, ignore) for name, v in sorted(value.items()) if name not in ignore}
    if isinstance(value, list):
        return [shape(value[0], ignore)] if value else []
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return NUMBER if isinstance(value, int | float) else type(value).__name__
