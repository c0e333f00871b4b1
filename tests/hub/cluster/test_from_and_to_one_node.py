"""A node that ran alone joins others with its streams; one that is alone again keeps them."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nats.aio.client import Client
from nats.errors import Error

from bench.servers import Server, anchor
from headwater.deploy.store.local import node_options
from headwater.edge.conf.options import JetStreamOptions, Options
from headwater.edge.jetstream.backup.backup_file import BackupReader
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.node.offline import Restorer, backup
from headwater.edge.monitor.pages.healthz import healthz
from headwater.edge.node.node import Node
from tests.deploy.store.test_store_commands import command
from tests.hub.lab import Lab, api
from tests.waiting import until

S = {"name": "S", "subjects": ["s.>"]}
COUNT, DONE = 50, 10


def alone(lab: Lab) -> Node:
    """The lab's first node, on what it has stored, and in no cluster."""
    settings = JetStreamOptions(enabled=True, store_dir=str(lab.directory / "n0"))
    return lab.run(0, Options(host="127.0.0.1", port=-1, server_name="n0", jetstream=settings))


async def fill(lab: Lab) -> None:
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **S)
    js = client.jetstream()
    for number in range(COUNT):
        await js.publish("s.a", b"%d" % number)
    sub = await js.pull_subscribe("s.>", "worker", stream="S")
    for message in await sub.fetch(DONE):
        await message.ack_sync()


async def as_wanted(client: Client, replicas: int) -> bool:
    """Whether the stream is whole on so many nodes."""
    try:
        info = await api(client, "STREAM.INFO.S")
    except (Error, TimeoutError):
        return False
    if "error" in info or "desired" in info["cluster"]:
        return False
    others = info["cluster"].get("replicas", [])
    whole: bool = info["state"]["messages"] == COUNT and all(row["current"] for row in others)
    return whole and len(others) == replicas - 1


async def check_worker(client: Client) -> None:
    info = await api(client, "CONSUMER.INFO.S.worker")
    assert (info["ack_floor"]["stream_seq"], info["num_pending"]) == (DONE, COUNT - DONE)


async def test_a_node_joins_with_its_streams(lab: Lab) -> None:
    """Programs that make their streams at each start find the old ones, however early they ask."""
    alone(lab)
    await fill(lab)
    await lab.stop_node(0)
    for index in range(3):
        lab.start(index)
    # The node has not told of its stream yet, as where it is slow.
    lab.service(0)._telling = True
    await lab.settled(3)
    client = await lab.connect(1)
    asked = asyncio.ensure_future(api(client, "STREAM.CREATE.S", **S))
    for _ in range(20):
        await api(client, "STREAM.NAMES")
    assert not asked.done()
    lab.service(0)._telling = False
    answer = await asked
    assert "did_create" not in answer and answer["state"]["messages"] == COUNT, answer
    await check_worker(client)
    for replicas in (3, 1):
        changed = await api(client, "STREAM.UPDATE.S", **S, num_replicas=replicas)
        assert "error" not in changed, changed
        await until(lambda wanted=replicas: as_wanted(client, wanted), "replicas", 40)
    moved = await api(client, "STREAM.UPDATE.S", **S, placement={"tags": ["az:2"]})
    assert "error" not in moved
    await until(lambda: lab.cluster(2).here("$G", "S") is not None and as_wanted(client, 1))
    await check_worker(client)


async def test_a_node_that_is_alone_again_keeps_and_tells(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", **S, num_replicas=3)
    for number in range(COUNT):
        await client.jetstream().publish("s.a", b"%d" % number)
    await until(lambda: as_wanted(client, 3))
    for index in range(3):
        await lab.stop_node(index)

    node = alone(lab)
    answer = healthz(node)
    assert answer["status_code"] == 503
    assert answer["error"] == "JetStream stream '$G > S' could not be recovered"
    assert "it has replicas on other nodes" in caplog.text
    assert (await api(await lab.connect(0), "STREAM.INFO.S"))["error"]["err_code"] == 10059
    await lab.stop_node(0)

    await _check_backup(lab.directory / "n0", tmp_path)
    _check_restore(tmp_path)
    for index in range(3):
        lab.start(index)
    await lab.settled(3)
    client = await lab.connect(1)
    await until(lambda: as_wanted(client, 3), "the stream is whole again", 40)


async def _check_backup(store: Path, folder: Path) -> None:
    """What one node has can be put elsewhere, and not into the node itself."""
    file = folder / "all.hwb"
    options = node_options(str(store), "")
    rows: list[dict[str, Any]] = await backup(options, store, file, set(), lambda *_: None)
    assert [(row["stream"], row["messages"]) for row in rows] == [("S", COUNT)]
    for directory, words in ((folder / "other", ""), (store, "is there already")):
        found = next(iter(BackupReader(file).streams()))
        restorer = Restorer(node_options(str(directory), ""), directory)
        try:
            config = msgspec.convert(found.config, StreamConfig, strict=False)
            if words:
                with pytest.raises(Exception, match=words):
                    await restorer.restore(found, "$G", config, lambda: None)
                continue
            assert await restorer.restore(found, "$G", config, lambda: None) == COUNT
            (stream,) = restorer.js.all_streams()
            assert stream.config.num_replicas == 1
        finally:
            await restorer.close()


def _check_restore(folder: Path) -> None:
    """A server alone takes fewer replicas than the stream had."""
    with Server(anchor()) as server:
        words = ("restore", str(folder / "all.hwb"), "--server", f"nats://127.0.0.1:{server.port}")
        status, refused = command(*words)
        assert status == 1 and "give it fewer by --replicas" in refused["error"], refused
        status, result = command(*words, "--replicas", "1")
        assert (status, result["streams"][0]["messages"]) == (0, COUNT), result
