"""`spark.read.format("headwater")`: the Python data source that Spark sees."""

import gc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headwater.spark.layout import BatchMaker, Layout, default_layout, user_layout, wire_for
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.planning import SequenceRange, StreamPlan, cut_ranges, plan_streams
from headwater.spark.range_reader import RangeReader

if TYPE_CHECKING:
    import pyarrow as pa

#: Reads of one worker process after which its long-lived objects are surely made.
_FREEZE_READS = 4
_reads = 0


class RangePartition(InputPartition):
    """One task's work."""

    def __init__(self, work: SequenceRange) -> None:
        super().__init__(work)
        self.work = work

    def __repr__(self) -> str:
        return f"RangePartition({self.work})"


class HeadwaterSource(DataSource):
    """Batch reads of JetStream streams over the wire.

    The sequences to read are fixed when the DataFrame is loaded: every action on it, also in
    a self-join, sees the same rows. Spark makes this object once per load and ships copies of
    it, hence the planning in the constructor. Only with `.schema(...)` Spark makes a new one
    for every action; the option `ending` fixes the end then.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = parse_options(options)
        self._layout: Layout | None = None
        self._plan = plan_streams(self._options)
        # Spark prints `options` of sources in places; the checked options are enough for us.
        self.options = {}

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        self._layout = default_layout(self._options)
        return self._layout.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        layout = self._layout or user_layout(self._options, schema)
        return HeadwaterReader(self._options, layout, self._plan)


class HeadwaterReader(DataSourceReader):
    """Cuts the plan into partitions, and reads one of them in a task."""

    def __init__(
        self, options: SourceOptions, layout: Layout, plan: tuple[StreamPlan, ...]
    ) -> None:
        self._options = options
        self._layout = layout
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        ranges = [
            RangePartition(work)
            for plan in self._plan
            for work in cut_ranges(plan, self._options.partitions)
        ]
        if ranges:
            return list(ranges)
        # Spark takes an empty list for one partition with the value None.
        empty = SequenceRange(self._options.streams[0], self._plan[0].incarnation, 1, 0)
        return [RangePartition(empty)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        work = partition.work if isinstance(partition, RangePartition) else partition.value
        if work.end < work.start:
            return
        _freeze_garbage()
        wire = wire_for(self._layout, work.start, work.end, self._options.batch_bytes)
        maker = BatchMaker(self._layout, work.stream, self._options.fail_fast)
        reader = RangeReader(self._options, work, wire, headers_only=_headers_only(self._layout))
        for columns in reader.batches():
            yield maker.batch(columns)


def _headers_only(layout: Layout) -> bool:
    """Leave payloads on the server. It then adds a Nats-Msg-Size header, which must not show."""
    return not layout.needs_payload and "headers" not in layout.meta.values()


def _freeze_garbage() -> None:
    """Keep the collector off what the worker has imported.

    Spark's worker daemon collects garbage after every task: 20 to 25 ms over the imports.
    """
    global _reads
    if _reads < _FREEZE_READS:
        _reads += 1
        gc.collect()
        gc.freeze()
