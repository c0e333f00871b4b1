"""Events: when something was heard, by whom. What jobs about silence and gaps read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.spark.errors import OptionError
from headwater.spark.jobs.job import load
from headwater.spark.read.account import ReadAccount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Options of the source that jobs which read events set.
OURS = frozenset(
    ("columns", "metadataprefix", "valueformat", "valueschema", "headers", "mode", "account")
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TIMES = ("t_us", "ts")


@dataclass(frozen=True)
class EventKind:
    """What an event is of, when it was, and its count.

    `by` is "subject", "token:N" for the N-th token of the subject from 1, or "json:FIELD".
    With `message_time` an event's time is its JSON field `t_us` (microseconds since 1970) or
    else `ts` (RFC 3339); without it, where both are missing or are later than that, the time at
    which the stream took the message in. `counter` is the JSON field of a whole number, `value`
    that of any number; "" for none.
    """

    by: str = "subject"
    message_time: bool = False
    counter: str = ""
    value: str = ""

    def __post_init__(self) -> None:
        """Raise OptionError for what cannot be read."""
        kind, _, rest = self.by.partition(":")
        token = kind == "token" and rest.isdigit() and 1 <= int(rest) <= 255
        field = kind == "json" and _NAME.fullmatch(rest) and rest not in _TIMES
        if not (self.by == "subject" or token or field):
            raise OptionError(f"--by {self.by!r} is not subject, token:N (from 1) or json:FIELD")
        for name in filter(None, (self.counter, self.value)):
            if not _NAME.fullmatch(name) or name in _TIMES or self.by == f"json:{name}":
                raise OptionError(f"{name!r} cannot be the JSON field of a number")

    @property
    def schema(self) -> str:
        """The fields to decode, as DDL; "" when payloads are not needed."""
        fields = ["t_us long", "ts timestamp"] if self.message_time else []
        if self.by.startswith("json:"):
            fields.append(f"{self.by.partition(':')[2]} string")
        if self.counter:
            fields.append(f"{self.counter} long")
        if self.value:
            fields.append(f"{self.value} double")
        return ", ".join(fields)


def event_options(kind: EventKind) -> dict[str, str]:
    """Options of the source that give what `event_columns` needs."""
    more = {"columns": "stream,subject,sequence,timestamp", "metadataPrefix": "_"}
    if kind.schema:
        more |= {"valueFormat": "json", "valueSchema": kind.schema}
    return more


def read_events(
    spark: "SparkSession", source: Mapping[str, str], kind: EventKind, account: ReadAccount
) -> "DataFrame":
    """The events of a source; see `event_columns`."""
    return event_columns(load(spark, source, **event_options(kind), **account.options), kind)


def event_columns(frame: "DataFrame", kind: EventKind) -> "DataFrame":
    """Columns stream, sequence, key, t_us, counter, value; `key` is null for messages without
    one. What tells no time, or one in no year from 1 to 9999, has that of its arrival. So has what
    tells a later one: by a clock that is ahead, all other devices would be silent until then."""
    from pyspark.sql import functions as f

    from headwater.spark.jobs.window_source import FIRST_US

    way, _, rest = kind.by.partition(":")
    key = f.col("_subject")
    if way == "token":
        key = f.get(f.split("_subject", r"\."), int(rest) - 1)
    elif way == "json":
        key = f.col(rest)
    moment = f.unix_micros("_timestamp")
    if kind.message_time:
        told = f.coalesce("t_us", f.unix_micros("ts"))
        moment = f.when(told.between(FIRST_US, moment), told).otherwise(moment)
    return frame.select(
        f.col("_stream").alias("stream"),
        f.col("_sequence").alias("sequence"),
        key.alias("key"),
        moment.alias("t_us"),
        (f.col(kind.counter) if kind.counter else f.lit(None).cast("long")).alias("counter"),
        (f.col(kind.value) if kind.value else f.lit(None).cast("double")).alias("value"),
    )


def silences(events: "DataFrame", longer: int) -> "DataFrame":
    """Times without an event of a key for more than `longer` microseconds.

    Columns key, from_us (the last event before), until_us (the next one).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    before = f.lag("t_us").over(Window.partitionBy("key").orderBy("t_us", "stream", "sequence"))
    pairs = events.select("key", before.alias("from_us"), f.col("t_us").alias("until_us"))
    return pairs.where(f.col("until_us") - f.col("from_us") > longer)
