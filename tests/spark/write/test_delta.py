"""Batches into a Delta table: each message once, when a batch is run again too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.write.delta import delta_batches, write_delta

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


def test_a_batch_write_is_one_commit_and_under_a_name_happens_once(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("LAKEB", [(f"LAKEB.{n % 2}", b"%d" % n, None) for n in range(50)])
    table = str(tmp_path / "table")
    options = server.options("LAKEB", partitions="3", headers="map")
    frame = spark.read.format("headwater").options(**options).load()

    def sequences() -> list[int]:
        return sorted(deltalake.DeltaTable(table).to_pyarrow_table()["sequence"].to_pylist())

    with pytest.raises(OptionError, match="write_id"):
        write_delta(frame, table, "a b")
    # What fails in the middle leaves nothing that a reader sees.
    with pytest.raises(Exception, match="BROKEN"):
        write_delta(frame.selectExpr("*", "if(sequence = 40, raise_error('BROKEN'), 1) x"), table)
    assert not deltalake.DeltaTable.is_deltatable(table)
    assert write_delta(frame, table, "first") == 50
    assert write_delta(frame, table, "first") == 0
    assert sequences() == list(range(1, 51)) and deltalake.DeltaTable(table).version() == 0
    assert write_delta(frame.where("sequence > 45"), table, "second") == 5
    assert write_delta(frame.where("sequence > 48"), table) == 2
    assert sequences() == sorted([*range(1, 51), *range(46, 51), 49, 50])
    assert deltalake.DeltaTable(table).version() == 2
    rows = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    assert {row["payload"] for row in rows} == {b"%d" % n for n in range(50)}
