"""The columns of a DataFrame: names, Spark and Arrow types, and batches put together.

Arrow must match Spark's idea of the schema exactly, so both come from the same StructType.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.options import SourceOptions
from headwater.spark.read.blocks import Wanted
from headwater.spark.read.column_decoder import ColumnDecoder, takes_all
from headwater.spark.read.kv_columns import keys_of, kv_operations, put_values, without_markers
from headwater.spark.read.value_decoder import CORRUPT_COLUMN, ValueDecoder
from headwater.spark.read.value_types import checked_type, parse_value_schema, plain_type
from headwater.spark.wire.wire_reader import (
    HEADERS_MAP,
    HEADERS_OFF,
    HEADERS_RAW,
    PAYLOAD_ARROW,
    PAYLOAD_LIST,
    PAYLOAD_OFF,
    Columns,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

_PAYLOADS = {"payload", "value"}


@dataclass(frozen=True)
class Layout:
    """Which columns come out, in order.

    `meta` maps column names to metadata kinds. `values` are the decoded fields with
    their types; `corrupt` says whether bad payloads are kept in `_corrupt_record`.
    `bucket` says that messages are changes of keys: some of them have no value.
    """

    schema: "StructType"
    meta: dict[str, str]
    values: "dict[str, DataType]"
    corrupt: bool
    headers: str
    value_format: str = "json"
    bucket: bool = False

    @property
    def by_columns(self) -> bool:
        """Whether payloads become columns without Python objects."""
        return self.value_format == "json" and not self.bucket and takes_all(self.values)

    @property
    def needs_payload(self) -> bool:
        """False when the server may leave payloads out."""
        return bool(self.values) or self.corrupt or bool(_PAYLOADS & set(self.meta.values()))


def default_layout(
    options: SourceOptions, inferred: "dict[str, DataType] | None" = None
) -> Layout:
    """The layout that the options describe, when the user gives no schema of their own.

    `inferred` are fields that were learnt from messages, None when options name them.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    kinds = options.columns or _default_kinds(options)
    meta = {options.metadata_prefix + name: options.column_kinds[name] for name in kinds}
    fields = [
        StructField(name, _meta_type(kind, options.headers), kind == "value")
        for name, kind in meta.items()
    ]
    values: dict[str, DataType] = {}
    corrupt = False
    if options.value_format != "raw":
        values = parse_value_schema(options.value_schema) if inferred is None else inferred
        for name in values:
            if name in meta or name == CORRUPT_COLUMN:
                raise OptionError(
                    f"value column {name!r} has the name of a metadata column: leave that one "
                    "out with option 'columns', or set 'metadataPrefix'"
                )
        fields += [StructField(name, plain_type(kind), True) for name, kind in values.items()]
        corrupt = not options.fail_fast
        if corrupt:
            fields.append(StructField(CORRUPT_COLUMN, StringType(), True))
    return _layout(options, StructType(fields), meta, values, corrupt)


def user_layout(options: SourceOptions, schema: "StructType") -> Layout:
    """The layout of a schema given by `.schema(...)`: known metadata names, the rest values.

    Raises OptionError for a column that cannot be provided with its type.
    """
    meta: dict[str, str] = {}
    values: dict[str, DataType] = {}
    corrupt = False
    for field in schema.fields:
        kind = options.column_kinds.get(field.name.removeprefix(options.metadata_prefix), "")
        is_meta = field.name.startswith(options.metadata_prefix) and bool(kind)
        if is_meta and (kind != "headers" or options.headers != "off"):
            expected = _meta_type(kind, options.headers)
            if field.dataType != expected:
                raise OptionError(
                    f"column {field.name!r} has type {expected.simpleString()}, "
                    f"not {field.dataType.simpleString()}"
                )
            meta[field.name] = kind
        elif field.name == CORRUPT_COLUMN:
            corrupt = True
        elif options.value_format != "raw":
            checked_type(field.dataType)
            values[field.name] = field.dataType
        else:
            raise OptionError(
                f"column {field.name!r} is unknown: with valueFormat=raw there are only "
                + ", ".join(options.column_kinds)
            )
    return _layout(options, schema, meta, values, corrupt)


def _layout(
    options: SourceOptions,
    schema: "StructType",
    meta: dict[str, str],
    values: "dict[str, DataType]",
    corrupt: bool,
) -> Layout:
    """These columns, with what the options say of all of them."""
    whole = bool(options.bucket)
    return Layout(schema, meta, values, corrupt, options.headers, options.value_format, whole)


def _default_kinds(options: SourceOptions) -> tuple[str, ...]:
    return tuple(
        kind
        for kind in options.column_kinds
        if not (
            (kind == "stream" and len(options.streams) == 1)
            or (kind == "headers" and options.headers == "off")
            or (kind in _PAYLOADS and options.value_format != "raw")
            or kind == "timestamp_ns"
        )
    )


def _meta_type(kind: str, headers: str) -> "DataType":
    from pyspark.sql.types import BinaryType, LongType, MapType, StringType, TimestampType

    if kind == "headers":
        return MapType(StringType(), StringType(), False) if headers == "map" else BinaryType()
    types = {
        "sequence": LongType,
        "timestamp": TimestampType,
        "timestamp_ns": LongType,
        "payload": BinaryType,
        "value": BinaryType,
    }
    return types.get(kind, StringType)()


def wanted_columns(layout: Layout) -> Wanted:
    """What a fetch keeps: what the layout needs, and nothing else."""
    kinds = set(layout.meta.values())
    payload = PAYLOAD_OFF
    if (layout.values or layout.corrupt) and not layout.by_columns:
        payload = PAYLOAD_LIST
    elif layout.needs_payload:
        payload = PAYLOAD_ARROW
    headers = HEADERS_OFF
    if layout.bucket:
        headers = HEADERS_MAP
    elif "headers" in kinds:
        headers = HEADERS_MAP if layout.headers == "map" else HEADERS_RAW
    return Wanted(bool({"subject", "key"} & kinds), payload, headers)


class BatchMaker:
    """Turns `Columns` of one stream into record batches without copying buffers."""

    def __init__(self, layout: Layout, stream: str, fail_fast: bool) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._layout = layout
        self._stream = stream
        self._schema: pa.Schema = to_arrow_schema(layout.schema, timezone="UTC")
        self._decoder = (
            ValueDecoder(layout.values, fail_fast, layout.value_format)
            if layout.values or layout.corrupt
            else None
        )
        self._quick = (
            ColumnDecoder(layout.values, self._decoder)
            if self._decoder is not None and layout.by_columns
            else None
        )
        # Arrow makes new objects for fields and types whenever it is asked for them.
        self._fields = [
            (field.name, layout.meta.get(field.name), field.type) for field in self._schema
        ]
        self._types = {name: self._schema.field(name).type for name in layout.values}

    @property
    def corrupt(self) -> int:
        """Payloads so far that were not what was asked for."""
        return self._decoder.corrupt if self._decoder is not None else 0

    def batch(self, columns: Columns) -> "pa.RecordBatch":
        """One record batch. Raises ValueError for a bad payload when mode is failfast."""
        import pyarrow as pa

        operations = kv_operations(columns) if self._layout.bucket else None
        decoded = self._decoded(columns, operations)
        arrays = [
            decoded[name] if kind is None else self._meta_array(kind, type_, columns, operations)
            for name, kind, type_ in self._fields
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _decoded(self, columns: Columns, operations: "pa.Array | None") -> "dict[str, pa.Array]":
        """The fields of the payloads."""
        import pyarrow as pa

        if self._decoder is None:
            return {}
        if self._quick is not None:
            return self._quick.decode(columns, self._types)
        payloads = columns.payloads or []
        if operations is not None:
            payloads = without_markers(payloads, operations, self._layout.value_format)
        found = self._decoder.decode(payloads, columns.sequence)
        arrays = {name: pa.array(found[name], type=type_) for name, type_ in self._types.items()}
        return arrays | {CORRUPT_COLUMN: found[CORRUPT_COLUMN]}

    def _meta_array(
        self,
        kind: str,
        type_: "pa.DataType",
        columns: Columns,
        operations: "pa.Array | None",
    ) -> "pa.Array":
        import pyarrow as pa

        rows = columns.rows
        if kind == "operation":
            return operations
        if kind == "key":
            return keys_of(self._meta_array("subject", type_, columns, None))
        if kind == "value":
            return put_values(self._meta_array("payload", type_, columns, None), operations)
        if kind in ("sequence", "timestamp_ns"):
            numbers = columns.sequence if kind == "sequence" else columns.timestamp
            return pa.Array.from_buffers(type_, rows, [None, _buffer(numbers)])
        if kind == "timestamp":
            return pa.Array.from_buffers(type_, rows, [None, _micros(columns.timestamp)])
        if kind == "stream":
            return pa.repeat(pa.scalar(self._stream, type=type_), rows)
        if kind == "headers" and self._layout.headers == "map":
            return _map_array(type_, columns)
        parts = {
            "subject": (columns.subject_offsets, columns.subject_data),
            "payload": (columns.payload_offsets, columns.payload_data),
            "headers": (columns.header_offsets, columns.header_data),
        }[kind]
        if kind == "payload" and columns.payloads is not None:
            return pa.array(columns.payloads, type=type_)
        return pa.Array.from_buffers(type_, rows, [None, _buffer(parts[0]), _buffer(parts[1])])


def _micros(times: tuple[Any, int]) -> "pa.Buffer":
    """Nanoseconds to microseconds, which are Spark's, rounded down."""
    import numpy
    import pyarrow as pa

    return pa.py_buffer(numpy.frombuffer(times[0], "<i8", times[1] // 8) // 1000)


def _buffer(part: tuple[bytearray, int] | None) -> "pa.Buffer":
    import pyarrow as pa

    if part is None:
        raise ValueError("the wire reader did not keep this column")
    whole = pa.py_buffer(part[0])
    return whole if whole.size == part[1] else whole.slice(0, part[1])


def _map_array(type_: "pa.MapType", columns: Columns) -> "pa.Array":
    import pyarrow as pa

    build: Callable[..., pa.Array] = pa.Array.from_buffers
    pairs = columns.pairs
    keys = build(
        type_.key_type, pairs, [None, _buffer(columns.key_offsets), _buffer(columns.key_data)]
    )
    values = build(
        type_.item_type, pairs, [None, _buffer(columns.value_offsets), _buffer(columns.value_data)]
    )
    entries = pa.StructArray.from_arrays([keys, values], fields=[type_.key_field, type_.item_field])
    return build(type_, columns.rows, [None, _buffer(columns.header_offsets)], children=[entries])
