"""Whether an origin still has what was taken of it, and where the two part.

An origin that is put back from an older image keeps its identity, and gives sequences out again.
Once it has grown past what is here, its last sequence tells nothing of that: its messages do.
"""

import asyncio
import base64
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from headwater.edge.jetstream.model import headers
from headwater.edge.jetstream.model.times import parse_time
from headwater.edge.jetstream.stream.counters import payload_at_origin
from headwater.edge.storage.format.errors import Damaged
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.federation.origins.origin_errors import LinkChanged, Nobody, OriginError
from headwater.federation.origins.origin_questions import OriginQuestions

LOOKED_AT_MAX = 256
"""Newest messages of a stream among which those to be compared are looked for."""

COMPARED_MAX = 3
"""Messages that the origin is asked for, until it has one of them."""

COMPARED_BYTES_MAX = 16 << 10
"""A message that is larger is not compared: an answer takes two seconds at 64 kbit/s."""

ANSWER_TIMEOUT_S = 5.0

READ_AT_ONCE = 500
"""Messages that are looked at in one round of the loop."""

ASKED_MAX = 64
"""Questions by which the place is found where two histories part: 17 for 100,000 messages, unless
the origin has deleted many of them."""

TIME_MAX = 1 << 63
"""Later than any message, in ns since 1970."""

MESSAGE_ID = b"Nats-Msg-Id"

Pair = tuple[int, int]
"""(sequence at the origin, sequence here) of a message."""


class Mark(NamedTuple):
    """A message that was taken, as its origin knows it."""

    seq: int = 0
    """Its sequence at the origin; 0: none."""
    time: int = 0
    """The origin's time of it, in ns since 1970."""


class There(NamedTuple):
    """A message that the origin has."""

    time: int
    body: bytes
    id: bytes | None
    """Its `Nats-Msg-Id`."""


class OriginHistory:
    """What one follower has taken of its origin, compared with what the origin has now.

    `origin_of(headers)` is the sequence at the origin of a stored message, or 0 for one that came
    from elsewhere; None for a mirror, which has the origin's own sequences.
    """

    def __init__(
        self, stream: Any, questions: OriginQuestions, origin_of: Callable[[bytes], int] | None
    ) -> None:
        self.stream = stream
        self.questions = questions
        self.origin_of = origin_of
        self.answers = True
        """Whether the origin lets its messages be asked for, as far as is known."""
        self.known = Mark()
        """The message that `agrees` or `parting` found last at both ends."""

    def kept(self, low: int) -> Iterator[Pair]:
        """Messages of the origin from the newest back to the local sequence `low`, as far as they
        are of one history: what an origin had before it was put back is left out."""
        store = self.stream.store
        before = 0
        for local in range(store.last_seq, max(store.first_seq, low, 1) - 1, -1):
            sequence = local
            if self.origin_of is not None:
                try:
                    found = store.get(local)
                except Damaged:
                    continue
                sequence = self.origin_of(found.headers) if found is not None else 0
            if sequence and (not before or sequence < before):
                before = sequence
                yield sequence, local

    def _here(self, local: int) -> Any:
        """The message that is stored here, if it can be compared."""
        try:
            found = self.stream.store.get(local)
        except Damaged:
            return None
        if found is None or len(found.payload) + len(found.headers) > COMPARED_BYTES_MAX:
            return None
        return found

    async def agrees(self, subject: str, mark: Mark) -> bool:
        """Whether the newest message that can be compared is the origin's; `subject` answers
        STREAM.MSG.GET. True when that cannot be known. `mark` is what was taken last, if its time
        is known: two histories do not have one time under one sequence."""
        self.known = Mark()
        if mark.seq and self._small(mark):
            there = await self._there(subject, mark.seq)
            if there is not None:
                self.known = mark
                return there.time == mark.time
        compared = 0
        for pair in self.kept(self.stream.store.last_seq - LOOKED_AT_MAX + 1):
            if self._here(pair[1]) is None:
                continue
            same = await self._same(subject, pair, TIME_MAX)
            compared += 1
            if same is not None:
                return same
            if compared == COMPARED_MAX or not self.answers:
                break
        return True

    def _small(self, mark: Mark) -> bool:
        """Whether a message may be asked for: it is here, and not too large to be compared."""
        newest = itertools.islice(self.kept(1), LOOKED_AT_MAX)
        local = next((here for sequence, here in newest if sequence == mark.seq), 0)
        return not local or self._here(local) is not None

    async def parting(self, subject: str, span: tuple[int, int], low: int, before: int) -> int:
        """The highest sequence up to which an origin that has the sequences `span` has what was
        taken, with a time before `before`; 0 when nothing tells. Looks at local sequences from
        `low` on."""
        self.known = Mark()
        first, last = span
        found: list[Pair] = []
        for count, pair in enumerate(self.kept(low)):
            if first <= pair[0] <= last and self._here(pair[1]) is not None:
                found.append(pair)
            if count % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        found.reverse()
        begin, end = 0, len(found)
        for _ in range(ASKED_MAX):
            if begin == end:
                break
            middle = (begin + end) // 2
            same = await self._same(subject, found[middle], before)
            if same is None:
                del found[middle]
                end -= 1
            elif same:
                begin = middle + 1
            else:
                end = middle
        return found[begin - 1][0] if begin else 0

    async def _same(self, subject: str, pair: Pair, before: int) -> bool | None:
        """Whether the origin has the message under its sequence; None when it has none there."""
        here = self._here(pair[1])
        there = await self._there(subject, pair[0]) if here is not None else None
        if there is None:
            return None
        if self.origin_of is None:
            return bool(there.time == here.timestamp)
        # Devices may send one constant value. Where they give ids, these tell.
        same = (
            there.time < before
            and there.body == payload_at_origin(here.headers, here.payload)
            and there.id == headers.get(here.headers, MESSAGE_ID)
        )
        if same and pair[0] > self.known.seq:
            self.known = Mark(pair[0], there.time)
        return same

    async def _there(self, subject: str, sequence: int) -> There | None:
        """A message of the origin; None when it has none there, or does not tell."""
        if not self.answers:
            return None
        try:
            _, payload = await self.questions.ask(
                subject, ANSWER_TIMEOUT_S, body=b'{"seq":%d}' % sequence
            )
            found = msgspec.json.decode(payload).get("message")
            if found is None:
                return None
            block = base64.b64decode(found.get("hdrs") or "")
            return There(
                parse_time(found["time"]),
                base64.b64decode(found.get("data") or ""),
                headers.get(block, MESSAGE_ID),
            )
        except LinkChanged:
            raise
        except (OriginError, *BAD_JSON, KeyError, TypeError, ValueError, AttributeError) as error:
            # Whoever may not ask for messages may still have a consumer.
            self.answers = not isinstance(error, OriginError) or isinstance(error, Nobody)
            return None
