"""What the open batches of a node may be together: so many, and so many bytes."""

import json
from pathlib import Path
from typing import Any

import nats
import pytest

from bench.servers import Recipe, Server, program

CONFIG = "jetstream { store_dir: '%s', limits { batch { max_inflight_total: 3 } } }\n%s"
SERVERS = {"headwater": (program("headwater"), "serve"), "nats-server": (program("nats-server"),)}
LARGE = bytes(900_000)
GATEWAY = "headwater { profile: edge, commit_segment_bytes: 16MB }"


def server(name: str, folder: Path, more: str = "") -> Server:
    return Server(Recipe(name, SERVERS[name], CONFIG % (folder / "store", more)))


async def connected(port: int, *streams: str) -> Any:
    """A connection, and streams that take batches."""
    nc = await nats.connect(f"nats://127.0.0.1:{port}")
    for name in streams:
        config = {"name": name, "subjects": [f"{name}.>"], "allow_atomic": True}
        answer = await nc.request(
            f"$JS.API.STREAM.CREATE.{name}", json.dumps(config).encode(), timeout=10
        )
        assert b'"error"' not in answer.data
    return nc


async def step(
    nc: Any, stream: str, batch: str, position: int, payload: bytes = b"x", commit: str = ""
) -> int:
    """Publish one message of a batch; the code of the error, or 0."""
    headers = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(position)}
    if commit:
        headers["Nats-Batch-Commit"] = commit
    answer = await nc.request(f"{stream}.{position}", payload, headers=headers, timeout=10)
    if not answer.data:
        return 0
    return int(json.loads(answer.data).get("error", {}).get("err_code", 0))


@pytest.mark.parametrize("name", SERVERS)
async def test_so_many_batches_of_all_streams(name: str, tmp_path: Path) -> None:
    with server(name, tmp_path) as node:
        nc = await connected(node.port, "A", "B")
        codes = [await step(nc, stream, batch, 1) for stream in "AB" for batch in "xy"]
        assert codes == [0, 0, 0, 10210]
        assert await step(nc, "A", "x", 2, commit="1") == 0
        assert await step(nc, "B", "y", 1) == 0
        # Whether it is committed, given up or forgotten with its stream: its place is free again.
        assert await step(nc, "B", "y", 5) == 10176
        assert await step(nc, "B", "z", 1) == 0
        await nc.request("$JS.API.STREAM.DELETE.B", b"", timeout=10)
        assert [await step(nc, "A", batch, 1) for batch in "abc"] == [0, 0, 10210]
        await nc.close()


async def test_so_many_bytes(tmp_path: Path) -> None:
    """A gateway holds 32 MiB. The batch that would pass that is given up, and nothing of it is
    stored; there is room again when others are committed."""
    with server("headwater", tmp_path, GATEWAY) as node:
        nc = await connected(node.port, "A", "B")
        abandoned = await nc.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.*")
        assert [await step(nc, "A", "x", at, LARGE) for at in range(1, 31)] == [0] * 30
        codes = [await step(nc, "B", "y", at, LARGE) for at in range(1, 9)]
        full = codes.index(10023)
        assert codes[:full] == [0] * full
        assert codes[full + 1 :] == [10176] * (7 - full)
        advisory = json.loads((await abandoned.next_msg(timeout=5)).data)
        assert (advisory["stream"], advisory["batch"], advisory["reason"]) == ("B", "y", "large")
        assert await step(nc, "A", "x", 31, b"", "1") == 0
        assert [await step(nc, "B", "z", at, LARGE) for at in range(1, 9)] == [0] * 8
        assert await step(nc, "B", "z", 9, b"", "1") == 0
        infos = [await nc.request(f"$JS.API.STREAM.INFO.{stream}", timeout=10) for stream in "AB"]
        assert [json.loads(info.data)["state"]["messages"] for info in infos] == [31, 9]
        await nc.close()


async def test_more_than_the_log_takes_at_once(tmp_path: Path) -> None:
    """Nothing of it is stored, and the log says what to do."""
    file = tmp_path / "node.log"
    more = f"headwater {{ profile: edge }}\nlog_file: '{file}'"
    with server("headwater", tmp_path, more) as node:
        nc = await connected(node.port, "A")
        assert [await step(nc, "A", "x", at, LARGE) for at in range(1, 13)] == [0] * 12
        assert await step(nc, "A", "x", 13, b"", "1") == 10023
        assert "commit_segment_bytes makes it larger" in file.read_text()
        assert await step(nc, "A", "y", 1, b"", "1") == 0
        info = await nc.request("$JS.API.STREAM.INFO.A", timeout=10)
        assert json.loads(info.data)["state"]["messages"] == 1
        await nc.close()
