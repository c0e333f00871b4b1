"""What a stream's configuration says about durability (docs/DURABILITY.md).

NATS's `persist_mode: async` asks for `interval`. The metadata keys below say more, and can be
changed by an update: `headwater.durability` is `fsync` or `interval`; `headwater.sync_interval`
(interval) and `headwater.max_delay` (fsync) are Go durations. What is not said is the node's.
"""

from headwater.edge.jetstream.model.errors import invalid_config
from headwater.edge.jetstream.model.models import StreamConfig
from headwater.edge.jetstream.model.times import SECOND, format_duration, parse_duration
from headwater.edge.storage.format.durability import Durability

MODE_KEY = "headwater.durability"
INTERVAL_KEY = "headwater.sync_interval"
DELAY_KEY = "headwater.max_delay"
MODES = ("fsync", "interval")
INTERVAL_RANGE = (SECOND // 1000, 3600 * SECOND)
DELAY_RANGE = (0, SECOND)


def check(config: StreamConfig) -> None:
    """Refuse metadata that says nothing sensible about durability."""
    _read(config)


def durability(config: StreamConfig, node: Durability, sync_interval: float) -> Durability:
    """How a stream is kept. `node` is for streams that say nothing; `sync_interval` (seconds) for
    those that ask for interval without saying how often. Raises JetStreamError."""
    mode, interval_ns, delay_ns = _read(config)
    if not mode:
        mode = "interval" if node.interval else "fsync"
    if mode == "interval":
        seconds = node.seconds if node.interval else sync_interval
        return Durability(True, seconds if interval_ns is None else interval_ns / SECOND)
    seconds = 0.0 if node.interval else node.seconds
    return Durability(False, seconds if delay_ns is None else delay_ns / SECOND)


def _read(config: StreamConfig) -> tuple[str, int | None, int | None]:
    """Mode ("" for the node's), sync interval and longest delay in ns. Raises JetStreamError."""
    said = config.metadata
    mode = said.get(MODE_KEY, "")
    if mode and mode not in MODES:
        raise invalid_config(f"{MODE_KEY} must be fsync or interval")
    interval = _time(said, INTERVAL_KEY, INTERVAL_RANGE)
    delay = _time(said, DELAY_KEY, DELAY_RANGE)
    if config.storage != "file" and (mode or interval is not None or delay is not None):
        raise invalid_config(f"{MODE_KEY} is only supported on file storage")
    if config.persist_mode == "async":
        if mode == "fsync":
            raise invalid_config(f"{MODE_KEY} fsync contradicts async persist mode: remove one")
        mode = "interval"
    if interval is not None and delay is not None:
        raise invalid_config(f"{INTERVAL_KEY} and {DELAY_KEY} exclude each other: remove one")
    if interval is not None and mode == "fsync":
        raise invalid_config(f"{INTERVAL_KEY} requires {MODE_KEY} interval")
    if delay is not None and mode == "interval":
        raise invalid_config(f"{DELAY_KEY} requires {MODE_KEY} fsync")
    if not mode and (interval is not None or delay is not None):
        mode = "interval" if delay is None else "fsync"
    return mode, interval, delay


def _time(said: dict[str, str], key: str, limits: tuple[int, int]) -> int | None:
    """A duration in ns; None when it is not there."""
    text = said.get(key)
    if text is None:
        return None
    least, most = limits
    try:
        found = parse_duration(text)
    except ValueError:
        raise invalid_config(f"{key} must be a duration like 250ms") from None
    if not least <= found <= most:
        span = f"{format_duration(least)} to {format_duration(most)}"
        raise invalid_config(f"{key} must be {span}")
    return found
