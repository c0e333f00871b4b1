"""How one mirror or source is: its state, and how far it is behind its origin.

What is known comes from three sides: the number of messages still to come that each delivery
carries, which is as old as the delivery; the origin's own answers, which are newer; and the
consumer's heartbeats. What is not known is None, and is never shown as 0.
"""

from typing import TYPE_CHECKING, Any

from headwater.federation.origins.origin_delay import OriginDelay

if TYPE_CHECKING:
    from headwater.federation.origins.origin_sink import OriginSink

LIVE = "live"
CATCHING_UP = "catching_up"
STALLED = "stalled"
DENIED = "denied"
NO_SUCH_STREAM = "no_such_stream"
RECREATED = "recreated"
OFFLINE = "offline"

NEW = "it was made or started just now; its origin has not answered yet"
"""The cause while nothing is known."""

WELL = (LIVE, CATCHING_UP)
"""States in which nobody has to do anything."""

LIVE_S = 2.0
"""A stream is live when what is still to come takes no longer than this."""

LIVE_MESSAGES = 16
"""And with so few, when they are no more than `LIVE_BYTES` as far as is known."""

LIVE_BYTES = 64 * 1024
"""Eight seconds of 64 kbit/s."""

SAMPLE_MIN = 10
"""Messages taken from which the size of those to come is estimated; fewer: the origin's."""


class Health:
    """What is known of a mirror or source now. The follower tells it what happens."""

    delay = OriginDelay()
    """How late what comes is. All share one that nobody changes until they have a consumer, so that
    thousands of sources that are made at once hold the loop for less long."""

    def __init__(self) -> None:
        self.trouble = OFFLINE
        """State while nothing is delivered."""
        self.stalled = False
        self.kept_out = ""
        """Why nothing of what the origin delivers comes in, although it answers; empty unless that
        is so. It holds until something is heard, or nobody answers."""
        self.cause = NEW
        """Why the state is not well, for people."""
        self.rate = 0.0
        """Messages per second, over the last ticks."""
        self.message_bytes = 0.0
        """Mean size of the origin's messages; 0 while unknown."""
        self.sink: OriginSink | None = None
        self.last_lag = 0
        """Messages behind when that was known last."""
        self.hidden_since = 0.0
        """Since when heartbeats that wait for flow control are all that is heard; 0: the origin
        tells more."""
        self.unseen = 0
        """Messages that the origin has got, by all signs, since it sent the newest that came."""
        self._quiet = False
        self._crowded = False
        self._left_out = 0
        self._said: tuple[int, int] = (0, 0)
        self._behind_since = 0.0
        self._begun_ts = 0
        self._counted = 0
        self._clock_ahead = 0
        """The clock of the origin's times less that of the loop, in ns."""

    # --- what the follower tells ------------------------------------------------------------------

    def begin(self, sink: "OriginSink", pending: int) -> None:
        """A consumer is there, with `pending` messages to deliver."""
        self.sink = sink
        self.unseen = 0
        self._quiet = self._crowded = False
        self._begun_ts = sink.last_ts
        self._counted = 0
        self._clock_ahead = sink.kernel.clock() - self._passed_ns(sink)
        self.said(pending)

    def end(self) -> None:
        """The consumer is given up."""
        if self.sink is not None:
            self.last_lag = self._lag(self.sink)
            self._left_out += int(self.sink.left_out)
        self.sink = None
        self.rate = 0.0

    def said(self, behind: int) -> None:
        """The origin says how many messages this stream does not have yet."""
        sink = self.sink
        if sink is not None:
            self._said = (behind, sink.dseq)
            self._set_behind(sink, self._lag(sink))

    def tick(self, seconds: float) -> None:
        """Called again and again while a consumer is there."""
        sink = self.sink
        if sink is None:
            return
        self.rate = 0.7 * self.rate + 0.3 * (sink.messages - self._counted) / seconds
        self._counted = sink.messages
        # A message from the future: the clock was behind when the consumer began.
        self._clock_ahead = max(self._clock_ahead, int(sink.last_ts) - self._passed_ns(sink))
        self._set_behind(sink, self._lag(sink))

    @staticmethod
    def _passed_ns(sink: "OriginSink") -> int:
        return int(sink.kernel.loop.time() * 1e9)

    def hears(self, anything: bool, crowded: bool = False) -> None:
        """Whether the consumer still shows that it lives: without, what it said holds no more.
        Neither does it while it is `crowded`: only large messages come by its link."""
        if self.sink is None:
            return
        knew = not (self._quiet or self._crowded)
        self._quiet, self._crowded = not anything, crowded
        if knew and (crowded or not anything):
            self.last_lag = self._lag(self.sink)

    def _set_behind(self, sink: "OriginSink", behind: int) -> None:
        if not behind:
            self._behind_since = 0.0
        elif not self._behind_since:
            self._behind_since = sink.kernel.loop.time()
            self._begun_ts = int(sink.last_ts)

    # --- facts ----------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """One of the states above."""
        if self.kept_out and (self.sink is not None or self.trouble == OFFLINE):
            return DENIED
        if self.sink is None:
            return STALLED if self.stalled and self.trouble == OFFLINE else self.trouble
        if self.stalled:
            return STALLED
        if self._quiet:
            return OFFLINE
        if self._crowded:
            return CATCHING_UP
        lag = self._lag(self.sink)
        few = lag <= LIVE_MESSAGES and (self.lag_bytes() or 0) <= LIVE_BYTES
        return LIVE if few or lag <= self.rate * LIVE_S else CATCHING_UP

    def _lag(self, sink: "OriginSink") -> int:
        behind, at = self._said
        taken, pending = int(sink.dseq), int(sink.pending)
        known = max(0, behind - max(0, taken - at), pending) if taken else behind
        # Who has history to send tells of it: what it sends was not sent when it was stored.
        fresh = known <= max(LIVE_MESSAGES, self.rate * LIVE_S)
        return known + self.unseen if fresh else known

    @property
    def left_out(self) -> int:
        """Sequences of the origin that were passed over since the node's start, since only the
        last message of each subject was wanted; deleted ones and other subjects' count."""
        return self._left_out + (int(self.sink.left_out) if self.sink is not None else 0)

    def lag(self) -> int | None:
        """Messages that the origin has and this stream has not; None when nobody can tell."""
        known = self.sink is not None and not self._quiet and not self._crowded
        return self._lag(self.sink) if known and self.sink is not None else None

    def known_lag(self) -> int:
        """`lag`, or what it was when that was known last."""
        known = self.lag()
        return self.last_lag if known is None else known

    def shown_lag(self) -> int:
        """`lag` where a number has to be shown: what is not known is never 0."""
        known = self.lag()
        return max(1, self.last_lag) if known is None else known

    def lag_bytes(self) -> int | None:
        """About how many bytes `lag` is; None when nobody can tell."""
        lag, sink = self.lag(), self.sink
        if not lag or sink is None:
            return lag
        if sink.messages >= SAMPLE_MIN:
            return round(lag * float(sink.bytes_stored) / float(sink.messages))
        return round(lag * self.message_bytes) if self.message_bytes else None

    def oldest_s(self) -> float | None:
        """Age of the oldest message that is missing, at most; None when nobody can tell. A step of
        the wall clock does not change it: what has passed since the consumer began counts."""
        lag, sink = self.lag(), self.sink
        if not lag or sink is None:
            return None if lag is None else 0.0
        watched = float(sink.kernel.loop.time()) - self._behind_since
        if sink.last_ts == self._begun_ts:
            # Nothing came since: the messages may be any age, but have been missed this long.
            return watched
        now_ns = self._passed_ns(sink) + self._clock_ahead
        return max(0.0, (now_ns - int(sink.last_ts)) / 1e9)

    def eta_s(self) -> float | None:
        """Seconds until it is live at the present rate; None when nobody can tell."""
        lag = self.lag()
        if not lag:
            return None if lag is None else 0.0
        return lag / self.rate if self.rate > 0.01 else None

    def report(self) -> dict[str, Any]:
        """All of it, as INFO and monitoring show it; None is unknown."""
        oldest, eta = self.oldest_s(), self.eta_s()
        return {
            "state": self.state,
            "cause": "" if self.state in WELL else self.kept_out or self.cause,
            "pending_messages": self.lag(),
            "pending_bytes": self.lag_bytes(),
            "oldest_pending_seconds": None if oldest is None else round(oldest, 3),
            "left_out": self.left_out,
            "catchup_rate": 0.0 if self.state == OFFLINE else round(self.rate, 1),
            "eta_seconds": None if eta is None else round(eta, 1),
        }
