"""Quiet groups sleep: no ticks, no heartbeats.

A leader whose members all have everything proposes sleep with a marked heartbeat; when every one
agreed it stops. Whoever gets something to do wakes the group; when a *node* dies, the nodes' own
heartbeats say so and `Host` wakes the groups it led. Sleep changes no rule, only who counts time.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.hub.raft import reads, replication
from headwater.hub.raft.message import Kind, Message
from headwater.hub.raft.progress import Progress, State

if TYPE_CHECKING:
    from headwater.hub.raft.raft import Raft


@dataclass(slots=True)
class Sleep:
    """Whether the group sleeps, and how long it has been quiet."""

    asleep: bool = False
    quiet_ticks: int = 0
    quiet_last: int = 0


def is_quiet(r: "Raft") -> bool:
    """Nothing is to be done by anybody."""
    log = r.log
    if log.committed != log.last or log.durable != log.last or r.reading.pending:
        return False
    if r.transfer.target or log.config.returning:
        return False
    return all(
        each.match == log.last and each.state is State.REPLICATE for each in r.progress.values()
    )


def tick(r: "Raft") -> None:
    """The leader counts quiet ticks and proposes sleep."""
    sleep = r.sleep
    if not r.options.hibernate_ticks or not r.is_leader:
        return
    if not is_quiet(r) or sleep.quiet_last != r.log.last:
        sleep.quiet_ticks = 0
        sleep.quiet_last = r.log.last
        return
    sleep.quiet_ticks += 1
    if sleep.quiet_ticks >= r.options.hibernate_ticks:
        sleep.quiet_ticks = 0
        for each in r.progress.values():
            each.asleep = False
        replication.heartbeat(r, sleep=True)
        fall_asleep(r)


def agrees(r: "Raft", m: Message) -> bool:
    """Whether this follower may sleep; it does."""
    agreed = m.force and m.commit == r.log.committed == r.log.last and not r.recovering
    r.sleep.asleep = agreed
    return agreed


def agreed(r: "Raft", progress: Progress, m: Message) -> None:
    """A member sleeps; the leader does when all do."""
    progress.asleep = m.force
    if m.force:
        fall_asleep(r)


def fall_asleep(r: "Raft") -> None:
    """Stop when everybody agreed and nothing came in between."""
    if is_quiet(r) and all(each.asleep for each in r.progress.values()):
        r.sleep.asleep = True
        reads.drop_lease(r)


def wake(r: "Raft") -> None:
    """Something is to be done: count time again, and let the others know."""
    r.sleep.quiet_ticks = 0
    if not r.sleep.asleep:
        return
    r.sleep.asleep = False
    r.elapsed = 0
    if r.is_leader:
        for each in r.progress.values():
            each.active = True
            each.asleep = False
        replication.heartbeat(r)


def wake_on(r: "Raft", m: Message) -> None:
    """Any message but the proposal to sleep, and the answers to it, wakes."""
    about_sleep = m.force and m.kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_REPLY)
    if r.sleep.asleep and not about_sleep and m.sender != r.node:
        wake(r)
