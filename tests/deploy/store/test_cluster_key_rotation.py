"""A node of a cluster has its key replaced, and kill -9 comes at any moment of it."""

import asyncio
from contextlib import ExitStack
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.api import StreamConfig, StreamInfo

from bench.servers import free_port
from tests.deploy.running_node import Running
from tests.deploy.store.test_sealing_commands import stored
from tests.slow import slow
from tests.waiting import stand_by, until

MESSAGES = 400
SECRET = b"said in confidence"
OLD, NEW = "the first key of this node", "the second key of this node"
MOMENTS = (0.0, 0.1, 0.3, 0.6)
"""Seconds after the start at which the node is killed."""
ANSWER_S = 60.0


class Trio:
    """Three nodes as processes; the first one's key is the one to be replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = [free_port() for _ in range(3)]

    def node(self, index: int, keys: str) -> Running:
        """A node to be started, with this in its `jetstream` block."""
        place = self.folder / f"n{index}"
        place.mkdir(exist_ok=True)
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.ports)
        path = place / "node.conf"
        path.write_text(
            f"server_name: n{index}\n"
            f"jetstream {{ store_dir: {place}, {keys} }}\n"
            f"cluster {{ name: C, host: 127.0.0.1, port: {self.ports[index]}, "
            f"routes: [ {routes} ] }}\n"
        )
        return Running(place, "headwater", "-c", str(path))


async def stream(client: Client) -> StreamInfo | None:
    """The stream, when it has a leader and all replicas are up to date."""
    try:
        info = await client.jetstream(timeout=2).stream_info("R")
    except (nats.errors.Error, nats.js.errors.Error):
        return None
    replicas = info.cluster.replicas if info.cluster is not None else None
    ready = replicas is not None and len(replicas) == 2 and all(one.current for one in replicas)
    return info if ready else None


async def made(client: Client) -> bool:
    """Whether the stream could be made."""
    config = StreamConfig(name="R", subjects=["r"], num_replicas=3)
    try:
        await client.jetstream(timeout=2).add_stream(config)
    except (nats.errors.Error, nats.js.errors.Error):
        return False
    return True


async def fill(url: str) -> None:
    client = await nats.connect(url)
    await until(lambda: made(client), seconds=ANSWER_S)
    await until(lambda: stream(client), seconds=ANSWER_S)
    await publish(client, 1, MESSAGES)
    await client.close()


async def publish(client: Client, first: int, last: int) -> None:
    for number in range(first, last + 1):
        ack = await client.jetstream().publish("r", SECRET + b" %d" % number, timeout=20)
        assert ack.seq == number


async def check(url: str, last: int) -> None:
    """Every replica is there with everything, and the stream goes on."""
    client = await nats.connect(url)
    await until(lambda: stream(client), seconds=ANSWER_S)
    for number in range(1, last + 1, 7):
        message = await client.jetstream().get_msg("R", number)
        assert message.data == SECRET + b" %d" % number
    await publish(client, last + 1, last + 1)
    await client.close()


@slow
def test_killed_while_it_is_replaced(tmp_path: Path) -> None:
    trio = Trio(tmp_path)
    last = MESSAGES
    with ExitStack() as stack:
        first = trio.node(0, f'key: "{OLD}"')
        others = [stack.enter_context(trio.node(i, f'key: "key of n{i}"')) for i in (1, 2)]
        with first:
            asyncio.run(fill(others[0].url))
            assert SECRET not in stored(tmp_path / "n0")
            first.process.kill()
            first.process.wait()
        keys = f'key: "{NEW}", prev_encryption_key: "{OLD}", cipher: aes'
        for moment in MOMENTS:
            with trio.node(0, keys) as node:
                stand_by(moment)
                node.process.kill()
                node.process.wait()
            assert SECRET not in stored(tmp_path / "n0")
        with trio.node(0, keys) as node:
            asyncio.run(check(node.url, last))
            node.process.kill()
            node.process.wait()
        last += 1
        with trio.node(0, f'key: "{NEW}", cipher: aes') as node:
            asyncio.run(check(node.url, last))
    for index in range(3):
        assert SECRET not in stored(tmp_path / f"n{index}")
