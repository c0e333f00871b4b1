"""The handlers of the API on a node of a cluster: each knows whether this node is to answer.

Every node hears every request. The meta leader answers for what concerns all streams, a stream's
leader for its stream and consumers; the others stay silent. While there is no leader a request
waits a moment, and is then refused with 10008 by whoever has heard it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.api.api_routes import OF_CLUSTERS, routes
from headwater.edge.jetstream.api.api_stream import not_clustered
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import PagedStreamInfo
from headwater.edge.jetstream.model.requests import Context, Handler, Route
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.kernel.later import Then
from headwater.hub.api.admin import StreamAdmin
from headwater.hub.api.change_queue import ChangeQueue
from headwater.hub.api.cluster import ELECTION_SECONDS, Cluster
from headwater.hub.api.moves import Moves
from headwater.hub.api.relay import META, Copy, Relay, copy_of
from headwater.hub.api.stream_requests import StreamRequests
from headwater.hub.meta.assignment import Assignment
from headwater.hub.routes.route_conn import RouteConn

API_SUBJECTS = (
    b"$JS.API.*",
    b"$JS.API.STREAM.>",
    b"$JS.API.ACCOUNT.>",
    b"$JS.API.META.>",
    b"$JS.API.SERVER.REMOVE",
    b"$JS.API.CONSUMER.*",
    b"$JS.API.CONSUMER.CREATE.>",
    b"$JS.API.CONSUMER.DURABLE.>",
    b"$JS.API.CONSUMER.NAMES.*",
    b"$JS.API.CONSUMER.LIST.*",
    b"$JS.API.CONSUMER.INFO.*.*",
    b"$JS.API.CONSUMER.DELETE.*.*",
    b"$JS.API.CONSUMER.PAUSE.*.*",
    b"$JS.API.CONSUMER.UNPIN.*.*",
    b"$JS.API.CONSUMER.RESET.*.*",
    b"$JS.API.CONSUMER.LEADER.>",
)
"""What routers of a cluster listen on. Pulls and direct gets go to whoever serves them alone. What
only the system account may ask is not answered to others, as with nats-server; what that does not
know (SERVER.DRAIN) finds nobody, so that who asks learns of it at once."""
OFFLINE = {"CONSUMER.INFO": errors.CONSUMER_OFFLINE}
"""What is said of a stream whose nodes are away, where that is not STREAM_OFFLINE."""
OWN_ROUTES = {
    "ACCOUNT.STREAM.MOVE": Route(not_clustered, "stream_update", 2, 2),
    "ACCOUNT.STREAM.CANCEL_MOVE": Route(not_clustered, "stream_cancel_move", 2, 2),
}
"""Requests that nodes without a cluster leave alone."""
CHANGES = {
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
    "STREAM.PEER.REMOVE",
    "STREAM.PEER.EVACUATE",
    "STREAM.CANCEL_MOVE",
    "ACCOUNT.STREAM.MOVE",
    "ACCOUNT.STREAM.CANCEL_MOVE",
}
"""What the meta leader does for a few at a time."""


class ClusterRoutes:
    """Makes the table of the API."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.streams = StreamRequests(cluster)
        self.admin = StreamAdmin(cluster)
        self.moves = Moves(cluster, self.streams)
        self.relay = Relay(cluster)
        jetstream = cluster.jetstream
        self.queue = ChangeQueue(jetstream.kernel.loop, jetstream.request_queue_limit)

    def table(self) -> dict[str, Route]:
        """Every request that is served, by its name below `$JS.API.`."""
        found = {**routes(), **OWN_ROUTES}
        requests = self.streams
        leaders: dict[str, Handler] = {
            "INFO": requests.account_info,
            "STREAM.CREATE": requests.create,
            "STREAM.UPDATE": requests.update,
            "STREAM.DELETE": requests.delete,
            "STREAM.RESTORE": requests.restore,
            "STREAM.NAMES": requests.names,
            "STREAM.LIST": requests.listing,
            "STREAM.PEER.REMOVE": self.moves.remove_peer,
            "STREAM.PEER.EVACUATE": self.moves.evacuate_peer,
            "STREAM.CANCEL_MOVE": self.moves.cancel_move,
            "ACCOUNT.STREAM.MOVE": self.moves.own_move,
            "ACCOUNT.STREAM.CANCEL_MOVE": self.moves.own_cancel,
        }
        own: dict[str, Handler] = {
            "STREAM.LEADER.STEPDOWN": self.admin.step_down,
            "CONSUMER.LEADER.STEPDOWN": self.admin.consumer_step_down,
        }
        for name, route in found.items():
            if name in leaders:
                asked = leaders[name]
                handler = self.by_meta_leader(
                    self.queue.bounded(asked) if name in CHANGES else asked
                )
            else:
                offline = OFFLINE.get(name, errors.STREAM_OFFLINE)
                handler = self.by_stream_leader(own.get(name, route.handler), offline)
            check = None if name in OF_CLUSTERS else route.check
            found[name] = msgspec.structs.replace(route, handler=handler, check=check)
        return found

    # -- the meta leader ----------------------------------------------------------

    def by_meta_leader(self, handler: Handler) -> Handler:
        """A handler that the meta leader runs, and nobody else."""
        group = self.cluster.group

        def serve(
            js: AccountJetStream,
            tokens: list[str],
            payload: bytes,
            ctx: Context,
            waits_until: float = 0.0,
            asked: int = -1,
        ) -> Any:
            def again(waits_until: float = waits_until, asked: int = asked) -> Any:
                return serve(js, tokens, payload, ctx, waits_until, asked)

            copy = copy_of(js, ctx)
            self.relay.hear(copy)
            if group.serves and not group.sure:
                return self._when_confirmed(again)
            if group.serves:
                term = group.term
                if asked != term and self.relay.is_doubtful(copy, META):
                    return self.relay.unless_done(copy, term, lambda: again(asked=term))
                if not self.relay.may_do(copy, META, term):
                    return None
                return handler(js, tokens, payload, ctx)
            if self.cluster.is_led_elsewhere(group.leader):
                by_client = not isinstance(ctx.sender, RouteConn)
                if by_client and self.cluster.founding.rests_on(group.leader, js.name):
                    raise errors.NOT_ENABLED_FOR_ACCOUNT.error()
                self.relay.leave(copy, META, group.leader, waits_until > 0)
                if by_client:
                    self.relay.left_by_client(copy, group.leader)
                return None
            return self._when_led(waits_until or self._now() + ELECTION_SECONDS, again)

        return serve

    async def _when_confirmed(self, run: Callable[[], Any]) -> Any:
        """Another node may lead the cluster by now: ask, and go on with whatever comes out."""
        await self.cluster.confirmed(self.cluster.group.confirm)
        answer = run()
        return await answer if isinstance(answer, Awaitable) else answer

    def _now(self) -> float:
        now: float = self.cluster.jetstream.kernel.loop.time()
        return now

    async def _when_led(self, waits_until: float, run: Callable[[float], Any]) -> Any:
        """Look again when somebody leads the cluster. Raises JetStreamError when that is too late:
        `waits_until` in seconds of the loop."""
        group = self.cluster.group

        def leader_known() -> bool:
            return group.serves or self.cluster.is_led_elsewhere(group.leader)

        left = waits_until - self._now()
        if left <= 0 or not await self.cluster.wait(leader_known, left):
            raise errors.CLUSTER_NOT_AVAIL.error()
        answer = run(waits_until)
        return await answer if isinstance(answer, Awaitable) else answer

    # -- a stream's leader --------------------------------------------------------

    def by_stream_leader(self, handler: Handler, offline: errors.Kind) -> Handler:
        """A handler that runs where the stream is led. What is not there, or is `offline` with its
        node, is told by the meta leader."""
        by_meta = self.by_meta_leader(self._by_nobody(handler, offline))
        cluster = self.cluster

        def serve(
            js: AccountJetStream,
            tokens: list[str],
            payload: bytes,
            ctx: Context,
            waits_until: float = 0.0,
            asked: int = -1,
        ) -> Any:
            def again(waits_until: float = waits_until, asked: int = asked) -> Any:
                return serve(js, tokens, payload, ctx, waits_until, asked)

            copy = copy_of(js, ctx)
            if not waits_until and asked < 0:
                if self.relay.came_early(copy):
                    return None
                self.relay.hear(copy)
            stream = cluster.here(js.name, tokens[0])
            if stream is not None and cluster.hands_over(stream):
                return self._when_handed_over(
                    stream, waits_until or self._now() + ELECTION_SECONDS, again
                )
            if stream is not None and not cluster.is_sure(stream):
                return self._when_sure(stream, again)
            if stream is not None:
                key, term = stream.incarnation, cluster.term_of(stream)
                if asked != term and self.relay.is_doubtful(copy, key):
                    return self.relay.unless_done(copy, term, lambda: again(asked=term))
                if not self.relay.may_do(copy, key, term):
                    return None
                return self._with_cluster_info(js, tokens[0], handler(js, tokens, payload, ctx))
            known = cluster.state.stream(js.name, tokens[0])
            if known is None or self._is_away(known.assignment):
                return by_meta(js, tokens, payload, ctx)
            return self._led_elsewhere(js, ctx, copy, known.assignment, waits_until, again)

        return serve

    def _is_away(self, assignment: Assignment) -> bool:
        """Whether no node is there that could answer for a stream, as far as is known here."""
        if assignment.lost:
            return True
        founding, holders = self.cluster.founding, assignment.holders
        return self.cluster.number not in holders and not any(map(founding.answers, holders))

    def _by_nobody(self, handler: Handler, offline: errors.Kind) -> Handler:
        """What the meta leader does about a request that nobody else answers: it refuses it, or
        finds by `handler` that there is no such stream."""
        cluster = self.cluster

        def serve(
            js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
        ) -> Any:
            known = cluster.state.stream(js.name, tokens[0])
            if known is None:
                return handler(js, tokens, payload, ctx)
            assignment = known.assignment
            if assignment.lost:
                raise errors.STREAM_OFFLINE_REASON.error(err=assignment.lost)
            stopping = [n for n in assignment.holders if cluster.founding.is_online(n)]
            if stopping:
                return self._unless_done(copy_of(js, ctx), stopping[0], offline)
            raise offline.error()

        return serve

    async def _unless_done(self, copy: Copy, number: int, offline: errors.Kind) -> None:
        """Refuse a request that a node would have answered which stops, unless it has done so."""
        if not await self.relay.was_done_by(number, copy):
            raise offline.error()

    async def _when_handed_over(
        self, stream: Stream, waits_until: float, run: Callable[[float], Any]
    ) -> Any:
        """Another node is about to lead the stream: leave the request to it, or go on when it does
        not. Raises JetStreamError when that is too late; `waits_until` as of `_when_led`."""
        left = waits_until - self._now()
        if left <= 0 or not await self.cluster.handed_over(stream, left):
            raise errors.CLUSTER_NOT_AVAIL.error()
        answer = run(waits_until)
        return await answer if isinstance(answer, Awaitable) else answer

    async def _when_sure(self, stream: Stream, run: Callable[[], Any]) -> Any:
        """Another node may lead the stream by now: ask, and go on with whatever comes out."""
        await self.cluster.confirmed_for(stream)
        answer = run()
        return await answer if isinstance(answer, Awaitable) else answer

    def _led_elsewhere(
        self,
        js: AccountJetStream,
        ctx: Context,
        copy: Copy,
        assignment: Assignment,
        waits_until: float,
        run: Callable[[float], Any],
    ) -> Any:
        """Answer when this node is about to lead, or when nobody does. Otherwise leave the request
        to who leads. `waits_until` as of `_when_led`; 0 for a request that has not waited."""
        cluster = self.cluster
        if cluster.number not in assignment.holders:
            there = (n for n in assignment.holders if cluster.founding.answers(n))
            self._leave(copy, ctx, assignment, next(there, 0), waits_until)
            return None
        leader = cluster.leader_of(assignment)
        if not waits_until and cluster.is_led_elsewhere(leader):
            # As most are, without a task: every node hears every request.
            self._leave(copy, ctx, assignment, leader, waits_until)
            return None
        return self._when_stream_led(js, ctx, copy, assignment, waits_until, run)

    async def _when_stream_led(
        self,
        js: AccountJetStream,
        ctx: Context,
        copy: Copy,
        assignment: Assignment,
        waits_until: float,
        run: Callable[[float], Any],
    ) -> Any:
        """Answer when this node leads a stream that it has a replica of, or refuse when nobody
        does. `waits_until` is when that is too late, 0 for a request that has not waited yet."""
        cluster = self.cluster

        def leader_known() -> bool:
            there = cluster.here(js.name, assignment.name) is not None
            return there or self.cluster.is_led_elsewhere(cluster.leader_of(assignment))

        if not leader_known() and not waits_until:
            waits_until = self._now() + ELECTION_SECONDS
        left = waits_until - self._now() if waits_until else ELECTION_SECONDS
        if left <= 0 or not await cluster.wait(leader_known, left):
            if assignment.incarnation in cluster.applier.failed:
                raise cluster.applier.failed[assignment.incarnation]
            raise errors.CLUSTER_NOT_AVAIL.error()
        if cluster.here(js.name, assignment.name) is None:
            to = cluster.leader_of(assignment)
            self._leave(copy, ctx, assignment, to, waits_until)
            return None
        answer = run(waits_until)
        return await answer if isinstance(answer, Awaitable) else answer

    def _leave(
        self, copy: Copy, ctx: Context, assignment: Assignment, to: int, waits_until: float
    ) -> None:
        """Leave a request to the node that leads its stream."""
        self.relay.leave(copy, assignment.incarnation, to, waits_until > 0)
        if to and not isinstance(ctx.sender, RouteConn):
            self.relay.left_by_client(copy, to)
        elif to and self.cluster.group.serves:
            self.relay.left_by_meta(copy, to)

    def _with_cluster_info(self, js: AccountJetStream, name: str, answer: Any) -> Any:
        """Put into an answer where the stream is."""
        if isinstance(answer, Awaitable):
            return Then(answer, lambda found: self._with_cluster_info(js, name, found))
        self._put_cluster_info(js, name, answer)
        return answer

    def _put_cluster_info(self, js: AccountJetStream, name: str, answer: Any) -> None:
        stream = self.cluster.here(js.name, name)
        if stream is None or answer is None:
            return
        if isinstance(answer, PagedStreamInfo):
            answer.alternates = self.cluster.alternates(js.name, name)
        for each in [answer, *getattr(answer, "consumers", ())]:
            if not hasattr(each, "cluster"):
                continue
            consumer = stream.consumers.get(getattr(each, "name", ""))
            each.cluster = (
                self.cluster.consumer_cluster_info(consumer)
                if consumer is not None and hasattr(each, "stream_name")
                else self.cluster.cluster_info(stream)
            )
