"""When and from where a user may connect: daily time windows and source addresses."""

from datetime import datetime, time, timedelta, tzinfo

from headwater.security.claims import TimeRange

DAY = timedelta(days=1)


def source_allowed(blocks: list[str], host: str) -> bool:
    """Whether address `host` lies in one of the CIDR `blocks`; no blocks allow every address.

    A malformed block or address refuses, as it cannot have been meant to admit.
    """
    if not blocks:
        return True
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in ip_network(block, strict=False) for block in blocks)
    except ValueError:
        return False


def open_until(windows: list[TimeRange], location: str, now: float) -> float | None:
    """Unix second until which `now` is inside a daily window, 0 for ever, None when outside.

    Windows are read in time zone `location` (the system's when empty); one whose end is not
    after its start runs past midnight.
    """
    if not windows:
        return 0.0
    try:
        zone = _zone(location)
    except (LookupError, ValueError, OSError):
        return None
    moment = datetime.fromtimestamp(now, zone) if zone else datetime.fromtimestamp(now).astimezone()
    ends = []
    for window in windows:
        try:
            start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
        except ValueError:
            return None
        closing = _closing(moment, start, end)
        if closing is not None:
            ends.append(closing.timestamp())
    return max(ends) if ends else None


def _zone(location: str) -> tzinfo | None:
    """Time zone by IANA name; None is the system's. Raises LookupError, ValueError, OSError."""
    if not location:
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
