"""Which starts of the other nodes this one has heard of: so an old copy of a folder is found.

A start has a number that grows, and a folder keeps the number of its newest one. A folder that
lacks a start of its node is an older copy: acks and votes of later are not in it. So is one whose
log ends before what its node has said to be durable there, in the newest start that it knows of.
The node cannot see that itself, so the others say it with each hello.
"""

import contextlib
import logging
from typing import Protocol

from headwater.edge.storage.format.errors import StoreError

OWNER = b"\0starts"
"""States of the log: by the number of a node its newest start that was heard of."""
REACHED_OWNER = b"\0reached"
"""The same: that start, and the batch of its log up to which the node has said to be durable."""
REMEMBERED_BATCHES = 1000
"""After which that is written while both nodes run; else it is when one of them goes."""
PUT_BACK = (
    "the folder of this node was put back from an older copy: what was stored since in streams of "
    "one replica is lost; look at them, then start the node again"
)
PUT_BACK_STREAM = (
    "the folder of its node was put back from a copy that is older than the stream; restore it, "
    "or delete it"
)

log = logging.getLogger("headwater.meta")


class StatesOfLog(Protocol):
    """The commit log of this node."""

    def states(self, owner: bytes) -> dict[bytes, tuple[bytes | None, list[bytes]]]:
        """The states of an owner by key."""

    def put_state(self, owner: bytes, key: bytes, value: bytes) -> int:
        """Store one. Raises StoreError."""


class Starts:
    """What one node knows; numbers of nodes and of starts."""

    def __init__(self, commit_log: StatesOfLog) -> None:
        self._log = commit_log
        rows = commit_log.states(OWNER).items()
        self.newest = {int(node): int(value) for node, (value, _) in rows if value}
        """By node: its newest start."""
        self.older: dict[int, int] = {}
        """Nodes that run on an older copy of their folder, with the start they are in."""
        self.reached: dict[int, int] = {}
        """By node: the batch of its log up to which it has said to be durable in that start."""
        for key, (value, _) in commit_log.states(REACHED_OWNER).items():
            boot, batch = map(int, (value or b"0 0").split())
            if self.newest.get(int(key)) == boot:
                self.reached[int(key)] = batch
        self._written = dict(self.reached)

    def heard(self, node: int, boot: int, before: int, found: int | None, durable: int) -> bool:
        """A node is in the start `boot`, and its folder says which one was `before`, 0 for none.
        Its log ended at the batch `found` then, None where it does not say, and is `durable` up to
        another by now. Whether that shows now that the folder is an older copy."""
        known = self.newest.get(node, 0)
        if boot == known > 0:
            self.reached[node] = max(durable, self.reached.get(node, 0))
            if self.reached[node] >= self._written.get(node, 0) + REMEMBERED_BATCHES:
                self.remember(node)
        if boot <= known:
            return False
        lacks = found is not None and found < self.reached.get(node, 0)
        self.newest[node] = boot
        self.reached[node] = durable
        self._written.pop(node, None)
        self.older.pop(node, None)
        with contextlib.suppress(StoreError, OSError):
            self._log.put_state(OWNER, b"%d" % node, b"%d" % boot)
        if not 0 < before < known and not (before == known and lacks):
            return False
        self.older[node] = boot
        return True

    def remember(self, node: int) -> None:
        """Write how far a node has come, if it has ever said so."""
        reached = self.reached.get(node)
        if reached is None or reached == self._written.get(node):
            return
        self._written[node] = reached
        with contextlib.suppress(StoreError, OSError):
            value = b"%d %d" % (self.newest[node], reached)
            self._log.put_state(REACHED_OWNER, b"%d" % node, value)

    def remember_all(self) -> None:
        """This node is about to stop."""
        for node in self.reached:
            self.remember(node)
