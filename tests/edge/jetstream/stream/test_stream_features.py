"""What streams do by themselves: expire, mark, republish, keep interest, advise, answer domains."""

import base64
import json
from collections.abc import Callable
from typing import Any

import nats
import pytest

from tests.waiting import until


async def messages(client: Any, stream: str) -> int:
    return int((await client.api(f"STREAM.INFO.{stream}"))["state"]["messages"])


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_age(client: Any, storage: str) -> None:
    config = {"name": "AGE", "subjects": ["age"], "storage": storage, "max_age": 300_000_000}
    await client.api("STREAM.CREATE.AGE", config)
    for _ in range(3):
        await client.request("age", b"x")
    assert await messages(client, "AGE") == 3

    async def gone() -> bool:
        return await messages(client, "AGE") == 0

    await until(gone)
    info = await client.api("STREAM.INFO.AGE")
    assert (info["state"]["first_seq"], info["state"]["last_seq"]) == (4, 3)
    await client.request("age", b"x")
    await until(gone)
    await client.api("STREAM.DELETE.AGE")


async def test_age_that_is_set_later(client: Any) -> None:
    config = {"name": "LATER", "subjects": ["later"], "storage": "memory"}
    await client.api("STREAM.CREATE.LATER", config)
    await client.request("later", b"x")
    config.update(max_age=200_000_000, duplicate_window=200_000_000)  # type: ignore[arg-type]
    await client.api("STREAM.UPDATE.LATER", config)

    async def gone() -> bool:
        return await messages(client, "LATER") == 0

    await until(gone)
    await client.api("STREAM.DELETE.LATER")


async def test_ttl_and_marker(client: Any) -> None:
    config = {
        "name": "MARK",
        "subjects": ["mark.*"],
        "storage": "memory",
        "max_age": 3_600_000_000_000,
        "subject_delete_marker_ttl": 3_600_000_000_000,
        "max_msgs_per_subject": 1,
    }
    created = await client.api("STREAM.CREATE.MARK", config)
    assert created["config"]["allow_msg_ttl"]
    assert created["config"]["allow_rollup_hdrs"]
    await client.request("mark.a", b"x", {"Nats-TTL": "1"})
    await client.request("mark.b", b"x", {"Nats-TTL": "never"})

    async def marked() -> bool:
        found = await client.api("STREAM.MSG.GET.MARK", {"last_by_subj": "mark.a"})
        return found.get("message", {}).get("seq") == 3

    await until(marked)
    answer = await client.api("STREAM.MSG.GET.MARK", {"seq": 3})
    headers = base64.b64decode(answer["message"]["hdrs"])
    assert b"Nats-Marker-Reason: MaxAge\r\n" in headers
    assert b"Nats-TTL: 1h0m0s\r\n" in headers
    assert b"Nats-Rollup: sub\r\n" in headers
    await client.api("STREAM.DELETE.MARK")


async def test_republish(client: Any) -> None:
    await client.api(
        "STREAM.CREATE.RP",
        {
            "name": "RP",
            "subjects": ["rp.*"],
            "republish": {"src": "rp.*", "dest": "again.{{wildcard(1)}}"},
        },
    )
    sub = await client.nc.subscribe("again.>")
    await client.request("rp.a", b"one", {"K": "v"})
    await client.request("rp.a", b"two")
    first = await sub.next_msg(timeout=2)
    second = await sub.next_msg(timeout=2)
    assert (first.subject, first.data) == ("again.a", b"one")
    assert first.headers["K"] == "v"
    assert first.headers["Nats-Stream"] == "RP"
    assert first.headers["Nats-Subject"] == "rp.a"
    assert first.headers["Nats-Sequence"] == "1"
    assert first.headers["Nats-Last-Sequence"] == "0"
    assert second.headers["Nats-Last-Sequence"] == "1"
    await client.api("STREAM.DELETE.RP")


async def test_republish_of_headers(client: Any) -> None:
    republish = {"src": ">", "dest": "sizes.>", "headers_only": True}
    config = {"name": "RH", "subjects": ["rh.*"], "storage": "memory", "republish": republish}
    await client.api("STREAM.CREATE.RH", config)
    sub = await client.nc.subscribe("sizes.>")
    await client.request("rh.a", b"12345")
    found = await sub.next_msg(timeout=2)
    assert (found.subject, found.data) == ("sizes.rh.a", b"")
    assert found.headers["Nats-Msg-Size"] == "5"
    await client.api("STREAM.DELETE.RH")


async def test_interest(client: Any) -> None:
    js = client.nc.jetstream()
    await js.add_stream(name="INT", subjects=["int.*"], retention="interest")
    await js.add_consumer("INT", durable_name="one", filter_subject="int.a", ack_policy="explicit")
    await js.add_consumer("INT", durable_name="two", ack_policy="explicit")
    for subject in ("int.a", "int.b"):
        await js.publish(subject, b"x")
    assert await messages(client, "INT") == 2
    one = await js.pull_subscribe_bind("one", "INT")
    two = await js.pull_subscribe_bind("two", "INT")
    for message in await two.fetch(2):
        await message.ack_sync()
    assert await messages(client, "INT") == 1
    for message in await one.fetch(1):
        await message.ack_sync()
    assert await messages(client, "INT") == 0
    await js.publish("int.b", b"x")
    await js.delete_consumer("INT", "two")

    async def gone() -> bool:
        return await messages(client, "INT") == 0

    await until(gone)
    assert (await js.publish("int.b", b"nobody")).seq == 4
    assert await messages(client, "INT") == 0
    await js.delete_stream("INT")


async def test_work_queue(client: Any) -> None:
    js = client.nc.jetstream()
    await js.add_stream(name="WQ", subjects=["wq.*"], retention="workqueue")
    await js.publish("wq.a", b"x")
    await js.publish("wq.b", b"x")
    sub = await js.pull_subscribe("wq.a", durable="w", stream="WQ")
    for message in await sub.fetch(1):
        await message.ack_sync()
    assert await messages(client, "WQ") == 1
    await js.delete_stream("WQ")


async def test_advisories(client: Any) -> None:
    sub = await client.nc.subscribe("$JS.EVENT.ADVISORY.STREAM.>")
    await client.api("STREAM.CREATE.ADV", {"name": "ADV", "subjects": ["adv"]})
    await client.api("STREAM.UPDATE.ADV", {"name": "ADV", "subjects": ["adv"], "max_msgs": 4})
    await client.api("STREAM.DELETE.ADV")
    for tail, action in (("CREATED", "create"), ("UPDATED", "modify"), ("DELETED", "delete")):
        message = await sub.next_msg(timeout=2)
        event = json.loads(message.data)
        assert message.subject == f"$JS.EVENT.ADVISORY.STREAM.{tail}.ADV"
        assert event["type"] == "io.nats.jetstream.advisory.v1.stream_action"
        assert (event["stream"], event["action"]) == ("ADV", action)
        assert event["id"]
    await sub.unsubscribe()


async def test_abandoned_batch(client: Any) -> None:
    await client.api("STREAM.CREATE.AB", {"name": "AB", "subjects": ["ab"], "allow_atomic": True})
    sub = await client.nc.subscribe("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.AB")
    await client.request("ab", b"", {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1"})
    answer = await client.request("ab", b"", {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "3"})
    assert answer["error"]["err_code"] == 10176
    event = json.loads((await sub.next_msg(timeout=2)).data)
    assert (event["batch"], event["reason"]) == ("x", "incomplete")
    await client.api("STREAM.DELETE.AB")


async def test_no_ack(client: Any) -> None:
    config = {"name": "NOACK", "subjects": ["noack"], "no_ack": True, "storage": "memory"}
    await client.api("STREAM.CREATE.NOACK", config)
    await client.nc.publish("noack", b"x", reply="nobody")
    assert await client.request("noack", b"x") == "TimeoutError"
    assert await messages(client, "NOACK") == 2
    await client.api("STREAM.DELETE.NOACK")


async def test_domain(start_server: Callable[..., Any], tmp_path: Any) -> None:
    config = tmp_path / "domain.conf"
    store = tmp_path / "domain"
    config.write_text(f'jetstream {{ domain: "edge", store_dir: "{store}" }}\n')
    server = start_server("-c", str(config))
    nc = await nats.connect(server.url)
    for js in (nc.jetstream(), nc.jetstream(domain="edge")):
        await js.add_stream(name="D", subjects=["d.*"], allow_direct=True)
        ack = await js.publish("d.a", b"x")
        assert (ack.stream, ack.domain) == ("D", "edge")
        assert (await js.stream_info("D")).state.messages == ack.seq
        assert (await js.get_last_msg("D", "d.a", direct=True)).seq == ack.seq
        sub = await js.pull_subscribe("d.*", durable=f"c{ack.seq}")
        assert [m.metadata.sequence.stream for m in await sub.fetch(ack.seq)]
    await nc.close()


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_schedule_fires_once(client: Any, storage: str) -> None:
    config = {"name": "SCH", "subjects": ["sch.*"], "allow_msg_schedules": True}
    await client.api("STREAM.CREATE.SCH", {**config, "storage": storage})
    headers = {
        "Nats-Schedule": "@at 2020-01-01T00:00:00Z",
        "Nats-Schedule-Target": "sch.target",
        "Kept": "yes",
    }
    ack = await client.request("sch.plan", b"body", headers)
    assert ack["seq"] == 1

    async def fired() -> bool:
        info = await client.api("STREAM.INFO.SCH", {"subjects_filter": ">"})
        return info["state"]["subjects"] == {"sch.target": 1}

    await until(fired)
    message = await client.nc.jetstream().get_msg("SCH", 2)
    assert message.data == b"body"
    assert message.headers["Kept"] == "yes"
    assert message.headers["Nats-Scheduler"] == "sch.plan"
    assert message.headers["Nats-Schedule-Next"] == "purge"
    assert "Nats-Schedule" not in message.headers
    await client.api("STREAM.DELETE.SCH")


async def test_schedule_fires_again(client: Any) -> None:
    config = {"name": "SCR", "subjects": ["scr.*"], "allow_msg_schedules": True}
    await client.api("STREAM.CREATE.SCR", {**config, "storage": "memory"})
    headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "scr.target"}
    await client.request("scr.plan", b"tick", headers)

    async def twice() -> bool:
        info = await client.api("STREAM.INFO.SCR", {"subjects_filter": ">"})
        return info["state"]["subjects"].get("scr.target", 0) >= 2

    await until(twice)
    await client.api("STREAM.DELETE.SCR")
