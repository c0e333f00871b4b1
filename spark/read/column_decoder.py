"""JSON payloads to Arrow columns without a Python object each, where their types allow it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from headwater.spark.read.value_decoder import CORRUPT_COLUMN, ValueDecoder
from headwater.spark.wire.json_columns import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FIELDS_MAX,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    OBJECT,
    TEXT,
    TIME,
    JsonColumns,
)
from headwater.spark.wire.wire_reader import Columns

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = {
    t.StringType: TEXT,
    t.ByteType: INT8,
    t.ShortType: INT16,
    t.IntegerType: INT32,
    t.LongType: INT64,
    t.DoubleType: DOUBLE,
    t.FloatType: FLOAT,
    t.BooleanType: BOOLEAN,
    t.TimestampType: TIME,
    t.DateType: DATE,
}
#: How deep structs may be nested.
_DEPTH_MAX = 16
#: Batches that go to the other decoder whole, after one of which most rows had to.
_PAUSE = 15


def takes(kind: "t.DataType", depth: int = 0) -> bool:
    """Whether a field of this type can be read without Python objects."""
    if isinstance(kind, t.StructType):
        return (
            depth < _DEPTH_MAX
            and bool(kind.fields)
            and all(takes(field.dataType, depth + 1) for field in kind.fields)
        )
    return type(kind) in _KINDS


def takes_all(fields: "dict[str, t.DataType]") -> bool:
    """Whether all of these fields can, and are not too many."""
    return bool(fields) and all(map(takes, fields.values())) and _size(fields) < FIELDS_MAX


def _size(fields: "dict[str, t.DataType]") -> int:
    return sum(
        1 + (_size(_inner(kind)) if isinstance(kind, t.StructType) else 0)
        for kind in fields.values()
    )


def _inner(kind: "t.StructType") -> "dict[str, t.DataType]":
    return {field.name: field.dataType for field in kind.fields}


class ColumnDecoder:
    """Decodes batches of JSON payloads. `other` reads those that are not plainly what was asked
    for, and so decides what they mean."""

    def __init__(self, fields: "dict[str, t.DataType]", other: ValueDecoder) -> None:
        self._names = list(fields)
        self._other = other
        listed = _listed(fields)
        self._columns = JsonColumns(listed)
        # Fields are numbered level by level; where those of a struct begin, by its own number.
        self._first: list[int] = []
        todo: list[tuple[bytes, int, list[Any]]] = [(b"", OBJECT, listed)]
        following = 1
        for _, _, inner in todo:
            todo += inner
            self._first.append(following)
            following += len(inner)
        self._pause = 0

    def decode(self, columns: Columns, types: "dict[str, pa.DataType]") -> "dict[str, pa.Array]":
        """Arrays by field name, and `_corrupt_record`. `types` are those of the fields.

        Raises ValueError for a bad payload when mode is failfast.
        """
        import pyarrow as pa

        rows = columns.rows
        if self._pause:
            self._pause -= 1
            return self._slowly(columns, list(range(rows)), types)
        assert columns.payload_offsets is not None and columns.payload_data is not None
        left = self._columns.read(columns.payload_offsets[0], columns.payload_data[0], rows)
        if 2 * len(left) > rows:
            self._pause = _PAUSE
        if len(left) == rows:
            return self._slowly(columns, left, types)
        found = {
            name: self._array(place, types[name], rows) for place, name in enumerate(self._names, 1)
        }
        found[CORRUPT_COLUMN] = pa.nulls(rows, pa.string())
        if left:
            found = _merged(found, self._slowly(columns, left, types), left)
        return found

    def _array(self, place: int, type_: "pa.DataType", rows: int) -> "pa.Array":
        import pyarrow as pa

        build: Callable[..., pa.Array] = pa.Array.from_buffers
        values, ends, valid = self._columns.column(place)
        bits = None if valid is None else pa.py_buffer(valid)
        if pa.types.is_struct(type_):
            inner = [
                self._array(self._first[place] + at, type_.field(at).type, rows)
                for at in range(type_.num_fields)
            ]
            return build(type_, rows, [bits], children=inner)
        buffers = [bits, pa.py_buffer(values)]
        if ends is not None:
            buffers.insert(1, pa.py_buffer(ends))
        return build(type_, rows, buffers)

    def _slowly(
        self, columns: Columns, rows: list[int], types: "dict[str, pa.DataType]"
    ) -> "dict[str, pa.Array]":
        """These rows of a batch, as the other decoder reads them."""
        import pyarrow as pa

        assert columns.payload_offsets is not None and columns.payload_data is not None
        ends = memoryview(columns.payload_offsets[0])[: 4 * (columns.rows + 1)].cast("i")
        data = columns.payload_data[0]
        numbers = columns.sequence[0]
        some = b"".join(numbers[8 * row : 8 * row + 8] for row in rows)
        payloads = [bytes(data[ends[row] : ends[row + 1]]) for row in rows]
        found = self._other.decode(payloads, (some, len(some)))
        arrays = {name: pa.array(found[name], type=type_) for name, type_ in types.items()}
        arrays[CORRUPT_COLUMN] = found[CORRUPT_COLUMN]
        return arrays


def _merged(
    most: "dict[str, pa.Array]", others: "dict[str, pa.Array]", places: list[int]
) -> "dict[str, pa.Array]":
    """Columns of a batch; at `places` are rows of `others`, in their order."""
    import numpy
    import pyarrow as pa

    rows = len(most[CORRUPT_COLUMN])
    taken = numpy.arange(rows)
    taken[places] = rows + numpy.arange(len(places))
    index = pa.array(taken)
    return {
        name: pa.concat_arrays([array, others[name]]).take(index) for name, array in most.items()
    }


def _listed(fields: "dict[str, t.DataType]") -> list[tuple[bytes, int, list[Any]]]:
    return [
        (name.encode(), OBJECT, _listed(_inner(kind)))
        if isinstance(kind, t.StructType)
        else (name.encode(), _KINDS[type(kind)], [])
        for name, kind in fields.items()
    ]
