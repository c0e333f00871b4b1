"""`open_node`: a node inside a program, with everything that `headwater serve` runs.

The program's clients are of nats-py and never leave the process; other clients reach the node by
its listeners, if it has any. One event loop runs both, asyncio's or uvloop's.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from headwater.edge.conf.options import Options
from headwater.edge.embedded.settings import Configuration, options_of
from headwater.edge.node.node import Node
from headwater.edge.view.service import Service
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.identity import Identity

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import ExternalStream, PubAck, StreamInfo, StreamSource
    from nats.js.kv import KeyValue

    from headwater.edge.embedded.own_client import OwnClient
    from headwater.edge.embedded.reading import Reading

log = logging.getLogger("headwater.node")

SERVICES = "headwater.services"
"""Entry points that name what plugs into a node: functions from options to services."""

BATCH = 100
"""Messages that a consumer asks for at once."""

LINK_WAIT_S = 30.0
"""Seconds for which a link to a hub is waited for, when nothing else is said."""

LOOK_S = 0.1
"""Seconds between two looks whether a hub answers."""

BUCKET_FIELDS = {
    "description": "description",
    "history": "max_msgs_per_subject",
    "ttl": "max_age",
    "max_bytes": "max_bytes",
    "max_value_size": "max_msg_size",
    "storage": "storage",
    "replicas": "num_replicas",
    "placement": "placement",
    "republish": "republish",
    "direct": "allow_direct",
    "limit_marker_ttl": "subject_delete_marker_ttl",
}
"""Settings of nats-py's KeyValueConfig, and what the bucket's stream calls them."""


class NotLinkedError(Exception):
    """No hub answers; the text says what to look at."""


class NotInstalledError(Exception):
    """Something that a node in a program needs is not installed; the text says what to do."""


@asynccontextmanager
async def open_node(
    config: Configuration, *, listen: bool = True, account: str = GLOBAL_ACCOUNT
) -> "AsyncIterator[EmbeddedNode]":
    """A running node, for as long as the block lasts.

    `config` is the path of a configuration file, its text, or its settings as a mapping. Without
    `listen` it opens no port; leaf links are still dialled. The program acts as `account`, with no
    restriction. Its log lines go to the loggers below `headwater`.

    Raises ConfigError, ListenError, StoreError (another process has the store, for one),
    SecurityError and NotInstalledError.
    """
    options = options_of(config, listen=listen)
    _check_client()
    node = Node(options, asyncio.get_running_loop())
    opened = EmbeddedNode(node, account)
    try:
        node.services.extend(_services(options))
        node.start()
        await opened.begin()
        yield opened
    finally:
        await opened.close()


def _check_client() -> None:
    try:
        import nats  # noqa: F401
    except ImportError as error:
        raise NotInstalledError(
            "a node in a program needs nats-py: pip install 'headwater[program]'"
        ) from error


def _services(options: Options) -> list[Service]:
    found = list(entry_points(group=SERVICES))
    if not found:
        raise NotInstalledError(
            f"no entry point {SERVICES} is installed, so nodes would have no links: install "
            "headwater again"
        )
    return [service for entry in found for service in entry.load()(options)]


class EmbeddedNode:
    """A running node, and what its program does with it. All is for the loop that opened it."""

    def __init__(self, node: Node, account: str) -> None:
        self.node = node
        self.account = account
        self.client: Client
        """The program's own client: core messages, requests, subscriptions."""
        self.jetstream: JetStreamContext
        """JetStream of the same client: all that nats-py knows, object stores for one."""
        self._clients: list[OwnClient] = []
        self._readings: set[Reading] = set()
        self._end: asyncio.Task[None] | None = None
        """What ends it, once that was asked for."""

    async def begin(self) -> None:
        """Connect the program's own client."""
        self.client = await self.connect(name="program")
        self.jetstream = self.client.jetstream()

    @property
    def url(self) -> str:
        """Where other clients connect; empty without a listener."""
        return next(iter(self.node.ports()["nats"]), "")

    async def connect(self, **options: Any) -> "Client":
        """A further client of nats-py in this process; `options` are those of its `connect`."""
        from headwater.edge.embedded.own_client import ADDRESS, OwnClient

        client = OwnClient(self._serve)
        self._clients.append(client)
        await client.connect(ADDRESS, **options)
        return client

    def _serve(self, sock: socket.socket) -> None:
        self.node.sessions.accept_own(sock, Identity(account=self.account))

    # --- streams --------------------------------------------------------------------------------

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        message_id: str = "",
    ) -> "PubAck":
        """Publish to the stream that has `subject`; returns when the message is as safe as the
        stream's durability promises. A `message_id` that the stream knows is not stored again.

        Raises nats.js.errors.NoStreamResponseError when no stream has the subject, and APIError.
        """
        fields = dict(headers or {})
        if message_id:
            fields["Nats-Msg-Id"] = message_id
        return await self.jetstream.publish(subject, payload, headers=fields or None)

    async def stream(
        self, name: str, subjects: Sequence[str] = (), **settings: Any
    ) -> "StreamInfo":
        """The stream `name`, made or changed to be so; `settings` are those of nats-py's
        StreamConfig."""
        from nats.js.api import StreamConfig
        from nats.js.errors import NotFoundError

        wanted = StreamConfig(name=name, subjects=list(subjects) or None, **settings)
        try:
            await self.jetstream.stream_info(name)
        except NotFoundError:
            return await self.jetstream.add_stream(wanted)
        return await self.jetstream.update_stream(wanted)

    async def consume(
        self, stream: str, durable: str, *, subject: str = "", batch: int = BATCH
    ) -> "AsyncIterator[Msg]":
        """Messages of a durable consumer, which is made if it is not there, until the node ends.

        Whoever takes a message acknowledges it (`await message.ack()`) within 30 seconds, or says
        `await message.in_progress()`; what was not is delivered again, after a restart, too. At
        most `batch` messages wait here for the program. When it leaves the loop, they go back to
        the consumer; who keeps the iterator closes it (`aclose`).

        Raises ValueError when the consumer is there for other subjects, or refuses `batch`;
        NotFoundError when there is no such stream, or stream or consumer are deleted meanwhile.
        """
        from headwater.edge.embedded.reading import Reading, open_consumer

        info = await open_consumer(self.jetstream, stream, durable, subject)
        clock = asyncio.get_running_loop().time
        reading = Reading(self.client, self.jetstream, info, batch, clock)
        self._readings.add(reading)
        try:
            async with aclosing(reading.messages()) as messages:
                async for message in messages:
                    yield message
        finally:
            self._readings.discard(reading)

    async def key_value(self, bucket: str, **settings: Any) -> "KeyValue":
        """The bucket, made or changed to be so; `settings` are those of nats-py's
        KeyValueConfig."""
        from nats.js.api import KeyValueConfig
        from nats.js.errors import BucketNotFoundError

        config = KeyValueConfig(bucket=bucket, **settings)
        try:
            found = await self.jetstream.key_value(bucket)
        except BucketNotFoundError:
            return await self.jetstream.create_key_value(config)
        if settings:
            await self._change_bucket(found, settings)
        return found

    async def _change_bucket(self, bucket: "KeyValue", settings: Mapping[str, Any]) -> None:
        """Have the bucket's stream say what `settings` say, and nothing else."""
        status = await bucket.status()
        there = status.stream_info.config
        fields = {BUCKET_FIELDS[name]: value for name, value in settings.items()}
        if fields.get("max_age"):
            fields["duplicate_window"] = min(fields["max_age"], there.duplicate_window or 0)
        wanted = there.evolve(**fields)
        if wanted != there:
            await self.jetstream.update_stream(wanted)

    # --- copies over leaf links -----------------------------------------------------------------

    async def mirror_to(
        self, domain: str, stream: str, name: str = "", *, wait: float = LINK_WAIT_S
    ) -> "StreamInfo":
        """Have the hub of `domain` keep a mirror of a stream of this node, named `name`, or as
        it is here. Needs `jetstream { domain }` here, and a leaf link, for which it waits up to
        `wait` seconds. Once made, the mirror goes on by itself whenever there is a link.

        Raises ValueError when the name is taken, or there is no domain here; NotLinkedError.
        """
        own = self.node.facts.domain
        if not own:
            raise ValueError("a mirror elsewhere needs a domain here: set jetstream { domain }")
        where = self.client.jetstream(domain=domain)
        await self._answers(where, domain, wait)
        return await self._copy(where, own, stream, name)

    async def mirror_from(self, domain: str, stream: str, name: str = "") -> "StreamInfo":
        """Keep a mirror of a stream of `domain`'s here, named `name`, or as it is there. It needs
        no link: it begins when there is one. Raises ValueError when the name is taken."""
        return await self._copy(self.jetstream, domain, stream, name)

    async def _answers(self, where: "JetStreamContext", domain: str, wait: float) -> None:
        from nats.errors import TimeoutError as NothingCame
        from nats.js.errors import ServiceUnavailableError

        clock = asyncio.get_running_loop().time
        until = clock() + wait
        while True:
            try:
                await where.account_info()
                return
            except (ServiceUnavailableError, NothingCame) as error:
                if clock() >= until:
                    raise NotLinkedError(
                        f"no JetStream of the domain {domain!r} answered for {wait:g} s: look at "
                        "`node.links()`, and at the hub's jetstream { domain }"
                    ) from error
            await asyncio.sleep(LOOK_S)

    async def _copy(
        self, where: "JetStreamContext", domain: str, stream: str, name: str
    ) -> "StreamInfo":
        from nats.js.api import ExternalStream, StreamConfig, StreamSource
        from nats.js.errors import NotFoundError

        external = ExternalStream(api=f"$JS.{domain}.API", deliver="")
        origin = StreamSource(name=stream, external=external)
        try:
            info = await where.stream_info(name or stream)
        except NotFoundError:
            return await where.add_stream(StreamConfig(name=name or stream, mirror=origin))
        if info.config.mirror is None or not _same_origin(info.config.mirror, stream, external):
            raise ValueError(
                f"the stream {name or stream!r} is there, and no mirror of {stream!r}: give "
                "another name"
            )
        return info

    def links(self) -> dict[str, Any]:
        """How leaf links, mirrors and sources are: `leafs`, `remotes` and `origins`, as
        monitoring shows them (docs/FEDERATION.md)."""
        found: dict[str, Any] = {"leafs": [], "remotes": [], "origins": []}
        for service in self.node.services:
            if service.name in ("leafnodes", "origins"):
                found.update(service.status())
        return found

    # --- end ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the program's clients with what they still send, then the node. Idempotent.

        Requests and publishes on their way get their answers first; later ones raise nats-py's
        ConnectionClosedError. What a consumer delivered and the program did not take goes back.

        Who is cancelled meanwhile waits for the end all the same, and is cancelled then: a node
        that ended by half would keep its store locked.
        """
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._close())
        interrupted: asyncio.CancelledError | None = None
        while not self._end.done():
            try:
                await asyncio.wait((self._end,))
            except asyncio.CancelledError as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted
        await self._end

    async def _close(self) -> None:
        readings = list(self._readings)
        try:
            for reading in readings:
                with _logged("the reading of a consumer"):
                    await reading.end()
            for client in reversed(self._clients):
                with _logged("a client of the program"):
                    await client.close()
        finally:
            for reading in readings:
                reading.client_ended.set()
            await self.node.stop()


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """An error at the end keeps nothing else from ending."""
    try:
        yield
    except Exception:
        log.exception(
            "Could not close %s cleanly; the node ends all the same; report this fault", what
        )


def _same_origin(origin: "StreamSource", stream: str, external: "ExternalStream") -> bool:
    return origin.name == stream and origin.external is not None and (
        origin.external.api == external.api
    )
