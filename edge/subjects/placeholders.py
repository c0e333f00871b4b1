"""Subjects with wildcards as destinations with placeholders, and back."""


def pattern_of(subject: str) -> str:
    """A subject with placeholders (`$1`, `{{wildcard(1)}}`) as the pattern of what it becomes."""
    tokens = [
        "*" if (t.startswith("$") and t[1:].isdigit()) or t.startswith("{{") else t
        for t in subject.split(".")
    ]
    return ".".join(tokens)


def tokenized(subject: str) -> str:
    """A pattern as a destination: its wildcards become `$1`, `$2`, ... in order."""
    tokens = []
    stars = 0
    for token in subject.split("."):
        if token == "*":
            stars += 1
        tokens.append(f"${stars}" if token == "*" else token)
    return ".".join(tokens)
