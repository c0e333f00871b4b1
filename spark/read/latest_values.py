"""A bucket as a table: of changes in their order, the last one of each key."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.spark.errors import UnsupportedStreamError
from headwater.spark.read.kv_columns import PUT
from headwater.spark.read.layout import Layout

if TYPE_CHECKING:
    import pyarrow as pa

#: Bytes of changes that are gathered before the replaced ones among them are dropped.
FOLD_BYTES = 64 << 20
#: Most bytes of a table: it is in the memory of one task.
TABLE_BYTES = 2 << 30
#: Columns that decide, beside those that come out. No column of a user's has such a name.
_KEY, _OPERATION, _ROW = "\0key", "\0operation", "\0row"


class LatestValues:
    """Takes batches of `layout`, its own one, and gives out those columns that were asked for.

    Memory: the table, and once more as much or FOLD_BYTES, whatever is more.
    """

    def __init__(self, wanted: Layout) -> None:
        from pyspark.sql.types import StringType, StructField, StructType

        hidden = {_KEY: "key", _OPERATION: "operation"}
        fields = [StructField(name, StringType(), False) for name in hidden]
        self.layout = replace(
            wanted,
            schema=StructType([*wanted.schema.fields, *fields]),
            meta=wanted.meta | hidden,
        )
        self._names = wanted.schema.fieldNames()
        self._gathered: list[pa.RecordBatch] = []
        self._bytes = 0
        self._table_bytes = 0

    def add(self, batch: "pa.RecordBatch") -> None:
        """The next changes. Raises UnsupportedStreamError for a table above TABLE_BYTES."""
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes - self._table_bytes > max(FOLD_BYTES, self._table_bytes):
            self._fold()

    def batches(self) -> "Iterator[pa.RecordBatch]":
        """The table, in the order of revisions."""
        self._fold()
        for batch in self._gathered:
            yield batch.select(self._names)

    def _fold(self) -> None:
        """Keep the last change of each key; what it removed need not be known any more."""
        import numpy
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._gathered:
            return
        table = pa.Table.from_batches(self._gathered)
        rows = pa.table({_KEY: table[_KEY], _ROW: numpy.arange(table.num_rows)})
        last = rows.group_by(_KEY).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
        table = table.take(last.take(pc.sort_indices(last)))
        table = table.filter(pc.equal(table[_OPERATION], PUT))
        self._gathered = table.to_batches()
        self._bytes = self._table_bytes = table.nbytes
        if self._bytes > TABLE_BYTES:
            raise UnsupportedStreamError(
                f"the bucket's table is larger than {TABLE_BYTES >> 30} GiB, too much for one "
                "task: read some keys with option 'keys', or changes=true and group by key"
            )
