"""What nodes ask one another for the API: is it made, may it change, how is it.

Bodies are JSON. An answer begins with `+`, or with `-` and the error that it was refused with.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from headwater.edge.jetstream.config import stream_config
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import StreamConfig, StreamInfo
from headwater.edge.jetstream.stream.stream import Stream
from headwater.edge.jetstream.stream.stream_info import stream_info
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.hub.api.cluster import Cluster, accepted, refusal
from headwater.hub.cluster.transport import CallFailed
from headwater.hub.meta.assignment import Assignment, ChangeDone, decode

MADE_SECONDS = 4.0
"""That the nodes of a stream have to make or change it."""

ECHO_SECONDS = 0.5
"""That another node has to hear of a new stream before its creation is answered."""


class StreamQuestion(msgspec.Struct, kw_only=True):
    """About one stream; `config` is a wanted one."""

    account: str
    name: str
    incarnation: str = ""
    version: int = 0
    config: msgspec.Raw = msgspec.Raw(b"null")


class InfosQuestion(msgspec.Struct, kw_only=True):
    """About streams of an account; only those that the asked node leads are answered."""

    account: str
    names: list[str] = []


class Usage(msgspec.Struct, kw_only=True):
    """What an account uses on one node, bytes."""

    used: dict[str, tuple[int, int]] = {}
    """In memory and in files, by tier of streams."""
    consumers: dict[str, int] = {}
    """By tier of consumers."""
    api_total: int = 0
    api_errors: int = 0


def added(parts: list[Usage]) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    """What all nodes together use by tier, and their consumers by tier."""
    totals: dict[str, tuple[int, int]] = {}
    consumers: dict[str, int] = {}
    for part in parts:
        for name, (memory, store) in part.used.items():
            before = totals.get(name, (0, 0))
            totals[name] = (before[0] + memory, before[1] + store)
        for name, count in part.consumers.items():
            consumers[name] = consumers.get(name, 0) + count
    return totals, consumers


class Answers:
    """This node's side."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        methods: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "made": self.made,
            "check": self.check,
            "infos": self.infos,
            "usage": self.usage,
            "totals": self.totals,
            "ended": self.ended,
            "settled": self.change_done,
        }
        cluster.transport.methods["echo"] = lambda sender, body: body
        for name, method in methods.items():
            cluster.transport.methods[name] = self._answering(method)

    def _answering(
        self, method: Callable[[bytes], Awaitable[bytes]]
    ) -> Callable[[int, bytes], Awaitable[bytes]]:
        async def answer(sender: int, body: bytes) -> bytes:
            try:
                return b"+" + await method(body)
            except JetStreamError as error:
                return refusal(error)
            except (*BAD_JSON, StoreError) as error:
                # The stream may have ended here while it was waited for: another node leads it.
                raise CallFailed(str(error)) from error

        return answer

    async def made(self, body: bytes) -> bytes:
        """The info of a stream, once it is led here in that version; refused when it cannot be."""
        question = msgspec.json.decode(body, type=StreamQuestion)
        cluster = self.cluster
        if cluster.jetstream.rests(question.account):
            raise errors.NOT_ENABLED_FOR_ACCOUNT.error()
        await cluster.applier.made(question.incarnation, question.version)

        def leads() -> bool:
            found = cluster.here(question.account, question.name)
            known = cluster.state.stream(question.account, question.name)
            if found is None or known is None or found.incarnation != question.incarnation:
                return False
            return bool(found.config == known.config)

        if not await cluster.wait(leads, MADE_SECONDS):
            raise CallFailed("the stream is led elsewhere")
        stream = cluster.here(question.account, question.name)
        assert stream is not None
        durable = cluster.jetstream.durable(stream)
        if durable is not None:
            await durable
        await self._wait_announced()
        return msgspec.json.encode(self.info(stream))

    async def _wait_announced(self) -> None:
        """Return when the other nodes know what this one listens on."""
        transport = self.cluster.transport
        fences = [transport.fence(n, ECHO_SECONDS) for n in list(transport.conns)]
        await asyncio.gather(*fences, return_exceptions=True)

    def info(self, stream: Stream, listed: bool = False) -> StreamInfo:
        """A stream that lives here, with its place. In a list (`listed`) it goes without the domain
        and the server's version, as with nats-server."""
        domain = "" if listed else self.cluster.jetstream.domain
        info = stream_info(stream, domain=domain, listed=listed)
        info.cluster = self.cluster.cluster_info(stream)
        return info

    async def check(self, body: bytes) -> bytes:
        """Whether a stream that is led here may have another configuration."""
        question = msgspec.json.decode(body, type=StreamQuestion)
        stream = self.cluster.here(question.account, question.name)
        if stream is None:
            raise CallFailed("the stream is led elsewhere")
        config = msgspec.json.decode(question.config, type=StreamConfig)
        js = self.cluster.jetstream.account_js(question.account)
        stream_config.refuse_tight_limits(stream.config, config, stream.consumers.values())
        js.check_reservation(config, stream.config)
        return b""

    async def change_done(self, body: bytes) -> bytes:
        """The group of a stream has the members that were wanted; on the meta leader."""
        operation = decode(body)
        if not isinstance(operation, ChangeDone):
            raise CallFailed("no change is done: the request is of another kind")
        await self.cluster.submit(operation)
        return b""

    async def infos(self, body: bytes) -> bytes:
        """Infos of the streams that are led here, of those that are named."""
        question = msgspec.json.decode(body, type=InfosQuestion)
        found = [self.cluster.here(question.account, name) for name in question.names]
        return msgspec.json.encode(
            [self.info(stream, listed=True) for stream in found if stream is not None]
        )

    async def usage(self, body: bytes) -> bytes:
        """What an account uses here."""
        name = body.decode()
        js = self.cluster.jetstream.accounts.get(name)
        if js is None:
            return msgspec.json.encode(Usage())
        return msgspec.json.encode(
            Usage(
                used=js.tiers.used(),
                consumers=js.consumers_by_tier(),
                api_total=js.api.total,
                api_errors=js.api.errors,
            )
        )

    async def totals(self, body: bytes) -> bytes:
        """What some accounts use here, by tier, in memory and in files."""
        accounts = self.cluster.jetstream.accounts
        names = msgspec.json.decode(body, type=list[str])
        return msgspec.json.encode(
            {name: accounts[name].tiers.used() if name in accounts else {} for name in names}
        )

    async def ended(self, body: bytes) -> bytes:
        """Answered once a deletion was applied here."""
        await self.cluster.applier.ended(body.decode())
        return b""


class Questions:
    """The leader's side. All raise JetStreamError, and CallFailed when nobody can answer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def made(self, assignment: Assignment) -> StreamInfo:
        """The info of a stream from whoever leads it, once it is what was assigned."""
        question = StreamQuestion(
            account=assignment.account,
            name=assignment.name,
            incarnation=assignment.incarnation,
            version=assignment.version,
        )
        answer = await self._first(assignment.holders, "made", msgspec.json.encode(question))
        return msgspec.json.decode(answer, type=StreamInfo)

    async def check(self, assignment: Assignment, config: StreamConfig) -> None:
        """Raise what speaks against another configuration of a stream."""
        question = StreamQuestion(
            account=assignment.account,
            name=assignment.name,
            config=msgspec.Raw(msgspec.json.encode(config)),
        )
        await self._first(assignment.holders, "check", msgspec.json.encode(question))

    async def _first(self, numbers: list[int], method: str, body: bytes) -> bytes:
        """The first answer of several nodes; what one refuses counts when no other accepts."""
        tasks = [
            asyncio.ensure_future(
                self.cluster.transport.call(number, method, body, MADE_SECONDS + 0.5)
            )
            for number in numbers
        ]
        refused: Exception = CallFailed("no node has the stream")
        try:
            for task in asyncio.as_completed(tasks):
                try:
                    return accepted(await task)
                except JetStreamError as error:
                    refused = error
                except CallFailed as error:
                    if not isinstance(refused, JetStreamError):
                        refused = error
            raise refused
        finally:
            for each in tasks:
                # What a node refuses when another one has accepted is no fault, and the loop would
                # log it as one. It may come behind the cancellation.
                each.add_done_callback(_disregard)
                each.cancel()

    async def everybody(self, method: str, body: bytes, timeout: float = 2.0) -> dict[int, bytes]:
        """The answers of all members that are there."""
        cluster = self.cluster
        numbers = [n for n in cluster.group.members if cluster.founding.is_online(n)]
        waits = [cluster.transport.call(number, method, body, timeout) for number in numbers]
        found: dict[int, Any] = {}
        results = await asyncio.gather(*waits, return_exceptions=True)
        for number, result in zip(numbers, results, strict=True):
            if isinstance(result, bytes):
                found[number] = accepted(result)
        return found


def _disregard(task: "asyncio.Task[bytes]") -> None:
    """Nobody needs to know how an attempt ended."""
    if not task.cancelled():
        task.exception()
