"""Subjects with wildcards as destinations with placeholders, and back."""

from headwater.security.subjects import reference


def is_placeholder(token: str) -> bool:
    """Whether a destination has something else in the place of this token."""
    return reference(token) is not None or token.startswith("{{")


def pattern_of(subject: str) -> str:
    """A subject with placeholders (`$1`, `{{wildcard(1)}}`) as the pattern of what it becomes."""
    return ".".join("*" if is_placeholder(token) else token for token in subject.split("."))


def tokenized(subject: str) -> str:
    """A pattern as a destination: its wildcards become `$1`, `$2`, ... in order."""
    tokens = []
    stars = 0
    for token in subject.split("."):
        if token == "*":
            stars += 1
        tokens.append(f"${stars}" if token == "*" else token)
    return ".".join(tokens)
