"""What a consumer's configuration means to it, and what it does seldom enough to be interpreted."""

from typing import Any

from headwater.edge.jetstream.model.bounds import span
from headwater.edge.jetstream.model.times import SECOND, parse_time
from headwater.edge.jetstream.progress import consumer_events as events
from headwater.edge.ports.draws import draw_text
from headwater.edge.ports.ports import Random

ACK_POLICIES = {"none": 0, "all": 1, "explicit": 2, "flow_control": 3}
POLICIES = {"": 0, "none": 0, "overflow": 1, "pinned_client": 2, "prioritized": 3}

# An ephemeral consumer is deleted when nobody has used it for this long.
EPHEMERAL_NS = 5 * SECOND
# Spread, so that a client that comes back after its link was down is not raced by the timer, and
# many consumers that were left at once do not end at once.
_JITTER_NS = (SECOND // 10, SECOND)


def sample_percent(config: Any) -> int:
    """Percentage of acks that are reported."""
    text = config.sample_freq.removesuffix("%")
    return min(int(text), 100) if text else 0


def patterns(config: Any) -> tuple[bytes, ...]:
    """Subject patterns that the consumer wants; empty for everything."""
    found = config.filter_subjects or ([config.filter_subject] if config.filter_subject else [])
    return () if found == [">"] else tuple(subject.encode() for subject in found)


def threshold(config: Any, current: int, chance: Random) -> int:
    """ns without use after which the consumer is deleted, 0 for never; `current` is kept if apt."""
    base: int = span(config.inactive_threshold)
    low, high = _JITTER_NS
    if base <= 0:
        return 0
    if config.deliver_subject:
        return base
    if base + low <= current <= base + high:
        return current
    return base + low + chance.below(high - low + 1)


def pause_end(config: Any) -> int:
    """Wall clock ns at which a pause ends, 0 without one."""
    return max(parse_time(config.pause_until), 0) if config.pause_until else 0


def is_replicated(consumer: Any) -> bool:
    """Whether a consumer is to have as many replicas as its replicated stream. One that asks for a
    single one has no election, though its state is with the stream's."""
    return asks_for_replicas(consumer.config, consumer.stream)


def asks_for_replicas(config: Any, stream: Any) -> bool:
    """The same of a consumer's configuration, and its stream."""
    ephemeral = not config.durable_name and stream.config.retention == "limits"
    alone = config.num_replicas == 1 or (ephemeral and not config.num_replicas)
    return bool(stream.group) and not alone


def pin_client(consumer: Any, request: Any) -> None:
    """Pin the client behind a pull request (ADR-42)."""
    request.pin = draw_text(consumer.stream.kernel.chance)
    consumer.set_pin(request.pin, consumer.stream.kernel.clock())
    events.pinned(consumer, request.group, request.pin)


def unpin_client(consumer: Any, reason: str) -> None:
    """Let another client be pinned; `reason` is admin or timeout."""
    consumer.set_pin("", 0)
    events.unpinned(consumer, consumer.config.priority_groups[0], reason)
