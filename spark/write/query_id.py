"""The id of the streaming query that a microbatch belongs to."""

from typing import TYPE_CHECKING

from headwater.spark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def query_of(batch: "DataFrame") -> str:
    """Of a batch that Spark gives to foreachBatch. It stays the same as long as the query's
    checkpoint. Raises SourceError for a DataFrame that is no such batch."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not query:
        raise SourceError("Spark does not say which query this is: use it in foreachBatch")
    return query
