"""Comparing JSON by shape: the keys and the kinds of values, not the values."""

from typing import Any

NUMBER = "number"


def shape(value: Any, path: str = "", ignore: frozenset[str] = frozenset()) -> Any:
    """What is left of `value` without its values; keys in `ignore` are left out everywhere."""
    if isinstance(value, dict):
        return {key: shape(v, path, ignore) for key, v in sorted(value.items()) if key not in ignore}
    if isinstance(value, list):
        return [shape(value[0], path, ignore)] if value else []
    if isinstance(value, bool) or value is None:
        return type(value).__name__
    return NUMBER if isinstance(value, int | float) else type(value).__name__
