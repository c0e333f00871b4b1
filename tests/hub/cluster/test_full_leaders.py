"""A node whose storage takes nothing is elected: another one leads soon, and clients are served."""

import contextlib
import json
from pathlib import Path

from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from bench.cluster.nodes import SERVERS, ClusterNodes, insist, whole
from bench.faults.filling import Hungry, take
from tests.small_device import small_device
from tests.waiting import until

PAYLOAD = bytes(8 << 10)
ACCOUNTS = """accounts { $SYS { users: [ { user: sys, password: sys } ] }
  A { jetstream: enabled, users: [ { user: a, password: a } ] } }
no_auth_user: a
"""


async def test_who_is_elected_while_its_storage_is_full_hands_over(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    with (
        small_device(mount, 64) as device,
        ClusterNodes(SERVERS["headwater"], parent=tmp_path, more=ACCOUNTS) as nodes,
    ):
        nodes.stores[0] = device / "n0"
        nodes.start_all()
        await nodes.ready()
        client = await nodes.client(1)
        system = await nodes.client(1, user="sys", password="sys")
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

        async def make() -> bool:
            with contextlib.suppress(NatsError, TimeoutError):
                body = json.dumps({"name": "T", "subjects": ["t"], "num_replicas": 3}).encode()
                answer = await client.request("$JS.API.STREAM.CREATE.T", body, timeout=1)
                return "config" in json.loads(answer.data)
            return False

        take(device / "foreign", 64 << 20)
        eater = Hungry(device / "foreign")
        eater.start()
        try:
            await until(is_full, "no room on one node")
            place = {"preferred": "n0"}
            for _ in range(3):
                await insist(client, "STREAM.LEADER.STEPDOWN.S", placement=place)
                await until(publish, "an ack while one node is full", seconds=8)
            body = json.dumps({"placement": place}).encode()
            await system.request("$JS.API.META.LEADER.STEPDOWN", body, timeout=5)
            await until(make, "a stream is made while one node is full", seconds=8)
            assert "metadata leader: n0" in nodes.log(1)
        finally:
            eater.end()
        (device / "foreign").unlink()
        for name in ("S", "T"):
            await whole(client, name)
        info = await insist(client, "STREAM.INFO.S")
        assert info["state"]["messages"] >= acked
        await client.close()
        await system.close()
