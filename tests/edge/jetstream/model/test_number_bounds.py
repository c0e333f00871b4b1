"""Numbers as large as JSON can write them: the answers are those of nats-server, nothing that was
refused is kept, and what is accepted survives a start."""

import json
from collections.abc import Callable
from typing import Any

import nats
import pytest

from tests.edge.jetstream.conftest import Client, JetStreamServer

SIGNED = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**30]
UNSIGNED = [2**64, -1, 10**30]
SMALL = [2**31, -(2**31) - 1]

STREAM_FIELDS = [
    *[(name, value) for name in
      ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_age", "duplicate_window",
       "max_consumers", "subject_delete_marker_ttl") for value in SIGNED[1:2] + SIGNED[3:]],
    *[("first_seq", value) for value in UNSIGNED],
    *[("max_msg_size", value) for value in SMALL],
]
CONSUMER_FIELDS = [
    *[(name, value) for name in
      ("max_deliver", "ack_wait", "max_ack_pending", "max_waiting", "inactive_threshold",
       "max_batch", "max_expires", "max_bytes") for value in (2**63, 2**64)],
    *[("opt_start_seq", value) for value in UNSIGNED],
    ("backoff", [1, 2**63]),
    ("rate_limit_bps", 2**64),
]
REQUESTS = [
    ("STREAM.MSG.GET.N", {"seq": 2**64}), ("STREAM.MSG.GET.N", {"seq": -1}),
    ("STREAM.MSG.GET.N", {"seq": 2**64 - 1}), ("STREAM.MSG.DELETE.N", {"seq": -1}),
    ("STREAM.MSG.DELETE.N", {"seq": 2**64}), ("STREAM.PURGE.N", {"seq": -1}),
    ("STREAM.PURGE.N", {"keep": 2**64}), ("STREAM.NAMES", {"offset": 2**63}),
    ("STREAM.LIST", {"offset": 2**63}), ("STREAM.INFO.N", {"offset": -(2**63) - 1}),
]


@pytest.mark.parametrize(("field", "value"), STREAM_FIELDS)
async def test_streams(compare: Callable[..., Any], field: str, value: int) -> None:
    body = {"name": "N", "subjects": ["n"], field: value}
    await compare([("STREAM.CREATE.N", body), ("STREAM.INFO.N",)])


@pytest.mark.parametrize(("field", "value"), CONSUMER_FIELDS)
async def test_consumers(compare: Callable[..., Any], field: str, value: int) -> None:
    config = {"durable_name": "d", "ack_policy": "explicit", field: value}
    body = {"stream_name": "N", "config": config}
    await compare(
        [
            ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]}),
            ("CONSUMER.DURABLE.CREATE.N.d", body),
            ("CONSUMER.NAMES.N",),
            ("STREAM.DELETE.N",),
        ]
    )


async def test_requests(compare: Callable[..., Any]) -> None:
    create = ("STREAM.CREATE.N", {"name": "N", "subjects": ["n"]})
    await compare([create, *REQUESTS, ("STREAM.DELETE.N",)])


LARGEST = {
    "max_msgs": 2**63 - 1, "max_msgs_per_subject": 2**63 - 1, "max_bytes": 2**63 - 1,
    "max_age": 2**63 - 1, "duplicate_window": 2**63 - 1, "max_msg_size": 2**31 - 1,
    "max_consumers": 2**63 - 1, "storage": "file", "allow_msg_ttl": True,
}
LONGEST = {
    "ack_wait": 2**63 - 1, "max_deliver": 2**63 - 1, "max_ack_pending": 2**63 - 1,
    "inactive_threshold": 2**63 - 1, "max_batch": 2**63 - 1, "max_expires": 2**63 - 1,
    "ack_policy": "explicit", "durable_name": "d",
}


async def fill(url: str) -> None:
    nc = await nats.connect(url)
    client = Client(nc)
    body = {"name": "L", "subjects": ["l"], **LARGEST, "max_bytes": -1}
    answer = await client.api("STREAM.CREATE.L", body)
    assert "error" not in answer, answer
    body = {"stream_name": "L", "config": LONGEST}
    answer = await client.api("CONSUMER.DURABLE.CREATE.L.d", body)
    assert "error" not in answer, answer
    for ttl in ("9223372036854775807", "9" * 5000, "2562047h", "never"):
        answer = await client.request("l", b"x", {"Nats-TTL": ttl, "Nats-Msg-Id": ttl[:8]})
        assert "seq" in answer, (ttl, answer)
    await nc.close()


async def test_the_largest_numbers_live_and_start_again(
    start_server: Callable[..., JetStreamServer],
) -> None:
    server = start_server()
    await fill(server.url)
    server.kill()
    server = start_server()
    nc = await nats.connect(server.url)
    state = (await nc.jetstream().stream_info("L")).state
    assert (state.messages, state.consumer_count) == (4, 1)
    await nc.close()


PULLS: list[Any] = [
    {"batch": 2**63 - 1, "no_wait": True}, {"batch": 1, "expires": 2**63 - 1, "no_wait": True},
    {"batch": 1, "max_bytes": 2**63 - 1, "no_wait": True}, {"batch": 2**63}, {"batch": -(2**63)},
    {"batch": 1, "expires": 2**64}, {"priority": 2**63 - 1, "no_wait": True},
    {"min_pending": 2**63 - 1}, {"batch": 1, "idle_heartbeat": 2**62, "expires": 2**63 - 1},
    b"9" * 18, b"9" * 40, b'{"batch": 1, "expires":1e400}',
]


@pytest.mark.parametrize("body", PULLS, ids=str)
async def test_pull_requests_end_no_connection(client: Client, body: Any) -> None:
    """Its connection may be a link that carries many tenants."""
    await client.api("STREAM.CREATE.PB", {"name": "PB", "subjects": ["pb"]})
    config = {"durable_name": "c", "ack_policy": "explicit", "max_waiting": 1000}
    await client.api("CONSUMER.DURABLE.CREATE.PB.c", {"stream_name": "PB", "config": config})
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    await client.nc.publish("$JS.API.CONSUMER.MSG.NEXT.PB.c", content, reply="_INBOX.nobody")
    assert (await client.api("STREAM.INFO.PB"))["config"]["name"] == "PB"


@pytest.mark.parametrize(
    "body",
    [b"-NAK 99999999999999h", b'-NAK {"delay": 99999999999999999999}', b"-NAK 9e400s",
     b'-NAK {"delay": 9223372036854775807}', b"-NAK 1." + b"9" * 400 + b"h", b"+WPI", b"+NXT 9e9"],
)
async def test_acks_end_no_connection(client: Client, body: bytes) -> None:
    js = client.nc.jetstream()
    await js.add_stream(name="AK", subjects=["ak"])
    await js.publish("ak", b"x")
    found = (await (await js.pull_subscribe("ak", durable="c", stream="AK")).fetch(1))[0]
    await client.nc.publish(found.reply, body, reply="_INBOX.nobody")
    assert (await js.consumer_info("AK", "c")).name == "c"
    await js.delete_stream("AK")
