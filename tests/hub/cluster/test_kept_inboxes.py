"""What comes to the inbox of a client whose node leaves: all of it, and nothing twice."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from bench.cluster.nodes import SERVERS, ClusterNodes
from tests.waiting import until

PACE_SECONDS = 0.002


async def test_a_client_whose_node_stops_hears_everything_once(tmp_path: Path) -> None:
    """The sender's node may hear of the client's next one before the node that stops does."""
    heard: list[int] = []
    sent = 0
    halt = asyncio.Event()

    async def hear(message: Any) -> None:
        heard.append(int(message.data))

    async def reaches(number: int) -> bool:
        return number in heard

    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        nodes.start_all()
        await nodes.ready()
        reader, sender = await nodes.client(0), await nodes.client(2)
        await reader.subscribe("_INBOX.reader.*", cb=hear)
        await reader.flush()

        async def send() -> None:
            nonlocal sent
            while not halt.is_set():
                await sender.publish("_INBOX.reader.1", b"%d" % sent)
                sent += 1
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(halt.wait(), PACE_SECONDS)

        task = asyncio.create_task(send())
        await until(lambda: reaches(50), "the first messages")
        await asyncio.to_thread(nodes.stop, 0)
        await until(lambda: reaches(sent - 1), "messages by another node")
        halt.set()
        await task
        await until(lambda: reaches(sent - 1), "the last message")
        assert reader.connected_url is not None
        assert reader.connected_url.port == nodes.ports[1]
        await reader.close()
        await sender.close()
    assert [number for number in set(heard) if heard.count(number) > 1] == []
    assert sorted(set(heard)) == list(range(min(heard), sent))
