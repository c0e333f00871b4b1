"""When and from where a user may connect: daily time windows and source addresses."""

import re
from datetime import datetime, time, timedelta, tzinfo
from typing import TYPE_CHECKING

from headwater.security.claims import TimeRange

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network

DAY = timedelta(days=1)

_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?", re.ASCII)
_BLOCK = re.compile(r"[0-9a-fA-F.:]{2,45}/\d{1,3}", re.ASCII)


def source_allowed(blocks: list[str], host: str) -> bool:
    """Whether address `host` lies in one of the CIDR `blocks`; no blocks allow every address.

    A malformed block or address refuses, as it cannot have been meant to admit.
    """
    if not blocks:
        return True
    from ipaddress import ip_address

    found = [source_block(block) for block in blocks]
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return all(found) and any(block is not None and mapped in block for block in found)


def source_block(text: str) -> "IPv4Network | IPv6Network | None":
    """The addresses of a block in CIDR notation (`10.0.0.0/8`); None when it is none."""
    from ipaddress import ip_network

    if not _BLOCK.fullmatch(text):
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def clock_time(text: str) -> time | None:
    """The time of the day that "HH:MM:SS" says; None when it says none."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds, part = found.groups()
    try:
        return time(int(hours), int(minutes), int(seconds), int((part or "0").ljust(6, "0")[:6]))
    except ValueError:
        return None


def open_until(windows: list[TimeRange], location: str, now: float) -> float | None:
    """Unix second until which `now` is inside a daily window, 0 for ever, None when outside.

    Windows are read in time zone `location` (the system's when empty); one whose end is not
    after its start runs past midnight.
    """
    if not windows:
        return 0.0
    try:
        zone = zone_of(location)
    except (LookupError, ValueError, OSError):
        return None
    moment = datetime.fromtimestamp(now, zone) if zone else datetime.fromtimestamp(now).astimezone()
    ends = []
    for window in windows:
        start, end = clock_time(window.start), clock_time(window.end)
        if start is None or end is None:
            return None
        closing = _closing(moment, start, end)
        if closing is not None:
            ends.append(closing.timestamp())
    return max(ends) if ends else None


def zone_of(location: str) -> tzinfo | None:
    """Time zone by IANA name; None is the system's. Raises LookupError, ValueError, OSError."""
    if location in ("", "Local"):
        return None
    from zoneinfo import ZoneInfo

    return ZoneInfo(location)


def _closing(moment: datetime, start: time, end: time) -> datetime | None:
    """When the window that contains `moment` closes, or None when none does."""
    opens = datetime.combine(moment.date(), start, moment.tzinfo)
    closes = datetime.combine(moment.date(), end, moment.tzinfo)
    if closes > opens:
        return closes if opens <= moment < closes else None
    if moment >= opens:
        return closes + DAY
    return closes if moment < closes else None
