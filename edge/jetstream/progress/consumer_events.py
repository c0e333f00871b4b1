"""Advisories and metrics of consumers (ADR-9 of the event catalogue `io.nats.jetstream.*`).

Each is a JSON message on its own subject below `$JS.EVENT`, sent only when somebody listens.
"""

from typing import Any

import msgspec

from headwater.edge.jetstream.model.times import ZERO_TIME, format_time, parse_time
from headwater.edge.ports.draws import draw_text

_ADVISORY = "$JS.EVENT.ADVISORY.CONSUMER."
_METRIC = "$JS.EVENT.METRIC.CONSUMER."


def subjects(consumer: Any) -> tuple[bytes, bytes, bytes, bytes]:
    """Subjects of a consumer's ack metric, and its nak, termination and max-delivery advisories."""
    tail = f"{consumer.stream.name}.{consumer.name}"
    return (
        f"{_METRIC}ACK.{tail}".encode(),
        f"{_ADVISORY}MSG_NAKED.{tail}".encode(),
        f"{_ADVISORY}MSG_TERMINATED.{tail}".encode(),
        f"{_ADVISORY}MAX_DELIVERIES.{tail}".encode(),
    )


def _send(consumer: Any, subject: bytes, kind: str, fields: dict[str, Any]) -> None:
    account = consumer.stream.account
    if account.has_interest(subject):
        account.send(subject, _event(consumer, kind, fields))


def _event(consumer: Any, kind: str, fields: dict[str, Any]) -> bytes:
    stream = consumer.stream
    event: dict[str, Any] = {
        "type": f"io.nats.jetstream.{kind}",
        "id": draw_text(stream.kernel.chance),
        "timestamp": format_time(stream.kernel.clock()),
        "stream": stream.name,
        "consumer": consumer.name,
        **fields,
    }
    domain = getattr(stream.node, "domain", "")
    if domain:
        event["domain"] = domain
    return msgspec.json.encode(event)


def _advise(consumer: Any, what: str, kind: str, fields: dict[str, Any]) -> None:
    subject = f"{_ADVISORY}{what}.{consumer.stream.name}.{consumer.name}".encode()
    _send(consumer, subject, f"advisory.v1.{kind}", fields)


def max_deliveries(consumer: Any, sequence: int, deliveries: int) -> None:
    """A message was delivered as often as the consumer allows."""
    fields = {"stream_seq": sequence, "deliveries": deliveries}
    _send(consumer, consumer.limit_event, "advisory.v1.max_deliver", fields)


def naked(consumer: Any, sequence: int, consumer_seq: int, deliveries: int) -> None:
    """A client refused a message."""
    fields = {"consumer_seq": consumer_seq, "stream_seq": sequence, "deliveries": deliveries}
    _send(consumer, consumer.nak_event, "advisory.v1.nak", fields)


def terminated(
    consumer: Any, sequence: int, consumer_seq: int, deliveries: int, reason: bytes
) -> bytes:
    """What is told when a client ended the delivery of a message."""
    fields: dict[str, Any] = {
        "consumer_seq": consumer_seq,
        "stream_seq": sequence,
        "deliveries": deliveries,
    }
    if reason:
        fields["reason"] = reason.decode("utf-8", "replace")
    return _event(consumer, "advisory.v1.terminated", fields)


def ack_sample(
    consumer: Any, sequence: int, consumer_seq: int, ack_ns: int, deliveries: int
) -> None:
    """A sampled ack; `ack_ns` is how long it took."""
    fields = {
        "consumer_seq": consumer_seq,
        "stream_seq": sequence,
        "ack_time": ack_ns,
        "deliveries": deliveries,
    }
    _send(consumer, consumer.ack_event, "metric.v1.consumer_ack", fields)


def created(consumer: Any) -> None:
    """A consumer was made."""
    _advise(consumer, "CREATED", "consumer_action", {"action": "create"})


def deleted(consumer: Any) -> None:
    """A consumer was deleted."""
    _advise(consumer, "DELETED", "consumer_action", {"action": "delete"})


def paused(consumer: Any) -> None:
    """A consumer was paused or goes on."""
    until = consumer.config.pause_until
    now = consumer.stream.kernel.clock()
    stopped = until is not None and parse_time(until) > now
    fields: dict[str, Any] = {"paused": stopped, "pause_until": until or ZERO_TIME}
    _advise(consumer, "PAUSE", "consumer_pause", fields)


def pinned(consumer: Any, group: str, pin: str) -> None:
    """A client of a priority group was pinned."""
    fields = {"account": consumer.stream.account.name, "group": group, "pinned_id": pin}
    _advise(consumer, "PINNED", "consumer_group_pinned", fields)


def unpinned(consumer: Any, group: str, reason: str) -> None:
    """A client of a priority group lost its pin; `reason` is admin or timeout."""
    fields = {"account": consumer.stream.account.name, "group": group, "reason": reason}
    _advise(consumer, "UNPINNED", "consumer_group_unpinned", fields)
