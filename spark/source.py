"""`spark.read.format("headwater")`: the Python data source that Spark sees."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.spark.errors import OptionError
from headwater.spark.layout import Layout, default_layout, user_layout
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.partition import RangePartition, read_partition
from headwater.spark.planning import SequenceRange, plan_ranges
from headwater.spark.stream_reader import HeadwaterStreamReader

if TYPE_CHECKING:
    import pyarrow as pa

_NO_SINK = (
    'format("headwater") reads streams, with spark.read and spark.readStream; it cannot write to '
    "them yet. Publish from foreachBatch or mapInArrow with a NATS client"
)


class HeadwaterSource(DataSource):
    """Reads of JetStream streams over the wire, in batches and as streaming queries.

    The sequences to read are fixed when the DataFrame is loaded: every action on it, also in
    a self-join, sees the same rows. Spark makes this object once per load and ships copies of
    it, hence the planning in the constructor. Only with `.schema(...)` Spark makes a new one
    for every action; the option `ending` fixes the end then.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._options = parse_options(options)
        self._layout: Layout | None = None
        self._ranges = plan_ranges(self._options)
        # Spark prints `options` of sources in places; the checked options are enough for us.
        self.options = {}

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        self._layout = default_layout(self._options)
        return self._layout.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return HeadwaterReader(self._options, self._laid_out(schema), self._ranges)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return HeadwaterStreamReader(self._options, self._laid_out(schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError(_NO_SINK)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        raise OptionError(_NO_SINK)

    def _laid_out(self, schema: StructType) -> Layout:
        return self._layout or user_layout(self._options, schema)


class HeadwaterReader(DataSourceReader):
    """Makes a partition of each range, and reads one of them in a task."""

    def __init__(
        self, options: SourceOptions, layout: Layout, ranges: tuple[SequenceRange, ...]
    ) -> None:
        self._options = options
        self._layout = layout
        self._ranges = ranges

    def partitions(self) -> list[InputPartition]:
        # Spark takes an empty list for one partition with the value None.
        nothing = SequenceRange(self._options.streams[0], "", 1, 0)
        return [RangePartition(work) for work in self._ranges or (nothing,)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._layout, partition)
