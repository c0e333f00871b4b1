"""What the meta leader does with requests that make, change, delete or list streams."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from headwater.edge.jetstream.account.account_js import AccountJetStream, promised_bytes
from headwater.edge.jetstream.api import api_stream, long_work
from headwater.edge.jetstream.config import stream_config, stream_sources
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import (
    LIST_LIMIT,
    NAMES_LIMIT,
    AccountInfo,
    StreamConfig,
    StreamCreated,
    StreamInfo,
    StreamList,
    StreamListRequest,
    StreamNames,
    StreamNamesRequest,
    StreamRequest,
    Success,
)
from headwater.edge.jetstream.model.requests import Context, require_empty
from headwater.hub.api.cluster import Cluster
from headwater.hub.api.questions import InfosQuestion, Questions, Usage, added
from headwater.hub.cluster.transport import CallFailed
from headwater.hub.meta import placement
from headwater.hub.meta.assignment import (
    NEW_GROUP,
    NO_GROUP,
    Assignment,
    Change,
    Gone,
    Origin,
)
from headwater.hub.meta.state import Conflict, Known
from headwater.security.errors import StepsExceeded

log = logging.getLogger("headwater.meta")

ANNOUNCED_SECONDS = 4.0
"""A request for a stream waits so long for nodes that have yet to tell of theirs."""
STALE_TRIES = 5
"""Of a change that comes too late each time."""

T = TypeVar("T")


class Stale(Exception):
    """A stream was changed after something about it was decided."""


def refuse_second(there: Assignment, moves: bool) -> None:
    """Refuse to move or scale a stream that is on its way somewhere. Raises JetStreamError."""
    change = there.change
    if change is not None and change.moves:
        raise errors.STREAM_MOVE_IN_PROGRESS.error()
    if change is not None and moves:
        raise errors.STREAM_RECONFIGURE_IN_PROGRESS.error()


class StreamRequests:
    """Handlers; each is called on the meta leader only."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.ask = Questions(cluster)
        self._tasks: set[asyncio.Task[None]] = set()
        self._coming: dict[tuple[str, str], StreamConfig] = {}
        """By account and name: what was judged, and is not committed yet. It counts for limits."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Answer a request that needs other nodes."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- create -------------------------------------------------------------------

    async def create(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamCreated:
        """STREAM.CREATE.<stream>"""
        await self._streams_announced()
        wanted = api_stream.wanted_stream(tokens, payload, ctx)
        apart = await long_work.find_apart(wanted.subjects)
        scope = self._scope(js, wanted.pedantic, wanted.num_replicas, apart)
        config = stream_config.checked(wanted, scope)
        state = self.cluster.state
        known = state.stream(js.name, config.name)
        if known is not None:
            if stream_config.same_config(known.config, config):
                return api_stream.created(await self.made(known.assignment), did_create=False)
            raise errors.STREAM_NAME_EXIST.error()
        stream_sources.check_filters(config)
        self._refuse_overlap(js, config, "")
        others = self._configs(js)
        js.tiers.check_streams(config, others)
        js.tiers.check_consumers(config)
        js.tiers.check_bytes(config, others, None)
        peers = self.place(js.name, config)
        boots = self._boots(peers)
        assignment = Assignment(
            account=js.name,
            name=config.name,
            incarnation=js.account.kernel.chance.randbytes(16).hex(),
            created_ns=js.account.kernel.clock(),
            config=raw(config),
            group=NEW_GROUP if len(peers) > 1 else NO_GROUP,
            peers=peers,
            boots=boots,
            founders=dict(zip(peers, boots, strict=True)) if len(peers) > 1 else {},
        )
        with self._counted(js.name, config):
            done = await self.cluster.submit(assignment)
        if isinstance(done, Conflict):
            raise errors.STREAM_NAME_EXIST.error()
        try:
            return api_stream.created(await self.made(done))
        except JetStreamError as error:
            if error.err_code != errors.CLUSTER_NOT_AVAIL.err_code:
                await self.drop(done)
            raise

    async def _streams_announced(self) -> None:
        """Let nodes that come with streams of their own tell of them first. Another stream that
        got the name of one of these would take its place."""
        founding = self.cluster.founding
        if founding.awaits_streams():
            announced = asyncio.Event()
            founding.when_announced.append(announced.set)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANNOUNCED_SECONDS):
                    await announced.wait()

    def _configs(self, js: AccountJetStream) -> list[StreamConfig]:
        known = {each.name: each.config for each in self.cluster.state.of_account(js.name).values()}
        coming = {name: each for (of, name), each in self._coming.items() if of == js.name}
        return list({**known, **coming}.values())

    @contextlib.contextmanager
    def _counted(self, account: str, config: StreamConfig) -> Iterator[None]:
        """While a stream is being committed, others are judged as if it were."""
        key = account, config.name
        self._coming[key] = config
        try:
            yield
        finally:
            if self._coming.get(key) is config:
                del self._coming[key]

    def _scope(
        self, js: AccountJetStream, pedantic: bool, replicas: int, apart: Sequence[str] = ()
    ) -> stream_config.Scope:
        def lookup(name: str) -> StreamConfig | None:
            known = self.cluster.state.stream(js.name, name)
            return known.config if known is not None else None

        return msgspec.structs.replace(js.scope(pedantic, replicas, apart), lookup=lookup)

    def place(
        self,
        account: str,
        config: StreamConfig,
        keep: list[int] | None = None,
        ignore: list[int] | None = None,
    ) -> list[int]:
        """Nodes for a stream of an account, as of `placement.choose`. Raises JetStreamError."""
        unique = self.cluster.jetstream.options.jetstream.unique_tag
        nodes = self.cluster.candidates(account)
        return placement.choose(config, nodes, unique, keep or [], ignore or [])

    def _boots(self, peers: list[int], old: Assignment | None = None) -> list[int]:
        """Which disk of each node is meant. Those that stay are the members that they were; one
        that comes later gets a number that it cannot have had, since it may have been a member
        before and was removed."""
        members = self.cluster.state.members
        if old is None:
            return [members[n].boot for n in peers]
        kept = self._disks(old)
        now = self.cluster.jetstream.kernel.clock()
        return [kept.get(n) or max(now, members[n].boot + 1) for n in peers]

    def _disks(self, stream: Assignment) -> dict[int, int]:
        """Which disk of each of its nodes is meant. Earlier versions did not say it of a stream
        that was there before the cluster: it is on the disk with which the node was taken in."""
        boots = stream.boots or [self.cluster.state.boot_of(n) for n in stream.peers]
        return dict(zip(stream.peers, boots, strict=True))

    async def made(self, assignment: Assignment) -> StreamInfo:
        """A stream's info, once it is in force where it is led. Raises JetStreamError."""
        try:
            return await self.ask.made(assignment)
        except CallFailed as error:
            log.warning(
                "stream '%s > %s' is assigned, and its leader does not answer: %s; ask for its "
                "info",
                assignment.account,
                assignment.name,
                error,
            )
            raise errors.CLUSTER_NOT_AVAIL.error() from error

    async def drop(self, assignment: Assignment) -> None:
        """Delete a stream for good. Raises JetStreamError."""
        gone = Gone(
            account=assignment.account, name=assignment.name, incarnation=assignment.incarnation
        )
        await self.cluster.submit(gone)

    # -- update and delete --------------------------------------------------------

    def _known(self, js: AccountJetStream, name: str) -> Known:
        known = self.cluster.state.stream(js.name, name)
        if known is None:
            raise errors.STREAM_NOT_FOUND.error()
        return known

    async def update(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamInfo:
        """STREAM.UPDATE.<stream>"""
        await self._streams_announced()
        return await self.again(lambda: self._update(js, tokens, payload, ctx))

    async def _update(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamInfo:
        wanted = decode(payload, StreamRequest, ctx.strict)
        apart = await long_work.find_apart(wanted.subjects)
        scope = self._scope(js, wanted.pedantic, wanted.num_replicas, apart)
        stream_config.checked(api_stream.plain(wanted), scope)
        if wanted.name != tokens[0]:
            raise errors.STREAM_MISMATCH.error()
        known = self._known(js, tokens[0])
        stream_config.set_level(wanted)
        config = stream_config.checked_update(known.config, wanted, scope)
        js.tiers.check_consumers(config)
        js.tiers.check_bytes(config, self._configs(js), known.config)
        self._refuse_overlap(js, config, config.name)
        moves = bool(config.placement) and config.placement != known.config.placement
        scales = config.num_replicas != known.config.num_replicas
        if moves and scales:
            raise errors.STREAM_MOVE_AND_SCALE.error()
        if moves or scales:
            refuse_second(known.assignment, moves)
        peers = self._peers(known, config, moves) if moves or scales else known.assignment.peers
        with self._counted(js.name, config):
            return await self.reassign(known.assignment, config, peers, moves)

    def _refuse_overlap(self, js: AccountJetStream, config: StreamConfig, own: str) -> None:
        """Refuse subjects that another stream than `own` has."""
        try:
            taken = self.cluster.state.overlapping(js.name, config.subjects, own)
        except StepsExceeded:
            raise errors.invalid_config(errors.TOO_MANY_SUBJECTS) from None
        if taken:
            raise errors.STREAM_SUBJECT_OVERLAP.error()

    def _peers(self, known: Known, config: StreamConfig, moves: bool) -> list[int]:
        """The nodes of a stream with another configuration: as many as possible stay."""
        peers = known.assignment.peers
        if moves:
            nodes = {node.number: node for node in self.cluster.candidates()}
            stay = [n for n in peers if n in nodes and placement.may_stay(config, nodes[n])]
            return self.place(known.assignment.account, config, keep=stay)
        if config.num_replicas < len(peers):
            leader = self.cluster.leader_of(known.assignment) or peers[0]
            online = self.cluster.founding.is_online
            return sorted(peers, key=lambda n: (n != leader, not online(n)))[: config.num_replicas]
        return self.place(known.assignment.account, config, keep=peers)

    async def reassign(
        self, old: Assignment, config: StreamConfig, peers: list[int], moves: bool
    ) -> StreamInfo:
        """Give a stream another configuration or other nodes; returns its info, which may be of
        before its data has moved, and without the domain. Raises JetStreamError."""
        try:
            await self.ask.check(old, config)
        except CallFailed as error:
            raise errors.CLUSTER_NOT_AVAIL.error() from error
        origin = Origin(
            num_replicas=old.stream_config.num_replicas,
            placement=old.stream_config.placement,
            peers=old.peers,
            boots=list(self._disks(old).values()),
        )
        wanted = self.with_peers(old, peers, moves, origin)
        done = await self.submit(msgspec.structs.replace(wanted, config=raw(config)))
        info = await self.made(done)
        info.domain = ""
        return info

    def with_peers(
        self, old: Assignment, peers: list[int], moves: bool = False, origin: Origin | None = None
    ) -> Assignment:
        """The next version of a stream, with these nodes. One whose single node's log decides
        becomes a group when it is to be elsewhere."""
        wanted = msgspec.structs.replace(
            old,
            peers=peers,
            boots=self._boots(peers, old),
            version=old.version + 1,
            evacuated={n: boot for n, boot in old.evacuated.items() if n not in peers},
        )
        if set(peers) == set(old.peers):
            return wanted
        if old.group == NO_GROUP:
            wanted.group = NEW_GROUP
            wanted.founders = self._disks(old)
        before = old.change or Change(began_ns=self.cluster.jetstream.kernel.clock(), origin=origin)
        wanted.change = msgspec.structs.replace(
            before,
            moves=before.moves or moves,
            leaving=[n for n in {*old.peers, *before.leaving} if n not in peers],
        )
        return wanted

    async def submit(self, wanted: Assignment) -> Assignment:
        """Commit a changed stream. Raises Stale, JetStreamError."""
        done = await self.cluster.submit(wanted)
        if isinstance(done, Conflict):
            raise Stale(wanted.name)
        return done  # type: ignore[no-any-return]  # what an assignment becomes

    async def again(self, decide: Callable[[], Awaitable[T]]) -> T:
        """Decide something about a stream, and once more when it was changed meanwhile. Raises
        JetStreamError."""
        for _ in range(STALE_TRIES):
            with contextlib.suppress(Stale):
                return await decide()
        text = "the stream was changed meanwhile: look at it, and ask again"
        raise errors.STREAM_UPDATE.error(err=text)

    async def delete(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Success:
        """STREAM.DELETE.<stream>"""
        require_empty(payload)
        known = self._known(js, tokens[0])
        await self.drop(known.assignment)
        with contextlib.suppress(JetStreamError):
            await self.ask.everybody("ended", known.assignment.incarnation.encode())
        return Success(success=True)

    async def restore(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> Any:
        """STREAM.RESTORE.<stream>: the leader takes the stream in, and tells the cluster of it."""
        if self.cluster.state.stream(js.name, tokens[0]) is not None:
            raise errors.STREAM_NAME_EXIST_RESTORE_FAILED.error()
        return api_stream.restore(js, tokens, payload, ctx)

    # -- lists --------------------------------------------------------------------

    async def names(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamNames:
        """STREAM.NAMES"""
        request = api_stream.page_request(payload, StreamNamesRequest, ctx)
        found = [known.name for known in self.cluster.state.named(js.name, request.subject)]
        offset = min(max(request.offset, 0), len(found))
        page = found[offset : offset + NAMES_LIMIT]
        return StreamNames(total=len(found), offset=offset, streams=page if found else None)

    async def listing(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> StreamList:
        """STREAM.LIST: the leaders of the streams are asked."""
        request = api_stream.page_request(payload, StreamListRequest, ctx)
        found = self.cluster.state.named(js.name, request.subject)
        offset = min(max(request.offset, 0), len(found))
        names = [known.name for known in found[offset : offset + LIST_LIMIT]]
        infos: dict[str, StreamInfo] = {}
        if names:
            question = msgspec.json.encode(InfosQuestion(account=js.name, names=names))
            for answer in (await self.ask.everybody("infos", question)).values():
                for info in msgspec.json.decode(answer, type=list[StreamInfo]):
                    infos[info.config.name] = info
        streams = [infos[name] for name in names if name in infos]
        missing = [name for name in names if name not in infos]
        # As nats-server says it: behind the end there are none at all.
        total = len(found) if names else 0
        return StreamList(total=total, offset=offset, streams=streams, missing=missing)

    async def account_info(
        self, js: AccountJetStream, tokens: list[str], payload: bytes, ctx: Context
    ) -> AccountInfo:
        """INFO: what all nodes together have of an account."""
        info = js.info()
        answers = await self.ask.everybody("usage", js.name.encode())
        parts = [msgspec.json.decode(answer, type=Usage) for answer in answers.values()]
        totals, consumers = added(parts)
        configs = self._configs(js)
        used: dict[str, Any] = {
            "memory": sum(memory for memory, _ in totals.values()),
            "storage": sum(store for _, store in totals.values()),
            "reserved_memory": promised_bytes(configs, "memory"),
            "reserved_storage": promised_bytes(configs, "file"),
            "streams": len(configs),
            "consumers": sum(consumers.values()),
            "tiers": js.tier_infos(totals, configs, consumers),
        }
        info = msgspec.structs.replace(info, **used)
        info.api = msgspec.structs.replace(
            info.api,
            total=sum(part.api_total for part in parts),
            errors=sum(part.api_errors for part in parts),
        )
        return info


def raw(config: StreamConfig) -> msgspec.Raw:
    """A configuration as the meta group keeps it."""
    return msgspec.Raw(msgspec.json.encode(stream_config.copy_of(config)))
