"""How entries get to the others, and when they are committed (§5.3, §5.4.2; thesis §10.2)."""

from headwater.hub.raft import hibernation, reads, transfer
from headwater.hub.raft.core import Core
from headwater.hub.raft.entry import Entry, EntryKind, bytes_of
from headwater.hub.raft.message import Kind, Message
from headwater.hub.raft.progress import MemberProgress, State
from headwater.hub.raft.quorum import majority_value, quorum_size
from headwater.hub.raft.snapshot import Assembly

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
    """Send everybody what is new; a commit that moved is news too."""
    for node, progress in r.progress.items():
        send_append(r, node, progress)


def send_append(r: Core, node: int, progress: MemberProgress, empty: bool = False) -> None:
    """Feed one member as far as its window allows. `empty`: say something in any case, to find
    out whether messages were lost."""
    options = r.options
    if progress.state is State.SNAPSHOT:
        return
    while not progress.full(options.inflight_max, options.inflight_bytes_max):
        nothing = progress.next > r.log.last
        if nothing and not empty and progress.commit_sent >= r.log.committed:
            return
        before = progress.next - 1
        term = r.log.term(before)
        if term is None:
            send_snapshot(r, node, progress)
            return
        entries = (
            [] if nothing else r.log.slice(progress.next, r.log.last, options.append_bytes_max)
        )
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
    advance_match(r, m.sender, progress, m.index)


def advance_match(r: Core, node: int, progress: MemberProgress, index: int) -> None:
    """Everything up to `index` is durable at `node`."""
    progress.paused = False
    if index > r.log.last:
        return
    progress.accepted(index)
    if progress.state is State.PROBE or (
        progress.state is State.SNAPSHOT and index >= progress.snapshot_index
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
    progress.paused = False
    progress.round = max(progress.round, m.context)
    hibernation.agreed(r, progress, m)
    reads.round_answered(r)
    if progress.state is State.SNAPSHOT:
        send_part(r, m.sender, progress)
    elif progress.match < r.log.last or progress.state is State.PROBE:
        if progress.inflight and progress.full(
            r.options.inflight_max, r.options.inflight_bytes_max
        ):
            progress.inflight_bytes -= progress.inflight.popleft()[1]
        send_append(r, m.sender, progress, empty=True)


# -- snapshots ---------------------------------------------------------------


def send_snapshot(r: Core, node: int, progress: MemberProgress) -> None:
    """The log does not reach back to what the member needs."""
    progress.to_snapshot(r.log.snapshot.index)
    send_part(r, node, progress)


def send_part(r: Core, node: int, progress: MemberProgress) -> None:
    """One part at a time: the reply asks for the next, a heartbeat's reply for the same again."""
    snapshot = r.log.snapshot
    if not snapshot.made:
        r.snapshot_wanted = True
        return
    if progress.snapshot_index != snapshot.index:
        progress.to_snapshot(snapshot.index)
    offset = progress.snapshot_offset
    r.send(
        Message(
            Kind.SNAPSHOT,
            r.node,
            node,
            index=snapshot.index,
            log_term=snapshot.term,
            offset=offset,
            size=len(snapshot.data),
            digest=snapshot.digest(),
            part=snapshot.data[offset : offset + r.options.snapshot_part_bytes],
            config=snapshot.config,
        )
    )


def send_snapshots(r: Core) -> None:
    """There is a snapshot now for members that wait for one."""
    for node, progress in r.progress.items() if r.is_leader else ():
        if progress.state is State.SNAPSHOT:
            send_part(r, node, progress)


def on_snapshot_reply(r: Core, m: Message) -> None:
    """The member has a part; the last one is answered like an append."""
    progress = replying(r, m)
    if progress is None or progress.state is not State.SNAPSHOT:
        return
    if m.index == progress.snapshot_index:
        moved = progress.snapshot_offset != m.offset
        progress.snapshot_offset = m.offset
        if moved:
            send_part(r, m.sender, progress)


def on_snapshot(r: Core, m: Message) -> None:
    """A part of a snapshot arrives."""
    if m.index <= r.log.committed or m.config is None:
        r.reply(m, Kind.APPEND_REPLY, index=r.log.committed)
        return
    if r.log.matches(m.index, m.log_term):
        r.commit_to(m.index)
        r.reply(m, Kind.APPEND_REPLY, index=r.log.committed)
        return
    if r.assembly is None or not r.assembly.same(m.index, m.log_term, m.size, m.digest):
        r.assembly = Assembly(m.index, m.log_term, m.config, m.size, m.digest)
    expected = r.assembly.add(m.offset, m.part)
    snapshot = r.assembly.finish() if expected == m.size else None
    if snapshot is None:
        r.reply(m, Kind.SNAPSHOT_REPLY, index=m.index, offset=len(r.assembly.data))
        return
    r.assembly = None
    r.snapshot_installed(snapshot)
    r.reply(m, Kind.APPEND_REPLY, index=snapshot.index)


# -- the follower ------------------------------------------------------------


def on_append(r: Core, m: Message) -> None:
    """Entries of the leader, to follow `m.index`."""
    if m.index < r.log.committed and not r.log.matches(m.index, m.log_term):
        r.reply(m, Kind.APPEND_REPLY, index=r.log.committed)
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
