"""Push consumers: interest, heartbeats, flow control, lifetime."""

from typing import Any

SECOND = 1_000_000_000


def push(**config: Any) -> dict[str, Any]:
    """Fields of an ephemeral push consumer that delivers to `deliver`."""
    return {"deliver_subject": "deliver", "durable_name": "", "ack_policy": "none", **config}


async def test_delivers_while_somebody_listens(world: Any) -> None:
    await world.stream()
    world.publish(2)
    made = await world.consumer(**push())
    assert made["config"]["inactive_threshold"] == 5 * SECOND
    assert "push_bound" not in made
    inbox = world.listen("deliver")
    await world.until(lambda: len(inbox) >= 2)
    assert [m.payload for m in inbox] == [b"1", b"2"]
    assert [m.numbers[:3] + m.numbers[4:] for m in inbox] == [[1, 1, 1, 1], [1, 2, 2, 0]]
    info = await world.info()
    assert info["push_bound"] is True
    assert info["ack_floor"]["stream_seq"] == 2
    world.leave("deliver")
    world.publish(1)
    assert len(inbox) == 2
    others = world.listen("*")
    assert "push_bound" not in await world.info()
    again = world.listen("deliver")
    await world.until(lambda: again)
    assert [m.payload for m in again] == [b"1"]
    assert [m.payload for m in others if m.subject == "deliver"] == [b"1"]


async def test_queue_group_gets_each_message_once(world: Any) -> None:
    await world.stream()
    await world.consumer(**push(deliver_group="g"))
    one, two = world.listen("deliver", "g"), world.listen("deliver", "g")
    world.publish(40)
    assert len(one) + len(two) == 40
    assert one
    assert two


async def test_a_group_that_is_not_there_is_no_interest(world: Any) -> None:
    await world.stream()
    await world.consumer(**push(deliver_group="g"))
    inbox = world.listen("deliver", "other")
    world.publish(3)
    assert inbox == []
    members = world.listen("deliver", "g")
    world.kernel.turn()
    assert len(members) == 3


async def test_heartbeats(world: Any) -> None:
    await world.stream()
    world.publish(1)
    await world.consumer(**push(idle_heartbeat=SECOND // 10))
    inbox = world.listen("deliver")
    await world.until(lambda: len(inbox) >= 2)
    assert inbox[1].status == "100 Idle Heartbeat"
    assert b"Nats-Last-Consumer: 1\r\nNats-Last-Stream: 1\r\n" in inbox[1].headers


async def test_flow_control_stalls_and_goes_on(world: Any) -> None:
    await world.stream()
    body = b"x" * 1000
    for _ in range(60):
        world.account.send(b"a.big", body)
    inbox = world.listen("deliver")
    await world.consumer(**push(idle_heartbeat=SECOND // 10, flow_control=True))
    world.kernel.turn()
    messages = [m for m in inbox if not m.status]
    requests = [m for m in inbox if m.status == "100 FlowControl Request"]
    # As much as a receiver on 64 kbit/s takes in a second, and one message.
    assert len(messages) == 8
    assert len(requests) == 1
    await world.until(lambda: inbox[-1].status == "100 Idle Heartbeat")
    stalled = f"Nats-Consumer-Stalled: {requests[0].reply}".encode()
    assert stalled in inbox[-1].headers
    world.send("$JS.FC.S.C.0000")
    assert len([m for m in inbox if not m.status]) == 8
    world.send(requests[0].reply)
    assert len([m for m in inbox if not m.status]) > 8


async def test_an_unused_ephemeral_ends(world: Any) -> None:
    stream = await world.stream()
    advisories = world.listen("$JS.EVENT.ADVISORY.CONSUMER.DELETED.S.*")
    await world.consumer(**push(inactive_threshold=SECOND // 4))
    await world.consumer("P", durable_name="", inactive_threshold=SECOND // 4)
    assert len(stream.consumers) == 2
    await world.until(lambda: not stream.consumers and len(advisories) == 2)


async def test_a_listening_ephemeral_stays(world: Any) -> None:
    stream = await world.stream()
    world.listen("deliver")
    await world.consumer(**push(inactive_threshold=SECOND // 20))
    start = world.kernel.loop.time()
    await world.until(lambda: world.kernel.loop.time() - start > 0.15)
    assert stream.consumers
    world.leave("deliver")
    await world.until(lambda: not stream.consumers)


async def test_rate_limit(world: Any) -> None:
    await world.stream()
    world.publish(4)
    inbox = world.listen("deliver")
    start = world.kernel.loop.time()
    await world.consumer(**push(rate_limit_bps=8 * 1000))
    await world.until(lambda: len(inbox) == 4)
    assert world.kernel.loop.time() - start > 0.1


async def test_original_timing(world: Any) -> None:
    await world.stream()
    world.publish(1)
    start = world.kernel.loop.time()
    await world.until(lambda: world.kernel.loop.time() - start > 0.06)
    world.publish(1)
    inbox = world.listen("deliver")
    start = world.kernel.loop.time()
    await world.consumer(**push(replay_policy="original"))
    await world.until(lambda: len(inbox) == 2)
    assert world.kernel.loop.time() - start > 0.05


async def test_last_per_subject_then_live(world: Any) -> None:
    stream = await world.stream(max_msgs_per_subject=5)
    for _ in range(2):
        world.publish(4)
    inbox = world.listen("deliver")
    await world.consumer(**push(deliver_policy="last_per_subject", filter_subject="a.>"))
    world.kernel.turn()
    assert [m.numbers[1] for m in inbox] == [5, 6, 7, 8]
    assert [m.numbers[4] for m in inbox] == [3, 2, 1, 0]
    world.publish(1)
    assert inbox[-1].numbers[1:3] == [9, 5]
    assert stream.store.messages == 9


async def test_last_per_subject_skips_what_has_gone(world: Any) -> None:
    stream = await world.stream(max_msgs_per_subject=5)
    world.publish(4)
    made = await world.consumer(**push(deliver_policy="last_per_subject", filter_subject="a.>"))
    assert made["num_pending"] == 4
    stream.delete_message(2, True)
    assert (await world.info())["num_pending"] == 3
    inbox = world.listen("deliver")
    await world.until(lambda: len(inbox) >= 3)
    assert [m.numbers[1] for m in inbox] == [1, 3, 4]
    assert [m.numbers[4] for m in inbox] == [2, 1, 0]


async def test_where_consumers_begin(world: Any) -> None:
    stream = await world.stream()
    world.publish(5)
    inbox = world.listen("deliver")
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"deliver_policy": "all"}, [1, 2, 3, 4, 5]),
        ({"deliver_policy": "last"}, [5]),
        ({"deliver_policy": "last", "filter_subject": "a.3"}, [3]),
        ({"deliver_policy": "new"}, []),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 4}, [4, 5]),
        (
            {"deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
            [1, 2, 3, 4, 5],
        ),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2100-01-01T00:00:00Z"}, []),
    ]
    for config, sequences in cases:
        inbox.clear()
        made = await world.consumer(**push(**config))
        assert "error" not in made, made
        assert made["num_pending"] == len(sequences)
        await world.until(lambda wanted=len(sequences): len(inbox) >= wanted)
        assert [m.numbers[1] for m in inbox] == sequences, config
        await world.ask("CONSUMER.DELETE.S.C")
    assert not stream.consumers


async def test_pause_stops_delivery_but_not_heartbeats(world: Any) -> None:
    await world.stream()
    inbox = world.listen("deliver")
    advisories = world.listen("$JS.EVENT.ADVISORY.CONSUMER.PAUSE.S.C")
    await world.consumer(**push(idle_heartbeat=SECOND // 10))
    answer = await world.ask("CONSUMER.PAUSE.S.C", {"pause_until": "2100-01-01T00:00:00Z"})
    assert answer["paused"] is True
    assert answer["pause_until"] == "2100-01-01T00:00:00Z"
    world.publish(1)
    await world.until(lambda: bool(inbox))
    assert inbox[0].status == "100 Idle Heartbeat"
    assert (await world.info())["paused"] is True
    answer = await world.ask("CONSUMER.PAUSE.S.C")
    assert answer == {
        "type": "io.nats.jetstream.api.v1.consumer_pause_response",
        "paused": False,
        "pause_until": "0001-01-01T00:00:00Z",
    }
    await world.until(lambda: any(m.payload == b"1" for m in inbox))
    assert len(advisories) == 2


async def test_a_pause_ends_by_itself(world: Any) -> None:
    from headwater.edge.jetstream.model.times import format_time

    await world.stream()
    inbox = world.listen("deliver")
    until = format_time(world.kernel.clock() + SECOND // 20)
    await world.consumer(**push(pause_until=until))
    world.publish(1)
    assert inbox == []
    await world.until(lambda: bool(inbox))


async def test_new_deliver_subject(world: Any) -> None:
    await world.stream()
    await world.consumer(deliver_subject="d1")
    first, second = world.listen("d1"), world.listen("d2")
    world.publish(2)
    refused = await world.consumer(deliver_subject="d2")
    assert refused["error"]["err_code"] == 10013
    world.leave("d1")
    await world.consumer(deliver_subject="d2")
    world.kernel.turn()
    assert [m.numbers[:2] for m in first] == [[1, 1], [1, 2]]
    assert [m.numbers[:2] for m in second] == [[2, 1], [2, 2]]


async def test_the_answer_goes_before_what_is_delivered(world: Any) -> None:
    """Clients that stop after a few messages have heard by then that there is a consumer."""
    await world.stream()
    world.publish(3)
    seen = world.listen(">")
    world.listen("deliver")
    await world.consumer(**push())
    await world.until(lambda: sum(m.subject == "deliver" for m in seen) == 3)
    order = [m.subject for m in seen if m.subject.startswith(("_R.", "deliver"))]
    assert order[0].startswith("_R.")
    assert order[1:] == ["deliver"] * 3
