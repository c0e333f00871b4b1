"""Microbatches into a Delta table: each message once, when a batch is run again too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.write.delta import delta_batches

deltalake = pytest.importorskip("deltalake", reason="the package deltalake is not installed")


def test_a_batch_that_is_run_again_is_appended_once(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("LAKE", [("LAKE.a", b"%d" % n, None) for n in range(50)])
    table, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("headwater").options(**server.options("LAKE"))
        write = reader.option("maxMsgsPerTrigger", "20").load().writeStream
        write = write.foreachBatch(delta_batches(table)).trigger(availableNow=True)
        query = write.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(250) and query.exception() is None

    def sequences() -> list[int]:
        return sorted(deltalake.DeltaTable(table).to_pyarrow_table()["sequence"].to_pylist())

    run()
    assert sequences() == list(range(1, 51))
    assert deltalake.DeltaTable(table).version() == 2
    # A driver that died before Spark noted its last batch does it again.
    for left in (checkpoint / "commits").glob("*2*"):
        left.unlink()
    run()
    assert sequences() == list(range(1, 51))
    assert deltalake.DeltaTable(table).version() == 2
