"""The control: a Spark source that yields Arrow batches which were made before."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from bench.spark.filling import SUBJECT, telemetry

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 7200
"""Rows of 100 bytes in a block of 1 MiB: the control has batches of the same size."""
SCHEMAS = {
    "raw": "subject string NOT NULL, sequence long NOT NULL, timestamp timestamp NOT NULL, "
    "payload binary NOT NULL",
    "json": "device string, t_us long, value double",
}


class PreparedSource(DataSource):
    """Options: `kind` is raw or json, `rows` and `size` how many rows with how many bytes."""

    @classmethod
    def name(cls) -> str:
        return "prepared"

    def schema(self) -> str:
        return SCHEMAS[self.options["kind"]]

    def reader(self, schema: Any) -> DataSourceReader:
        options = self.options
        return PreparedReader(schema, options["kind"], int(options["rows"]), int(options["size"]))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return PreparedStream(int(self.options["rows"]), int(self.options["partitions"]))


class PreparedReader(DataSourceReader):
    """One partition, in which one batch comes again and again."""

    def __init__(self, schema: Any, kind: str, rows: int, size: int) -> None:
        self._schema = schema
        self._kind = kind
        self._rows = rows
        self._size = size

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, _: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        from headwater.spark.read.partition import _freeze_garbage

        _freeze_garbage()
        columns: dict[str, list[Any]]
        if self._kind == "raw":
            columns = {
                "subject": [SUBJECT] * BATCH_ROWS,
                "sequence": list(range(BATCH_ROWS)),
                "timestamp": list(range(BATCH_ROWS)),
                "payload": [bytes(self._size)] * BATCH_ROWS,
            }
        else:
            found = [telemetry(number) for number in range(BATCH_ROWS)]
            columns = {name: [row[name] for row in found] for name in ("device", "t_us", "value")}
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = pa.RecordBatch.from_pydict(columns, schema)
        for at in range(0, self._rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, self._rows - at))


class PreparedStream(DataSourceStreamReader):
    """Microbatches of one raw row for each of `partitions`, until there were `rows` in all."""

    def __init__(self, rows: int, partitions: int) -> None:
        self._rows = rows
        self._partitions = partitions

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"row": min(self._rows, start["row"] + self._partitions)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(row) for row in range(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from datetime import datetime

        from headwater.spark.read.partition import _freeze_garbage

        _freeze_garbage()
        yield SUBJECT, partition.value, datetime(2026, 1, 1), b"x"
