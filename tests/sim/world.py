"""What a node, a fault and a check see of the simulation they are in.

`cluster.Cluster` is all of this. Those who work for it stand below it and know this only.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headwater.edge.ports.twins.chance import SeededRandom
from headwater.edge.ports.twins.network import TwinNet
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.options import Options
from headwater.hub.raft.model.ready import Ready
from headwater.hub.raft.multi_raft import Packet
from headwater.hub.raft.raft import Raft
from tests.sim.checks.checker import Checker
from tests.sim.checks.history import History


class World(Protocol):
    """Simulated time, the network, the nodes with their groups, and the clients."""

    chance: SeededRandom
    clients: SeededRandom
    """Chance of what clients do."""
    now_us: int
    """Simulated time, in microseconds."""
    options: Options
    first: dict[int, Config]
    """The configuration with which each group begins."""
    checker: Checker
    history: History
    groups: list[int]
    net: TwinNet
    stalled: set[tuple[int, int]]
    """Links (from, to) that hold back what they carry."""
    echoes: list[Any]
    traps: list[Any]
    rare: Any
    """The newest packets that are worth to be said again."""
    nodes: dict[int, Any]
    """`SimNode` by its number."""
    victim: int
    """The node whose disk may lie."""

    def after(self, delay_us: int, action: Callable[..., None], *args: object) -> None:
        """Call `action(*args)` in `delay_us` of simulated time."""

    def next_moment(self) -> int:
        """Order of what clients see."""

    def step(self) -> None:
        """Let the next event happen."""

    def pass_time(self, us: int) -> None:
        """Let everything happen that is due within `us`."""

    def send(self, packet: Packet) -> None:
        """A node says something."""

    def hear(self, packet: Packet) -> None:
        """A packet arrives at its node, again maybe."""

    def written(self, node: Any, raft: Raft, ready: Ready) -> None:
        """A node has written a batch that is not durable yet."""

    def mend(self, links: set[tuple[int, int]]) -> None:
        """Links are no longer cut."""

    def unstall(self, links: set[tuple[int, int]]) -> None:
        """What was held back arrives, in order and all at once."""

    def calm(self) -> None:
        """The network has no weather any more."""

    def start_again(self, node: Any) -> None:
        """Start a node that is down."""

    def leader(self, group: int) -> Raft | None:
        """The leader of the greatest term; None without one."""

    def touch(self, raft: Raft) -> None:
        """A member was told something: do what follows."""

    def sound(self, number: int) -> bool:
        """Whether a node may lose its disk: nobody else's is in doubt, and the groups run."""

    def burst(self, number: int, group: int) -> None:
        """A write at this node, when it believes that it leads."""

    def ask(self, node: Any) -> None:
        """A node is asked for the newest values that it leads."""

    def ask_all(self, group: int) -> None:
        """Whoever is up is asked for the newest value."""

    def write(self, node: Any, raft: Raft, key: str, dice: int) -> None:
        """A client writes."""

    def read(self, node: Any, raft: Raft, key: str) -> None:
        """A client reads."""

    def settle(self, missing: set[int], when: str) -> list[int]:
        """Wait until all groups are whole but for the `missing` nodes."""

    def describe(self) -> str:
        """Everything there is, for whoever looks for a fault."""
