"""Why things are not done yet, for health, and for a log that says each cause once."""

CAUSES_MAX = 16
"""Causes of one thing that are remembered as said: a text may have numbers that change."""


class Causes:
    """Of things that are tried again, by group number or incarnation. Two causes may come by turns;
    each is news once, until the thing is done."""

    def __init__(self) -> None:
        self.now: dict[int | str, str] = {}
        """What each of them waits for."""
        self._said: dict[int | str, list[str]] = {}

    def is_news(self, what: int | str, cause: str) -> bool:
        """`what` is not done because of a cause; whether that was not said before."""
        self.now[what] = cause
        said = self._said.setdefault(what, [])
        if cause in said:
            return False
        said.append(cause)
        del said[:-CAUSES_MAX]
        return True

    def over(self, what: int | str) -> bool:
        """`what` is done, or to be done no more; whether it had waited."""
        self._said.pop(what, None)
        return self.now.pop(what, None) is not None
