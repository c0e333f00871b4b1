"""What was promised against what arrived, from independent places."""

from dataclasses import dataclass

import msgspec
from nats.aio.client import Client
from nats.errors import TimeoutError
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from headwater.deploy.demo.telemetry import Sample

READ_BATCH = 500


@dataclass(frozen=True)
class Verdict:
    """The demo's counts. `lost` and `duplicated` cover both the hub's streams and Spark."""

    published: int
    mirrored: int
    aggregated: int
    lost: int
    duplicated: int

    @property
    def good(self) -> bool:
        """Whether everything that was promised arrived, once."""
        complete = self.published == self.mirrored == self.aggregated
        return complete and self.lost == 0 and self.duplicated == 0

    def line(self) -> str:
        """The demo's last line."""
        return (
            f"published={self.published} mirrored={self.mirrored} aggregated={self.aggregated} "
            f"lost={self.lost} duplicated={self.duplicated}"
        )


async def read_ids(client: Client, stream: str) -> list[str]:
    """Ids of all messages of a stream, read from the hub message by message."""
    js = client.jetstream()
    total = (await js.stream_info(stream)).state.messages
    config = ConsumerConfig(
        ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, mem_storage=True
    )
    subscription = await js.pull_subscribe("", stream=stream, config=config)
    ids: list[str] = []
    while len(ids) < total:
        try:
            batch = await subscription.fetch(READ_BATCH, timeout=5)
        except TimeoutError:
            break
        ids.extend(msgspec.json.decode(message.data, type=Sample).id for message in batch)
    await subscription.unsubscribe()
    return ids


def compare(promised: list[str], arrived: list[str]) -> tuple[int, int]:
    """(lost, duplicated): promised ids that did not arrive, and arrivals beyond the first."""
    distinct = set(arrived)
    return len(set(promised) - distinct), len(arrived) - len(distinct)
