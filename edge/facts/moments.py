"""Times and durations in the notation that NATS tools read (Go's RFC 3339 and durations)."""

import time

SECOND_NS = 1_000_000_000
MINUTE_S = 60
HOUR_S = 60 * MINUTE_S
DAY_S = 24 * HOUR_S
YEAR_S = 365 * DAY_S


def rfc3339(moment_ns: int) -> str:
    """A time given in nanoseconds since the epoch, in UTC, without trailing zeros."""
    seconds, rest = divmod(moment_ns, SECOND_NS)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{rest:09d}".rstrip("0").rstrip(".") + "Z" if rest else text + "Z"


def nanoseconds(seconds: float) -> int:
    """Seconds as whole nanoseconds."""
    return round(seconds * SECOND_NS)


def uptime(seconds: float) -> str:
    """A span as monitoring shows it: `3s`, `2m5s`, `1h0m5s`, `3d2h1m5s`, `1y3d2h1m5s`."""
    left = max(0, int(seconds))
    parts: list[str] = []
    for unit, size in (("y", YEAR_S), ("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S)):
        count, left = divmod(left, size)
        if parts or count:
            parts.append(f"{count}{unit}")
    parts.append(f"{left}s")
    return "".join(parts)


def duration(span_ns: int) -> str:
    """A short span in the largest unit below one minute that fits: `487µs`, `1.03ms`, `2s`."""
    for unit, size in (("s", SECOND_NS), ("ms", 1_000_000), ("µs", 1_000)):
        if span_ns >= size:
            whole, rest = divmod(span_ns, size)
            digits = len(str(size)) - 1
            fraction = f".{rest:0{digits}d}".rstrip("0").rstrip(".")
            return f"{whole}{fraction}{unit}"
    return f"{span_ns}ns" if span_ns else "0s"
