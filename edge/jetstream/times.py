"""Times and durations as JetStream writes them: RFC 3339 with nanoseconds, Go duration texts."""

import re
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"
# The zero time of the wire in ns since the Unix epoch.
ZERO_NS = -62135596800 * SECOND

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,}))?([Zz]|[+-]\d\d:\d\d)"
)
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}


def format_time(ns: int) -> str:
    """`ns` since the Unix epoch as RFC 3339 in UTC; trailing zeros of the fraction are dropped."""
    seconds, fraction = divmod(ns, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if len(text) < 19:
        text = text.rjust(19, "0")
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int:
    """RFC 3339 text as ns since the Unix epoch. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f'parsing time "{text}" as RFC 3339 failed')
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    moment = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    seconds = int((moment - _EPOCH) // timedelta(seconds=1))
    zone = found[8]
    if zone not in "Zz":
        shift = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        seconds -= shift if zone[0] == "+" else -shift
    fraction = int((found[7] or "0")[:9].ljust(9, "0"))
    return seconds * SECOND + fraction


def parse_duration(text: str) -> int:
    """A Go duration (`1h30m`, `250ms`, `-2s`) in ns. Raises ValueError."""
    body = text.lstrip("+-") if text[:1] in ("+", "-") else text
    sign = -1 if text.startswith("-") else 1
    if body == "0":
        return 0
    total = 0.0
    exact = 0
    end = 0
    for part in _PART.finditer(body):
        if part.start() != end:
            break
        end = part.end()
        number, unit = part[1], _UNITS[part[2]]
        if "." in number:
            total += float(number) * unit
        else:
            exact += int(number) * unit
    if not body or end != len(body):
        raise ValueError(f'time: invalid duration "{text}"')
    return sign * (exact + round(total))


def format_duration(ns: int) -> str:
    """`ns` in the manner of Go: `1m0s`, `1.5s`, `250ms`, `0s`."""
    if ns == 0:
        return "0s"
    sign = "-" if ns < 0 else ""
    ns = abs(ns)
    if ns < SECOND:
        for unit, size in (("ms", 1_000_000), ("\u00b5s", 1_000), ("ns", 1)):
            if ns >= size:
                return f"{sign}{_decimal(ns, size)}{unit}"
    minutes, rest = divmod(ns, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{text}"
    if minutes:
        return f"{sign}{minutes}m{text}"
    return sign + text


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
