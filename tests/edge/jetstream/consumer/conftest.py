"""JetStream without sockets: one account, memory storage, and clients that are callbacks."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.edge.broker.account import Account
from headwater.edge.conf.options import (
    AccountJetStreamOptions,
    HeadwaterOptions,
    JetStreamLimitOptions,
    Options,
)
from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.account.account_js import AccountJetStream
from headwater.edge.jetstream.account.holdings import Holdings
from headwater.edge.jetstream.api.api import Router
from headwater.edge.jetstream.api.api_routes import routes
from headwater.edge.jetstream.read.blocks import Transfers
from headwater.edge.jetstream.stream.advisories import Advisories
from headwater.edge.jetstream.stream.usage import Usage
from headwater.edge.kernel.kernel import CallbackSink, Kernel
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.storage.node.node_store import NodeStore
from tests.waiting import WAIT_S, until

# Small, so that tests with some data see log segments checkpointed.
SEGMENT_BYTES = 64 << 10


class Got:
    """One message that a client received."""

    def __init__(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        self.subject = subject.decode()
        self.reply = reply.decode()
        self.headers = headers
        self.payload = payload

    @property
    def status(self) -> str:
        """Status line without the protocol's name, empty for a message."""
        line = self.headers.split(b"\r\n")[0].decode()
        return "" if self.reply.startswith("$JS.ACK.") else line.removeprefix("NATS/1.0 ")

    @property
    def numbers(self) -> list[int]:
        """Deliveries, stream sequence, consumer sequence, time, pending."""
        return [int(token) for token in self.reply.split(".")[4:]]


class World:
    """The node."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path | None = None) -> None:
        self.kernel = Kernel(loop)
        self.account = Account("A", self.kernel)
        node: Any = SimpleNamespace(
            kernel=self.kernel,
            options=Options(),
            domain="",
            strict=True,
            usage={"memory": Usage("memory"), "file": Usage("file")},
            window_max_ns=0,
            limits=JetStreamLimitOptions(),
            direct_bytes_max=1 << 20,
            transfers=Transfers(),
            api_subjects=(b"$JS.API.>",),
            request_queue_limit=0,
            holdings=Holdings(HeadwaterOptions()),
            accounts={},
            origin_driver_factory=None,
            on_consumer_made=lambda consumer: None,
            storage=None,
            saver=None,
            age_watch=None,
            advisories=Advisories(""),
            clustered=False,
            server_name="n",
            describe=lambda *sender: {},
            check_removable=lambda stream: None,
            create_store=self.create_store,
            delete_store=lambda stream: None,
            durable=lambda stream: None,
            kept=lambda stream: None,
            set_durability=lambda stream: None,
            set_disk_budget=lambda stream: None,
            set_compression=lambda stream: None,
            sweep=lambda stream: stream.sweep_some(1, 1 << 30),
        )
        self.js = AccountJetStream(node, self.account, AccountJetStreamOptions())
        self.js.router = Router(self.js, routes(), "")
        self.js.router.listen()
        self.sinks: list[CallbackSink] = []
        if directory is not None:
            node.storage = NodeStore(
                self.kernel, StoreOptions(directory, segment_bytes=SEGMENT_BYTES)
            )
            for found in node.storage.open():
                stream_lifecycle.recover(self.js, found.meta, found.store)

    def create_store(self, account: str, config: Any, meta: bytes, incarnation: str) -> Any:
        """Storage for a new stream, on disk when the node has a directory."""
        storage = self.js.node.storage
        if storage is None or config.storage == "memory":
            return MemoryStore(self.kernel)
        return storage.create_stream(account, config.name, meta, "file", 1, incarnation)

    def listen(self, subject: str, queue: str | None = None) -> list[Got]:
        """Subscribe; messages are appended to the list that is returned."""
        found: list[Got] = []

        def take(
            subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: object
        ) -> None:
            found.append(Got(subject, reply, headers, payload))

        sink = CallbackSink(subject.encode(), take, queue.encode() if queue else None)
        self.account.insert(sink)
        self.sinks.append(sink)
        return found

    def leave(self, subject: str) -> None:
        """End the subscriptions of `subject`."""
        for sink in self.sinks:
            if sink.subject == subject.encode():
                self.account.remove(sink)

    def send(self, subject: str, payload: str | bytes = b"", reply: str = "") -> int:
        """Publish and finish the turn."""
        body = payload.encode() if isinstance(payload, str) else payload
        count = self.account.send(subject.encode(), body, reply.encode(), own=True)
        self.kernel.turn()
        return int(count)

    async def ask(self, what: str, body: Any = None) -> Any:
        """One API request; the answer as a dictionary."""
        reply = f"_R.{len(self.sinks)}"
        found = self.listen(reply)
        self.send(f"$JS.API.{what}", json.dumps(body) if body is not None else "", reply)
        await self.until(lambda: bool(found))
        self.leave(reply)
        return json.loads(found[0].payload)

    async def until(self, done: Callable[[], bool], seconds: float = WAIT_S) -> None:
        """Let the loop run until something is true."""

        def look() -> bool:
            self.kernel.turn()
            return done()

        await until(look, seconds=seconds)

    async def stream(self, name: str = "S", **config: Any) -> Any:
        """Make a stream; returns it."""
        config = {"name": name, "subjects": ["a.>"], "storage": "memory", **config}
        answer = await self.ask(f"STREAM.CREATE.{name}", config)
        assert "error" not in answer, answer
        return self.js.streams[name]

    async def consumer(self, name: str = "C", stream: str = "S", **config: Any) -> Any:
        """Make a consumer; returns the answer."""
        config = {"durable_name": name, "ack_policy": "explicit", **config}
        body = {"stream_name": stream, "config": config}
        return await self.ask(f"CONSUMER.CREATE.{stream}.{name}", body)

    def pull(self, reply: str, body: Any = "", name: str = "C", stream: str = "S") -> None:
        """Send a pull request."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.send(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", text, reply)

    async def info(self, name: str = "C", stream: str = "S") -> Any:
        """Consumer info."""
        return await self.ask(f"CONSUMER.INFO.{stream}.{name}")

    def publish(self, count: int, subject: str = "a.{}") -> None:
        """Publish numbered messages from 1 on."""
        for i in range(1, count + 1):
            self.account.send(subject.format(i).encode(), str(i).encode())
        self.kernel.turn()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(asyncio.get_running_loop())
    yield made
    made.js.close()


@pytest.fixture
def new_world() -> Callable[[], World]:
    """Makes nodes on the running loop."""
    return lambda: World(asyncio.get_running_loop())


@pytest.fixture
async def disk_worlds(tmp_path: Path) -> AsyncIterator[Callable[[], World]]:
    """Makes nodes on one directory, one after the other; what ran before is cut off."""
    made: list[World] = []

    def start() -> World:
        for world in made:
            world.js.node.storage.stop_now()
        world = World(asyncio.get_running_loop(), tmp_path)
        made.append(world)
        return world

    yield start
    made[-1].js.close()
    made[-1].js.node.storage.stop_now()
