"""What stories of a failover share: a cluster, clients that reconnect, publishers that insist."""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.errors import APIError, ServiceUnavailableError
from nats.js.errors import Error as JetStreamError

from bench.cluster.nodes import ClusterNodes, insist
from bench.servers import Server
from tests import waiting

TRY_SECONDS = 1.0
LONG_SECONDS = 30.0


class World:
    """A cluster and the clients of one test."""

    def __init__(self, nodes: ClusterNodes) -> None:
        self.nodes = nodes
        self.halt = asyncio.Event()
        """Set when publishers are to end."""
        self.clients: list[Client] = []
        self.edge: Server | None = None
        """A leaf node of the cluster."""
        self.reconnects = 0
        self._ids = itertools.count()

    async def client(self, first: int = 0) -> Client:
        """A client that reconnects."""

        async def again() -> None:
            self.reconnects += 1

        made = await self.nodes.client(first, reconnected_cb=again)
        self.clients.append(made)
        return made

    async def stream(self, client: Client, name: str, **fields: Any) -> dict[str, Any]:
        """Make a stream with three replicas. Asserts that it is."""
        wanted = {"name": name, "num_replicas": 3, **fields}
        answer = await insist(client, f"STREAM.CREATE.{name}", **wanted)
        assert "error" not in answer, (name, answer)
        return answer

    async def consumer(self, client: Client, stream: str, name: str, **config: Any) -> None:
        """Make a durable consumer. Asserts that it is."""
        body = {
            "stream_name": stream,
            "config": {"durable_name": name, "ack_policy": "explicit", **config},
        }
        answer = await insist(client, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", **body)
        assert "error" not in answer, (stream, name, answer)

    def ident(self) -> str:
        """A message id that nobody else has."""
        return f"id-{next(self._ids)}"

    async def put(self, js: JetStreamContext, subject: str, payload: bytes, **headers: str) -> Any:
        """Publish once, however often it has to be sent; returns the ack."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named.setdefault("Nats-Msg-Id", self.ident())
        return await self.persist(
            lambda: js.publish(subject, payload, timeout=TRY_SECONDS, headers=named)
        )

    async def persist(self, action: Callable[[], Awaitable[Any]]) -> Any:
        """Do something until it is done. Errors of the API but those of a cluster without a leader
        are errors here, too."""

        async def done() -> tuple[Any] | None:
            try:
                return (await action(),)
            except APIError as error:
                # A status 503 in place of a message has no code of its own.
                if error.code != 503 and not isinstance(error, ServiceUnavailableError):
                    raise
            except (NatsError, JetStreamError, TimeoutError):
                pass
            return None

        return (await waiting.until(done, action, LONG_SECONDS))[0]

    async def close(self) -> None:
        """End the clients."""
        for client in self.clients:
            with contextlib.suppress(NatsError, TimeoutError):
                async with asyncio.timeout(2):
                    await client.close()


async def contents(client: Client, stream: str) -> dict[int, dict[str, Any]]:
    """All that a stream has, by sequence, as its leader tells it."""
    info = await insist(client, f"STREAM.INFO.{stream}")
    found = {}
    for sequence in range(info["state"]["first_seq"], info["state"]["last_seq"] + 1):
        answer = await insist(client, f"STREAM.MSG.GET.{stream}", seq=sequence)
        if "message" in answer:
            found[sequence] = answer["message"]
    return found


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = LONG_SECONDS) -> Any:
    """Wait until something is true; returns it."""

    async def look() -> Any:
        with contextlib.suppress(NatsError, JetStreamError):
            return await condition()
        return None

    return await waiting.until(look, condition, seconds)
