"""Microbatches into a Delta table, each once, by the package `deltalake`: no jar is needed.

Delta keeps, for each application, the number of its last transaction, in the same commit as the
data. Here the application is the streaming query, and the number that of its batch.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.spark.errors import OptionError
from headwater.spark.write.query_id import query_of

if TYPE_CHECKING:
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
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise OptionError("delta_batches needs the package deltalake: pip install it") from error
    options = dict(storage or {})

    def append(batch: "DataFrame", number: int) -> None:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

        application = f"headwater-{query_of(batch)}"
        if DeltaTable.is_deltatable(path, options):
            done = DeltaTable(path, storage_options=options).transaction_version(application)
            if done is not None and done >= number:
                return
        transaction = Transaction(application, number)
        properties = CommitProperties(app_transactions=[transaction])
        write_deltalake(
            path,
            batch.toArrow(),
            mode="append",
            storage_options=options,
            commit_properties=properties,
            **more,
        )

    return append
