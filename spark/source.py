"""`spark.read.format("headwater")`: the Python data source that Spark sees."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from headwater.spark.errors import LostRangeError, OptionError, UnknownStreamError
from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.read.cores import told_cores
from headwater.spark.read.layout import Layout, default_layout, user_layout
from headwater.spark.read.partition import packed, read_partition
from headwater.spark.read.planning import SequenceRange, plan_ranges
from headwater.spark.read.pushdown import Narrowing, narrow, plan_narrowed
from headwater.spark.read.sampling import infer_fields
from headwater.spark.read.stream_reader import HeadwaterStreamReader
from headwater.spark.tables import (
    kept_options,
    needs_table,
    new_table_options,
    with_options,
    without_options,
)
from headwater.spark.write.sink import HeadwaterStreamWriter, HeadwaterWriter, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

#: Where Spark makes a source: to be written to, or to be read, perhaps from a checkpoint.
_WRITE_WORKER = "write_into_data_source.py"
_LOAD_WORKER = "create_data_source.py"
_PUSHDOWN_WORKER = "data_source_pushdown_filters.py"


class HeadwaterSource(DataSource):
    """Reads and writes of JetStream streams over the wire, batches and streaming queries.

    The sequences to read are fixed when the DataFrame is loaded: every action on it, also in
    a self-join, sees the same rows. Spark makes this object once per load, asks it for its schema
    and ships copies of it, hence the planning then. Only with `.schema(...)` Spark makes a new one
    for every action; the option `ending` fixes the end then.

    Spark also makes one for each commit and abort of a streaming write: what has no plan yet
    plans when its reader is made, and so there never.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given: dict[str, str] = {}
        self._table = new_table_options(options)
        self._checked: SourceOptions | None = None
        self._layout: Layout | None = None
        self._ranges: tuple[SequenceRange, ...] | None = None
        self._unread: LostRangeError | UnknownStreamError | None = None
        self._loading = _made_by(_LOAD_WORKER)
        if self._table is not None or not needs_table(options):
            self._check(options if self._table is None else self._table)
            if not (self._loading or _made_by(_WRITE_WORKER)):
                self._plan()
        else:
            self._given = dict(options)
        # Spark prints `options` of sources in places; the checked options are enough for us.
        self.options = {}

    @property
    def _options(self) -> SourceOptions:
        if self._checked is None:
            return self._check(self._given)
        return self._checked

    def _check(self, given: Mapping[str, str]) -> SourceOptions:
        """Raises OptionError for a mistake."""
        checked = parse_options(given)
        if checked.cores is None:
            checked = replace(checked, cores=told_cores())
        self._checked = checked
        return checked

    def _with_table(self, schema: StructType) -> None:
        """Take the options of the table whose schema that is, where the others name no data."""
        if self._checked is None:
            self._check(kept_options(schema) | self._given)

    def _plan(self) -> tuple[SequenceRange, ...]:
        """Plan a batch read, once. That its start is gone means nothing to a query with a
        checkpoint, and one over patterns waits for streams that match. Whether this is for a
        streaming query shows only when the reader is made."""
        if self._ranges is None:
            try:
                self._ranges = plan_ranges(self._options)
            except (LostRangeError, UnknownStreamError) as error:
                for_query = self._options.patterns or isinstance(error, LostRangeError)
                if not (for_query and self._loading):
                    raise
                self._unread, self._ranges = error, ()
        return self._ranges

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        inferred, ranges = None, self._plan()
        if self._options.value_schema.lower() == "infer":
            inferred = infer_fields(self._options, ranges)
        self._layout = default_layout(self._options, inferred)
        if self._table is not None:
            return with_options(self._layout.schema, self._table)
        return self._layout.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        self._with_table(schema)
        ranges = self._plan()
        if self._unread is not None:
            raise self._unread
        if any(one.from_latest for one in map(self._options.of, ["", *dict(self._options.starts)])):
            raise OptionError(
                "a batch cannot start at latest: there is nothing behind it. Give starting a "
                "sequence, or startingTimestamp"
            )
        # With the setting for pushdown off, Spark refuses a reader that has `pushFilters`.
        # Filters on a bucket's table hold for the latest values, not for those before them.
        whole = self._options.bucket and not self._options.changes
        pushing = not whole and _made_by(_PUSHDOWN_WORKER)
        kind = FilteredReader if pushing else HeadwaterReader
        # A batch has no later one in which it would read a stream that was made anew.
        options = replace(self._options, restart_recreated=False)
        return kind(options, self._laid_out(schema), ranges)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._with_table(schema)
        options = replace(self._options, changes=True)
        if options.ending is not None or options.ending_time is not None or options.ends:
            raise OptionError(
                "a streaming query has no end: leave ending and endingTimestamp out. "
                "trigger(availableNow=True) ends with what is there, and a batch where ending says"
            )
        return HeadwaterStreamReader(options, self._laid_out(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        self._with_table(schema)
        with_id = bool(self._options.write_id)
        check_columns(schema, overwrite, with_id, bool(self._options.bucket))
        return HeadwaterWriter(self._target())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        self._with_table(schema)
        # Output mode `complete` overwrites: as Kafka's sink, a log has the whole result appended.
        check_columns(schema, False, True, bool(self._options.bucket))
        return HeadwaterStreamWriter(self._target())

    def _target(self) -> SourceOptions:
        if len(self._options.streams) != 1:
            raise OptionError("option 'stream' must name one stream to write to")
        return replace(self._options, filters=())

    def _laid_out(self, schema: StructType) -> Layout:
        return self._layout or user_layout(self._options, without_options(schema))


def _made_by(worker: str) -> bool:
    """Whether the caller of who asks is that worker of Spark's."""
    return sys._getframe(2).f_code.co_filename.endswith(worker)


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
        nothing = SequenceRange("", "", 1, 0)
        ranges = self._ranges or (nothing,)
        if self._options.bucket and not self._options.changes:
            # The last value of a key shows only at the end: one task reads a table.
            ranges = ranges[:1]
        return packed(ranges, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_partition(self._options, self._layout, partition)


class FilteredReader(HeadwaterReader):
    """Leaves out what Spark's own filters do."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Plan again for what the filters leave; returns those that Spark still applies."""
        narrowing, rest = narrow(filters, self._layout.meta, self._options)
        if narrowing != Narrowing() and self._ranges:
            self._ranges = plan_narrowed(self._options, self._ranges, narrowing)
            if narrowing.subjects is not None:
                self._options = replace(self._options, filters=narrowing.subjects)
        return rest
