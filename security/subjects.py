"""Subject rules as far as permissions need them; the broker has its own, compiled ones.

Subjects are text here. `*` stands for one token and `>` for one or more at the end, and
both only when they are a whole token.
"""

DIGITS_MAX = 18
"""Of a reference: a longer number is a word."""


def is_valid_subject(subject: str) -> bool:
    """Whether `subject` is well formed; wildcards permitted."""
    if not subject or any(char <= " " or char == "\x7f" for char in subject):
        return False
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1]


def reference(token: str) -> int | None:
    """Number of the wildcard that `$1` stands for in another name of a subject; None for a word."""
    digits = token[1:]
    if token[:1] != "$" or len(digits) > DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def is_literal(subject: str) -> bool:
    """Whether no token of `subject` is a wildcard."""
    return not any(token in ("*", ">") for token in subject.split("."))


def is_valid_publish_subject(subject: str) -> bool:
    """Whether `subject` is well formed and names exactly one subject."""
    return is_valid_subject(subject) and is_literal(subject)


def matches(pattern: list[str], tokens: list[str]) -> bool:
    """Whether `pattern` matches `tokens`, whose wildcards count as ordinary tokens."""
    for index, token in enumerate(pattern):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or (token != "*" and token != tokens[index]):
            return False
    return len(pattern) == len(tokens)


def covers(pattern: list[str], tokens: list[str]) -> bool:
    """Whether every subject that `tokens` stands for is matched by `pattern`."""
    for index, token in enumerate(pattern):
        if token == ">":
            return len(tokens) > index
        if index >= len(tokens) or tokens[index] == ">":
            return False
        if token != "*" and token != tokens[index]:
            return False
    return len(pattern) == len(tokens)


def overlaps(first: list[str], second: list[str]) -> bool:
    """Whether some subject is matched by both patterns."""
    for left, right in zip(first, second, strict=False):
        if left == ">" or right == ">":
            return True
        if left != right and left != "*" and right != "*":
            return False
    return len(first) == len(second)
