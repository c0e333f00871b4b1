"""Nulls and times in requests mean to headwater what they mean to nats-server.

A step is a request: its subject below `$JS.API.`, and its body.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from headwater.edge.jetstream.model import models

Steps = list[tuple[Any, ...]]
Compare = Callable[[Steps], Awaitable[None]]
STREAM = (
    "STREAM.CREATE.S",
    {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_direct": True},
)
CONSUMER = (
    "CONSUMER.DURABLE.CREATE.S.D",
    {"stream_name": "S", "config": {"durable_name": "D", "ack_policy": "explicit"}},
)
GONE = ("STREAM.DELETE.S",)
REQUESTS: dict[str, type[msgspec.Struct]] = {
    "STREAM.INFO.S": models.StreamInfoRequest,
    "STREAM.NAMES": models.StreamNamesRequest,
    "STREAM.LIST": models.StreamNamesRequest,
    "STREAM.PURGE.S": models.PurgeRequest,
    "STREAM.MSG.DELETE.S": models.MsgDeleteRequest,
    "STREAM.MSG.GET.S": models.MsgGetRequest,
    "STREAM.SNAPSHOT.S": models.SnapshotRequest,
    "CONSUMER.NAMES.S": models.ConsumersRequest,
    "CONSUMER.LIST.S": models.ConsumersRequest,
    "CONSUMER.PAUSE.S.D": models.PauseRequest,
    "CONSUMER.UNPIN.S.D": models.UnpinRequest,
    "CONSUMER.RESET.S.D": models.ResetRequest,
}


async def test_pull_requests_with_nulls(compare: Compare) -> None:
    """A client that always sends every field is served, whatever the field."""
    pull = "CONSUMER.MSG.NEXT.S.D"
    steps: Steps = [STREAM, CONSUMER]
    fields = models.PullRequest.__struct_fields__
    steps.append((pull, {**dict.fromkeys(fields), "no_wait": True}))
    steps += [(pull, {"no_wait": True, field: None}) for field in fields if field != "no_wait"]
    steps += [
        (pull, {"expires": 50_000_000, "no_wait": None}),
        (pull, b'{"NO_WAIT": true, "other": [1, null], "Batch": null}'),
        GONE,
    ]
    await compare(steps)


@pytest.mark.parametrize("subject", REQUESTS)
async def test_requests_with_nulls(compare: Compare, subject: str) -> None:
    fields = REQUESTS[subject].__struct_fields__
    bodies: list[Any] = [b"null", b"[null]", {"unknown": None}, dict.fromkeys(fields)]
    bodies += [{field: None} for field in fields]
    await compare([STREAM, CONSUMER, *((subject, body) for body in bodies), GONE])


ESCAPES = [
    b'\\q', b"\\'", b'\\ ', b'\\`', b'\\\t', b'\\\n', b'\\\x01', b'\\\x7f', b'\\\xc3\xa9',
    b'\\\xff', b'\\U0041', b'\\u00g1', b'\\u12', b'\\u', b'\\u``11', b'\\u1\xc3\xa911',
    b'\\u\xe2\x82\xac1', b'\\u1\xff22', b'\\u\\\\11', b'\\u1"12', b'\\u1\x7f12',
    b'\\u1\xef\xbf\xbd', b'\\u\xf0\x9f\x98\x80', b'\\u\xe2\x80\xa81', b'\\u\xc2\xa012',
]  # fmt: skip


@pytest.mark.parametrize("behind", [b'"}', b"", b"x", b'", "b": 1}   '])
async def test_escape_sequences_that_are_none(compare: Compare, behind: bytes) -> None:
    bodies = [b'{"a": "1' + escape + behind for escape in ESCAPES]
    steps: Steps = [STREAM, CONSUMER]
    for subject in ("STREAM.INFO.S", "STREAM.CREATE.T", "CONSUMER.MSG.NEXT.S.D"):
        steps += [(subject, body) for body in bodies]
    await compare([*steps, GONE])


async def test_stream_configurations_with_nulls(compare: Compare) -> None:
    steps: Steps = []
    for field in (*models.StreamRequest.__struct_fields__, "unknown"):
        config = {"name": "S", "subjects": ["s.>"], "storage": "memory", field: None}
        steps += [("STREAM.CREATE.S", config), ("STREAM.UPDATE.S", config), GONE]
    for odd in (
        {"subjects": [None]},
        {"metadata": {"a": None}},
        {"placement": {"tags": [None], "cluster": None}},
        {"mirror": {"name": "O", "external": None, "subject_transforms": [None]}},
        {"sources": [{"name": "O", "opt_start_time": None}]},
    ):
        steps += [("STREAM.CREATE.S", {"name": "S", "storage": "memory", **odd}), GONE]
    await compare(steps)


async def test_consumer_configurations_with_nulls(compare: Compare) -> None:
    steps: Steps = [STREAM]
    own = {"durable_name": "D", "ack_policy": "explicit"}
    create, gone = CONSUMER[0], ("CONSUMER.DELETE.S.D",)
    for field in models.ConsumerConfig.__struct_fields__:
        steps += [(create, {"stream_name": "S", "config": {**own, field: None}}), gone]
    for field in ("stream_name", "config", "action", "pedantic"):
        steps += [(create, {"stream_name": "S", "config": own, field: None}), gone]
    for field in ("backoff", "filter_subjects", "priority_groups"):
        steps += [(create, {"stream_name": "S", "config": {**own, field: [None]}}), gone]
    await compare([*steps, GONE])


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00Z",
        "0000-02-29T00:00:00Z",
        "2020-01-01T00:00:00.100+02:00",
        "2020-01-01T00:00:00,0500Z",
        "2020-01-01T00:00:00+00:00",
        "2200-01-01T00:00:00.1234567891Z",
    ],
)
async def test_odd_times(compare: Compare, time: str) -> None:
    """The zero time, which the `nats` tool sends, and others that a program may."""
    source = {"name": "S", "opt_start_time": time}
    steps: Steps = [STREAM, CONSUMER, ("=s.a", b"1"), ("=s.a", b"2")]
    for config in (
        {"opt_start_time": time, "deliver_policy": "by_start_time"},
        {"pause_until": time},
    ):
        named = {"durable_name": "T", "ack_policy": "explicit", **config}
        steps += [
            ("CONSUMER.CREATE.S.T", {"stream_name": "S", "config": named}),
            ("CONSUMER.DELETE.S.T",),
        ]
    steps += [
        ("CONSUMER.PAUSE.S.D", {"pause_until": time}),
        ("CONSUMER.DELETE.S.D",),
        ("STREAM.MSG.GET.S", {"start_time": time}),
        ("STREAM.MSG.GET.S", {"start_time": time, "next_by_subj": "s.>"}),
        ("DIRECT.GET.S", {"start_time": time, "next_by_subj": "s.>"}),
        ("DIRECT.GET.S", {"start_time": time, "batch": 1}),
        ("DIRECT.GET.S", {"multi_last": ["s.>"], "up_to_time": time}),
        ("STREAM.CREATE.M", {"name": "M", "storage": "memory", "sources": [source]}),
        ("STREAM.DELETE.M",),
        GONE,
    ]
    await compare(steps)


@pytest.mark.parametrize("time", ["", "x", "2020-01-01T00:00:60Z", "2020-01-01t00:00:00z", "1"])
async def test_times_that_are_none(client: Any, time: str) -> None:
    await client.api(*STREAM)
    await client.api(*CONSUMER)
    config = {"durable_name": "T", "opt_start_time": time}
    for answer in (
        await client.api("CONSUMER.CREATE.S.T", {"stream_name": "S", "config": config}),
        await client.api("CONSUMER.PAUSE.S.D", {"pause_until": time}),
        await client.api("STREAM.MSG.GET.S", {"start_time": time}),
    ):
        assert answer["error"]["err_code"] == 10025
    await client.api("STREAM.DELETE.S")


@pytest.mark.parametrize(
    "time",
    [
        "bad", "2026-13-01T00:00:00Z", "", 5, 1.5, True, [], {}, "2026-11-27",
        "2026-11-27T10:00:00", "2026-02-30T10:00:00Z", "2026-01-00T10:00:00Z",
        "2026-01-10T24:00:00Z", "2026-01-10T23:60:00Z", "2026-01-10T23:00:60Z",
        "2026-01-10T23:00:00.Z", "2026-01-10T23:00:00zz", "2026-01-10T23:00:00Zx",
        "2026-01-10 23:00:00Z", "2026-1-10T03:00:00Z", "2026-01-10T03:00:00+1:00",
        "2026-01-10T03:00:00+25:00", "2029-02-29T25:00:00Z", 'a"b\\c', "\u00fc\t<&>",
    ],
)  # fmt: skip
async def test_times_that_are_none_are_refused_in_the_same_words(
    compare: Compare, time: Any
) -> None:
    config = {"durable_name": "T", "ack_policy": "explicit", "deliver_policy": "by_start_time"}
    begun = {"stream_name": "S", "config": {**config, "opt_start_time": time}}
    steps: Steps = [STREAM, CONSUMER, ("CONSUMER.CREATE.S.T", begun)]
    steps += [("CONSUMER.PAUSE.S.D", {"pause_until": time})]
    steps += [("STREAM.MSG.GET.S", {"start_time": time, "next_by_subj": "s.>"}), GONE]
    await compare(steps)


async def test_an_hour_of_one_digit_is_a_time(compare: Compare) -> None:
    time = "2020-01-10T3:00:00Z"
    config = {"durable_name": "T", "ack_policy": "explicit", "deliver_policy": "by_start_time"}
    begun = {"stream_name": "S", "config": {**config, "opt_start_time": time}}
    steps: Steps = [STREAM, CONSUMER, ("CONSUMER.CREATE.S.T", begun)]
    steps += [("CONSUMER.PAUSE.S.D", {"pause_until": time}), GONE]
    await compare(steps)


async def test_times_beyond_64_bits_are_far_away(client: Any) -> None:
    await client.api(*STREAM)
    await client.request("s.a", b"1")
    for time, pending in (("1500-01-01T00:00:00Z", 1), ("9999-12-31T23:59:59.999999999Z", 0)):
        config = {"durable_name": "T", "opt_start_time": time, "deliver_policy": "by_start_time"}
        answer = await client.api("CONSUMER.CREATE.S.T", {"stream_name": "S", "config": config})
        assert answer["num_pending"] == pending
        assert answer["config"]["opt_start_time"] == time
        paused = await client.api("CONSUMER.PAUSE.S.T", {"pause_until": time})
        assert (paused["paused"], paused["pause_until"]) == (not pending, time)
        await client.api("CONSUMER.DELETE.S.T")
    await client.api("STREAM.DELETE.S")
