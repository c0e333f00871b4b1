"""Columns of a key/value bucket: keys, operations and values out of messages (ADR-8, ADR-48)."""

from typing import TYPE_CHECKING, Any

from headwater.spark.wire.wire_reader import Columns

if TYPE_CHECKING:
    import pyarrow as pa

PUT, DELETE, PURGE = "put", "delete", "purge"
#: Headers of messages without a value, by name and value: what they did to their key.
MARKERS = {
    ("KV-Operation", "DEL"): DELETE,
    ("KV-Operation", "PURGE"): PURGE,
    ("Nats-Marker-Reason", "Remove"): DELETE,
    ("Nats-Marker-Reason", "Purge"): PURGE,
    ("Nats-Marker-Reason", "MaxAge"): PURGE,
}
#: What an object without fields is in each format.
_EMPTY = {"json": b"{}", "msgpack": b"\x80", "cbor": b"\xa0"}


def header_texts(offsets: Any, data: Any, count: int) -> "pa.Array":
    """The names or the values of all headers in a batch, one after the other."""
    import pyarrow as pa

    parts = [pa.py_buffer(part[0]).slice(0, part[1]) for part in (offsets, data)]
    return pa.Array.from_buffers(pa.string(), count, [None, *parts])


def kv_operations(columns: Columns) -> "pa.Array":
    """What each message did to its key: put, delete or purge. Needs headers as maps."""
    import numpy
    import pyarrow as pa
    import pyarrow.compute as pc

    found = numpy.full(columns.rows, PUT, dtype=object)
    if columns.pairs and columns.header_offsets is not None:
        names = header_texts(columns.key_offsets, columns.key_data, columns.pairs)
        values = header_texts(columns.value_offsets, columns.value_data, columns.pairs)
        ends = numpy.frombuffer(columns.header_offsets[0], "<i4", columns.rows + 1)
        for (name, value), operation in MARKERS.items():
            hits = pc.and_(pc.equal(names, name), pc.equal(values, value))
            places = numpy.flatnonzero(hits.to_numpy(zero_copy_only=False))
            found[numpy.searchsorted(ends, places, side="right") - 1] = operation
    return pa.array(found, type=pa.string())


def keys_of(subjects: "pa.Array") -> "pa.Array":
    """Keys of subjects. Those of a mirror name the bucket that it mirrors."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(subjects, r"^\$KV\.[^.]+\.", "")


def put_values(payloads: "pa.Array", operations: "pa.Array | None") -> "pa.Array":
    """The values; null where a key was removed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(operations, PUT), payloads, pa.scalar(None, payloads.type))


def without_markers(
    payloads: list[bytes], operations: "pa.Array", value_format: str
) -> list[bytes]:
    """Payloads to decode: a removed key has no fields, and is not corrupt for that."""
    import pyarrow.compute as pc

    if pc.all(pc.equal(operations, PUT)).as_py():
        return payloads
    empty = _EMPTY[value_format]
    pairs = zip(payloads, operations.to_pylist(), strict=True)
    return [payload if operation == PUT else empty for payload, operation in pairs]
