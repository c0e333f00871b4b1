"""Block reads: `$JS.API.BLOCK.GET.<stream>`, Headwater's own, answers with columns of messages.

The request is JSON: {"seq": 1, "end": 5000, "filters": ["plant.*.temp"], "columns": ["subject",
"payload", "headers"], "start_time": "2026-…Z", "end_time": "2026-…Z", "block_bytes": 1000000,
"max_bytes": 4194304}. Every field may be missing. `seq` and `end` are inclusive, `end_time` is
not. Sequences and times come in any case. The answer is one or more blocks (block_transfer.py)
on the reply subject; a refusal is an empty message with a status.

As with consumers, what a user may read can be bound to a filter: on
`$JS.API.BLOCK.GET.<stream>.<filter>` only that filter is served. Other servers have no such
subject, so whoever asks them gets nothing.
"""

from typing import Any

import msgspec

from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.bounds import Unsigned
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import Wire
from headwater.edge.jetstream.model.times import parse_time
from headwater.edge.jetstream.read.block_transfer import BlockTransfer
from headwater.edge.jetstream.read.kept_filters import KeptFilters
from headwater.edge.subjects.tokens import valid_subject

COLUMNS = {"subject": 1, "payload": 2, "headers": 4}
FILTERS_MAX = 32
BLOCK_BYTES = (16 << 10, 512 << 10, 1 << 20)
"""Least, default and most bytes of a block; one message more may be in it."""
MAX_BYTES = (1, 4 << 20, 64 << 20)
"""Least, default and most bytes of one answer."""
TRANSFERS_MAX = 64
"""Answers of a node that are under way; each holds one block."""
FILTERS_KEPT = 4
"""Filters of a stream that are kept for the next request."""
MAX_SEQUENCE = (1 << 64) - (1 << 20)


class BlockRequest(Wire):
    """Body of BLOCK.GET."""

    seq: Unsigned = 0
    end: Unsigned = 0
    start_time: str | None = None
    end_time: str | None = None
    filters: list[str] = []
    columns: list[str] = []
    block_bytes: Unsigned = 0
    max_bytes: Unsigned = 0


class Refused(Exception):
    """The text is the status of the answer."""


class Transfers:
    """How many answers of a node are under way."""

    def __init__(self) -> None:
        self.count = 0

    def enter(self) -> None:
        """One more. Raises Refused."""
        if self.count >= TRANSFERS_MAX:
            raise Refused("429 Too Many Block Reads")
        self.count += 1

    def leave(self) -> None:
        """One less."""
        self.count -= 1


class BlockGet:
    """Serves the block reads of one stream; `on_request` is the callback of its sinks."""

    def __init__(self, stream: Any, transfers: Transfers) -> None:
        self.stream = stream
        self.transfers = transfers
        self.filters = KeptFilters(FILTERS_KEPT)

    def on_request(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """Begin to answer one request."""
        if not reply:
            return
        gate = self.stream.reads
        if gate is None or gate.answers_now():
            self.answer(self.stream, reply, (subject, payload))
        else:
            size = len(subject) + len(payload)
            gate.hold(self.answer, self.stream.account, reply, (subject, payload), size)

    def answer(self, stream: Any, reply: bytes, asked: tuple[bytes, bytes]) -> None:
        """Begin to answer what was asked on a subject with a body, with what `stream` has."""
        subject, payload = asked
        self.stream = stream
        try:
            request = decode(payload, BlockRequest, strict=False)
            self.begin(reply, request, subject.split(b".", 5)[5:])
        except (JetStreamError, msgspec.MsgspecError, ValueError):
            self.refuse(reply, "400 Malformed Request")
        except Refused as error:
            self.refuse(reply, str(error))

    def refuse(self, reply: bytes, text: str) -> None:
        """Send a status."""
        self.stream.account.send(reply, b"", b"", f"NATS/1.0 {text}\r\n\r\n".encode())

    def begin(self, reply: bytes, request: BlockRequest, bound: list[bytes]) -> None:
        """Start the transfer. Raises Refused, ValueError or JetStreamError."""
        patterns = self.patterns(request, bound)
        if not set(request.columns) <= set(COLUMNS):
            raise Refused("400 Unknown Column")
        start, end = request.seq, request.end or MAX_SEQUENCE
        store = self.stream.store
        if request.start_time is not None:
            start = max(start, store.sequence_at_time(parse_time(request.start_time)))
        if request.end_time is not None:
            end = min(end, store.sequence_at_time(parse_time(request.end_time)) - 1)
        self.transfers.enter()
        BlockTransfer(
            self.stream,
            reply,
            self.filter(patterns),
            max(start, store.first_seq),
            min(end, MAX_SEQUENCE),
            sum(COLUMNS[name] for name in set(request.columns)),
            within(request.block_bytes, BLOCK_BYTES),
            within(request.max_bytes, MAX_BYTES),
            self.transfers.leave,
        ).start()

    def patterns(self, request: BlockRequest, bound: list[bytes]) -> tuple[bytes, ...]:
        """The filters to serve. Raises Refused for others than the subject of the request says."""
        wanted = tuple(text.encode() for text in request.filters)
        if bound and wanted not in ((), (bound[0],)):
            raise Refused("400 Filter Differs From Subject")
        wanted = (bound[0],) if bound else wanted
        if len(wanted) > FILTERS_MAX:
            raise Refused("400 Too Many Filters")
        if not all(valid_subject(pattern) for pattern in wanted):
            raise Refused("400 Bad Filter")
        return wanted

    def filter(self, patterns: tuple[bytes, ...]) -> Any:
        """The filter of these patterns; None for everything."""
        if not patterns or b">" in patterns:
            return None
        return self.filters.get(self.stream.store, patterns)


def within(wanted: int, bounds: tuple[int, int, int]) -> int:
    """`wanted`, or what is usual, between the least and the most."""
    least, usual, most = bounds
    return min(max(wanted, least), most) if wanted > 0 else usual
