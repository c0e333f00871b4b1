"""Every subject of the API, with bodies that fit none of them, is answered as nats-server does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

Compare = Callable[[list[tuple[Any, ...]]], Awaitable[None]]
ANSWERED = [
    "INFO", "STREAM.CREATE.X", "STREAM.UPDATE.X", "STREAM.NAMES", "STREAM.LIST", "STREAM.INFO.S",
    "STREAM.DELETE.X", "STREAM.PURGE.S", "STREAM.MSG.DELETE.S", "STREAM.MSG.GET.S",
    "DIRECT.GET.S", "DIRECT.GET.S.s.a",
    "STREAM.SNAPSHOT.S", "CONSUMER.CREATE.S", "CONSUMER.CREATE.S.N", "CONSUMER.CREATE.S.N.s.a",
    "CONSUMER.DURABLE.CREATE.S.N", "CONSUMER.NAMES.S", "CONSUMER.LIST.S", "CONSUMER.INFO.S.C",
    "CONSUMER.DELETE.S.N", "CONSUMER.PAUSE.S.C", "CONSUMER.UNPIN.S.C", "CONSUMER.RESET.S.C",
    "INFO",
]  # fmt: skip
# A standalone node serves no clusters, and no account but the system's asks for these.
OTHERS = [
    "STREAM.LEADER.STEPDOWN.S", "CONSUMER.LEADER.STEPDOWN.S.C", "STREAM.PEER.REMOVE.S",
    "STREAM.PEER.EVACUATE.S", "STREAM.CANCEL_MOVE.S", "META.LEADER.STEPDOWN", "META.RESCUE",
    "SERVER.REMOVE", "SERVER.EVACUATE", "ACCOUNT.PURGE.A", "ACCOUNT.STREAM.MOVE.A.S",
    "ACCOUNT.STREAM.CANCEL_MOVE.A.S", "STREAM.TEMPLATE.NAMES", "NOTHING",
]  # fmt: skip
BODIES = [b"", b"{}", b"null", b"[]", b" ", b"x", b'{"zz":1}', b'{"peer":"x"}']
NO_JSON = [
    b" x", b'{"name":x', b'{"a" 1}', b"{", b'{"name"', b'{"name":"q', b'{"name":"q"', b"[1", b"tru",
    b'{"name":"q"}x', b"{,}", b"1.", b"\n", b'{"name":"q",}', b"{'a'}", b'{"name":nulx}',
    b"[] x", b"-", b"1e", b'{"a":1 2}', b"[1 2]", b'{"a":"\x01"}', b"{\xff",
    b"[,",
]  # fmt: skip
SETUP: list[tuple[Any, ...]] = [
    ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"}),
    ("=s.a", b"hello"),
    ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": {"name": "C", "durable_name": "C"}}),
]
END: list[tuple[Any, ...]] = [("STREAM.DELETE.S",)]


@pytest.mark.parametrize("body", BODIES)
async def test_subjects_that_are_answered(compare: Compare, body: bytes) -> None:
    """The counts of requests and of refused ones in INFO are equal too."""
    await compare([*SETUP, *((subject, body) for subject in ANSWERED), *END])


@pytest.mark.parametrize("body", [b"", b"{}", b'{"peer":"x"}'])
async def test_subjects_of_clusters_and_of_the_system(compare: Compare, body: bytes) -> None:
    await compare(SETUP)
    await asyncio.gather(*(compare([(subject, body)]) for subject in OTHERS))
    await compare(END)


async def test_bodies_that_are_no_json(compare: Compare) -> None:
    """The reason is told in the same words, with the same place."""
    asked = ["STREAM.CREATE.q", "STREAM.NAMES", "STREAM.PURGE.S", "CONSUMER.UNPIN.S.C"]
    asked.append("CONSUMER.RESET.S.C")
    steps = [(subject, body) for subject in asked for body in NO_JSON]
    await compare([*SETUP, *steps, *END])


@pytest.mark.parametrize(
    "policy",
    [{}, {"deliver_policy": "by_start_sequence", "opt_start_seq": 3}],
    ids=["all", "third"],
)
async def test_resets_to_any_sequence(compare: Compare, policy: dict[str, Any]) -> None:
    """Below what the stream has, within, behind its end; what the consumer says afterwards."""
    config = {"name": "C", "durable_name": "C", "ack_policy": "explicit", **policy}
    steps: list[tuple[Any, ...]] = [
        ("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"], "storage": "memory"}),
        *[("=s.a", b"hello")] * 8,
        ("STREAM.PURGE.S", {"seq": 5}),
        ("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config}),
    ]
    for body in ({}, *({"seq": number} for number in (0, 1, 3, 4, 5, 6, 8, 9, 12))):
        steps += [("CONSUMER.RESET.S.C", body), ("CONSUMER.INFO.S.C",)]
    await compare([*steps, *END])
