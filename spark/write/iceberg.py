"""Batches into an Iceberg table, each once, by the package `pyiceberg`: no jar is needed.

The table's property `headwater.<query>` is the number of the last batch of that streaming query. It
changes in the same commit as the data, and stays when old snapshots are removed. A batch write that
has a name leaves `headwater.write-<name>`.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.write.query_id import query_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

#: How often a batch is tried again because somebody else changed the table meanwhile.
ATTEMPTS = 10
#: Bytes of a row group of a data file, before they are compressed.
GROUP_BYTES = 32 << 20


def iceberg_batches(
    table: str, catalog: str = "default", **properties: str
) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch`: append each batch to the Iceberg table `table`.

    `table` is its name with that of its namespace, as plant.readings; both are made when they are
    not there. `catalog` and `properties` are what `pyiceberg.catalog.load_catalog` takes. A batch
    that is run again, however late, is not appended twice. It goes through the memory of the
    driver: bound it by maxMsgsPerTrigger. Raises OptionError without the package.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise OptionError("iceberg_batches needs the package pyiceberg: pip install it") from error

    def append(batch: "DataFrame", number: int) -> None:
        mark = f"headwater.{query_of(batch)}"
        _append(load_catalog(catalog, **properties), table, batch.toArrow(), mark, number)

    return append


def write_iceberg(
    frame: "DataFrame",
    table: str,
    write_id: str = "",
    catalog: str = "default",
    **properties: str,
) -> int:
    """Append a batch DataFrame to the Iceberg table `table` in one commit; returns its rows.

    Executors write the data files into the table's place, and the driver names them in the table.
    So executors need the package, and must reach the table's storage. With a `write_id`, letters,
    digits, - and _, the write happens once: when it is run again under that name, it appends
    nothing and returns 0. What a write that failed has left in the place is in no table. The
    others are those of `iceberg_batches`. Raises OptionError.
    """
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError as error:
        raise OptionError("write_iceberg needs the package pyiceberg: pip install it") from error
    from pyspark.sql.pandas.types import to_arrow_schema

    if write_id and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", write_id):
        raise OptionError(f"write_id is {write_id!r}; it takes letters, digits, - and _")
    found = load_catalog(catalog, **properties)
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    mark = f"headwater.write-{write_id}" if write_id else ""
    target = _opened(found, table, schema)
    if mark in target.properties:
        return 0
    work = partial(_files, target.location(), dict(target.io.properties), schema)
    files = frame.mapInArrow(work, "path string, rows long").collect()

    def add(change: Any) -> None:
        if files:
            change.add_files([file["path"] for file in files], check_duplicate_files=False)

    done = _commit(found, table, schema, add, mark, 0)
    return sum(file["rows"] for file in files) if done else 0


def _files(
    place: str, properties: dict[str, str], schema: "pa.Schema", batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """On an executor: one data file in the table's `place`; its path and its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io import load_file_io

    first = next(batches, None)
    if first is None:
        return
    path, rows = f"{place}/data/headwater-{uuid.uuid4().hex}.parquet", 0
    output = load_file_io(properties, place).new_output(path)
    with output.create() as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in _groups(chain([first], batches)):
            writer.write_table(pa.Table.from_batches(group).cast(schema))
            rows += sum(batch.num_rows for batch in group)
    yield pa.RecordBatch.from_pydict({"path": [path], "rows": [rows]})


def _groups(batches: "Iterable[pa.RecordBatch]") -> "Iterator[list[pa.RecordBatch]]":
    """Batches of about `GROUP_BYTES` together: a row group of a file."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(each.nbytes for each in group) >= GROUP_BYTES:
            yield group
            group = []
    if group:
        yield group


def _append(catalog: Any, name: str, rows: Any, mark: str, number: int) -> None:
    """Append rows, unless the table's property `mark` says that batch `number` is in it."""
    _commit(catalog, name, rows.schema, lambda change: change.append(rows), mark, number)


def _commit(
    catalog: Any, name: str, schema: Any, fill: Callable[[Any], None], mark: str, number: int
) -> bool:
    """Let `fill` add to the table in one commit, unless the table's property `mark` says that batch
    `number` is in it. Whether it was added."""
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(ATTEMPTS):
        table = _opened(catalog, name, schema)
        done = table.properties.get(mark)
        if done is not None and int(done) >= number:
            return False
        # The package would try again without a look at the property. This object forgets it.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        try:
            with table.transaction() as change:
                fill(change)
                if mark:
                    change.set_properties({mark: str(number)})
            return True
        except CommitFailedException:
            if attempt == ATTEMPTS - 1:
                raise
    return False


def _opened(catalog: Any, name: str, schema: Any) -> Any:
    """The table, made with this schema when it is not there."""
    from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    try:
        return catalog.create_table(name, schema)
    except TableAlreadyExistsError:
        return catalog.load_table(name)
