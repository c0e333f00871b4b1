"""Subject mappings of accounts, against nats-server and by themselves."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from bench.servers import Recipe, Server, program
from headwater.edge.broker.mappings import Mappings
from headwater.edge.conf.options import MappingDestination, MappingOptions
from headwater.edge.kernel.kernel import Kernel

TOP = """
mappings {
  plain: changed
  "in.*.*": "out.$2.{{wildcard(1)}}"
  "part.*": "part.{{partition(5,1)}}.$1"
  "tail.>": "moved.>"
  shared: [ {destination: left, weight: 30%}, {destination: right, weight: 50} ]
  lossy: [ {destination: lossy, weight: 50}, {destination: kept, weight: 20} ]
  none: [ {destination: none, weight: 0} ]
  scoped: [ {destination: elsewhere, weight: 100, cluster: far} ]
  secret: open
  open: secret
}
authorization { users: [
  {user: u, password: u}
  {user: limited, password: u, permissions: {publish: "open", subscribe: ">"}} ] }
"""


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    command = (
        (program("headwater"), "serve")
        if request.param == "headwater"
        else (program("nats-server"),)
    )
    with Server(Recipe(request.param, command, TOP)) as server:
        yield f"nats://127.0.0.1:{server.port}"


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    found = await nats.connect(url, user="u", password="u", allow_reconnect=False)
    yield found
    await found.close()


async def heard(client: Client, subjects: list[str]) -> list[str]:
    got: list[str] = []
    done = asyncio.Event()

    async def take(message: object) -> None:
        got.append(message.subject)  # type: ignore[attr-defined]
        if got[-1] == "the.end":
            done.set()

    subscription = await client.subscribe(">", cb=take)
    for subject in (*subjects, "the.end"):
        await client.publish(subject, b"")
    await asyncio.wait_for(done.wait(), 3)
    await subscription.unsubscribe()
    return got[:-1]


async def test_subjects_change(client: Client) -> None:
    asked = ["plain", "plain.more", "in.a.b", "in.a", "part.x", "part.y", "tail.1.2", "scoped"]
    assert await heard(client, asked) == [
        "changed",
        "plain.more",
        "out.b.a",
        "in.a",
        "part.0.x",
        "part.1.y",
        "moved.1.2",
        "scoped",
    ]


async def test_weights(client: Client) -> None:
    counts = Counter(await heard(client, ["shared"] * 1000))
    assert set(counts) == {"left", "right", "shared"}
    assert counts["left"] == pytest.approx(300, abs=80)
    assert counts["right"] == pytest.approx(500, abs=80)
    counts = Counter(await heard(client, ["lossy"] * 1000))
    assert set(counts) == {"lossy", "kept"}
    assert sum(counts.values()) == pytest.approx(700, abs=80)
    assert await heard(client, ["none"]) == []
    with pytest.raises(NoRespondersError):
        await client.request("none", timeout=2)


async def test_permission_is_for_the_mapped_subject(url: str, client: Client) -> None:
    limited = await nats.connect(url, user="limited", password="u", allow_reconnect=False)
    some = await client.subscribe("*")
    await client.publish("begin", b"")
    assert (await some.next_msg(timeout=2)).subject == "begin"
    for subject in ("secret", "open", "secret"):
        await limited.publish(subject, subject.encode())
    got = [await some.next_msg(timeout=2) for _ in range(2)]
    assert [(m.subject, m.data) for m in got] == [("open", b"secret")] * 2
    await limited.close()


def mappings(cluster: str, *destinations: MappingDestination) -> Mappings:
    loop = asyncio.new_event_loop()
    loop.close()
    items = [MappingOptions(source="x", destinations=list(destinations))]
    return Mappings(Kernel(loop), items, cluster)


def test_destinations_of_a_cluster() -> None:
    both = (
        MappingDestination(subject="near", cluster="here"),
        MappingDestination(subject="any", weight=100),
    )
    assert mappings("here", *both).apply(b"x") == b"near"
    assert mappings("there", *both).apply(b"x") == b"any"
    assert mappings("", *both).apply(b"x") == b"any"
    assert mappings("there", both[0]).apply(b"x") == b"x"


def test_a_literal_source_goes_first() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    found = Mappings(
        Kernel(loop),
        [
            MappingOptions(source="a.*", destinations=[MappingDestination(subject="wild.$1")]),
            MappingOptions(source="a.b", destinations=[MappingDestination(subject="exact")]),
        ],
        "",
    )
    assert [found.apply(s) for s in (b"a.b", b"a.c", b"a", b"a.b.c")] == [
        b"exact",
        b"wild.c",
        b"a",
        b"a.b.c",
    ]
