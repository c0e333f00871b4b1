"""Pull consumers: requests, statuses, acknowledgement."""

import json
from typing import Any

SECOND = 1_000_000_000


async def test_fetch_ack_and_info(world: Any) -> None:
    await world.stream()
    world.publish(5)
    made = await world.consumer()
    assert made["num_pending"] == 5
    assert made["config"]["max_ack_pending"] == 1000
    assert made["config"]["max_waiting"] == 512
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 3, "expires": SECOND})
    assert [m.payload for m in inbox] == [b"1", b"2", b"3"]
    assert [m.numbers[:3] for m in inbox] == [[1, 1, 1], [1, 2, 2], [1, 3, 3]]
    assert [m.numbers[4] for m in inbox] == [4, 3, 2]
    info = await world.info()
    assert info["num_ack_pending"] == 3
    assert info["num_pending"] == 2
    assert info["delivered"]["stream_seq"] == 3
    assert info["ack_floor"]["stream_seq"] == 0
    answers = world.listen("answer")
    world.send(inbox[1].reply, "+ACK", "answer")
    assert len(answers) == 1
    assert (await world.info())["ack_floor"]["stream_seq"] == 0
    world.send(inbox[0].reply)
    info = await world.info()
    assert (info["ack_floor"]["consumer_seq"], info["ack_floor"]["stream_seq"]) == (2, 2)
    world.send(inbox[2].reply)
    info = await world.info()
    assert info["num_ack_pending"] == 0
    assert info["ack_floor"]["stream_seq"] == 3


async def test_messages_wake_a_waiting_request(world: Any) -> None:
    await world.stream()
    await world.consumer()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    assert (await world.info())["num_waiting"] == 1
    world.publish(3)
    assert [m.payload for m in inbox] == [b"1", b"2"]
    assert (await world.info())["num_waiting"] == 0


async def test_no_wait_and_expiry(world: Any) -> None:
    await world.stream()
    await world.consumer()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 1, "no_wait": True})
    assert inbox.pop().status == "404 No Messages"
    world.pull("_INBOX.x", {"batch": 2, "expires": SECOND // 20})
    world.publish(1)
    assert inbox.pop(0).payload == b"1"
    await world.until(lambda: bool(inbox))
    assert inbox[0].status == "408 Request Timeout"
    assert b"Nats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n" in inbox[0].headers


async def test_no_wait_takes_what_is_there(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.publish(2)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 5, "no_wait": True})
    assert [m.payload for m in inbox[:2]] == [b"1", b"2"]
    assert inbox[2].status == "404 No Messages"


async def test_no_wait_takes_what_is_there_when_a_deadline_is_due(world: Any) -> None:
    """A timer of the consumer ends in the turn in which the request comes."""
    await world.stream()
    world.publish(3)
    await world.consumer()
    inbox = world.listen("_INBOX.x")
    world.js.streams["S"].consumers["C"].on_timer()
    world.pull("_INBOX.x", {"batch": 5, "no_wait": True})
    await world.until(lambda: len(inbox) == 4)
    assert [m.payload for m in inbox] == [b"1", b"2", b"3", b""]


async def test_no_wait_does_not_wait_for_the_end_of_a_pause(world: Any) -> None:
    """As with nats-server, where one with a time waits as long as it says."""
    await world.stream()
    world.publish(1)
    await world.consumer(pause_until="2200-01-01T00:00:00Z")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 1, "no_wait": True})
    assert inbox.pop().status == "404 No Messages"
    world.pull("_INBOX.x", {"batch": 1, "no_wait": True, "expires": SECOND // 20})
    await world.until(lambda: bool(inbox))
    assert inbox[0].status == "408 Request Timeout"


async def test_no_wait_takes_what_is_due_again(world: Any) -> None:
    """It waits while acks are awaited, so it is not over when one of their messages comes back."""
    await world.stream()
    await world.consumer(max_ack_pending=1)
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 2, "no_wait": True, "expires": 60 * SECOND})
    assert [m.payload for m in inbox] == [b"1"]
    world.send(inbox[0].reply, '-NAK {"delay": 20000000}')
    await world.until(lambda: len(inbox) == 2)
    assert inbox[1].payload == b"1"
    world.send(inbox[1].reply)


async def test_concurrent_requests_take_turns(world: Any) -> None:
    await world.stream()
    await world.consumer()
    one, two = world.listen("_INBOX.1"), world.listen("_INBOX.2")
    world.pull("_INBOX.1", "3")
    world.pull("_INBOX.2", "3")
    world.publish(6)
    assert [m.payload for m in one] == [b"1", b"3", b"5"]
    assert [m.payload for m in two] == [b"2", b"4", b"6"]


async def test_byte_limits(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.publish(3)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 10, "max_bytes": 80, "expires": SECOND})
    assert len(inbox) == 2
    assert inbox[1].status == "409 Message Size Exceeds MaxBytes"
    inbox.clear()
    world.pull("_INBOX.x", {"batch": 1, "max_bytes": 1000, "expires": SECOND})
    assert inbox[1].status == "409 Batch Completed"


async def test_refused_requests(world: Any) -> None:
    await world.stream()
    await world.consumer(max_batch=2, max_expires=SECOND, max_bytes=100)
    inbox = world.listen("_INBOX.x")
    cases = [
        ({"batch": 3}, "409 Exceeded MaxRequestBatch of 2"),
        ({"batch": 1, "expires": 2 * SECOND}, "409 Exceeded MaxRequestExpires of 1s"),
        ({"batch": 1, "max_bytes": 101}, "409 Exceeded MaxRequestMaxBytes of 100"),
        (
            {"batch": 1, "idle_heartbeat": SECOND},
            "400 Bad Request - heartbeat value too large",
        ),
        ({"batch": 1, "priority": 10}, "400 Bad Request - Priority must be between 0 and 9"),
        (
            {"batch": 1, "min_pending": 1},
            "400 Bad Request - Not a Overflow Priority consumer",
        ),
    ]
    for body, status in cases:
        world.pull("_INBOX.x", body)
        assert inbox.pop().status == status
    world.pull("_INBOX.x", "{")
    assert inbox.pop().status.startswith("400 Bad Request - ")


async def test_full_queue(world: Any) -> None:
    await world.stream()
    await world.consumer(max_waiting=2)
    inbox = world.listen("_INBOX.x")
    for _ in range(3):
        world.pull("_INBOX.x", {"batch": 1, "expires": SECOND})
    assert [m.status for m in inbox] == ["409 Exceeded MaxWaiting"]
    world.pull("_INBOX.x", {"batch": 1, "expires": SECOND, "idle_heartbeat": SECOND // 10})
    assert len(inbox) == 1


async def test_heartbeats_of_a_request(world: Any) -> None:
    await world.stream()
    await world.consumer()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 1, "expires": SECOND, "idle_heartbeat": SECOND // 50})
    await world.until(lambda: len(inbox) >= 2)
    assert inbox[0].status == "100 Idle Heartbeat"
    assert b"Nats-Last-Consumer: 0\r\nNats-Last-Stream: 0\r\n" in inbox[0].headers


async def test_a_request_whose_client_is_gone_costs_no_message(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.listen("_INBOX.gone")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.gone", "5")
    world.pull("_INBOX.x", "5")
    world.leave("_INBOX.gone")
    world.publish(3)
    assert [m.numbers[:3] for m in inbox] == [[1, 1, 1], [1, 2, 2], [1, 3, 3]]


async def test_nak_goes_first_and_counts_deliveries(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.publish(3)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    world.send(inbox[0].reply, "-NAK")
    world.pull("_INBOX.x", "2")
    assert [m.payload for m in inbox] == [b"1", b"2", b"1", b"3"]
    assert inbox[2].numbers[:3] == [2, 1, 3]
    info = await world.info()
    assert info["num_redelivered"] == 1
    assert info["delivered"] == {**info["delivered"], "consumer_seq": 4, "stream_seq": 3}
    world.send(inbox[2].reply, '-NAK {"delay": 20000000}')
    world.pull("_INBOX.x", "1")
    assert len(inbox) == 4
    await world.until(lambda: len(inbox) == 5)
    assert inbox[4].numbers[:2] == [3, 1]


async def test_ack_wait_redelivers_in_order_until_max_deliver(world: Any) -> None:
    await world.stream()
    await world.consumer(ack_wait=30_000_000, max_deliver=2)
    advisories = world.listen("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.S.C")
    world.publish(2)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "10")
    await world.until(lambda: len(inbox) == 4)
    assert [m.payload for m in inbox] == [b"1", b"2", b"1", b"2"]
    await world.until(lambda: len(advisories) == 2)
    info = await world.info()
    assert info["num_ack_pending"] == 0
    assert info["num_redelivered"] == 2
    assert info["ack_floor"]["stream_seq"] == 2
    assert len(inbox) == 4


async def test_progress_keeps_a_message(world: Any) -> None:
    await world.stream()
    await world.consumer(ack_wait=600_000_000)
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "5")
    start = world.kernel.loop.time()
    await world.until(lambda: world.kernel.loop.time() - start > 0.4)
    world.send(inbox[0].reply, "+WPI")
    await world.until(lambda: world.kernel.loop.time() - start > 0.8)
    assert len(inbox) == 1
    await world.until(lambda: len(inbox) == 2)
    assert world.kernel.loop.time() - start > 0.95


async def test_backoff(world: Any) -> None:
    await world.stream()
    made = await world.consumer(backoff=[100_000_000, 500_000_000], max_deliver=3)
    assert made["config"]["ack_wait"] == 100_000_000
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    start = world.kernel.loop.time()
    world.pull("_INBOX.x", "9")
    await world.until(lambda: len(inbox) == 2)
    assert world.kernel.loop.time() - start < 0.45
    await world.until(lambda: len(inbox) == 3)
    assert world.kernel.loop.time() - start > 0.55


async def test_term_and_next(world: Any) -> None:
    await world.stream()
    await world.consumer()
    advisories = world.listen("$JS.EVENT.ADVISORY.CONSUMER.>")
    world.publish(3)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1")
    world.send(inbox[0].reply, "+TERM broken", "_INBOX.other")
    assert b'"reason":"broken"' in advisories[0].payload
    assert (await world.info())["num_ack_pending"] == 0
    world.pull("_INBOX.x", "1")
    world.send(inbox[1].reply, "+NXT", "_INBOX.x")
    assert [m.payload for m in inbox] == [b"1", b"2", b"3"]
    assert (await world.info())["num_ack_pending"] == 1


async def test_max_ack_pending_stops_and_an_ack_lets_go_on(world: Any) -> None:
    await world.stream()
    await world.consumer(max_ack_pending=2)
    world.publish(4)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    assert len(inbox) == 2
    world.send(inbox[0].reply)
    assert len(inbox) == 3


async def test_ack_all(world: Any) -> None:
    await world.stream()
    await world.consumer(ack_policy="all")
    world.publish(5)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "4")
    world.send(inbox[2].reply)
    info = await world.info()
    assert info["num_ack_pending"] == 1
    assert info["ack_floor"]["stream_seq"] == 3
    world.send(inbox[0].reply)
    assert (await world.info())["ack_floor"]["stream_seq"] == 3


async def test_acks_in_the_second_form(world: Any) -> None:
    from headwater.edge.jetstream.model.name_hash import name_hash

    await world.stream()
    await world.consumer()
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1")
    tail = inbox[0].reply.removeprefix("$JS.ACK.")
    assert world.send(f"$JS.ACK._.{name_hash('A')}.{tail}.extra") == 1
    assert (await world.info())["num_ack_pending"] == 0


async def test_acks_that_make_no_sense_are_ignored(world: Any) -> None:
    await world.stream()
    await world.consumer()
    world.publish(2)
    world.listen("_INBOX.x")
    answers = world.listen("answer")
    world.pull("_INBOX.x", "1")
    for tail in ("1.2.3", "1.x.1.1.1", "1.0.1.1.1", "1.7.7.1.1", "1.1.1.1.1.1", ""):
        world.send(f"$JS.ACK.S.C.{tail or 'x'}", b"", "answer")
    assert answers == []
    assert (await world.info())["num_ack_pending"] == 1


async def test_deleting_tells_waiting_requests(world: Any) -> None:
    await world.stream()
    await world.consumer()
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", {"batch": 1, "expires": SECOND})
    assert (await world.ask("CONSUMER.DELETE.S.C"))["success"] is True
    assert inbox[0].status == "409 Consumer Deleted"
    assert (await world.info())["error"]["err_code"] == 10014
    assert world.send("$JS.API.CONSUMER.MSG.NEXT.S.C", "1", "_INBOX.x") == 0


async def test_headers_only(world: Any) -> None:
    await world.stream()
    await world.consumer(headers_only=True)
    world.account.send(b"a.x", b"payload", b"", b"NATS/1.0\r\nK: v\r\n\r\n")
    world.account.send(b"a.x", b"no headers")
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "2")
    assert inbox[0].headers == b"NATS/1.0\r\nK: v\r\nNats-Msg-Size: 7\r\n\r\n"
    assert inbox[1].headers == b"NATS/1.0\r\nNats-Msg-Size: 10\r\n\r\n"
    assert [m.payload for m in inbox] == [b"", b""]


async def test_filters_and_their_change(world: Any) -> None:
    await world.stream()
    world.publish(6)
    made = await world.consumer(filter_subjects=["a.2", "a.5"])
    assert made["num_pending"] == 2
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    assert [(m.payload, m.numbers[4]) for m in inbox] == [(b"2", 1), (b"5", 0)]
    changed = await world.consumer(filter_subjects=["a.2", "a.6"])
    assert changed["config"]["filter_subjects"] == ["a.2", "a.6"]
    world.publish(6)
    assert [m.payload for m in inbox] == [b"2", b"5", b"2", b"6"]


async def test_pending_messages_that_leave_the_stream_free_their_place(world: Any) -> None:
    stream = await world.stream()
    await world.consumer(max_ack_pending=3)
    world.publish(6)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    assert len(inbox) == 3
    stream.delete_message(2, True)
    world.kernel.turn()
    assert len(inbox) == 4
    answer = await world.ask("STREAM.PURGE.S", {"seq": 4})
    assert answer["purged"] == 2
    await world.until(lambda: len(inbox) == 6)
    info = await world.info()
    assert info["num_ack_pending"] == 3
    assert info["ack_floor"]["stream_seq"] == 3


async def test_pending_count_is_exact_while_messages_leave(world: Any) -> None:
    stream = await world.stream()
    await world.consumer(filter_subject="a.*")
    world.publish(10)
    assert (await world.info())["num_pending"] == 10
    stream.delete_message(5, True)
    assert (await world.info())["num_pending"] == 9
    await world.ask("STREAM.PURGE.S", {"filter": "a.7"})
    assert (await world.info())["num_pending"] == 8
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "9")
    assert [m.numbers[4] for m in inbox] == [7, 6, 5, 4, 3, 2, 1, 0]
    await world.ask("STREAM.PURGE.S")
    info = await world.info()
    assert (info["num_pending"], info["num_ack_pending"]) == (0, 0)
    assert info["delivered"]["stream_seq"] == 10


async def test_sampled_acks_are_reported(world: Any) -> None:
    await world.stream()
    await world.consumer(sample_freq="100%")
    reports = world.listen("$JS.EVENT.METRIC.CONSUMER.ACK.S.C")
    world.publish(1)
    inbox = world.listen("_INBOX.x")
    world.pull("_INBOX.x", "1")
    world.send(inbox[0].reply)
    report = json.loads(reports[0].payload)
    assert report["type"] == "io.nats.jetstream.metric.v1.consumer_ack"
    assert (report["stream_seq"], report["consumer_seq"], report["deliveries"]) == (1, 1, 1)
    assert report["ack_time"] > 0


async def test_a_delivery_that_reaches_its_own_stream_is_not_torn(world: Any) -> None:
    await world.stream(subjects=["a.>", "loop.*"])
    await world.consumer(filter_subject="a.*")
    world.publish(3)
    world.pull("loop.1", "3")
    stream = world.js.streams["S"]
    assert [stream.store.get(n).payload for n in range(1, 7)] == [b"1", b"2", b"3"] * 2
