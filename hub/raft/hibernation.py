"""Quiet groups sleep: no ticks, no heartbeats.

A leader whose members all have everything proposes sleep with a marked heartbeat; when every one
agreed it stops. Whoever gets something to do wakes the group; when a *node* dies, the nodes' own
heartbeats say so and `MultiRaft` wakes the groups it led. Sleep changes no rule, only who counts
time.
"""

from headwater.hub.raft import heartbeat, reads
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.progress import MemberProgress, State


def is_quiet(r: Core) -> bool:
    """Nothing is to be done by anybody."""
    log = r.log
    if log.committed != log.last or log.durable != log.last or r.reading.pending:
        return False
    if r.transfer.target or log.config.returning or r.sleep.restless:
        return False
    return all(
        each.match == log.last and each.state is State.REPLICATE for each in r.progress.values()
    )


def tick(r: Core) -> None:
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
        heartbeat.send(r, sleep=True)
        fall_asleep(r)


def agrees(r: Core, m: Message) -> bool:
    """Whether this follower may sleep; it does."""
    whole = m.commit == r.log.committed == r.log.last and not r.recovering
    agreed = m.force and whole and not r.sleep.restless
    r.sleep.asleep = agreed
    return agreed


def agreed(r: Core, progress: MemberProgress, m: Message) -> None:
    """A member sleeps; the leader does when all do."""
    progress.asleep = m.force
    if m.force:
        fall_asleep(r)


def fall_asleep(r: Core) -> None:
    """Stop when everybody agreed and nothing came in between."""
    if is_quiet(r) and all(each.asleep for each in r.progress.values()):
        r.sleep.asleep = True
        reads.drop_lease(r)


def wake(r: Core) -> None:
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
        heartbeat.send(r)


def wake_on(r: Core, m: Message) -> None:
    """Any message but the proposal to sleep, and the answers to it, wakes."""
    about_sleep = m.force and m.kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_REPLY)
    if r.sleep.asleep and not about_sleep and m.sender != r.node:
        wake(r)
