"""Times and durations as JetStream writes them: RFC 3339 with nanoseconds, Go duration texts."""

import re
from datetime import UTC, datetime, timedelta

from headwater.edge.wire.time_text import time_text

SECOND = 1_000_000_000
ZERO_TIME = "0001-01-01T00:00:00Z"
# The zero time of the wire in ns since the Unix epoch.
ZERO_NS = -62135596800 * SECOND
# What 64 bits hold, in the years 1677 to 2262.
_LEAST_NS, _MOST_NS = -(1 << 63), (1 << 63) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?"
    r"(Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
)
_ESCAPED = {0x22: '\\"', 0x5C: "\\\\"}
_LAYOUT_TEXT = "2006-01-02T15:04:05Z07:00"
_TWO = re.compile(r"(\d\d)", re.ASCII)
_LAYOUT: list[tuple[str, re.Pattern[str], str, int, int]] = [
    ("2006", re.compile(r"(\d{4})", re.ASCII), "", 0, 0),
    ("-", re.compile("-"), "", 0, 0),
    ("01", _TWO, "month", 1, 12),
    ("-", re.compile("-"), "", 0, 0),
    ("02", _TWO, "", 0, 0),
    ("T", re.compile("T"), "", 0, 0),
    ("15", re.compile(r"(\d\d?)", re.ASCII), "hour", 0, 23),
    (":", re.compile(":"), "", 0, 0),
    ("04", _TWO, "minute", 0, 59),
    (":", re.compile(":"), "", 0, 0),
    ("05", re.compile(r"(\d\d)(?:[.,]\d+)?", re.ASCII), "second", 0, 59),
    ("Z07:00", re.compile(r"(?=Z|[+-]\d\d:\d\d)", re.ASCII), "", 0, 0),
    ("Z07:00", re.compile(r"Z|[+-](\d\d)(?=:)", re.ASCII), "time zone offset hour", 0, 23),
    ("Z07:00", re.compile(r":(\d\d)|", re.ASCII), "time zone offset minute", 0, 59),
]
"""What `time.Parse` of Go reads one after the other: how its layout has it, what fits, and for a
number with a range its name and the range."""

# The calendar of the wire has a year 0, as long as the year 4; that of Python begins with 1.
_FOUR_YEARS_S = (4 * 365 + 1) * 86400
DURATION_CHARS_MAX = 200
"""A longer text is no duration: matching numbers takes the square of their digits."""
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
    """`ns` since the Unix epoch as RFC 3339 in UTC, of the years 0 to 9999; trailing zeros of the
    fraction are dropped."""
    if _LEAST_NS <= ns <= _MOST_NS:
        return time_text(ns).decode()
    seconds, fraction = divmod(ns, SECOND)
    if ns < ZERO_NS:
        return "0000" + format_time(ns + _FOUR_YEARS_S * SECOND)[4:]
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if len(text) < 19:
        text = text.rjust(19, "0")
    if fraction:
        text += "." + f"{fraction:09d}".rstrip("0")
    return text + "Z"


def parse_time(text: str) -> int:
    """RFC 3339 text as ns since the Unix epoch, or the nearest that 64 bits hold. Raises
    ValueError."""
    return held(exact_time(text))


def held(ns: int) -> int:
    """The number next to `ns` that 64 bits hold."""
    return min(max(ns, _LEAST_NS), _MOST_NS)


def exact_time(text: str) -> int:
    """RFC 3339 text of the years 0 to 9999 as ns since the Unix epoch. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(_refusal(text))
    year, month, day, hour, minute, second = (int(found[i]) for i in range(1, 7))
    try:
        moment = datetime(year or 4, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise ValueError(_refusal(text)) from None
    seconds = int((moment - _EPOCH) // timedelta(seconds=1))
    if not year:
        seconds -= _FOUR_YEARS_S
    zone = found[8]
    if zone != "Z":
        shift = int(zone[1:3]) * 3600 + int(zone[4:6]) * 60
        seconds -= shift if zone[0] == "+" else -shift
    fraction = int((found[7] or "0")[:9].ljust(9, "0"))
    return seconds * SECOND + fraction


def _refusal(text: str) -> str:
    """Why `text` is no time, as Go's `time.Parse` says it."""
    intro, rest = f'parsing time "{_quoted(text)}"', text
    for layout, pattern, name, least, most in _LAYOUT:
        found = pattern.match(rest)
        if found is None:
            return f'{intro} as "{_LAYOUT_TEXT}": cannot parse "{_quoted(rest)}" as "{layout}"'
        if name and found[1] and not least <= int(found[1]) <= most:
            return f"{intro}: {name} out of range"
        rest = rest[found.end() :]
    return f'{intro}: extra text: "{_quoted(rest)}"' if rest else f"{intro}: day out of range"


def _quoted(text: str) -> str:
    """`text` between quotation marks, as the errors of `time.Parse` have it."""
    shown = []
    for byte in text.encode("utf-8", "replace"):
        plain = 0x20 <= byte < 0x7F
        shown.append(_ESCAPED.get(byte, chr(byte)) if plain else f"\\x{byte:02x}")
    return "".join(shown)


def canonical_time(text: str) -> str:
    """RFC 3339 text as answers write it: nine digits at most, no zeros at their end, Z for no
    offset. Raises ValueError."""
    exact_time(text)
    if text[12] == ":":
        text = f"{text[:11]}0{text[11:]}"
    digits = re.match(r"[\d]+", text[20:])
    fraction = digits[0][:9].rstrip("0") if digits and text[19] in ".," else ""
    zone = "Z" if text.endswith(("Z", "+00:00", "-00:00")) else text[-6:]
    return text[:19] + ("." + fraction if fraction else "") + zone


def parse_duration(text: str) -> int:
    """A Go duration (`1h30m`, `250ms`, `-2s`) in ns. Raises ValueError."""
    if len(text) > DURATION_CHARS_MAX:
        raise ValueError("time: invalid duration, it is too long")
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
    if not body or end != len(body) or exact + total > _MOST_NS:
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
