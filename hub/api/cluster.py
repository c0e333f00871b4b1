"""What the API of a node knows of its cluster: who leads, who is there, and where streams are."""

import asyncio
import logging
from collections.abc import Callable, Container
from typing import Any, Protocol

import msgspec

from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import (
    ClusterInfo,
    DesiredClusterInfo,
    DesiredOrigin,
    DesiredPeer,
    PeerInfo,
    StreamAlternate,
    StreamConfig,
)
from headwater.edge.jetstream.model.times import format_time
from headwater.edge.jetstream.node.node import NodeJetStream
from headwater.edge.jetstream.progress.consumer_setup import is_replicated
from headwater.edge.jetstream.stream.stream import Stream
from headwater.hub.cluster.peers import number_of, peer_of
from headwater.hub.cluster.transport import Transport
from headwater.hub.meta.applier import Applier
from headwater.hub.meta.assignment import NO_GROUP, Assignment, Operation
from headwater.hub.meta.founding import Founding
from headwater.hub.meta.meta_group import MetaGroup, NoLeader
from headwater.hub.meta.placement import Node
from headwater.hub.meta.state import MetaState

log = logging.getLogger("headwater.meta")

ELECTION_SECONDS = 2.0
"""That a request waits for a leader before it is answered that there is none."""
SINCE_MIN = 256
"""Streams that have gone, of which it may be known since when they were led here."""

POLL_SECONDS = 0.05
CONTRADICTED = (
    "what this node knows of streams is not what most others know: stop it, remove its `jetstream` "
    "folder and start it again, then it gets everything from them"
)


class PeerStatus(Protocol):
    """A replica of a stream as its leader sees it; see `hub.streams`."""

    number: int
    current: bool
    lag: int
    transfer: Any


class GroupStatus(Protocol):
    """A replicated stream's group, as one of its replicas sees it; see `hub.streams`."""

    leader: int
    peers: tuple[PeerStatus, ...]


class StreamGroups(Protocol):
    """Replicated streams, as the API needs them."""

    def leader_of(self, number: int) -> int:
        """The node that leads a group, as far as is known here; 0 for none."""

    def status(self, number: int) -> Any:
        """A GroupStatus; None when the group is not here."""

    def members(self, number: int) -> list[int]:
        """The voters of a group, as far as is known here."""

    def waiting(self) -> list[str]:
        """What is committed and cannot be applied here, and why; a sentence for each stream."""

    def strangers(self, meta_group: int, gone: Container[str]) -> list[str]:
        """Streams of which this node has a replica, and that the cluster neither knows nor has
        deleted. `meta_group` is the group of no stream, `gone` has what was deleted."""

    def sure(self, number: int) -> bool:
        """Whether this node leads a stream's group, and no other one can."""

    def hands_over(self, number: int) -> bool:
        """Whether this node is handing a stream over to another one, and takes nothing more."""

    def confirm(self, number: int, then: Callable[[bool], None]) -> None:
        """Ask the other replicas whether this node leads; `told` hears it later."""

    def followed(self, number: int) -> Stream | None:
        """The stream of a group as this node's replica has it, where another node leads it."""

    def transfer(self, number: int, to: int) -> None:
        """Have another replica lead. Raises RaftError."""


class Cluster:
    """Everything that handlers of the API need."""

    def __init__(
        self,
        jetstream: NodeJetStream,
        group: MetaGroup,
        founding: Founding,
        transport: Transport,
        applier: Applier,
    ) -> None:
        self.jetstream = jetstream
        self.group = group
        self.founding = founding
        self.transport = transport
        self.applier = applier
        self.contradicted = False
        """Most nodes have other metadata than this one."""
        self.groups: StreamGroups | None = None
        self.system_account = "$SYS"
        """Name of the account that nodes talk in."""
        self.since: dict[str, int] = {}
        """When a stream began to live here, by its incarnation."""

    @property
    def state(self) -> MetaState:
        """What is committed, as far as this node has heard."""
        return self.group.state

    @property
    def number(self) -> int:
        """This node's."""
        return self.transport.number

    def led_here(self, assignment: Assignment) -> None:
        """A replicated stream is led here from now on."""
        if len(self.since) > 2 * len(self.state.streams) + SINCE_MIN:
            lives = {known.assignment.incarnation for known in self.state.streams.values()}
            self.since = {key: began for key, began in self.since.items() if key in lives}
        self.since[assignment.incarnation] = self.jetstream.kernel.clock()

    # -- leaders ------------------------------------------------------------------

    def leader_of(self, assignment: Assignment) -> int:
        """Number of the node that leads a stream, as far as is known here; 0 for none."""
        if assignment.group == NO_GROUP:
            return assignment.peers[0]
        return self.groups.leader_of(assignment.group) if self.groups is not None else 0

    def is_led_elsewhere(self, leader: int) -> bool:
        """Whether another node leads that is there, as far as is known here."""
        return leader not in (0, self.number) and self.founding.is_online(leader)

    def here(self, account: str, name: str) -> Stream | None:
        """The stream when it is led here."""
        js = self.jetstream.accounts.get(account)
        return js.streams.get(name) if js is not None else None

    def term_of(self, stream: Stream) -> int:
        """The present term of a stream's group; 0 when its node's log alone decides."""
        raft = self.group.driver.multi_raft.groups.get(stream.group)
        return raft.term if raft is not None else 0

    def is_sure(self, stream: Stream) -> bool:
        """Whether no other node can lead a stream that lives here."""
        return not stream.group or self.groups is None or self.groups.sure(stream.group)

    async def handed_over(self, stream: Stream, seconds: float) -> bool:
        """Whether a stream that this node hands over is led by it no more soon, or goes on here."""
        return await self.wait(lambda: not self.hands_over(stream), seconds)

    def hands_over(self, stream: Stream) -> bool:
        """Whether a stream that lives here is being handed over: what it wrote now would be the
        group's no more."""
        groups = self.groups
        return groups is not None and not stream.deleted and groups.hands_over(stream.group)

    async def confirmed(self, ask: Callable[[Callable[[bool], None]], None]) -> bool:
        """Whether this node leads, by the word of those whom `ask` asks. Raises JetStreamError
        when they say nothing."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        ask(lambda leads: None if future.done() else future.set_result(leads))
        try:
            async with asyncio.timeout(ELECTION_SECONDS):
                return await future
        except TimeoutError:
            raise errors.CLUSTER_NOT_AVAIL.error() from None

    async def confirmed_for(self, stream: Stream) -> bool:
        """Whether this node leads a stream, by the word of its replicas. Raises JetStreamError."""
        groups = self.groups
        return groups is None or await self.confirmed(
            lambda then: groups.confirm(stream.group, then)
        )

    async def wait(self, condition: Callable[[], bool], seconds: float = ELECTION_SECONDS) -> bool:
        """Whether something becomes true soon."""
        for _ in range(int(seconds / POLL_SECONDS)):
            if condition():
                return True
            await asyncio.sleep(POLL_SECONDS)
        return condition()

    # -- nodes --------------------------------------------------------------------

    def names(self, number: int) -> str:
        """The name of a node's server."""
        return self.group.name_of(number)

    def find_peer(self, text: str) -> int:
        """The member that a request names by server name or peer id; 0 for none."""
        for number in {*self.group.members, *self.state.members}:
            if text in (peer_of(number), self.group.name_of(number)):
                return number
        return 0

    def candidates(self, account: str = "") -> list[Node]:
        """The members as placement of an account's stream sees them."""
        load = self.load()
        known = self.state.members
        return [self._candidate(n, load, account) for n in self.group.members if n in known]

    def is_ready(self, number: int) -> bool:
        """Whether a node is there, stays, and has what the cluster believes that it has."""
        hello = self.founding.hello_of(number)
        if hello is None or not self.founding.is_online(number):
            return False
        # A node says that it begins with nothing until it has read here that this is known.
        unknown = hello.emptied and self.state.boot_of(number) != hello.boot
        return not (hello.leaving or unknown)

    def _candidate(self, number: int, load: dict[int, list[int]], account: str) -> Node:
        hello = self.founding.hello_of(number)
        member = self.state.members.get(number)
        streams, replicas, leads = load.get(number, [0, 0, 0])
        return Node(
            number=number,
            name=self.names(number),
            cluster=hello.cluster if hello else member.cluster if member else "",
            tags=tuple(hello.tags if hello else member.tags if member else ()),
            online=self.is_ready(number),
            free={"memory": hello.memory_free, "file": hello.store_free} if hello else {},
            streams=streams,
            replicas=replicas,
            leads=leads,
            rests=self.founding.rests_on(number, account),
        )

    def load(self) -> dict[int, list[int]]:
        """By node: streams, replicas of replicated ones, and preferred leaderships."""
        found: dict[int, list[int]] = {}
        for known in self.state.streams.values():
            peers = known.assignment.peers
            for number in peers:
                row = found.setdefault(number, [0, 0, 0])
                row[0] += 1
                row[1] += len(peers) > 1
                row[2] += number == peers[0]
        return found

    # -- committing ---------------------------------------------------------------

    async def submit(self, operation: Operation) -> Any:
        """Commit an operation. Raises JetStreamError when there is no majority."""
        try:
            return await self.group.submit(operation)
        except NoLeader as error:
            log.warning(
                "the cluster's metadata cannot be changed: %s; the request is refused: ask again "
                "when a "
                "majority of nodes runs",
                error,
            )
            raise errors.CLUSTER_NOT_AVAIL.error() from error

    # -- what answers say of places -----------------------------------------------

    def cluster_info(self, stream: Stream) -> ClusterInfo:
        """`cluster` of a stream that lives here."""
        known = self.state.stream(stream.account.name, stream.name)
        if known is None or known.assignment.incarnation != stream.incarnation:
            return ClusterInfo(name=self.cluster_name, leader=self.jetstream.server_name)
        return self.cluster_info_of(known.assignment, stream)

    def replica_info(self, assignment: Assignment) -> ClusterInfo:
        """`cluster` of a stream that another node leads, as this one shows its replica: the leader
        and the others. How far those are only the leader knows."""
        info = self.cluster_info_of(assignment)
        leader, own = self.leader_of(assignment), self.names(self.number)
        info.replicas = [row for row in info.replicas if row.name != own]
        if leader:
            info.replicas.append(self._peer(leader, True, 0))
        info.replicas.sort(key=lambda row: row.name)
        return info

    def consumer_cluster_info(self, consumer: Any) -> ClusterInfo:
        """`cluster` of a consumer that lives here: where its stream is, or this node alone."""
        if not is_replicated(consumer):
            return ClusterInfo(name=self.cluster_name, leader=self.jetstream.server_name)
        return self.cluster_info(consumer.stream)

    def alternates(self, account: str, name: str) -> list[StreamAlternate]:
        """A stream and then its mirrors by name; none when it has no mirror."""
        known = sorted(self.state.of_account(account).items())
        mirrors = [
            each for each, one in known if (of := one.config.mirror) is not None and of.name == name
        ]
        names = [name, *mirrors] if mirrors else []
        return [
            StreamAlternate(name=each, domain=self.jetstream.domain, cluster=self.cluster_name)
            for each in names
        ]

    @property
    def cluster_name(self) -> str:
        """The cluster's."""
        return self.jetstream.options.cluster.name

    def cluster_info_of(self, assignment: Assignment, stream: Stream | None = None) -> ClusterInfo:
        """`cluster` of any stream, as far as is known here."""
        leader = self.leader_of(assignment)
        if assignment.group == NO_GROUP or (
            leader and assignment.change is None and assignment.peers == [leader]
        ):
            return ClusterInfo(name=self.cluster_name, leader=self.names(leader))
        status = self.groups.status(assignment.group) if self.groups is not None else None
        since = self.led_since(stream)
        info = ClusterInfo(
            name=self.cluster_name,
            raft_group=group_name(assignment.stream_config, assignment),
            leader=self.names(leader) if leader else "",
            leader_since=format_time(since) if since else None,
            system_account=True,
            traffic_account=self.system_account,
            desired=self._desired(assignment),
        )
        peers = status.peers if status is not None else ()
        rows = {peer.number: (peer.current, peer.lag) for peer in peers}
        others = self._members(assignment) - {leader}
        info.replicas = [self._peer(number, *rows.get(number, (False, 0))) for number in others]
        info.replicas.sort(key=lambda row: row.name)
        return info

    def meta_members(self) -> list[PeerInfo]:
        """Every member of the meta group, its leader too, by name."""
        leader = self.group.leader
        rows = self.meta_info().replicas
        rows = [*rows, self._peer(leader, True, 0)] if leader else rows
        return sorted(rows, key=lambda row: row.name)

    def replicas_of(self, assignment: Assignment) -> list[PeerInfo]:
        """Every member of a stream's group, its leader too, by name."""
        info = self.cluster_info_of(assignment)
        leader = self.leader_of(assignment)
        rows = [*info.replicas, self._peer(leader, True, 0)] if leader else [*info.replicas]
        return sorted(rows, key=lambda row: row.name)

    def _members(self, assignment: Assignment) -> set[int]:
        """The nodes that have a stream: those that it is on its way to are told in `desired`."""
        if assignment.change is None or self.groups is None:
            return set(assignment.peers)
        members: list[int] = self.groups.members(assignment.group)
        return set(members) or set(assignment.peers)

    def _desired(self, assignment: Assignment) -> DesiredClusterInfo | None:
        change = assignment.change
        if change is None:
            return None
        origin = change.origin
        return DesiredClusterInfo(
            created=format_time(change.began_ns),
            name=self.cluster_name,
            replicas=[DesiredPeer(name=self.names(n), peer=peer_of(n)) for n in assignment.peers],
            origin=DesiredOrigin(replicas=origin.num_replicas, placement=origin.placement)
            if origin is not None
            else None,
        )

    def led_since(self, stream: Stream | None) -> int:
        """When a stream began to be led here, ns since the epoch; 0 when it is not."""
        if stream is None:
            return 0
        began = max(stream.created_ns, self.applier.began_ns)
        return self.since.setdefault(stream.incarnation, began)

    def _peer(self, number: int, current: bool, lag: int) -> PeerInfo:
        online = self.founding.is_online(number)
        return PeerInfo(
            name=self.names(number),
            current=current and online,
            offline=not online,
            active=self.founding.silence_ns(number),
            lag=lag,
            peer=peer_of(number),
        )

    def meta_info(self) -> ClusterInfo:
        """The meta group itself."""
        group = self.group
        raft = group.raft
        info = ClusterInfo(
            name=self.cluster_name,
            leader=self.names(group.leader) if group.leader else "",
        )
        if raft is None:
            return info
        for number in group.members:
            if number == group.leader:
                continue
            progress = raft.progress.get(number) if raft.is_leader else None
            lag = max(raft.log.last - progress.match, 0) if progress is not None else 0
            info.replicas.append(self._peer(number, lag == 0, lag))
        return info


def group_name(config: StreamConfig, assignment: Assignment) -> str:
    """`raft_group` of a stream, in the form of the anchor's."""
    kind = "F" if config.storage == "file" else "M"
    return f"S-R{max(len(assignment.peers), 1)}{kind}-{assignment.incarnation[:8]}"


def refusal(error: JetStreamError) -> bytes:
    """An error on its way to another node."""
    return b"-" + msgspec.json.encode(error.wire())


def accepted(answer: bytes) -> bytes:
    """What a node answered. Raises the JetStreamError that it refused with."""
    if answer[:1] != b"-":
        return answer[1:]
    wire = msgspec.json.decode(answer[1:])
    raise JetStreamError(wire["code"], wire["err_code"], wire["description"])


def node_number(text: str) -> int:
    """A peer id as a number; 0 when it is none."""
    try:
        return number_of(text)
    except ValueError:
        return 0
