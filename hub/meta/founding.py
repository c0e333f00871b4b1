"""How nodes find one another, and who founds the cluster when there is none.

Every node says hello to each peer, when a route comes up and once a second: who it is, which
JetStream it belongs to, and what room it has. A node that belongs to none joins the one that it
hears of. When there is none at all, the node with the lowest number founds it. That needs all
nodes that are configured as routes to have answered, and each node that is known to have agreed.
So a few nodes that were emptied never found a second one beside those that have the data: they
wait for all others.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from headwater.edge.ports.ports import Random
from headwater.hub.cluster.transport import CallFailed, Transport
from headwater.hub.meta.assignment import Member
from headwater.hub.meta.meta_group import MetaGroup
from headwater.hub.meta.starts import Starts

log = logging.getLogger("headwater.meta")

HELLO_SECONDS = 1.0
ALONE_SECONDS = 5.0
"""A node without configured routes waits as long for others before it is a cluster of its own."""
OFFLINE_SECONDS = 3.5
"""Of silence after which a node is shown as offline."""


class Hello(msgspec.Struct, kw_only=True):
    """What a node says of itself. Bytes; 0 for `identity` while it belongs to none."""

    name: str
    cluster: str = ""
    tags: list[str] = []
    boot: int = 0
    identity: int = 0
    sees: list[int] = []
    memory_free: int = 0
    store_free: int = 0
    streams: int = 0
    replicas: int = 0
    """Replicas of replicated streams that are here."""
    leads: int = 0
    """Replicated streams that are led here."""
    monitor: str = ""
    """URL of its monitoring port, where it has one."""
    emptied: bool = False
    """Its store was new when it joined, and it has not heard yet that it is a member."""
    entries: int = 1
    """The newest version of streams' entries that it knows."""
    leaving: bool = False
    """It is about to stop: nothing is placed on it, and no leadership handed to it."""
    full: bool = False
    """Its storage takes nothing: no leadership is handed to it."""
    known: tuple[int, int] = (0, 0)
    """The last entry of the metadata that it has applied, and a digest of what streams are then."""
    over: list[str] = []
    """Kinds of storage of which it has more than its limit: it would refuse publishes."""
    unannounced: int = 0
    """Streams of its own that the cluster does not know yet."""
    resting: list[str] = []
    """Accounts that have no JetStream on it, at least those that have streams in the cluster."""
    silent: bool = False
    """It stops, and answers no request from now on but those that were on their way to it."""
    before: int = 0
    """The start before this one, as its folder says; 0 for none."""
    found: int | None = None
    """Number of the last batch of its log that this start has found."""
    durable: int = 0
    """Number of the last batch that is durable there now."""
    starts: dict[int, int] = {}
    """The newest start of each node that it has heard of."""
    older: dict[int, int] = {}
    """Nodes whose folders are older copies: they lack a start of theirs that it has heard of. Each
    with the start that it is in."""
    founds: bool | None = None
    """It asks the others whether it may found a cluster; None: it does not say."""

    @property
    def may_lead(self) -> bool:
        """Whether a leadership may be handed to it."""
        return not (self.leaving or self.full)


class ConfiguredRoutes(Protocol):
    """What is known of the configured routes; see `headwater.hub.routes.routes`."""

    def unanswered(self) -> list[str]:
        """Configured routes that have not led to a node yet."""


class Heard(msgspec.Struct):
    """A node's last word, and when it came (monotonic seconds)."""

    hello: Hello
    at: float


class Founding:
    """Knows the nodes that are there. `tick` is called once a second."""

    def __init__(
        self,
        group: MetaGroup,
        transport: Transport,
        chance: Random,
        describe: Callable[[], Hello],
    ) -> None:
        self.group = group
        self.transport = transport
        self.routes: ConfiguredRoutes | None = None
        self.chance = chance
        self.describe = describe
        self.own_name = ""
        """The server's; empty until it is asked for."""
        self.heard: dict[int, Heard] = {}
        self.introduced: set[int] = set()
        """Nodes that have said hello on the route that they have now."""
        self.when_announced: list[Callable[[], None]] = []
        """Called once, when no node has streams any more that it has yet to tell of."""
        self.on_awake: Callable[[str], None] = lambda account: None
        """Called when an account has JetStream again on another node."""
        self.starts = Starts(group.driver.store.log)
        self.put_back = False
        """The others say that this node's folder is an older copy."""
        self.on_put_back: Callable[[], None] = lambda: None
        """Called when that is heard."""
        self.on_hello: Callable[[], None] = lambda: None
        """Called behind each hello."""
        self.began = self._now()
        self.agreed = 0
        """The node that may found a cluster with this one."""
        self._asking = False
        self.waits_for = ""
        """Why there is no cluster yet, for logs and health; "" when this node is in one."""
        transport.handlers[b"hello"] = self._hello
        transport.methods["found"] = self._may_found
        transport.watchers.append(self._peer_changed)
        group.heard_name = self._name
        group.watchers.append(self.say)

    def _now(self) -> float:
        """Monotonic seconds."""
        return self.group.driver.clock.monotonic_ns() / 1e9

    # -- hello --------------------------------------------------------------------

    def own(self) -> Hello:
        """What this node says of itself now."""
        hello = self.describe()
        hello.identity = self.transport.identity
        hello.boot = self.group.driver.multi_raft.boot
        store = self.group.driver.store
        hello.before = store.before
        hello.found, hello.durable = store.node.found_batch, store.log.durable_lsn
        hello.starts = dict(self.starts.newest)
        hello.older = dict(self.starts.older)
        hello.sees = sorted(self.present())
        hello.founds = self._asking
        return hello

    def present(self) -> Iterable[int]:
        """Nodes that are connected and have introduced themselves, and this one."""
        return {self.transport.number, *self.introduced}

    def is_online(self, number: int) -> bool:
        """Whether a node was heard a moment ago."""
        if number == self.transport.number:
            return True
        heard = self.heard.get(number)
        if heard is None or number not in self.introduced:
            return False
        return self._now() - heard.at < OFFLINE_SECONDS

    def answers(self, number: int) -> bool:
        """Whether a node is there, and has not said that it answers no request any more."""
        hello = self.hello_of(number)
        return hello is not None and self.is_online(number) and not hello.silent

    def hello_of(self, number: int) -> Hello | None:
        """What a node said last; None when nothing was heard of it."""
        if number == self.transport.number:
            return self.own()
        heard = self.heard.get(number)
        return heard.hello if heard is not None else None

    def would_lead(self, number: int) -> bool:
        """Whether a node is there and says that it takes a leadership."""
        hello = self.hello_of(number)
        return self.is_online(number) and hello is not None and hello.may_lead

    def contradicted(self) -> bool:
        """Whether a majority of the nodes has other metadata than this one, after as many
        entries."""
        own = self.describe().known
        heard = [self.heard[number].hello for number in self.introduced if self.is_online(number)]
        others = Counter(hello.known for hello in heard if hello.known[0] == own[0])
        others.pop(own, None)
        return max(others.values(), default=0) * 2 > len(self.group.members)

    def is_over(self, number: int, kind: str) -> bool:
        """Whether a node says that it has more of a kind of storage than its limit."""
        hello = self.hello_of(number)
        return hello is not None and kind in hello.over

    def rests_on(self, number: int, account: str) -> bool:
        """Whether a node says that an account has no JetStream on it."""
        hello = self.hello_of(number)
        return hello is not None and account in hello.resting

    def awaits_streams(self) -> bool:
        """Whether a node is there that has yet to tell of streams of its own."""
        hellos = (self.hello_of(number) for number in self.present() if self.is_online(number))
        return any(hello is not None and hello.unannounced for hello in hellos)

    def _name(self, number: int) -> str:
        if number == self.transport.number:
            self.own_name = self.own_name or self.describe().name
            return self.own_name
        heard = self.heard.get(number)
        return heard.hello.name if heard is not None else ""

    def silence_ns(self, number: int) -> int:
        """Since a node was heard last; 0 when it never was."""
        heard = self.heard.get(number)
        return int((self._now() - heard.at) * 1e9) if heard is not None else 0

    def say(self) -> None:
        """Tell every node how this one is."""
        body = msgspec.json.encode(self.own())
        for number in list(self.transport.conns):
            self.transport.send(number, b"hello", body)
        self._look_for_streams()

    def _look_for_streams(self) -> None:
        if self.when_announced and not self.awaits_streams():
            waiting, self.when_announced = self.when_announced, []
            for each in waiting:
                each()

    def _peer_changed(self, number: int, there: bool) -> None:
        if there:
            self.transport.send(number, b"hello", msgspec.json.encode(self.own()))
            return
        self.introduced.discard(number)
        self.starts.remember(number)
        if self.agreed == number:
            self.agreed = 0

    def _hello(self, sender: int, body: memoryview) -> None:
        try:
            hello = msgspec.json.decode(body, type=Hello)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from error
        first = sender not in self.introduced
        self.introduced.add(sender)
        before = self.heard.get(sender)
        self.heard[sender] = Heard(hello, self._now())
        for account in before.hello.resting if before is not None else ():
            if account not in hello.resting:
                self.on_awake(account)
        if self.agreed == sender and hello.founds is False:
            self.agreed = 0
        if self._is_news(sender, hello) or first:
            self.say()
        self.consider()
        self._apply()
        self._look_for_streams()
        self.on_hello()

    # -- folders that are older copies ----------------------------------------------

    def _is_news(self, sender: int, hello: Hello) -> bool:
        """Compare what a node's folder has with what was heard of the node, and hear what that
        node found so. Whether the sender's folder turns out to be an older copy."""
        if not hello.identity or hello.identity != self.transport.identity:
            return False
        boot = self.group.driver.multi_raft.boot
        if hello.older.get(self.transport.number) == boot and not self.put_back:
            self.put_back = True
            self.on_put_back()
        starts = self.starts
        if not starts.heard(sender, hello.boot, hello.before, hello.found, hello.durable):
            return False
        log.error("%s runs on an older copy of its folder: it lacks what was there", hello.name)
        return True

    def judged(self) -> bool:
        """Whether the nodes that are connected know of this start: they have said then if this
        node's folder is an older copy. They are waited for some seconds."""
        own, boot = self.transport.number, self.group.driver.multi_raft.boot
        if self.group.members == [own] or self._now() - self.began > ALONE_SECONDS:
            return True
        conns = self.transport.conns.keys()
        return bool(conns) and all(
            node in self.introduced and self.heard[node].hello.starts.get(own, boot) >= boot
            for node in conns
        )

    # -- joining and founding -----------------------------------------------------

    def tick(self) -> None:
        """A second has passed."""
        self.say()
        self.consider()
        self._apply()

    def _apply(self) -> None:
        """Tell the group who is there and belongs to it."""
        found = {self.transport.number: self.own()}
        for number in self.introduced:
            hello = self.heard[number].hello
            if self.is_online(number) and hello.identity == self.transport.identity:
                found[number] = hello
        self.group.boots = {n: hello.boot for n, hello in found.items()}
        self.group.applicants = {n: member_of(n, hello) for n, hello in found.items()}
        if self.group.leads and self.group.raft is not None:
            self.group.driver.touch(self.group.raft)

    def consider(self) -> None:
        """Join a cluster, or found one, when this node is in none."""
        if self.group.raft is not None or self.transport.identity:
            self.waits_for = ""
            return
        if self._asking:
            return
        others = {n: self.heard[n].hello for n in self.introduced}
        found = {hello.identity for hello in others.values()} - {0}
        if found:
            identity = min(found)
            seeds = [n for n, hello in others.items() if hello.identity == identity]
            self.group.join(identity, seeds)
            self.say()
            return
        missing = self.routes.unanswered() if self.routes is not None else ["all"]
        if not self.introduced >= self.transport.conns.keys():
            self.waits_for = "the first word of nodes that are connected"
            return
        if missing:
            self.waits_for = f"routes that have not answered yet: {', '.join(missing)}"
            return
        everybody = sorted(self.present())
        if everybody == [self.transport.number]:
            if self._now() - self.began < ALONE_SECONDS:
                return
        elif any(hello.sees != everybody for hello in others.values()):
            self.waits_for = "nodes that do not see one another yet"
            return
        if everybody[0] == self.transport.number and self.agreed in (0, everybody[0]):
            self._asking = True
            self.group.driver.kernel.loop.create_task(self._found(everybody[1:]))

    async def _found(self, others: list[int]) -> None:
        """Found a cluster when everybody agrees."""
        self.agreed = self.transport.number
        try:
            for number in others:
                await self.transport.call(number, "found", b"", timeout=2.0)
            if sorted(self.present()) == sorted([self.transport.number, *others]):
                self.group.found(1 + self.chance.below((1 << 63) - 1), others)
        except CallFailed as error:
            log.debug("no cluster is founded: %s", error)
        finally:
            self._asking = False
            self.agreed = 0

    def _may_found(self, sender: int, body: bytes) -> bytes:
        if self.group.raft is not None or self.transport.identity:
            raise CallFailed("this node is in a cluster")
        if self.agreed not in (0, sender):
            raise CallFailed("this node has agreed with another one")
        self.agreed = sender
        return b""


def member_of(number: int, hello: Hello) -> Member:
    """A node as the meta group remembers it."""
    return Member(
        number=number,
        name=hello.name,
        cluster=hello.cluster,
        tags=hello.tags,
        boot=hello.boot if hello.emptied else 0,
        entries=hello.entries,
    )
