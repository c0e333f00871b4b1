"""A stream: stored messages of some subjects, and what is owed for them.

A `Stream` ties its store, its consumers and its account together: it appends what ingest accepts,
keeps the limits, sends PubAcks of what is committed, wakes consumers, and drops what retention no
longer needs. Checks of headers are ingest's, ages are `expiry`'s, requests
are the API's. Everything here runs on the loop's thread.
"""

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.jetstream.replication.operations import OP_MESSAGE, OP_PASS
from cython.cimports.headwater.edge.jetstream.replication.read_gate import ReadGate
from cython.cimports.headwater.edge.jetstream.replication.replicator import Replicator
from cython.cimports.headwater.edge.jetstream.stream.answers import Answers
from cython.cimports.headwater.edge.jetstream.stream.dedupe import DedupeWindow
from cython.cimports.headwater.edge.jetstream.stream.republish import Republisher
from cython.cimports.headwater.edge.jetstream.stream.stream_consumers import StreamConsumers
from cython.cimports.headwater.edge.jetstream.stream.usage import Usage
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg, Task
from cython.cimports.headwater.edge.storage.index.store import MessageStore
from cython.cimports.headwater.edge.wire.header_block import Slice, extended, find_header

from headwater.edge.jetstream.config.link_choices import is_urgent
from headwater.edge.jetstream.model.bounds import span
from headwater.edge.jetstream.model.times import SECOND
from headwater.edge.jetstream.stream import stream_wire
from headwater.edge.jetstream.stream.counters import sourced
from headwater.edge.kernel.turn_order import NewsStage
from headwater.edge.storage.format.errors import StoreFull
from headwater.edge.storage.index.purge_plan import PurgePlan

# Messages that a changed limit takes out at once, and subjects that are looked at.
TRIM_MAX = cython.declare(cython.int, 2000)
SUBJECTS_AT_ONCE = cython.declare(cython.int, 1000)
# Which limit refuses a message, as nats-server says it.
SUBJECT_FULL = "maximum messages per subject exceeded"
MESSAGES_FULL = "maximum messages exceeded"
BYTES_FULL = "maximum bytes exceeded"


@cython.cclass
class Stream(Task):
    """One stream of one account. `start` makes it listen, `stop` ends it without deleting data."""

    def __init__(
        self,
        account: Account,
        store: MessageStore,
        config: object,
        incarnation: str,
        created_ns: int,
        node: object,
        usage: Usage,
    ):
        self.account = account
        self.kernel = account.kernel
        self.store = store
        self.name = config.name
        self.name_bytes = self.name.encode()
        self.incarnation = incarnation
        self.created_ns = created_ns
        self.node = node
        self.usage = usage
        self.consumers = StreamConsumers(self.kernel, self.sweep)
        self.sinks = []
        self.answers = Answers(self.name, node.domain, account, store, self)
        self.dedupe = DedupeWindow(0)
        self.last_msg_id = b""
        self.cluster = ""
        store.listen(self, NewsStage.STREAM)
        self.configure(config)
        self.count_usage()

    def configure(self, config: object) -> None:
        """Act on a checked configuration from now on."""
        self.config = config
        self.max_msgs = config.max_msgs
        self.max_bytes = config.max_bytes
        self.max_age = span(config.max_age)
        self.max_per_subject = config.max_msgs_per_subject
        self.max_msg_size = config.max_msg_size
        self.marker_ttl_s = span(config.subject_delete_marker_ttl) // SECOND
        self.discard_new = config.discard == "new"
        self.discard_new_per = config.discard_new_per_subject
        self.answers.configure(config.no_ack)
        self.sealed = config.sealed
        self.consumers.configure(config.retention)
        self.urgent = is_urgent(config.metadata)
        self.ttl_allowed = config.allow_msg_ttl
        self.rollup_allowed = config.allow_rollup_hdrs
        self.is_mirror = config.mirror is not None
        self.counter = config.allow_msg_counter
        self.overhead = stream_wire.OVERHEAD[config.storage]
        self.dedupe.resize(span(config.duplicate_window))
        self.transform = stream_wire.input_transform(config)
        self.republisher = None
        republish = stream_wire.republish_transform(config)
        if republish is not None:
            self.republisher = Republisher(
                self.name_bytes, republish, config.republish.headers_only
            )

    def mute(self) -> None:
        """Say nothing of what is stored: another node leads."""
        self.republisher = None
        watch: object = self.node.age_watch
        self.age_offset = watch.offset if watch is not None else 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remember_id(
        self, m: cython.pointer(Msg), timestamp: cython.longlong, sequence: cython.ulonglong
    ) -> cython.int:
        """Remember the id of a message that another node has decided on. When this node leads next,
        the message may be gone, and whoever was not answered sends it again."""
        found: Slice
        now: cython.longlong = timestamp - self.age_offset
        if self.dedupe.window_ns <= 0 or self.is_mirror:
            return 0
        self.last_msg_id = b""
        if m.header_len:
            found = find_header(m.body, m.header_len, b"Nats-Msg-Id", 11)
            if found.n > 0:
                self.last_msg_id = PyBytes_FromStringAndSize(
                    cython.cast(cython.p_char, found.at), found.n
                )
                self.dedupe.expire(now)
                self.dedupe.put(self.last_msg_id, sequence, now)
        return 0

    def inherit_ids(self, before: Stream) -> None:
        """Know the ids that this stream knew when its node led: those whose messages came to be."""
        before.dedupe.cut(self.store.last_seq)
        self.dedupe = before.dedupe
        self.dedupe.loaded = False

    # --- storing ---------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def keep(
        self,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """Store an accepted message and keep the limits, or have the group do that; returns its
        sequence.

        `sequence` 0 takes the next one. Raises StoreError.
        """
        newest: cython.longlong = self.store.last_ts
        if not self.is_mirror:
            timestamp += self.lift
        if self.replicator is not None:
            newest = self.replicator.last_ts
        if timestamp < newest:
            if self.timers is not None and not self.is_mirror:
                self.timers.behind(newest - timestamp)
            timestamp = newest
        if self.replicator is not None:
            return self.replicator.append(m, timestamp, sequence, OP_MESSAGE)
        return self.enter(m, timestamp, sequence)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def enter(
        self,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """Store a message that was decided on, and keep the limits; returns its sequence.

        The same messages in the same order leave the same store, on whichever node. Raises
        StoreError.
        """
        last: cython.ulonglong = 0
        if self.republisher is not None:
            last = self.store.last_for(m.subject, m.subject_len)
        sequence = self.store.append(m, timestamp, sequence)
        if self.republisher is not None:
            self.republisher.add(m, sequence, timestamp, last, self.kernel.random())
        if self.schedules is not None:
            self.schedules.stored(
                sequence,
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.body), m.header_len),
                timestamp,
            )
        if self.max_per_subject > 0:
            self.trim_subject(m.subject, m.subject_len)
        if self.max_msgs > 0 or self.max_bytes > 0:
            self.trim()
        if self.max_age > 0 and not self.age_armed and self.timers is not None:
            self.timers.arm()
        self.count_usage()
        return sequence

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def append_import(
        self,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
        extra: bytes,
    ) -> cython.ulonglong:
        """Store a message of a mirror (its own `sequence`) or a source (0: a new one).

        `extra` (may be None) are header lines, each ended by CR LF, to be added. A sequence at or
        below the last one is known already and not stored again. Returns the sequence. Raises
        StoreError, StoreFull when the stream is full and discards new messages.
        """
        copy: Msg = m[0]
        body: bytes
        block: bytes
        if sequence and sequence <= self.newest():
            return sequence
        if extra is not None and extra:
            body = extended(m.body, m.header_len, m.size, extra)
            copy.header_len = PyBytes_GET_SIZE(body) - (m.size - m.header_len)
            if self.counter and not sequence:
                block, body = sourced(
                    self,
                    PyBytes_FromStringAndSize(cython.cast(cython.p_char, m.subject), m.subject_len),
                    body[: copy.header_len],
                    body[copy.header_len :],
                )
                copy.header_len = PyBytes_GET_SIZE(block)
                body = block + body
            copy.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
            copy.size = PyBytes_GET_SIZE(body)
        if self.consumers.unwanted(copy.subject, copy.subject_len):
            if not sequence:
                return self.pass_over(cython.address(copy), self.kernel.now_ns)
            self.skip(sequence)
            return sequence
        if self.discard_new:
            full: str = self.full_for(
                cython.address(copy), copy.size + copy.subject_len + self.overhead, False
            )
            if full is not None:
                raise StoreFull(full)
        if not timestamp:
            timestamp = self.kernel.now_ns
        sequence = self.keep(cython.address(copy), timestamp, sequence)
        if self.ttl_allowed and copy.header_len and self.timers is not None:
            self.timers.add_ttl(
                sequence,
                self.store.last_ts if self.replicator is None else self.replicator.last_ts,
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, copy.body), copy.header_len),
            )
        return sequence

    def import_message(
        self,
        subject: bytes,
        headers: bytes,
        payload: bytes,
        timestamp: int,
        sequence: int,
        extra: bytes | None = None,
    ) -> int:
        """`append_import` for interpreted callers."""
        m: Msg
        body: bytes = headers + payload
        m.subject = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(subject))
        m.subject_len = PyBytes_GET_SIZE(subject)
        m.reply = m.shown = cython.NULL
        m.reply_len = m.shown_len = 0
        m.via = MADE
        m.body = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(body))
        m.header_len = PyBytes_GET_SIZE(headers)
        m.size = PyBytes_GET_SIZE(body)
        return self.append_import(cython.address(m), timestamp, sequence, extra)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def pass_over(self, m: cython.pointer(Msg), timestamp: cython.longlong) -> cython.ulonglong:
        """Use up a sequence for a message that nobody is interested in; returns it.

        An empty message is stored and dropped in the same batch, so that the sequence is committed
        before it is acknowledged. Raises StoreError.
        """
        if self.replicator is not None:
            return self.replicator.append(m, timestamp, 0, OP_PASS)
        return self.enter_passed(m, timestamp, 0)

    @cython.cfunc
    @cython.exceptval(0, check=False)
    def enter_passed(
        self,
        m: cython.pointer(Msg),
        timestamp: cython.longlong,
        sequence: cython.ulonglong,
    ) -> cython.ulonglong:
        """`pass_over`, once it was decided on."""
        copy: Msg = m[0]
        copy.header_len = copy.size = 0
        sequence = self.store.append(cython.address(copy), timestamp, sequence)
        self.store.remove(sequence, False)
        return sequence

    def skip(self, sequence: int) -> None:
        """Make `sequence` the last one without a message: the origin of a mirror has none there."""
        if self.replicator is not None:
            self.replicator.skip(sequence)
        else:
            self.store.skip(sequence)

    # --- what is stored, and what is on its way to be ---------------------------------------------

    @cython.ccall
    @cython.exceptval(0, check=True)
    def newest(self) -> cython.ulonglong:
        """The last sequence that was given out."""
        return self.store.last_seq if self.replicator is None else self.replicator.last_seq

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def last_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """The last sequence given out on a literal subject; 0 when there is none."""
        last: cython.ulonglong = 0
        if self.replicator is not None:
            last = self.replicator.last_for(subject, n)
        return last if last else self.store.last_for(subject, n)

    @cython.cfunc
    @cython.exceptval(0, check=True)
    def count_for(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Messages on a literal subject."""
        more: cython.ulonglong = 0
        if self.replicator is not None:
            more = self.replicator.count_for(subject, n)
        return more + self.store.count_for(subject, n)

    @cython.ccall
    def entry_applied(self):
        """An entry of the group is applied: it is committed, so what waits for that may go on."""
        self.store.committed = self.store.last_seq
        self.count_usage()
        self.store.scheduled_listener()

    def load_ids(self) -> None:
        """Fill the deduplication window with the ids of stored messages, once after a start."""
        self.dedupe.loaded = True
        stream_wire.load_ids(self)
        if self.newest() == self.store.last_seq:
            self.last_msg_id = stream_wire.id_of(self, self.store.last_seq)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def run(self) -> cython.int:
        """More is committed, or an answer is due: send what waits, and have consumers look."""
        committed: cython.ulonglong = self.store.committed
        if self.deleted:
            return 0
        self.answers.release(committed)
        if self.republisher is not None:
            self.republisher.release(self.account, committed)
        self.consumers.wake()
        return 0

    # --- consumers and retention -----------------------------------------------------------

    def sweep(self) -> None:
        """Have the node drop, a slice per turn, what no consumer needs any more."""
        if self.store.messages:
            self.node.sweep(self)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def consumer_acked(self, sequence: cython.ulonglong) -> cython.int:
        """A consumer is done with `sequence`; drop it when retention says so."""
        if self.consumers.let_go(sequence):
            self.drop(sequence)
            self.count_usage()
        return 0

    def sweep_some(self, start: int, most: int) -> int:
        """Drop up to `most` messages from `start` on that interest no longer holds.

        Returns where to go on, 0 at the end.
        """
        at: cython.ulonglong = start
        left: cython.longlong = most
        everything = self.store.filter(())
        if not self.consumers.drops_unneeded():
            return 0
        while left > 0:
            at = self.store.next_match(everything, at)
            if not at:
                break
            if not self.consumers.need(at):
                self.drop(at)
            at += 1
            left -= 1
        self.count_usage()
        return at

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def drop(self, sequence: cython.ulonglong) -> cython.int:
        """Remove a message, or have the group remove it; 1 when it was there."""
        if self.replicator is None:
            return self.remove_here(sequence)
        if not self.store.cost_of(sequence):
            return 0
        self.replicator.remove(sequence)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def remove_here(
        self, sequence: cython.ulonglong, erase: cython.bint = False
    ) -> cython.int:
        """Remove a message, and tell the consumers that may hold it; 1 when it was there."""
        if not self.store.remove(sequence, erase):
            return 0
        self.consumers.removed(sequence)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def trim(self) -> cython.int:
        """Drop the oldest messages until `max_msgs` and `max_bytes` hold, unless it is the new
        ones that are refused; TRIM_MAX of them or a few more, the next call goes on. Returns how
        many went."""
        last: cython.ulonglong
        gone: cython.int = 0
        if self.discard_new:
            return 0
        while (
            self.max_msgs > 0
            and gone < TRIM_MAX
            and self.store.messages > cython.cast(cython.ulonglong, self.max_msgs)
        ):
            self.remove_here(self.store.first_seq)
            gone += 1
        while (
            self.max_bytes > 0
            and gone < TRIM_MAX
            and self.store.messages > 0
            and self.store.bytes > cython.cast(cython.ulonglong, self.max_bytes)
        ):
            last = self.store.first_seq if self.disk is None else self.disk.last_to_go()
            while self.store.messages > 0 and self.store.first_seq <= last:
                self.remove_here(self.store.first_seq)
                gone += 1
        return gone

    @cython.cfunc
    def full_for(
        self, m: cython.pointer(Msg), size: cython.longlong, rolls_up: cython.bint
    ) -> str:
        """Which limit has no room for a message of `size` counted bytes, in words; None with room.
        For a stream that discards new messages. One that `rolls_up` adds none to its subject."""
        full: cython.bint = False
        oldest: cython.ulonglong
        if m.header_len:
            size += self.store.header_overhead
        if self.max_per_subject > 0:
            full = self.count_for(m.subject, m.subject_len) >= cython.cast(
                cython.ulonglong, self.max_per_subject
            )
        if full and self.discard_new_per and not rolls_up:
            return SUBJECT_FULL
        # One that takes the place of its subject's oldest adds no message.
        if not full and self.has_most_messages():
            return MESSAGES_FULL
        if not self.has_room(size, m.subject_len):
            oldest = self.store.first_for(m.subject, m.subject_len) if full else 0
            if not full or cython.cast(cython.longlong, self.store.cost_of(oldest)) < size:
                return BYTES_FULL
        return None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def has_most_messages(self) -> cython.bint:
        """Whether there are `max_msgs` messages, with those that are on their way."""
        held: cython.longlong = self.store.messages
        if self.replicator is not None:
            held += self.replicator.messages
        return self.max_msgs > 0 and held >= self.max_msgs

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def is_full(self) -> cython.bint:
        """Whether it discards new messages and has room for none of a subject that is new."""
        return self.discard_new and (self.has_most_messages() or not self.has_room(1, 0))

    @cython.ccall
    @cython.exceptval(-1, check=False)
    def has_room(self, size: cython.longlong, subject_len: cython.Py_ssize_t) -> cython.bint:
        """Whether `size` bytes more are within `max_bytes`."""
        if self.max_bytes <= 0:
            return True
        if self.replicator is not None:
            size += self.replicator.stored_bytes
        if cython.cast(cython.longlong, self.store.bytes) + size <= self.max_bytes:
            return True
        return self.disk is not None and self.disk.has_room(size, subject_len)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def trim_subject(self, subject: cython.p_const_uchar, n: cython.Py_ssize_t) -> cython.int:
        """Drop the oldest messages of a subject until `max_msgs_per_subject` holds; TRIM_MAX of
        them, the next call goes on. Returns how many went."""
        oldest: cython.ulonglong
        gone: cython.int = 0
        while gone < TRIM_MAX and self.store.count_for(subject, n) > cython.cast(
            cython.ulonglong, self.max_per_subject
        ):
            oldest = self.store.first_for(subject, n)
            if not oldest or not self.remove_here(oldest):
                break
            gone += 1
        return gone

    def trim_all(self) -> None:
        """Make a changed configuration's limits hold for what is stored."""
        number = self.trim_some(1)
        while number:
            number = self.trim_some(number)

    def trim_some(self, number: int) -> int:
        """`trim_all` in parts: begin with 1, and go on with what is returned until that is 0."""
        gone: cython.int = self.trim()
        if gone < TRIM_MAX:
            number = self.trim_subjects(number) if self.max_per_subject > 0 else 0
        self.count_usage()
        return number

    def trim_subjects(self, number: int) -> int:
        """Trim some subjects by their numbers; returns where to go on, 0 at the end."""
        text: bytes
        gone: cython.int = 0
        rows, following = self.store.rows_of(self.store.filter(()), number, SUBJECTS_AT_ONCE)
        for row in rows:
            text = row[0]
            gone += self.trim_subject(
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(text)), len(text)
            )
            if gone >= TRIM_MAX:
                return number
        return following

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def count_usage(self) -> cython.int:
        """Tell the account how many bytes this stream holds."""
        held: cython.longlong = self.store.bytes
        if held != self.counted_bytes:
            self.usage.change(held - self.counted_bytes)
            self.counted_bytes = held
        return 0

    def draw_on(self, usage: Usage) -> None:
        """Count in another tier from now on, with all that the stream holds."""
        self.usage.change(-self.counted_bytes)
        self.usage = usage
        usage.change(self.counted_bytes)

    # --- requests --------------------------------------------------------------------------

    def delete_message(self, sequence: int, erase: bool) -> bool:
        """Delete one message; False when it is not there."""
        if self.replicator is not None and self.store.cost_of(sequence):
            self.replicator.remove(sequence, erase)
            return True
        if not self.remove_here(sequence, erase):
            return False
        self.count_usage()
        return True

    def purge(self, subject: bytes = b"", sequence: int = 0, keep: int = 0) -> int:
        """Remove messages of `subject` (b"": all) below `sequence`, or all but the last `keep`.

        Returns how many; 0 when the group has to do it (see Replicator.purge). Raises StoreError.
        """
        if self.replicator is not None:
            self.replicator.purge(subject, sequence, keep)
            return 0
        return self.enter_purge(subject, sequence, keep)

    def enter_purge(self, subject: bytes, sequence: int, keep: int) -> int:
        """`purge`, once it was decided on."""
        gone: int = self.store.purge(subject or b">", sequence, keep)
        # A group purges up to its last message, which is no purge where there never was one.
        whole = not (sequence or keep or subject.strip(b">"))
        self.emptied = self.emptied or (whole and (self.group == 0 or self.store.last_seq > 0))
        # Also when nothing was left: who delivered nothing then goes on behind the last message.
        self.purge_done(subject)
        return gone

    def purge_some(self, plan: PurgePlan, limit: int) -> int:
        """Take out a part of what a purge means; `purge_done` follows upon the last one. Until then
        consumers find holes, as where a message was damaged."""
        gone: int = self.store.purge_some(plan, limit)
        self.count_usage()
        return gone

    def purge_done(self, subject: bytes = b"") -> None:
        """Let consumers, and whoever follows origins, look at what a purge of `subject` (b"": all)
        has left."""
        self.consumers.purged(subject or b">", self.store)
        if self.origin_driver is not None:
            self.origin_driver.purged()
        self.count_usage()

    def passed_over(self) -> None:
        """The store took messages out by itself, because they are damaged."""
        self.purge_done()
        self.consumers.wake()

    # --- life ------------------------------------------------------------------------------

    def listen(self, sinks: list) -> None:
        """Replace the stream's sinks in its account; what stays the same is not touched."""
        wanted: dict = {(type(sink), sink.subject): sink for sink in sinks}
        kept: list = []
        gone: list = []
        for sink in self.sinks:
            there = wanted.pop((type(sink), sink.subject), None) is not None
            (kept if there else gone).append(sink)
        # The new ones first: a subject that stays is never without interest.
        for sink in wanted.values():
            self.account.insert(sink)
            kept.append(sink)
        for sink in gone:
            self.account.remove(sink)
        self.sinks = kept

    def stop(self, deleted: bool) -> None:
        """End: no more sinks, timers or answers. The data is the node's to close or delete."""
        self.listen([])
        self.deleted = True
        if self.timers is not None:
            self.timers.stop()
        self.answers.clear()
        self.store.unlisten(self)
        if deleted:
            self.usage.change(-self.counted_bytes)
            self.counted_bytes = 0
