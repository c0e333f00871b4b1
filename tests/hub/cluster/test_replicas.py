"""Streams with three replicas: any minority may be gone."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import nats
from nats.aio.client import Client
from nats.js.api import PubAck

from bench.servers import free_port
from headwater.hub.node.service import ClusterService
from tests.hub.lab import Lab, api
from tests.waiting import connected, silence, until, until_state

R = {"name": "R", "subjects": ["r.>"], "num_replicas": 3}


def index_of(answer: dict[str, Any]) -> int:
    """The node that leads, by the `cluster` of an answer."""
    return int(answer["cluster"]["leader"][1:])


async def test_a_stream_goes_on_without_its_leader(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    made = await api(client, "STREAM.CREATE.R", **R)
    assert len(made["cluster"]["replicas"]) == 2
    assert made["cluster"]["raft_group"].startswith("S-R3F-")
    js = client.jetstream()
    for number in range(10):
        await js.publish("r.a", b"%d" % number)
    sub = await js.pull_subscribe("r.>", "worker")
    for message in await sub.fetch(4):
        await message.ack_sync()
    first = index_of(await api(client, "STREAM.INFO.R"))
    assert index_of(await api(client, "CONSUMER.INFO.R.worker")) == first
    await lab.stop_node(first)
    client = await lab.connect((first + 1) % 3)
    info = await api(client, "STREAM.INFO.R")
    assert index_of(info) != first
    assert info["state"]["messages"] == 10
    gone = next(row for row in info["cluster"]["replicas"] if row["name"] == f"n{first}")
    assert gone["offline"]
    ack = await client.jetstream().publish("r.a", b"x")
    assert ack.seq == 11
    sub = await client.jetstream().pull_subscribe("r.>", "worker")
    (message,) = await sub.fetch(1)
    assert message.metadata.sequence.stream == 5
    lab.start(first)
    await lab.settled(3)
    await until(lambda: current(lab, "R", 3))


def current(lab: Lab, name: str, count: int) -> bool:
    """Whether that many replicas of a stream have everything."""
    for cluster in lab.clusters():
        stream = cluster.here("$G", name)
        if stream is not None:
            rows = cluster.cluster_info(stream).replicas
            return sum(row.current for row in rows) == count - 1
    return False


async def test_the_leader_of_a_stream_steps_down(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    before = index_of(await api(client, "STREAM.CREATE.R", **R))
    await until(lambda: current(lab, "R", 3))
    target = (before + 1) % 3
    wanted = {"placement": {"preferred": f"n{target}"}}
    assert (await api(client, "STREAM.LEADER.STEPDOWN.R", **wanted))["success"]
    await until(lambda: lab.cluster(target).here("$G", "R") is not None)
    assert index_of(await api(client, "STREAM.INFO.R")) == target
    assert (await client.jetstream().publish("r.a", b"x")).seq == 1
    assert (await api(client, "STREAM.DELETE.R"))["success"]
    assert (await api(client, "STREAM.INFO.R"))["error"]["err_code"] == 10059
    for cluster in lab.clusters():
        await until(lambda c=cluster: len(c.jetstream.store().stores()) == 1)


async def test_configuration_and_number_of_replicas_change(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    await api(client, "STREAM.CREATE.R", **R)
    for number in range(5):
        await client.jetstream().publish("r.a", b"%d" % number)
    changed = await api(client, "STREAM.UPDATE.R", **{**R, "subjects": ["r.>", "q"], "max_msgs": 3})
    assert changed["config"]["subjects"] == ["r.>", "q"]
    assert (await api(client, "STREAM.INFO.R"))["state"]["messages"] == 3
    assert (await client.jetstream().publish("q", b"x")).seq == 6
    fewer = await api(client, "STREAM.UPDATE.R", **{**R, "num_replicas": 1, "max_msgs": 3})
    assert fewer["config"]["num_replicas"] == 1
    await until(lambda: sum(len(c.jetstream.store().stores()) for c in lab.clusters()) == 4)
    more = await api(client, "STREAM.UPDATE.R", **{**R, "max_msgs": 3})
    assert more["config"]["num_replicas"] == 3
    await until(lambda: current(lab, "R", 3))
    assert (await api(client, "STREAM.INFO.R"))["state"]["last_seq"] == 6


async def test_a_stream_of_one_node_gets_replicas(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    one = {**R, "num_replicas": 1}
    holder = index_of(await api(client, "STREAM.CREATE.R", **one))
    js = client.jetstream()
    for number in range(20):
        await js.publish("r.a", b"%d" % number)
    sub = await js.pull_subscribe("r.>", "worker")
    for message in await sub.fetch(5):
        await message.ack_sync()
    more = await api(client, "STREAM.UPDATE.R", **R)
    assert "error" not in more, more
    await until(lambda: current(lab, "R", 3))
    await lab.stop_node(holder)
    client = await lab.connect((holder + 1) % 3)
    await until(lambda: any(c.here("$G", "R") for c in lab.clusters()))
    assert (await client.jetstream().publish("r.a", b"x")).seq == 21
    sub = await client.jetstream().pull_subscribe("r.>", "worker")
    (message,) = await sub.fetch(1)
    assert message.metadata.sequence.stream == 6


async def test_a_stop_hands_leaderships_over_first(lab: Lab) -> None:
    """Another node leads at once, and who listens is told."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    await until(lambda: current(lab, "R", 3))
    other = (leader + 1) % 3
    client = await lab.connect(other)
    told = await client.subscribe("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.R")
    await client.flush()
    heard = [cluster.jetstream.lookup("$G").has_interest for cluster in lab.clusters()]
    await until(lambda: all(interest(told.subject.encode()) for interest in heard))
    stopping = asyncio.ensure_future(lab.stop_node(leader))
    elected = json.loads((await told.next_msg(5)).data)
    assert elected["type"] == "io.nats.jetstream.advisory.v1.stream_leader_elected"
    assert elected["leader"] != f"n{leader}"
    assert (await client.jetstream().publish("r.a", b"x")).seq == 1
    await stopping


async def test_whose_storage_is_full_is_not_asked_to_lead(lab: Lab) -> None:
    """Whoever leads hands over to any other, and one of two that have everything is full."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    await until(lambda: current(lab, "R", 3))
    cluster = lab.cluster(leader)
    known = cluster.state.stream("$G", "R")
    assert known is not None and cluster.groups is not None
    group = cluster.groups.groups[known.assignment.group]
    assert group.raft is not None
    progress = group.raft.progress
    first, other = (number for number in progress if number != cluster.number)
    await until(lambda: progress[first].match == progress[other].match)
    heard = cluster.founding.heard[first]
    heard.hello = msgspec.structs.replace(heard.hello, full=True)
    group.hand_over(0)
    await until(lambda: cluster.leader_of(known.assignment) not in (0, cluster.number))
    assert cluster.leader_of(known.assignment) == other


async def test_a_leader_that_is_left_alone_says_so(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    client = await lab.connect(leader)
    told = await client.subscribe("$JS.EVENT.ADVISORY.STREAM.QUORUM_LOST.R")
    await client.flush()
    for index in {0, 1, 2} - {leader}:
        await lab.stop_node(index)
    lost = json.loads((await told.next_msg(5)).data)
    assert lost["type"] == "io.nats.jetstream.advisory.v1.stream_quorum_lost"
    assert lost["stream"] == "R"
    assert [row["offline"] for row in lost["replicas"] if row["name"] != f"n{leader}"] == [True] * 2


async def test_a_request_that_a_lost_leader_took_is_to_be_sent_again(lab: Lab) -> None:
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    client = await lab.connect(leader)
    for index in {0, 1, 2} - {leader}:
        await lab.stop_node(index)
    assert (await api(client, "STREAM.PURGE.R"))["error"]["err_code"] == 10008


async def test_leaders_are_spread_again(lab: Lab) -> None:
    """A node that has led nothing since it came back is given streams to lead."""
    await lab.formed()
    client = await lab.connect(0)
    for number in range(4):
        fields = {"name": f"S{number}", "subjects": [f"{number}"], "num_replicas": 3}
        assert "error" not in await api(client, f"STREAM.CREATE.S{number}", **fields)
    await lab.stop_node(2)
    await until(lambda: sum(leads(lab, index) for index in (0, 1)) == 4)
    lab.start(2)
    for node in lab.nodes:
        assert node is not None
        spreading = next(s for s in node.services if isinstance(s, ClusterService)).spreading
        assert spreading is not None
        spreading.calm_seconds = spreading.pause_seconds = 1.0
    await lab.settled(3)
    await until(lambda: leads(lab, 2) > 0)
    assert max(leads(lab, index) for index in range(3)) <= 3


def leads(lab: Lab, index: int) -> int:
    """How many streams of the global account a node leads."""
    js = lab.cluster(index).jetstream.accounts.get("$G")
    return len(js.streams) if js is not None else 0


async def keep_publishing(client: Client, halt: asyncio.Event, acked: set[int]) -> int:
    """Publish one message after the other; returns how many nobody took."""
    refused = 0
    while not halt.is_set():
        try:
            acked.add((await client.jetstream().publish("r.a", b"x", timeout=5)).seq)
        except nats.js.errors.NoStreamResponseError:
            refused += 1
            await silence(0.005)  # a program that publishes without a pause tells nothing more
    return refused


async def test_every_publish_is_answered_while_leadership_moves(lab: Lab) -> None:
    """None waits for an ack that never comes; what was not acked is not stored."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R))
    await until(lambda: current(lab, "R", 3))
    stays = (leader + 2) % 3
    halt, acked = asyncio.Event(), set[int]()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for index in (stays, stays, stays, leader):
            publisher = await lab.connect(index)
            if index == leader:
                moved = asyncio.Event()
                group.create_task(keep_publishing(publisher, moved, acked))
            else:
                group.create_task(keep_publishing(publisher, halt, acked))
        await until(lambda: len(acked) > 50)
        target = (leader + 1) % 3
        client = await lab.connect(stays)
        wanted = {"placement": {"preferred": f"n{target}"}}
        assert (await api(client, "STREAM.LEADER.STEPDOWN.R", **wanted))["success"]
        await until(lambda: lab.cluster(target).here("$G", "R") is not None)
        before = len(acked)
        await until(lambda: len(acked) > before + 50)
        moved.set()
        await lab.stop_node(target)
        before = len(acked)
        await until(lambda: len(acked) > before + 50)
        halt.set()
    state = (await api(client, "STREAM.INFO.R"))["state"]
    assert (state["messages"], state["last_seq"]) == (len(acked), max(acked))


async def test_markers_of_a_replicated_stream_end(lab: Lab) -> None:
    """A message that ended leaves a marker, which ends, too; nobody else leads meanwhile."""
    await lab.formed()
    client = await lab.connect(0)
    ages = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 10**9, "allow_rollup_hdrs": True}
    assert "error" not in await api(client, "STREAM.CREATE.R", **R, **ages)
    await client.jetstream().publish("r.a", b"x", headers={"Nats-TTL": "1s"})

    js = client.jetstream()
    await until_state(js, "R", lambda state: (state.last_seq, state.messages) == (2, 0))


async def test_ids_of_messages_that_are_gone_are_known_to_the_next_leader(lab: Lab) -> None:
    """Whoever was not answered, and sends a message again, must not have it done twice."""
    await lab.formed()
    client = await lab.connect(0)
    leader = index_of(await api(client, "STREAM.CREATE.R", **R, retention="workqueue"))
    await until(lambda: current(lab, "R", 3))
    client = await lab.connect((leader + 2) % 3)
    js = client.jetstream()
    sub = await js.pull_subscribe("r.>", "worker")
    assert (await js.publish("r.a", b"x", headers={"Nats-Msg-Id": "one"})).seq == 1
    for message in await sub.fetch(1):
        await message.ack_sync()
    for target in ((leader + 1) % 3, leader):
        # Back where it came from, too.
        await step_down(lab, client, target)
        again = await js.publish("r.a", b"x", headers={"Nats-Msg-Id": "one"})
        assert (again.seq, again.duplicate) == (1, True)
    follows = {"Nats-Msg-Id": "three", "Nats-Expected-Last-Msg-Id": "two"}
    await js.publish("r.a", b"y", headers={"Nats-Msg-Id": "two"})
    await step_down(lab, client, (leader + 1) % 3)
    assert (await js.publish("r.a", b"z", headers=follows)).seq == 3


async def step_down(lab: Lab, client: Client, target: int) -> None:
    """Have a node lead the stream."""
    await until(lambda: current(lab, "R", 3))
    wanted = {"placement": {"preferred": f"n{target}"}}
    assert (await api(client, "STREAM.LEADER.STEPDOWN.R", **wanted))["success"]
    await until(lambda: lab.cluster(target).here("$G", "R") is not None)


class Processes:
    """Three nodes as processes, which can be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ports = [free_port() for _ in range(3)]
        self.routes = [free_port() for _ in range(3)]
        self.running: list[subprocess.Popen[bytes] | None] = [None] * 3

    def start(self, index: int) -> None:
        urls = ", ".join(f"nats-route://127.0.0.1:{port}" for port in self.routes)
        config = self.path / f"n{index}.conf"
        config.write_text(
            f'server_name: n{index}\nlisten: "127.0.0.1:{self.ports[index]}"\n'
            f'jetstream {{ store_dir: "{self.path}/n{index}" }}\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{self.routes[index]}", routes: [{urls}] }}\n'
        )
        command = [str(Path(sys.executable).parent / "headwater"), "serve", "-c", str(config)]
        with (self.path / f"n{index}.log").open("a") as output:
            self.running[index] = subprocess.Popen(command, stderr=output)

    def kill(self, index: int) -> None:
        process = self.running[index]
        assert process is not None
        process.send_signal(signal.SIGKILL)
        process.wait(5)

    def stop(self) -> None:
        for process in self.running:
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait(10)

    async def connect(self, index: int) -> Client:
        """A client, once the cluster serves."""
        client = await connected(f"nats://127.0.0.1:{self.ports[index]}")

        async def serves() -> bool:
            with contextlib.suppress(nats.errors.Error):
                answer = await client.request("$JS.API.STREAM.NAMES", b"", timeout=3)
                return "error" not in json.loads(answer.data)
            return False

        await until(serves, "the cluster serves", 30)
        return client


async def test_what_was_acked_is_there_after_kills(tmp_path: Path) -> None:
    """The leader is killed while it takes messages; then all three at once."""
    nodes = Processes(tmp_path)
    acked: dict[int, bytes] = {}
    try:
        for index in range(3):
            nodes.start(index)
        client = await nodes.connect(0)
        leader = index_of(await api(client, "STREAM.CREATE.R", **R))
        client = await nodes.connect((leader + 1) % 3)
        await publish(client, acked, nodes, leader)
        nodes.start(leader)
        await whole_again(client)
        for index in range(3):
            nodes.kill(index)
        for index in range(3):
            nodes.start(index)
        client = await nodes.connect(1)
        for sequence, payload in acked.items():
            message = await client.jetstream().get_msg("R", sequence)
            assert message.data == payload
        await client.close()
    finally:
        nodes.stop()


async def whole_again(client: Client) -> int:
    """Wait until every replica has everything, since a node that was killed has to ask all others
    what it may have forgotten; returns who leads."""

    async def whole() -> Any:
        info = await api(client, "STREAM.INFO.R")
        return info if all(row["current"] for row in info["cluster"]["replicas"]) else None

    return index_of(await until(whole, "all replicas have everything"))


async def acked_by(client: Client, payload: bytes) -> PubAck | None:
    """The ack of a message; None when nobody gave one in time."""
    with contextlib.suppress(nats.errors.Error):
        return await client.jetstream().publish("r.a", payload, timeout=0.5)
    return None


async def publish(
    client: Client, acked: dict[int, bytes], nodes: Processes, victim: int
) -> None:
    """Publish 60 messages, and kill a node in their midst."""
    for number in range(60):
        if number == 30:
            nodes.kill(victim)
        payload = b"%d" % number
        ack = await until(partial(acked_by, client, payload), payload)
        assert acked.get(ack.seq, payload) == payload
        acked[ack.seq] = payload
