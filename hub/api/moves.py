"""Orders that put a stream on other nodes, and what takes them back; on the meta leader.

A stream that is on its way says so in its assignment (`Change`), until its leader has found that
the group has the members that are wanted. Its data is copied first, and let go of last.
"""

import logging
from functools import partial

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import Placement, StreamConfig, StreamInfo, Success, Wire
from headwater.edge.jetstream.model.requests import Context
from headwater.hub.api.cluster import Cluster
from headwater.hub.api.stream_requests import StreamRequests, raw, refuse_second
from headwater.hub.meta.assignment import NO_GROUP, Assignment
from headwater.hub.meta.state import Known

log = logging.getLogger("headwater.meta")


class PeerRequest(Wire):
    """A node of a stream by its server name or id."""

    peer: str = ""


class MoveRequest(Wire):
    """Which of a stream's nodes should not have it any more; any when `server` is empty. `tags`
    are asked of the new one besides those of the stream's placement."""

    server: str = ""
    cluster: str = ""
    domain: str = ""
    tags: list[str] = []


class Moves:
    """Handlers; each is called on the meta leader only. All raise JetStreamError."""

    def __init__(self, cluster: Cluster, requests: StreamRequests) -> None:
        self.cluster = cluster
        self.requests = requests

    def _known(self, account: str, name: str) -> Known:
        known = self.cluster.state.stream(account, name)
        if known is None:
            raise errors.STREAM_NOT_FOUND.error()
        return known

    # -- one node of a stream -----------------------------------------------------

    async def remove_peer(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Success:
        """STREAM.PEER.REMOVE.<stream>: another node takes a node's part."""
        return await self.requests.again(lambda: self._replace(js, tokens[0], payload, True))

    async def evacuate_peer(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Success:
        """STREAM.PEER.EVACUATE.<stream>: the same. A node always keeps its part until another one
        has it, so both are one here; only what they refuse differs."""
        return await self.requests.again(lambda: self._replace(js, tokens[0], payload, False))

    async def _replace(
        self, js: AccountJetStream, name: str, payload: bytes, remove: bool
    ) -> Success:
        if not payload:
            raise errors.BAD_REQUEST.error()
        request = decode(payload, PeerRequest)
        if not request.peer:
            raise errors.BAD_REQUEST.error()
        known = self._known(js.name, name)
        number = self.cluster.find_peer(request.peer)
        change = known.assignment.change
        if number not in known.assignment.peers:
            if change is None or number not in change.leaving:
                raise errors.CLUSTER_PEER_NOT_MEMBER.error()
            if remove:
                return Success(success=True)
            raise errors.PEER_REMAP.error()
        await self.replace_peer(known, number, fewer=False)
        return Success(success=True)

    async def replace_peer(self, known: Known, number: int, fewer: bool) -> None:
        """Put another node in the place of one of a stream's. With `fewer`, and when there is no
        other, it gets none; but the last one stays. A member does not get it back then. Raises
        JetStreamError, Stale."""
        old = known.assignment
        keep = [peer for peer in old.peers if peer != number]
        if old.lost or (not keep and not self.cluster.founding.is_online(number)):
            # Nobody else has what it has.
            raise errors.PEER_REMAP.error()
        try:
            peers = self.requests.place(old.account, known.config, keep, [number])
        except JetStreamError as error:
            if not keep or not fewer:
                raise errors.PEER_REMAP.error() from error
            peers = keep
        wanted = self.requests.with_peers(old, peers)
        if peers == keep and number in self.cluster.state.members:
            wanted.evacuated[number] = self.cluster.state.members[number].boot
        await self.requests.submit(wanted)

    async def evacuate(self, number: int, removed: bool) -> None:
        """Have other nodes take a node's part in all streams. What nobody else can have stays, and
        is told to the log. `removed`: the node is no member any more."""
        for known in list(self.cluster.state.streams.values()):
            there = known.assignment
            if number not in there.peers or (removed and there.group == NO_GROUP):
                continue
            try:
                await self.requests.again(partial(self._empty, there.key, number))
            except JetStreamError as error:
                log.error(
                    "stream '%s > %s' has no other node for what %s has: %s; add a node",
                    *there.key,
                    self.cluster.names(number),
                    error,
                )

    async def _empty(self, key: tuple[str, str], number: int) -> None:
        known = self.cluster.state.stream(*key)
        if known is not None and number in known.assignment.peers:
            await self.replace_peer(known, number, fewer=True)

    # -- moves --------------------------------------------------------------------

    async def move(self, account: str, name: str, payload: bytes) -> StreamInfo:
        """ACCOUNT.STREAM.MOVE.<account>.<stream>"""
        request = decode(payload, MoveRequest)
        return await self.requests.again(lambda: self._move(account, name, request))

    async def _move(self, account: str, name: str, request: MoveRequest) -> StreamInfo:
        self._check_account(account)
        number = self._server(request) if request.server else 0
        known = self._known(account, name)
        old = known.assignment
        if request.server and not number:
            raise errors.CLUSTER_SERVER_NOT_MEMBER.error()
        if number and number not in old.peers:
            raise errors.CLUSTER_PEER_NOT_MEMBER.error()
        leaves = number or self._least_needed(old)
        keep = [peer for peer in old.peers if peer != leaves]
        config = with_tags(known.config, request.tags)
        peers = self.requests.place(old.account, config, keep, [leaves])
        refuse_second(old, True)
        return await self.requests.reassign(old, known.config, peers, True)

    def _server(self, request: MoveRequest) -> int:
        number = self.cluster.find_peer(request.server)
        wanted = (request.cluster, request.domain)
        own = (self.cluster.cluster_name, self.cluster.jetstream.domain)
        fits = all(want in ("", has) for want, has in zip(wanted, own, strict=True))
        return number if fits else 0

    def _least_needed(self, there: Assignment) -> int:
        """The node to take a stream from when nobody is named: one that is away, or does not
        lead."""
        leader = self.cluster.leader_of(there)
        online = self.cluster.founding.is_online
        return min(there.peers, key=lambda n: (online(n), n == leader))

    def _check_account(self, account: str) -> None:
        known = self.cluster.state.of_account(account)
        if not known and account not in self.cluster.jetstream.accounts:
            raise errors.NO_ACCOUNT.error()

    # -- taking it back -----------------------------------------------------------

    async def cancel_move(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamInfo:
        """STREAM.CANCEL_MOVE.<stream>"""
        return await self.cancel(js.name, tokens[0])

    async def cancel(self, account: str, name: str) -> StreamInfo:
        """ACCOUNT.STREAM.CANCEL_MOVE.<account>.<stream>: a stream that is on its way goes back to
        its nodes and number of replicas."""
        self._check_account(account)
        return await self.requests.again(lambda: self._cancel(account, name))

    async def _cancel(self, account: str, name: str) -> StreamInfo:
        known = self._known(account, name)
        old = known.assignment
        origin = old.change.origin if old.change is not None else None
        if origin is None:
            raise errors.STREAM_RECONFIGURE_NOT_IN_PROGRESS.error()
        config = msgspec.structs.replace(
            known.config, num_replicas=origin.num_replicas, placement=origin.placement
        )
        members = self.cluster.state.members
        peers = [number for number in origin.peers if number in members]
        if not peers:
            raise errors.CLUSTER_NO_PEERS.error(err="no suitable peers for placement, peer offline")
        wanted = self.requests.with_peers(old, peers)
        done = await self.requests.submit(msgspec.structs.replace(wanted, config=raw(config)))
        return await self.requests.made(done)

    # -- requests in an ordinary account ------------------------------------------

    async def own_move(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamInfo | None:
        """The same as `move` in the account itself; nobody hears of another one's."""
        return await self.move(tokens[0], tokens[1], payload) if tokens[0] == js.name else None

    async def own_cancel(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamInfo | None:
        """The same as `cancel` in the account itself."""
        return await self.cancel(*tokens) if tokens[0] == js.name else None


def with_tags(config: StreamConfig, tags: list[str]) -> StreamConfig:
    """A configuration that asks for more tags."""
    if not tags:
        return config
    placement = config.placement or Placement()
    placement = msgspec.structs.replace(placement, tags=[*placement.tags, *tags])
    return msgspec.structs.replace(config, placement=placement)
