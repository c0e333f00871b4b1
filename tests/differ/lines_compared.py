"""One conversation with both servers at once, and what differs."""

import re
from collections import Counter
from typing import Any

from tests.differ.frames import Frame
from tests.differ.lines import Step
from tests.differ.talk import Talk, settle

QUEUED = re.compile(rb"(?i)\bSUB[ \t]+[^ \t\r\n]+[ \t]+([^ \t\r\n]+)[ \t]+([^ \t\r\n]+)[ \t]*\r?\n")

TRACE = b'{"server":{'
"""How an event of a traced message begins. `test_msg_trace` compares what it says."""


class Conversation:
    """Plays steps on two ports."""

    def __init__(self, ports: tuple[int, int]) -> None:
        self.ports = ports
        self.talks: dict[int, tuple[Talk, Talk]] = {}
        self.queues: dict[tuple[int, str], str] = {}

    def play(self, steps: list[Step]) -> tuple[int, Any, Any] | None:
        """The first step whose answers differ, with both answers."""
        try:
            for number, (conn, data, cuts) in enumerate(steps):
                if conn not in self.talks:
                    self.talks[conn] = (Talk(self.ports[0]), Talk(self.ports[1]))
                    for one in self.talks[conn]:
                        one.read(5)
                for queue, sid in QUEUED.findall(data):
                    self.queues[conn, sid.decode("latin-1")] = queue.decode("latin-1")
                for one in self.talks[conn]:
                    one.send(data, cuts)
                # First the one that was written to: it fills the others' outputs.
                for which in [conn, *(other for other in self.talks if other != conn)]:
                    settle(*self.talks[which])
                ours, theirs = (self.answers(side) for side in (0, 1))
                if ours != theirs:
                    return number, ours, theirs
            return None
        finally:
            for pair in self.talks.values():
                for one in pair:
                    one.close()

    def answers(self, side: int) -> Any:
        """What came on all connections of one side, in a form that can be compared.

        A message of a queue group goes to a member by chance: which one is not compared. The
        order of several subscriptions' messages among each other is not, either.
        """
        told: dict[str, list[str]] = {}
        queued: Counter[str] = Counter()
        for conn, pair in sorted(self.talks.items()):
            for frame in pair[side].take():
                if not frame.message:
                    told.setdefault(f"{conn}", []).append(" ".join((frame.verb, *frame.words)))
                    continue
                if frame.payload.startswith(TRACE):
                    continue
                sid = frame.words[1]
                queue = self.queues.get((conn, sid))
                if queue is not None:
                    queued[f"{queue} {shown(frame, sid=False)}"] += 1
                elif frame.header.startswith(b"NATS/1.0 503"):
                    told.setdefault(f"{conn} 503", []).append(shown(frame, sid=False))
                else:
                    told.setdefault(f"{conn} {sid}", []).append(shown(frame))
        return told, dict(queued)


def shown(frame: Frame, sid: bool = True) -> str:
    """A message as one line."""
    words = frame.words if sid else (frame.words[0], *frame.words[2:])
    header = re.sub(rb'"rtt":\d+', b'"rtt":T', frame.header)
    return f"{frame.verb} {words} {header!r} {frame.payload!r}"
