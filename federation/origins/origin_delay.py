"""How late an origin's messages come, on a line that keeps some of them on their way.

A message tells how many more there were when it was sent. Where buffers of the line hold many, that
is old by the time it comes, and the origin's answers are as old. The origin's own times of its
messages tell how old, and how many it has got since.
"""

PROMPT_S = 2.0
"""An answer within this tells how things are now, and messages less late than this are fresh."""


SAMPLES = 16
"""Moments that are remembered of one consumer; they lie farther apart the longer it lasts."""


class OriginDelay:
    """What one consumer's messages tell. Times of here are the loop's, so that no step of the
    clock matters; those of the origin count by their differences."""

    def __init__(self) -> None:
        self.late_s = 0.0
        """How much later the newest messages came than the least late ones."""
        self._age = 0.0
        self._least: float | None = None
        self._samples: list[tuple[int, float]] = []
        """How many messages had come, and when the last of them was stored."""
        self._asked_s = 0.0
        self._slow = False

    def came(self, now_s: float, count: int, last_ts: int) -> None:
        """So many messages have come, the last of which the origin stored at `last_ts` (ns)."""
        samples = self._samples
        if count == (samples[-1][0] if samples else 0):
            return
        stored_s = last_ts / 1e9
        if len(samples) == SAMPLES:
            del samples[1::2]
        samples.append((count, stored_s))
        self._age = now_s - stored_s
        if self._least is None or self._age < self._least:
            self._least = self._age
        self.late_s = self._age - self._least

    def asked(self, now_s: float) -> None:
        """The origin is asked how things are."""
        self._asked_s = now_s

    def answered(self, now_s: float) -> None:
        """The answer is there, or the time for it is over. A prompt one comes by a line that keeps
        nothing: then the origin's clock was set back, or its messages are old."""
        self._slow = now_s - self._asked_s > PROMPT_S
        self._asked_s = 0.0
        if not self._slow:
            self._least, self.late_s = self._age, 0.0

    def heard_all(self) -> None:
        """The origin says that it has sent nothing that is not here."""
        self.late_s = 0.0

    def unseen(self, now_s: float) -> int:
        """About how many messages the origin has got since it sent the newest that came: as many as
        in the same time before. 0 when the line keeps none."""
        waits = self._asked_s > 0 and now_s - self._asked_s > PROMPT_S
        if self.late_s <= PROMPT_S or not (waits or self._slow):
            return 0
        newest, stored_s = self._samples[-1]
        return int(newest - self._stored_by(stored_s - self.late_s))

    def _stored_by(self, stored_s: float) -> float:
        """How many messages the origin had stored at a moment of its own, of those that came."""
        before = self._samples[0]
        for sample in self._samples:
            if sample[1] > stored_s:
                share = max(0.0, stored_s - before[1]) / ((sample[1] - before[1]) or 1.0)
                return before[0] + (sample[0] - before[0]) * share
            before = sample
        return float(before[0])
