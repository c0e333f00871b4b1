"""Schedules of messages (ADR-51): `@at`, `@every`, `@daily` and the like, and cron patterns.

A cron pattern has six fields: second, minute, hour, day of month, month and day of week. A field is
a list of numbers, names, ranges and steps. Days match when both day fields do, or, if neither is a
star, when one of them does.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from headwater.edge.jetstream.model.bounds import decimal
from headwater.edge.jetstream.model.times import SECOND, parse_duration, parse_time

YEARS_MAX = 5
KEPT = 256
KEPT_CHARS = 100
"""The meaning of so many texts is kept, if they are no longer: many schedules have the same one."""
NUMBER_MAX = 1 << 31
"""What is as large is no number of an expression."""

ALIASES = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleError(ValueError):
    """A pattern that is no schedule, or one that never comes."""


def next_time(pattern: str, zone: tzinfo | None, base_ns: int, now_ns: int) -> tuple[int, bool]:
    """When a schedule last set at `base_ns` is due (ns), and whether it repeats.

    What was missed while nobody looked is made up for once. Raises ScheduleError.
    """
    if pattern.startswith(("@at ", "@every ")) and zone is not None:
        raise ScheduleError("time zones are for cron patterns")
    if pattern.startswith("@at "):
        return (_moment if len(pattern) <= KEPT_CHARS else moment)(pattern[4:]), False
    if pattern.startswith("@every "):
        return next_interval(pattern[7:], base_ns, now_ns), True
    fields = (_fields if len(pattern) <= KEPT_CHARS else Fields)(ALIASES.get(pattern, pattern))
    due = fields.after(base_ns, zone or UTC)
    if due < now_ns:
        due = fields.after(now_ns, zone or UTC)
    return due, True


def moment(text: str) -> int:
    """The time of `@at`. Raises ScheduleError."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise ScheduleError(str(error)) from None


def next_interval(text: str, base_ns: int, now_ns: int) -> int:
    """When `@every` is due, on whole seconds. Raises ScheduleError."""
    try:
        every = parse_duration(text)
    except ValueError as error:
        raise ScheduleError(str(error)) from None
    if every < SECOND:
        raise ScheduleError("interval is below a second")
    due = rounded(base_ns) + every
    return due if due >= now_ns else rounded(now_ns) + every


def rounded(ns: int) -> int:
    return (ns + SECOND // 2) // SECOND * SECOND


def zone_named(name: str, now_ns: int) -> tzinfo:
    """A time zone by its IANA name, `UTC` or `Local` (as it is now). Raises ScheduleError."""
    from zoneinfo import ZoneInfo

    if name == "Local":
        local = datetime.fromtimestamp(now_ns / 1e9).astimezone().tzinfo
        return local if local is not None else UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ScheduleError(f"unknown time zone {name}") from None


class Fields:
    """A parsed cron pattern."""

    def __init__(self, pattern: str) -> None:
        fields = pattern.split()
        if len(fields) != 6:
            raise ScheduleError(f"pattern requires 6 fields, got {len(fields)}")
        self.seconds = numbers(fields[0], 0, 59)
        self.minutes = numbers(fields[1], 0, 59)
        self.hours = numbers(fields[2], 0, 23)
        self.month_days = set(numbers(fields[3], 1, 31))
        self.months = set(numbers(fields[4], 1, 12, MONTHS))
        self.week_days = set(numbers(fields[5], 0, 6, DAYS, -1))
        self.both_days = is_star(fields[3]) or is_star(fields[5])

    def after(self, ns: int, zone: tzinfo) -> int:
        """The first match after `ns`, in ns. Raises ScheduleError when none comes in years."""
        start = _EPOCH + timedelta(seconds=ns // SECOND + 1)
        local = start.astimezone(zone)
        day = local.date()
        last = day.replace(year=day.year + YEARS_MAX, day=1)
        while day <= last:
            if self.has_day(day):
                found = self.in_day(day, start, zone)
                if found is not None:
                    return int((found - _EPOCH) // timedelta(seconds=1)) * SECOND
            day += timedelta(days=1)
        raise ScheduleError("pattern exceeds maximum range")

    def has_day(self, day: date) -> bool:
        """Whether a day matches."""
        if day.month not in self.months:
            return False
        by_month = day.day in self.month_days
        by_week = (day.weekday() + 1) % 7 in self.week_days
        return by_month and by_week if self.both_days else by_month or by_week

    def in_day(self, day: date, start: datetime, zone: tzinfo) -> datetime | None:
        """The first match of a day at or after `start`; None when there is none left."""
        for hour in self.hours:
            edge = datetime(day.year, day.month, day.day, hour, 59, 59, tzinfo=zone)
            if edge.astimezone(UTC) < start:
                continue
            for minute in self.minutes:
                edge = datetime(day.year, day.month, day.day, hour, minute, 59, tzinfo=zone)
                if edge.astimezone(UTC) < start:
                    continue
                for second in self.seconds:
                    local = datetime(
                        day.year, day.month, day.day, hour, minute, second, tzinfo=zone
                    )
                    found = local.astimezone(UTC)
                    # A local time that daylight saving leaves out does not come back the same.
                    if found >= start and found.astimezone(zone).hour == hour:
                        return found
        return None


def is_star(field: str) -> bool:
    """Whether a field leaves its value free."""
    return any(part.split("/")[0] in ("*", "?") and stepless(part) for part in field.split(","))


def stepless(part: str) -> bool:
    return "/" not in part or part.endswith("/1")


def numbers(
    field: str, low: int, high: int, names: tuple[str, ...] = (), shift: int = 0
) -> list[int]:
    """The numbers that a field stands for, ascending. Raises ScheduleError."""
    found: set[int] = set()
    for part in field.split(","):
        if part:
            found.update(part_numbers(part, low, high, names, shift))
    return sorted(found)


def part_numbers(part: str, low: int, high: int, names: tuple[str, ...], shift: int) -> range:
    """One number, range or step of a field."""
    span, slash, step_text = part.partition("/")
    first, dash, last = span.partition("-")
    if first in ("*", "?"):
        start, end = low, high
    else:
        start = number(first, names, shift)
        end = number(last, names, shift) if dash else start
        if slash and not dash:
            end = high
    step = number(step_text, (), 0) if slash else 1
    if start < low or end > high or start > end or step < 1:
        raise ScheduleError(f"bad range: {part}")
    return range(start, end + 1, step)


def number(text: str, names: tuple[str, ...], shift: int) -> int:
    """A number, or the number of a name: the first is 1 plus `shift`."""
    if text.lower() in names:
        return names.index(text.lower()) + 1 + shift
    found = decimal(text.encode(), NUMBER_MAX) if text.isascii() else None
    if found is None or found == NUMBER_MAX:
        raise ScheduleError(f"failed to parse int from {text}")
    return found


_moment = lru_cache(KEPT)(moment)
_fields = lru_cache(KEPT)(Fields)
