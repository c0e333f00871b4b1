"""What a reader needs of memory: bounded by batches and messages, not by what it reads."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.options import parse_options
from headwater.spark.write.sink import HeadwaterWriter

ROOT = Path(__file__).parents[3]
BATCH = 1 << 20
"""Half of the default of batchBytes: half of the messages pass the bound."""
DECODED = {"valueFormat": "json", "valueSchema": "device string, value double"}
TELEMETRY = json.dumps({"device": "press-17", "value": 61.5, "unit": "C"}).encode()
CASES = {
    "small": (50_000, bytes(300), {}),
    "large": (24, bytes(1_000_000), {}),
    "decoded": (50_000, TELEMETRY + b" " * 250, DECODED),
}


def bound(largest: int) -> int:
    """What docs/SPARK.md says of the memory of a reader, in bytes."""
    return 12 * BATCH + 6 * largest


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("one_server")
def test_a_reader_keeps_its_bound(
    request: pytest.FixtureRequest, server: Any, fill: Callable[..., str], case: str
) -> None:
    """The stream is larger than the bound: whoever kept it would pass the bound."""
    count, payload, more = CASES[case]
    name = fill("MEMORY", [])
    options = server.options(name, partitions="1", batchBytes=str(BATCH), **more)
    frame = pa.RecordBatch.from_pydict({"subject": ["MEMORY.x"], "payload": [payload]})
    batch = pa.Table.from_batches([frame] * count).combine_chunks().to_batches()
    assert HeadwaterWriter(parse_options(server.options(name))).write(iter(batch)).rows == count
    assert count * len(payload) > bound(len(payload))
    paths = ("wire",) if "nats-server" in request.node.name else ("block", "wire")
    for path in paths:
        command = [sys.executable, "-m", "tests.spark.read.measured_reader"]
        done = subprocess.run(
            [*command, json.dumps(options | {"readPath": path})],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            check=True,
        )
        found = json.loads(done.stdout)
        assert found["rows"] == count
        assert found["grown"] < bound(len(payload)), path
