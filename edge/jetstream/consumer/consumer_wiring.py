"""What connects a consumer to its account: the subjects it listens on, and interest in its own."""

from collections.abc import Callable
from typing import Any

from headwater.edge.jetstream.consumer import interest
from headwater.edge.jetstream.consumer.acks import AckSink, FlowSink, PullSink
from headwater.edge.jetstream.model.name_hash import name_hash


class Wiring:
    """Given to every consumer when it is made. `expire(consumer)` deletes one that nobody uses."""

    def __init__(self, expire: Callable[[Any], object]) -> None:
        self.expire = expire

    def watch(self, consumer: Any) -> Any:
        """Have the consumer told of interest in its deliver subject."""
        return interest.watch(consumer.stream.account, consumer)

    def sinks(self, consumer: Any) -> list[Any]:
        """Everything that the consumer listens on."""
        stream = consumer.stream
        domain = getattr(stream.node, "domain", "")
        tail = f"{stream.name}.{consumer.name}."
        long_tail = f"{domain or '_'}.{name_hash(stream.account.name)}.{tail}"
        request = f"$JS.API.CONSUMER.MSG.NEXT.{tail[:-1]}"
        found: list[Any] = [PullSink(consumer, request.encode())]
        if consumer.config.ack_policy in ("all", "explicit"):
            found.append(AckSink(consumer, f"$JS.ACK.{tail}".encode(), False))
            found.append(AckSink(consumer, f"$JS.ACK.{long_tail}".encode(), True))
        if consumer.config.flow_control:
            found.append(FlowSink(consumer, f"$JS.FC.{tail}".encode()))
            found.append(FlowSink(consumer, f"$JS.FC.{long_tail}".encode()))
        return found


def hush(consumer: Any) -> None:
    """Leave pull requests and acks to others. Answers about flow control are still taken."""
    for sink in consumer.sinks:
        if not isinstance(sink, FlowSink):
            consumer.stream.account.remove(sink)
    consumer.sinks = [sink for sink in consumer.sinks if isinstance(sink, FlowSink)]


def unhush(consumer: Any) -> None:
    """Take pull requests and acks again."""
    there = {sink.subject for sink in consumer.sinks}
    for sink in consumer.wiring.sinks(consumer):
        if sink.subject not in there:
            consumer.stream.account.insert(sink)
            consumer.sinks.append(sink)
