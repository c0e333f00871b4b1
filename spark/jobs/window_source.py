"""A source of rollup parts: readers add telemetry up before Spark has the rows.

A part is what one reader has seen of one device, metric and window; parts of the same window are
merged by Spark. So what Spark holds grows with the windows, and not with the stream. Each reader
also gives a *proof* for each stream, a part without device: which sequences it read, how many
rows, and how many of them are telemetry.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headwater.spark.source import HeadwaterReader, HeadwaterSource

if TYPE_CHECKING:
    import numpy
    import pyarrow as pa

PARTS = (
    "device string, metric string, window_us long, count long, min double, max double, sum double, "
    "newest struct<t_us: long, sequence: long, value: double>, first_seq long, last_seq long, "
    "stream string, ids long, valid long, repeats long"
)
"""Parts. Proofs have no device, but `stream`, sequences `first_seq` to `last_seq`, `count` rows, of
them `ids` with an id, `valid` telemetry, `repeats` not above all sequences before."""

MICROS = "windowMicros"
#: Times of years 1 to 9999, in microseconds since 1970: others are no telemetry.
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
#: Most parts that a reader holds before it merges them; with half of them left it gives them on.
HELD = 1 << 16
#: Parts of one record batch, about a MiB.
BATCH = 1 << 13
_KEYS = ["device", "metric", "window_us"]


class WindowSource(HeadwaterSource):
    """Reads parts of windows of `windowMicros` in place of messages; takes the options of a
    source, whose columns are those of the rollup. Batches only."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): text for name, text in options.items()}
        self._micros = int(given.pop(MICROS.lower()))
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "headwater-windows"

    def schema(self) -> str:  # type: ignore[override]
        super().schema()
        return PARTS

    def reader(self, schema: StructType) -> DataSourceReader:
        return WindowReader(super().reader(schema), self._micros, schema)


class WindowReader(DataSourceReader):
    """Reads messages by another reader."""

    def __init__(self, messages: DataSourceReader, micros: int, schema: StructType) -> None:
        self._messages = messages
        self._micros = micros
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return list(self._messages.partitions())

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The parts, and at last the proofs, of one partition."""
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(self._messages, HeadwaterReader)
        gathered = GatheredParts(self._micros, to_arrow_schema(self._schema, timezone="UTC"))
        for batch in self._messages.read(partition):
            yield from gathered.add(batch)
        yield from gathered.rest()


class ReadProof:
    """What was read of one stream."""

    def __init__(self) -> None:
        self.first, self.last = 0, 0
        self.rows = self.ids = self.valid = self.repeats = 0

    def add(self, sequences: "numpy.ndarray[Any, Any]", ids: int, valid: int) -> None:
        """Rows of a batch, whose sequences should go up."""
        import numpy

        highest = numpy.maximum.accumulate(numpy.concatenate(([self.last], sequences)))
        self.repeats += int((sequences <= highest[:-1]).sum())
        lowest = int(sequences.min())
        self.first = min(self.first, lowest) if self.rows else lowest
        self.last = int(highest[-1])
        self.rows += len(sequences)
        self.ids += ids
        self.valid += valid


class GatheredParts:
    """Parts of the messages of one partition; `held` of them, however many messages there are."""

    def __init__(self, micros: int, schema: "pa.Schema") -> None:
        self._micros = micros
        self._schema = schema
        self._parts: list[pa.Table] = []
        self.held = 0
        self._proofs: dict[str, ReadProof] = {}

    def add(self, batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
        """Add messages of one stream; gives parts when there are too many to hold."""
        if not batch.num_rows:
            return
        parts, valid = window_parts(batch, self._micros)
        proof = self._proofs.setdefault(batch["_stream"][0].as_py(), ReadProof())
        proof.add(batch["_sequence"].to_numpy(), len(batch) - batch["id"].null_count, valid)
        self._parts.append(parts)
        self.held += parts.num_rows
        if self.held >= HELD:
            merged = self._merged()
            self._parts, self.held = [merged], merged.num_rows
            if self.held >= HELD // 2:
                yield from self._given()

    def rest(self) -> "Iterator[pa.RecordBatch]":
        """What is left, and the proofs."""
        import pyarrow as pa

        if self._parts:
            self._parts = [self._merged()]
            yield from self._given()
        if self._proofs:
            proofs = [
                {
                    "first_seq": proof.first, "last_seq": proof.last, "count": proof.rows,
                    "stream": stream, "ids": proof.ids, "valid": proof.valid,
                    "repeats": proof.repeats,
                }
                for stream, proof in self._proofs.items()
            ]  # fmt: skip
            yield pa.RecordBatch.from_pylist(proofs, schema=self._schema)

    def _merged(self) -> "pa.Table":
        import pyarrow as pa

        return merged_parts(pa.concat_tables(self._parts))

    def _given(self) -> "Iterator[pa.RecordBatch]":
        """Give all parts on, as Spark's columns."""
        import pyarrow as pa

        (table,) = self._parts
        self._parts, self.held = [], 0
        for batch in table.combine_chunks().to_batches(max_chunksize=BATCH):
            columns = {name: batch[name] for name in batch.schema.names}
            newest = self._schema.field("newest").type
            columns["newest"] = pa.StructArray.from_arrays(
                [columns[f"newest_{child.name}"].cast(child.type) for child in newest],
                fields=list(newest),
            )
            yield pa.RecordBatch.from_arrays(
                [
                    columns[field.name].cast(field.type)
                    if field.name in columns
                    else pa.nulls(len(batch), field.type)
                    for field in self._schema
                ],
                schema=self._schema,
            )


def window_parts(batch: "pa.RecordBatch", micros: int) -> "tuple[pa.Table, int]":
    """The parts of messages, and how many of them are telemetry: as `windows.telemetry` and
    `windows.partial` have it."""
    import numpy
    import pyarrow as pa
    import pyarrow.compute as pc

    stamp = pa.int64()
    moment = pc.coalesce(batch["t_us"], batch["ts"].cast(stamp), batch["_timestamp"].cast(stamp))
    # A corrupt message without a time may have had one that cannot be read.
    known = pc.or_(batch["_corrupt_record"].is_null(), batch["t_us"].is_valid())
    known = pc.or_(known, batch["ts"].is_valid())
    for name in ("device", "metric", "value"):
        known = pc.and_(known, batch[name].is_valid())
    known = pc.and_(known, pc.greater_equal(moment, FIRST_US))
    known = pc.and_(known, pc.less_equal(moment, LAST_US))
    names = ["device", "metric", "t_us", "sequence", "value"]
    columns = [batch["device"], batch["metric"], moment, batch["_sequence"], batch["value"]]
    rows = pa.table(columns, names).filter(known)
    times = rows["t_us"].to_numpy()
    if len(times) and (numpy.diff(times) < 0).any():
        # Stable: of messages with one time, the one with the highest sequence stays the last.
        order = numpy.argsort(times, kind="stable")
        rows, times = rows.take(order), times[order]
    rows = rows.append_column("window_us", pa.array(times - numpy.mod(times, micros)))
    grouped = rows.group_by(_KEYS, use_threads=False).aggregate(
        [
            ("value", "count"), ("value", "min"), ("value", "max"), ("value", "sum"),
            ("t_us", "last"), ("sequence", "last"), ("value", "last"),
            ("sequence", "min"), ("sequence", "max"),
        ]
    )  # fmt: skip
    return _renamed(grouped, _GROUPED), len(rows)


_GROUPED = {
    "value_count": "count", "value_min": "min", "value_max": "max", "value_sum": "sum",
    "t_us_last": "newest_t_us", "sequence_last": "newest_sequence", "value_last": "newest_value",
    "sequence_min": "first_seq", "sequence_max": "last_seq",
}  # fmt: skip
_MERGED = {
    "count_sum": "count", "min_min": "min", "max_max": "max", "sum_sum": "sum",
    "newest_t_us_last": "newest_t_us", "newest_sequence_last": "newest_sequence",
    "newest_value_last": "newest_value", "first_seq_min": "first_seq", "last_seq_max": "last_seq",
}  # fmt: skip


def merged_parts(parts: "pa.Table") -> "pa.Table":
    """One part for each device, metric and window."""
    ordered = parts.sort_by([("newest_t_us", "ascending"), ("newest_sequence", "ascending")])
    grouped = ordered.group_by(_KEYS, use_threads=False).aggregate(
        [tuple(name.rsplit("_", 1)) for name in _MERGED]
    )
    return _renamed(grouped, _MERGED)


def _renamed(grouped: "pa.Table", names: dict[str, str]) -> "pa.Table":
    return grouped.select([*_KEYS, *names]).rename_columns([*_KEYS, *names.values()])
