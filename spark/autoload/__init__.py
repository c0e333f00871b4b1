"""Found by Spark itself: top-level modules named `pyspark_*` with a `DefaultSource`."""

from headwater.spark.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
