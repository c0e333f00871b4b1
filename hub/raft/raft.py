"""One member of one group: where each input goes, and what its transitions consist of.

The state is `core`; the rules are in `election`, `replication`, `membership`, `recovery`, `reads`,
`transfer` and `hibernation`, functions over that state. Drive it with `step`, `tick`, `propose`,
`ready` and `synced`, from one thread.
"""

from collections.abc import Callable, Sequence

from headwater.hub.raft import (
    election,
    heartbeat,
    hibernation,
    membership,
    reads,
    recovery,
    replication,
    transfer,
)
from headwater.hub.raft.core import Core
from headwater.hub.raft.model.entry import Entry, EntryKind, bytes_of, make_entries
from headwater.hub.raft.model.errors import NotLeader, ProposalsFull, invariant
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.message import FROM_LEADER, OUT_OF_TERM, REPLIES, Kind, Message
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Ready, Restored, Unsynced
from headwater.hub.raft.model.role import Role
from headwater.hub.raft.model.snapshot import Part, Snapshot, Wanted

TERM_JUMP_MAX = 1 << 40
"""A greater step of the term in one message is damage, not an election."""


class Raft(Core):
    """`chance(n)` gives a number below n, from the driver's random port."""

    def __init__(
        self,
        group: int,
        node: int,
        boot: int,
        restored: Restored,
        chance: Callable[[int], int],
        options: Options | None = None,
    ) -> None:
        super().__init__(group, node, boot, restored, chance, options)
        self._seen_config = self.log.config  # the configuration that was reported last
        election.reset_timeout(self)
        recovery.start(self, restored)

    # -- inputs ---------------------------------------------------------------

    def tick(self, now_ns: int = 0) -> None:
        """A tick has passed. `now_ns` is the driver's monotonic clock; only leases use it."""
        self.ticks += 1
        if self.reading.asked or now_ns < self.now_ns:
            reads.clock(self, now_ns)
        else:
            self.now_ns = now_ns
        if self.removed or self.sleep.asleep:
            return
        if recovery.asking(self):
            recovery.tick(self)
        if self.is_leader:
            self._lead_on()
            hibernation.tick(self)
        else:
            election.tick(self)

    def _lead_on(self) -> None:
        """A leader's tick: the check of the quorum, a handover that takes too long, heartbeats,
        and members to bring back."""
        self.elapsed += 1
        self.reading.since_heartbeat += 1
        if self.elapsed >= self.options.election_ticks:
            self.elapsed = 0
            if not replication.has_quorum(self):
                self.become_follower(self.term, 0)
                return
        transfer.tick(self)
        if self.commit_due:
            replication.tell_commit(self)
        if self.reading.since_heartbeat >= self.options.heartbeat_ticks:
            heartbeat.send(self)
        membership.tick(self)

    def step(self, m: Message) -> None:
        """A message arrived. Never raises for what a peer sent: it is dropped when it makes no
        sense."""
        if self.removed or not self._admit(m):
            return
        hibernation.wake_on(self, m)
        if m.kind not in OUT_OF_TERM and not self._compare_term(m):
            return
        HANDLERS[m.kind](self, m)
        self.check_config()

    def propose(self, datas: Sequence[bytes]) -> tuple[int, int]:
        """Append entries. Returns the term and the index of the first one: it is committed when an
        entry of that term is committed at that index. Raises `NotLeader`, `ProposalsFull`."""
        if not self.is_leader or self.transfer.target:
            raise NotLeader(0 if self.is_leader else self.leader)
        if self.uncommitted_bytes() > self.options.uncommitted_bytes_max:
            raise ProposalsFull(f"{self.uncommitted_bytes()} bytes wait for a quorum")
        first = self.log.last + 1
        self.log.append(make_entries(self.term, first, datas))
        hibernation.wake(self)
        self.append_due = True
        return self.term, first

    def uncommitted_bytes(self) -> int:
        """Bytes that wait for a quorum; 0 as long as the whole log is below the limit."""
        if self.log.bytes <= self.options.uncommitted_bytes_max:
            return 0
        return bytes_of(self.log.entries[self.log.committed - self.log.base_index :])

    def read(self, context: int, now_ns: int = 0) -> None:
        """Ask for a linearizable read; it ends as a `ReadState` with this `context`."""
        # A group that slept has not heard the time for long, and rounds are measured by it.
        self.now_ns = max(self.now_ns, now_ns)
        hibernation.wake(self)
        reads.ask(self, context, now_ns)

    def tell_commit(self) -> None:
        """Nothing was proposed that a commit could go with (`Options.defer_commits`): tell it."""
        if self.commit_due:
            replication.tell_commit(self)

    def compact(self, snapshot: Snapshot) -> None:
        """The driver has the applied state of `snapshot` in durable form: drop what it covers."""
        self.log.compact(snapshot)

    def send_part(self, wanted: Wanted, part: Part) -> None:
        """The driver has made what `Ready.wanted` asked for."""
        replication.send_part(self, wanted, part)

    def part_kept(self, m: Message, position: int, lost: bool = False) -> None:
        """The driver has kept a part of `Ready.parts`, and with it the state up to `position`.
        `lost`: it has had to throw away what was behind that."""
        replication.part_kept(self, m, position, lost)

    def snapshot_arrived(self, m: Message) -> bool:
        """With `m`, the last part, the driver has the whole state. Returns whether it is to take
        the place of what is here; then a `Ready` says so. False: the log has gone on meanwhile."""
        config = m.config
        if config is None or m.index <= self.log.committed or self.removed:
            return False
        if self.log.matches(m.index, m.log_term):
            return False
        self.snapshot_installed(Snapshot(m.index, m.log_term, config))
        self.reply(m, Kind.APPEND_REPLY, index=m.index)
        self.check_config()
        return True

    def doubt(self) -> None:
        """What is here may be older than what this member has promised: it asks the others, as
        after an unclean stop."""
        if self.removed or self.incarnation == self.boot:
            return
        if self.is_leader:
            self.become_follower(self.term, 0)
        hibernation.wake(self)
        recovery.doubt(self, self.boot)
        recovery.prove(self)

    def wake(self) -> None:
        """A node is silent, or came back: a sleeping group counts time again."""
        hibernation.wake(self)

    # -- outputs --------------------------------------------------------------

    def has_ready(self) -> bool:
        """Whether `ready` would say anything."""
        log = self.log
        return bool(
            self._now
            or self._held
            or self._reads_done
            or self._installed
            or self.parts
            or self.wanted
            or self.append_due
            or log.handed < log.last
            or (log.applied < log.committed and log.applied < log.durable)
            or self._hard_handed != self._hard_version
        )

    def drain_messages(self) -> list[Message] | None:
        """What is to be sent, when nothing else is to be done and nothing waits for the disk: most
        of a quiet group's work, without a `Ready`. None: call `ready`."""
        said, self._now = self._now, []
        if self._unsynced or self.has_ready():
            self._now = said
            return None
        return said

    def ready(self) -> Ready:
        """What is to be done now; see `Ready`. Each thing is said once."""
        if self.append_due:
            self.append_due = False
            replication.broadcast(self)
        self._number += 1
        log = self.log
        ready = Ready(self._number, entries=log.to_write(), committed=self._next_committed())
        ready.before_term = log.term(log.handed) or 0
        log.handed = log.last
        if ready.entries or self._installed or self._hard_handed != self._hard_version:
            ready.hard_state = self._changed_hard_state()
        ready.snapshot, self._installed = self._installed, None
        ready.parts, self.parts = self.parts, []
        ready.wanted, self.wanted = list(self.wanted.values()), {}
        ready.reads, self._reads_done = self._reads_done, []
        held, self._held = self._held, []
        if not ready.writes and not self._unsynced:
            self._hard_synced = self._hard_version
            self._release(held)
        else:
            self._unsynced.append(
                Unsynced(
                    ready.number, log.last, log.last_term, self._hard_version, held, ready.writes
                )
            )
        ready.messages, self._now = self._now, []
        return ready

    def synced(self, number: int) -> list[Message]:
        """The writes of the batch `number`, and of all before it, are durable. Returns what may
        be said now."""
        while self._unsynced and self._unsynced[0].number <= number:
            self._finish(self._unsynced.popleft())
        while self._unsynced and not self._unsynced[0].writes:
            self._finish(self._unsynced.popleft())
        if self.is_leader:
            replication.maybe_commit(self)
        self.check_config()
        sent, self._now = self._now, []
        return sent

    def _finish(self, done: Unsynced) -> None:
        self._hard_synced = done.hard_version
        self.log.synced_to(done.last, done.last_term)
        self._release(done.held)

    def _changed_hard_state(self) -> HardState | None:
        """What is to be written. A commit that moved is only a hint: it goes along with entries."""
        self._hard_handed = self._hard_version
        hard = self.hard_state()
        if hard == self._hard_last:
            return None
        self._hard_last = hard
        return hard

    def _next_committed(self) -> list[Entry]:
        committed = self.log.to_apply(self.options.apply_bytes_max)
        if committed:
            self.log.applied = committed[-1].index
        return committed

    def _release(self, held: list[Message]) -> None:
        """What was promised in an earlier term is of no use, and what it speaks of may be gone."""
        for m in held:
            if m.to == self.node:
                self.step(m)
            elif m.kind in OUT_OF_TERM or m.term >= self.term:
                self._now.append(m)

    # -- transitions ----------------------------------------------------------

    def become_follower(self, term: int, leader: int) -> None:
        """Follow `leader`, or nobody (0)."""
        if term > self.term:
            self.set_term(term)
        if self.is_leader:
            reads.abandon(self)
        self.verified = 0
        self.commit_due = False
        self.role = Role.FOLLOWER
        self.leader = leader
        self.votes.clear()
        self.progress.clear()
        self.transfer.clear()
        election.reset_timeout(self)

    def become_leader(self) -> None:
        """A majority voted for this node."""
        invariant(self.role is Role.CANDIDATE, "only a candidate becomes leader")
        self.role = Role.LEADER
        self.leader = self.node
        self.votes.clear()
        self.elapsed = 0
        self.transfer.clear()
        reads.lead(self)
        membership.lead(self)
        replication.append_own(self, EntryKind.EMPTY, b"")

    def commit_to(self, index: int) -> None:
        """Everything up to `index` is committed."""
        if self.log.commit_to(index):
            membership.committed(self)
            reads.committed(self)

    def snapshot_installed(self, snapshot: Snapshot) -> None:
        """A leader's snapshot has replaced the log."""
        self.log.install(snapshot)
        self._installed = snapshot
        membership.committed(self)

    def check_config(self) -> None:
        """Notice that the log brought another configuration, or took one back."""
        if self.log.config is not self._seen_config:
            self._seen_config = self.log.config
            membership.changed(self)

    def _admit(self, m: Message) -> bool:
        """Drop what another incarnation of the sender said, or said to another incarnation of this
        node."""
        if m.sender == self.node:
            return True
        known = self.peer_boots.get(m.sender, 0)
        if m.boot < known or (m.kind in REPLIES and m.to_boot != self.boot):
            return False
        if m.boot > known:
            self.peer_boots[m.sender] = m.boot
            if m.sender in self.progress:
                self.progress[m.sender].forget()
        if m.kind not in OUT_OF_TERM and membership.fenced(self, m):
            membership.tell_gone(self, m)
            return False
        return m.term <= self.term + TERM_JUMP_MAX

    def _compare_term(self, m: Message) -> bool:
        """Compare terms. Returns whether the message is to be handled."""
        if m.kind in FROM_LEADER and m.term >= self.term:
            self.led = self.ticks
        if m.term > self.term:
            if m.kind in (Kind.PRE_VOTE, Kind.VOTE):
                return True
            if m.kind is Kind.PRE_VOTE_REPLY and not m.reject:
                return True
            self.become_follower(m.term, m.sender if m.kind in FROM_LEADER else 0)
            return True
        if m.term < self.term:
            election.answer_stale(self, m)
            return False
        if m.kind in FROM_LEADER:
            invariant(not self.is_leader or m.sender == self.node, "two leaders in one term")
            if self.role is not Role.FOLLOWER or self.leader != m.sender:
                self.become_follower(m.term, m.sender)
            self.elapsed = 0
        return True


HANDLERS: dict[Kind, Callable[[Raft, Message], None]] = {
    Kind.PRE_VOTE: lambda r, m: election.on_vote(r, m),
    Kind.VOTE: lambda r, m: election.on_vote(r, m),
    Kind.PRE_VOTE_REPLY: lambda r, m: election.on_vote_reply(r, m),
    Kind.VOTE_REPLY: lambda r, m: election.on_vote_reply(r, m),
    Kind.APPEND: lambda r, m: replication.on_append(r, m),
    Kind.APPEND_REPLY: lambda r, m: replication.on_append_reply(r, m),
    Kind.HEARTBEAT: lambda r, m: replication.on_heartbeat(r, m),
    Kind.HEARTBEAT_REPLY: lambda r, m: replication.on_heartbeat_reply(r, m),
    Kind.SNAPSHOT: lambda r, m: replication.on_snapshot(r, m),
    Kind.SNAPSHOT_REPLY: lambda r, m: replication.on_snapshot_reply(r, m),
    Kind.TIMEOUT_NOW: lambda r, m: election.on_timeout_now(r, m),
    Kind.READ: lambda r, m: reads.on_read(r, m),
    Kind.READ_REPLY: lambda r, m: reads.on_read_reply(r, m),
    Kind.HELLO: lambda r, m: membership.on_hello(r, m),
    Kind.HELLO_REPLY: lambda r, m: recovery.on_hello_reply(r, m),
    Kind.GONE: lambda r, m: membership.on_gone(r, m),
}
