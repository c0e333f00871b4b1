"""A driver of its own: copies the streams `FROM-*` into the stream `INTO`, until all is there."""

import sys
from pathlib import Path
from typing import Any

from headwater.spark.session import build_session


def copy(spark: Any, url: str, folder: Path, per_batch: int) -> None:
    """Go on from the checkpoint in `folder`, until all is there."""
    source = spark.readStream.format("headwater").option("servers", url)
    rows = source.option("streams", "FROM-*").option("maxMsgsPerTrigger", per_batch).load()
    columns = ("'INTO.copy' AS subject", "payload", "concat(stream, ':', sequence) AS id")
    write = rows.selectExpr(*columns).writeStream.format("headwater")
    write = write.option("servers", url).option("stream", "INTO").trigger(availableNow=True)
    write = write.option("checkpointLocation", str(folder / "checkpoint"))
    write.start().awaitTermination()


def main(url: str, folder: str, per_batch: str) -> None:
    """Copy in a session of its own; temporary files of Spark are in `folder` as well."""
    settings = {
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    }
    spark = build_session("copying driver", "local[2]", settings)
    copy(spark, url, Path(folder), int(per_batch))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
