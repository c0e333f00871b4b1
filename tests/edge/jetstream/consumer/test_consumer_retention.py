"""Consumers of work-queue and interest streams, and the count of pending messages."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


async def test_work_queue_drops_what_is_acknowledged(world: Any) -> None:
    stream = await world.stream(retention="workqueue")
    await world.consumer("A", filter_subject="a.1")
    await world.consumer("B", filter_subject="a.2")
    world.publish(2)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1", "B")
    assert stream.store.messages == 2
    world.send(inbox[0].reply)
    assert stream.store.messages == 1
    refused = await world.consumer("D", filter_subject="a.*")
    assert refused["error"]["err_code"] == 10100
    refused = await world.consumer("D")
    assert refused["error"]["err_code"] == 10099


async def test_interest_waits_for_every_consumer(world: Any) -> None:
    stream = await world.stream(retention="interest")
    world.publish(1)
    assert stream.store.messages == 0
    await world.consumer("A")
    await world.consumer("B", filter_subject="a.1")
    world.publish(2)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9", "A")
    world.send(inbox[0].reply)
    world.send(inbox[1].reply)
    assert stream.store.messages == 1
    world.pull("_INBOX.x", "9", "B")
    world.send(inbox[2].reply)
    assert stream.store.messages == 0


async def test_deleting_a_consumer_frees_what_it_held(world: Any) -> None:
    stream = await world.stream(retention="interest")
    await world.consumer("A")
    await world.consumer("B")
    world.publish(3)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2", "A")
    world.send(inbox[0].reply)
    await world.ask("CONSUMER.DELETE.S.B")
    assert stream.store.messages == 2
    await world.ask("CONSUMER.DELETE.S.A")
    assert stream.store.messages == 0


async def test_ack_none_counts_at_delivery(world: Any) -> None:
    stream = await world.stream(retention="interest")
    world.listen("deliver")
    await world.consumer(durable_name="", deliver_subject="deliver", ack_policy="none")
    world.publish(3)
    assert stream.store.messages == 0


async def test_exhausted_messages_stay_in_a_work_queue_until_acknowledged(world: Any) -> None:
    stream = await world.stream(retention="workqueue")
    await world.consumer(max_deliver=1, ack_wait=20_000_000)
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    pending = stream.consumers["C"].pending
    await world.until(lambda: pending.count == 0)
    assert stream.store.messages == 1
    world.send(inbox[0].reply)
    assert stream.store.messages == 0


async def test_a_work_queue_keeps_what_is_still_to_be_copied(world: Any) -> None:
    stream = await world.stream(retention="workqueue")
    copied = {"deliver_subject": "m", "ack_policy": "none", "direct": True}
    body = {"stream_name": "S", "config": copied}
    made = world.listen("r")
    world.send("$JS.API.CONSUMER.CREATE.S", json.dumps(body), "r")
    await world.until(lambda: bool(made))
    await world.consumer("A", filter_subject="a.1")
    await world.consumer("B", filter_subject="a.2")
    world.publish(2)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1", "A")
    world.send(inbox[0].reply)
    assert stream.store.messages == 2
    received = world.listen("m")
    await world.until(lambda: len(received) == 2)
    assert stream.store.messages == 1
    world.pull("_INBOX.x", "1", "B")
    world.send(inbox[1].reply)
    assert stream.store.messages == 0


async def test_direct_consumers_are_hidden(world: Any) -> None:
    stream = await world.stream()
    body = {
        "stream_name": "S",
        "config": {
            "name": "JS_SRC_x",
            "deliver_subject": "m",
            "ack_policy": "none",
            "direct": True,
            "sourcing": True,
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": 1_000_000_000,
        },
    }
    reply = world.listen("r")
    world.send("$JS.API.CONSUMER.CREATE.S.JS_SRC_x", json.dumps(body), "r")
    await world.until(lambda: bool(reply))
    assert b"Nats-Stream-Identity: " in reply[0].headers
    answer = json.loads(reply[0].payload)
    assert answer["name"].startswith("JS_SRC_x-")
    assert answer["config"]["direct"] is True
    assert (await world.ask("CONSUMER.NAMES.S"))["consumers"] == []
    assert len(stream.consumers) == 1


async def test_sourcing_from_an_interest_stream_makes_a_durable(world: Any) -> None:
    stream = await world.stream(retention="interest")
    received = world.listen("m")
    body = {
        "stream_name": "S",
        "config": {
            "name": "JS_SRC_x",
            "deliver_subject": "m",
            "ack_policy": "none",
            "ack_wait": 79200000000000,
            "max_deliver": 1,
            "direct": True,
            "sourcing": True,
            "flow_control": True,
            "idle_heartbeat": 1_000_000_000,
        },
    }
    answer = await world.ask("CONSUMER.CREATE.S.JS_SRC_x", body)
    assert answer["config"]["durable_name"] == "JS_SRC_x"
    assert answer["config"]["ack_policy"] == "flow_control"
    world.publish(3)
    assert stream.store.messages == 3
    await world.until(lambda: any(m.status == "100 FlowControl Request" for m in received))
    request = next(m for m in received if m.status == "100 FlowControl Request")
    world.account.send(
        request.reply.encode(),
        b"",
        b"",
        b"NATS/1.0\r\nNats-Last-Consumer: 2\r\nNats-Last-Stream: 2\r\n\r\n",
    )
    world.kernel.turn()
    assert stream.store.messages == 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["publish", "delete", "pull", "purge", "ack", "nak"]), st.integers(0, 30)
    ),
    max_size=40,
)


@given(steps=STEPS, many=st.booleans(), wanted=st.sampled_from(["", "a.1", "a.*"]))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_pending_equals_a_count_of_all_messages(
    new_world: Callable[[], Any], steps: list[tuple[str, int]], many: bool, wanted: str
) -> None:
    asyncio.run(walk(new_world, steps, many, wanted))


async def walk(
    make: Callable[[], Any], steps: list[tuple[str, int]], many: bool, wanted: str
) -> None:
    """Apply steps, and compare the counts with the stored messages after each."""
    world = make()
    stream = await world.stream(max_msgs_per_subject=2 if many else -1)
    config: dict[str, Any] = {"max_ack_pending": 5, "filter_subject": wanted}
    if many:
        config = {"max_ack_pending": 5, "filter_subjects": ["a.1", "a.2"]}
    await world.consumer(**config)
    consumer = stream.consumers["C"]
    inbox = world.listen("_INBOX.x")
    taken = ["a.1", "a.2"] if many else [wanted or "a.>"]
    for action, number in steps:
        if action == "publish":
            world.account.send(f"a.{number % 4}".encode(), b"x")
        elif action == "delete":
            stream.delete_message(number, True)
        elif action == "pull":
            world.pull("_INBOX.x", {"batch": number % 4 + 1, "no_wait": number > 15})
        elif action == "purge":
            stream.purge((b"a.1", b"a.2", b"a.*", b"")[number % 4], number // 2)
        elif inbox and inbox[number % len(inbox)].reply:
            body = "" if action == "ack" else "-NAK"
            world.send(inbox[number % len(inbox)].reply, body)
        world.kernel.turn()
        numbers = consumer.numbers()
        left = [
            row
            for subject in taken
            for row in range(numbers["next_seq"], stream.store.last_seq + 1)
            if stream.store.next_matching(stream.store.filter((subject.encode(),)), row) == row
        ]
        assert numbers["unread"] == len(left)
        idle = numbers["waiting"] and numbers["ack_pending"] < 5
        assert not (idle and (left or consumer.pending.queued))
        held = [entry[0] for entry in consumer.pending.entries()]
        assert held == sorted(held)
        assert all(stream.store.get(sequence) is not None for sequence in held)
        assert numbers["floor_seq"] < min(held, default=1 << 62)
        came = {message.numbers[1] for message in inbox if message.reply}
        for subject in taken:
            first = stream.store.next_matching(stream.store.filter((subject.encode(),)), 1)
            assert not first or first >= numbers["next_seq"] or first in came, "passed over"
    world.js.close()
