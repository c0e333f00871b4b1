"""What Parquet files say of themselves, read without a Spark job: their footers, and one column."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Under this name Spark writes a frame's schema into the footer of each file.
_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"


def read_back(spark: "SparkSession", folder: Path) -> "DataFrame":
    """The frame that Spark wrote into `folder`, in the types that it had.

    Without a schema, Spark starts a job to find it.
    """
    import pyarrow.parquet as pq
    from pyspark.sql.types import StructType

    for path in _files(folder):
        said = (pq.read_metadata(path).metadata or {}).get(_SCHEMA)
        if said is not None:
            schema = StructType.fromJson(json.loads(said))
            return spark.read.schema(schema).parquet(str(folder))
    return spark.read.parquet(str(folder))


def count_rows(folder: Path) -> int:
    """The rows in the files of `folder`."""
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in _files(folder))


def add_up(folder: Path, column: str) -> int:
    """The sum of a column of whole numbers, or how often one of truths is true."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    total = 0
    for path in _files(folder):
        for batch in pq.ParquetFile(path).iter_batches(columns=[column]):
            total += pc.sum(batch.column(0)).as_py() or 0
    return total


def _files(folder: Path) -> list[Path]:
    """Whole files; Spark reads none whose name begins with a dot or an underscore."""
    return sorted(path for path in folder.glob("*.parquet") if path.name[0] not in "._")
