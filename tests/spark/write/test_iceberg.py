"""Batches into an Iceberg table: each message once, when a batch is run again too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.errors import OptionError
from headwater.spark.write.iceberg import _append, iceberg_batches, write_iceberg

pytest.importorskip("pyiceberg", reason="the package pyiceberg is not installed")
pytest.importorskip("sqlalchemy", reason="pyiceberg's catalog in a file needs sqlalchemy")

TABLE = "plant.readings"


@pytest.fixture
def place(tmp_path: Path) -> dict[str, str]:
    """A catalog in a file, as `load_catalog` takes it."""
    lake = tmp_path / "lake"
    lake.mkdir()
    return {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}"}


def opened(place: dict[str, str]) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("default", **place)


def test_a_batch_that_is_run_again_is_appended_once(
    spark: Any, server: Any, fill: Callable, place: dict[str, str], tmp_path: Path
) -> None:
    fill("ICE", [("ICE.a", b"%d" % n, None) for n in range(50)])
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        reader = spark.readStream.format("headwater").options(**server.options("ICE"))
        write = reader.option("maxMsgsPerTrigger", "20").load().writeStream
        write = write.foreachBatch(iceberg_batches(TABLE, **place)).trigger(availableNow=True)
        query = write.option("checkpointLocation", str(checkpoint)).start()
        assert query.awaitTermination(250) and query.exception() is None

    def sequences() -> list[int]:
        return sorted(opened(place).load_table(TABLE).scan().to_arrow()["sequence"].to_pylist())

    run()
    assert sequences() == list(range(1, 51))
    before = len(opened(place).load_table(TABLE).snapshots())
    # A driver that died before Spark noted its last batch does it again.
    for left in (checkpoint / "commits").glob("*2*"):
        left.unlink()
    run()
    assert sequences() == list(range(1, 51))
    assert len(opened(place).load_table(TABLE).snapshots()) == before


def test_a_driver_that_was_overtaken_appends_nothing(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.table import Transaction

    rows = pa.table({"n": [1, 2, 3]})
    _append(opened(place), TABLE, rows, "headwater.q", 0)
    append = Transaction.append

    def overtaken(self: Transaction, df: Any) -> None:
        """Between the look at the property and the commit, another driver writes the batch."""
        monkeypatch.setattr(Transaction, "append", append)
        _append(opened(place), TABLE, rows, "headwater.q", 1)
        append(self, df)

    monkeypatch.setattr(Transaction, "append", overtaken)
    _append(opened(place), TABLE, rows, "headwater.q", 1)
    table = opened(place).load_table(TABLE)
    assert table.scan().to_arrow().num_rows == 6
    assert table.properties["headwater.q"] == "1"
    assert "commit.retry.num-retries" not in table.properties


def test_a_batch_write_with_a_name_is_appended_once(
    spark: Any, server: Any, fill: Callable, place: dict[str, str]
) -> None:
    rows = [("ICEB.a", b"%d" % n, {"n": str(n)} if n % 2 else None) for n in range(60)]
    fill("ICEB", rows)
    source = server.options("ICEB", headers="map", partitions="3")
    frame = spark.read.format("headwater").options(**source).load()

    def write(name: str, frame: Any = frame) -> int:
        return write_iceberg(frame, TABLE, name, **place)

    assert write("first") == 60
    assert write("first") == 0
    found = opened(place).load_table(TABLE).scan().to_arrow().sort_by("sequence").to_pylist()
    assert [(each["sequence"], each["payload"], dict(each["headers"])) for each in found] == [
        (n + 1, payload, headers or {}) for n, (_, payload, headers) in enumerate(rows)
    ]
    assert len(opened(place).load_table(TABLE).snapshots()) == 1
    # Without a name it is appended each time; a write of nothing is a write, too.
    assert write("", frame.where("sequence > 50")) == 10
    assert write("none", frame.where("payload = 'x'")) == 0
    assert opened(place).load_table(TABLE).scan().to_arrow().num_rows == 70
    # The table takes microbatches behind it.
    _append(opened(place), TABLE, frame.where("sequence <= 5").toArrow(), "headwater.q", 0)
    assert opened(place).load_table(TABLE).scan().to_arrow().num_rows == 75
    with pytest.raises(OptionError, match="write_id"):
        write("a b")
