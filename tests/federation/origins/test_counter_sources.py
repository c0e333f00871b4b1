"""Counter streams that add up others (ADR-49), on both servers."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Recipe, Server, program
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.stream.counters import counter_value, payload_at_origin
from tests.waiting import until

COMMANDS = {"headwater": (program("headwater"), "serve"), "nats-server": (program("nats-server"),)}


@pytest.fixture(params=list(COMMANDS))
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    config = f'jetstream {{ store_dir: "{tmp_path}" }}\n'
    with Server(Recipe(request.param, COMMANDS[request.param], config)) as server:
        client = await nats.connect(f"nats://127.0.0.1:{server.port}")
        yield client
        await client.close()


async def asked(client: Client, subject: str, body: dict[str, object]) -> dict[str, Any]:
    told = await client.request(f"$JS.API.{subject}", json.dumps(body).encode())
    answer = json.loads(told.data)
    assert "error" not in answer, answer
    return dict(answer)


async def make(client: Client, name: str, *sources: tuple[str, str], **fields: object) -> None:
    """A counter stream whose sources are (name, where their subjects go)."""
    config = {"name": name, "allow_msg_counter": True, "allow_direct": True} | fields
    if sources:
        config["sources"] = [
            {"name": each, "subject_transforms": [{"src": f"{src}.>", "dest": "s.>"}]}
            for each, src in sources
        ]
    await asked(client, f"STREAM.CREATE.{name}", config)


async def step(client: Client, subject: str, by: int) -> str:
    """Add to a counter; its total."""
    answer = await client.request(subject, headers={"Nats-Incr": str(by)})
    return str(json.loads(answer.data)["val"])


async def last(client: Client, stream: str, count: int) -> tuple[str, str, dict[str, object]]:
    """Total, step and totals of the sources in the last message, once a stream has had so many."""
    jetstream = client.jetstream()

    async def there() -> bool:
        return bool((await jetstream.stream_info(stream)).state.last_seq >= count)

    await until(there)
    message = await jetstream.get_msg(stream, seq=count)
    assert message.data is not None and message.headers is not None
    sources = json.loads(message.headers.get("Nats-Counter-Sources", "{}"))
    return json.loads(message.data)["val"], message.headers["Nats-Incr"], sources


async def test_totals_of_sources_are_added(client: Client) -> None:
    await make(client, "A", subjects=["a.>"])
    await make(client, "B", subjects=["b.>"])
    await make(client, "SUM", ("A", "a"), ("B", "b"))
    assert await step(client, "a.x", 1) == "1"
    assert await last(client, "SUM", 1) == ("1", "1", {"A": {"a.x": "1"}})
    assert await step(client, "b.x", 10) == "10"
    assert await last(client, "SUM", 2) == ("11", "10", {"A": {"a.x": "1"}, "B": {"b.x": "10"}})
    assert await step(client, "a.x", 100) == "101"
    assert await last(client, "SUM", 3) == ("111", "100", {"A": {"a.x": "101"}, "B": {"b.x": "10"}})
    assert await step(client, "b.y", -5) == "-5"
    assert await last(client, "SUM", 4) == ("-5", "-5", {"B": {"b.y": "-5"}})


async def test_what_was_removed_at_the_origin_is_taken_back(client: Client) -> None:
    """Its next message has a lower total than the one before."""
    await make(client, "A", subjects=["a.>"])
    await make(client, "SUM", ("A", "a"))
    await step(client, "a.x", 100)
    await last(client, "SUM", 1)
    await asked(client, "STREAM.PURGE.A", {})
    assert await step(client, "a.x", 9) == "9"
    assert await last(client, "SUM", 2) == ("9", "-91", {"A": {"a.x": "9"}})


async def test_what_the_origin_no_longer_has_is_in_its_total(client: Client) -> None:
    await make(client, "A", subjects=["a.>"], max_msgs_per_subject=1)
    for by in (1, 2, 3):
        await step(client, "a.x", by)
    await make(client, "SUM", ("A", "a"))
    assert await last(client, "SUM", 1) == ("6", "6", {"A": {"a.x": "6"}})


async def test_sums_are_added_further_and_beside_own_steps(client: Client) -> None:
    await make(client, "A", subjects=["a.>"])
    await make(client, "SUM", ("A", "a"))
    await make(client, "TOP", ("SUM", "s"), subjects=["s.>"])
    await step(client, "a.x", 4)
    assert await last(client, "TOP", 1) == ("4", "4", {"SUM": {"s.x": "4"}})
    assert await step(client, "s.x", 7) == "11"
    assert await last(client, "TOP", 2) == ("11", "7", {"SUM": {"s.x": "4"}})
    await step(client, "a.x", 1)
    assert await last(client, "TOP", 3) == ("12", "1", {"SUM": {"s.x": "5"}})


async def test_what_an_origin_has_is_known_of_what_a_sum_stores(client: Client) -> None:
    """So that a sum which is taken up again is not believed to be of another history."""
    await make(client, "A", subjects=["a.>"])
    await make(client, "B", subjects=["b.>"])
    await make(client, "SUM", ("A", "a"), ("B", "b"))
    for count, subject in enumerate(("a.x", "b.x", "a.x"), 1):
        await step(client, subject, 5)
        await last(client, "SUM", count)
    there = await asked(client, "STREAM.MSG.GET.A", {"seq": 2})
    here = await asked(client, "STREAM.MSG.GET.SUM", {"seq": 3})
    block, stored, original = (
        base64.b64decode(each["message"][field])
        for each, field in ((here, "hdrs"), (here, "data"), (there, "data"))
    )
    assert stored == b'{"val":"15"}'
    assert payload_at_origin(block, stored) == original == b'{"val":"10"}'
    assert payload_at_origin(b"", stored) == stored


@pytest.mark.parametrize(
    "payload", [b'{"val":1e999}', b'{"val":Infinity}', b"[" * 100_000, b'{"val":[]}', b"7", b""]
)
def test_an_origin_may_say_anything_of_a_total(payload: bytes) -> None:
    """It is no count then, and not a fault by which the source would stop."""
    with pytest.raises(JetStreamError):
        counter_value(payload)


@pytest.mark.parametrize("totals", [b"[" * 60_000, b"7", b'{"O":7}', b'{"O":{"a":[]}}'])
def test_an_origin_may_say_anything_of_its_sources(totals: bytes) -> None:
    lines = (b"NATS/1.0", b"Nats-Stream-Source: O 1 > > a", b"Nats-Counter-Sources: " + totals)
    block = b"\r\n".join([*lines, b"", b""])
    assert payload_at_origin(block, b"as it is") == b"as it is"
