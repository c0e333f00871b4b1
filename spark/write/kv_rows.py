"""Rows of a key/value bucket as messages: a key and its value, or its removal (ADR-8)."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = re.compile(r"[-/_=A-Za-z0-9]+(\.[-/_=A-Za-z0-9]+)*")


def kv_message(options: SourceOptions, row: dict[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """Subject, payload and headers of a row. A null value deletes the key. Raises OptionError."""
    key, value = row["key"], row["value"]
    if key is None or not _KEY.fullmatch(key):
        raise OptionError(
            f"{key!r} is no key: tokens of letters, digits and - / _ = with dots between"
        )
    headers = {name: text or "" for name, text in row.get("headers") or ()}
    if value is None:
        headers["KV-Operation"] = "DEL"
        value = b""
    payload = value.encode() if isinstance(value, str) else value
    return put_subject(options, f"$KV.{options.bucket}.{key}"), payload, headers


def put_subject(options: SourceOptions, subject: str) -> str:
    """Where a message for `subject` of a bucket is published, as NATS clients do it.

    The subject of a bucket in another domain begins with that domain's API. Without it, a bucket
    of the same name in the domain of the server takes the message as well.
    """
    return subject if options.api_prefix == "$JS.API" else f"{options.api_prefix}.{subject}"


def last_of_each_key(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Of rows with the same key the last one: an attempt that is made again finds no other one
    of its own in a bucket without history. Holds the rows of the partition in memory."""
    import numpy
    import pyarrow as pa
    import pyarrow.compute as pc

    gathered = list(batches)
    if not gathered:
        return
    table = pa.Table.from_batches(gathered)
    rows = pa.table({"key": table["key"], "row": numpy.arange(table.num_rows)})
    last = rows.group_by("key").aggregate([("row", "max")])["row_max"]
    yield from table.take(last.take(pc.sort_indices(last))).to_batches()
