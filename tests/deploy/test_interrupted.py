"""Nodes that are stopped or killed in the middle of something: whole or not at all, and told."""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import nats
from nats.js.api import StreamConfig
from nats.js.errors import NotFoundError

from tests.deploy.running_node import Running
from tests.deploy.store.test_store_commands import command
from tests.edge.jetstream.backup.test_stream_backup import Backup
from tests.measuring import within

COUNT = 400
CONFIG = 'jetstream { key: "%s", store_dir: "%s" }\n'
SEALING = "headwater { sealing { key_env: OTHER_KEY } }\n"


async def fill(url: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="B", subjects=["b"]))
    for number in range(COUNT):
        await js.publish("b", b"message %d " % number * 20)
    await client.close()


async def half_restored(url: str) -> None:
    """Take a backup, delete the stream, and send half of it back."""
    client = await nats.connect(url)
    backup = Backup(client)
    answer, content = await backup.take("B")
    await client.jetstream().delete_stream("B")
    body = {"config": answer["config"], "state": answer["state"]}
    subject = (await backup.api("STREAM.RESTORE.B", body))["deliver_subject"]
    for at in range(0, len(content) // 2, 700):
        await client.request(subject, content[at : at + 700], timeout=5)
    await client.close()


async def info(url: str) -> Any:
    client = await nats.connect(url)
    try:
        return await client.jetstream().stream_info("B")
    except NotFoundError:
        return None
    finally:
        await client.close()


def test_a_restore_that_is_killed_midway_leaves_nothing(tmp_path: Path) -> None:
    with Running(tmp_path) as node:
        asyncio.run(fill(node.url))
        asyncio.run(half_restored(node.url))
        node.process.kill()
    for _ in range(2):
        with Running(tmp_path) as node:
            assert asyncio.run(info(node.url)) is None
    assert not list((tmp_path / "jetstream" / "streams").iterdir())
    status, report = command("verify", "-sd", str(tmp_path))
    assert (status, report["streams"]) == (0, [])


async def begun(url: str) -> None:
    """Ask for a backup and take only its first chunks: the node waits for a sign to go on."""
    client = await nats.connect(url)
    inbox = client.new_inbox()
    chunks = await client.subscribe(inbox)
    body = {"deliver_subject": inbox, "chunk_size": 1024, "window_size": 2048}
    answer = json.loads(
        (await client.request("$JS.API.STREAM.SNAPSHOT.B", json.dumps(body).encode())).data
    )
    assert "error" not in answer
    assert (await chunks.next_msg(timeout=5)).data
    await client.close()


def test_a_node_that_is_stopped_during_a_backup_stops_cleanly(tmp_path: Path) -> None:
    with Running(tmp_path) as node:
        asyncio.run(fill(node.url))
        asyncio.run(begun(node.url))
        began = time.monotonic()
        node.process.send_signal(signal.SIGTERM)
        node.process.communicate(timeout=10)
        assert within(time.monotonic() - began, 5)
        assert node.process.returncode == 0
    status, report = command("verify", "-sd", str(tmp_path))
    assert (status, report["clean"], report["problems"]) == (0, True, [])
    with Running(tmp_path) as node:
        assert asyncio.run(info(node.url)).state.messages == COUNT


def test_a_changed_sealing_key_is_refused_while_the_node_runs(tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text(CONFIG % ("first-secret", tmp_path / "data"))
    with Running(tmp_path / "data", "headwater", "-c", str(config)) as node:
        asyncio.run(fill(node.url))
        config.write_text(CONFIG % ("second-secret", tmp_path / "data"))
        node.process.send_signal(signal.SIGHUP)
        assert node.process.stderr is not None
        line = next(line for line in node.process.stderr if "Failed to reload" in line)
        assert "config reload not supported for jetstream.key" in line
        assert "secret" not in line
        config.write_text(CONFIG % ("first-secret", tmp_path / "data") + SEALING)
        node.process.send_signal(signal.SIGHUP)
        line = next(line for line in node.process.stderr if "Failed to reload" in line)
        assert "config reload not supported for headwater.sealing: old=None" in line
        assert asyncio.run(info(node.url)).state.messages == COUNT
    config.write_text(CONFIG % ("second-secret", tmp_path / "data"))
    status, report = command("verify", "-sd", str(tmp_path / "data"), "-c", str(config))
    assert status == 1
    assert "key" in report["error"]
    config.write_text(CONFIG % ("first-secret", tmp_path / "data"))
    status, _ = command("verify", "-sd", str(tmp_path / "data"), "-c", str(config))
    assert status == 0
