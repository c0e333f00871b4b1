"""The API of streams answers as nats-server does, field by field.

A step is a request: its subject below `$JS.API.` (or after `=`, a whole subject), body, headers.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Steps = list[tuple[Any, ...]]
STORAGES = ("memory", "file")


def create(name: str, **config: Any) -> tuple[Any, ...]:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def update(name: str, **config: Any) -> tuple[Any, ...]:
    return f"STREAM.UPDATE.{name}", {"name": name, **config}


def publish(subject: str, payload: bytes = b"x", **headers: str) -> tuple[Any, ...]:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return f"={subject}", payload, named or None


REFUSED_CONFIGS: dict[str, dict[str, Any]] = {
    "unknown field": {"foo": 1},
    "bad retention": {"retention": "foo"},
    "wrong type": {"max_msgs": "5"},
    "other name": {"name": "r"},
    "small age": {"max_age": 5},
    "negative age": {"max_age": -5},
    "small window": {"duplicate_window": 5},
    "window above age": {"max_age": 200000000, "duplicate_window": 500000000},
    "replicas alone": {"num_replicas": 3},
    "too many replicas": {"num_replicas": 9},
    "negative replicas": {"num_replicas": -1},
    "everything": {"subjects": [">"]},
    "api subjects": {"subjects": ["$JS.API.>"]},
    "system subjects": {"subjects": ["$SYS.x"]},
    "overlap inside": {"subjects": ["a.b", "a.*"]},
    "same subject": {"subjects": ["a", "a"]},
    "bad subject": {"subjects": ["a..b"]},
    "sealed": {"sealed": True},
    "mirror direct": {"mirror_direct": True},
    "rollup without purge": {"deny_purge": True, "allow_rollup_hdrs": True},
    "per subject without new": {"discard_new_per_subject": True},
    "per subject without limit": {"discard": "new", "discard_new_per_subject": True},
    "republish cycle": {"republish": {"src": "q", "dest": "q"}},
    "transform index": {"subject_transform": {"src": "q.*", "dest": "r.$3"}},
    "transform source": {"subject_transform": {"src": "q..*", "dest": "r.$1"}},
    "republish index": {"republish": {"src": "q.*", "dest": "r.$4"}},
    "long description": {"description": "x" * 5000},
    "large metadata": {"metadata": {"a": "x" * 140000}},
    "preferred placement": {"placement": {"preferred": "x"}},
    "object as text": {"placement": "x"},
    "object as number": {"consumer_limits": 1},
    "object as list": {"mirror": ["x"]},
    "objects as text": {"sources": "x"},
    "texts in a list of objects": {"sources": ["x"]},
    "values in a list of objects": {"mirror": {"subject_transforms": 1}},
    "number deep down": {"sources": [{"name": "a", "subject_transforms": [{"src": 1}]}]},
    "number among texts": {"subjects": ["a", 1]},
    "number in metadata": {"metadata": {"a": "a", "b": 1}},
    "metadata as number": {"metadata": 1},
    "pedantic limit": {"max_msgs": -5, "pedantic": True},
    "counter discard": {"allow_msg_counter": True, "discard": "new"},
    "small marker": {"subject_delete_marker_ttl": 5},
    "async memory": {"persist_mode": "async", "storage": "memory"},
    "mirror with subjects": {"mirror": {"name": "S"}, "subjects": ["x"]},
    "mirror with first": {"mirror": {"name": "S"}, "first_seq": 4},
    "mirror name": {"mirror": {"name": "a.b"}},
    "sources twice": {"sources": [{"name": "S"}, {"name": "S"}]},
    "source api": {"sources": [{"name": "S", "external": {"api": "$JS.API", "deliver": "x"}}]},
}


@pytest.mark.parametrize("why", REFUSED_CONFIGS)
async def test_refused_configurations(
    compare: Callable[[Steps], Awaitable[None]], why: str
) -> None:
    await compare([("STREAM.CREATE.q", {"name": "q", **REFUSED_CONFIGS[why]})])


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"null"])
async def test_refused_bodies(compare: Callable[[Steps], Awaitable[None]], body: bytes) -> None:
    await compare([("STREAM.CREATE.q", body), ("STREAM.DELETE.q", body), ("STREAM.PURGE.q", body)])


@pytest.mark.parametrize("storage", STORAGES)
async def test_life_of_a_stream(compare: Callable[[Steps], Awaitable[None]], storage: str) -> None:
    await compare(
        [
            ("STREAM.INFO.S",),
            create("S", subjects=["s.>"], storage=storage),
            create("S", subjects=["s.>"], storage=storage),
            create("S", subjects=["t.>"], storage=storage),
            create("T", subjects=["s.a"], storage=storage),
            publish("s.a", b"one"),
            publish("s.b", b"two"),
            publish("s.a", b"three"),
            ("STREAM.INFO.S",),
            ("STREAM.INFO.S", {"subjects_filter": ">", "deleted_details": True}),
            ("STREAM.INFO.S", {"x": 1}),
            ("STREAM.NAMES", {"subject": "s.q"}),
            ("STREAM.NAMES", {"subject": "zz"}),
            ("STREAM.NAMES", {"offset": 500}),
            ("STREAM.LIST", {"subject": "s.>"}),
            ("STREAM.LIST", {"subject": "zz"}),
            ("STREAM.MSG.DELETE.S", {"seq": 2}),
            ("STREAM.MSG.DELETE.S", {"seq": 2}),
            ("STREAM.MSG.DELETE.S", {"seq": 0}),
            ("STREAM.MSG.DELETE.S",),
            ("STREAM.INFO.S", {"deleted_details": True}),
            update("S", subjects=["s.>", "u.>"], storage=storage, deny_delete=True),
            ("STREAM.MSG.DELETE.S", {"seq": 3}),
            update("S", subjects=["s.>", "u.>"], storage=storage),
            update("S", subjects=["s.>"], storage="file" if storage == "memory" else "memory"),
            update("S", subjects=["s.>"], storage=storage, retention="workqueue"),
            update("N", subjects=["x"]),
            ("STREAM.PURGE.S", {"filter": "s.b"}),
            ("STREAM.PURGE.S", {"keep": 1}),
            ("STREAM.PURGE.S", {"keep": 1, "seq": 3}),
            ("STREAM.PURGE.S", {"seq": 9}),
            ("STREAM.PURGE.S",),
            ("STREAM.INFO.S",),
            ("STREAM.DELETE.S", {"a": 1}),
            ("STREAM.DELETE.S",),
            ("STREAM.DELETE.S",),
        ]
    )


@pytest.mark.parametrize("storage", STORAGES)
async def test_sealing(compare: Callable[[Steps], Awaitable[None]], storage: str) -> None:
    sealed = {"subjects": ["sealed.*"], "storage": storage}
    await compare(
        [
            create("SEALED", **sealed),
            publish("sealed.1"),
            update("SEALED", **sealed, sealed=True),
            publish("sealed.1"),
            ("STREAM.PURGE.SEALED",),
            ("STREAM.MSG.DELETE.SEALED", {"seq": 1}),
            ("STREAM.MSG.GET.SEALED", {"seq": 1}),
            update("SEALED", **sealed),
            ("STREAM.INFO.SEALED",),
            ("STREAM.DELETE.SEALED",),
        ]
    )


@pytest.mark.parametrize("storage", STORAGES)
async def test_reading(compare: Callable[[Steps], Awaitable[None]], storage: str) -> None:
    await compare(
        [
            create("R", subjects=["r.>"], storage=storage),
            publish("r.a", b"1"),
            publish("r.b", b"2", Some_Header="v"),
            publish("r.a", b""),
            ("STREAM.MSG.GET.R", {"seq": 1}),
            ("STREAM.MSG.GET.R", {"seq": 2}),
            ("STREAM.MSG.GET.R", {"seq": 3}),
            ("STREAM.MSG.GET.R", {"seq": 2, "no_hdr": True}),
            ("STREAM.MSG.GET.R", {"seq": 99}),
            ("STREAM.MSG.GET.R", {"last_by_subj": "r.a"}),
            ("STREAM.MSG.GET.R", {"last_by_subj": "r.*"}),
            ("STREAM.MSG.GET.R", {"last_by_subj": "r.none"}),
            ("STREAM.MSG.GET.R", {"next_by_subj": "r.a", "seq": 2}),
            ("STREAM.MSG.GET.R", {"next_by_subj": "r.b"}),
            ("STREAM.MSG.GET.R", {"start_time": "2020-01-01T00:00:00Z"}),
            ("STREAM.MSG.GET.R", {}),
            ("STREAM.MSG.GET.R",),
            ("STREAM.MSG.GET.R", {"seq": 1, "last_by_subj": "r.a"}),
            ("STREAM.MSG.GET.R", {"seq": 1, "batch": 3}),
            ("STREAM.MSG.GET.NONE", {"seq": 1}),
            ("STREAM.DELETE.R",),
        ]
    )


async def test_required_level(compare: Callable[[Steps], Awaitable[None]]) -> None:
    await compare([("STREAM.INFO.q", b"", {"Nats-Required-Api-Level": "99"})])


async def test_who_asks_as_one_that_would_have_made_it(
    compare: Callable[[Steps], Awaitable[None]],
) -> None:
    asked = "create", "create ", " create", "CREATE", "update", ""
    kinds = [{"Nats-Response-Type": kind} for kind in asked]
    await compare(
        [
            create("T", subjects=["t"]),
            *(("STREAM.INFO.T", b"", kind) for kind in kinds),
            *(("STREAM.INFO.NONE", b"", kind) for kind in kinds),
            ("STREAM.NAMES", b"", kinds[0]),
        ]
    )


async def test_batches_are_allowed(compare: Callable[[Steps], Awaitable[None]]) -> None:
    config = {"name": "q", "subjects": ["q"], "allow_batched": True}
    mirror = {"name": "m", "mirror": {"name": "q"}, "allow_batched": True}
    await compare(
        [
            ("STREAM.CREATE.q", config),
            ("STREAM.UPDATE.q", {**config, "allow_batched": False}),
            ("STREAM.UPDATE.q", {**config, "allow_atomic": True}),
            ("STREAM.INFO.q",),
            ("STREAM.CREATE.m", mirror),
            ("STREAM.DELETE.q",),
        ]
    )


async def test_limits_for_consumers_that_are_there(
    compare: Callable[[Steps], Awaitable[None]],
) -> None:
    config = {"name": "c", "ack_policy": "explicit", "inactive_threshold": 60 * 10**9}
    steps = [create("L"), ("CONSUMER.CREATE.L.c", {"stream_name": "L", "config": config})]
    for limits in (
        {"max_ack_pending": 10},
        {"max_ack_pending": 2000},
        {"inactive_threshold": 10**9},
        {"inactive_threshold": 10**12},
        {},
    ):
        steps.append(update("L", consumer_limits=limits))
    # An hour and a half, and more than the stream allows.
    steps.append(update("L", consumer_limits={"inactive_threshold": 5400 * 10**9}))
    longer = {**config, "name": "d", "inactive_threshold": 5401 * 10**9}
    steps.append(("CONSUMER.CREATE.L.d", {"stream_name": "L", "config": longer}))
    await compare([*steps, ("STREAM.DELETE.L",)])


async def test_extreme_and_default_fields(compare: Callable[[Steps], Awaitable[None]]) -> None:
    steps: Steps = []
    for config in (
        {"persist_mode": "default"},
        {"max_msg_size": 2**31},
        {"max_msg_size": 2**31 - 1},
        {"max_msg_size": -(2**31)},
        {"max_msg_size": -(2**31) - 1},
    ):
        steps += [create("X", **config), update("X"), ("STREAM.DELETE.X",)]
    await compare(steps)


async def test_where_consumers_begin(compare: Callable[[Steps], Awaitable[None]]) -> None:
    steps = [create("F", subjects=["f.*"], storage="memory")]
    steps += [publish(f"f.{number % 3}") for number in range(30)]
    past, future = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    for config in (
        {"deliver_policy": "by_start_time", "opt_start_time": past, "filter_subjects": ["f.2"]},
        {"deliver_policy": "by_start_time", "opt_start_time": past, "filter_subject": "f.9"},
        {"deliver_policy": "by_start_time", "opt_start_time": future, "filter_subject": "f.1"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 20, "filter_subject": "f.1"},
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 200},
        {"deliver_policy": "last", "filter_subject": "f.1"},
        {"deliver_policy": "last", "filter_subject": "f.9"},
        {"deliver_policy": "last_per_subject", "filter_subject": "f.*"},
        {"deliver_policy": "last_per_subject", "filter_subject": "f.9"},
        {"deliver_policy": "new", "filter_subject": "f.1"},
    ):
        body = {"stream_name": "F", "config": {"durable_name": "c", **config}}
        steps += [("CONSUMER.DURABLE.CREATE.F.c", body), ("CONSUMER.DELETE.F.c",)]
    await compare([*steps, ("STREAM.DELETE.F",)])
