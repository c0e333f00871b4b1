"""`headwater store` as an operator uses it: on stopped stores and through running servers."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nats
import pytest
from click.testing import CliRunner
from nats.js.api import ConsumerConfig, StreamConfig

from headwater.deploy.store.cli import store as group
from headwater.edge.storage.device.durable_file import TwoCopyFile
from tests.deploy.running_node import Running

MESSAGES = 300
UNUSABLE = b"newer than what the log has, and nonsense"


def command(*words: str) -> tuple[int, Any]:
    """Status and parsed result of a command with --json."""
    done = CliRunner().invoke(group, [*words, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def config(name: str) -> StreamConfig:
    return StreamConfig(name=name, subjects=[f"{name}.>"], allow_direct=True)


async def create(url: str, name: str = "ORDERS") -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(config(name))
    await client.close()


async def fill(url: str, name: str = "ORDERS", count: int = MESSAGES) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(config(name))
    for number in range(count):
        headers = {"N": str(number)} if number % 3 == 0 else None
        await js.publish(f"{name}.{number % 7}", b"message %d " % number * 5, headers=headers)
    await js.add_consumer(name, ConsumerConfig(durable_name="worker", ack_policy="explicit"))
    subscription = await js.pull_subscribe_bind("worker", name)
    for message in await subscription.fetch(10):
        await message.ack_sync()
    await client.close()


async def content(url: str, name: str = "ORDERS") -> tuple[list[Any], int]:
    """Every message, and where the consumer stands."""
    client = await nats.connect(url)
    js = client.jetstream()
    rows = []
    for sequence in range(1, MESSAGES + 1):
        message = await js.get_msg(name, sequence)
        rows.append((message.seq, message.subject, message.data, message.headers))
    floor = (await js.consumer_info(name, "worker")).ack_floor
    await client.close()
    return rows, floor.stream_seq


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped node with one stream; not to be changed."""
    path = tmp_path_factory.mktemp("filled")
    with Running(path) as node:
        asyncio.run(fill(node.url))
    return path


def copy(source: Path, target: Path) -> Path:
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)
    return target


def image(path: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def spoil(path: Path, marker: bytes) -> None:
    """Flip a bit of the record with this text."""
    for segment in path.rglob("*.seg"):
        data = bytearray(segment.read_bytes())
        at = data.find(marker)
        if at >= 0:
            data[at] ^= 4
            segment.write_bytes(data)
            return
    raise AssertionError("the text is in no segment")


def test_a_sound_store_verifies_and_stays_as_it_is(filled: Path) -> None:
    before = image(filled)
    status, report = command("verify", "-sd", str(filled))
    assert status == 0, report
    assert report["ok"] and report["clean"] and not report["problems"]
    (row,) = report["streams"]
    assert (row["account"], row["stream"], row["messages"]) == ("$G", "ORDERS", MESSAGES)
    assert image(filled) == before


def test_a_flipped_bit_is_named_and_nothing_is_changed(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    spoil(path, b"message 41 ")
    before = image(path)
    status, report = command("verify", "-sd", str(path))
    (row,) = report["streams"]
    assert (status, row["lost"], row["lost_sequences"]) == (1, 1, "42")
    (problem,) = row["damaged"]
    assert (problem["kind"], problem["stream"]) == ("damaged", "$G > ORDERS")
    assert problem["file"].startswith(str(path)) and problem["file"] in problem["text"]
    assert problem["since"] > 0
    assert image(path) == before


def test_a_running_node_is_left_alone(tmp_path: Path) -> None:
    with Running(tmp_path) as node:
        for words in (("verify",), ("repair",), ("quarantine", "list")):
            status, result = command(*words, "-sd", str(tmp_path))
            assert status == 1
            assert f"in use by process {node.pid}" in result["error"]


def test_no_store(tmp_path: Path) -> None:
    status, result = command("verify", "-sd", str(tmp_path))
    assert status == 1 and "no store" in result["error"]


def test_backup_and_restore_of_stopped_nodes(filled: Path, tmp_path: Path) -> None:
    before = image(filled)
    file = tmp_path / "all.hwbackup"
    status, result = command("backup", "-sd", str(filled), "-o", str(file))
    assert (status, result["streams"][0]["messages"]) == (0, MESSAGES)
    assert image(filled) == before
    assert [p.name for p in tmp_path.iterdir()] == ["all.hwbackup"]
    status, result = command("backup", "-sd", str(filled), "-o", str(file))
    assert status == 1 and "exists already" in result["error"]
    assert command("verify", "--file", str(file))[0] == 0
    with Running(filled) as node:
        original = asyncio.run(content(node.url))
    other = tmp_path / "other"
    with Running(other):
        pass
    status, result = command("restore", str(file), "-sd", str(other))
    assert (status, result["streams"][0]["messages"]) == (0, MESSAGES), result
    assert command("restore", str(file), "-sd", str(other))[0] == 1
    status, result = command("restore", str(file), "-sd", str(other), "--as", "COPY")
    assert status == 0, result
    assert command("verify", "-sd", str(other))[0] == 0
    with Running(other) as node:
        assert asyncio.run(content(node.url)) == original
        assert asyncio.run(content(node.url, "COPY")) == original


def test_a_damaged_backup_is_not_restored(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.hwbackup"
    assert command("backup", "-sd", str(filled), "-o", str(file))[0] == 0
    data = file.read_bytes()
    for bad in (data[:-5], data[:2000] + bytes([data[2000] ^ 1]) + data[2001:], data + b"x"):
        file.write_bytes(bad)
        assert command("verify", "--file", str(file))[0] == 1
        status, result = command("restore", str(file), "-sd", str(tmp_path / "new"))
        assert status == 1 and "error" in result
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("program", ["headwater", "nats-server"])
def test_backup_and_restore_through_servers(filled: Path, tmp_path: Path, program: str) -> None:
    """A backup of one server goes into any other."""
    file = tmp_path / "all.hwbackup"
    with Running(copy(filled, tmp_path / "data")) as node:
        status, result = command("backup", "--server", node.url, "-o", str(file))
        assert (status, result["streams"][0]["messages"]) == (0, MESSAGES)
        original = asyncio.run(content(node.url))
        status, report = command("verify", "--server", node.url)
        assert (status, report["streams"][0]["messages"]) == (0, MESSAGES)
        assert command("restore", str(file), "--server", node.url)[0] == 1
    with Running(tmp_path / "other", program) as node:
        status, result = command("restore", str(file), "--server", node.url)
        assert status == 0, result
        assert asyncio.run(content(node.url)) == original


def test_backup_through_a_server_tells_what_it_lost(filled: Path, tmp_path: Path) -> None:
    """Nobody knows of the damage before the backup reads it."""
    path = copy(filled, tmp_path / "data")
    spoil(path, b"message 41 ")
    output = str(tmp_path / "backup")
    with Running(path) as node:
        status, report = command("backup", "--server", node.url, "-o", output)
    (row,) = report["streams"]
    assert (status, row["messages"], row["lost"]) == (1, MESSAGES - 1, 1)


def test_repair_fetches_what_is_lost(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    spoil(path, b"message 41 ")
    spoil(path, b"message 0 ")
    spoil(path, b"message 299 ")
    with Running(copy(filled, tmp_path / "peer")) as peer:
        original = asyncio.run(content(peer.url))
        status, report = command("repair", "-sd", str(path), "--from", peer.url)
    (row,) = report["streams"]
    assert (status, row["put_back"], row["lost"]) == (0, 3, 0), report
    assert len(report["kept"]) == 1
    assert command("verify", "-sd", str(path))[0] == 0
    with Running(path) as node:
        assert asyncio.run(content(node.url)) == original


def test_repair_takes_no_messages_of_another_stream(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    spoil(path, b"message 41 ")
    with Running(tmp_path / "peer") as peer:
        asyncio.run(fill(peer.url))
        status, report = command("repair", "-sd", str(path), "--from", peer.url)
    (row,) = report["streams"]
    assert (status, row["refused"], row["lost"]) == (1, [42], 1)


def test_repair_writes_indexes_again(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    index = next(path.rglob("*.idx"))
    good = index.read_bytes()
    index.write_bytes(good[:100] + b"????" + good[104:])
    assert command("verify", "-sd", str(path))[0] == 1
    assert command("repair", "-sd", str(path))[0] == 0
    assert command("verify", "-sd", str(path))[0] == 0


def test_repair_leaves_nothing_damaged_behind(filled: Path, tmp_path: Path) -> None:
    """What nobody else has stays lost; the file that had it is sound, and copied only once."""
    path = copy(filled, tmp_path / "data")
    spoil(path, b"message 41 ")
    assert command("backup", "-sd", str(path), "-o", str(tmp_path / "backup"))[0] == 1
    assert command("verify", "--file", str(tmp_path / "backup"))[0] == 0
    for copies in (1, 0):
        status, report = command("repair", "-sd", str(path))
        assert (status, len(report["kept"])) == (1, copies)
        (row,) = command("verify", "-sd", str(path))[1]["streams"]
        assert (row["messages"], row["lost"], row["damaged"]) == (MESSAGES - 1, 1, [])


def test_repair_tells_of_a_stream_that_is_not_served(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    TwoCopyFile(next(path.rglob("meta"))).replace(UNUSABLE)
    status, report = command("repair", "-sd", str(path))
    assert (status, report["ok"], report["unserved"]) == (1, False, 1)
    assert any("ORDERS' is not served" in row["text"] for row in report["problems"])
    assert "unserved" in {row["kind"] for row in report["problems"]}


def test_quarantine(filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "data")
    meta = next(path.rglob("meta"))
    good = meta.read_bytes()
    TwoCopyFile(meta).replace(UNUSABLE)
    with Running(path):
        pass
    status, result = command("quarantine", "list", "-sd", str(path))
    (item,) = [row for row in result["streams"] if row["kind"] == "stream"]
    assert status == 0 and not item["restorable"]
    assert command("quarantine", "restore", item["name"], "-sd", str(path))[0] == 1
    (path / "jetstream" / "quarantine" / item["name"] / "meta").write_bytes(good)
    assert command("quarantine", "restore", item["name"], "-sd", str(path))[0] == 0
    with Running(path) as node:
        assert len(asyncio.run(content(node.url))[0]) == MESSAGES
    assert command("quarantine", "purge", "nothing", "-sd", str(path))[0] == 1


def test_quarantined_stream_comes_back_with_the_end_of_the_log(tmp_path: Path) -> None:
    """A clean stop between: then the file alone says what the stream is."""
    path = tmp_path / "data"
    with Running(path) as node:
        asyncio.run(create(node.url))
    with Running(path) as node:
        asyncio.run(fill(node.url))
        node.process.kill()
        node.process.wait()
    meta = next(path.rglob("meta"))
    good = meta.read_bytes()
    TwoCopyFile(meta).replace(UNUSABLE)
    with Running(path):
        pass
    result = command("quarantine", "list", "-sd", str(path))[1]
    (name,) = [row["name"] for row in result["streams"] if row["kind"] == "stream"]
    (path / "jetstream" / "quarantine" / name / "meta").write_bytes(good)
    status, result = command("quarantine", "restore", name, "-sd", str(path))
    assert (status, result["stream"], result["messages"]) == (0, "ORDERS", MESSAGES)
    with Running(path) as node:
        rows, floor = asyncio.run(content(node.url))
        assert (len(rows), floor) == (MESSAGES, 10)


def test_plain_lines_without_a_terminal(filled: Path) -> None:
    program = Path(sys.executable).parent / "headwater"
    done = subprocess.run(
        [program, "store", "verify", "-sd", str(filled)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    assert "ORDERS" in done.stdout and "all is well" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
