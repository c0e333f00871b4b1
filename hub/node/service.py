"""What makes a node with JetStream and routes a member of one JetStream cluster."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.replication.operations import KNOWN_VERSION
from headwater.edge.ports.ports import SystemClock
from headwater.hub.addresses import ANY, reachable
from headwater.hub.api.admin import SystemAdmin
from headwater.hub.api.cluster import CONTRADICTED, Cluster
from headwater.hub.api.cluster_routes import API_SUBJECTS, ClusterRoutes
from headwater.hub.api.questions import Answers
from headwater.hub.api.stream_requests import raw
from headwater.hub.api.usage_watch import UsageWatch
from headwater.hub.cluster.driver import Driver
from headwater.hub.cluster.transport import CallFailed, Transport
from headwater.hub.meta.applier import Applier
from headwater.hub.meta.assignment import META_GROUP, Assignment, ChangeDone, decode, encode
from headwater.hub.meta.founding import HELLO_SECONDS, Founding, Hello
from headwater.hub.meta.meta_group import MetaGroup, NoLeader
from headwater.hub.meta.starts import PUT_BACK
from headwater.hub.meta.state import Conflict, MetaState
from headwater.hub.node.cluster_view import ClusterView
from headwater.hub.node.completing import Completing
from headwater.hub.node.elections import ElectionAdvisories
from headwater.hub.node.healing import Healing
from headwater.hub.node.spreading import Spreading
from headwater.hub.raft.model.errors import RaftError
from headwater.hub.raft.raft import Raft
from headwater.hub.routes.service import RouteService
from headwater.hub.stored.group_store import GroupStore, Naming
from headwater.hub.stored.replica import Machine
from headwater.hub.stored.run_record import run_of_machine
from headwater.hub.streams.absences import Absences
from headwater.hub.streams.mirror_reads import MirrorReads
from headwater.hub.streams.silent_clients import SilentClients
from headwater.hub.streams.stream_groups import StreamGroups

if TYPE_CHECKING:
    from headwater.edge.jetstream.node.node import NodeJetStream
    from headwater.edge.jetstream.stream.stream import Stream
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.cluster")

ARRIVAL_SECONDS = 0.1
"""That a handover waits for what other nodes have sent."""
HAND_OVER_SECONDS = 2.0
"""That a stop waits for other nodes to lead what is led here."""
SILENT_SECONDS = 0.5
"""That other nodes have to hear that this one answers nothing more, twice, and that requests which
came before have to be done."""
RESTING_MAX = 200
"""Accounts without JetStream that are told to other nodes each second, streams or not."""
ACCOUNT = stream_lifecycle.CLUSTERS_OWN
"""Of the store's streams that hold the state of groups which are no user's."""


class ClusterService:
    """Made beside the service of routes, and started behind it."""

    name = "cluster"

    def __init__(self, routes: RouteService) -> None:
        self.route_service = routes
        self.node: NodeView | None = None
        self.cluster: Cluster | None = None
        self.driver: Driver | None = None
        self.spreading: Spreading | None = None
        self.completing: Completing | None = None
        self.healing: Healing | None = None
        self.elections: ElectionAdvisories | None = None
        self.usage_watch: UsageWatch | None = None
        self.absences: Absences | None = None
        self.leaving = False
        """Nothing is placed here, and what is led here is handed over."""
        self._silent = False
        """It answers no request but those that are on their way."""
        self._ends = False
        """There is no way back from that."""
        self._jetstream: NodeJetStream | None = None
        self._state = MetaState()
        self._transport = Transport("")
        self._groups: StreamGroups | None = None
        self._routes: ClusterRoutes | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling = False
        self._gaps: set[str] = set()
        """What the log says about entries that may be gone."""
        self._settling: set[str] = set()
        """Incarnations of streams that the meta leader is being told of."""
        self._arrivals: set[asyncio.Task[None]] = set()

    # -- before the store is open -------------------------------------------------

    def join_jetstream(self, node: "NodeView", jetstream: "NodeJetStream") -> None:
        """As of `JetStreamPart`: the cluster says who answers, and what is brought back."""
        self.node = node
        self._jetstream = jetstream
        self._transport = Transport(node.server_name)
        jetstream.clustered = True
        jetstream.api_subjects = API_SUBJECTS
        jetstream.on_stored = self._stored
        jetstream.make_routes = self._table

    def _table(self) -> dict[str, Any]:
        assert self._routes is not None
        return self._routes.table()

    def _stored(self, found: list[Any]) -> list[Any]:
        """The store is open: make the groups, and leave ordinary streams to the node."""
        node, jetstream = self.node, self._jetstream
        assert node is not None and jetstream is not None
        clock = node.kernel.source() or SystemClock()
        self._groups = groups = StreamGroups(jetstream)
        store = GroupStore(
            jetstream.store(),
            stream_lifecycle.group_of,
            self._naming,
            self._machine,
            node.kernel.wall_ns(),
            self._transport.number,
            b"" if node.kernel.source() else run_of_machine(),
        )
        chance = node.kernel.chance
        driver = Driver(node.kernel, store, self._transport, clock, chance)
        group = MetaGroup(driver, self._state)
        applier = Applier(jetstream, self._state, self._transport.number)
        founding = Founding(group, self._transport, chance, self._describe)
        groups.run(driver)
        groups.member_boot = lambda: self._state.boot_of(self._transport.number)
        applier.groups = groups
        self.driver = driver
        self.cluster = Cluster(jetstream, group, founding, self._transport, applier)
        self.cluster.groups = groups
        self.elections = elections = ElectionAdvisories(self.cluster)
        jetstream.on_consumer_made = elections.consumer_elected
        group.watchers.append(elections.meta_elected)
        groups.on_leader = self._led_here
        groups.on_quorum_lost = self._quorum_lost
        groups.on_change_done = self._change_done
        groups.barrier = self._when_arrived
        groups.may_lead = group.may_lead = founding.would_lead
        self._follow_terms(groups, founding, jetstream)
        self._routes = ClusterRoutes(self.cluster)
        groups.on_deposed = self._routes.relay.deposed
        self.absences = absences = Absences(
            jetstream, self._transport, self._known, self._all_known, self.cluster.leader_of
        )
        self._follow_losses(groups, absences, node)
        MirrorReads(jetstream, self._transport, groups)
        groups.on_leaving = absences.leaving
        groups.on_ending = absences.ending
        groups.on_publishes = absences.leads
        self.spreading = Spreading(self.cluster)
        self.completing = Completing(self.cluster, self._routes.streams)
        self.healing = healing = Healing(groups, self._transport, elections.remade)
        jetstream.store().damage.at_once.append(healing.on_damage)
        Answers(self.cluster)
        self.usage_watch = UsageWatch(self.cluster)
        self._transport.methods["adopt"] = self._adopt
        jetstream.stream_cluster_info = self.cluster.cluster_info
        jetstream.consumer_cluster_info = self.cluster.consumer_cluster_info
        jetstream.cluster_view = ClusterView(self.cluster, healing)
        for problem in store.start.problems:
            log.warning("%s", problem)
        applier.boot = store.boot
        applier.emptied = not group.resume()
        self._follow_starts(applier, founding)
        return [each for each in found if not stream_lifecycle.group_of(each.meta)]

    def _follow_losses(
        self, groups: StreamGroups, absences: Absences, node: "NodeView"
    ) -> None:
        """Have nothing that a leader handed out come late, when another one may lead."""
        silent = SilentClients(node.kernel, lambda: node.sessions.conns.values())
        groups.on_lost = absences.late.on_replaced = silent.look

    def _follow_terms(
        self, groups: StreamGroups, founding: Founding, jetstream: "NodeJetStream"
    ) -> None:
        """Have streams rest, and be led elsewhere, as accounts and limits of the nodes are."""
        groups.rests_on = founding.rests_on
        groups.is_over = founding.is_over
        founding.on_awake = groups.go_on
        jetstream.on_rest = self._rest
        jetstream.on_wake = self._wake
        jetstream.served_elsewhere = self._served_elsewhere
        self._transport.methods["granted"] = self._granted

    def _rest(self, account: str) -> None:
        """An account has no JetStream any more on this node."""
        assert self.cluster is not None and self._groups is not None
        self._groups.rest(account)
        self.cluster.founding.say()

    def _served_elsewhere(self, account: str) -> Awaitable[bool] | None:
        """As with nats-server, who leads the cluster says whether an account has JetStream."""
        cluster = self.cluster
        if cluster is None or not cluster.is_led_elsewhere(cluster.group.leader):
            return None
        return self._is_granted(cluster.group.leader, account)

    async def _is_granted(self, leader: int, account: str) -> bool:
        try:
            return bool(await self._transport.call(leader, "granted", account.encode()))
        except CallFailed:
            return False

    def _granted(self, sender: int, body: bytes) -> bytes:
        """Whether an account has JetStream on this node; empty for no."""
        assert self._jetstream is not None
        js = self._jetstream.accounts.get(body.decode())
        return b"1" if js is not None and js.router is not None else b""

    def _wake(self, account: str) -> None:
        """An account has JetStream again on this node: serve what the cluster says."""
        assert self.cluster is not None and self._groups is not None
        self.cluster.applier.reconcile_all()
        self._groups.go_on(account)
        self.cluster.founding.say()

    def _known(self, account: str, name: str) -> Assignment | None:
        known = self._state.stream(account, name)
        return known.assignment if known is not None else None

    def _all_known(self) -> Iterator[Assignment]:
        return (known.assignment for known in self._state.streams.values())

    def _led_here(self, assignment: Any) -> None:
        """A replicated stream is led here from now on: tell who listens."""
        cluster = self.cluster
        assert cluster is not None
        cluster.led_here(assignment)
        assert self._routes is not None
        self._routes.relay.elected(assignment)
        if self.elections is not None:
            self.elections.elected(assignment)

    def _change_done(self, assignment: Any) -> None:
        """A stream that is led here has the members that were wanted: tell the meta leader."""
        if assignment.incarnation not in self._settling:
            self._settling.add(assignment.incarnation)
            self._spawn(self._tell_change_done(assignment))

    async def _tell_change_done(self, assignment: Any) -> None:
        cluster = self.cluster
        assert cluster is not None
        done = ChangeDone(
            account=assignment.account,
            name=assignment.name,
            incarnation=assignment.incarnation,
            version=assignment.version,
        )
        try:
            await self._transport.call(cluster.group.leader, "settled", encode(done))
        except CallFailed as error:
            log.debug("the leader does not hear that a stream has its members: %s", error)
        finally:
            self._settling.discard(assignment.incarnation)

    def _quorum_lost(self, assignment: Any) -> None:
        """This node led a stream, and too few replicas are heard to go on."""
        log.warning(
            "stream '%s > %s' has lost its quorum: it takes nothing until more of its nodes run",
            *assignment.key,
        )
        if self.elections is not None:
            self.elections.quorum_lost(assignment)

    def _follow_starts(self, applier: Applier, founding: Founding) -> None:
        """Have nothing made anew that this node had before its folder was emptied or put back."""
        applier.on_joined = founding.say
        applier.judged = founding.judged
        founding.on_put_back = self._put_back
        founding.on_hello = applier.be_sure

    def _put_back(self) -> None:
        """This node's folder is an older copy: its replicas ask the others what they may have
        promised since, and no stream is made anew that was here."""
        cluster, driver = self.cluster, self.driver
        assert cluster is not None and driver is not None
        log.critical("%s", PUT_BACK)
        cluster.applier.put_back = True
        kept = driver.store.start.groups
        kept.update({n: replace(each, clean=False, lost=True) for n, each in kept.items()})
        for raft in driver.multi_raft.groups.values():
            raft.recovery.lost = True
            raft.doubt()
            driver.touch(raft)
        for js, stream in cluster.applier.streams():
            if not stream.group and stream.config.storage == "file":
                log.error(
                    "stream '%s > %s' is as the older copy has it: what was stored since is lost; "
                    "publish it again, or restore a newer backup",
                    js.name,
                    stream.name,
                )

    def _naming(self, group: int) -> Naming:
        if group != META_GROUP:
            assert self._groups is not None
            return self._groups.naming(group)
        meta = stream_lifecycle.Meta(msgspec.Raw(b'{"name":"meta"}'), 0, "", group)
        return Naming(ACCOUNT, "meta", msgspec.json.encode(meta), "the cluster's metadata")

    def _machine(self, group: int) -> Machine:
        if group != META_GROUP:
            assert self._groups is not None
            return self._groups.machine(group)
        return self._state

    # -- life ---------------------------------------------------------------------

    def start(self, node: "NodeView") -> None:
        """As of `Service`."""
        if self.cluster is None or self.driver is None or self.route_service.routes is None:
            return
        self._transport.attach(self.route_service.routes)
        self.cluster.founding.routes = self.route_service.routes
        applier = self.cluster.applier
        self._state.on_change = applier.operation_applied
        self._state.on_load = applier.reconcile_all
        applier.reconcile_all()
        node.farewells.append(self._farewell)
        node.departures.append(self._leave)
        assert self._routes is not None
        account = node.account(node.system_account)
        self.cluster.system_account = node.system_account
        routes = self._routes
        SystemAdmin(self.cluster, routes.streams, routes.relay, account, self.drain)
        self.driver.start()
        self._tick()

    def _tick(self) -> None:
        cluster = self.cluster
        if cluster is None or self._transport.closed:
            return
        self._ticker = cluster.jetstream.kernel.loop.call_later(HELLO_SECONDS, self._tick)
        applier = cluster.applier
        applier.find_unknown()
        cluster.founding.tick()
        if self.leaving:
            self.hand_over()
        else:
            self._spread()
            if self.healing is not None:
                self.healing.tick(cluster.jetstream.kernel.loop.time())
        if self.completing is not None:
            self.completing.tick()
        if self.usage_watch is not None:
            self.usage_watch.tick()
        self._look_at_metadata(cluster)
        self._look_for_gaps()
        if self._groups is not None:
            self._groups.look_at_limits()
        now = cluster.jetstream.kernel.loop.time()
        applier.leave_groups(now)
        applier.try_again(now)
        applier.be_sure()
        if self._groups is not None and self._state.rest.identity:
            self._groups.cluster = f"{self._state.rest.identity:016x}"
        if (applier.unknown or applier.lost) and cluster.group.leader and not self._telling:
            self._telling = True
            self._spawn(self._tell_leader())

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _describe(self) -> Hello:
        node, jetstream = self.node, self._jetstream
        assert node is not None and jetstream is not None
        usage = jetstream.usage
        free = {
            kind: max(each.limit - max(each.used, each.reserved), 0)
            for kind, each in usage.items()
        }
        return Hello(
            name=node.server_name,
            cluster=node.facts.cluster,
            tags=node.options.server_tags,
            memory_free=free["memory"],
            store_free=free["file"],
            streams=sum(len(js.streams) for js in jetstream.accounts.values()),
            leads=self._leads(),
            monitor=self._monitor(),
            emptied=self.cluster.applier.emptied if self.cluster is not None else False,
            leaving=self.leaving,
            silent=self._silent,
            full=jetstream.storage is not None and jetstream.storage.log.failure is not None,
            unannounced=len(self.cluster.applier.unknown) if self.cluster is not None else 0,
            entries=KNOWN_VERSION,
            known=self._digest(),
            over=[kind for kind, each in usage.items() if each.is_over()],
            resting=self._resting(jetstream),
        )

    def _resting(self, jetstream: "NodeJetStream") -> list[str]:
        """Accounts that have no JetStream here. Of very many only those with streams are told."""
        found = jetstream.resting()
        if len(found) > RESTING_MAX:
            found = [each for each in found if self._state.accounts.get(each)]
        return found

    def _digest(self) -> tuple[int, int]:
        """Up to which entry this node has the metadata, and a digest of it."""
        replica = self.driver.store.replicas.get(META_GROUP) if self.driver is not None else None
        if replica is None or replica.store is None:
            return 0, 0
        return replica.applied, self._state.digest(replica.applied)

    def _look_at_metadata(self, cluster: Cluster) -> None:
        """Say when this node's metadata is not what the others have, after as many entries."""
        contradicted = cluster.founding.contradicted()
        if contradicted and not cluster.contradicted:
            log.critical("%s", CONTRADICTED)
        cluster.contradicted = contradicted
        if contradicted and cluster.group.leads:
            # What it decides would be about streams that others know otherwise.
            with contextlib.suppress(RaftError):
                cluster.group.step_down(0)

    def _look_for_gaps(self) -> None:
        """Say it once when what most replicas of a group had was lost at once."""
        jetstream = self._jetstream
        view = jetstream.cluster_view if jetstream is not None else None
        found = set(view.gaps()) if view is not None else set()
        for gap in sorted(found - self._gaps):
            log.critical("%s; compare with what publishers have, or with a backup", gap)
        self._gaps |= found

    def _leads(self) -> int:
        groups = self.driver.multi_raft.groups.items() if self.driver is not None else ()
        return sum(number != META_GROUP and raft.is_leader for number, raft in groups)

    def _spread(self) -> None:
        """Give a leadership away when this node has too many."""
        driver, groups, spreading = self.driver, self._groups, self.spreading
        if driver is None or groups is None or spreading is None:
            return
        now = driver.clock.monotonic_ns() / 1e9
        move = spreading.next_move(now, driver.multi_raft.groups)
        if move is not None:
            with contextlib.suppress(RaftError):
                groups.transfer(*move)

    def _monitor(self) -> str:
        """Where other nodes' operators find this node's pages; "" when it has none."""
        node = self.node
        assert node is not None
        options = node.options
        if options.http_port == 0 or self.route_service.routes is None:
            return ""
        host = options.http_host
        if host in ANY:
            host = reachable(host)[0] if reachable(host) else "127.0.0.1"
        return f"http://{host}:{node.port_of('monitoring', options.http_port)}"

    def _farewell(self) -> None:
        """Lame duck mode: leaderships go to other nodes, and nothing new comes here."""
        self.leaving = self._ends = True
        if self.cluster is not None:
            self.cluster.founding.say()
            self.hand_over()

    def drain(self, leave: bool) -> int:
        """By order: hand over what is led here and take nothing new, or with False go back to
        duty. Returns how many groups are led here that have other members."""
        if leave != self.leaving and not self._ends:
            self.leaving = leave
            log.info("this node leads %s", "nothing from now on" if leave else "again")
            if self.cluster is not None:
                self.cluster.founding.say()
        if self.leaving:
            self.hand_over()
        groups = self.driver.multi_raft.groups.values() if self.driver is not None else ()
        return sum(raft.is_leader and len(raft.log.config.voters) > 1 for raft in groups)

    def hand_over(self) -> bool:
        """Let other nodes lead what is led here, where one can; whether that is still to come."""
        cluster, driver, groups = self.cluster, self.driver, self._groups
        if cluster is None or driver is None or groups is None:
            return False
        waits = False
        for number, raft in list(driver.multi_raft.groups.items()):
            target = self._successor(cluster, raft) if raft.is_leader else 0
            if not target:
                continue
            waits = True
            if raft.transfer.target:
                continue
            with contextlib.suppress(RaftError):
                if number == META_GROUP:
                    cluster.group.step_down(target)
                else:
                    groups.transfer(number, target)
        return waits

    def _when_arrived(self, done: Callable[[], None]) -> None:
        """Call back when every node has heard what was told to routes, and what it had sent before
        is here."""
        work = asyncio.ensure_future(self._arrival(done))
        self._arrivals.add(work)
        work.add_done_callback(self._arrivals.discard)

    async def _arrival(self, done: Callable[[], None]) -> None:
        transport = self._transport
        await asyncio.gather(
            *(transport.fence(node, ARRIVAL_SECONDS) for node in list(transport.conns)),
            return_exceptions=True,
        )
        done()

    def _successor(self, cluster: Cluster, raft: Raft) -> int:
        """The voter that is there, stays, and has most of a group's log; 0 for none."""
        found = [
            (progress.match, number)
            for number, progress in raft.progress.items()
            if number in raft.log.config.voters and cluster.founding.is_online(number)
        ]
        hellos = [(each, cluster.founding.hello_of(each[1])) for each in found]
        staying = [each for each, hello in hellos if hello and not hello.leaving]
        # Better one that has to catch up first than one whose storage takes nothing.
        staying = [each for each in staying if cluster.founding.would_lead(each[1])] or staying
        return max(staying)[1] if staying else 0

    async def _leave(self) -> None:
        """Hand over before the node stops, as far as that is quick, and let go on what waits for
        another leader. What still waits then is refused: its clients are sent away next."""
        self.leaving = self._ends = True
        if self.cluster is not None:
            self.cluster.founding.say()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while self.hand_over() or self._holds():
                    await asyncio.sleep(0.01)
        if self.absences is not None and self._holds():
            self.absences.stop()

    def _holds(self) -> bool:
        """Whether messages of clients wait here for the leader of a stream."""
        return self.absences is not None and self.absences.count > 0

    async def _go_silent(self) -> None:
        """Have the others answer for streams that are here alone. What was left to this node until
        all knew of it is answered here: the second fence comes behind that."""
        if self.cluster is None:
            return
        self._silent = True
        self.cluster.founding.say()
        nodes = list(self._transport.conns)
        for _ in range(2):
            fences = (self._transport.fence(node, SILENT_SECONDS) for node in nodes)
            await asyncio.gather(*fences, return_exceptions=True)
        accounts = self.cluster.jetstream.accounts.values()
        routers = [js.router for js in accounts if js.router is not None]
        # What is done is answered once it is durable: that is a moment later.
        if waiting := {task for router in routers for task in router.waiting}:
            await asyncio.wait(waiting, timeout=SILENT_SECONDS)

    async def stop(self) -> None:
        """As of `Service`."""
        await self._go_silent()
        if self.cluster is not None:
            self.cluster.founding.starts.remember_all()
        if self._ticker is not None:
            self._ticker.cancel()
        if self.usage_watch is not None:
            self.usage_watch.stop()
        for task in self._tasks:
            task.cancel()
        if self.healing is not None:
            self.healing.stop()
        if self.absences is not None:
            self.absences.stop()
        if self._groups is not None:
            self._groups.stop()
        if self.driver is not None:
            await self.driver.stop()
        self._transport.close()

    def ports(self) -> dict[str, list[str]]:
        """As of `Service`: routes are the only door."""
        return {}

    def status(self) -> dict[str, Any]:
        """As of `Service`."""
        return {}

    # -- streams from before the cluster --------------------------------------------

    async def _tell_leader(self) -> None:
        """Tell the leader of streams that only this node knows, and of those that it has lost."""
        cluster = self.cluster
        assert cluster is not None
        try:
            for stream in list(cluster.applier.unknown.values()):
                await self._offer(cluster, stream)
            for assignment in list(cluster.applier.lost.values()):
                await self._transport.call(cluster.group.leader, "adopt", encode(assignment))
                cluster.applier.lost.pop(assignment.incarnation, None)
        except CallFailed as error:
            log.debug("the leader does not hear of streams of this node: %s", error)
        finally:
            self._telling = False
            cluster.founding.say()

    async def _offer(self, cluster: Cluster, stream: "Stream") -> None:
        assignment = Assignment(
            account=stream.account.name,
            name=stream.name,
            incarnation=stream.incarnation,
            created_ns=stream.created_ns,
            config=raw(stream.config),
            peers=[cluster.number],
        )
        answer = await self._transport.call(cluster.group.leader, "adopt", encode(assignment))
        if not answer:
            return
        names = (stream.account.name, stream.name, answer.decode())
        log.error(
            "stream '%s > %s' of this node is kept and not served: %s; stop the node and use "
            "`headwater store backup`",
            *names,
        )
        stream_lifecycle.abandon(cluster.jetstream.account_js(stream.account.name), stream.name)

    async def _adopt(self, sender: int, body: bytes) -> bytes:
        """A node has a stream that the cluster does not know, or has lost one; empty, or why that
        is not so."""
        cluster = self.cluster
        assignment = decode(body)
        if cluster is None or not isinstance(assignment, Assignment):
            raise CallFailed("no stream")
        if not assignment.boots:
            if any(number not in cluster.state.members for number in assignment.peers):
                raise CallFailed("its node is no member yet")
            assignment.boots = [cluster.state.boot_of(number) for number in assignment.peers]
        try:
            done = await cluster.group.submit(assignment)
        except NoLeader as error:
            raise CallFailed(str(error)) from error
        if not isinstance(done, Conflict):
            return b""
        known = cluster.state.stream(assignment.account, assignment.name)
        if known is not None and known.assignment.incarnation == assignment.incarnation:
            return b""
        return b"the cluster has another stream of that name or with such subjects"
