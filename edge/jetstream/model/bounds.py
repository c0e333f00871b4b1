"""The numbers that requests may hold: as many bits as the protocol gives each, and no more.

`Signed`, `Unsigned` and `Small` are for the fields of `models`. They are checked when a request is
decoded, before anything is done or kept, so that what is behind them counts on them. Texts of
refusals are those of the protocol's reference decoder.
"""

import re
from typing import Annotated, Any

import msgspec

_MOST = (1 << 63) - 1
_MOST_UNSIGNED = (1 << 64) - 1
_MOST_SMALL = (1 << 31) - 1

Signed = Annotated[int, msgspec.Meta(ge=-_MOST - 1, le=_MOST)]
"""64 bits with a sign; durations are ns."""

Unsigned = Annotated[int, msgspec.Meta(ge=0)]
"""64 bits without a sign: sequences. `find_huge` knows its upper bound, which msgspec cannot."""

SEQUENCE_MAX = _MOST
"""The greatest sequence that a stream may reach; stores refuse what is beyond it."""

Small = Annotated[int, msgspec.Meta(ge=-_MOST_SMALL - 1, le=_MOST_SMALL)]
"""32 bits with a sign."""

SPAN_MAX_NS = 100 * 365 * 86400 * 1_000_000_000
"""The longest time that anything waits, 100 years: added to the time of today it fits 64 bits."""

_UNSIGNED = frozenset({"first_seq", "opt_start_seq", "rate_limit_bps", "seq", "keep", "up_to_seq"})
_DURATIONS = frozenset(
    {
        "max_age", "duplicate_window", "subject_delete_marker_ttl", "inactive_threshold",
        "ack_wait", "backoff", "max_expires", "expires", "idle_heartbeat", "priority_timeout",
    }
)
_INTS = frozenset(
    {
        "max_consumers", "num_replicas", "max_deliver", "max_waiting", "max_ack_pending",
        "max_batch", "batch", "offset", "chunk_size", "window_size", "priority",
    }
)
# A text, which stays, or a number beyond what a double holds.
_VAST = re.compile(rb'"(?:[^"\\]|\\.)*"?|(?<![\d.])-?\d[\d.]*[eE]\+?\d{3,}', re.DOTALL)
_VAST_EXPONENT = 308
# A number that may be beyond 64 bits has so many digits.
_LONG = re.compile(rb"\d{19}")
_PATH = re.compile(r"Expected `int` [<>]=? -?\d+ - at `\$\.?(.*)`")


def decimal(text: bytes, most: int) -> int | None:
    """The number that a peer wrote in decimal digits, `most` when it is larger; None when it is
    none. Python refuses to read thousands of digits, so they are counted first."""
    if not text.isdigit():
        return None
    digits = text.lstrip(b"0")
    return min(int(digits or b"0"), most) if len(digits) <= len(str(most)) else most


def span(ns: int) -> int:
    """A duration as it is waited for."""
    return min(ns, SPAN_MAX_NS)


def kind_of(field: str) -> str:
    """What the reference decoder calls the type of a field with a number."""
    name = field.rstrip("0123456789").rstrip(".").rpartition(".")[2]
    if name in _UNSIGNED:
        return "uint64"
    if name in _DURATIONS:
        return "time.Duration"
    if name in _INTS or (name == "max_bytes" and field != name):
        return "int"
    return "int32" if name == "max_msg_size" else "int64"


def without_vast(payload: bytes) -> bytes:
    """A body with another number of no integer's type for each that no double holds."""
    return _VAST.sub(_smaller, payload)


def _smaller(found: re.Match[bytes]) -> bytes:
    number = found[0]
    if number[:1] == b'"':
        return number
    exponent = re.split(rb"[eE]\+?", number)[1]
    return b"1e300" if (decimal(exponent, 1 << 20) or 0) >= _VAST_EXPONENT else number


def find_huge(raw: Any, payload: bytes) -> tuple[str, int] | None:
    """Path and value of a number in a decoded body that no 64 bits hold; None without."""
    return _huge(raw, "") if _LONG.search(payload) else None


def _huge(value: Any, path: str) -> tuple[str, int] | None:
    if isinstance(value, int):
        return None if -_MOST - 1 <= value <= _MOST_UNSIGNED else (path, value)
    found = None
    if isinstance(value, dict):
        for key, item in value.items():
            found = found or _huge(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            found = found or _huge(item, path)
    return found


def refused(text: str, raw: Any) -> tuple[str, int] | None:
    """Path and value that a msgspec error about a bound is about; None when it is another one."""
    found = _PATH.search(text)
    if found is None:
        return None
    names = re.sub(r"\[.*?\]", "", found[1]).split(".")
    for name in names:
        raw = raw.get(name) if isinstance(raw, dict) else None
    if isinstance(raw, list):
        at = next((i for i, item in enumerate(raw) if not -_MOST - 1 <= item <= _MOST), 0)
        names.append(str(at))
        raw = raw[at]
    return ".".join(names), int(raw or 0)
