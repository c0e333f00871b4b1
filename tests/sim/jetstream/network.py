"""The network between two simulated machines: bytes in order, late, in pieces, or not at all.

A wire joins two sockets that the product reads and writes itself. Between them it holds a bounded
number of bytes, so that a receiver that is stuck is felt by the sender.
"""

import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.sim.jetstream.world import World

IN_FLIGHT_MAX = 64 << 10
ROUNDING_NS = 1000
PIECE_MAX = 1400
"""Bytes that come at a time."""


class SimSocket:
    """One end of a wire, in the place of a TCP socket."""

    def __init__(self, inner: socket.socket, near: str, far: str) -> None:
        self.inner = inner
        self.inner.setblocking(False)
        self.names = (near, 7422), (far, 7422)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def getsockname(self) -> tuple[str, int]:
        return self.names[0]

    def getpeername(self) -> tuple[str, int]:
        return self.names[1]

    def setsockopt(self, *_: object) -> None:
        """Nothing of TCP can be set."""


class Way:
    """One direction of a wire."""

    def __init__(self, wire: "Wire", source: socket.socket, target: socket.socket) -> None:
        self.wire = wire
        self.source = source
        self.target = target
        self.coming: deque[tuple[int, bytes]] = deque()
        """What is under way, with the time at which it is there; b"" is the end."""
        self.arrived: deque[bytes] = deque()
        self.in_flight = 0
        self.newest_ns = 0
        self.ended = False
        self.held = False
        """Nothing arrives, and nobody is told."""

    def take(self) -> None:
        """Take what was sent."""
        world = self.wire.world
        while not self.ended and self.in_flight < IN_FLIGHT_MAX:
            try:
                data = self.source.recv(PIECE_MAX)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self.ended = not data
            self.in_flight += len(data)
            at = max(self.newest_ns, world.now_ns + self.wire.network.delay_ns())
            self.newest_ns = at
            self.coming.append((at, data))
            world.later(at - world.now_ns, self.arrive)

    def arrive(self) -> None:
        """What is due is there, in its order: timers of the same moment have none."""
        while self.coming and self.coming[0][0] <= self.wire.world.now_ns + ROUNDING_NS:
            self.arrived.append(self.coming.popleft()[1])
        self.give()

    def give(self) -> None:
        """Give the receiver what it takes."""
        if self.wire.closed or self.wire.held or self.held:
            return
        while self.arrived:
            data = self.arrived.popleft()
            if not data:
                self.wire.close()
                return
            try:
                taken = self.target.send(data)
            except BlockingIOError:
                taken = 0
            except OSError:
                self.wire.close()
                return
            self.in_flight -= taken
            if taken < len(data):
                self.arrived.appendleft(data[taken:])
                return


class Wire:
    """One connection."""

    def __init__(self, network: "Network", near: str = "edge", far: str = "hub") -> None:
        """`near` is the machine that dials, `far` the one that listens."""
        self.network = network
        self.world = network.world
        near_end, a = socket.socketpair()
        far_end, b = socket.socketpair()
        for inner in (a, b):
            inner.setblocking(False)
        self.ends = (SimSocket(near_end, near, far), SimSocket(far_end, far, near))
        self.inner = (a, b)
        self.ways = (Way(self, a, b), Way(self, b, a))
        self.closed = False
        self.held = False
        """Nothing arrives, and nobody is told."""

    def pump(self) -> None:
        """Move bytes."""
        for way in self.ways:
            if not self.closed:
                way.take()
                way.give()

    def close(self) -> None:
        """Both ends see the end of the connection. What is under way is lost."""
        self.closed = True
        for inner in self.inner:
            inner.close()

    def drop(self) -> None:
        """Close it, and what a machine that is off held of it."""
        self.close()
        for end in self.ends:
            end.inner.close()


class Network:
    """One hub that listens, one edge that dials."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance.fork("network")
        self.wires: list[Wire] = []
        self.up = True
        self.accept: Callable[[SimSocket], bool] = lambda sock: False
        """Hands a socket to the hub; False when nobody listens."""
        world.after.append(self.pump)

    def delay_ns(self) -> int:
        """How long bytes are under way: 1 to 20 ms."""
        return 1_000_000 + self.chance.below(19_000_000)

    def pump(self) -> None:
        """Move bytes; called after every round of a loop."""
        for wire in self.wires:
            wire.pump()
        if any(wire.closed for wire in self.wires):
            self.wires = [wire for wire in self.wires if not wire.closed]

    def dial(self) -> SimSocket:
        """The edge's end of a new connection. Raises OSError."""
        if not self.up:
            raise ConnectionRefusedError("connection refused")
        wire = Wire(self)
        if not self.accept(wire.ends[1]):
            wire.drop()
            raise ConnectionRefusedError("connection refused")
        self.wires.append(wire)
        return wire.ends[0]

    def cut(self, silently: bool) -> None:
        """Nothing passes until `mend`; silently: nobody is told."""
        self.up = False
        for wire in self.wires:
            if silently:
                wire.held = True
            else:
                wire.close()

    def mend(self) -> None:
        """Connections can be made. What was held back is lost, as after a long time."""
        self.up = True
        for wire in self.wires:
            if wire.held:
                wire.close()

    def end(self) -> None:
        """The run is over."""
        for wire in self.wires:
            wire.drop()

    def reset(self) -> None:
        """End every connection."""
        for wire in self.wires:
            wire.close()
