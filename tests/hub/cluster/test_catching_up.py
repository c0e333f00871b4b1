"""`headwater hub status --wait`: how far a node that returns has come."""

import asyncio
import subprocess
import sys
from pathlib import Path

from bench.cluster.nodes import SERVERS, ClusterNodes, leader_of
from headwater.deploy.console import Bars
from headwater.deploy.hub.catching_up import progress, show_replicas, wait_until_well
from tests.hub.cluster.one_stream import begun
from tests.hub.lab import api


async def test_it_ends_when_a_node_has_everything_again(tmp_path: Path) -> None:
    with ClusterNodes(SERVERS["headwater"], parent=tmp_path) as nodes:
        client = await begun(nodes)
        away = (await leader_of(client, "S") + 1) % 3
        nodes.kill(away)
        nodes.wipe(away)
        js = (await nodes.client((away + 1) % 3)).jetstream()
        for _ in range(20):
            await asyncio.gather(*(js.publish("s.a", bytes(1000), timeout=20) for _ in range(100)))
        monitor = f"http://127.0.0.1:{nodes.monitor_ports[(away + 1) % 3]}"
        command = [sys.executable, "-m", "headwater.deploy.main", "hub", "status"]
        command += ["--monitor", monitor, "--wait"]

        def run(seconds: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run([*command, seconds], capture_output=True, text=True, check=False)

        short = await asyncio.to_thread(run, "0.1")
        assert short.returncode == 1, short
        nodes.start(away)
        long = await asyncio.to_thread(run, "60")
        assert long.returncode == 0, long
        info = await api(client, "STREAM.INFO.S")
        assert all(each["current"] for each in info["cluster"]["replicas"])


def test_bars_show_what_replicas_have() -> None:
    told: list[tuple[str, int, int]] = []

    class Told(Bars):
        def update(self, name: str, done: int, total: int) -> None:
            told.append((name, done, total))

    late = {"name": "n1", "current": False, "lag": 40}
    row = {"account": "A", "name": "S", "last": 100, "replicas": [late]}
    shown: dict[str, int] = {}
    show_replicas(Told(), shown, [row])
    late |= {"arrived_percent": 12.5}
    show_replicas(Told(), shown, [row])
    late |= {"current": True}
    show_replicas(Told(), shown, [row])
    assert told == [("A > S on n1", 60, 100), ("A > S on n1", 12, 100), ("A > S on n1", 100, 100)]
    assert progress({"last": 0}, {"lag": 3}) == (0, 1)


def test_it_looks_again_until_all_is_well() -> None:
    looks = iter([False, False, True])
    found = wait_until_well(lambda: {"healthy": next(looks), "streams": []}, 30)
    assert found["healthy"]
    assert next(looks, None) is None
