"""What pages and `headwater hub status` say of a cluster."""

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
from click.testing import CliRunner
from msgspec import structs

from headwater.deploy.cli import cli
from headwater.deploy.hub.cli import merged
from headwater.edge.monitor.pages.healthz import HealthzOptions, healthz
from headwater.edge.monitor.pages.jsz import jsz
from headwater.hub.node.cluster_view import NO_LEADER
from tests.hub.lab import Lab, api
from tests.waiting import until


async def page(lab: Lab, index: int, path: str) -> Any:
    node = lab.nodes[index]
    assert node is not None
    url = node.ports()["monitoring"][0]
    with await asyncio.to_thread(urllib.request.urlopen, f"{url}/{path}") as answer:
        return json.loads(answer.read())


async def numbers_are_told(lab: Lab, index: int) -> None:
    """/metrics of the leader of the stream R."""
    node = lab.nodes[index]
    assert node is not None
    url = f"{node.ports()['monitoring'][0]}/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, url) as answer:
        text = answer.read().decode()
    assert f'headwater_raft_groups{{server_id="n{index}"}} 2' in text
    labels = f'{{server_id="n{index}",account="$G",stream="R"}}'
    for name, value in {"leader": 1, "quorum": 1, "members": 3}.items():
        assert f"headwater_raft_{name}{labels} {value}\n" in text
    for name in ("term", "committed", "applied", "lag"):
        assert f"headwater_raft_{name}{labels} " in text


async def test_pages_and_status_tell_of_leaders_and_lag(tmp_path: Path) -> None:
    lab = Lab(tmp_path, http_host="127.0.0.1", http_port=-1)
    try:
        await lab.formed()
        client = await lab.connect(0)
        made = await api(client, "STREAM.CREATE.R", name="R", subjects=["r"], num_replicas=3)
        leader = made["cluster"]["leader"]
        meta = (await page(lab, 1, "jsz"))["meta_cluster"]
        assert (meta["name"], meta["leader"], meta["cluster_size"]) == ("C", f"n{lab.leader()}", 3)
        assert {row["name"] for row in meta["replicas"]} == {"n0", "n1", "n2"} - {meta["leader"]}
        groups = await page(lab, int(leader[1:]), "raftz")
        assert groups["$SYS"]["_meta_"]["size"] == 3
        (stream,) = (await page(lab, int(leader[1:]), "raftz?acc=$G"))["$G"].values()
        assert stream["state"] == "LEADER"
        assert (await page(lab, 0, "healthz"))["status"] == "ok"
        await numbers_are_told(lab, int(leader[1:]))
        await until(lambda: all(c.founding.hello_of(c.number).monitor for c in lab.clusters()))
        node = lab.nodes[0]
        assert node is not None
        url = node.ports()["monitoring"][0]
        arguments = ["hub", "status", "--json", "--monitor", url]
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments)
        found = json.loads(result.stdout)
        assert (found["cluster"], found["meta_leader"]) == ("C", meta["leader"])
        assert [row["online"] for row in found["nodes"]] == [True] * 3
        (row,) = found["streams"]
        assert (row["name"], row["leader"], row["current"], row["lag"]) == ("R", leader, True, 0)
        text = await asyncio.to_thread(CliRunner().invoke, cli, [*arguments[:2], *arguments[3:]])
        assert "R" in text.stdout
        assert result.exit_code == 0
    finally:
        await lab.stop()


async def test_a_stream_with_a_replica_less_is_told_of(tmp_path: Path) -> None:
    lab = Lab(tmp_path, http_host="127.0.0.1", http_port=-1)
    try:
        await lab.formed()
        client = await lab.connect(0)
        for name, replicas in (("R", 3), ("ONE", 1)):
            await api(
                client, f"STREAM.CREATE.{name}", name=name, subjects=[name], num_replicas=replicas
            )
        assert merged([await page(lab, i, "clusterz") for i in range(3)])["problems"] == []
        views = [await page(lab, i, "clusterz") for i in range(3)]
        for row in (row for view in views for row in view["streams"] if row["name"] == "R"):
            row["replicas"].pop()
        found = merged(views)
        (problem,) = found["problems"]
        assert "stream '$G > R' has 2 of 3 replicas" in problem and not found["healthy"]
    finally:
        await lab.stop()


async def test_a_replica_that_is_behind_is_told_of(tmp_path: Path) -> None:
    lab = Lab(tmp_path, http_host="127.0.0.1", http_port=-1)
    try:
        await lab.formed()
        client = await lab.connect(0)
        await api(client, "STREAM.CREATE.R", name="R", subjects=["r"], num_replicas=3)

        async def well() -> list[Any]:
            views = [await page(lab, i, "clusterz") for i in range(3)]
            rows = [row for view in views for row in view["streams"] if row["led_here"]]
            current = [each["current"] for row in rows for each in row["replicas"]]
            return views if merged(views)["healthy"] and current == [True, True] else []

        before = await until(well)
        views = json.loads(json.dumps(before))
        (row,) = (row for view in views for row in view["streams"] if row["led_here"])
        assert 0 < row["committed"] <= row["last"]
        replica = row["replicas"][0]
        replica.update(current=False, lag=row["last"])
        assert merged(views)["healthy"], "one look does not tell what is on its way"
        found = merged(views, before)
        (problem,) = found["problems"]
        assert f"stream '$G > R' is behind on {replica['name']}" in problem and not found["healthy"]
        replica.update(lag=0)
        assert merged(views, before)["healthy"], "it has what was committed before"
        replica.update(arrived_percent=12.0, seconds_left=3.0)
        assert not merged(views, before)["healthy"]
        replica.update(offline=True)
        assert merged(views, before)["healthy"], "its node is told of, once"
    finally:
        await lab.stop()


async def test_a_node_without_a_leader_is_not_well(lab: Lab) -> None:
    node = lab.start(0)
    await until(lambda: bool(lab.cluster(0).founding.waits_for))
    answer = healthz(node, HealthzOptions(js_meta_only=True))
    assert answer["status_code"] == 503
    assert "meta leader" in answer["error"]
    assert jsz(node)["meta_cluster"]["leader"] == ""
    assert healthz(node, HealthzOptions(js_server_only=True))["status_code"] == 200


async def test_a_node_that_lost_the_others_waits_for_no_founding(lab: Lab) -> None:
    await lab.formed()
    for index in (1, 2):
        await lab.stop_node(index)
    await until(lambda: not lab.cluster(0).group.leader)
    node = lab.nodes[0]
    assert node is not None
    answer = healthz(node)
    assert (answer["status_code"], answer["error"]) == (503, NO_LEADER)


async def test_nodes_that_say_that_they_are_well_can_have_streams(lab: Lab) -> None:
    """A node knew the leader of its new cluster a moment before it was taken in, and said that all
    was well: a stream of three replicas was refused then, as a peer was offline."""
    nodes = [lab.start(index) for index in range(len(lab.nodes))]
    await until(lambda: all(healthz(node)["status"] == "ok" for node in nodes))
    leader = lab.leader()
    assert leader is not None
    found = lab.cluster(leader).candidates()
    assert len(found) == len(nodes) and all(node.online for node in found)


async def test_a_late_word_of_an_empty_node_is_no_reason_against_it(lab: Lab) -> None:
    """A node says so with each word until it has read that it was taken in."""
    await lab.formed()
    leader = lab.leader()
    assert leader is not None
    founding = lab.cluster(leader).founding
    other = lab.cluster((leader + 1) % 3).number
    hello = founding.hello_of(other)
    assert hello is not None
    founding._hello(other, memoryview(msgspec.json.encode(structs.replace(hello, emptied=True))))
    assert lab.cluster(leader).is_ready(other)
    hello.boot += 1
    founding._hello(other, memoryview(msgspec.json.encode(structs.replace(hello, emptied=True))))
    assert not lab.cluster(leader).is_ready(other), "another start, with another disk"
