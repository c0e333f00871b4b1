"""A write into a stream of a hub of three nodes, whose leader is killed: each row once."""

import contextlib
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from nats.errors import Error
from nats.js.errors import APIError

from headwater.spark.options import parse_options
from headwater.spark.wire.waits import Waits
from headwater.spark.write.sink import commit_batch, write_batch
from tests.spark.conftest import EVERY, Server, end
from tests.waiting import until_seen

ROWS, BATCHES = 500, 12
"""Rows of one Arrow batch, and batches: more than may be under way at once."""
QUERY = "5c2a5c5e-query"
NO_PLACE = 10005
"""No suitable peers for placement."""


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


def refused(hub: list[Server]) -> int:
    """JetStream's number for why a stream of three replicas cannot be made, 0 when it was."""

    async def work(connection: Any, js: Any) -> int:
        try:
            await js.add_stream(name="PROBE", subjects=["probe"], num_replicas=3)
        except APIError as error:
            return error.err_code or 0
        await js.delete_stream("PROBE")
        return 0

    return hub[0].run(work)


def test_a_ledger_is_made_when_a_node_is_back(
    hub: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has as many replicas as the target, and there is no place for them while a node is away:
    the write ended at once, whatever `retryTimeout` said."""
    make_target(hub)
    end(hub[2])
    until_seen(lambda: refused(hub) == NO_PLACE, "the node counts as offline")
    waited = Waits.wait

    def wait(self: Waits) -> None:
        if hub[2].process.poll() is not None:
            hub[2].process = subprocess.Popen(hub[2].process.args)
        waited(self)

    monkeypatch.setattr(Waits, "wait", wait)
    options = parse_options({"servers": hub[0].url, "stream": "T", "retryTimeout": "60"})
    done = write_batch(options, iter([rows(0)]), QUERY, "run", 0)
    commit_batch(options, [done], 0)
    assert hub[2].process.poll() is None, "the write waited"
    assert Counter(name for name, _ in stored(hub)) == Counter(f"S:{n}" for n in range(ROWS))
