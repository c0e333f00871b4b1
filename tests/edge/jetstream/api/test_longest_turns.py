"""The longest turn of the loop that a request with the longest lists takes, and a restore does.

Counted is the processor time of the loop's thread between two looks at its sockets: the best of
some tries, beside that of a fixed piece of work in the same run.
"""

import gc
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bench.wire import Link
from headwater.edge.jetstream.model import archive, errors, s2
from tests.operator_realm import Raw
from tests.turns import CountedNode, piece

TRIES = 10
"""At most: the best one counts, and the first that is good enough is the last."""
BOUND_S = 0.05
PIECE_S = 0.025
"""What `piece` costs on an idle machine of the kind that the bound is meant for."""
ENTRIES = 100_000


def stream(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.CREATE.{name}", {"name": name, **config}


def update(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    return f"STREAM.UPDATE.{name}", {"name": name, **config}


def consumer(name: str, **config: Any) -> tuple[str, dict[str, Any]]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **config}
    return f"CONSUMER.CREATE.S.{name}", {"stream_name": "S", "config": config}


def transforms(count: int) -> list[dict[str, str]]:
    return [{"src": f"x{n}", "dest": f"y{n}"} for n in range(count)]


# By name: a request of try `n`; what it says is another one each time.
REQUESTS: dict[str, Callable[[int], tuple[str, dict[str, Any]]]] = {
    "subjects": lambda n: stream(f"A{n}", subjects=[f"a{n}.{i}.>" for i in range(10_000)]),
    "other subjects": lambda n: update("A0", subjects=[f"b{n}.{i}.>" for i in range(10_000)]),
    "subjects of wildcards": lambda n: stream(
        f"W{n}", subjects=[f"w{n}-{i}.*.*.>" for i in range(10_000)]),
    "subjects that meet others": lambda n: stream(
        f"M{n}", subjects=[f"m.*.x{n}.{i}" for i in range(10_000)]),
    "sources": lambda n: stream(f"B{n}", sources=[{"name": f"s{i}"} for i in range(5000)]),
    "filtered sources": lambda n: stream(
        f"C{n}", sources=[{"name": "s", "filter_subject": f"x{i}"} for i in range(5000)]),
    "transforms": lambda n: stream(
        f"D{n}", sources=[{"name": "s", "subject_transforms": transforms(5000)}]),
    "filters": lambda n: consumer(f"c{n}", filter_subjects=[f"a.{i}" for i in range(10_000)]),
    "backoff": lambda n: consumer(f"b{n}", max_deliver=30_000, backoff=[1_000_000_000] * 20_000),
    "tags": lambda n: stream(
        f"T{n}", subjects=[f"t{n}"],
        placement={"cluster": "c", "tags": [f"t{i}" for i in range(60_000)]}),
}  # fmt: skip


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    store = tmp_path_factory.mktemp("store")
    logging.getLogger("headwater").setLevel(logging.CRITICAL)
    text = f'listen: "127.0.0.1:-1"\njetstream {{ store_dir: "{store}" }}'
    with CountedNode(text) as started, Link(started.port("nats"), 30.0) as link:
        link.api("STREAM.CREATE.S", name="S", subjects=["a.>"])
        link.api("STREAM.CREATE.A0", name="A0", subjects=["first.>"])
        yield started
    logging.getLogger("headwater").setLevel(logging.NOTSET)


def soon(held: list[float], cost: list[float]) -> bool:
    return min(held) < BOUND_S * max(1.0, min(cost) / PIECE_S)


@pytest.mark.alone
@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_holds_the_loop(node: CountedNode, name: str) -> None:
    held, cost = [], [piece()]
    with Link(node.port("nats"), 30.0) as link:
        for number in range(1, TRIES + 1):
            subject, fields = REQUESTS[name](number)
            body = json.dumps(fields).encode()

            def work(subject: str = subject, body: bytes = body) -> None:
                assert link.request(f"$JS.API.{subject}", body).payload.startswith(b'{"type"')
                link.flush()

            held.append(node.longest(work))
            cost.append(piece())
            if subject.startswith("STREAM.CREATE."):
                link.request(f"$JS.API.STREAM.DELETE.{fields['name']}", b"")
                # Thousands of sources are 18 MB, in circles: many tries need not fit in 512 MiB.
                del body, work
                gc.collect()
            if soon(held, cost):
                return
    pytest.fail(f"{held} {cost}")


@pytest.mark.alone
def test_no_restore_holds_the_loop(node: CountedNode) -> None:
    """A chunk with as many entries as fit into it."""
    state = archive.ArchiveEntry(b"state.json", 1, 0, b"", b'{"messages":1}')
    entries = [archive.ArchiveEntry(b"f", n, n, b"", b"x") for n in range(1, ENTRIES + 1)]
    content = b"".join(map(archive.packed, [state, *entries, archive.END]))
    data = s2.IDENTIFIER + s2.frames(archive.MAGIC + content)
    pieces = [data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)]
    held, cost = [], [piece()]
    for _ in range(TRIES):
        with Raw(node.port("nats")) as raw:
            raw.login()
            asked = {"config": {"name": "R", "subjects": ["f"], "storage": "file"}, "state": {}}
            to = raw.request("$JS.API.STREAM.RESTORE.R", asked)["deliver_subject"]

            def work(raw: Raw = raw, to: str = to) -> None:
                with Link(node.port("nats"), 30.0) as link:
                    for each in pieces:
                        assert link.request(to, each).payload == b""
                    done = json.loads(link.request(to, b"").payload)
                assert done["state"]["messages"] == ENTRIES

            held.append(node.longest(work))
            cost.append(piece())
            raw.request("$JS.API.STREAM.DELETE.R")
        if soon(held, cost):
            return
    pytest.fail(f"{held} {cost}")


def test_what_inflates_is_restored_frame_by_frame() -> None:
    """Frames that inflate a thousand times: one at a time is in memory, and others are served."""
    zeros = archive.packed(archive.ArchiveEntry(b"f", 1, 1, b"", bytes(100 << 20)))
    assert len(zeros) > 100 << 20
    reader = s2.FrameReader()
    data = s2.IDENTIFIER + s2.frames(zeros)
    sizes = [len(content) for content in reader.contents(data)]
    assert sum(sizes) == len(zeros)
    assert max(sizes) <= s2.FRAME_MAX


def test_subjects_that_would_take_too_long_to_compare_are_refused(node: CountedNode) -> None:
    """Two streams whose patterns share long ways: who comes second is refused, at once."""
    with Link(node.port("nats"), 30.0) as link:
        first = {"name": "P", "subjects": [f"p.p{i}.x.*" for i in range(10_000)]}
        assert b"error" not in link.request(
            "$JS.API.STREAM.CREATE.P", json.dumps(first).encode()
        ).payload[:200]  # fmt: skip
        subjects = [f"p.*.y.q{i}" for i in range(10_000)]
        second = {"name": "Q", "subjects": subjects}
        answer = json.loads(
            link.request("$JS.API.STREAM.CREATE.Q", json.dumps(second).encode()).payload
        )
        assert answer["error"]["description"] == errors.TOO_MANY_SUBJECTS
        link.request("$JS.API.STREAM.DELETE.P", b"")
