"""What operators ask of a cluster: to let another node lead, and to do without a node.

Requests about streams come in the stream's account and are answered by its leader or the meta
leader; those about the cluster come in the system account, and the meta leader answers them.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.api import api_consumer
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import Placement, StreamInfo, Success, Wire
from headwater.edge.jetstream.model.requests import (
    PREFIX,
    TYPE_PREFIX,
    Context,
    check_level,
    is_json,
)
from headwater.edge.jetstream.progress.consumer_setup import is_replicated
from headwater.edge.kernel.kernel import CallbackSink
from headwater.hub.api.cluster import ELECTION_SECONDS, Cluster, node_number
from headwater.hub.api.moves import Moves
from headwater.hub.api.relay import HEARD, META, Copy, Passing, Relay
from headwater.hub.api.stream_requests import StreamRequests
from headwater.hub.meta.assignment import NO_GROUP, Assignment
from headwater.hub.meta.meta_group import NoLeader
from headwater.hub.meta.placement import Node
from headwater.hub.raft.model.errors import RaftError

log = logging.getLogger("headwater.meta")

Handler = Callable[[list[str], bytes], Any]
Served = Callable[..., None]


class StepDownRequest(Wire):
    """Who should lead instead."""

    placement: Placement | None = None


class ServerRequest(Wire):
    """A member by its server name, or by its id, which counts when both are there."""

    peer: str = ""
    peer_id: str = ""


class Purge(Wire):
    """Answer to ACCOUNT.PURGE."""

    initiated: bool = False


class DrainRequest(Wire):
    """A node by its server name or id, and whether it may lead again."""

    peer: str
    undo: bool = False


class StreamAdmin:
    """Requests about one stream."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def step_down(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Success:
        """STREAM.LEADER.STEPDOWN.<stream>, on the stream's leader."""
        js.stream(tokens[0])
        known = self.cluster.state.stream(js.name, tokens[0])
        if known is not None:
            self._transfer(known.assignment, payload)
        return Success(success=True)

    def consumer_step_down(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Success:
        """CONSUMER.LEADER.STEPDOWN.<stream>.<consumer>: a consumer is led with its stream. One that
        asks for a single replica has nobody to give way to."""
        if not is_replicated(api_consumer.find(js, tokens)):
            return Success(success=True)
        return self.step_down(js, tokens, payload, ctx)

    def _transfer(self, assignment: Assignment, payload: bytes) -> None:
        cluster = self.cluster
        if assignment.group == NO_GROUP or cluster.groups is None:
            return
        others = [n for n in assignment.peers if n != cluster.number]
        if not others:
            return
        status = cluster.groups.status(assignment.group)
        peers = status.peers if status is not None else ()
        target = successor(cluster, payload, others, {p.number for p in peers if p.current})
        try:
            cluster.groups.transfer(assignment.group, target)
        except RaftError as error:
            raise errors.CLUSTER_NOT_AVAIL.error() from error


class SystemAdmin:
    """Requests about the cluster, in the system account."""

    def __init__(
        self,
        cluster: Cluster,
        requests: StreamRequests,
        relay: Relay,
        account: Account,
        drain: Callable[[bool], int],
    ) -> None:
        """`drain` hands over what is led here, or with False lets this node lead again; it returns
        how many groups are still led here that others could lead."""
        self.cluster = cluster
        self.requests = requests
        self.relay = relay
        relay.system = self._passed_on
        self.moves = Moves(cluster, requests)
        self.account = account
        self.drain = drain
        routes: dict[str, tuple[str, Handler]] = {
            "META.LEADER.STEPDOWN": ("meta_leader_stepdown", self.step_down),
            "SERVER.REMOVE": ("meta_server_remove", self.remove_server),
            "SERVER.EVACUATE": ("meta_server_evacuate", self.evacuate_server),
            "ACCOUNT.PURGE.*": ("account_purge", self.purge),
            "ACCOUNT.STREAM.MOVE.*.*": ("stream_update", self.move),
            "ACCOUNT.STREAM.CANCEL_MOVE.*.*": ("stream_cancel_move", self.cancel),
        }
        self._serve: dict[str, Served] = {}
        for name, route in routes.items():
            self._serve[name.rstrip(".*")] = serve = self._serving(name, *route)
            account.insert(CallbackSink(f"$JS.API.{name}".encode(), serve))
        account.insert(CallbackSink(b"$JS.API.SERVER.DRAIN", self.serve_drain))

    def _serving(self, name: str, kind: str, handler: Handler) -> Callable[..., None]:
        """The callback that takes one kind of request; only the meta leader answers. While there is
        none a request waits a moment, and is then refused with 10008 by whoever has heard it."""
        wildcards = name.count("*")

        def serve(
            subject: bytes,
            reply: bytes,
            block: bytes,
            payload: bytes,
            origin: object,
            passing: Passing = HEARD,
        ) -> None:
            group = self.cluster.group
            copy = Copy(passing, self.account.name, subject, reply, block, payload)
            if not group.leads and self.cluster.is_led_elsewhere(group.leader):
                self.relay.leave(copy, META, group.leader, False)
                return
            tokens = subject.decode("utf-8", "replace").split(".")
            tokens = tokens[len(tokens) - wildcards :]
            self.requests.spawn(self._answer(copy, kind, handler, tokens))

        return serve

    def _passed_on(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, passing: Passing
    ) -> None:
        """A request that another node has left to this one."""
        name = subject.decode("utf-8", "replace").removeprefix(PREFIX)
        for begin, serve in self._serve.items():
            if name == begin or name.startswith(f"{begin}."):
                serve(subject, reply, block, payload, None, passing)

    def serve_drain(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, origin: object
    ) -> None:
        """SERVER.DRAIN: the named node answers; the meta leader does when there is no such node."""
        answer: dict[str, Any] = {"type": f"{TYPE_PREFIX}server_drain_response"}
        try:
            request = decode(payload, DrainRequest)
            number = self.cluster.find_peer(request.peer)
            if not number:
                raise errors.CLUSTER_SERVER_NOT_MEMBER.error()
            if number != self.cluster.number:
                return
            answer["success"] = True
            answer["leads"] = self.drain(not request.undo)
        except JetStreamError as error:
            if not self.cluster.group.leads:
                return
            answer["error"] = error.wire()
        if reply:
            self.account.send(reply, msgspec.json.encode(answer))

    async def _answer(
        self, copy: Copy, kind: str, handler: Handler, tokens: list[str]
    ) -> None:
        answer: dict[str, Any] = {"type": f"{TYPE_PREFIX}{kind}_response"}
        try:
            if not await self._is_to_answer():
                self.relay.leave(copy, META, self.cluster.group.leader, True)
                return
            relay, term = self.relay, self.cluster.group.term
            if relay.is_doubtful(copy, META) and await relay.is_done(copy, term):
                return
            if not relay.may_do(copy, META, term):
                return
            check_level(copy.headers)
            answer.update(msgspec.to_builtins(await handler(tokens, copy.payload)))
        except JetStreamError as error:
            answer["error"] = error.wire()
        except (RaftError, NoLeader) as error:
            log.warning("the request %s is refused: %s; ask again", kind, error)
            answer["error"] = errors.CLUSTER_SERVER_MEMBER_CHANGE_INFLIGHT.error().wire()
        body = msgspec.json.encode(answer)
        if copy.reply:
            self.account.send(copy.reply, body)
        # As with nats-server, nothing is told of who asks in the system account.
        jetstream = self.cluster.jetstream
        fields = {"server": jetstream.server_name, "client": {}}
        jetstream.advisories.audit(self.account, fields, copy.subject, copy.payload, body)

    async def _is_to_answer(self) -> bool:
        """Whether this node leads by the time that somebody does. Raises JetStreamError."""
        cluster, group = self.cluster, self.cluster.group

        def known() -> bool:
            return group.leads or cluster.is_led_elsewhere(group.leader)

        if not await cluster.wait(known, ELECTION_SECONDS):
            raise errors.CLUSTER_NOT_AVAIL.error()
        return group.leads

    async def step_down(self, tokens: list[str], payload: bytes) -> Success:
        """META.LEADER.STEPDOWN"""
        cluster = self.cluster
        others = [n for n in cluster.group.members if n != cluster.number]
        current = {node_number(p.peer) for p in cluster.meta_info().replicas if p.current}
        cluster.group.step_down(successor(cluster, payload, others, current))
        return Success(success=True)

    def _named(self, payload: bytes) -> int:
        """The member that a request names. Raises JetStreamError."""
        if payload.strip() in (b"", b"{}"):
            raise errors.BAD_REQUEST.error()
        request = decode(payload, ServerRequest)
        if request.peer_id:
            number = node_number(request.peer_id)
        else:
            number = self.cluster.find_peer(request.peer)
        if number not in {*self.cluster.group.members, *self.cluster.state.members}:
            raise errors.CLUSTER_SERVER_NOT_MEMBER.error()
        return number

    async def remove_server(self, tokens: list[str], payload: bytes) -> Success:
        """SERVER.REMOVE: the node is no member any more, and others take its part of streams."""
        number = self._named(payload)
        log.warning(
            "%s is removed from the cluster by order; other nodes take its part of streams",
            self.cluster.names(number),
        )
        await self.cluster.group.remove(number)
        await self.moves.evacuate(number, removed=True)
        return Success(success=True)

    async def evacuate_server(self, tokens: list[str], payload: bytes) -> Success:
        """SERVER.EVACUATE: others take a node's part of all streams; it stays a member."""
        number = self._named(payload)
        log.info("streams leave %s by order", self.cluster.names(number))
        await self.moves.evacuate(number, removed=False)
        return Success(success=True)

    async def move(self, tokens: list[str], payload: bytes) -> StreamInfo:
        """ACCOUNT.STREAM.MOVE.<account>.<stream>"""
        return await self.moves.move(tokens[0], tokens[1], payload)

    async def cancel(self, tokens: list[str], payload: bytes) -> StreamInfo:
        """ACCOUNT.STREAM.CANCEL_MOVE.<account>.<stream>"""
        return await self.moves.cancel(*tokens)

    async def purge(self, tokens: list[str], payload: bytes) -> Purge:
        """ACCOUNT.PURGE.<account>: all its streams are deleted."""
        if {"/", "\\"} & set(tokens[0]):
            text = "account name can not contain path separators"
            raise errors.STREAM_GENERAL_ERROR.error(err=text)
        found = list(self.cluster.state.of_account(tokens[0]).values())
        log.info("all %d streams of account '%s' are deleted by order", len(found), tokens[0])
        for known in found:
            await self.requests.drop(known.assignment)
        return Purge(initiated=True)


def successor(cluster: Cluster, payload: bytes, others: list[int], current: set[int]) -> int:
    """The node that is to lead instead: one of `others` that a request wants. When the preferred
    one is away, any other takes its place. `current` have everything: they go first.

    Raises JetStreamError 10005 when there is none.
    """
    online = {node.number: node for node in cluster.candidates() if node.online}
    fit = [number for number in others if number in online]
    if is_json(payload):
        placement = decode(payload, StepDownRequest).placement
        if placement is not None and placement.preferred:
            wanted = preferred(cluster, placement.preferred, others)
            fit = [wanted] if wanted in fit else fit
        elif placement is not None:
            fit = [number for number in fit if fits(placement, online[number])]
    if not fit:
        raise errors.CLUSTER_NO_PEERS.error(err="no replacement peer connected")
    return next((number for number in fit if number in current), fit[0])


def fits(placement: Placement, node: Node) -> bool:
    """Whether a node is one of those that a request wants to lead: it has all tags as they are."""
    tags = {tag.lower() for tag in node.tags}
    wanted = {tag.lower() for tag in placement.tags}
    return wanted <= tags and placement.cluster in ("", node.cluster)


def preferred(cluster: Cluster, name: str, others: list[int]) -> int:
    """The node of a server's name. Raises JetStreamError 10005 when it cannot lead instead."""
    number = next((n for n in [cluster.number, *others] if cluster.names(n) == name), 0)
    hello = cluster.founding.hello_of(number) if number else None
    if not number:
        text = f'preferred server "{name}" not known'
    elif number not in others:
        text = f'preferred server "{name}" is already leader'
    elif hello is not None and hello.leaving and cluster.founding.is_online(number):
        text = (
            f'preferred server "{name}" is to lead nothing: choose another one, '
            "or start it again"
        )
    else:
        return number
    raise errors.CLUSTER_NO_PEERS.error(err=text)
