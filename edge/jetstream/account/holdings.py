"""How many streams and consumers a whole node may hold, whoever makes them.

Each takes memory for as long as it is there, some 40 KB and 6 KB, and five times its metadata. Who
is linked to a gateway may make them. Those of a gateway are bounded, also where no account has
limits.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from headwater.edge.conf.options import HeadwaterOptions
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import ConsumerConfig, StreamConfig

if TYPE_CHECKING:
    from headwater.edge.jetstream.account.account_js import AccountJetStream

EDGE_STREAMS = 1000
EDGE_CONSUMERS = 5000
"""Of a gateway whose configuration says nothing."""
LONG_CONFIG = 4096
"""Bytes as JSON of a configuration that is of no concern."""
EDGE_CONFIG_BYTES = 4 << 20
"""Of all longer ones of a gateway together: metadata may have 128 KiB each."""

Config = StreamConfig | ConsumerConfig


class Holdings:
    """The bounds of one node; 0 is any number."""

    def __init__(self, options: HeadwaterOptions) -> None:
        edge = options.profile == "edge"
        self.streams = options.max_streams or (EDGE_STREAMS if edge else 0)
        self.consumers = options.max_consumers or (EDGE_CONSUMERS if edge else 0)
        self.config_bytes = EDGE_CONFIG_BYTES if edge else 0

    def check_streams(self, accounts: Iterable["AccountJetStream"]) -> None:
        """Refuse one stream too many. Raises JetStreamError 10027."""
        if self.streams and sum(len(js.streams) for js in accounts) >= self.streams:
            raise errors.MAXIMUM_STREAMS_LIMIT.error()

    def full(self, accounts: Iterable["AccountJetStream"]) -> bool:
        """Whether there are as many consumers as may be, those of mirrors and sources included."""
        if not self.consumers:
            return False
        streams = (stream for js in accounts for stream in js.streams.values())
        return sum(len(stream.consumers) for stream in streams) >= self.consumers

    def check_room(
        self, config: Config, old: Config | None, accounts: Iterable["AccountJetStream"]
    ) -> None:
        """Refuse a long configuration beside as many others as may be. Raises JetStreamError
        10023."""
        size = _size(config) if self.config_bytes else 0
        if size <= LONG_CONFIG or (old is not None and size <= _size(old)):
            return
        streams = [stream for js in accounts for stream in js.streams.values()]
        held = [stream.config for stream in streams]
        held += [each.config for stream in streams for each in stream.consumers.values()]
        sizes = [_size(each) for each in held if each is not old]
        if size + sum(each for each in sizes if each > LONG_CONFIG) > self.config_bytes:
            raise errors.INSUFFICIENT_RESOURCES.error()


def _size(config: Config) -> int:
    return len(msgspec.json.encode(config))
