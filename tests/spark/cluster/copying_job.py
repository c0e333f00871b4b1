"""A driver that copies a stream into another one, in microbatches or in one batch.

Arguments: `stream` or `batch`, a folder for the checkpoint, JSON of the options of source and of
target.
"""

import json
import sys
from pathlib import Path


def main(how: str, folder: str, source: str, target: str) -> None:
    from pyspark.sql import SparkSession

    from headwater.spark.source import HeadwaterSource

    spark = SparkSession.builder.appName("copying").getOrCreate()
    spark.dataSource.register(HeadwaterSource)
    reader = spark.readStream if how == "stream" else spark.read
    rows = reader.format("headwater").options(**json.loads(source)).load()
    rows = rows.selectExpr("'T.copy' AS subject", "payload", "string(sequence) AS id")
    options = json.loads(target)
    if how == "stream":
        options["checkpointLocation"] = str(Path(folder, "checkpoint"))
        write = rows.writeStream.format("headwater").options(**options)
        write.trigger(availableNow=True).start().awaitTermination()
    else:
        rows.write.format("headwater").options(**options, writeId="copy").mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
