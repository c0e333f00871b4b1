"""Priority groups (ADR-42) and resets (ADR-60)."""

import json
from typing import Any

SECOND = 1_000_000_000


def group(**fields: Any) -> dict[str, Any]:
    """A pull request of group `g`."""
    return {"batch": 1, "expires": SECOND, "group": "g", **fields}


async def test_group_is_required_and_known(world: Any) -> None:
    await world.stream()
    await world.consumer(priority_policy="overflow", priority_groups=["g"])
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 1})
    assert inbox.pop().status == "400 Bad Request - Priority Group missing"
    world.pull("_INBOX.x", {"batch": 1, "group": "h"})
    assert inbox.pop().status == "400 Bad Request - Invalid Priority Group"
    world.pull("_INBOX.x", group(id="x"))
    assert inbox.pop().status == "400 Bad Request - Not a Pinned Client Priority consumer"


async def test_overflow(world: Any) -> None:
    await world.stream()
    await world.consumer(priority_policy="overflow", priority_groups=["g"])
    spare, main = world.listen("_INBOX.spare"), world.listen("_INBOX.main")
    world.pull("_INBOX.spare", group(batch=10, min_pending=3))
    world.publish(2)
    assert spare == []
    world.publish(1)
    assert len(spare) == 1
    world.pull("_INBOX.main", group(batch=1))
    assert len(main) == 1
    world.pull("_INBOX.main", group(batch=9, min_ack_pending=2))
    assert len(main) == 2


async def test_prioritized(world: Any) -> None:
    await world.stream()
    await world.consumer(priority_policy="prioritized", priority_groups=["g"])
    low, high = world.listen("_INBOX.low"), world.listen("_INBOX.high")
    world.pull("_INBOX.low", group(batch=5, priority=2))
    world.pull("_INBOX.high", group(batch=2, priority=1))
    world.publish(3)
    assert [m.payload for m in high] == [b"1", b"2"]
    assert [m.payload for m in low] == [b"3"]


def pin_of(message: Any) -> str:
    """Value of the message's pin header."""
    line = next(h for h in message.headers.split(b"\r\n") if h.startswith(b"Nats-Pin-Id: "))
    return str(line.split(b": ")[1].decode())


async def test_pinned_client(world: Any) -> None:
    await world.stream()
    made = await world.consumer(priority_policy="pinned_client", priority_groups=["g"])
    assert made["config"]["priority_timeout"] == 120 * SECOND
    events = world.listen("$JS.EVENT.ADVISORY.CONSUMER.*.S.C")
    one, two = world.listen("_INBOX.1"), world.listen("_INBOX.2")
    world.pull("_INBOX.1", group())
    world.pull("_INBOX.2", group(batch=2))
    world.publish(2)
    assert len(one) == 1
    assert two == []
    pin = pin_of(one[0])
    assert len(pin) == 22
    assert (await world.info())["priority_groups"][0]["pinned_client_id"] == pin
    world.pull("_INBOX.1", group(id="wrong"))
    assert one.pop().status == "423 Nats-Pin-Id mismatch"
    world.pull("_INBOX.1", group(id=pin))
    assert one.pop().payload == b"2"
    assert (await world.ask("CONSUMER.UNPIN.S.C", {"group": "g"})) == {
        "type": "io.nats.jetstream.api.v1.consumer_unpin_response"
    }
    world.publish(1)
    assert [m.payload for m in two] == [b"1"]
    assert pin_of(two[0]) != pin
    kinds = [m.subject.split(".")[4] for m in events]
    assert kinds == ["PINNED", "UNPINNED", "PINNED"]
    assert {json.loads(m.payload)["account"] for m in events} == {world.account.name}


async def test_pin_times_out(world: Any) -> None:
    await world.stream()
    await world.consumer(
        priority_policy="pinned_client", priority_groups=["g"], priority_timeout=SECOND // 20
    )
    one, two = world.listen("_INBOX.1"), world.listen("_INBOX.2")
    world.pull("_INBOX.1", group())
    world.publish(2)
    assert len(one) == 1
    world.pull("_INBOX.2", group())
    assert two == []
    await world.until(lambda: bool(two))


async def test_reset_to_the_floor_and_to_a_sequence(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.publish(5)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "4")
    world.send(inbox[0].reply)
    answer = await world.ask("CONSUMER.RESET.S.C")
    assert answer["type"] == "io.nats.jetstream.api.v1.consumer_reset_response"
    assert answer["reset_seq"] == 2
    assert answer["num_ack_pending"] == 0
    assert answer["num_pending"] == 4
    inbox.clear()
    world.pull("_INBOX.x", "1")
    assert inbox[0].numbers[:3] == [1, 2, 1]
    answer = await world.ask("CONSUMER.RESET.S.C", {"seq": 5})
    assert answer["reset_seq"] == 5
    assert answer["delivered"]["stream_seq"] == 4


async def test_resets_that_are_refused(world: Any) -> None:
    await world.stream()
    world.publish(5)
    await world.consumer(deliver_policy="by_start_sequence", opt_start_seq=3)
    refused = await world.ask("CONSUMER.RESET.S.C", {"seq": 2})
    assert refused["error"] == {
        "code": 400,
        "err_code": 10204,
        "description": "invalid reset: below start seq",
    }
    await world.consumer("N", deliver_policy="new")
    refused = await world.ask("CONSUMER.RESET.S.N", {"seq": 2})
    assert refused["error"]["description"] == "invalid reset: not allowed"
    assert (await world.ask("CONSUMER.RESET.S.N"))["reset_seq"] == 6
