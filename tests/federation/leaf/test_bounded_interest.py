"""A hub behind which very many subjects are wanted does not grow a gateway without end, and gets
every message that somebody wants there."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from headwater.edge.monitor.pages.edgez import EdgeFacts
from headwater.edge.monitor.pages.healthz import healthz
from headwater.edge.node.node import Node
from headwater.federation.leaf import leaf_links
from tests.federation.lab import Lab, client_port, leafs
from tests.waiting import until

BOUND = 256
INFO = {
    "server_id": "H", "server_name": "hub", "version": "2.14.0", "client_id": 5, "headers": True,
    "max_payload": 1 << 20, "leafnode_urls": ["127.0.0.1:1"],
}  # fmt: skip


class CrowdedHub:
    """Wants what it is made with, and keeps what it is sent. `logins` counts the edge's."""

    def __init__(self, wanted: list[str]) -> None:
        self.wanted = wanted
        self.got = b""
        self.logins = 0
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.writer = writer
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                if line.startswith(b"CONNECT"):
                    self.logins += 1
                    self.say("LS+", self.wanted)
                elif line.startswith(b"PING"):
                    writer.write(b"PONG\r\n")
                self.got += line
        writer.close()

    def say(self, verb: str, subjects: list[str]) -> None:
        """Say a line for each subject."""
        assert self.writer is not None
        self.writer.write("".join(f"{verb} {each}\r\n" for each in subjects).encode() + b"PING\r\n")


@contextlib.asynccontextmanager
async def gateway(lab: Lab, hub: CrowdedHub, more: str = "") -> AsyncIterator[Node]:
    """A gateway that is linked to the hub, and has heard what it wants."""
    server = await asyncio.start_server(hub.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        node = await lab.node(
            'leafnodes { reconnect: "50ms", remotes [ '
            f'{{ url: "nats://127.0.0.1:{port}", ignore_discovered_servers: true }} ] }}\n{more}'
        )
        await until(lambda: b"PONG" in hub.got, "the gateway has read all")
        yield node
    finally:
        server.close()


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaf_links, "SUBJECTS_MAX", BOUND)


def kept(node: Node) -> dict[str, object]:
    """What monitoring shows of the link's interest."""
    found: dict[str, object] = leafs(node)[0]["headwater"]["interest"]
    return found


async def test_subjects_that_begin_alike_become_one_and_all_messages_arrive(lab: Lab) -> None:
    devices = [f"devices.{n}.cmd" for n in range(10 * BOUND)]
    others = ["alarms.1", "shared.work pool 1", "devices.1.cmd pool 1", "$JS.M.abc", "_INBOX.x.*"]
    hub = CrowdedHub([*devices, *others])
    async with gateway(lab, hub, "headwater { profile: edge }") as node:
        assert leafs(node)[0]["subscriptions"] < BOUND
        assert kept(node) == {"wide": ["devices.>"], "refused": 0, "cause": ""}
        client = await lab.client(client_port(node))
        wanted = ["devices.0.cmd", "devices.2559.cmd", "alarms.1", "shared.work", "$JS.M.abc"]
        for subject in [*wanted, "unwanted.1", "_INBOX.x.y"]:
            await client.publish(subject, b"m")
        await client.flush()
        await until(lambda: b"_INBOX.x.y" in hub.got, "messages reach the hub")
        for subject in wanted:
            assert hub.got.count(b"LMSG " + subject.encode() + b" ") == 1
        assert b"shared.work | pool" in hub.got
        assert b"unwanted" not in hub.got
        # What the hub takes back is of no account: the rest still goes by the wide subject.
        hub.got = b""
        hub.say("LS-", [*devices[:100], "devices.>", "devices.1.cmd pool"])
        await until(lambda: b"PONG" in hub.got, "the gateway has read it")
        await client.publish("devices.2559.cmd", b"m")
        await until(lambda: b"LMSG devices.2559.cmd" in hub.got, "the message reaches the hub")
        assert leafs(node)[0]["subscriptions"] == 5
        shown = EdgeFacts().facts(node)["links"][0]["interest"]
        assert shown["wide"] == ["devices.>"]


async def test_a_push_consumer_delivers_to_whom_a_wide_subject_stands_for(lab: Lab) -> None:
    """Who wants a wider subject starts no consumer, but here the peer had named the very one."""
    hub = CrowdedHub([f"devices.{n}.cmd" for n in range(10 * BOUND)])
    more = f'headwater {{ profile: edge }}\njetstream {{ store_dir: "{lab.directory}/js" }}'
    async with gateway(lab, hub, more) as node:
        assert kept(node)["wide"] == ["devices.>"]
        client = await lab.client(client_port(node))
        stream = {"name": "S", "subjects": ["s"], "storage": "memory"}
        await client.request("$JS.API.STREAM.CREATE.S", json.dumps(stream).encode())
        await client.request("s", b"m")
        config = {"ack_policy": "none", "deliver_subject": "devices.2559.cmd", "name": "C"}
        body = json.dumps({"stream_name": "S", "config": config}).encode()
        await client.request("$JS.API.CONSUMER.CREATE.S.C", body)
        await until(lambda: b"LMSG devices.2559.cmd" in hub.got, "the message reaches the hub")


async def test_what_cannot_become_one_is_refused_and_said(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """Copies and answers go on beside it."""
    hub = CrowdedHub([*(f"d{n}.cmd" for n in range(10 * BOUND)), "$JS.M.abc", "_INBOX.x.*"])
    async with gateway(lab, hub, "headwater { profile: edge }") as node:
        room = BOUND - BOUND // 4
        assert leafs(node)[0]["subscriptions"] == room + 2
        assert kept(node)["refused"] == 10 * BOUND - room
        assert 1 <= hub.got.count(b"-ERR 'maximum subscriptions exceeded'") <= 4
        told = healthz(node)["headwater"]["leafs"]
        assert [each["name"] for each in told] == ["hub"]
        assert f"{10 * BOUND - room} were refused" in told[0]["cause"]
        client = await lab.client(client_port(node))
        await client.publish("$JS.M.abc", b"m")
        await until(lambda: b"LMSG $JS.M.abc" in hub.got, "the delivery reaches the hub")
    assert sum("maximum subscriptions" in one for one in caplog.messages) <= 4


async def test_answers_alone_stay_within_the_bound(lab: Lab) -> None:
    hub = CrowdedHub([f"_INBOX.{n}.*" for n in range(3 * BOUND)])
    async with gateway(lab, hub, "headwater { profile: edge }") as node:
        assert leafs(node)[0]["subscriptions"] == BOUND
        assert kept(node)["refused"] == 2 * BOUND


async def test_what_was_refused_is_asked_for_again_when_there_is_room(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaf_links, "PING_INTERVAL_MAX_S", 0.05)
    monkeypatch.setattr(leaf_links, "FIRST_PING_S", 0.05)
    every = [f"d{n}.cmd" for n in range(BOUND)]
    hub = CrowdedHub(every)
    async with gateway(lab, hub, "headwater { profile: edge }") as node:
        assert kept(node)["refused"]
        hub.wanted = every[-10:]
        hub.say("LS-", every[:-10])
        await until(lambda: hub.logins == 2 and leafs(node), "the link is made anew")
        await until(lambda: leafs(node)[0]["subscriptions"] == 10, "all of it is kept")
        assert kept(node)["refused"] == 0


@pytest.mark.parametrize("more", ["", "headwater { profile: edge }\nmax_subscriptions: 1000000"])
async def test_hubs_and_who_sets_a_bound_have_no_other(lab: Lab, more: str) -> None:
    hub = CrowdedHub([f"devices.{n}.cmd" for n in range(2 * BOUND)])
    async with gateway(lab, hub, more) as node:
        assert leafs(node)[0]["subscriptions"] == 2 * BOUND
        assert kept(node) == {"wide": [], "refused": 0, "cause": ""}
