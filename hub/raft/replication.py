"""How entries get to the others, and when they are committed (§5.3, §5.4.2; thesis §10.2)."""

from headwater.hub.raft import hibernation, reads, transfer
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.entry import Entry, EntryKind, bytes_of
from headwater.hub.raft.model.errors import Contradiction
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.model.snapshot import Part, Wanted
from headwater.hub.raft.progress import MemberProgress, State
from headwater.hub.raft.quorum import majority_value, quorum_size

# -- the leader --------------------------------------------------------------


def append_own(r: Core, kind: EntryKind, data: bytes) -> int:
    """The leader's own entry; returns its index."""
    index = r.log.last + 1
    r.log.append([Entry(r.term, index, kind, data)])
    r.append_due = True
    hibernation.wake(r)
    r.check_config()
    return index


def has_quorum(r: Core) -> bool:
    """Whether a majority was heard since the last time (thesis §6.2)."""
    voters = r.log.config.voters
    alive = 0
    for node, incarnation in voters.items():
        if node == r.node:
            alive += 1
            continue
        progress = r.progress[node]
        alive += progress.active and progress.incarnation == incarnation
    for progress in r.progress.values():
        progress.active = False
    return alive >= quorum_size(len(voters))


def broadcast(r: Core) -> None:
    """Send everybody what is new."""
    for node, progress in r.progress.items():
        send_append(r, node, progress)


def tell_commit(r: Core) -> None:
    """Tell everybody of a commit that was not told yet; `Options.defer_commits` lets it wait for
    the next entries."""
    r.commit_due = False
    if r.is_leader:
        broadcast(r)


def send_append(r: Core, node: int, progress: MemberProgress, empty: bool = False) -> None:
    """Serve one member as far as its window allows. `empty`: say something in any case, to find
    out whether messages were lost. A commit that moved is news, too, unless it may wait."""
    options = r.options
    if progress.state is State.SNAPSHOT:
        return
    while not progress.full(options.inflight_max, options.inflight_bytes_max):
        nothing = progress.next > r.log.last
        if nothing and not empty and (r.commit_due or progress.commit_sent >= r.log.committed):
            return
        before = progress.next - 1
        term = r.log.term(before)
        if term is None:
            send_snapshot(r, node, progress)
            return
        entries = (
            [] if nothing else r.log.slice(progress.next, r.log.last, options.append_bytes_max)
        )
        if not entries and not nothing:
            send_snapshot(r, node, progress)
            return
        empty = False
        progress.commit_sent = r.log.committed
        if entries:
            progress.sent(entries[-1].index, bytes_of(entries))
        elif progress.state is State.PROBE:
            progress.paused = True
        r.send(
            Message(
                Kind.APPEND,
                r.node,
                node,
                index=before,
                log_term=term,
                entries=entries,
                commit=r.log.committed,
            )
        )
        if nothing:
            return


def on_append_reply(r: Core, m: Message) -> None:
    """A follower has what it was sent, or says where its log differs."""
    progress = replying(r, m)
    if progress is None:
        return
    if m.reject:
        hint = r.log.agree_before(m.hint, m.log_term)
        if progress.refused(m.index, hint):
            send_append(r, m.sender, progress, empty=True)
        return
    if m.log_term and r.log.term(m.index) not in (None, m.log_term):
        # What is committed there is not what is here: it counts for nothing, and with an entry of
        # that index the member finds out itself.
        progress.to_probe()
        progress.next = m.index + 1
        send_append(r, m.sender, progress, empty=True)
        return
    advance_match(r, m.sender, progress, m.index)


def advance_match(r: Core, node: int, progress: MemberProgress, index: int) -> None:
    """Everything up to `index` is durable at `node`."""
    progress.paused = False
    if index > r.log.last:
        return
    progress.accepted(index)
    if progress.state is State.PROBE or (
        progress.state is State.SNAPSHOT and 0 < progress.snapshot_index <= index
    ):
        progress.to_replicate()
    if not maybe_commit(r):
        send_append(r, node, progress)
    transfer.caught_up(r, node, progress)


def replying(r: Core, m: Message) -> MemberProgress | None:
    """The member that replies, when it is the incarnation that the leader counts on."""
    if not r.is_leader:
        return None
    progress = r.progress.get(m.sender)
    if progress is None or progress.incarnation not in (m.incarnation, max(m.incarnation, m.boot)):
        return None
    progress.active = True
    return progress


def maybe_commit(r: Core) -> bool:
    """Commit what a majority has on disk, if it is of this term (§5.4.2). True when it moved."""
    index = quorum_index(r)
    if index <= r.log.committed or r.log.term(index) != r.term:
        return False
    r.commit_to(index)
    if r.is_leader:
        r.commit_due = r.options.defer_commits
        broadcast(r)
    return True


def quorum_index(r: Core) -> int:
    """The greatest index that is durable at a majority of voters."""
    return majority_value(durable_at(r, node) for node in r.log.config.voters)


def durable_at(r: Core, node: int) -> int:
    """How much of the log is known to be durable at a voter."""
    return r.log.durable if node == r.node else r.progress[node].match


def on_heartbeat_reply(r: Core, m: Message) -> None:
    """A member is alive; it may have missed appends."""
    progress = replying(r, m)
    if progress is None:
        return
    progress.round = max(progress.round, m.context)
    hibernation.agreed(r, progress, m)
    reads.round_answered(r)
    if m.context <= progress.nudged:
        return
    progress.nudged = r.reading.number
    progress.paused = False
    if progress.state is State.SNAPSHOT:
        remind(r, m.sender, progress)
    elif progress.match < r.log.last or progress.state is State.PROBE:
        if progress.inflight and progress.full(
            r.options.inflight_max, r.options.inflight_bytes_max
        ):
            progress.inflight_bytes -= progress.inflight.popleft()[1]
        send_append(r, m.sender, progress, empty=True)


# -- snapshots ---------------------------------------------------------------


def send_snapshot(r: Core, node: int, progress: MemberProgress) -> None:
    """The log does not reach back to what the member needs."""
    r.sessions += 1
    progress.to_snapshot(r.sessions)
    ask_position(r, node, progress)


def ask_position(r: Core, node: int, progress: MemberProgress) -> None:
    """Ask a member what it has of the state: it may have begun with another leader's."""
    r.send(Message(Kind.SNAPSHOT, r.node, node, context=progress.session))


def want_parts(r: Core, node: int, progress: MemberProgress) -> None:
    """Have the driver make the next part, as far as the window allows."""
    if progress.position >= 0 and len(progress.flying) < r.options.snapshot_parts_max:
        r.wanted[node] = Wanted(node, progress.session, progress.position_sent)


def send_part(r: Core, wanted: Wanted, part: Part) -> None:
    """The driver has made what a member can take."""
    progress = r.progress.get(wanted.node) if r.is_leader else None
    if (
        progress is None
        or progress.state is not State.SNAPSHOT
        or (progress.session, progress.position_sent) != (wanted.session, wanted.position)
        or part.position != wanted.position
    ):
        return
    snapshot = part.snapshot
    if snapshot is not None:
        progress.snapshot_index = snapshot.index
    r.send(
        Message(
            Kind.SNAPSHOT,
            r.node,
            wanted.node,
            index=snapshot.index if snapshot else 0,
            log_term=snapshot.term if snapshot else 0,
            config=snapshot.config if snapshot else None,
            commit=part.whole,
            hint=part.next,
            context=wanted.session,
            offset=part.position,
            size=part.size,
            digest=part.digest,
            part=part.data,
        )
    )
    if part.next > part.position:
        progress.position_sent = part.next
        progress.flying.append(part.next)
        want_parts(r, wanted.node, progress)


def remind(r: Core, node: int, progress: MemberProgress) -> None:
    """A member that is sent the state is alive: when it has answered no part for a while, parts or
    answers were lost."""
    progress.silent += 1
    if progress.position < 0:
        ask_position(r, node, progress)
    elif progress.silent >= r.options.snapshot_patience or not progress.flying:
        progress.rewind(progress.position)
        want_parts(r, node, progress)


def on_snapshot_reply(r: Core, m: Message) -> None:
    """The member says what of the state it has; the last part is answered like an append."""
    progress = replying(r, m)
    if progress is None or progress.state is not State.SNAPSHOT or m.context != progress.session:
        return
    if m.reject:
        if m.offset == progress.position:
            return
        progress.rewind(m.offset)
    elif not progress.arrived(m.offset):
        return
    want_parts(r, m.sender, progress)


def on_snapshot(r: Core, m: Message) -> None:
    """A part of a leader's state arrives: the driver keeps it, unless the log has what it says."""
    if m.index and (m.index <= r.log.committed or m.config is None):
        has_committed(r, m)
        return
    if m.index and r.log.matches(m.index, m.log_term):
        r.commit_to(m.index)
        has_committed(r, m)
        return
    r.parts.append(m)


def part_kept(r: Core, m: Message, position: int, lost: bool) -> None:
    """The driver has everything up to `position`, and nothing else when `lost`."""
    r.reply(m, Kind.SNAPSHOT_REPLY, context=m.context, offset=position, reject=lost)


# -- the follower ------------------------------------------------------------


def check_committed(r: Core, m: Message) -> None:
    """Raise Contradiction when an APPEND has another entry than one that is committed here."""
    behind = ((entry.index, entry.term) for entry in m.entries)
    for index, term in ((m.index, m.log_term), *behind):
        if index > r.log.committed:
            return
        here = r.log.term(index)
        if here not in (None, term):
            raise Contradiction(index, here or 0, term)


def has_committed(r: Core, m: Message) -> None:
    """Say that everything that is committed is here, and of which term its end is: a leader whose
    log has another entry there does not count it."""
    end = r.log.committed
    r.reply(m, Kind.APPEND_REPLY, index=end, log_term=r.log.term(end) or 0)


def on_append(r: Core, m: Message) -> None:
    """Entries of the leader, to follow `m.index`. Raises Contradiction."""
    if m.index <= r.log.committed:
        check_committed(r, m)
        if r.log.term(m.index) is None:
            has_committed(r, m)
            return
    if not r.log.matches(m.index, m.log_term):
        hint = r.log.agree_before(m.index, m.log_term)
        term = r.log.term(hint) or 0
        r.reply(m, Kind.APPEND_REPLY, index=m.index, reject=True, hint=hint, log_term=term)
        return
    last = r.log.merge(m.entries) if m.entries else m.index
    r.check_config()
    r.verified = max(r.verified, last)
    r.commit_to(min(m.commit, last))
    r.reply(m, Kind.APPEND_REPLY, index=last)


def on_heartbeat(r: Core, m: Message) -> None:
    """The leader is there. Its commit counts as far as the logs are known to be the same: this
    node may have lost what it acked in another incarnation."""
    r.commit_to(min(m.commit, r.verified))
    r.reply(m, Kind.HEARTBEAT_REPLY, context=m.context, force=hibernation.agrees(r, m))
