"""Three machines that are one cluster, and the network between each two of them.

Each is a whole node as it is shipped, with routes and cluster service. Only disk, clocks, chance
and sockets are simulated.
"""

from collections.abc import Callable
from typing import Any

from headwater.edge.conf.options import ClusterOptions, CompressionOptions, Options
from headwater.hub.node.service import ClusterService
from headwater.hub.routes.dialer import Dialer
from headwater.hub.routes.routes import Routes
from headwater.hub.routes.service import RouteService
from headwater.hub.streams.absences import Absences
from tests.sim.jetstream.machines import ACCOUNT, Machine, SimNode
from tests.sim.jetstream.network import Network, SimSocket, Wire
from tests.sim.jetstream.world import World

PORT = 6222
NAMES = ("n1", "n2", "n3")


class Mesh(Network):
    """Every machine listens, and is dialled by its name."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.listeners: dict[str, Callable[[SimSocket], bool]] = {}
        self.refused: set[frozenset[str]] = set()
        """Pairs of machines between which nothing can be dialled."""

    def dial_to(self, near: str, far: str) -> SimSocket:
        """The dialler's end of a new connection. Raises OSError."""
        if frozenset((near, far)) in self.refused:
            raise ConnectionRefusedError("connection refused")
        wire = Wire(self, near, far)
        if not self.listeners[far](wire.ends[1]):
            wire.drop()
            raise ConnectionRefusedError("connection refused")
        self.wires.append(wire)
        return wire.ends[0]

    def between(self, one: str, other: str) -> list[Wire]:
        """The connections of two machines."""
        pair = {one, other}
        return [wire for wire in self.wires if {end.names[0][0] for end in wire.ends} == pair]

    def part(self, one: str, other: str, silently: bool) -> None:
        """Nothing passes between two machines until `join`; silently: neither is told."""
        self.refused.add(frozenset((one, other)))
        for wire in self.between(one, other):
            if silently:
                wire.held = True
            else:
                wire.close()

    def join(self, one: str, other: str) -> None:
        """What was held back arrives, and connections can be made."""
        self.refused.discard(frozenset((one, other)))
        for wire in self.between(one, other):
            wire.held = False

    def mute(self, name: str, to: str = "") -> None:
        """Nothing that a machine says arrives until `unmute`, at `to` or, without it, anywhere, and
        nobody is told."""
        self._hold_words(name, to, True)
        if not to:
            for other in self.listeners:
                self.refused.add(frozenset((name, other)))

    def unmute(self, name: str) -> None:
        """What was held back arrives, and connections can be made."""
        for other in self.listeners:
            self.refused.discard(frozenset((name, other)))
        self._hold_words(name, "", False)

    def _hold_words(self, name: str, to: str, held: bool) -> None:
        for wire in self.wires:
            for end, way in zip(wire.ends, wire.ways, strict=True):
                if end.names[0][0] == name and to in ("", end.names[1][0]):
                    way.held = held

    def end_of(self, name: str) -> None:
        """End every connection of a machine; what it held of them is gone."""
        for wire in self.wires:
            if name in {end.names[0][0] for end in wire.ends}:
                wire.close()


class SimDialer(Dialer):
    """Dials through the simulated network."""

    async def _connect(self) -> Any:
        routes = self.routes
        assert isinstance(routes, SimRoutes)
        return routes.mesh.dial_to(routes.server_name, self.host)


class SimRoutes(Routes):
    """Routes over the simulated network."""

    mesh: Mesh

    def dial(self, url: str, *, implicit: bool, gossip: int = 0) -> Dialer:
        dialer = SimDialer(self, url, implicit=implicit, gossip=gossip)
        self.dialers.append(dialer)
        dialer.start()
        return dialer


class SimRouteService(RouteService):
    """The service of routes without a listener of its own."""

    def __init__(self, options: Options, mesh: Mesh) -> None:
        super().__init__(options)
        self.mesh = mesh

    def start(self, node: Any) -> None:
        self.routes = routes = SimRoutes(node)
        routes.mesh = self.mesh
        node.loop.call_soon(routes.begin, PORT)

    def accept(self, sock: SimSocket) -> None:
        """Serve a route that was dialled."""
        self._on_socket(sock, sock.getpeername())  # type: ignore[arg-type]


class Member(Machine):
    """A machine of the cluster."""

    network: Mesh
    segment_bytes = 1 << 18
    """Of its log; the states of the groups are to be less than one segment."""

    def __init__(self, world: World, name: str, mesh: Mesh) -> None:
        super().__init__(world, name, mesh, dials=True)
        self.cluster: ClusterService | None = None
        mesh.listeners[name] = self.take

    def options(self) -> Options:
        """Its configuration."""
        options = super().options()
        options.jetstream.domain = ""
        options.cluster = ClusterOptions(
            name="C",
            host=self.name,
            port=PORT,
            routes=[f"nats-route://{name}:{PORT}" for name in NAMES if name != self.name],
            compression=CompressionOptions(mode="off"),
        )
        return options

    def plug(self, node: SimNode) -> None:
        """Routes, and what makes it a member."""
        self.routes = SimRouteService(node.options, self.network)
        self.cluster = ClusterService(self.routes)
        node.services += [self.routes, self.cluster]

    def unplug(self) -> None:
        self.network.end_of(self.name)

    def unheard(self, reply: str) -> None:
        """A client hears at once that nobody listens, from its own node."""
        assert self.node is not None
        self.node.accounts[ACCOUNT].send(reply.encode(), b"", b"", b"NATS/1.0 503\r\n\r\n")

    def take(self, sock: SimSocket) -> bool:
        """Somebody dials."""
        if self.gone:
            return False
        self.loop.call_soon(self.routes.accept, sock)
        return True

    @property
    def absences(self) -> Absences | None:
        """What waits here for leaders of streams."""
        return self.cluster.absences if self.node is not None and self.cluster else None

    def leads(self, name: str) -> bool:
        """Whether a stream is led here."""
        stream = self.stream(name)
        cluster = self.cluster
        if stream is None or cluster is None or cluster.driver is None or not stream.group:
            return False
        raft = cluster.driver.multi_raft.groups.get(stream.group)
        return raft is not None and raft.is_leader
