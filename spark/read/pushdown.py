"""Filters that Spark hands over: which sequences, times and subjects need to be read at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from headwater.spark.options import SourceOptions
from headwater.spark.read.blocks import FILTERS_MAX
from headwater.spark.read.planning import SequenceRange, plan_between, sequence_at
from headwater.spark.wire.connection import Connection

_EQUAL = (EqualTo, EqualNullSafe)
_BOUNDS = (*_EQUAL, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@dataclass(frozen=True)
class Narrowing:
    """What is left to read: sequences `first` to `last`, times from `since` to before `until`
    (ns since 1970), `subjects` as filters; None is no bound."""

    first: int | None = None
    last: int | None = None
    since: int | None = None
    until: int | None = None
    subjects: tuple[str, ...] | None = None


def narrow(
    filters: Iterable[Filter], meta: dict[str, str], options: SourceOptions
) -> tuple[Narrowing, list[Filter]]:
    """What `filters` leave to read, and those that Spark must still apply.

    `meta` maps column names to kinds. Bounds on the sequence are met exactly, so Spark need not
    look again. Times and subjects only save reading: Spark looks at each row.
    """
    found, rest = Narrowing(), []
    for one in filters:
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        kind = meta.get(attribute[0]) if len(attribute) == 1 else None
        value = getattr(one, "value", None)
        if kind == "sequence" and isinstance(one, _BOUNDS) and isinstance(value, int):
            low, high = _span(one, value)
            found = replace(found, first=_most(found.first, low), last=_least(found.last, high))
            continue
        rest.append(one)
        if kind == "timestamp" and isinstance(one, _BOUNDS) and isinstance(value, datetime):
            low, high = _span(one, _micros(value))
            since = None if low is None else low * 1000
            until = None if high is None else (high + 1) * 1000
            found = replace(
                found, since=_most(found.since, since), until=_least(found.until, until)
            )
        elif kind == "subject" and found.subjects is None:
            found = replace(found, subjects=_subjects(one, value, options))
    return found, rest


def _span(one: Filter, value: int) -> tuple[int | None, int | None]:
    """The least and the greatest number that pass."""
    if isinstance(one, _EQUAL):
        return value, value
    if isinstance(one, (GreaterThan, GreaterThanOrEqual)):
        return value + isinstance(one, GreaterThan), None
    return None, value - isinstance(one, LessThan)


def _most(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)


def _least(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


def _micros(moment: datetime) -> int:
    from datetime import UTC, timedelta

    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _subjects(one: Filter, value: Any, options: SourceOptions) -> tuple[str, ...] | None:
    """Subject filters that let pass all that `one` does; None when they would save nothing.

    Where the options have filters of their own, those stand: two sets cannot be joined.
    """
    if options.filters:
        return None
    if isinstance(one, StringStartsWith):
        whole = str(value).rpartition(".")[0]
        return (f"{whole}.>",) if whole and _plain(whole) else None
    wanted: Sequence[Any] = ()
    if isinstance(one, _EQUAL):
        wanted = (value,)
    elif isinstance(one, In):
        wanted = tuple(dict.fromkeys(value))
    if not 0 < len(wanted) <= FILTERS_MAX:
        return None
    return tuple(wanted) if all(isinstance(text, str) and _plain(text) for text in wanted) else None


def _plain(subject: str) -> bool:
    tokens = subject.split(".")
    return not ("" in tokens or {"*", ">"} & set(tokens) or set(subject) & set(" \t\r\n"))


def plan_narrowed(
    options: SourceOptions, ranges: Iterable[SequenceRange], narrowing: Narrowing
) -> tuple[SequenceRange, ...]:
    """The part of planned `ranges` that has to be read. Raises like `plan_between`."""
    ends: dict[str, tuple[str, int, int]] = {}
    for work in ranges:
        _, start, _ = ends.get(work.stream, ("", work.start, 0))
        ends[work.stream] = (work.incarnation, start, work.end)
    if narrowing.subjects is not None:
        options = replace(options, filters=narrowing.subjects)
    found: list[SequenceRange] = []
    with Connection(options.endpoint) as connection:
        for stream, (incarnation, start, end) in ends.items():
            start = max(start, narrowing.first or 0)
            end = end if narrowing.last is None else min(end, narrowing.last)
            if narrowing.since is not None:
                start = max(start, sequence_at(connection, options, stream, narrowing.since))
            if narrowing.until is not None:
                end = min(end, sequence_at(connection, options, stream, narrowing.until) - 1)
            if start <= end:
                one = replace(options, allow_expired=options.of(stream).may_expire)
                found += plan_between(connection, one, stream, incarnation, start, end)
    return tuple(found)
