"""`headwater store keys`, `new-key` and `rotate`, and rotation of the node's key, with kill -9."""

import asyncio
import json
import resource
import signal
import subprocess
from pathlib import Path
from typing import Any

import nats
import pytest
from click.testing import CliRunner
from nats.js.api import StreamConfig

from headwater.deploy.serve import CORE_DUMPS
from headwater.deploy.store.cli import store as group
from tests.deploy.running_node import BIN, Running
from tests.deploy.store.sealed_store import metas, until_packed
from tests.waiting import stand_by

MESSAGES = 150
SECRET = b"said in confidence"


def command(*words: str) -> tuple[int, Any]:
    """Status and parsed result of a command with --json."""
    done = CliRunner().invoke(group, [*words, "--json"])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout)


def configured(folder: Path, text: str) -> Path:
    """A configuration file with a `sealing` block."""
    path = folder / "node.conf"
    path.write_text(f"headwater {{ sealing {{ {text} }} }}\njetstream {{ store_dir: {folder} }}\n")
    return path


async def fill(url: str, name: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], allow_direct=True))
    for number in range(MESSAGES):
        await js.publish(f"{name}.{number % 5}", SECRET + b" %d" % number)
    await client.close()


async def whole(url: str, name: str) -> bool:
    client = await nats.connect(url)
    js = client.jetstream()
    found = [(await js.get_msg(name, n + 1)).data for n in range(MESSAGES)]
    await client.close()
    return found == [SECRET + b" %d" % n for n in range(MESSAGES)]


def stored(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in (folder / "jetstream").rglob("*") if p.is_file())


def test_a_key_is_made_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    status, made = command("new-key", str(path))
    assert status == 0 and path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().strip() not in json.dumps(made)
    before = path.read_bytes()
    assert command("new-key", str(path))[0] == 1
    assert path.read_bytes() == before
    assert command("new-key", str(tmp_path / "other"))[1]["key"] != made["key"]


def test_rotation_of_the_nodes_key_and_of_one_stream(tmp_path: Path) -> None:
    """Both survive kill -9 while they go on; the old key is needed no more afterwards."""
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    names = [command("new-key", path)[1]["key"] for path in (old, new)]
    config = configured(tmp_path, f"key_file: '{old}'")
    flags = ("-c", str(config))
    with Running(tmp_path, "headwater", *flags) as node:
        asyncio.run(fill(node.url, "ONE"))
        asyncio.run(fill(node.url, "TWO"))
    status, seals = command("keys", *flags)
    assert status == 0 and seals["newest"] == names[0]
    assert [(r["stream"], r["key"], r["state"]) for r in seals["streams"]] == [
        ("ONE", names[0], "sealed"), ("TWO", names[0], "sealed"),
    ]
    configured(tmp_path, f"key_file: '{new}', previous: [ {{ key_file: '{old}' }} ]")
    for moment in (0.0, 0.2):
        with Running(tmp_path, "headwater", *flags) as node:
            stand_by(moment)
            node.process.kill()
            node.process.wait()
    with Running(tmp_path, "headwater", *flags) as node:
        assert asyncio.run(whole(node.url, "ONE"))
        until_packed(node, tmp_path, by=names[1])
    configured(tmp_path, f"key_file: '{new}'")
    seals = command("keys", *flags)[1]
    assert {(row["key"], row["state"]) for row in seals["streams"]} == {(names[1], "sealed")}
    before = newest_numbers(tmp_path)
    words = [str(BIN / "headwater"), "store", "rotate", "ONE", *flags]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stand_by(0.8)
    process.kill()
    process.wait()
    assert command("keys", *flags)[0] == 0
    status, result = command("rotate", "ONE", *flags)
    assert status == 0, result
    assert result["streams"][0]["state"] == "to be packed again"
    with Running(tmp_path, "headwater", *flags) as node:
        node.process.kill()
        node.process.wait()
    with Running(tmp_path, "headwater", *flags) as node:
        until_packed(node, tmp_path, by=names[1])
    one = command("keys", *flags)[1]["streams"][0]
    assert (one["stream"], one["state"], one["data_keys"]) == ("ONE", "sealed", 1)
    after = newest_numbers(tmp_path)
    assert before["ONE"] != after["ONE"] and before["TWO"] == after["TWO"]
    assert command("rotate", "NONE", *flags)[0] == 1
    with Running(tmp_path, "headwater", *flags) as node:
        assert asyncio.run(whole(node.url, "ONE")) and asyncio.run(whole(node.url, "TWO"))
    assert SECRET not in stored(tmp_path)
    key = Path(new).read_bytes().strip()
    assert key not in stored(tmp_path) and bytes.fromhex(key.decode()) not in stored(tmp_path)


def newest_numbers(folder: Path) -> dict[str, int]:
    """The number of each stream's newest data key."""
    return {name: row["keys"][-1]["number"] for name, row in metas(folder).items()}


def test_a_node_leaves_no_image_of_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    with Running(tmp_path / "one") as node:
        limit = resource.prlimit(node.pid, resource.RLIMIT_CORE)[0]
        assert limit == (1 if hard else 0)
        node.process.send_signal(signal.SIGSEGV)
        node.process.wait(10)
        assert not list(Path.cwd().glob("core*"))
    monkeypatch.setenv(CORE_DUMPS, "1")
    with Running(tmp_path / "two") as node:
        assert resource.prlimit(node.pid, resource.RLIMIT_CORE)[0] == soft
