"""Requests to the system account and its events, as nats-server answers and sends them."""

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from bench.servers import Recipe, Server, program
from headwater.edge.conf.options import AccountOptions, Options
from headwater.edge.node.node import Node
from headwater.security.auth_options import PermissionOptions, SubjectRules, UserOptions
from tests.encodings import unpacked

PAGES = (
    "SERVER.PING.VARZ", "SERVER.PING.STATSZ", "SERVER.PING.HEALTHZ", "ACCOUNT.SYS.CONNZ",
)  # fmt: skip
ENCODINGS = ("gzip", "snappy", "gzip, s2", "S2", "br", "identity", "")
SHOWN = {
    "cpu": "cpu/nanoseconds",
    "heap": "inuse_space/bytes",
    "allocs": "dict builtins",
    "block": "contentions/count",
    "mutex": "delay/nanoseconds",
    "goroutine": "test_pprof_reads_profiles",
    "threadcreate": "stacks",
}
"""What pprof finds in a profile."""
DENY = PermissionOptions(publish=SubjectRules(deny=["secret"]))


def options() -> Options:
    accounts = {}
    for name in ("SYS", "A", "B"):
        user = UserOptions(user=name.lower(), password="pw", account=name)
        accounts[name] = AccountOptions(name=name, users=[user])
    accounts["B"].users[0].permissions = DENY
    return Options(
        host="127.0.0.1",
        port=-1,
        server_name="n1",
        server_tags=["site:a"],
        system_account="SYS",
        accounts=accounts,
        lame_duck_grace=0.05,
        lame_duck_duration=0.1,
    )


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    found = Node(options(), asyncio.get_running_loop())
    found.start()
    yield found
    await found.stop()


async def connect(node: Node, user: str, **settings: Any) -> Client:
    url = node.ports()["nats"][0].replace("://", f"://{user}:pw@")
    client: Client = await nats.connect(url, allow_reconnect=False, **settings)
    return client


@pytest.fixture
async def system(node: Node) -> AsyncIterator[Client]:
    client = await connect(node, "sys")
    yield client
    await client.close()


async def ask(client: Client, subject: str, **body: Any) -> dict[str, Any]:
    reply = await client.request(subject, json.dumps(body).encode() if body else b"", timeout=2)
    answer: dict[str, Any] = json.loads(reply.data)
    return answer


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("VARZ", "mem"),
        ("CONNZ", "connections"),
        ("SUBSZ", "num_subscriptions"),
        ("ROUTEZ", "routes"),
        ("GATEWAYZ", "outbound_gateways"),
        ("LEAFZ", "leafs"),
        ("ACCOUNTZ", "accounts"),
        ("JSZ", "disabled"),
        ("HEALTHZ", "status_code"),
    ],
)
async def test_one_node_or_all_are_asked(
    node: Node, system: Client, name: str, field: str
) -> None:
    for target in ("PING", node.server_id):
        answer = await ask(system, f"$SYS.REQ.SERVER.{target}.{name}")
        assert answer["server"]["name"] == "n1"
        assert field in answer["data"]


async def test_options_travel_in_the_body(node: Node, system: Client) -> None:
    own = f"$SYS.REQ.SERVER.{node.server_id}"
    connections = await ask(system, f"{own}.CONNZ", auth=True, subscriptions=True, acc="SYS")
    assert [c["account"] for c in connections["data"]["connections"]] == ["SYS"]
    detail = await ask(system, f"{own}.ACCOUNTZ", account="A")
    assert detail["data"]["account_detail"]["account_name"] == "A"
    bad = await ask(system, f"{own}.CONNZ", sort="nonsense")
    assert bad["error"] == {"code": 500, "description": "invalid sorting option: nonsense"}
    reply = await system.request(f"{own}.CONNZ", b"{oops", timeout=2)
    assert json.loads(reply.data)["error"]["code"] == 400


async def test_runtime_and_profiles(node: Node, system: Client) -> None:
    own = f"$SYS.REQ.SERVER.{node.server_id}"
    runtime = (await ask(system, f"{own}.EXPVARZ"))["data"]
    assert runtime["memstats"]["HeapAlloc"] > 1_000_000
    stacks = await ask(system, f"{own}.PROFILEZ", name="goroutine", debug=1)
    assert b"MainThread" in base64.b64decode(stacks["data"]["profile"])
    answers = await asyncio.gather(
        *(ask(system, f"{own}.PROFILEZ", name="cpu", duration=10**8) for _ in range(2))
    )
    assert base64.b64decode(answers[0]["data"]["profile"])
    assert answers[1]["data"]["error"].endswith("cpu profiling already in use")


PROFILES = ("goroutine", "threadcreate", "heap", "allocs", "block", "mutex")
WRONG_PROFILES: list[dict[str, Any]] = [
    {}, {"name": "x"}, {"name": "cpu"}, {"name": "cpu", "duration": -1},
    {"name": "cpu", "duration": 15 * 10**9 + 1},
]  # fmt: skip


async def test_profiles_are_refused_as_by_the_real_server(system: Client) -> None:
    config = "system_account: SYS\naccounts { SYS { users: [{user: s, password: s}] } }\n"
    with Server(Recipe("nats-server", (program("nats-server"),), config)) as server:
        other = await nats.connect(f"nats://s:s@127.0.0.1:{server.port}")
        for wrong in WRONG_PROFILES:
            ours, theirs = [
                (await ask(client, "$SYS.REQ.SERVER.PING.PROFILEZ", **wrong))["data"]
                for client in (system, other)
            ]
            assert ours == theirs
        for name in PROFILES:
            for client in (system, other):
                found = await ask(client, "$SYS.REQ.SERVER.PING.PROFILEZ", name=name)
                assert list(found["data"]) == ["profile", "error"]
                assert found["data"]["error"] == ""
        await other.close()


@pytest.mark.skipif(shutil.which("go") is None, reason="Go's pprof is not there")
@pytest.mark.parametrize("name", [*PROFILES, "cpu"])
async def test_pprof_reads_profiles(system: Client, tmp_path: Path, name: str) -> None:
    found = await ask(
        system, "$SYS.REQ.SERVER.PING.PROFILEZ", name=name, duration=3 * 10**8
    )
    path = tmp_path / "profile"
    path.write_bytes(base64.b64decode(found["data"]["profile"]))
    command = ["go", "tool", "pprof", "-raw", str(path)]
    read = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert read.returncode == 0, read.stderr
    assert SHOWN[name] in read.stdout


async def test_requests_that_nobody_serves_find_nobody(node: Node, system: Client) -> None:
    for subject in (f"SERVER.{node.server_id}.NOPE", "ACCOUNT.A.NOPE", "ACCOUNT.PING.NOPE"):
        with pytest.raises(nats.errors.NoRespondersError):
            await system.request(f"$SYS.REQ.{subject}", b"", timeout=2)


async def test_nulls_in_a_request_are_nothing(node: Node, system: Client) -> None:
    own = f"$SYS.REQ.SERVER.{node.server_id}"
    body = {"server_name": None, "tags": None, "sort": None, "acc": None, "limit": None}
    answer = await ask(system, f"{own}.CONNZ", **body)
    assert answer["data"]["num_connections"] == 1
    reply = await system.request(f"{own}.JSZ", b"null", timeout=2)
    assert "disabled" in json.loads(reply.data)["data"]
    accounts = await ask(system, "$SYS.REQ.ACCOUNT.PING.STATZ", accounts=None, include_unused=True)
    assert accounts["data"]["account_statz"]


@pytest.mark.parametrize(
    ("wanted", "answers"),
    [
        ({"server_name": "n"}, True),
        ({"server_name": "n", "exact_match": True}, False),
        ({"server_name": "other"}, False),
        ({"host": "127.0.0.1", "tags": ["site:a"]}, True),
        ({"tags": ["site:b"]}, False),
        ({"domain": "hub"}, False),
        ({"cluster": "C"}, False),
    ],
)
async def test_only_nodes_that_are_meant_answer(
    system: Client, wanted: dict[str, Any], answers: bool
) -> None:
    inbox = system.new_inbox()
    subscription = await system.subscribe(inbox)
    body = json.dumps(wanted).encode()
    await system.publish("$SYS.REQ.SERVER.PING.HEALTHZ", body, reply=inbox)
    await system.publish("$SYS.REQ.SERVER.PING", body, reply=inbox)
    await system.publish(inbox, b"end")
    got = [(await subscription.next_msg(2)).data for _ in range(3 if answers else 1)]
    assert got[-1] == b"end"


async def test_statistics_and_identity(node: Node, system: Client) -> None:
    for subject in ("PING", "PING.STATSZ", f"{node.server_id}.STATSZ"):
        answer = await ask(system, f"$SYS.REQ.SERVER.{subject}")
        assert answer["statsz"]["connections"] == 1
        assert answer["server"]["tags"] == ["site:a"]
    identity = await ask(system, "$SYS.REQ.SERVER.PING.IDZ")
    assert identity == {"name": "n1", "host": "127.0.0.1", "id": node.server_id}


async def test_answers_are_compressed_as_the_real_server_does(system: Client) -> None:
    config = "system_account: SYS\naccounts { SYS { users: [{user: s, password: s}] } }\n"
    with Server(Recipe("nats-server", (program("nats-server"),), config)) as server:
        other = await nats.connect(f"nats://s:s@127.0.0.1:{server.port}")
        for name, encoding in itertools.product(PAGES, ENCODINGS):
            subject, headers = f"$SYS.REQ.{name}", {"Accept-Encoding": encoding}
            ours = await system.request(subject, b"", headers=headers, timeout=5)
            theirs = await other.request(subject, b"", headers=headers, timeout=5)
            assert ours.headers == theirs.headers
            assert json.loads(unpacked(ours))["server"]["name"] == "n1"
        headers = {"Accept-Encoding": "gzip"}
        for client in (system, other):
            wrong = await client.request("$SYS.REQ.SERVER.PING.VARZ", b"{", headers=headers)
            assert "error" in json.loads(wrong.data)
        await other.close()


async def test_requests_about_an_account(node: Node, system: Client) -> None:
    client = await connect(node, "a")
    await client.subscribe("x.*")
    await client.flush()
    own = "$SYS.REQ.ACCOUNT.A"
    assert (await ask(system, f"{own}.CONNZ"))["data"]["num_connections"] == 1
    subjects = (await ask(system, f"{own}.SUBSZ"))["data"]["subscriptions_list"]
    assert [s["subject"] for s in subjects if s["cid"]] == ["x.*"]
    assert (await ask(system, f"{own}.INFO"))["data"]["client_connections"] == 1
    assert (await ask(system, f"{own}.LEAFZ"))["data"]["leafnodes"] == 0
    (stat,) = (await ask(system, f"{own}.STATZ"))["data"]["account_statz"]
    assert (stat["acc"], stat["conns"]) == ("A", 1)
    everyone = (await ask(system, "$SYS.REQ.ACCOUNT.PING.STATZ"))["data"]["account_statz"]
    assert {stat["acc"] for stat in everyone} == {"A", "SYS"}
    await client.close()


async def test_every_account_may_ask_about_itself(node: Node) -> None:
    first, second = await connect(node, "a"), await connect(node, "b")
    assert (await ask(first, "$SYS.REQ.USER.INFO"))["data"] == {
        "user": "a",
        "account": "A",
        "account_name": "A",
    }
    info = (await ask(second, "$SYS.REQ.USER.INFO"))["data"]
    assert info["permissions"] == {"publish": {"deny": ["secret"]}, "subscribe": {}}
    for subject in ("$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ"):
        assert (await ask(first, subject))["data"]["num_connections"] == 1
    (stat,) = (await ask(first, "$SYS.REQ.ACCOUNT.PING.STATZ"))["data"]["account_statz"]
    assert stat["acc"] == "A"
    await first.close()
    await second.close()


async def test_clients_are_kicked_and_sent_away(node: Node, system: Client) -> None:
    own = f"$SYS.REQ.SERVER.{node.server_id}"
    gone = asyncio.Event()
    client = await connect(node, "a", closed_cb=_setter(gone))
    cid = client.client_id
    assert "error" not in await ask(system, f"{own}.LDM", cid=cid)
    assert "error" not in await ask(system, f"{own}.KICK", cid=cid)
    await asyncio.wait_for(gone.wait(), 2)
    assert (await ask(system, f"{own}.KICK", cid=cid))["error"]["code"] == 500
    assert [c.reason for c in node.sessions.closed.values()] == ["Kicked"]


def _setter(event: asyncio.Event) -> Any:
    async def callback() -> None:
        event.set()

    return callback


async def test_reload_is_asked_for_by_request(node: Node, system: Client) -> None:
    subject = f"$SYS.REQ.SERVER.{node.server_id}.RELOAD"
    assert "cannot be reloaded" in (await ask(system, subject))["error"]["description"]
    calls: list[bool] = []
    node.reloader = lambda: calls.append(True)
    assert "error" not in await ask(system, subject)
    assert calls == [True]


async def test_events_tell_of_clients(node: Node, system: Client) -> None:
    events: dict[str, list[dict[str, Any]]] = {}

    counted = asyncio.Event()

    async def on_event(message: Msg) -> None:
        events.setdefault(message.subject, []).append(json.loads(message.data))
        if len(events.get("$SYS.ACCOUNT.A.SERVER.CONNS", [])) == 2:
            counted.set()

    await system.subscribe("$SYS.ACCOUNT.>", cb=on_event)
    await system.subscribe("$SYS.SERVER.>", cb=on_event)
    await system.flush()
    client = await connect(node, "a", name="visitor")
    await client.publish("x", b"12345")
    await client.close()
    url = node.ports()["nats"][0].replace("://", "://a:wrong@")
    with pytest.raises(nats.errors.Error):
        await nats.connect(url, allow_reconnect=False, error_cb=_silent)
    await asyncio.wait_for(counted.wait(), 5)
    (came,) = events["$SYS.ACCOUNT.A.CONNECT"]
    assert came["type"] == "io.nats.server.advisory.v1.client_connect"
    assert (came["client"]["user"], came["client"]["name"]) == ("a", "visitor")
    (went,) = events["$SYS.ACCOUNT.A.DISCONNECT"]
    assert (went["reason"], went["sent"]) == ("Client Closed", {"msgs": 1, "bytes": 5})
    (refused,) = events[f"$SYS.SERVER.{node.server_id}.CLIENT.AUTH.ERR"]
    assert (refused["reason"], refused["client"]["user"]) == ("Authentication Failure", "a")
    counts = [event["conns"] for event in events["$SYS.SERVER.ACCOUNT.A.CONNS"]]
    assert counts == [1, 0]
    assert events["$SYS.ACCOUNT.A.SERVER.CONNS"][0]["acc"] == "A"


async def test_connections_are_counted_on_request(node: Node, system: Client) -> None:
    client = await connect(node, "a")
    message = await system.request("$SYS.REQ.ACCOUNT.A.CONNS", b"", timeout=2)
    counted = json.loads(message.data)
    assert counted["type"] == "io.nats.server.advisory.v1.account_connections"
    assert (counted["acc"], counted["conns"], counted["server"]["name"]) == ("A", 1, "n1")
    await client.close()


@pytest.mark.parametrize("kind", ["headwater", "nats-server"])
async def test_who_has_no_connections_of_an_account_is_silent(kind: str) -> None:
    """Questions are for all servers, and answers for the one that asks."""
    names = ("SYS", "A", "B")
    users = "".join(f"{n} {{ users: [ {{ user: {n.lower()}, password: pw }} ] }}\n" for n in names)
    command = (program(kind), "serve") if kind == "headwater" else (program(kind),)
    config = f"accounts {{\n{users}}}\nsystem_account: SYS\n"
    with Server(Recipe(kind, command, config)) as server:
        url = f"nats://{{}}:pw@127.0.0.1:{server.port}"
        system, client = await nats.connect(url.format("sys")), await nats.connect(url.format("a"))
        answers = await system.subscribe("answers")
        for account in ("B", "A"):
            await system.publish(f"$SYS.REQ.ACCOUNT.{account}.CONNS", b"", "answers")
        first = json.loads((await answers.next_msg(timeout=5)).data)
        assert (first["acc"], first["conns"]) == ("A", 1)
        for each in (system, client):
            await each.close()


async def _silent(error: Exception) -> None:
    """nats-py logs errors that nobody takes."""


async def test_the_end_is_announced(node: Node, system: Client) -> None:
    subscription = await system.subscribe(f"$SYS.SERVER.{node.server_id}.*")
    await system.flush()
    leaving = asyncio.create_task(node.lame_duck())
    message = await subscription.next_msg(2)
    assert message.subject.endswith(".LAMEDUCK")
    assert json.loads(message.data)["name"] == "n1"
    await asyncio.wait_for(leaving, 5)
