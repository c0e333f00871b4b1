"""What may follow what in the list of a group's configurations, written down a second time."""

from collections.abc import Callable, Mapping

from headwater.hub.raft.model.config import Config

Require = Callable[[bool, str], None]


def standing(config: Config) -> dict[int, tuple[str, int]]:
    """Node -> what it is and in which incarnation."""
    found = {node: ("learner", incarnation) for node, incarnation in config.learners.items()}
    return found | {node: ("voter", incarnation) for node, incarnation in config.voters.items()}


class Members:
    """The committed configurations of all groups, in order, and the incarnations that are over."""

    def __init__(self, first: Mapping[int, Config], require: Require) -> None:
        self.require = require
        self.known = {group: [(1, config)] for group, config in first.items()}
        self.gone: dict[tuple[int, int], int] = {}
        """The greatest incarnation of a node that was removed."""
        self.removals: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Where it was removed, and which incarnation."""

    def at(self, group: int, index: int) -> Config:
        """The configuration that is in force at a committed index."""
        known = reversed(self.known[group])
        return next((config for at, config in known if at <= index), Config())

    def gone_at(self, group: int, node: int, index: int) -> int:
        """The greatest incarnation of a node of which somebody that knows `index` for committed
        knows that it was removed; -1 for none."""
        known = self.removals.get((group, node), ())
        return max((incarnation for at, incarnation in known if at <= index), default=-1)

    def commit(self, group: int, index: int, config: Config) -> None:
        """The next one: one member changes, a voter was a learner before, and what was removed
        stays removed (thesis §4.1, §4.2.3)."""
        before = self.known[group][-1][1]
        self.known[group].append((index, config))
        was, now = standing(before), standing(config)
        changed = {node for node in was.keys() | now.keys() if was.get(node) != now.get(node)}
        text = f"configuration {index} of group {group}: "
        self.require(len(changed) <= 1, text + f"{changed} change at once")
        self.require(bool(config.voters), text + "no voter is left")
        self.require(config.returning <= config.learners.keys(), text + "a voter returns")
        for node in changed:
            self._step(text, node, was.get(node), now.get(node))
            if node not in now:
                self.gone[group, node] = was[node][1]
                self.removals.setdefault((group, node), []).append((index, was[node][1]))
        for (of, node), incarnation in self.gone.items():
            if of == group:
                remembered = config.removed.get(node, -1) >= incarnation
                self.require(
                    remembered,
                    text + f"incarnation {incarnation} of {node} is not known as removed",
                )
                again = now.get(node, ("", incarnation + 1))[1]
                self.require(
                    again > incarnation, text + f"incarnation {again} of {node} was removed"
                )

    def _step(
        self, text: str, node: int, was: tuple[str, int] | None, now: tuple[str, int] | None
    ) -> None:
        if now is None:
            return
        if now[0] == "voter":
            self.require(was == ("learner", now[1]), text + f"{node} was no learner before")
        elif was is not None:
            self.require(
                now[1] > was[1], text + f"an earlier incarnation of {node} takes its place"
            )
