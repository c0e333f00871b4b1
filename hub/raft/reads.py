"""Reads that see everything acknowledged before them (thesis §6.4).

A read waits for the leader to be confirmed by a round of heartbeats that began after it. With a
lease it does not wait; the lease is measured twice, by ticks and by the clock, and ends by
whichever runs out first. A clock that goes back ends it too.
"""

from headwater.hub.raft import heartbeat
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.errors import ReadsFull
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.state import Pending
from headwater.hub.raft.quorum import majority_value


def clock(r: Core, now_ns: int) -> None:
    """Take the driver's monotonic clock. If it went back it is no clock, and no lease holds."""
    if now_ns < r.now_ns:
        drop_lease(r)
    r.now_ns = now_ns
    for context, asked in list(r.reading.asked.items()):
        if r.ticks - asked > r.options.election_ticks:
            del r.reading.asked[context]
            r.read_done(context, None)


def drop_lease(r: Core) -> None:
    """Only rounds that begin from now on are worth anything."""
    r.reading.rounds.clear()
    r.reading.confirmed = None


def lead(r: Core) -> None:
    """A new leader has confirmed nothing."""
    r.reading.since_heartbeat = 0
    drop_lease(r)


def round_answered(r: Core) -> None:
    """A heartbeat was answered: see how far a quorum has come."""
    number = quorum_round(r)
    reading = r.reading
    while reading.rounds and reading.rounds[0].number <= number:
        reading.confirmed = reading.rounds.popleft()
    while reading.pending and reading.pending[0].round <= number:
        done = reading.pending.popleft()
        finish(r, done.context, done.request, done.index)
    if reading.pending and reading.pending[0].round > reading.number:
        heartbeat.send(r)
        if quorum_round(r) == reading.number:
            round_answered(r)


def quorum_round(r: Core) -> int:
    """The newest round that a majority of voters answered."""
    rounds = (
        r.reading.number if node == r.node else r.progress[node].round
        for node in r.log.config.voters
    )
    return majority_value(rounds)


def lease_holds(r: Core, now_ns: int) -> bool:
    """Whether no other leader can exist now."""
    confirmed = r.reading.confirmed
    options = r.options
    if not options.lease_reads or confirmed is None or r.transfer.spent or r.sleep.asleep:
        return False
    ticks = options.election_ticks * options.lease_share_percent // 100
    passed_ns = now_ns - confirmed.now_ns
    if now_ns < r.now_ns or passed_ns < 0:
        return False
    return r.ticks - confirmed.ticks < ticks and passed_ns < ticks * options.tick_ns


def lease_left(r: Core, now_ns: int) -> int:
    """For how many ns from `now_ns` on no other leader can exist; 0 when nobody knows."""
    if not r.is_leader:
        return 0
    length = r.options.election_ticks * r.options.lease_share_percent // 100 * r.options.tick_ns
    if r.log.config.voters.keys() == {r.node}:
        return length
    confirmed = r.reading.confirmed
    if confirmed is None or not lease_holds(r, now_ns):
        return 0
    return confirmed.now_ns + length - now_ns


def index_now(r: Core, now_ns: int) -> int:
    """Up to where the group has committed, when this node leads for sure at this moment; 0 when it
    does not know."""
    if not r.is_leader or r.log.term(r.log.committed) != r.term or not lease_holds(r, now_ns):
        return 0
    return r.log.committed


def ask(r: Core, context: int, now_ns: int) -> None:
    """A read of this node. Raises `ReadsFull`."""
    reading = r.reading
    if len(reading.pending) + len(reading.early) + len(reading.asked) >= r.options.reads_max:
        raise ReadsFull(f"{r.options.reads_max} reads wait")
    if r.is_leader:
        lead_read(r, context, None, now_ns)
    elif r.leader:
        reading.asked[context] = r.ticks
        r.send(Message(Kind.READ, r.node, r.leader, context=context))
    else:
        r.read_done(context, None)


def lead_read(r: Core, context: int, request: Message | None, now_ns: int | None) -> None:
    """The leader takes a read, its own or a follower's. Without the time of this moment no lease
    counts: the process may have been stopped since the last tick."""
    if r.log.term(r.log.committed) != r.term:
        r.reading.early.append((context, request))
        return
    if now_ns is not None and lease_holds(r, now_ns):
        finish(r, context, request, r.log.committed)
        return
    number = r.reading.number + 1
    r.reading.pending.append(Pending(number, r.log.committed, context, request))
    round_answered(r)


def committed(r: Core) -> None:
    """The first commit of the term lets early reads go on."""
    if r.is_leader and r.reading.early and r.log.term(r.log.committed) == r.term:
        early, r.reading.early = r.reading.early, []
        for context, request in early:
            lead_read(r, context, request, None)


def finish(r: Core, context: int, request: Message | None, index: int) -> None:
    """Tell the asker."""
    if request is None:
        r.read_done(context, index)
    else:
        r.reply(request, Kind.READ_REPLY, context=context, index=index)


def abandon(r: Core) -> None:
    """No leader any more: nothing that waits can be confirmed. Followers' reads time out."""
    reading = r.reading
    for context, request in [*reading.early, *((p.context, p.request) for p in reading.pending)]:
        if request is None:
            r.read_done(context, None)
    reading.early = []
    reading.pending.clear()
    drop_lease(r)


def on_read(r: Core, m: Message) -> None:
    """A follower asks."""
    if r.is_leader and len(r.reading.pending) + len(r.reading.early) < r.options.reads_max:
        lead_read(r, m.context, m, r.moment_ns)


def hear_commit(r: Core, term: int, index: int) -> None:
    """The leader of `term` has committed up to `index`. That counts as far as this log is known to
    be that leader's, as with a heartbeat."""
    if term == r.term and not r.is_leader:
        r.commit_to(min(index, r.verified))


def on_read_reply(r: Core, m: Message) -> None:
    """The leader's answer. It tells a commit, too, which counts as a heartbeat's does."""
    hear_commit(r, m.term, m.index)
    if r.reading.asked.pop(m.context, None) is not None:
        r.read_done(m.context, m.index)
