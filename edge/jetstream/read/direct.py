"""Direct gets (ADR-31): messages read as messages, not as JSON.

One message, a batch in order, or the last ones of many subjects. Answers go to the reply subject of
the request. A batch ends with an empty message of status 204.
"""

from typing import Any

from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import MsgGetRequest
from headwater.edge.jetstream.model.requests import check_level
from headwater.edge.jetstream.model.times import format_time, parse_time
from headwater.edge.storage.format.errors import Damaged
from headwater.edge.wire.header_block import opened

# Subjects that one multi-subject request may name by its patterns.
RESULTS_MAX = 1024
QUEUE = b"_sys_"


class DirectGet:
    """Serves the direct gets of one stream; its methods are callbacks of sinks."""

    def __init__(self, stream: Any, bytes_max: int) -> None:
        self.stream = stream
        self.bytes_max = bytes_max

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

    def status(self, reply: bytes, text: bytes, lines: bytes = b"") -> None:
        """Send an empty message with a status."""
        block = b"NATS/1.0 " + text + b"\r\n" + lines + b"\r\n"
        self.stream.account.send(reply, b"", b"", block)

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
        start = self.start(request)
        if request.next_by_subj:
            found = store.next_by_subject(encoded(request.next_by_subj), start)
        elif start:
            found = store.get(start)
        else:
            found = store.last_by_subject(encoded(request.last_by_subj))
        if found is None:
            self.status(reply, b"404 Message Not Found")
        else:
            self.send_message(reply, found, request.no_hdr)

    def send_batch(self, reply: bytes, request: MsgGetRequest) -> None:
        """Send up to `batch` messages, none when it is negative, and the end of the batch."""
        store = self.stream.store
        pattern = encoded(request.next_by_subj)
        chosen = store.filter((pattern,) if pattern and pattern != b">" else ())
        at = self.start(request)
        pending = store.count_matching(chosen, at)
        room = self.room(request)
        last = 0
        for i in range(request.batch):
            at = store.next_matching(chosen, at)
            found = store.get(at) if at else None
            if found is None:
                if i == 0:
                    self.status(reply, b"404 Message Not Found")
                    return
                break
            pending = max(pending - 1, 0)
            self.send_message(reply, found, request.no_hdr, (pending, last))
            last = at
            at += 1
            room -= len(found.subject) + len(found.headers) + len(found.payload)
            if room <= 0:
                break
        self.status(reply, b"204 EOB", end_lines(pending, last))

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
        patterns = [encoded(pattern) for pattern in request.multi_last]
        lasts = store.last_sequences(patterns, up_to, RESULTS_MAX)
        # As in nats-server, both errors count what is before the first sequence, too.
        if len(lasts) > RESULTS_MAX:
            self.status(reply, b"413 Too Many Results")
            return
        if not lasts:
            self.status(reply, b"404 No Results")
            return
        sequences = [sequence for sequence in lasts if sequence >= request.seq]
        room = self.room(request)
        pending = len(sequences)
        last = 0
        for count, sequence in enumerate(sequences, 1):
            found = store.get(sequence)
            pending -= 1
            if found is None:
                continue
            self.send_message(reply, found, False, (pending, last))
            last = sequence
            room -= len(found.subject) + len(found.headers) + len(found.payload)
            if room <= 0 or 0 < request.batch <= count:
                break
        lines = end_lines(pending, last) + b"Nats-UpTo-Sequence: %d\r\n" % up_to
        self.status(reply, b"204 EOB", lines)

    def room(self, request: MsgGetRequest) -> int:
        """Bytes that may be sent in answer to one request; at 0 and below it ends behind the first
        message."""
        if request.max_bytes == 0:
            return self.bytes_max
        return min(request.max_bytes, self.bytes_max)

    def send_message(
        self, reply: bytes, found: Any, bare: bool, batch: tuple[int, int] | None = None
    ) -> None:
        """Send one stored message with its identity; `batch` is (pending, last sequence)."""
        if bare:
            self.stream.account.send(reply, found.payload)
            return
        lines = (
            b"Nats-Stream: %b\r\nNats-Subject: %b\r\nNats-Sequence: %d\r\nNats-Time-Stamp: %b\r\n"
            % (
                self.stream.name_bytes,
                found.subject,
                found.sequence,
                format_time(found.timestamp).encode(),
            )
        )
        if batch is not None:
            lines += end_lines(*batch)
        block = opened(found.headers) + lines + b"\r\n"
        self.stream.account.send(reply, found.payload, b"", block)


def end_lines(pending: int, last: int) -> bytes:
    return b"Nats-Num-Pending: %d\r\nNats-Last-Sequence: %d\r\n" % (pending, last)


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
