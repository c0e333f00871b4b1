"""The replicated streams of a node: made, changed and removed as the cluster's state says.

The store of groups needs `naming` and `machine` before there is a driver; `run` follows.
"""

import logging
from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any, Protocol

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.consumer.delivery import DELETED
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.replication.replicator import Proposals
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.turn_order import TurnStage
from headwater.edge.ports.ports import Clock
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.cluster.read_questions import ReadQuestions
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.errors import NotLeader
from headwater.hub.raft.model.ready import Restored, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.group_store import GroupStore, Naming
from headwater.hub.streams.adoption import Adoption
from headwater.hub.streams.held_deliveries import HeldDeliveries
from headwater.hub.streams.memory_copy import MemoryCopy
from headwater.hub.streams.stream_group import GroupStatus, StreamGroup
from headwater.hub.streams.stream_machine import StreamMachine

RETRY_SECONDS = 1.0
"""Until a stream that had one replica is made a group again, when storage took nothing."""
LEFT_OWNER = b"\0left"
"""States of the log: groups that took this node out. It founds none of them again."""

OTHER_STREAM = (
    "this node has a replica of another stream under its group's number: stop the node, use "
    "`headwater store backup`, remove its `jetstream` folder, and start it again"
)

log = logging.getLogger("headwater.streams")


def founders_of(assignment: Any) -> dict[int, int]:
    """The first members of a group, each with the start in which it was taken into the cluster."""
    founders: dict[int, int] = getattr(assignment, "founders", None) or {}
    return founders or dict(zip(assignment.peers, assignment.boots, strict=True))


class Driver(Protocol):
    """Who runs groups; see `hub.cluster.driver`."""

    number: int
    store: GroupStore
    questions: ReadQuestions
    clock: Clock
    before_round: list[Callable[[], None]]

    def add(self, group: int, restored: Restored, handler: Any) -> Raft:
        """Start a group."""

    def drop(self, group: int) -> None:
        """Stop one."""

    def touch(self, raft: Raft) -> None:
        """Something was asked of one."""

    def soon(self) -> None:
        """Have a round when the sockets that are readable now were read."""


class StreamGroups:
    """Not thread-safe. An assignment has `account`, `name`, `incarnation`, `created_ns`,
    `stream_config`, `group`, `peers` (numbers of nodes), `boots`: the start in which each of them
    was taken into the cluster, and `change`: None when the members are known to be the peers."""

    def __init__(self, jetstream: NodeJetStream) -> None:
        self.jetstream = jetstream
        self.groups: dict[int, StreamGroup] = {}
        self.wanted: dict[int, Any] = {}
        self.cluster = ""
        """Identity of the cluster, kept with each stream."""
        self.member_boot: Callable[[], int] = lambda: self.driver.store.boot
        """The start in which this node was taken into the cluster, with the disk it has now."""
        self.on_leader: Callable[[Any], None] = lambda assignment: None
        """A stream has begun to live here."""
        self.on_lost: Callable[[str], None] = lambda stream: None
        """See `StreamGroup`, with the stream's name."""
        self.on_deposed: Callable[[Any], None] = lambda assignment: None
        """This node led a stream, and does no more."""
        self.on_leaving: Callable[[Any, int], set[Any]] = lambda assignment, term: set()
        """See `StreamGroup`."""
        self.on_ending: Callable[[Any, int], None] = lambda assignment, term: None
        """See `StreamGroup`."""
        self.on_publishes: Callable[[Any, Stream, int], None] = lambda wanted, stream, term: None
        """A stream takes publishes here; it is led here in that term."""
        self.on_quorum_lost: Callable[[Any], None] = lambda assignment: None
        """This node led a stream, and hears too few of its replicas."""
        self.on_change_done: Callable[[Any], None] = lambda assignment: None
        """The group of a stream that is led here has the members that are wanted."""
        self.near_in: Callable[[int], int] = lambda group: -1
        """See `StreamGroup`."""
        self.barrier: Callable[[Callable[[], None]], None] = lambda done: done()
        """See `StreamGroup`."""
        self.may_lead: Callable[[int], bool] = lambda number: True
        """See `StreamGroup`."""
        self.rests_on: Callable[[int, str], bool] = lambda number, account: False
        """Whether an account has no JetStream on a node, as that node says."""
        self.is_over: Callable[[int, str], bool] = lambda number, kind: False
        """Whether a node has more of a kind of storage than its limit, as it says."""
        held = HeldDeliveries(
            jetstream.kernel,
            lambda: [each for each in self.groups.values() if each.stream is not None],
        )
        self.proposals = Proposals(jetstream.kernel, lambda: self.driver.soon(), held.stood)
        self._asking: list[StreamGroup] = []
        """Replicas that are asked for something: in the next round they ask who leads."""
        self._machines: dict[int, StreamMachine] = {}

    # -- for the store of groups ----------------------------------------------

    def machine(self, group: int) -> StreamMachine:
        """What the entries of a stream's group mean here."""
        if group not in self._machines:
            self._machines[group] = StreamMachine(self.jetstream)
        return self._machines[group]

    def naming(self, group: int) -> Naming:
        """Account, name and description of the stream of a group."""
        wanted = self.wanted[group]
        meta = stream_lifecycle.pack(
            wanted.stream_config, wanted.created_ns, wanted.incarnation, group, self.cluster
        )
        label = f"stream '{wanted.account} > {wanted.name}'"
        return Naming(wanted.account, wanted.name, meta, label)

    def run(self, driver: Driver) -> None:
        """The store of groups is read, and driven."""
        self.driver = driver
        driver.before_round.append(self.proposals.offer)
        self.jetstream.kernel.add_turn_hook(self.proposals, TurnStage.PROPOSALS)

    def _ask_soon(self, group: StreamGroup) -> None:
        self._asking.append(group)
        if len(self._asking) == 1:
            self.jetstream.kernel.loop.call_soon(self._ask_leaders)

    def _ask_leaders(self) -> None:
        """Ask for all that was read from the sockets that were readable at once."""
        asking, self._asking = self._asking, []
        for group in asking:
            group.reads.ask(group.raft)
        self.driver.questions.send()
        self.jetstream.kernel.turn()

    # -- what the cluster wants -------------------------------------------------

    def start(self, assignment: Any) -> None:
        """Be a replica of a stream. With nothing of it here, and on the disk that it was assigned
        to, this node is one of its first members; else it goes on with what is here, or asks the
        others. Raises StoreError, OSError."""
        number = assignment.group
        self._refuse_other(assignment)
        if number in self.wanted:
            self.change(assignment)
            return
        self.wanted[number] = assignment
        store = self.driver.store
        group = self.groups[number] = StreamGroup(
            store,
            self.machine(number),
            assignment,
            self.proposals,
            self.driver.touch,
            self.driver.clock.monotonic_ns,
            self.driver.questions.add,
        )
        group.machine.reads.ask = lambda: self._ask_soon(group)
        group.near_in = lambda: self.near_in(number)
        group.on_leader = lambda stream: self.on_leader(group.wanted)
        group.on_quorum_lost = lambda: self.on_quorum_lost(group.wanted)
        group.on_change_done = lambda: self.on_change_done(group.wanted)
        group.barrier = lambda done: self.barrier(done)
        group.may_lead = lambda number: self.may_lead(number)
        group.rests_on = lambda number: self.rests_on(number, group.wanted.account)
        group.is_over = lambda number, kind: self.is_over(number, kind)
        group.on_lost = lambda: self.on_lost(group.wanted.name)
        group.on_deposed = lambda: self.on_deposed(group.wanted)
        group.on_leaving = lambda term: self.on_leaving(group.wanted, term)
        group.on_ending = lambda term: self.on_ending(group.wanted, term)
        group.on_publishes = lambda stream: self.on_publishes(group.wanted, stream, group.led_in)
        restored = store.start.groups.get(number)
        left = self._left(number)
        boots = dict(zip(assignment.peers, assignment.boots, strict=True))
        founders = founders_of(assignment)
        own = founders.get(self.driver.number)
        if restored is None and not left and own is not None and own == self.member_boot():
            try:
                self._found(group, bootstrap(Config(founders), self.driver.number))
            except (StoreError, OSError):
                self._forget(number)
                raise
            return
        nothing = Restored(
            Snapshot(0, 0, Config()),
            lost=True,
            seeds=tuple(assignment.peers),
            # It may have been a member before, and removed: that incarnation is fenced.
            incarnation_floor=max(left, boots.get(self.driver.number, 0)),
        )
        if restored is not None and not restored.snapshot.index:
            # It is not used, and knows none of its members.
            restored = replace(restored, seeds=nothing.seeds, incarnation_floor=left)
        self._run(group, restored or nothing)

    # -- what is here of streams that the cluster does not know -------------------

    def _incarnation_here(self, number: int) -> str:
        """Of which stream this node's replica of a group is; "" where it has none."""
        if number in self.wanted:
            return str(self.wanted[number].incarnation)
        replica = self.driver.store.replicas.get(number)
        if replica is None or replica.store is None:
            return ""
        meta = self.jetstream.store().meta_of(replica.store)
        return stream_lifecycle.incarnation_of(meta or b"")

    def _is_other(self, assignment: Any) -> bool:
        """Whether the replica that is here under a group's number is of another stream: the
        cluster was led without what this node knew, and has used the number again."""
        return self._incarnation_here(assignment.group) not in ("", assignment.incarnation)

    def _refuse_other(self, assignment: Any) -> None:
        """Keep the replica of another stream, and let it take no part: its entries would pass for
        those of this one. Raises JetStreamError."""
        if not self._is_other(assignment):
            return
        number = assignment.group
        group = self.groups.get(number)
        if group is not None:
            group.end()
            self.driver.drop(number)
            self._forget(number)
        raise errors.STREAM_GENERAL_ERROR.error(err=OTHER_STREAM)

    def strangers(self, meta_group: int, gone: Container[str]) -> list[str]:
        """Streams of which this node has a replica, and that the cluster neither knows nor has
        deleted. `meta_group` is the group of no stream, `gone` has what was deleted."""
        kept = self.driver.store.replicas.items()
        return [
            self.jetstream.store().label(replica.store)
            for number, replica in kept
            if number != meta_group and number not in self.wanted and replica.store is not None
            if self._incarnation_here(number) not in gone
        ]

    def _found(self, group: StreamGroup, first: Restored) -> None:
        """Make a group with nothing in it, or with what a stream has that lived here alone."""
        wanted = group.wanted
        js = self.jetstream.accounts.get(wanted.account)
        alone = js.streams.get(wanted.name) if js is not None else None
        if alone is not None and alone.incarnation == wanted.incarnation and not alone.group:
            if isinstance(alone.store, MemoryStore):
                self._copy(group, first, alone)
            else:
                self._adopt(group, first, alone)
            return
        if len(founders_of(wanted)) == 1 and wanted.stream_config.storage == "file":
            raise StoreError(f"what stream '{wanted.name}' had on its one node is not here")
        self._create(group, first)

    def _create(
        self,
        group: StreamGroup,
        first: Restored,
        existing: FileStore | None = None,
        unfinished: bool = False,
    ) -> None:
        """Make a group, as of `GroupStore.create`. Raises StoreError, OSError."""
        number, store = group.wanted.group, self.driver.store
        store.create(number, first, lambda: self._run(group, first, True), existing, unfinished)
        if existing is not None:
            group.serve_reads(existing)

    def _adoption(self, group: StreamGroup, alone: Stream) -> Adoption:
        number = group.wanted.group
        return Adoption(self.jetstream, group, alone, lambda: self.groups.get(number) is group)

    def _adopt(self, group: StreamGroup, first: Restored, alone: Stream) -> None:
        """Make a group of what a stream has in files of this node."""
        adoption = self._adoption(group, alone)
        store, number = alone.store, group.wanted.group
        assert isinstance(store, FileStore)

        def end() -> None:
            adoption.ends()
            create(group.machine.adopt(alone))

        def create(kept: dict[bytes, bytes]) -> None:
            if self.groups.get(number) is not group or store.closed:
                return
            try:
                group.machine.keep_adopted(store, kept, self.naming(number).meta)
                self._create(group, first, store)
            except (StoreError, OSError) as error:
                self._delayed(group, error)
                self.jetstream.kernel.loop.call_later(RETRY_SECONDS, create, kept)

        adoption.begin(end)

    def _delayed(self, group: StreamGroup, error: Exception) -> None:
        """Storage does not let a group begin here: say why, once."""
        if self.driver.store.delays.is_news(group.wanted.group, str(error)):
            log.error(
                "%s has no replica here yet, it is tried again: %s; look at this node's disk",
                group.name,
                error,
            )

    def _copy(self, group: StreamGroup, first: Restored, alone: Stream) -> None:
        """Make a group of what a stream has in the memory of this node."""
        number, store = group.wanted.group, self.driver.store
        adoption = self._adoption(group, alone)

        def done(made: FileStore, ids: bytes) -> None:
            if self.groups.get(number) is not group:
                return
            group.machine.expect_ids(ids)
            try:
                self._create(group, first, made, True)
            except (StoreError, OSError) as error:
                failed(error, lambda: done(made, ids))

        def failed(error: Exception, again: Callable[[], None] | None = None) -> None:
            self._delayed(group, error)
            adoption.give_up()
            self.jetstream.kernel.loop.call_later(RETRY_SECONDS, again or copy.step)

        copy = MemoryCopy(
            self.jetstream,
            alone,
            lambda: store.make_stream(number),
            adoption,
            done,
            failed,
        )
        copy.step()

    def _left(self, number: int) -> int:
        """Above which incarnation this node may come back to a group that took it out; 0 when
        none did."""
        states = self.jetstream.store().log.states(LEFT_OWNER)
        value = states.get(b"%d" % number, (None, []))[0]
        return int(value) if value else 0

    def _run(self, group: StreamGroup, restored: Restored, founded: bool = False) -> None:
        number = group.wanted.group
        if self.groups.get(number) is not group:
            return
        group.raft = self.driver.add(number, restored, group)
        group.expect(False)
        group.eager = founded and group.wanted.peers[0] == self.driver.number
        self.driver.questions.listeners[number] = group.index_answered
        self.driver.questions.tellers[number] = group.tells
        self.driver.touch(group.raft)

    def concerns(self, assignment: Any) -> bool:
        """Whether something of a stream is here that the group needs, though it is to go: a member
        stays until others have taken its place."""
        number = assignment.group
        if self._is_other(assignment):
            return False
        return number in self.driver.store.start.groups or (
            founders_of(assignment).get(self.driver.number) == self.member_boot()
            and not self._left(number)
        )

    def change(self, assignment: Any) -> None:
        """A stream has another configuration or other replicas."""
        number = assignment.group
        self._refuse_other(assignment)
        group = self.groups.get(number)
        if group is None:
            if self.driver.number in assignment.peers or self.concerns(assignment):
                self.start(assignment)
            return
        self.wanted[number] = assignment
        group.change(assignment)
        if group.raft is not None:
            self.driver.touch(group.raft)

    def delete(self, assignment: Any, for_good: bool = False) -> None:
        """Remove what is here of a stream: `for_good`, or because its group took this node out.
        Raises StoreError, OSError."""
        number = assignment.group
        if self._is_other(assignment):
            return
        group = self.groups.get(number)
        commit_log, key = self.jetstream.store().log, b"%d" % number
        if self.has_left(number) and group is not None and group.raft is not None:
            commit_log.put_state(LEFT_OWNER, key, b"%d" % (group.raft.incarnation + 1))
        elif self._left(number):
            commit_log.delete_state(LEFT_OWNER, key)
        if group is not None:
            if for_good:
                group.advise_end()
            group.end(DELETED if for_good else stream_lifecycle.REPLACED)
        self.driver.drop(number)
        self.driver.store.erase(number)
        self._forget(number)

    def remake(self, number: int) -> None:
        """Make this node's replica of a stream again, with what the others have: it comes back as a
        member that begins with nothing. Raises StoreError, OSError."""
        group = self.groups[number]
        if group.raft is not None:
            floor = b"%d" % (group.raft.incarnation + 1)
            # So that this node does not found the group anew.
            self.jetstream.store().log.put_state(LEFT_OWNER, b"%d" % number, floor)
        group.end()
        self.driver.drop(number)
        self.driver.store.erase(number)
        self._forget(number)
        self.start(group.wanted)

    def delete_gone(self, gone: Container[str]) -> None:
        """Remove what is here of streams whose incarnations were deleted while this node was away.
        Raises StoreError, OSError."""
        for assignment in list(self.wanted.values()):
            if assignment.incarnation in gone:
                log.info("stream '%s > %s' was deleted", assignment.account, assignment.name)
                self.delete(assignment, for_good=True)
        store = self.driver.store
        for number, replica in list(store.replicas.items()):
            if number in self.wanted or replica.store is None:
                continue
            meta = self.jetstream.store().meta_of(replica.store) or b""
            if stream_lifecycle.incarnation_of(meta) in gone:
                log.info(
                    "stream '%s' was deleted: what is left of it on this node goes",
                    self.jetstream.store().label(replica.store),
                )
                store.erase(number)

    def _forget(self, number: int) -> None:
        self.groups.pop(number, None)
        self.wanted.pop(number, None)
        self._machines.pop(number, None)

    def rest(self, account: str) -> None:
        """An account has no JetStream on this node any more."""
        for group in self._of_account(account):
            group.rest()

    def go_on(self, account: str) -> None:
        """An account has JetStream again on this node, or on another one."""
        for group in self._of_account(account):
            group.go_on()

    def _of_account(self, account: str) -> list[StreamGroup]:
        return [group for group in self.groups.values() if group.wanted.account == account]

    def look_at_limits(self) -> None:
        """Let other nodes lead what this one would refuse messages of."""
        for kind, usage in self.jetstream.usage.items():
            for group in self.groups.values() if usage.is_over() else ():
                group.give_up_over(kind)

    def stop(self) -> None:
        """The node stops: streams go quiet."""
        for group in self.groups.values():
            group.end()

    # -- what may be asked ------------------------------------------------------

    def status(self, number: int) -> GroupStatus | None:
        """How a group is; None when it is not here."""
        group = self.groups.get(number)
        return group.status() if group is not None else None

    def leader_of(self, number: int) -> int:
        """The node that leads a group, as far as is known here; 0 for none."""
        group = self.groups.get(number)
        raft = group.raft if group is not None else None
        return raft.leader if raft is not None else 0

    def members(self, number: int) -> list[int]:
        """The voters of a group, as far as is known here."""
        group = self.groups.get(number)
        raft = group.raft if group is not None else None
        return sorted(raft.log.config.voters) if raft is not None else []

    def waiting(self) -> list[str]:
        """What is committed and cannot be applied here, and why; a sentence for each stream."""
        return [
            f"{group.name} waits here for storage: {cause}"
            for number, group in self.groups.items()
            if (cause := group.machine.stuck or self.driver.store.delays.now.get(number))
        ]

    def has_left(self, number: int) -> bool:
        """Whether the group of a stream has taken this node out."""
        group = self.groups.get(number)
        return group is not None and group.has_left(self.driver.number)

    def sure(self, number: int) -> bool:
        """Whether this node leads a stream's group, and no other one can."""
        group = self.groups.get(number)
        return group is not None and group.sure

    def hands_over(self, number: int) -> bool:
        """Whether this node is handing a stream over to another one, and takes nothing more."""
        group = self.groups.get(number)
        return group is not None and group.hands_over

    def confirm(self, number: int, then: Callable[[bool], None]) -> None:
        """Ask the other replicas whether this node leads; `told` hears it later."""
        group = self.groups.get(number)
        if group is None:
            then(False)
        else:
            group.confirm(then)

    def stream(self, number: int) -> Stream | None:
        """The stream of a group, where it lives here."""
        group = self.groups.get(number)
        return group.stream if group is not None else None

    def followed(self, number: int) -> Stream | None:
        """The stream of a group as this node's replica has it, where another node leads it."""
        group = self.groups.get(number)
        return group.followed() if group is not None else None

    def transfer(self, number: int, to: int) -> None:
        """As `StreamGroup.hand_over`."""
        group = self.groups.get(number)
        if group is None:
            raise NotLeader(0)
        group.hand_over(to)
