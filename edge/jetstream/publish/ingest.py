"""The publish path: from a routed message to a stored one and a promised answer.

Checks follow the order of the protocol's reference server, because the first failed one names the
error: sealed, counter, expected stream, TTL permission, expected sequences, schedule, duplicate,
expected id, roll-up, sizes, account limits, interest, TTL, store. A message without headers passes
only the limits. What batches, counters and schedules need is in `special`.
"""

import logging

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.model.headers import (
    PublishHeaders,
    Slice,
    has_status,
    scan_publish,
)
from cython.cimports.headwater.edge.jetstream.publish.batch import Batches
from cython.cimports.headwater.edge.jetstream.publish.fast_batch import (
    FastBatch,
    FastBatches,
    Step,
    is_step,
    read_step,
)
from cython.cimports.headwater.edge.jetstream.stream.puback import DUPLICATE, STORED
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import Endpoint, Msg, Sink
from cython.cimports.headwater.edge.subjects.tokens import is_literal
from cython.cimports.headwater.edge.wire.header_block import find_header
from cython.cimports.headwater.edge.wire.numbers import parse_number

from headwater.edge.jetstream.model import errors, headers
from headwater.edge.jetstream.model.requests import LEVEL, check_level
from headwater.edge.jetstream.model.ttl import parse_ttl, with_ttl
from headwater.edge.jetstream.publish import special
from headwater.edge.jetstream.stream import stream_wire
from headwater.edge.jetstream.stream.stream import SUBJECT_FULL
from headwater.edge.jetstream.stream.usage import REFUSALS
from headwater.edge.storage.format.errors import StoreError

log = logging.getLogger("headwater.jetstream")

HEADER_MAX = cython.declare(cython.Py_ssize_t, 65535)
NO_NUMBER = cython.declare(cython.ulonglong, cython.cast(cython.ulonglong, -1))


@cython.cfunc
def text_of(value: Slice) -> bytes:
    return PyBytes_FromStringAndSize(cython.cast(cython.p_char, value.at), value.n)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def number_of(value: Slice) -> cython.ulonglong:
    """The number in a header; one that no sequence reaches when it is none."""
    number: cython.longlong = parse_number(value.at, value.n)
    return NO_NUMBER if number < 0 else cython.cast(cython.ulonglong, number)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def is_word(value: Slice, word: cython.p_const_char, n: cython.Py_ssize_t) -> cython.bint:
    """Whether a header is this word, of small letters, in letters of any size."""
    i: cython.Py_ssize_t = 0
    if value.n != n:
        return False
    while i < n and value.at[i] >= 0x41 and value.at[i] | 0x20 == word[i]:
        i += 1
    return i == n


@cython.cclass
class IngestSink(Sink):
    """Stores what is published on one of a stream's subjects."""

    def __init__(self, stream: Stream, subject: bytes):
        Sink.__init__(self, subject, None)
        self.stream = stream

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Ingest a published message; it is counted as delivered even when it is refused."""
        copy: Msg
        subject: bytes
        if self.closed or (self.shut is not None and sender in self.shut):
            return 0
        self.delivered += 1
        if self.stream.transform is None:
            self.ingest(m)
            return 1
        copy = m[0]
        subject = self.stream.transform.apply(m.subject, m.subject_len, self.stream.kernel.random())
        if subject is not None:
            copy.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
            copy.subject_len = PyBytes_GET_SIZE(subject)
        self.ingest(cython.address(copy))
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def ingest(self, m: cython.pointer(Msg)) -> cython.int:
        """Store or refuse a message whose subject is final."""
        self.now_ns = self.stream.kernel.arrival_ns()
        if self.stream.sealed:
            return self.refuse(m, errors.STREAM_SEALED)
        if is_step(m.reply, m.reply_len):
            return self.accept_step(m)
        return self.accept(m)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accept(self, m: cython.pointer(Msg)) -> cython.int:
        """Store or refuse a message on its own."""
        h: PublishHeaders
        if self.too_large(m):
            return self.refuse(m, errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        try:
            if m.header_len == 0:
                if self.stream.counter:
                    return self.store_special(m)
                return self.store_plain(m)
            if has_status(m.body, m.header_len):
                return self.accept_without_status(m)
            scan_publish(m.body, m.header_len, cython.address(h))
            if h.slow or self.stream.counter:
                if h.batch_id.n > 0 and self.held(m, cython.address(h)):
                    return 0
                return self.store_special(m)
            return self.store_checked(m, cython.address(h), None)
        except StoreError as failure:
            return self.refuse_with(m, stream_wire.append_error(failure))
        except Exception as failure:
            log.exception(
                "stream %s could not take a message; it is refused; report this fault",
                self.stream.name,
            )
            reason = f"internal error, see the server's log: {type(failure).__name__}"
            return self.refuse_with(m, errors.STREAM_GENERAL_ERROR.error(err=reason))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def held(self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)) -> cython.bint:
        """Whether the message was the next one of an open batch, which holds it now."""
        batches: Batches = self.stream.batches
        return batches is not None and not self.quiet and batches.hold(m, h)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def too_large(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message is larger than the stream takes. What another account's request
        carries is not stored, and does not count, but for a message of a batch."""
        most: cython.longlong = self.stream.max_msg_size
        if most < 0 or m.size <= most:
            return False
        if m.header_len == 0 or m.size - m.header_len > most or is_step(m.reply, m.reply_len):
            return True
        if find_header(m.body, m.header_len, b"Nats-Batch-Id", 13).n > 0:
            return True
        block: bytes = PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len)
        kept: bytes = special.without_request(block, headers.parse(block))
        return m.size - m.header_len + PyBytes_GET_SIZE(kept) > most

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accept_without_status(self, m: cython.pointer(Msg)) -> cython.int:
        """`accept` for a message whose header block has a status, which is not stored."""
        copy: Msg = m[0]
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        block: bytes = headers.without_status(PyBytes_FromStringAndSize(body, m.header_len))
        copy.header_len = PyBytes_GET_SIZE(block)
        block += PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len)
        copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
        copy.size = PyBytes_GET_SIZE(block)
        return self.accept(cython.address(copy))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accept_step(self, m: cython.pointer(Msg)) -> cython.int:
        """Accept or refuse a message of a fast batch."""
        stream: Stream = self.stream
        step: Step
        both: Batches = stream.batches
        batches: FastBatches = None if both is None else both.fast
        if self.too_large(m):
            return self.refuse(m, errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
        if batches is None:
            return self.refuse(m, errors.BATCH_PUBLISH_DISABLED)
        if not read_step(m.reply, m.reply_len, cython.address(step)):
            return self.refuse(m, errors.BATCH_PUBLISH_INVALID_PATTERN)
        try:
            batch: FastBatch = batches.find(cython.address(step))
        except errors.JetStreamError as error:
            return self.refuse_with(m, error)
        if m.header_len and find_header(m.body, m.header_len, b"Nats-Required-Api-Level", 23).n > 0:
            return self.accept_level(m, batches, batch)
        if not batches.expects(m, cython.address(step), batch):
            return 0
        before: cython.ulonglong = stream.newest()
        self.store_quietly(m)
        if self.refusal is not None:
            return batches.refused(m, cython.address(step), batch, self.refusal)
        if stream.newest() == before:
            return batches.repeated(m, cython.address(step), batch)
        return batches.accepted(m, cython.address(step), batch, stream.newest())

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def accept_level(
        self, m: cython.pointer(Msg), batches: FastBatches, batch: FastBatch
    ) -> cython.int:
        """`accept_step` for a message that requires an API level, which is not stored. Where that
        is a later one than this server's, the batch ends."""
        copy: Msg = m[0]
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        block: bytes = PyBytes_FromStringAndSize(body, m.header_len)
        try:
            check_level(block)
        except errors.JetStreamError as error:
            batches.close(batch)
            return self.refuse_with(m, error)
        block = headers.without(block, LEVEL.__eq__)
        if PyBytes_GET_SIZE(block) == m.header_len:
            return self.refuse(m, errors.BAD_REQUEST)
        copy.header_len = PyBytes_GET_SIZE(block)
        block += PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len)
        copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
        copy.size = PyBytes_GET_SIZE(block)
        return self.accept_step(cython.address(copy))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store_quietly(self, m: cython.pointer(Msg)) -> cython.int:
        """Store a message without an answer; `refusal` is the error that refused it, or None."""
        copy: Msg = m[0]
        copy.reply_len = 0
        self.refusal = None
        self.quiet = True
        try:
            self.accept(cython.address(copy))
        finally:
            self.quiet = False
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store_plain(self, m: cython.pointer(Msg)) -> cython.int:
        """Store a message that has no headers to look at."""
        stream: Stream = self.stream
        sequence: cython.ulonglong
        if self.refused_limits(m):
            return 0
        if PyBytes_GET_SIZE(stream.last_msg_id):
            stream.last_msg_id = b""
        if stream.consumers.unwanted(m.subject, m.subject_len):
            sequence = stream.pass_over(m, self.now_ns)
        else:
            sequence = stream.keep(m, self.now_ns, 0)
        return stream.answers.owe_ack(m, sequence, STORED)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store_special(self, m: cython.pointer(Msg)) -> cython.int:
        """Store a message of a batch, counter or schedule: `special` says what is stored."""
        copy: Msg = m[0]
        h: PublishHeaders
        body: cython.p_char = cython.cast(cython.p_char, m.body)
        block: bytes = PyBytes_FromStringAndSize(body, m.header_len)
        payload: bytes = PyBytes_FromStringAndSize(body + m.header_len, m.size - m.header_len)
        subject: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_char, m.subject), m.subject_len
        )
        try:
            found = headers.parse(block) if block else {}
            if found.get(b"Nats-Batch-Id") and not self.quiet:
                special.add_to_batch(self.stream, subject, self.reply_of(m), block, payload, found)
                return 0
            special.check_increment(self.stream, payload, found)
            scan_publish(m.body, m.header_len, cython.address(h))
            if h.any and self.refused_rights(m, cython.address(h)):
                return 0
            if self.quiet:
                special.check_counted(self.stream, found)
            if h.any and self.refused_expectations(m, cython.address(h)):
                return 0
            prepared = special.prepare(self.stream, subject, block, payload, found)
        except errors.JetStreamError as error:
            return self.refuse_with(m, error)
        head, payload, extra = prepared
        block = head + payload
        copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
        copy.header_len = len(head)
        copy.size = PyBytes_GET_SIZE(block)
        scan_publish(copy.body, copy.header_len, cython.address(h))
        if extra is None and self.stream.config.allow_msg_counter:
            if h.any and self.answered_by_headers(cython.address(copy), cython.address(h)):
                return 0
            return self.refuse(m, errors.MESSAGE_INCR_MISSING)
        return self.store_checked(cython.address(copy), cython.address(h), extra)

    @cython.cfunc
    def reply_of(self, m: cython.pointer(Msg)) -> bytes:
        """Where a message's answer goes; empty without one."""
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.reply), m.reply_len)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def store_checked(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders), extra: bytes
    ) -> cython.int:
        """Store a message with headers; `extra` is what its PubAck says besides the sequence."""
        if h.any and self.answered_by_headers(m, h):
            return 0
        if self.refused_limits(m):
            return 0
        return self.finish(m, h, text_of(h.msg_id) if h.msg_id.n > 0 else b"", extra)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answered_by_headers(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether the message was refused for what its headers expect, or is known already."""
        stream: Stream = self.stream
        # A leader of replicas knows a retry before it looks at what it expects, which has come
        # true with the first try; a stream alone the other way round. So does nats-server.
        early: cython.bint = stream.group != 0 and not self.quiet
        if self.refused_rights(m, h):
            return True
        if early and self.answered_before(m, h):
            return True
        if self.refused_expectations(m, h):
            return True
        if not early and self.answered_before(m, h):
            return True
        early = self.quiet or stream.group != 0
        if early and h.rollup.n > 0 and self.refused_roll_up(m, h):
            return True
        if h.expected_last_id.n > 0 and text_of(h.expected_last_id) != stream.last_msg_id:
            last = stream.last_msg_id.decode("utf-8", "replace")
            self.refuse_with(m, errors.STREAM_WRONG_LAST_MSG_ID.error(id=last))
            return True
        return not early and h.rollup.n > 0 and self.refused_roll_up(m, h)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def answered_before(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether a message of this id was stored lately; its sequence is the answer then."""
        stream: Stream = self.stream
        known: cython.ulonglong
        if (h.msg_id.n > 0 or h.expected_last_id.n > 0) and not stream.dedupe.loaded:
            stream.load_ids()
        if h.msg_id.n > 0 and stream.dedupe.window_ns > 0 and not stream.is_mirror:
            known = stream.dedupe.find(text_of(h.msg_id), self.now_ns - stream.age_offset)
            if known:
                stream.answers.owe_ack(m, known, DUPLICATE)
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def finish(
        self,
        m: cython.pointer(Msg),
        h: cython.pointer(PublishHeaders),
        msg_id: bytes,
        extra: bytes,
    ) -> cython.int:
        """Store what was accepted, with its TTL, id and roll-up, and owe the answer."""
        stream: Stream = self.stream
        copy: Msg = m[0]
        sequence: cython.ulonglong
        ttl_s: cython.longlong = 0
        block: bytes
        if stream.consumers.unwanted(m.subject, m.subject_len):
            sequence = stream.pass_over(m, self.now_ns)
            self.remember_id(msg_id, sequence)
            self.roll_up(m, h, 0)
            return stream.answers.owe_ack(m, sequence, STORED)
        if h.ttl.n > 0:
            found = parse_ttl(text_of(h.ttl))
            if found is None:
                return self.refuse(m, errors.MESSAGE_TTL_INVALID)
            ttl_s = found
        if 0 < ttl_s < stream.marker_ttl_s and stream.max_per_subject != 1:
            # A message that ends before a marker of its subject would hide that it ended.
            ttl_s = stream.marker_ttl_s
            block = with_ttl(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len), ttl_s
            )
            copy.header_len = PyBytes_GET_SIZE(block)
            block += PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, m.body) + m.header_len, m.size - m.header_len
            )
            copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(block))
            copy.size = PyBytes_GET_SIZE(block)
        sequence = stream.keep(cython.address(copy), self.now_ns, 0)
        self.remember_id(msg_id, sequence)
        if ttl_s > 0 and stream.timers is not None:
            stream.timers.add(sequence, self.now_ns - stream.age_offset + ttl_s * 1000000000)
        self.roll_up(m, h, 1)
        if extra is None:
            return stream.answers.owe_ack(m, sequence, STORED)
        return stream.answers.owe(
            m, sequence, stream.answers.head + b"%d" % sequence + extra + b"}"
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remember_id(self, msg_id: bytes, sequence: cython.ulonglong) -> cython.int:
        """Remember the id of the last message, and of this one when it has one."""
        stream: Stream = self.stream
        stream.last_msg_id = msg_id
        if PyBytes_GET_SIZE(msg_id) and stream.dedupe.window_ns > 0:
            stream.dedupe.put(msg_id, sequence, self.now_ns - stream.age_offset)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_rights(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether the expected stream, or the permission for a TTL, refuses the message."""
        stream: Stream = self.stream
        if h.expected_stream.n > 0 and text_of(h.expected_stream) != stream.name_bytes:
            self.refuse(m, errors.STREAM_NOT_MATCH)
            return True
        # Of a batch, or for a replicated stream, a TTL that cannot be read is told here.
        early: cython.bint = self.quiet or stream.group != 0
        if h.ttl.n <= 0 or (stream.ttl_allowed and not early):
            return False
        ttl_s = parse_ttl(text_of(h.ttl))
        if not stream.ttl_allowed and (ttl_s or (ttl_s is None and early)):
            self.refuse(m, errors.MESSAGE_TTL_DISABLED)
            return True
        if ttl_s is None and early:
            self.refuse(m, errors.MESSAGE_TTL_INVALID)
            return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_expectations(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether an expected sequence refuses the message: in a batch, and of a replicated stream,
        the stream's comes first."""
        if self.quiet or self.stream.group != 0:
            return self.refused_last(m, h) or self.refused_subject_last(m, h)
        return self.refused_subject_last(m, h) or self.refused_last(m, h)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_subject_last(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether another last sequence of a subject was expected."""
        last: cython.ulonglong
        if h.expected_subject_last.n > 0:
            last = self.last_of(m, h.expected_subject)
            if last != number_of(h.expected_subject_last):
                self.refuse_with(m, errors.STREAM_WRONG_LAST_SEQUENCE.error(seq=last))
                return True
        elif h.expected_subject.n > 0:
            self.refuse(m, errors.STREAM_EXPECTED_LAST_SEQ_PER_SUBJECT_INVALID)
            return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_last(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether another last sequence of the stream was expected."""
        last: cython.ulonglong
        if h.expected_last.n > 0:
            last = self.stream.newest()
            if last != number_of(h.expected_last):
                self.refuse_with(m, errors.STREAM_WRONG_LAST_SEQUENCE.error(seq=last))
                return True
        return False

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def last_of(self, m: cython.pointer(Msg), other: Slice) -> cython.ulonglong:
        """The last sequence of the message's subject, or of the pattern in `other`."""
        if other.n <= 0:
            return self.stream.last_for(m.subject, m.subject_len)
        if is_literal(other.at, other.n):
            return self.stream.last_for(other.at, other.n)
        return stream_wire.last_sequence(self.stream, text_of(other))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_roll_up(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders)
    ) -> cython.bint:
        """Whether the roll-up that the message asks for is not permitted, or none."""
        if not self.stream.rollup_allowed:
            self.refuse_with(m, errors.STREAM_ROLLUP_FAILED.error(err="rollup not permitted"))
            return True
        if not is_word(h.rollup, b"sub", 3) and not is_word(h.rollup, b"all", 3):
            value = text_of(h.rollup).decode("utf-8", "replace").lower()
            text = f'rollup value invalid: "{value}"'
            self.refuse_with(m, errors.STREAM_ROLLUP_FAILED.error(err=text))
            return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def roll_up(
        self, m: cython.pointer(Msg), h: cython.pointer(PublishHeaders), keep: cython.int
    ) -> cython.int:
        """Remove what the message replaces: its subject's, or all, earlier messages."""
        if h.rollup.n <= 0:
            return 0
        if is_word(h.rollup, b"all", 3):
            self.stream.purge(b"", 0, keep)
        elif (
            not keep
            or self.stream.count_for(m.subject, m.subject_len) > 1
            or not is_literal(m.subject, m.subject_len)
        ):
            self.stream.purge(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                0,
                keep,
            )
        elif self.stream.replicator is None:
            # Nothing is left to remove; consumers go on as behind any purge.
            self.stream.purge_done(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len)
            )
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_limits(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a size or a limit refuses the message."""
        stream: Stream = self.stream
        size: cython.longlong = m.size + m.subject_len + stream.overhead
        if stream.max_msg_size >= 0 and m.size > stream.max_msg_size:
            self.refuse(m, errors.STREAM_MESSAGE_EXCEEDS_MAXIMUM)
            return True
        if m.header_len > HEADER_MAX:
            self.refuse(m, errors.STREAM_HEADER_EXCEEDS_MAXIMUM)
            return True
        full: cython.int = stream.usage.refuses(size)
        if full:
            self.refuse(m, REFUSALS[full])
            return True
        if stream.discard_new:
            return self.refused_discard(m, size)
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refused_discard(self, m: cython.pointer(Msg), size: cython.longlong) -> cython.bint:
        """Whether a full stream that discards new messages refuses this one."""
        stream: Stream = self.stream
        text: str
        if stream.consumers.unwanted(m.subject, m.subject_len):
            return False
        text = stream.full_for(m, size, False)
        if text is SUBJECT_FULL and self.rolls_up(m):
            text = stream.full_for(m, size, True)
        return text is not None and self.refuse_full(m, text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def rolls_up(self, m: cython.pointer(Msg)) -> cython.bint:
        """Whether a message takes the place of all others of its subject, or of the stream."""
        h: PublishHeaders
        if m.header_len == 0:
            return False
        scan_publish(m.body, m.header_len, cython.address(h))
        return h.rollup.n > 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse_full(self, m: cython.pointer(Msg), text: str) -> cython.bint:
        """Refuse what a full stream does not take; a TTL that is none is told before."""
        h: PublishHeaders
        if m.header_len:
            scan_publish(m.body, m.header_len, cython.address(h))
            if h.ttl.n > 0 and parse_ttl(text_of(h.ttl)) is None:
                self.refuse(m, errors.MESSAGE_TTL_INVALID)
                return True
        if m.reply_len or self.quiet:
            self.refuse_with(m, errors.STREAM_STORE_FAILED.error(err=text))
        return True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse(self, m: cython.pointer(Msg), kind: object) -> cython.int:
        """Answer with an error whose text is always the same."""
        if self.quiet:
            self.refusal = kind.error()
        elif m.reply_len:
            self.stream.answers.refuse(m, kind)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse_with(self, m: cython.pointer(Msg), error: object) -> cython.int:
        """Answer with an error."""
        if self.quiet:
            self.refusal = error
        elif m.reply_len:
            self.stream.answers.refuse_with(m, error)
        return 0


@cython.cclass
class LastIngest(IngestSink):
    """Takes what is on its way already from `senders`, while another node is about to lead: routes
    do not tell other nodes of it."""

    def __init__(self, stream: Stream, subject: bytes, senders: set):
        IngestSink.__init__(self, stream, subject)
        self.senders = senders
        self.interim = True

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def deliver(self, m: cython.pointer(Msg), sender: Endpoint) -> cython.int:
        """Ingest a message of a sender that has not heard yet that it is to keep it."""
        return IngestSink.deliver(self, m, sender) if sender in self.senders else 0
