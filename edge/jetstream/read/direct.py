"""Direct gets (ADR-31): messages read as messages, not as JSON.

One message, a batch in order, or the last ones of many subjects. Answers go to the reply subject of
the request. A batch ends with an empty message of status 204.
"""

from typing import Any

from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import MsgGetRequest
from headwater.edge.jetstream.model.requests import check_level
from headwater.edge.jetstream.model.times import parse_time
from headwater.edge.jetstream.read.direct_batch import DirectBatch, DirectTurns, send_direct
from headwater.edge.jetstream.read.kept_filters import KeptFilters
from headwater.edge.storage.format.errors import Damaged

# Subjects that one multi-subject request may name by its patterns.
RESULTS_MAX = 1024
# Batches of one stream that are under way.
BATCHES_MAX = 1000
# Filters of one stream that are kept for the next request.
FILTERS_KEPT = 2
QUEUE = b"_sys_"


class DirectGet:
    """Serves the direct gets of one stream; its methods are callbacks of sinks."""

    def __init__(self, stream: Any, turns: DirectTurns, bytes_max: int) -> None:
        self.stream = stream
        self.turns = turns
        self.bytes_max = bytes_max
        self.filters = KeptFilters(FILTERS_KEPT)
        self.under_way = 0

    def on_request(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """`DIRECT.GET.<stream>` with a JSON body."""
        if not reply:
            return
        request = self.parse(reply, block, payload)
        if request is None:
            return
        if not payload or is_blank(request):
            self.status(reply, b"408 Empty Request")
        elif contradicts(request):
            self.status(reply, b"408 Bad Request")
        else:
            self.when_sure(reply, request, len(payload))

    def on_subject(
        self, subject: bytes, reply: bytes, block: bytes, payload: bytes, sender: object
    ) -> None:
        """`DIRECT.GET.<stream>.<subject>` with a body or headers."""
        if not reply:
            return
        request = self.parse(reply, block, payload)
        if request is None:
            return
        if not is_blank(request) or request.batch or request.up_to_seq or request.up_to_time:
            self.status(reply, b"408 Bad Request")
            return
        request.last_by_subj = subject.split(b".", 5)[5].decode("utf-8", "surrogateescape")
        self.when_sure(reply, request, len(subject))

    def when_sure(self, reply: bytes, request: MsgGetRequest, size: int) -> None:
        """Answer with nothing older than what is committed now, so perhaps later."""
        gate = self.stream.reads
        if gate is None or gate.answers_now():
            self.answer(reply, request)
        else:
            gate.hold(self.answer_later, self.stream.account, reply, request, size)

    def answer_later(self, stream: Any, reply: bytes, request: MsgGetRequest) -> None:
        """Answer with what the replica has now, perhaps in another store."""
        self.stream = stream
        self.answer(reply, request)

    def parse(self, reply: bytes, block: bytes, payload: bytes) -> MsgGetRequest | None:
        """The request in a body; None when it was refused."""
        try:
            check_level(block)
        except JetStreamError:
            self.status(reply, b"412 Required Api Level")
            return None
        try:
            return decode(payload, MsgGetRequest, strict=False, whole=True)
        except JetStreamError:
            self.status(reply, b"408 Malformed Request")
            return None

    def status(self, reply: bytes, text: bytes) -> None:
        """Send an empty message with a status."""
        self.stream.account.send(reply, b"", b"", b"NATS/1.0 " + text + b"\r\n\r\n")

    def answer(self, reply: bytes, request: MsgGetRequest) -> None:
        """Send what a valid request asks for."""
        try:
            if request.multi_last:
                self.send_multi(reply, request)
            elif request.batch:
                self.send_batch(reply, request)
            else:
                self.send_one(reply, request)
        except Damaged as error:
            self.status(reply, b"500 " + str(error).encode())

    def start(self, request: MsgGetRequest) -> int:
        """The sequence at which a request begins; 0 when it names none."""
        if request.start_time is not None:
            return int(self.stream.store.sequence_at_time(parse_time(request.start_time)))
        return request.seq

    def send_one(self, reply: bytes, request: MsgGetRequest) -> None:
        """Send one message, or 404."""
        store = self.stream.store
        at = self.start(request)
        if request.next_by_subj:
            at = store.next_matching(self.filter(encoded(request.next_by_subj)), at)
        elif not at:
            at = self.filter(encoded(request.last_by_subj)).newest()
        if not at or not send_direct(self.stream, reply, at, request.no_hdr):
            self.status(reply, b"404 Message Not Found")

    def filter(self, pattern: bytes) -> Any:
        """The filter of one pattern."""
        return self.filters.get(self.stream.store, (pattern,) if pattern else ())

    def batch(self, reply: bytes) -> DirectBatch | None:
        """A batch to start; None when too many are under way, and who asks hears of it."""
        if self.under_way >= BATCHES_MAX:
            self.status(reply, b"503 Too Many Batches")
            return None
        self.under_way += 1
        return DirectBatch(self.stream, self.turns, reply, self.leave)

    def leave(self) -> None:
        """A batch has ended."""
        self.under_way -= 1

    def send_batch(self, reply: bytes, request: MsgGetRequest) -> None:
        """Send up to `batch` messages, none when it is negative, and the end of the batch."""
        batch = self.batch(reply)
        if batch is not None:
            pattern = encoded(request.next_by_subj)
            chosen = None if pattern in (b"", b">") else self.filter(pattern)
            room = self.room(request)
            batch.send_range(chosen, self.start(request), request.batch, room, request.no_hdr)

    def send_multi(self, reply: bytes, request: MsgGetRequest) -> None:
        """Send the last message of every subject that matches, as of a sequence or time; with
        headers, whatever the request says, for only they tell the subject."""
        store = self.stream.store
        up_to = request.up_to_seq
        if request.up_to_time is not None:
            up_to = store.sequence_at_time(parse_time(request.up_to_time))
            if up_to <= store.first_seq:
                self.status(reply, b"404 No Results")
                return
            up_to -= 1
        up_to = up_to or store.last_seq
        # An empty text is no subject here, and in the other requests every one.
        patterns = [encoded(pattern) for pattern in request.multi_last if pattern]
        lasts = store.last_sequences(patterns, up_to, RESULTS_MAX) if patterns else []
        # As in nats-server, both errors count what is before the first sequence, too.
        if len(lasts) > RESULTS_MAX:
            self.status(reply, b"413 Too Many Results")
            return
        if not lasts:
            self.status(reply, b"404 No Results")
            return
        sequences = [sequence for sequence in lasts if sequence >= request.seq]
        batch = self.batch(reply)
        if batch is not None:
            count = request.batch if request.batch > 0 else len(sequences)
            line = b"Nats-UpTo-Sequence: %d\r\n" % up_to
            batch.send_list(sequences, count, self.room(request), line)

    def room(self, request: MsgGetRequest) -> int:
        """Bytes that may be sent in answer to one request; at 0 and below it ends behind the first
        message."""
        if request.max_bytes == 0:
            return self.bytes_max
        return min(request.max_bytes, self.bytes_max)


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def is_blank(request: MsgGetRequest) -> bool:
    """Whether a request names no message at all."""
    return not (
        request.seq
        or request.last_by_subj
        or request.next_by_subj
        or request.multi_last
        or request.start_time is not None
    )


def contradicts(request: MsgGetRequest) -> bool:
    """Whether parts of a request exclude each other."""
    timed = request.start_time is not None
    by_last = bool(request.last_by_subj)
    return (
        bool(request.seq and by_last)
        or bool(request.seq and timed)
        or (timed and by_last)
        or (by_last and bool(request.next_by_subj))
        or (by_last and request.batch > 0)
        or (by_last and bool(request.multi_last))
        or bool(request.next_by_subj and request.multi_last)
        or (request.up_to_seq > 0 and request.up_to_time is not None)
    )
