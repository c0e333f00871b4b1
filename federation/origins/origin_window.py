"""How much an origin that knows no measured window may have on its way. Sans-IO.

A Headwater fits what its consumers have on their way to the line. A nats-server sends 2 MiB before
it waits for an answer to flow control, and later up to 32. So it is asked for a consumer that
waits after some messages (ack policy `flow_control`). Where two seconds' worth is more than those
2 MiB, it is asked for one without that bound.
"""

from typing import Any

from headwater.edge.facts.version import PEER_HEADER
from headwater.edge.jetstream.model import headers
from headwater.federation.origins.origin_request import count_in

SECONDS = 2.0
"""What may be on its way, as time that the line needs for it."""

BEYOND_S = 1.0
"""The same on top of twice the origin's distance, where that is more."""

LEAST = 16 << 10
"""Bytes at first, and at least: two seconds of 64 kbit/s."""

OPEN = 2 << 20
"""What a nats-server sends before it waits."""

SLOW = OPEN // 2
"""Where two seconds' worth is less than this, the window of an open consumer is too large."""

FRAME = 110
"""Bytes of a delivery beside its message, about."""

UNKNOWN = 1024.0
"""Mean size of messages while nobody can tell."""


class OriginWindow:
    """The window of one consumer of a foreign origin, and how it is fitted to the line."""

    def __init__(self) -> None:
        self.foreign = False
        """Whether the origin has to be told how much may be on its way."""
        self.most = 0
        """Messages that the origin lets a consumer have unconfirmed; 0 without a bound."""
        self.size = LEAST
        """Bytes; 0 when the origin may send as it likes."""
        self.held = False
        """Whether a request for flow control waits, since another window is wanted."""
        self.distance_s = 0.0
        """How far the origin is, there and back."""
        self._since = 0.0
        self._arrived = 0

    def meet(self, afar: bool, block: bytes, config: dict[str, Any]) -> None:
        """The origin's info came. A Headwater says that it is one, and fits its consumers. Of a
        stream that is no log, a nats-server makes a durable consumer with a bound of its own."""
        told = headers.get(block, PEER_HEADER) is not None
        self.foreign = afar and not told and config["retention"] == "limits"
        limits = config.get("consumer_limits")
        self.most = count_in(limits.get("max_ack_pending")) if isinstance(limits, dict) else 0

    def messages(self, mean: float) -> int:
        """How many messages of `mean` bytes may be on their way; 0 for no bound."""
        if not self.foreign:
            return 0
        wanted = int(self.size // ((mean or UNKNOWN) + FRAME)) + 1 if self.size else self.most
        return min(wanted, self.most) if self.most else wanted

    def begin(self, now: float, messages: int, size: int) -> None:
        """What comes from now on is counted, behind `messages` of `size` bytes."""
        self.held = False
        self._since, self._arrived = now, size + FRAME * messages

    def asked(self, now: float, messages: int, size: int, behind: int) -> bool:
        """The origin asks whether `messages` of `size` bytes have arrived, with about `behind`
        bytes to come. Whether that should be left without an answer and another window be asked
        for; `size` is that one then."""
        before, since = self._arrived, self._since
        self.begin(now, messages, size)
        if not behind:
            return False
        seconds = max(SECONDS, BEYOND_S + 2 * self.distance_s)
        wanted = seconds * (self._arrived - before) / max(now - since, 1e-6)
        if self.size:
            self.held = wanted > 1.5 * self.size or max(wanted, LEAST) < self.size / 2
        else:
            self.held = wanted < SLOW < behind
        if self.held:
            self.size = 0 if wanted >= OPEN else max(LEAST, int(wanted))
        return self.held
