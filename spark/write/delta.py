"""Batches into a Delta table, each once, by the package `deltalake`: no jar is needed.

Delta keeps, for each application, the number of its last transaction, in the same commit as the
data. Here the application is the streaming query, and the number that of its batch; or it is a
batch write that has a name.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.write.query_id import query_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def delta_batches(
    path: str, storage: Mapping[str, str] | None = None, **more: Any
) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch`: append each batch to the Delta table at `path`.

    A batch that is run again, however late, is not appended twice. `path` and `storage` (keys and
    endpoints of an object store) are what `deltalake.write_deltalake` takes, as is `more`, for
    example partition_by. A batch goes through the memory of the driver: bound it by
    maxMsgsPerTrigger. Raises OptionError without the package.
    """
    _check("delta_batches")
    options = dict(storage or {})

    def append(batch: "DataFrame", number: int) -> None:
        application = f"headwater-{query_of(batch)}"
        if not _is_done(path, options, application, number):
            _append(path, batch.toArrow(), options, application, number, more)

    return append


def write_delta(
    frame: "DataFrame",
    path: str,
    write_id: str = "",
    storage: Mapping[str, str] | None = None,
    **more: Any,
) -> int:
    """Append a batch DataFrame to the Delta table at `path` in one commit; returns its rows.

    The rows go through the driver, which holds one partition of the frame at a time. With a
    `write_id`, letters, digits, - and _, the write happens once: when it is run again under that
    name, it appends nothing and returns 0. A write that fails leaves the table as it was. The
    others are those of `delta_batches`. Raises OptionError.
    """
    _check("write_delta")
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    if write_id and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", write_id):
        raise OptionError(f"write_id is {write_id!r}; it takes letters, digits, - and _")
    options = dict(storage or {})
    application = f"headwater-write-{write_id}" if write_id else ""
    if _is_done(path, options, application, 0):
        return 0
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    packed = frame.mapInArrow(_packed, "batch binary").toLocalIterator()
    rows = 0

    def batches() -> "Iterator[pa.RecordBatch]":
        nonlocal rows
        for row in packed:
            table = pa.ipc.open_stream(row.batch).read_all().cast(schema)
            rows += table.num_rows
            yield from table.to_batches()

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    _append(path, reader, options, application, 0, more)
    return rows


def _packed(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """On an executor: each batch as the bytes of Arrow's stream format."""
    import pyarrow as pa

    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"batch": [sink.getvalue().to_pybytes()]})


def _check(name: str) -> None:
    """Raise OptionError without the package."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise OptionError(f"{name} needs the package deltalake: pip install it") from error


def _is_done(path: str, options: dict[str, str], application: str, number: int) -> bool:
    """Whether the table says that the application's transaction is in it."""
    from deltalake import DeltaTable

    if not application or not DeltaTable.is_deltatable(path, options):
        return False
    done = DeltaTable(path, storage_options=options).transaction_version(application)
    return done is not None and int(done) >= number


def _append(
    path: str,
    rows: Any,
    options: dict[str, str],
    application: str,
    number: int,
    more: Mapping[str, Any],
) -> None:
    from deltalake import CommitProperties, Transaction, write_deltalake

    transactions = [Transaction(application, number)] if application else None
    properties = CommitProperties(app_transactions=transactions)
    write_deltalake(
        path,
        rows,
        mode="append",
        storage_options=options,
        commit_properties=properties,
        **more,
    )
