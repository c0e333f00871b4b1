"""What replicas ask the nodes that lead: up to where a group has committed.

A leader that has a lease knows it at once, so that question and answer are short frames that pass
by the rounds of the groups. Without one it says that it does not know; then the replica asks by
Raft itself (`Raft.read`), which has the leader ask the others.

    `index`     rows of: u64 group, u64 context
    `indexed`   rows of: u64 group, u64 context, u64 index (0: not known), u64 term

Frames may be lost. A context is of one start of a node, and of one group.
"""

import struct
from collections.abc import Callable

from headwater.edge.ports.ports import Clock
from headwater.hub.cluster.transport import Transport
from headwater.hub.raft import reads
from headwater.hub.raft.multi_raft import MultiRaft

ASKED = struct.Struct("<QQ")
ANSWERED = struct.Struct("<QQQQ")
INDEX_VERSION = 4
"""Of what a node says of itself to routes: it knows these frames."""

Listener = Callable[[int, int, int], None]
"""Hears a context, an index and the term of who told it."""


class ReadQuestions:
    """Of one node. Not thread-safe."""

    def __init__(self, transport: Transport, multi_raft: MultiRaft, clock: Clock) -> None:
        self.transport = transport
        self.multi_raft = multi_raft
        self.clock = clock
        self.listeners: dict[int, Listener] = {}
        """By group."""
        self.tellers: dict[int, Callable[[int], None]] = {}
        """By group: hears what another node is told."""
        self._rows: dict[int, list[bytes]] = {}
        """By node that is to be asked."""
        transport.handlers[b"index"] = self._asked
        transport.handlers[b"indexed"] = self._answered

    def forget(self, group: int) -> None:
        """The group is not here any more."""
        self.listeners.pop(group, None)
        self.tellers.pop(group, None)

    def add(self, leader: int, group: int, context: int) -> bool:
        """Ask with the next `send`; False when that node does not know such questions."""
        if self.transport.version(leader) < INDEX_VERSION:
            return False
        self._rows.setdefault(leader, []).append(ASKED.pack(group, context))
        return True

    def send(self) -> None:
        """Ask."""
        rows, self._rows = self._rows, {}
        for leader, asked in rows.items():
            self.transport.send(leader, b"index", *asked)

    def _asked(self, sender: int, body: memoryview) -> None:
        """Another node asks. The time is read now: a process that was stopped finds questions that
        came meanwhile."""
        if len(body) % ASKED.size:
            raise ValueError("a question is cut off")
        now_ns = self.clock.monotonic_ns()
        answer = []
        for group, context in ASKED.iter_unpack(body):
            raft = self.multi_raft.groups.get(group)
            index = reads.index_now(raft, now_ns) if raft is not None else 0
            teller = self.tellers.get(group)
            if index and teller is not None:
                teller(index)
            term = raft.term if raft is not None else 0
            answer.append(ANSWERED.pack(group, context, index, term))
        self.transport.send(sender, b"indexed", *answer)

    def _answered(self, sender: int, body: memoryview) -> None:
        if len(body) % ANSWERED.size:
            raise ValueError("an answer is cut off")
        for group, context, index, term in ANSWERED.iter_unpack(body):
            listener = self.listeners.get(group)
            if listener is not None:
                listener(context, index, term)
