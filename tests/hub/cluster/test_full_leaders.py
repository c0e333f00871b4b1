"""A node whose storage takes nothing is elected: another one leads soon, and clients are served."""

import contextlib
from pathlib import Path

from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench.cluster.nodes import SERVERS, ClusterNodes, insist, whole
from bench.faults.filling import Hungry, take
from tests.small_device import small_device
from tests.waiting import until

PAYLOAD = bytes(8 << 10)


async def test_who_is_elected_while_its_storage_is_full_hands_over(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    with (
        small_device(mount, 64) as device,
        ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes,
    ):
        nodes.stores[0] = device / "n0"
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(1)
        await insist(client, "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
        await whole(client, "S")
        js = client.jetstream()
        acked = 0

        async def publish() -> bool:
            nonlocal acked
            with contextlib.suppress(NatsError, JetStreamError, TimeoutError):
                await js.publish("s", PAYLOAD, timeout=0.5)
                acked += 1
                return True
            return False

        async def is_full() -> bool:
            await publish()
            return "cannot apply entry" in nodes.log(0)

        take(device / "foreign", 64 << 20)
        eater = Hungry(device / "foreign")
        eater.start()
        try:
            await until(is_full, "no room on one node")
            place = {"preferred": "n0"}
            for _ in range(3):
                await insist(client, "STREAM.LEADER.STEPDOWN.S", placement=place)
                await until(publish, "an ack while one node is full", seconds=8)
        finally:
            eater.end()
        (device / "foreign").unlink()
        await whole(client, "S")
        info = await insist(client, "STREAM.INFO.S")
        assert info["state"]["messages"] >= acked
        await client.close()
