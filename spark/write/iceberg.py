"""Microbatches into an Iceberg table, each once, by the package `pyiceberg`: no jar is needed.

The table's property `headwater.<query>` is the number of the last batch of that streaming query. It
changes in the same commit as the data, and stays when old snapshots are removed.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.write.query_id import query_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How often a batch is tried again because somebody else changed the table meanwhile.
ATTEMPTS = 10


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


def _append(catalog: Any, name: str, rows: Any, mark: str, number: int) -> None:
    """Append rows, unless the table's property `mark` says that batch `number` is in it."""
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(ATTEMPTS):
        table = _opened(catalog, name, rows.schema)
        done = table.properties.get(mark)
        if done is not None and int(done) >= number:
            return
        # The package would try again without a look at the property. This object forgets it.
        table.metadata.properties["commit.retry.num-retries"] = "0"
        try:
            with table.transaction() as change:
                change.append(rows)
                change.set_properties({mark: str(number)})
            return
        except CommitFailedException:
            if attempt == ATTEMPTS - 1:
                raise


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
