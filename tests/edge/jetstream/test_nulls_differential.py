"""Nulls in requests mean to headwater what they mean to nats-server.

A step is a request: its subject below `$JS.API.`, and its body.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from headwater.edge.jetstream import models

Steps = list[tuple[Any, ...]]
Compare = Callable[[Steps], Awaitable[None]]
STREAM = ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"})
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
