"""What earlier versions of the program stored is there in this one, message by message."""

import json
import tarfile
from pathlib import Path

import pytest

from bench.servers import program
from tests.earlier.portrait import portrait
from tests.earlier.programs import KINDS, connected, running
from tests.earlier.record import KEPT
from tests.earlier.story import ask
from tests.slow import shared
from tests.waiting import until

STORES = sorted(path.name.removesuffix(".tar.xz") for path in KEPT.glob("*.tar.xz"))
COSTLY = {"2026-11-26-cluster", "2026-11-26-node", "2026-11-22-sealed"}
"""What is left to `make slow`: each kind of store stays once."""


@pytest.mark.parametrize("name", shared(STORES, lambda name: name not in COSTLY))
async def test_a_store_of_an_earlier_version_is_whole(tmp_path: Path, name: str) -> None:
    """After a kill of that version, and after a kill of this one."""
    with tarfile.open(KEPT / f"{name}.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    then = json.loads((KEPT / f"{name}.json").read_text())
    with running(program("headwater"), name.rpartition("-")[2], tmp_path) as servers:
        async with connected(servers[0]) as client:
            assert await portrait(client) == then
            js = client.jetstream(timeout=20)
            again = await js.publish("twice.a", b"", headers={"Nats-Msg-Id": "id-7"})
            assert again.duplicate
            await js.publish("plain.3", b"of this version")
            last = then["PLAIN"]["state"]["last_seq"] + 1

            async def is_copied() -> bool:
                infos = [(await ask(client, f"STREAM.INFO.{each}"))["state"]["last_seq"]
                         for each in ("MIRROR", "SOURCES")]  # fmt: skip
                return infos == [last, then["SOURCES"]["state"]["last_seq"] + 1]

            await until(is_copied, "mirror and sources go on where they were")
            now = await portrait(client)
        for server in servers:
            server.kill()
        for server in servers:
            server.start()
        async with connected(servers[0]) as client:
            assert await portrait(client) == now


def test_stores_are_kept() -> None:
    assert {name.rpartition("-")[2] for name in STORES} == set(KINDS)
