"""A write into a stream of a hub of three nodes, whose leader is killed: each row once."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from nats.errors import Error

from headwater.spark.options import parse_options
from headwater.spark.write.sink import commit_batch, write_batch
from tests.spark.conftest import EVERY, Server, end

ROWS, BATCHES = 500, 12
"""Rows of one Arrow batch, and batches: more than may be under way at once."""
QUERY = "5c2a5c5e-query"


def rows(number: int) -> pa.RecordBatch:
    numbers = range(number * ROWS, number * ROWS + ROWS)
    return pa.RecordBatch.from_pydict(
        {
            "subject": [f"T.{n % 3}" for n in numbers],
            "payload": [b"%d" % n for n in numbers],
            "id": [f"S:{n}" for n in numbers],
        }
    )


def make_target(hub: list[Server]) -> int:
    """The number of the node that leads the stream, which forgets ids at once."""

    async def work(connection: Any, js: Any) -> int:
        info = None
        while info is None:
            with contextlib.suppress(Error):
                info = await js.add_stream(
                    name="T", subjects=["T.>"], num_replicas=3, duplicate_window=0.1
                )
        return int(info.cluster.leader[1:])

    return hub[0].run(work)


def stored(hub: list[Server]) -> list[tuple[str, bytes]]:
    """Id and payload of all messages of the target."""

    async def work(connection: Any, js: Any) -> list[tuple[str, bytes]]:
        last = (await js.stream_info("T")).state.last_seq
        subscription = await js.subscribe(">", stream="T", ordered_consumer=True)
        found = [await subscription.next_msg(timeout=20) for _ in range(last)]
        return [(each.headers["Nats-Msg-Id"], each.data) for each in found]

    return next(one for one in hub if one.process.poll() is None).run(work)


@pytest.mark.parametrize("beside", ["another", "leader"] if EVERY else ["another"])
def test_a_write_goes_on_when_the_leader_is_killed(hub: list[Server], beside: str) -> None:
    """The writer is connected to a node that stays, or to the leader: a connection that breaks,
    as in `test_sink.py`."""
    leader = make_target(hub)
    first = leader if beside == "leader" else (leader + 1) % 3
    servers = ",".join(node.url for node in hub[first:] + hub[:first])
    options = parse_options({"servers": servers, "stream": "T", "retryTimeout": "60"})

    def given(start: int) -> Iterator[pa.RecordBatch]:
        for number in range(start, start + BATCHES // 2):
            if number == BATCHES // 4:
                end(hub[leader])
            yield rows(number)

    for batch in (0, 1):
        done = write_batch(options, given(batch * BATCHES // 2), QUERY, "run", batch)
        assert done.rows == ROWS * BATCHES // 2
        commit_batch(options, [done], batch)
    found = stored(hub)
    assert Counter(name for name, _ in found) == Counter(f"S:{n}" for n in range(ROWS * BATCHES))
    assert all(name == f"S:{payload.decode()}" for name, payload in found)
