"""Windows of telemetry in Spark: from messages to parts, to whole windows, to rows as they are
written. What a reader adds up itself comes from `window_source`."""

from typing import TYPE_CHECKING

from headwater.spark.jobs.window_source import FIRST_US, LAST_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("device", "metric", "window_us")


def telemetry(frame: "DataFrame") -> "DataFrame":
    """Columns that rollups and their proof need; rows that are no telemetry have no device.

    A corrupt message without a time may have had one, which cannot be read: it must not count
    at the time of its arrival. Neither must one whose time is in no year from 1 to 9999.
    """
    from pyspark.sql import functions as f

    whole = f.expr("device IS NOT NULL AND metric IS NOT NULL AND value IS NOT NULL")
    whole &= f.expr("_corrupt_record IS NULL OR t_us IS NOT NULL OR ts IS NOT NULL")
    moment = f.coalesce("t_us", f.unix_micros("ts"), f.unix_micros("_timestamp"))
    whole &= moment.between(FIRST_US, LAST_US)
    return frame.select(
        f.col("_stream").alias("stream"),
        f.col("_sequence").alias("sequence"),
        f.when(whole, f.col("device")).alias("device"),
        "metric",
        moment.alias("t_us"),
        "value",
        "id",
        f.unix_micros("_timestamp").alias("arrived_us"),
    )


def partial(rows: "DataFrame", micros: int) -> "DataFrame":
    """One row per device, metric and window of `micros`: what can be added up with others.

    `newest` is {t_us, sequence, value} of the newest message. `heard_us` is the newest time, of
    which none is later than the message's arrival. What is no telemetry is in one row without a
    device.
    """
    from pyspark.sql import functions as f

    known = f.col("device").isNotNull()
    start = f.col("t_us") - f.expr(f"pmod(t_us, {micros})")
    keys = f.col("device"), f.when(known, f.col("metric")), f.when(known, start)
    grouped = rows.groupBy(*(key.alias(name) for key, name in zip(keys, _KEYS, strict=True)))
    return grouped.agg(
        f.count("*").alias("count"),
        f.min("value").alias("min"),
        f.max("value").alias("max"),
        f.sum("value").alias("sum"),
        f.max(f.struct("t_us", "sequence", "value")).alias("newest"),
        f.min("sequence").alias("first_seq"),
        f.max("sequence").alias("last_seq"),
        f.max(f.least("t_us", "arrived_us")).alias("heard_us"),
    )


def merge(parts: "DataFrame") -> "DataFrame":
    """One row for each device, metric and window of rows that are parts of them."""
    from pyspark.sql import functions as f

    return parts.groupBy(*_KEYS).agg(
        f.sum("count").alias("count"),
        f.min("min").alias("min"),
        f.max("max").alias("max"),
        f.sum("sum").alias("sum"),
        f.max("newest").alias("newest"),
        f.min("first_seq").alias("first_seq"),
        f.max("last_seq").alias("last_seq"),
    )


def finished(parts: "DataFrame", micros: int) -> "DataFrame":
    """The rows as they are written, sorted within each file."""
    from pyspark.sql import functions as f

    return parts.select(
        "device",
        "metric",
        f.timestamp_micros("window_us").alias("window_start"),
        f.timestamp_micros(f.col("window_us") + f.lit(micros)).alias("window_end"),
        *("count", "min", "max"),
        (f.col("sum") / f.col("count")).alias("avg"),
        "sum",
        f.col("newest.value").alias("last"),
        *("first_seq", "last_seq"),
    ).sortWithinPartitions("device", "metric", "window_start")
