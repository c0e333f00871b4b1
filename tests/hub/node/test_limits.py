"""Limits of one node's storage that a reload changes."""

import asyncio
import contextlib
from pathlib import Path

from nats.errors import TimeoutError as NatsTimeout
from nats.js.errors import Error as JetStreamError

from tests.hub.api.beside import our_nodes
from tests.hub.lab import api
from tests.waiting import connected, until

COUNT = 30
PAYLOAD = bytes(50_000)


async def test_another_node_leads_where_a_limit_is_below_what_is_there(tmp_path: Path) -> None:
    """As with nats-server, which hands over when its limit is exceeded. It refuses a reload that
    lowers one; here that is taken over, and the stream goes on at a node with room."""
    block = "jetstream { "
    async with our_nodes(tmp_path / "ours") as nodes:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        made = await until(
            lambda: api(
                user, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3, storage="memory"
            )
        )
        assert "error" not in made, made
        js = user.jetstream()
        await asyncio.gather(*(js.publish("s", PAYLOAD) for _ in range(COUNT)))
        before = int((await api(user, "STREAM.INFO.S"))["cluster"]["leader"][1:])
        limits = f"{block}max_mem: 1MB, max_file: 1MB, "
        await nodes.reload(before, lambda text: text.replace(block, limits))

        async def published() -> bool:
            with contextlib.suppress(JetStreamError, NatsTimeout):
                await js.publish("s", b"x", timeout=1)
                return True
            return False

        await until(published, "there is room elsewhere", 8)
        info = await api(user, "STREAM.INFO.S")
        assert info["cluster"]["leader"] != f"n{before}"
        assert info["state"]["messages"] == COUNT + 1
        await user.close()
