"""Moves that are taken back while they are under way, for sure: the node that they wait for is a
process that was stopped by SIGSTOP."""

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from bench.servers import free_port
from headwater.hub.cluster.peers import number_of, peer_id
from tests.hub.cluster.test_moves import Traffic, arrived, keepers, nodes_of
from tests.hub.lab import Lab, api
from tests.slow import one_in
from tests.waiting import until


def number(name: str) -> int:
    """Of a node. Among nodes that are equal, the one with the lowest number is taken first."""
    return number_of(peer_id(name))


SPARE = next(name for k in range(1000) if number(name := f"spare{k}") > number("n2"))
"""The last one to which a stream goes."""


class Spare:
    """A member that can be stopped where it is."""

    def __init__(self, folder: Path, routes: list[str]) -> None:
        self.monitor = free_port()
        self.config = folder / "spare.conf"
        self.config.write_text(
            f'server_name: {SPARE}\nserver_tags: ["az:3"]\nlisten: "127.0.0.1:-1"\n'
            f'http: "127.0.0.1:{self.monitor}"\njetstream {{ store_dir: "{folder}/spare" }}\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{free_port()}", '
            f"routes: [{', '.join(routes)}] }}\n"
        )
        self.log = folder / "spare.log"

    def __enter__(self) -> "Spare":
        program = Path(sys.executable).parent / "headwater"
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [str(program), "serve", "-c", str(self.config)], stdout=output, stderr=output
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)

    @contextlib.contextmanager
    def stopped(self) -> Any:
        """It does nothing, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def groups(self, account: str) -> set[str]:
        """The groups of an account that it has, by /raftz."""
        url = f"http://127.0.0.1:{self.monitor}/raftz?acc={account}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return set(json.load(answer).get(account, {}))


@pytest.fixture
async def spare(lab: Lab, tmp_path: Path) -> AsyncIterator[Spare]:
    """A fourth member beside the three of the lab."""
    await lab.formed()
    with Spare(tmp_path, lab.routes) as found:
        await until(lambda: SPARE in lab.places(), "the spare node is a member", 40)
        yield found


async def on_its_way(client: Client, fields: dict[str, Any]) -> bool:
    """Whether a move was accepted. Where this machine stands still the node that is stopped is
    offline by then, and nothing is placed on it."""
    moved = await api(client, "STREAM.UPDATE.R", **fields)
    if "error" in moved:
        assert moved["error"]["err_code"] == 10005, moved
        return False
    assert moved["cluster"]["desired"]["origin"]["replicas"] == fields["num_replicas"]
    return True


async def has_moved(client: Client, name: str) -> bool:
    """Whether a node is one of the stream's."""
    return name in nodes_of(await api(client, "STREAM.INFO.R"))


async def taken_back(
    lab: Lab, spare: Spare, client: Client, before: dict[str, Any], after: dict[str, Any], step: str
) -> bool:
    """Move a stream to nodes of which the spare one does nothing, and cancel that when `step` is
    one of the stream's nodes. False when the spare one was offline too soon."""
    await until(lambda: SPARE in lab.places(), "the spare node is there", 40)
    here = nodes_of(await api(client, "STREAM.INFO.R"))
    with spare.stopped():
        if not await on_its_way(client, after):
            return False
        await until(partial(has_moved, client, step), f"{step} has it", 40)
        assert SPARE not in nodes_of(await api(client, "STREAM.INFO.R"))
        answer = await api(client, "STREAM.CANCEL_MOVE.R")
        assert "error" not in answer
        assert answer["config"]["placement"] == before["placement"]
        await until(partial(arrived, client, here), "it is where it was", 40)
        await until(lambda: keepers(lab) == here, "nothing is left elsewhere", 40)
        again = await api(client, "STREAM.CANCEL_MOVE.R")
        assert again["error"]["err_code"] == 10129
    await until(lambda: not spare.groups("$G"), "the spare node has nothing either", 40)
    assert spare.groups("$SYS") == {"_meta_"}
    return True


@pytest.mark.parametrize(
    ("replicas", "before", "after", "step"),
    one_in(2, [(3, ["!az:3"], ["!az:0"], "n1"), (2, ["!az:2", "!az:3"], ["!az:0", "!az:1"], "n2")]),
    ids=["before_the_first_step", "behind_the_first_step"],
)
async def test_a_move_is_taken_back(
    lab: Lab, spare: Spare, replicas: int, before: list[str], after: list[str], step: str
) -> None:
    """While the stream is written and read."""
    client = await lab.connect(0)
    base: dict[str, Any] = {"name": "R", "subjects": ["r.>"], "num_replicas": replicas}
    old, new = ({**base, "placement": {"tags": tags}} for tags in (before, after))
    assert "error" not in await api(client, "STREAM.CREATE.R", **old)
    traffic = Traffic(client)
    await traffic.begin()
    with traffic.more():
        await until(partial(taken_back, lab, spare, client, old, new, step), "a move is held", 120)
    await traffic.end()
