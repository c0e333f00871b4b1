"""Which starts of the other nodes this one has heard of: so an old copy of a folder is found.

A start has a number that grows, and a folder keeps the number of its newest one. A folder that
lacks a start of its node is an older copy: acks and votes of later are not in it. The node cannot
see that itself, so the others say it with each hello.
"""

import contextlib
import logging
from typing import Protocol

from headwater.edge.storage.format.errors import StoreError

OWNER = b"\0starts"
"""States of the log: by the number of a node its newest start that was heard of."""
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

    def heard(self, node: int, boot: int, before: int) -> bool:
        """A node is in the start `boot`, and its folder says which one was `before`, 0 for none.
        Whether that shows now that the folder is an older copy."""
        known = self.newest.get(node, 0)
        if boot <= known:
            return False
        self.newest[node] = boot
        self.older.pop(node, None)
        with contextlib.suppress(StoreError, OSError):
            self._log.put_state(OWNER, b"%d" % node, b"%d" % boot)
        if not 0 < before < known:
            return False
        self.older[node] = boot
        return True
