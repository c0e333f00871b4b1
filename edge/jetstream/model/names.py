"""Which names JetStream assets may have."""

NAME_MAX = 255
# Names stand in subjects, headers, logs and file names: no blank, no control character.
FORBIDDEN = frozenset([*map(chr, range(33)), "\x7f", *".*>/\\"])


def valid_name(name: str) -> bool:
    """Whether `name` may name a stream or consumer; its length is checked apart."""
    return bool(name) and FORBIDDEN.isdisjoint(name)


def has_path_separator(name: str) -> bool:
    """Whether `name` holds a slash or backslash."""
    return "/" in name or "\\" in name
