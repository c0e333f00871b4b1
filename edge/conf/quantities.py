"""Durations, sizes and addresses as configuration files and flags write them."""

import re
from typing import NamedTuple

_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SIZE_SHIFTS = {"K": 10, "M": 20, "G": 30, "T": 40}

MAX_DURATION = 2**63 / 1e9
"""Seconds in the longest duration, 292 years: 64 bits of nanoseconds."""

MAX_PORT = 65535


class Address(NamedTuple):
    """A host, empty for "any", and a port; -1 is any free port."""

    host: str
    port: int


def parse_duration(text: str) -> float:
    """Seconds of a duration such as "1h15m", "300ms" or "-1.5s". Raises ValueError."""
    body = text[1:] if text[:1] in ("-", "+") else text
    sign = -1.0 if text[:1] == "-" else 1.0
    if body == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(body):
        part = _PART.match(body, position)
        if part is None:
            break
        total += float(part.group(1)) * _UNITS[part.group(2)]
        position = part.end()
    if not body or position < len(body) or total > MAX_DURATION:
        if re.fullmatch(r"(\d+\.?\d*|\.\d+)", body):
            raise ValueError(f"missing unit in duration {text!r}: use one such as 10s or 500ms")
        raise ValueError(f"invalid duration {text!r}: use one such as 10s or 1h30m")
    return sign * total


def parse_storage_size(text: str) -> int:
    """Bytes of a size such as "10G": powers of 1024, and the suffix must be there.

    Empty text is 0. Raises ValueError.
    """
    if not text:
        return 0
    number, suffix = text[:-1], text[-1]
    if not re.fullmatch(r"[+-]?\d{1,18}", number, re.ASCII):
        raise ValueError(f"{text!r} is not a size: use one such as 512M or 1GiB")
    if suffix not in _SIZE_SHIFTS:
        raise ValueError("sizes defined as strings must end in K, M, G, T")
    return int(number) << _SIZE_SHIFTS[suffix]


def parse_address(text: str) -> Address:
    """Host and port of "host:port", ":port" or "[v6]:port". Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        colon = ""
    if not colon:
        raise ValueError(f"could not parse address string {text!r}: use host:port")
    if not re.fullmatch(r"[+-]?\d{1,9}", port, re.ASCII):
        raise ValueError(f"could not parse port {port!r}: use a number")
    return Address(host, int(port))


def format_duration(seconds: float) -> str:
    """Short text of a duration for messages, such as "2m0s" or "1.5s"."""
    if abs(seconds) < 60:
        return f"{seconds:g}s"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}h{minutes}m{rest:g}s" if hours else f"{minutes}m{rest:g}s"


def redact_url(url: str) -> str:
    """`url` without a password, for messages."""
    head, at, tail = url.rpartition("@")
    scheme, slashes, user = head.rpartition("://")
    return f"{scheme}{slashes}{user.partition(':')[0]}:xxxxx@{tail}" if at and ":" in user else url
