"""A driver that reads a stream slowly, and says what it saw and where: one line of JSON.

Arguments: a folder that executors see, and JSON of options. Each task leaves a file in the folder
when it has its first rows.
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

REST_S = 0.2


def looking(folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for executors, which know nothing of this module."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import os
        import time
        from pathlib import Path

        import pyarrow as pa

        import headwater.spark.source as source

        for batch in batches:
            Path(folder, f"reading-{os.getpid()}").touch()
            time.sleep(REST_S)
            rows = batch.num_rows
            where = [f"{sys.executable} {source.__file__}"] * rows
            yield pa.RecordBatch.from_pydict({"sequence": batch.column(0), "place": where})

    return look


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from headwater.spark.source import HeadwaterSource

    folder, options = sys.argv[1], json.loads(sys.argv[2])
    spark = SparkSession.builder.appName("counting").getOrCreate()
    spark.dataSource.register(HeadwaterSource)
    frame = spark.read.format("headwater").options(**options).load()
    seen = frame.select("sequence").mapInArrow(looking(folder), "sequence long, place string")
    total = seen.agg(
        f.count("*").alias("rows"),
        f.count_distinct("sequence").alias("distinct"),
        f.collect_set("place").alias("places"),
    )
    row = total.collect()[0]
    print("counted " + json.dumps(row.asDict()))
    spark.stop()


if __name__ == "__main__":
    main()
