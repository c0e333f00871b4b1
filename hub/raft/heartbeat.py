"""A leader tells that it is there, and counts the rounds in which it did (thesis §6.4).

What the answers to a round confirm is in `reads`.
"""

from headwater.hub.raft.core import Core
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.state import Round


def send(r: Core, sleep: bool = False) -> None:
    """Tell everybody that the leader is there; begins a round."""
    number = begin_round(r)
    for node, progress in r.progress.items():
        commit = min(progress.match, r.log.committed)
        r.send(Message(Kind.HEARTBEAT, r.node, node, commit=commit, context=number, force=sleep))


def begin_round(r: Core) -> int:
    """Number the next round of heartbeats."""
    reading = r.reading
    reading.since_heartbeat = 0
    reading.number += 1
    reading.rounds.append(Round(reading.number, r.ticks, r.now_ns))
    return reading.number
