"""How many streams and consumers a whole node may hold, whoever makes them.

Each takes memory for as long as it is there, some 40 KB and 6 KB, and who is linked to a gateway
may make them. Those of a gateway are bounded, also where no account has limits.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.edge.conf.options import HeadwaterOptions
from headwater.edge.jetstream.model import errors

if TYPE_CHECKING:
    from headwater.edge.jetstream.account.account_js import AccountJetStream

EDGE_STREAMS = 1000
EDGE_CONSUMERS = 5000
"""Of a gateway whose configuration says nothing."""


class Holdings:
    """The bounds of one node; 0 is any number."""

    def __init__(self, options: HeadwaterOptions) -> None:
        edge = options.profile == "edge"
        self.streams = options.max_streams or (EDGE_STREAMS if edge else 0)
        self.consumers = options.max_consumers or (EDGE_CONSUMERS if edge else 0)

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
