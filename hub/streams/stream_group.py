"""One replicated stream on one node: what its group does, done to the stream."""

import contextlib
import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.consumer.consumer_saving import save_all
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.progress import consumer_events
from headwater.edge.jetstream.replication.replicator import Proposals
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.cluster.leadership import Leadership
from headwater.hub.cluster.stalled_device import StalledDevice
from headwater.hub.raft import election, hibernation, membership, reads, recovery, transfer
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.errors import ChangeRefused, NotLeader, ProposalsFull
from headwater.hub.raft.model.ready import Ready
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.group_store import GroupStore
from headwater.hub.stored.replica import Replica
from headwater.hub.stored.transfers import TransferStatus
from headwater.hub.streams.replica_reads import Question, ReplicaReads
from headwater.hub.streams.stream_machine import StreamMachine

KEEP_BYTES = 1 << 20
"""Of applied entries that stay in memory for members that are a little behind."""
FULL_TICKS = 20
"""For which a leader's storage may take nothing before another one is asked to lead."""
REST_TICKS = (10, 6000)
"""Until a leader whose account has no JetStream asks the next one to lead: each wait is twice the
one before, from the first to the last of these."""
LAST_TICKS = 4
"""That a leader waits for acks of what it has taken, before another one is asked to lead."""
EAGER_TICKS = (0, 1, 3, 6)
"""Ticks after a group was founded at which its first leader stands."""
FOUNDED = 1
"""Index of the entry that a group begins with."""
HOLD_BYTES = 32 << 20
"""Of those that stay for members that are further behind; then they get a snapshot."""

log = logging.getLogger("headwater.streams")


@dataclass(frozen=True)
class PeerStatus:
    """Another replica, as the leader sees it."""

    number: int
    current: bool
    """It has everything that is committed, and its ack counts."""
    active: bool
    """It was heard within the last check of the quorum."""
    lag: int
    """Entries that it has not got."""
    transfer: TransferStatus | None = None
    """The state that it is being sent; None when the log is enough."""


@dataclass(frozen=True)
class GroupStatus:
    """A stream's group, as one of its replicas sees it."""

    group: int
    leader: int
    """Its node's number; 0 when there is none."""
    term: int
    applied: int
    committed: int
    last: int
    bytes: int
    """Of entries in memory."""
    peers: tuple[PeerStatus, ...]
    stuck: str
    """Why what is committed is not applied; "" when it is."""


@dataclass
class Farewell:
    """A leader has another replica lead.

    A publish that a leader takes while a handover is under way cannot be proposed, and would never
    be answered. So routes tell other nodes first, then what they have sent is taken, then what was
    taken is acked, and only then the target is asked to lead.
    """

    to: int
    since: int
    """Tick at which publishes were taken no more; -1 before."""
    begun: bool = False


class StreamGroup:
    """As of `hub.cluster.driver.Handler`. `wanted` is what the cluster says of the stream."""

    def __init__(
        self,
        store: GroupStore,
        machine: StreamMachine,
        wanted: Any,
        proposals: Proposals,
        touch: Callable[[Raft], None],
        clock: Callable[[], int],
        question: Question,
    ) -> None:
        self.store = store
        self.machine = machine
        self.wanted = wanted
        self.proposals = proposals
        self.touch = touch
        self.clock = clock
        self.leadership = Leadership(clock)
        self.reads = ReplicaReads(machine.reads, clock, touch, question)
        self.raft: Raft | None = None
        self.eager = False
        """This node is to lead first, and nobody has ever led: it need not wait for silence."""
        self._stood = -1
        self._refuses_since = 0
        self._device = StalledDevice()
        self._passed = (0, 0)
        """When a leader that rests has last asked another one to lead, and how long it waits until
        it does again, in ticks."""
        self.led_in = -1
        """The last term in which the stream lived here; -1 for none."""
        self._decoded: tuple[Any, StreamConfig] = (None, StreamConfig(name=""))
        self._doubted: tuple[Config | None, Any, int] = (None, None, 0)
        """Members of whom not all are wanted, what is wanted, and the round of heartbeats that says
        who of them is there."""
        self._fitting: tuple[Config | None, Any] = (None, None)
        """Members that are those of what is wanted: nothing is to be changed."""
        self.farewell: Farewell | None = None
        self.barrier: Callable[[Callable[[], None]], None] = lambda done: done()
        """Calls back when what other nodes sent here before has arrived."""
        self.may_lead: Callable[[int], bool] = lambda number: True
        """Whether a node would take a leadership, by what it says of itself."""
        self.rests_on: Callable[[int], bool] = lambda number: False
        """Whether the stream's account has no JetStream on a node, by what it says of itself."""
        self.is_over: Callable[[int, str], bool] = lambda number, kind: False
        """Whether a node has more of a kind of storage than its limit, by what it says."""
        self.on_leader: Callable[[Stream], None] = lambda stream: None
        """The stream has begun to live here."""
        self.on_publishes: Callable[[Stream], None] = lambda stream: None
        """The stream takes publishes, as its other nodes have been told."""
        self.on_quorum_lost: Callable[[], None] = lambda: None
        """This node led it, and hears too few replicas to go on."""
        self.on_change_done: Callable[[], None] = lambda: None
        """The members are those that the cluster wants, and it does not know yet."""
        self.on_leaving: Callable[[int], set[Any]] = lambda term: set()
        """This node, which leads in a term, is about to take its interest back. Returns the routes
        on which something may be on its way to it."""
        self.on_ending: Callable[[int], None] = lambda term: None
        """The stream, which lives here since a term, is about to end."""
        self.on_lost: Callable[[], None] = lambda: None
        """The stream lived here, and was handed over to nobody: what it handed out last may be
        written down nowhere."""
        self.on_deposed: Callable[[], None] = lambda: None
        """This node led the group, and does no more."""
        self.near_in: Callable[[], int] = lambda: -1
        """In which term the leader of a mirror has said that it lacks little; -1 for none."""
        self._leads = False
        self.expected = False
        """The group is about to be made of a stream that lives here alone: until then requests
        wait."""

    def expect(self, comes: bool) -> None:
        """Say whether the group is about to be made of a stream that lives here alone."""
        self.expected = self.reads.patient = comes

    def serve_reads(self, store: FileStore) -> None:
        """This replica has all that there is, though the group has no leader yet: let direct gets
        wait for it here."""
        self.reads.keeps_up = True
        self.machine.serve_reads(store, near=False)

    @property
    def name(self) -> str:
        """As of `Handler`."""
        return f"stream '{self.wanted.account} > {self.wanted.name}'"

    @property
    def tag(self) -> int:
        """As of `Handler`: another stream, or another one of that name, has another number."""
        incarnation = self.wanted.incarnation.encode()
        return int.from_bytes(hashlib.blake2b(incarnation, digest_size=8).digest())

    @property
    def replica(self) -> Replica:
        """The group's state on this node."""
        return self.store.replicas[self.wanted.group]

    @property
    def stream(self) -> Stream | None:
        """The stream, when it lives here."""
        return self.machine.stream if self.machine.lives else None

    def followed(self) -> Stream | None:
        """The stream as this replica has it, when another node leads it; None before anything of it
        is here, or while that cannot be read."""
        replica = self.store.replicas.get(self.wanted.group)
        if self.machine.lives or replica is None or replica.store is None or replica.doubtful:
            return None
        try:
            return self.machine.follow(replica.store)
        except StoreError:
            return None

    # -- as a handler ---------------------------------------------------------

    def ready(self, raft: Raft, ready: Ready) -> None:
        """Apply what is committed; begin to lead when all of it is."""
        self.replica.apply(ready.committed)
        self._lead_if_due(raft)
        self.leadership.heard(ready.reads)
        self.reads.heard(ready.reads)

    def changed(self, raft: Raft) -> None:
        """Another leader, or none."""
        stream, handed = self.stream, self.farewell is not None and self.farewell.begun
        if not raft.is_leader:
            self.farewell = None
        self.leadership.look_at(raft, self.replica.applied)
        if not raft.is_leader:
            self.machine.reads.sure(0)
        self.reads.ask_anew()
        self._look_who_leads(raft.is_leader)
        if not raft.is_leader and self.machine.lives:
            log.info("stream '%s': this node leads no more", self.wanted.name)
            self.on_ending(self.led_in)
            if stream is not None and not (handed and stream.replicator.idle):
                self.on_lost()
            self.machine.quiet()
            if raft.term == self.led_in and not raft.leader:
                # Nobody else stood for election: the leader itself gave up.
                self.on_quorum_lost()

    def _look_who_leads(self, leads: bool) -> None:
        if self._leads and not leads:
            self.on_deposed()
        self._leads = leads

    def tidy(self, raft: Raft) -> None:
        """Apply what storage did not take, offer again what the group did not take, and let go of
        entries that nobody needs."""
        replica = self.replica
        if replica.waiting:
            replica.apply([])
        self._lead_if_due(raft)
        if self.eager:
            self._stand(raft)
        self.leadership.look_at(raft, replica.applied)
        stream = self.stream
        if stream is not None:
            stream.replicator.sure(self._left(raft))
            stream.replicator.offer()
            if self.farewell is not None:
                self._go_on(raft, self.farewell)
            if raft.is_leader:
                self._reconcile(raft)
        if raft.is_leader:
            self._give_up_if_full(raft)
            self._give_up_if_stalled(raft)
            self._pass_on(raft)
        self._look_at_reads(raft)
        self.store.trim(raft, KEEP_BYTES, HOLD_BYTES)
        raft.sleep.restless = self._has_to_try_again(raft)

    def index_answered(self, context: int, index: int, term: int) -> None:
        """A leader says up to where the group has committed."""
        if self.raft is not None:
            self.reads.answered(self.raft, self.replica.applied, context, index, term)

    def tells(self, index: int) -> None:
        """Another replica may show what is committed up to `index` from now on."""
        if index > self.replica.applied:
            self.machine.reads.sure(0)

    def _look_at_reads(self, raft: Raft) -> None:
        """Answer what waits, and be there to be asked as long as this replica keeps up."""
        replica, machine = self.replica, self.machine
        whole = not replica.waiting and not replica.doubtful
        if machine.lives:
            # What this node's disk does not have yet is committed when the others have it, and they
            # may show it.
            newest = whole and raft.log.committed == replica.applied
            machine.reads.sure(reads.lease_left(raft, self.clock()) if newest else 0)
        if self.reads.busy and replica.store is not None:
            machine.follow(replica.store)
        self.reads.look_at(raft, replica.applied)
        near = self._is_near(raft)
        if self.rests:
            self.reads.give_up()
        if machine.lives or self.rests or not (near or self._config().allow_direct):
            # What the leader of before had said of a mirror counts no more.
            machine.withdraw()
            return
        if not (self.reads.keeps_up and whole):
            machine.withdraw()
        if raft.leader and whole and replica.store is not None:
            if self.reads.keeps_up:
                machine.serve_reads(replica.store, near)
            else:
                self.reads.probe(raft)

    def _is_near(self, raft: Raft) -> bool:
        """Whether this is a mirror whose leader has said that it lacks little of its origin."""
        config = self._config()
        may = config.mirror is not None and config.mirror_direct and not config.mirror.external
        return bool(may and self.near_in() == raft.term)

    def _config(self) -> StreamConfig:
        """What is wanted, decoded once: each round looks at it."""
        if self._decoded[0] is not self.wanted:
            self._decoded = (self.wanted, self.wanted.stream_config)
        return self._decoded[1]

    def _has_to_try_again(self, raft: Raft) -> bool:
        """Whether something waits that is looked at with ticks only."""
        if self.replica.waiting or self.leadership.waiting or self.farewell is not None:
            return True
        if self.reads.busy or (raft.is_leader and self.rests and self._servers(raft)):
            return True
        stream = self.stream
        full = stream is not None and stream.store.failure is not None
        return full or (raft.is_leader and self.wanted.change is not None)

    def broken(self) -> None:
        """As of `Handler`."""
        self.leadership.give_up()
        self.raft = None
        self.end()

    def _stand(self, raft: Raft) -> None:
        """Be the group's first leader. The others may be still making the group, so it is tried
        more than once."""
        if raft.leader or raft.log.last > raft.log.base_index or raft.ticks > EAGER_TICKS[-1]:
            self.eager = False
        elif raft.ticks in EAGER_TICKS and raft.ticks != self._stood and election.eligible(raft):
            self._stood = raft.ticks
            election.campaign(raft, force=True)
            self.touch(raft)

    # -- leading --------------------------------------------------------------

    def _lead_if_due(self, raft: Raft) -> None:
        """A leader's first entry is applied, so everything before it is, too. One that was asked
        to hand over before that takes nothing, unless nobody else stands."""
        replica = self.replica
        if (
            not raft.is_leader
            or raft.transfer.target
            or self.machine.lives
            or self.rests
            or replica.waiting
            or replica.store is None
            or replica.mark.term != raft.term
            or replica.doubtful
            or (raft.term == self.led_in and replica.applied < raft.log.last)
        ):
            return
        self.led_in = raft.term
        stream = self.machine.live(replica.store, self.proposals, self.propose)
        log.info("stream '%s': this node leads in term %d", stream.name, raft.term)
        stream.replicator.use_confirm(self._confirm)
        # Replicas that were made before a change and after it have begun with another one each.
        self._configure(stream, again=self.wanted.version > 0)
        if self.wanted.version == 0 and _is_first(raft):
            self._advise(stream, "create")
        self.on_leader(stream)
        self.on_publishes(stream)

    def _confirm(self) -> None:
        """Consumers have something to hand out, and another node may lead by now."""
        if self.raft is not None:
            self.confirm(self._confirmed)

    def _confirmed(self, leads: bool) -> None:
        stream = self.stream
        if stream is not None and leads and self.raft is not None:
            stream.replicator.sure(self._left(self.raft))

    def _left(self, raft: Raft) -> int:
        """For how many ns consumers may hand out messages. Who hands over has none: what it hands
        out would be written down nowhere, and an ack of it goes to the next leader."""
        return 0 if self.hands_over else self.leadership.left(raft)

    @property
    def hands_over(self) -> bool:
        """Whether the stream lives here, and takes nothing more: another node is asked to lead, or
        the group is about to be made."""
        return self.expected or (self.farewell is not None and self.farewell.since >= 0)

    @property
    def sure(self) -> bool:
        """Whether this node leads, and no other one can."""
        return self.leadership.sure(self.raft)

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Ask the other replicas whether this node leads; `told` hears it later."""
        self.leadership.confirm(self.raft, then, self.touch)

    def propose(self, entry: bytes) -> bool:
        """Propose what a round of the loop has decided; False when it must wait."""
        raft = self.raft
        if raft is None or not raft.is_leader:
            return False
        try:
            raft.propose([entry])
        except (NotLeader, ProposalsFull):
            return False
        self.touch(raft)
        return True

    def _configure(self, stream: Stream, again: bool = False) -> None:
        """Have the group take over the configuration that the cluster has decided on; `again`: also
        if this node's replica has it."""
        if again or stream.config != self.wanted.stream_config:
            description = stream_lifecycle.description(stream, self.wanted.stream_config)
            stream.replicator.configure(description)

    def change(self, wanted: Any) -> None:
        """The cluster says something else of the stream."""
        before, self.wanted = self.wanted, wanted
        if self.raft is not None:
            recovery.look_for(self.raft, wanted.peers)
        stream = self.stream
        if stream is not None:
            self._configure(stream)
            asked = wanted.version > before.version and before.change is None
            if asked or wanted.stream_config != before.stream_config:
                self._advise(stream, "modify")

    def _advise(self, stream: Stream, action: str) -> None:
        """Say what was done with a stream that lives here: its other nodes do not."""
        self.machine.jetstream.advisories.stream_action(stream, action)

    def _reconcile(self, raft: Raft) -> None:
        """Make the members those that the cluster wants, one change at a time."""
        config = raft.log.config
        if self._fitting[0] is config and self._fitting[1] is self.wanted:
            return
        wanted = dict(zip(self.wanted.peers, self.wanted.boots, strict=True))
        if not membership.ready_for_change(raft):
            return
        if set(config.members()) == set(wanted):
            if self.wanted.change is None:
                self._fitting = (config, self.wanted)
            elif not config.learners:
                self.on_change_done()
            return
        missing = [node for node in wanted if config.incarnation(node) is None]
        extra = [node for node in config.members() if node not in wanted]
        strays = [node for node in extra if node in config.learners]
        try:
            if strays:
                # It was wanted for a while, and does not even know of the group perhaps.
                membership.remove(raft, strays[0])
            elif missing:
                node = missing[0]
                # A node that asks to be taken in has said in which start it is.
                boot = max(wanted[node], raft.peer_boots.get(node, 0))
                membership.add_voter(raft, node, max(boot, config.removed.get(node, -1) + 1))
            elif config.learners or not self._drop_member(raft, extra, wanted):
                return
            self.touch(raft)
        except (ChangeRefused, NotLeader) as error:
            log.debug("stream '%s': %s", self.wanted.name, error)

    def _drop_member(self, raft: Raft, extra: list[int], wanted: Iterable[int]) -> bool:
        """Take one member out, or let another one lead that does it; returns whether one is out.
        Nobody knows who lives without a round of heartbeats that began after this was wanted."""
        config = raft.log.config
        if self._doubted[0] is not config or self._doubted[1] is not self.wanted:
            self._doubted = (config, self.wanted, raft.reading.number + 1)
            hibernation.wake(raft)
            self.touch(raft)
            return False
        since = self._doubted[2]
        if extra != [raft.node]:
            node = membership.may_leave(raft, [one for one in extra if one != raft.node], since)
            if node:
                membership.remove(raft, node)
            return node != 0
        heard = [one for one in wanted if raft.progress[one].round >= since]
        if heard and not self.farewell:
            self.hand_over(heard[0])
        return False

    def _give_up_if_full(self, raft: Raft) -> None:
        """A leader whose storage takes nothing refuses what the others have room for. One that
        was elected like that does not even get to lead."""
        stream = self.stream
        refuses = stream is not None and stream.store.failure is not None
        if not refuses and not self.replica.waiting:
            self._refuses_since = raft.ticks
        elif raft.ticks - self._refuses_since >= FULL_TICKS and not self.farewell:
            self._refuses_since = raft.ticks
            if any(one.state is State.REPLICATE for one in raft.progress.values()):
                log.warning(
                    "stream '%s': storage is full, another node is to lead: make room on this node",
                    self.wanted.name,
                )
                self.hand_over(0)

    def give_up_over(self, kind: str) -> None:
        """This node has more of a kind of storage than its limit, and refuses what others have room
        for: one of these is to lead. Asked each second while it is so."""
        raft = self.raft
        if raft is None or not self.machine.lives or self._config().storage != kind:
            return
        if self.farewell is not None:
            return
        there = [
            (one.match, node)
            for node, one in raft.progress.items()
            if node in raft.log.config.voters and one.state is State.REPLICATE
        ]
        there = [each for each in there if self.may_lead(each[1])]
        there = [each for each in there if not self.is_over(each[1], kind)]
        if there:
            log.warning(
                "stream '%s': this node has more than its limit, another node is to lead: raise "
                "`max_%s`, or remove something",
                self.wanted.name,
                kind if kind == "file" else "mem",
            )
            self.hand_over(max(there)[1])

    def _give_up_if_stalled(self, raft: Raft) -> None:
        """A leader acknowledges what its own device has, too. When that writes nothing and the
        others' do, one of them is to lead."""
        if self._device.look(raft, leaves=self.farewell is not None):
            log.warning(
                "stream '%s': this node's device has written nothing for seconds, another node "
                "is to lead: look at the device",
                self.wanted.name,
            )
            self.hand_over(0)

    def hand_over(self, to: int) -> None:
        """Have another replica lead, 0 whichever has most of those that would. Raises NotLeader,
        ChangeRefused."""
        raft = self.raft
        if raft is None or not raft.is_leader:
            raise NotLeader(raft.leader if raft is not None else 0)
        if not to:
            voters = [node for node in raft.progress if node in raft.log.config.voters]
            progress = raft.progress
            to = max(voters, key=lambda n: (self.may_lead(n), progress[n].match), default=0)
        if to == raft.node or to not in raft.log.config.voters:
            raise ChangeRefused(f"node {to} is no other voter")
        stream = self.stream
        if stream is None:
            transfer.begin(raft, to)
            self.touch(raft)
        elif self.farewell is None:
            farewell = self.farewell = Farewell(to, -1)
            senders = self.on_leaving(self.led_in)
            stream_lifecycle.accept_in_flight(self._account(), stream, senders)
            self.barrier(lambda: self._refuse_publishes(raft, farewell))

    def _account(self) -> Any:
        store = self.replica.store
        assert store is not None
        return self.machine.account(store)

    def _refuse_publishes(self, raft: Raft, farewell: Farewell) -> None:
        """Whatever other nodes sent here is taken."""
        stream = self.stream
        if self.farewell is not farewell or stream is None:
            return
        stream_lifecycle.refuse_publishes(self._account(), stream)
        farewell.since = raft.ticks
        stream.replicator.sure(0)
        save_all(stream.node)
        stream.replicator.flush()
        self._go_on(raft, farewell)
        self.touch(raft)

    def _go_on(self, raft: Raft, farewell: Farewell) -> None:
        """Ask the target to lead when everything is acked; lead on when it did not take over."""
        stream = self.stream
        if stream is None or farewell.since < 0:
            return
        waited = raft.ticks - farewell.since
        if not farewell.begun and (stream.replicator.idle or waited >= LAST_TICKS):
            farewell.begun = True
            try:
                transfer.begin(raft, farewell.to)
                self.touch(raft)
            except (ChangeRefused, NotLeader) as error:
                log.debug("stream '%s': %s", self.wanted.name, error)
        if farewell.begun and raft.is_leader and not raft.transfer.target:
            self.farewell = None
            stream_lifecycle.accept_publishes(self._account(), stream)
            self.on_publishes(stream)
            self._confirm()

    # -- what may be asked ----------------------------------------------------

    def status(self) -> GroupStatus | None:
        """How the group is; None while it is being made."""
        raft = self.raft
        if raft is None:
            return None
        rows = raft.log
        peers = []
        for number, one in raft.progress.items():
            current = one.state is State.REPLICATE and one.match >= rows.committed
            current = current and number in rows.config.voters
            lag = max(rows.last - one.match, 0)
            moving = self.store.transfers.status(raft, number)
            peers.append(PeerStatus(number, current, one.active, lag, moving))
        return GroupStatus(
            self.wanted.group,
            raft.leader,
            raft.term,
            self.replica.applied,
            rows.committed,
            rows.last,
            rows.bytes,
            tuple(peers),
            self.machine.stuck,
        )

    def has_left(self, node: int) -> bool:
        """Whether the group has taken this node out. One that came back unclean is not told so: to
        the others its new incarnation was never there."""
        raft = self.raft
        if raft is None or raft.removed:
            return raft is not None
        if node in self.wanted.peers or not raft.recovering:
            return False
        if not raft.log.config.voters and not raft.recovery.seeds:
            # It fell before it had anything, and knows nobody whom it could ask.
            return True
        answers = raft.recovery.answers
        if not answers:
            return False
        voters = max(answers.values(), key=lambda each: (each.log_term, each.last)).config.voters
        known = [answers.get(voter) for voter in voters]
        return all(each is not None and each.config.incarnation(node) is None for each in known)

    def advise_end(self) -> None:
        """Say that the stream is deleted, when it lives here, and its consumers of one replica."""
        stream = self.stream
        if stream is not None:
            for consumer in stream.consumers.values():
                # As with nats-server, where nobody leads those with replicas any more by then.
                if consumer.config.num_replicas == 1:
                    consumer_events.deleted(consumer)
            self._advise(stream, "delete")

    @property
    def rests(self) -> bool:
        """Whether the stream's account has no JetStream on this node."""
        return self.machine.jetstream.rests(self.wanted.account)

    def rest(self) -> None:
        """The stream lives here no more, while its account has no JetStream on this node. What the
        group commits is still applied."""
        self.farewell = None
        if self.machine.lives:
            self.on_ending(self.led_in)
            self.machine.quiet(stream_lifecycle.SHUTDOWN)
        self.machine.withdraw()
        self.reads.give_up()
        self.go_on()

    def go_on(self) -> None:
        """The stream rests from now on, or no more: the next round looks at it."""
        self._passed = (0, 0)
        if self.raft is not None:
            hibernation.wake(self.raft)
            self.touch(self.raft)

    def _servers(self, raft: Raft) -> list[int]:
        """Other voters that may serve the stream, as far as is known here."""
        voters = (node for node in raft.progress if node in raft.log.config.voters)
        return [node for node in voters if node != raft.node and not self.rests_on(node)]

    def _pass_on(self, raft: Raft) -> None:
        """A leader whose stream rests lets a node lead where it does not, and tries ever more
        seldom. Where all rest, nobody serves the stream, and the group may sleep."""
        passed, wait = self._passed
        if not self.rests or raft.ticks - passed < wait:
            return
        first, last = REST_TICKS
        there = self._servers(raft)
        there = [node for node in there if raft.progress[node].active and self.may_lead(node)]
        if there:
            self._passed = (raft.ticks, min(max(2 * wait, first), last))
            # In turn, so that each one has its try.
            to = min(there, key=lambda node: (node < raft.node, node))
            with contextlib.suppress(ChangeRefused, NotLeader):
                self.hand_over(to)

    def end(self, reason: str = stream_lifecycle.REPLACED) -> None:
        """Nothing of the stream lives here any more; what is stored stays. `reason` is for who
        waits for messages."""
        self.expect(False)
        if self.machine.lives:
            self.on_ending(self.led_in)
            self.machine.quiet(reason)
        self._look_who_leads(False)
        self.machine.forget()
        self.reads.give_up()


def _is_first(raft: Raft) -> bool:
    """Whether nobody has led this group before the present term: a group begins with one entry,
    which says who is in it."""
    return raft.log.base_index == FOUNDED and raft.log.term(FOUNDED + 1) == raft.term
