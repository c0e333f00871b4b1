"""The meta group on one node: its Raft group, proposals that wait, and who is taken in."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from headwater.edge.jetstream.replication.operations import KNOWN_VERSION
from headwater.hub.cluster.driver import Driver
from headwater.hub.cluster.leadership import Leadership
from headwater.hub.cluster.peers import peer_of
from headwater.hub.cluster.stalled_device import StalledDevice
from headwater.hub.meta.assignment import (
    META_GROUP,
    EntriesRaised,
    Founded,
    Left,
    Member,
    Operation,
    encode,
)
from headwater.hub.meta.state import MetaState
from headwater.hub.raft import membership, transfer
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.errors import NotLeader, RaftError
from headwater.hub.raft.model.ready import Ready, Restored, bootstrap
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.raft.progress import State
from headwater.hub.raft.raft import Raft

log = logging.getLogger("headwater.meta")

COMPACT_ENTRIES = 500
"""Applied entries after which the log lets go of them; the state is in the stream."""
GATHER_SECONDS = 5.0
"""That a cluster which was founded waits for its first members before it places streams."""
FULL_TICKS = 20
"""For which a leader's storage may take nothing before another one is asked to lead."""
SUBMIT_SECONDS = 4.0
"""That a proposal may take; less than clients wait for an answer."""


class NoLeader(Exception):
    """The meta leader is not here, or not able to commit."""


class MetaGroup:
    """Handler of the group for the driver. `raft` is None until this node is in a cluster."""

    def __init__(self, driver: Driver, state: MetaState) -> None:
        self.driver = driver
        self.state = state
        self.raft: Raft | None = None
        self.leadership = Leadership(driver.clock.monotonic_ns)
        self.watchers: list[Callable[[], None]] = []
        """Called when another node leads, or none."""
        self.heard_name: Callable[[int], str] = lambda number: ""
        """The name of a node by its own word; empty when it was not heard."""
        self.may_lead: Callable[[int], bool] = lambda number: True
        """Whether a node would take the leadership, by what it says of itself."""
        self._device = StalledDevice()
        self._refuses_since = 0
        self.leaderless_since = driver.clock.monotonic_ns()
        self._waiting: dict[int, tuple[int, asyncio.Future[Any]]] = {}
        self._founding = 0
        self._expected: set[int] = set()
        self._founded_ns = 0
        self.applicants: dict[int, Member] = {}
        """Nodes that are there and belong to this cluster, by their own word."""
        self.boots: dict[int, int] = {}
        """Numbers of their present starts."""
        self._proposed: dict[int, Member] = {}
        """What was proposed of members by this leader."""
        self._refused: set[int] = set()
        """Nodes that are too old, and were said to be."""
        self._raising = 0
        """What was proposed by this leader."""
        self._was_leader = 0
        state.load_store = self._store

    def _store(self) -> Any:
        replica = self.driver.store.replicas.get(META_GROUP)
        return replica.store if replica is not None else None

    # -- begin --------------------------------------------------------------------

    def resume(self) -> bool:
        """Go on with what the store has of the group; False when there is nothing."""
        restored = self.driver.store.start.groups.get(META_GROUP)
        if restored is None:
            return False
        if restored.hard_state is not None and restored.hard_state.removed:
            log.warning("this node was removed from its cluster; it asks to be taken in again")
            self.driver.store.erase(META_GROUP)
            return False
        if not restored.snapshot.index:
            # It knows neither its cluster nor whom to ask. What is left stays until it has more.
            log.error(
                "%s: what this node knew is lost or damaged, the others are asked for it; look at "
                "its disk",
                self.name,
            )
            return False
        seeds = tuple(restored.snapshot.config.members())
        self.raft = self.driver.add(META_GROUP, replace(restored, seeds=seeds), self)
        self.state.load()
        # So that the first word of this node says where it belongs.
        self.driver.transport.identity = self.state.rest.identity
        return True

    def found(self, identity: int, others: list[int]) -> None:
        """Make a group of this node alone; the others join it."""
        driver = self.driver
        self._expected = set(others)
        self._founded_ns = driver.clock.monotonic_ns()
        log.info("JetStream cluster is founded by this node")
        self._founding = identity
        driver.transport.identity = identity
        restored = bootstrap(Config({driver.number: driver.multi_raft.boot}), driver.number)

        def begin() -> None:
            self.raft = driver.add(META_GROUP, restored, self)

        driver.store.create(META_GROUP, restored, begin)

    def join(self, identity: int, seeds: list[int]) -> None:
        """Ask the nodes of a group to be taken in."""
        log.info("Joining the JetStream cluster of %d other nodes", len(seeds))
        self.driver.transport.identity = identity
        restored = Restored(Snapshot(0, 0, Config()), seeds=tuple(seeds))
        self.raft = self.driver.add(META_GROUP, restored, self)

    # -- what may be asked --------------------------------------------------------

    @property
    def leader(self) -> int:
        """Number of the leading node; 0 when none is known."""
        return self.raft.leader if self.raft is not None else 0

    @property
    def term(self) -> int:
        """The present term; 0 while this node is in no cluster."""
        return self.raft.term if self.raft is not None else 0

    @property
    def leads(self) -> bool:
        """Whether this node leads, and has applied all that was committed before its term."""
        raft = self.raft
        if raft is None or not raft.is_leader:
            return False
        return self.driver.store.replicas[META_GROUP].mark.term == raft.term

    @property
    def serves(self) -> bool:
        """Whether this node leads, and decides where streams go: not before those that it was
        founded with are members, and not while it hands over, when nothing can be proposed."""
        if not self.leads or (self.raft is not None and self.raft.transfer.target):
            return False
        if self._expected <= self.state.members.keys():
            self._expected = set()
        passed = self.driver.clock.monotonic_ns() - self._founded_ns
        return not self._expected or passed > GATHER_SECONDS * 1e9

    @property
    def sure(self) -> bool:
        """Whether this node leads, and no other one can."""
        return self.leadership.sure(self.raft)

    def confirm(self, then: Callable[[bool], None]) -> None:
        """Ask the other members whether this node leads; `told` hears it later."""
        self.leadership.confirm(self.raft, then, self.driver.touch)

    @property
    def members(self) -> list[int]:
        """Numbers of the nodes in the group, this one included."""
        return self.raft.log.config.members() if self.raft is not None else []

    # -- proposals ----------------------------------------------------------------

    async def submit(self, operation: Operation) -> Any:
        """Have an operation committed; returns what the state says of it. Raises NoLeader."""
        raft = self.raft
        if raft is None or not self.leads:
            raise NoLeader("this node does not lead the cluster")
        try:
            term, index = raft.propose([encode(operation)])
        except RaftError as error:
            raise NoLeader(str(error)) from error
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[index] = (term, future)
        self.driver.touch(raft)
        try:
            async with asyncio.timeout(SUBMIT_SECONDS):
                return await future
        except TimeoutError:
            raise NoLeader("no majority of the cluster answers") from None
        finally:
            self._waiting.pop(index, None)

    def step_down(self, target: int) -> int:
        """Hand leadership to a node, 0 for any; returns it. Raises RaftError."""
        raft = self.raft
        if raft is None or not raft.is_leader:
            raise NotLeader(self.leader)
        if not target:
            best = [n for n in raft.progress if n in raft.log.config.voters]
            best.sort(key=lambda node: -raft.progress[node].match)
            target = best[0] if best else 0
        transfer.begin(raft, target)
        self.driver.touch(raft)
        return target

    def _give_up_if_stalled(self, raft: Raft) -> None:
        """A leader answers when its own device has what was decided."""
        if raft.is_leader and self._device.look(raft, leaves=bool(raft.transfer.target)):
            log.warning(
                "%s: this node's device has written nothing for seconds, another node is to "
                "lead: look at the device",
                self.name,
            )
            try:
                self.step_down(0)
            except RaftError as error:
                log.debug("%s: %s", self.name, error)

    def _give_up_if_full(self, raft: Raft) -> None:
        """A leader whose storage takes nothing decides nothing, and others have room for it."""
        store = self.driver.store
        refuses = store.log.failure is not None or bool(store.replicas[META_GROUP].waiting)
        if not raft.is_leader or not refuses:
            self._refuses_since = raft.ticks
        elif raft.ticks - self._refuses_since >= FULL_TICKS and not raft.transfer.target:
            self._refuses_since = raft.ticks
            voters = raft.log.config.voters
            there = [
                (one.match, number)
                for number, one in raft.progress.items()
                if number in voters and one.state is State.REPLICATE and self.may_lead(number)
            ]
            if there:
                log.warning(
                    "%s: storage is full, another node is to lead: make room on this node",
                    self.name,
                )
                with contextlib.suppress(RaftError):
                    self.step_down(max(there)[1])

    # -- members ------------------------------------------------------------------

    def admit(self) -> None:
        """Take in the next node that asks for it, as far as that is possible now."""
        raft = self.raft
        if raft is None or not self.leads:
            return
        for member in list(self.applicants.values()):
            config = raft.log.config
            if config.incarnation(member.number) is None:
                if self._is_too_old(member):
                    continue
                if not membership.ready_for_change(raft):
                    return
                boot = self.boots.get(member.number, 0)
                if config.fenced(member.number, boot):
                    continue
                log.info("%s joins the JetStream cluster", member.name)
                membership.add_voter(raft, member.number, boot)
                self.driver.touch(raft)
            if member.number in raft.log.config.voters:
                self._record_member(member)

    def _is_too_old(self, member: Member) -> bool:
        """Whether a node does not know what leaders may write by now."""
        needed = self.state.rest.entries
        if member.entries < needed and member.number not in self._refused:
            self._refused.add(member.number)
            log.error(
                "%s is not taken into the JetStream cluster: it knows entries of version %d, and "
                "the cluster may write version %d: start it with the version of the other nodes",
                member.name,
                member.entries,
                needed,
            )
        return member.entries < needed

    def _record_member(self, member: Member) -> None:
        """Propose what is new of a member; a start is news only when it began with nothing."""
        known = self.state.members.get(member.number)
        if known is not None and not member.boot:
            member = msgspec.structs.replace(member, boot=known.boot)
        if known != member and self._proposed.get(member.number) != member:
            self._proposed[member.number] = member
            self._later(member)

    def _raise_entries(self, raft: Raft) -> None:
        """Let leaders write newer entries when all members know them, and none is to come that was
        there when the cluster was founded."""
        known = [self.state.members.get(number) for number in raft.log.config.members()]
        if not self.serves or None in known:
            return
        version = min(member.entries for member in known if member is not None)
        if version > max(self.state.rest.entries, self._raising):
            self._raising = version
            log.info("every node knows entries of version %d: they may be written", version)
            self._later(EntriesRaised(version=version))

    def _warn_if_too_old(self) -> None:
        """An older program was started on this node."""
        needed = self.state.rest.entries
        if needed > KNOWN_VERSION and self.driver.number not in self._refused:
            self._refused.add(self.driver.number)
            log.critical(
                "the cluster may write entries of version %d, this program knows version %d: "
                "replicas here wait at the first one: start the version of the other nodes",
                needed,
                KNOWN_VERSION,
            )

    async def remove(self, number: int) -> None:
        """Take a node out for good. Raises RaftError, NoLeader."""
        raft = self.raft
        if raft is None or not self.leads:
            raise NoLeader("this node does not lead the cluster")
        membership.remove(raft, number)
        self.driver.touch(raft)
        await self.submit(Left(number=number))

    def _later(self, operation: Operation) -> None:
        """Propose something that nobody waits for; it is tried again when it fails."""
        raft = self.raft
        if raft is not None and self.leads:
            try:
                raft.propose([encode(operation)])
            except RaftError:
                return
            self.driver.touch(raft)

    # -- handler ------------------------------------------------------------------

    @property
    def name(self) -> str:
        """As of `Handler`."""
        return "the cluster's metadata"

    @property
    def tag(self) -> int:
        """As of `Handler`: frames say already of which cluster they are."""
        return 0

    def broken(self) -> None:
        """As of `Handler`."""
        self.leadership.give_up()
        self.raft = None
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(NoLeader(f"{self.name} stopped on this node"))
        for watcher in self.watchers:
            watcher()

    def ready(self, raft: Raft, ready: Ready) -> None:
        """As of `Handler`."""
        self._apply(raft, ready.committed)
        self.leadership.heard(ready.reads)

    def _apply(self, raft: Raft, entries: list[Any]) -> None:
        replica = self.driver.store.replicas[META_GROUP]
        for entry, result in replica.apply(entries):
            term, future = self._waiting.get(entry.index, (0, None))
            if future is None or future.done():
                continue
            if term == entry.term:
                future.set_result(result)
            else:
                future.set_exception(NoLeader("another node leads now"))
        if replica.doubtful:
            log.critical("the cluster's metadata cannot be read here; start the node again")

    def changed(self, raft: Raft) -> None:
        """As of `Handler`."""
        if raft.removed:
            log.critical(
                "this node was removed from its cluster: stop it, or start it again to let it join"
            )
        self.leadership.look_at(raft, self.driver.store.replicas[META_GROUP].applied)
        if not raft.is_leader:
            for _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(NoLeader("this node leads no more"))
        if raft.leader != self._was_leader:
            self._proposed.clear()
            self._raising = 0
            self._was_leader = raft.leader
            self.leaderless_since = 0 if raft.leader else self.driver.clock.monotonic_ns()
            if raft.leader:
                name = self.name_of(raft.leader)
                log.info("JetStream cluster new metadata leader: %s", name)
            for watcher in self.watchers:
                watcher()

    def tidy(self, raft: Raft) -> None:
        """As of `Handler`."""
        store = self.driver.store
        replica = store.replicas[META_GROUP]
        if replica.waiting:
            self._apply(raft, [])
        self.leadership.look_at(raft, replica.applied)
        self.state.load()
        if self._founding and self.leads:
            identity, self._founding = self._founding, 0
            self._later(Founded(identity=identity))
        self.admit()
        self._give_up_if_stalled(raft)
        self._give_up_if_full(raft)
        self._raise_entries(raft)
        self._warn_if_too_old()
        if self.state.rest.identity:
            self.driver.transport.identity = self.state.rest.identity
        if replica.applied - raft.log.base_index >= COMPACT_ENTRIES:
            store.compact(raft)
            self.driver.multi_raft.touch(raft)
        full = raft.is_leader and store.log.failure is not None
        raft.sleep.restless = bool(replica.waiting or self.leadership.waiting or full)

    # -- names --------------------------------------------------------------------

    def name_of(self, number: int) -> str:
        """The name of a node's server; its id when the group has not heard of it yet."""
        member = self.state.members.get(number)
        known = member.name if member is not None else peer_of(number)
        return self.heard_name(number) or known
