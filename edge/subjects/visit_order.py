"""The order in which nats-server comes to the patterns that match a subject (`matchLevel`).

Where one of several subscriptions is to be told something, clients count on which one that is.
"""

_EARLY = {b">": 0, b"*": 1}
_LAST = {b">": 0, b"*": 2}


def place(pattern: bytes) -> list[int]:
    """Where a pattern stands among others that match the same subject: the least is the first. A
    literal last token goes before `*`, an earlier one behind it."""
    *early, last = pattern.split(b".")
    return [*(_EARLY.get(token, 2) for token in early), _LAST.get(last, 1)]
