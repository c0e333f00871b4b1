"""Damage on disk as users and operators see it: lost[], errors, advisories, health, quarantine."""

import asyncio
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from tests.waiting import until_state

CONFIG = """
system_account: SYS
accounts {
  SYS { users: [{user: sys, password: pw}] }
  A { jetstream: enabled, users: [{user: a, password: pw}] }
}
headwater { commit_segment_bytes: 64KB }
http: "127.0.0.1:-1"
"""
COUNT = 3000


@pytest.fixture
def start(start_server: Callable[..., Any], tmp_path: Path) -> Callable[[], Any]:
    """Starts a server with a system account and monitoring on one directory."""
    config = tmp_path / "node.conf"
    config.write_text(CONFIG)
    return lambda: start_server("-c", str(config), "--ports_file_dir", str(tmp_path))


def page(tmp_path: Path, server: Any, path: str) -> Any:
    """A page of the node's monitoring."""
    (file,) = tmp_path.glob(f"*_{server.process.pid}.ports")
    url = json.loads(file.read_text())["monitoring"][0]
    with urllib.request.urlopen(f"{url}{path}", timeout=5) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


async def connect(server: Any, user: str) -> Any:
    return await nats.connect(server.url, user=user, password="pw")


async def fill(server: Any) -> None:
    """A stream of COUNT messages, most of them in segments."""
    nc = await connect(server, "a")
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s.*"])
    for start in range(0, COUNT, 100):
        batch = range(start, start + 100)
        await asyncio.gather(*(js.publish(f"s.{n % 3}", b"%08d" % n + b"x" * 90) for n in batch))
    await nc.close()


def flip(tmp_path: Path, sequence: int) -> None:
    """Flip a bit in the payload of a message, on disk."""
    for path in tmp_path.glob("store/jetstream/streams/*/*.seg"):
        at = path.read_bytes().find(b"%08dxxx" % (sequence - 1))
        if at > 0:
            with path.open("r+b") as file:
                file.seek(at + 20)
                file.write(b"y")
            return
    raise AssertionError("the message is in no segment")


async def ask(nc: Any, subject: str, **body: Any) -> Any:
    answer = await nc.request(subject, json.dumps(body).encode(), timeout=5)
    return json.loads(answer.data)


async def test_damage_is_passed_over_and_told(start: Callable[[], Any], tmp_path: Path) -> None:
    server = start()
    await fill(server)
    server.stop()
    flip(tmp_path, 70)
    server = start()
    assert "headwater" not in page(tmp_path, server, "/healthz")
    nc = await connect(server, "a")
    js = nc.jetstream()
    events = await nc.subscribe("$JS.EVENT.ADVISORY.STREAM.MSGS_LOST.S")
    consumer = await js.pull_subscribe("s.*", durable="c")
    got = []
    while len(got) < COUNT - 1:
        for message in await consumer.fetch(500, timeout=5):
            got.append(message.metadata.sequence.stream)
            await message.ack()
    assert got == [n for n in range(1, COUNT + 1) if n != 70]
    event = json.loads((await events.next_msg(timeout=5)).data)
    assert event["type"] == "io.nats.jetstream.advisory.v1.stream_msgs_lost"
    assert (event["stream"], event["sequences"], event["count"]) == ("S", [70], 1)
    info = await ask(nc, "$JS.API.STREAM.INFO.S")
    assert info["state"]["lost"]["msgs"] == [70]
    assert 0 < info["state"]["lost"]["bytes"] < 1000
    assert info["state"]["messages"] == COUNT - 1
    refused = await ask(nc, "$JS.API.STREAM.MSG.GET.S", seq=70)
    assert refused["error"]["code"] == 500
    assert "damaged" in refused["error"]["description"]
    health = page(tmp_path, server, "/healthz")
    assert (health["status"], health["headwater"]["lost_messages"]) == ("ok", 1)
    metrics = page(tmp_path, server, "/metrics")
    assert "headwater_storage_lost{" in metrics
    assert 'stream_name="S"' in metrics.partition("headwater_stream_lost_messages")[2]
    assert page(tmp_path, server, "/jsz")["headwater"]["lost"] == 1
    await nc.close()


async def test_damage_does_not_stop_what_ends_by_age(
    start: Callable[[], Any], tmp_path: Path
) -> None:
    server = start()
    nc = await connect(server, "a")
    ttl, markers, ages, kept = ({"name": n, "subjects": [f"{n}.*"]} for n in "TMAK")
    ttl |= {"allow_msg_ttl": True}
    markers |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9}
    ages |= {"allow_msg_ttl": True, "max_age": 3 * 10**9}
    kept |= {"allow_direct": True}
    for number, config in enumerate((ttl, markers, ages, kept)):
        assert "error" not in await ask(nc, f"$JS.API.STREAM.CREATE.{config['name']}", **config)
        life = {"Nats-TTL": "3s"} if number < 2 else {"A": "1"}
        for n in range(4):
            text = b"%08dxxx" % (100 * number + n) + b"x" * 90
            await nc.jetstream().publish(f"{config['name']}.{n}", text, headers=life)
    await nc.close()
    server.stop()
    for number in range(4):
        flip(tmp_path, 100 * number + 1)
    server = start()
    nc = await connect(server, "a")
    answer = await nc.request("$JS.API.DIRECT.GET.K.K.0", b"", timeout=5)
    assert answer.headers is not None and answer.headers["Status"] == "500", answer
    for name in "TMA":
        await until_state(nc.jetstream(), name, lambda state: not state.messages, "all are too old")
    await nc.close()
    server.stop()
    assert "Traceback" not in "".join(server.log)


async def test_quarantine_over_the_wire(start: Callable[[], Any], tmp_path: Path) -> None:
    server = start()
    await fill(server)
    server.kill()
    (meta,) = tmp_path.glob("store/jetstream/streams/*/meta")
    good = meta.read_bytes()
    TwoCopyFile(meta).replace(b"newer than what the log has, and nonsense")
    server = start()
    system, nc = await connect(server, "sys"), await connect(server, "a")
    health = page(tmp_path, server, "/healthz")["headwater"]
    assert health["quarantined"] > 0
    unserved = [row for row in health["problems"] if row["kind"] == "unserved"]
    (aside,) = [row for row in unserved if "was moved to" in row["text"]]
    assert aside["file"] == str(meta.parent) and aside["since"].endswith("Z")
    (vanished,) = [row for row in unserved if row.get("stream") == "A > S"]
    assert "is not served" in vanished["text"]
    listed = (await ask(system, "$HW.API.STORE.QUARANTINE.LIST"))["data"]["items"]
    name = next(item["name"] for item in listed if item["kind"] == "stream")
    wrong = await ask(system, "$HW.API.STORE.QUARANTINE.PURGE", name=name[:-1])
    assert "error" in wrong
    refused = await ask(system, "$HW.API.STORE.QUARANTINE.RESTORE", name=name)
    assert "meta" in refused["error"]["description"]
    (tmp_path / "store/jetstream/quarantine" / name / "meta").write_bytes(good)
    restored = await ask(system, "$HW.API.STORE.QUARANTINE.RESTORE", name=name)
    assert restored["data"]["stream"] == "S"
    js = nc.jetstream()
    state = (await js.stream_info("S")).state
    assert (state.messages, state.last_seq) == (COUNT, COUNT)
    assert (await js.publish("s.1", b"more")).seq == COUNT + 1
    assert (await js.get_msg("S", COUNT)).data.startswith(b"%08d" % (COUNT - 1))
    for item in listed:
        if item["kind"] != "stream":
            gone = await ask(system, "$HW.API.STORE.QUARANTINE.PURGE", name=item["name"])
            assert gone["data"]["bytes"] == item["bytes"]
    assert (await ask(system, "$HW.API.STORE.QUARANTINE.LIST"))["data"]["total"] == 0
    await system.close()
    await nc.close()


async def test_cold_damage_is_found_without_a_read(
    start: Callable[[], Any], tmp_path: Path
) -> None:
    config = tmp_path / "node.conf"
    config.write_text(CONFIG.replace("64KB", "64KB, scrub { rate: 1GB, pause: 100ms }"))
    server = start()
    await fill(server)
    # Then everything is in segments: while a message is in the log, too, that copy counts.
    server.stop()
    server = start()
    nc = await connect(server, "a")
    events = await nc.subscribe("$JS.EVENT.ADVISORY.STREAM.MSGS_LOST.S")
    await nc.flush()
    flip(tmp_path, 70)
    event = json.loads((await events.next_msg(timeout=10)).data)
    assert event["sequences"] == [70]
    metrics = page(tmp_path, server, "/metrics")
    found = metrics.partition("headwater_storage_scrub_findings{")[2].split("\n")[0]
    assert found.endswith(" 1")
    await nc.close()


def traces(tmp_path: Path, text: bytes) -> list[str]:
    """Files of the store in which a text is found."""
    files = (path for path in tmp_path.glob("store/**/*") if path.is_file())
    return [path.name for path in files if text in path.read_bytes()]


async def test_erased_messages_are_in_no_file(start: Callable[[], Any], tmp_path: Path) -> None:
    """Also when the node is killed while it erases; `no_erase` leaves the bytes alone."""
    server = start()
    nc = await connect(server, "a")
    js = nc.jetstream()
    await js.add_stream(name="S", subjects=["s.>"])
    secrets = []
    for n in range(30):
        secrets.append((await js.publish(f"s.jane-doe-{n:02d}", b"secret-%02d-" % n * 9)).seq)
        await asyncio.gather(*(js.publish("s.x", b"x" * 200) for _ in range(80)))
    answer = await ask(nc, "$JS.API.STREAM.MSG.DELETE.S", seq=secrets[0], no_erase=True)
    assert answer["success"]
    assert traces(tmp_path, b"secret-00")
    for n in range(1, 10):
        assert (await ask(nc, "$JS.API.STREAM.MSG.DELETE.S", seq=secrets[n]))["success"]
        assert traces(tmp_path, b"secret-%02d" % n) == traces(tmp_path, b"doe-%02d" % n) == []
    again = await ask(nc, "$JS.API.STREAM.MSG.DELETE.S", seq=secrets[5])
    assert again["error"]["err_code"] == 10043
    for rest in (secrets[10:20], secrets[20:]):
        for seq in rest:
            await nc.publish("$JS.API.STREAM.MSG.DELETE.S", b'{"seq":%d}' % seq)
        await nc.flush()
        await js.publish("s.x", b"the deletes before this are durable")
        server.kill()
        server = start()
        await nc.close()
        nc = await connect(server, "a")
        js = nc.jetstream()
    for n, seq in enumerate(secrets[1:], 1):
        assert (await ask(nc, "$JS.API.STREAM.MSG.GET.S", seq=seq))["error"]["code"] == 404
        if n >= 10:
            await ask(nc, "$JS.API.STREAM.MSG.DELETE.S", seq=seq)
    server.stop()
    for n in range(1, 30):
        assert traces(tmp_path, b"secret-%02d" % n) == traces(tmp_path, b"doe-%02d" % n) == []
    await nc.close()
