"""What the longest lists and maps of API requests cost: each list of a request at its greatest."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.access import processor_time
from bench.servers import Server, headwater
from bench.wire import Link

DECODINGS = 60
"""The processor time of a request at most, as decodings of `MAP` by Python's own JSON: six times
what the dearest one needs, and a tenth of what a quadratic one takes."""

MAP = {f"k{number}": "v" for number in range(60_000)}
MANY = 8000


def transforms(pattern: str = "") -> list[dict[str, str]]:
    return [{"src": f"x{n}{pattern}", "dest": f"y{n}{pattern}"} for n in range(MANY)]


def stream(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def consumer(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "sources": stream("A", sources=[{"name": f"s{n}"} for n in range(5000)]),
    "sources told": ("STREAM.INFO.A", {}),
    "sources again": (
        "STREAM.UPDATE.A",
        {"name": "A", "sources": [{"name": f"s{n}"} for n in range(5000)], "description": "x"},
    ),
    "sources gone": ("STREAM.DELETE.A", {}),
    "filtered sources": stream(
        "B", sources=[{"name": "s", "filter_subject": f"x{n}"} for n in range(5000)]
    ),
    "subjects": stream("C", subjects=[f"s{n}.>" for n in range(10_000)]),
    "metadata": stream("D", subjects=["d"], metadata=MAP),
    "unknown fields": stream("E", subjects=["e"], **MAP),
    "transforms of a source": stream(
        "F", sources=[{"name": "s", "subject_transforms": transforms()}]
    ),
    "transforms of a mirror": stream("G", mirror={"name": "s", "subject_transforms": transforms()}),
    "tags": stream(
        "H", subjects=["h"], placement={"cluster": "c", "tags": [f"t{n}" for n in range(60_000)]}
    ),
    "filters": consumer("f", filter_subjects=[f"a.{n}" for n in range(MANY)]),
    "backoff": consumer("b", max_deliver=30_000, backoff=[1_000_000_000] * 20_000),
    "consumer metadata": consumer("m", metadata=MAP),
    "priority groups": consumer(
        "p", priority_policy="overflow", priority_groups=[f"g{n}" for n in range(20_000)]
    ),
    "a long filter of a purge": ("STREAM.PURGE.S", {"filter": "a." + ".".join("*" * 200)}),
    "names": ("STREAM.NAMES", {"subject": "a." + ".".join("*" * 200)}),
}


@pytest.fixture(scope="module")
def bound_s() -> float:
    """Seconds of this machine's processor, as busy as it is."""
    text = json.dumps(MAP)
    began = time.process_time()
    for _ in range(10):
        json.loads(text)
    return DECODINGS * (time.process_time() - began) / 10


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(headwater()) as started, Link(started.port, 30.0) as link:
        link.api("STREAM.CREATE.S", name="S", subjects=["a.>"])
        yield started


@pytest.mark.alone
@pytest.mark.parametrize("name", REQUESTS)
def test_the_greatest_requests_are_answered_soon(server: Server, bound_s: float, name: str) -> None:
    subject, fields = REQUESTS[name]
    with Link(server.port, 30.0) as link:
        before = processor_time(server.pid)
        answer = link.request(f"$JS.API.{subject}", json.dumps(fields).encode())
        link.flush()
        spent = processor_time(server.pid) - before
    assert answer.payload.startswith(b'{"type"') or b"error" in answer.payload
    assert spent < bound_s
