"""Subjects that others choose: none ends a line of the protocol, and none reaches what the node
serves, whether it comes in a configuration, an archive or a request."""

import asyncio
import json
from typing import Any

import pytest

from headwater.edge.jetstream.model import archive, s2

FORGED = "x 1 2\r\nhi\r\nMSG admin 1 5"
CONTROLS = ["a\rb", "a\nb", "a b", "a\tb", "a\x00b", "a\x7fb", FORGED]


@pytest.mark.parametrize("bad", CONTROLS)
@pytest.mark.parametrize(
    "extra",
    [
        lambda bad: {"republish": {"src": "bad.*", "dest": f"{bad}.$1"}},
        lambda bad: {"republish": {"src": bad, "dest": "fine"}},
        lambda bad: {"subject_transform": {"src": "bad.*", "dest": f"{bad}.$1"}},
        lambda bad: {"subject_transform": {"src": "bad.*", "dest": f"{{{{split(1,{bad})}}}}"}},
        lambda bad: {"subjects": [bad]},
        lambda bad: {"name": bad},
        lambda bad: {
            "subjects": [],
            "sources": [{"name": "O", "subject_transforms": [{"src": "o.*", "dest": f"{bad}.$1"}]}],
        },
        lambda bad: {"subjects": [], "sources": [{"name": bad}]},
        lambda bad: {"subjects": [], "mirror": {"name": "O", "filter_subject": bad}},
    ],
)
async def test_no_configuration_holds_control_bytes(client: Any, extra: Any, bad: str) -> None:
    body = {"name": "BAD", "subjects": ["bad.*"], **extra(bad)}
    answer = await client.api("STREAM.CREATE.BAD", body)
    assert answer["error"]["code"] in (400, 500), answer
    assert (await client.api("STREAM.INFO.BAD"))["error"]["err_code"] == 10059


@pytest.mark.parametrize("bad", CONTROLS)
async def test_no_consumer_holds_control_bytes(client: Any, bad: str) -> None:
    await client.api("STREAM.CREATE.CC", {"name": "CC", "subjects": ["cc"]})
    for config in (
        {"deliver_subject": bad},
        {"deliver_subject": "to", "deliver_group": bad},
        {"filter_subject": bad},
        {"filter_subjects": ["cc", bad]},
        {"durable_name": bad},
    ):
        answer = await client.api("CONSUMER.CREATE.CC", {"stream_name": "CC", "config": config})
        assert answer["error"]["code"] in (400, 500), config
    assert (await client.api("CONSUMER.NAMES.CC"))["consumers"] == []


def backup(*entries: archive.ArchiveEntry) -> bytes:
    """A whole backup of a stream with one message per entry."""
    state = json.dumps({"messages": 1, "first_seq": 1, "last_seq": 1}).encode()
    content = archive.MAGIC + archive.packed(archive.ArchiveEntry(b"state.json", 1, 0, b"", state))
    for entry in (*entries, archive.END):
        content += archive.packed(entry)
    return s2.IDENTIFIER + s2.frames(content)


@pytest.mark.parametrize(
    "entry",
    [
        archive.ArchiveEntry(FORGED.encode(), 1, 1, b"", b"payload"),
        archive.ArchiveEntry(b"r.*", 1, 1, b"", b"payload"),
        archive.ArchiveEntry(b"r.a", 1, 1, b"A: b\r\n", b"payload"),
        archive.ArchiveEntry(
            b"consumers/c", 1, 0, b"", json.dumps({"config": {"durable_name": FORGED}}).encode()
        ),
        archive.ArchiveEntry(
            b"consumers/c",
            1,
            0,
            b"",
            json.dumps({"config": {"durable_name": "c", "deliver_subject": FORGED}}).encode(),
        ),
    ],
    ids=["subject", "wildcard", "headers", "consumer", "deliver_subject"],
)
async def test_archives_are_no_way_around(client: Any, entry: archive.ArchiveEntry) -> None:
    inbox = await client.nc.subscribe(">")
    config = {"name": "R", "subjects": ["r.>"], "republish": {"src": ">", "dest": "again.>"}}
    started = await client.api("STREAM.RESTORE.R", {"config": config, "state": {}})
    answer = await client.request(started["deliver_subject"], backup(entry))
    if answer == b"":
        answer = await client.request(started["deliver_subject"], b"")
    assert answer["error"]["code"] in (400, 500), answer
    assert (await client.api("STREAM.INFO.R"))["error"]["err_code"] == 10059
    await client.nc.flush()
    assert not [m for m in inbox._pending_queue._queue if m.subject == "admin"]


async def victim(client: Any) -> None:
    await client.api("STREAM.CREATE.V", {"name": "V", "subjects": ["v"]})


async def survives(client: Any) -> bool:
    """Whether the stream that was not to be deleted is there."""
    return "error" not in await client.api("STREAM.INFO.V")


DELETE = "$JS.API.STREAM.DELETE.V"


async def test_push_deliveries_are_no_requests(client: Any) -> None:
    await victim(client)
    await client.api("STREAM.CREATE.P", {"name": "P", "subjects": ["p"]})
    config = {"durable_name": "d", "deliver_subject": DELETE, "headers_only": True}
    body = {"stream_name": "P", "config": config}
    await client.api("CONSUMER.DURABLE.CREATE.P.d", body)
    await client.request("p", b"")
    for _ in range(20):
        await client.nc.flush()
        assert await survives(client)


async def test_snapshot_chunks_are_no_requests(client: Any) -> None:
    await victim(client)
    answer = await client.api("STREAM.SNAPSHOT.V", {"deliver_subject": DELETE})
    assert answer["type"].endswith("stream_snapshot_response")
    await asyncio.sleep(0)
    for _ in range(20):
        assert await survives(client)


async def test_republished_messages_are_no_requests(client: Any) -> None:
    await victim(client)
    republish = {"src": "drop.*", "dest": "$JS.API.STREAM.DELETE.$1", "headers_only": True}
    config = {"name": "Q", "subjects": ["drop.*"], "republish": republish}
    await client.api("STREAM.CREATE.Q", config)
    await client.request("drop.V", b"")
    await client.nc.flush()
    assert await survives(client)


async def test_answers_are_no_requests(client: Any) -> None:
    await victim(client)
    await client.nc.publish("$JS.API.STREAM.NAMES", b"", reply=DELETE)
    await client.nc.flush()
    assert await survives(client)


async def test_pull_requests_do_not_deliver_to_the_node(client: Any) -> None:
    await victim(client)
    await client.api("STREAM.CREATE.L", {"name": "L", "subjects": ["l"]})
    body = {"stream_name": "L", "config": {"durable_name": "d", "ack_policy": "none"}}
    await client.api("CONSUMER.DURABLE.CREATE.L.d", body)
    await client.request("l", b"")
    await client.nc.publish("$JS.API.CONSUMER.MSG.NEXT.L.d", b"1", reply=DELETE)
    await client.nc.flush()
    assert await survives(client)
