"""Monitoring pages have the keys, kinds of values and error texts of nats-server."""

import asyncio
import json
from typing import Any

import nats
import pytest

from tests.edge.monitor.conftest import Server
from tests.edge.monitor.pages.shapes import shape
from tests.waiting import until

ONLY_OURS = frozenset(("headwater",))
ONLY_THEIRS = frozenset(("git_commit", "feature_flags", "default_max_consumers"))
IGNORED = ONLY_OURS | ONLY_THEIRS

PAGES = [
    "/varz",
    "/connz",
    "/connz?auth=1&subs=detail",
    "/connz?subs=1&state=open",
    "/connz?state=closed",
    "/connz?state=closed&subs=1",
    "/connz?state=closed&subs=detail",
    "/connz?acc=A&auth=true",
    "/connz?filter_subject=foo",
    "/connz?acc=A&filter_subject=nobody",
    "/subsz",
    "/subscriptionsz",
    "/accountz",
    "/accountz?acc=A",
    "/accstatz",
    "/accstatz?unused=1",
    "/leafz",
    "/routez",
    "/gatewayz",
]
EXACT = [
    "/healthz",
    "/healthz?stream=S",
    "/healthz?account=A&consumer=S",
    "/healthz?stream=S&details=1",
    "/healthz?js-enabled-only=maybe",
    "/connz?sort=nonsense",
    "/connz?sort=stop",
    "/connz?state=half",
    "/connz?cid=x",
    "/connz?limit=x",
    "/connz?offset=9.5",
    "/connz?acc=A&filter_subject=foo&auth=2",
    "/subsz?test=foo.*",
    "/subsz?subs=perhaps",
    "/accountz?acc=nobody",
    "/jsz?offset=x",
    "/nowhere",
    "/connz/",
]


async def compare(servers: list[Server], path: str) -> None:
    ours, theirs = await asyncio.gather(*(asyncio.to_thread(s.get, path) for s in servers))
    assert ours[:2] == theirs[:2]
    assert shape(json.loads(ours[2]), IGNORED) == shape(json.loads(theirs[2]), IGNORED), path


async def clients(servers: list[Server]) -> list[Any]:
    """One client with two subscriptions on each; another one has gone."""
    opened = []
    for server in servers:
        gone = await nats.connect(server.url("b"), name="gone")
        await gone.subscribe("gone.*")
        await gone.subscribe("left", queue="q")
        await gone.flush()
        await gone.close()
        client = await nats.connect(server.url("a"), name="here")
        await client.subscribe("foo.*")
        await client.subscribe("bar", queue="q")
        await client.publish("foo.x", b"hello")
        await client.flush()
        opened.append(client)
    return opened


async def test_pages_have_the_same_shape(pair: list[Server]) -> None:
    opened = await clients(pair)
    try:
        for path in PAGES:
            await compare(pair, path)
    finally:
        for client in opened:
            await client.close()


async def test_the_fanout_is_that_of_subjects_that_were_published(pair: list[Server]) -> None:
    """Each subject that is remembered counts once; here one has two receivers, one has none."""
    for server in pair:
        client = await nats.connect(server.url("a"))
        for _ in range(2):
            await client.subscribe("fanout.two")

        async def remembered(server: Server = server, client: Any = client) -> Any:
            # Who leaves just now, from a test before, has both servers forget what they remember.
            for _ in range(4):
                await client.publish("fanout.two")
                await client.publish("fanout.none")
            await client.flush()
            page = server.json("/subsz?acc=A")
            return page if page["num_cache"] >= 2 else None

        found = await until(remembered, "both subjects are remembered")
        assert found["max_fanout"] >= 2
        assert 0 < found["avg_fanout"] <= found["max_fanout"]
        await client.close()


async def test_lookups_are_counted(pair: list[Server]) -> None:
    """A subject is walked for twice at most, then its match is remembered."""
    for server in pair:
        client = await nats.connect(server.url("a"))
        others = await nats.connect(server.url("a"))
        before = server.json("/subsz?acc=A")
        for sender in (client, others):
            for _ in range(100):
                await sender.publish("looked.up")
            await sender.flush()
        after = server.json("/subsz?acc=A")
        assert after["num_matches"] > before["num_matches"]
        assert 0 < after["cache_hit_rate"] < 1
        for gone in (client, others):
            await gone.close()


def test_what_the_server_listens_on_is_listed(pair: list[Server]) -> None:
    for server in pair:
        asked = server.json("/subsz?subs=1&test=$SYS.REQ.SERVER.PING.VARZ")["subscriptions_list"]
        assert any(row["subject"].startswith("$SYS.REQ.SERVER.PING") for row in asked)
        assert {row["account"] for row in asked} == {"SYS"}
        every = server.json("/subsz?subs=1&limit=5")
        assert every["total"] == every["num_subscriptions"]
        assert len(every["subscriptions_list"]) == 5


def test_variables_of_the_process(pair: list[Server]) -> None:
    for server in pair:
        found = server.json("/debug/vars")
        assert found["memstats"]["Sys"] > 0


async def test_closed_connections_keep_their_subscriptions(pair: list[Server]) -> None:
    listed = []
    for server in pair:
        client = await nats.connect(server.url("b"), name="subscriber")
        await client.subscribe("x.*")
        await client.subscribe("y", queue="q")
        await client.flush()
        await client.close()

        def closed(server: Server = server) -> Any:
            page = json.loads(server.get("/connz?state=closed&subs=detail&limit=10000")[2])
            found = [each for each in page["connections"] if each.get("name") == "subscriber"]
            return found[-1] if found else None

        one = await until(closed)
        rows = one["subscriptions_list_detail"]
        listed.append([{**row, "cid": 0} for row in sorted(rows, key=lambda row: row["subject"])])
        assert one["subscriptions"] == 2
    assert listed[0] == listed[1]


@pytest.mark.parametrize("path", EXACT)
def test_refusals_have_the_same_text(pair: list[Server], path: str) -> None:
    ours, theirs = (server.get(path) for server in pair)
    assert (ours[0], ours[2].strip()) == (theirs[0], theirs[2].strip())


async def test_jetstream_pages_have_the_same_shape(jetstream_pair: list[Server]) -> None:
    for server in jetstream_pair:
        client = await nats.connect(server.url("a"))
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        await js.add_consumer("S", durable_name="d", ack_policy="explicit")
        await js.publish("s.1", b"x")
        await client.close()
    for path in ("/varz", "/jsz", "/jsz?acc=A", "/jsz?streams=1", "/jsz?consumers=1&config=1"):
        await compare(jetstream_pair, path)


async def test_metrics_tell_of_streams_and_consumers(jetstream_pair: list[Server]) -> None:
    server = jetstream_pair[0]
    client = await nats.connect(server.url("a"))
    js = client.jetstream()
    await js.add_stream(name="M", subjects=["m.>"])
    await js.add_consumer("M", durable_name="reader", ack_policy="explicit")
    await js.publish("m.1", b"x")
    await client.close()
    lines = server.get("/metrics")[2].splitlines()
    samples = [line for line in lines if 'stream_name="M"' in line]
    totals = [line for line in samples if line.startswith("jetstream_stream_total_messages{")]
    assert totals[0].endswith("} 1")
    assert 'account="A"' in totals[0]
    pending = [line for line in samples if line.startswith("jetstream_consumer_num_pending{")]
    assert 'consumer_name="reader"' in pending[0]


@pytest.fixture(scope="module")
def with_stream(jetstream_pair: list[Server]) -> list[Server]:
    """The servers, once account A has a stream in a file: nats-server looks for its folder."""

    async def made() -> None:
        for server in jetstream_pair:
            client = await nats.connect(server.url("a"))
            await client.jetstream().add_stream(name="FILE", subjects=["file"])
            await client.close()

    asyncio.run(made())
    return jetstream_pair


@pytest.mark.parametrize(
    "path",
    [
        "/healthz",
        "/healthz?account=A",
        "/healthz?account=A&stream=none",
        "/healthz?account=A&stream=none&details=1",
        "/healthz?account=B",
        "/healthz?js-enabled-only=1",
        "/healthz?js-server-only=1",
    ],
)
def test_health_answers_alike(with_stream: list[Server], path: str) -> None:
    ours, theirs = (server.get(path) for server in with_stream)
    assert ours == theirs


def test_an_account_without_streams_is_well(jetstream_pair: list[Server]) -> None:
    """nats-server does not find it until it has had a stream in a file."""
    ours, theirs = (server.get("/healthz?account=EMPTY") for server in jetstream_pair)
    assert ours[0] == 200 and json.loads(ours[2]) == {"status": "ok"}
    assert theirs[0] == 404 and "not found" in theirs[2]


def test_metrics_carry_the_exporters_names(pair: list[Server]) -> None:
    status, kind, text = pair[0].get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    samples = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {"headwater_build_info", "gnatsd_varz_in_msgs", "gnatsd_varz_connections"} <= samples
    assert 'gnatsd_varz_mem{server_id="headwater"}' in text


def test_index_and_stacks_and_jsonp(pair: list[Server]) -> None:
    ours = pair[0]
    assert "./varz" in ours.get("/")[2]
    assert "MainThread" in ours.get("/stacksz")[2]
    status, kind, text = ours.get("/varz?callback=show")
    assert (status, kind) == (200, "application/javascript")
    assert text.startswith("show(")
    assert ours.json("/varz")["http_req_stats"]["/stacksz"] >= 1
