"""What a stream owes its publishers: PubAcks and errors, in order, once what they say is safe."""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.broker.account import Account
from cython.cimports.headwater.edge.jetstream.stream.puback import EMPTY, STORED, AckQueue
from cython.cimports.headwater.edge.kernel.kernel import Msg, Task
from cython.cimports.headwater.edge.storage.index.store import MessageStore

from headwater.edge.jetstream.stream import stream_wire


@cython.cclass
class Answers:
    """The answers of one stream. `releaser` is the task that calls `release`: a commit schedules
    it, and so does an answer that need not wait for one."""

    def __init__(
        self, name: str, domain: str, account: Account, store: MessageStore, releaser: Task
    ):
        self.name = name
        self.account = account
        self.store = store
        self.releaser = releaser
        self.head = stream_wire.ack_head(name, domain)
        self.acks = AckQueue(self.head)
        self.error_texts = {}

    def configure(self, no_ack: bool) -> None:
        """Act on a checked configuration from now on."""
        self.no_ack = no_ack

    # --- owing -------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def owe_ack(
        self, m: cython.pointer(Msg), sequence: cython.ulonglong, kind: cython.int
    ) -> cython.int:
        """Owe the publisher a PubAck for `sequence`, as soon as that is durable."""
        return self.add(m.reply, m.reply_len, sequence, kind, None)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def owe(
        self, m: cython.pointer(Msg), sequence: cython.ulonglong, payload: bytes
    ) -> cython.int:
        """Owe the publisher `payload`, as soon as `sequence` is durable."""
        return self.add(m.reply, m.reply_len, sequence, STORED, payload)

    def owe_text(self, reply: bytes, sequence: int, payload: bytes, empty: bool = False) -> None:
        """`owe` for interpreted callers; `empty` sends a message without payload."""
        self.add(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(reply)),
            PyBytes_GET_SIZE(reply),
            sequence,
            EMPTY if empty else STORED,
            payload,
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add(
        self,
        reply: cython.p_const_uchar,
        reply_len: cython.Py_ssize_t,
        sequence: cython.ulonglong,
        kind: cython.int,
        payload: bytes | None,
    ) -> cython.int:
        """Owe an answer of `kind` that waits for `sequence`, if anybody asks for one."""
        if self.no_ack:
            return 0
        return self.add_always(reply, reply_len, sequence, kind, payload)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_always(
        self,
        reply: cython.p_const_uchar,
        reply_len: cython.Py_ssize_t,
        sequence: cython.ulonglong,
        kind: cython.int,
        payload: bytes | None,
    ) -> cython.int:
        """`add`, also where the stream gives no acks: fast batches are told how far they are."""
        if reply_len:
            self.acks.add(reply, reply_len, sequence, sequence, kind, payload)
            if self.store.committed >= sequence:
                self.account.kernel.schedule(self.releaser)
        return 0

    # --- refusing ----------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse(self, m: cython.pointer(Msg), kind: object) -> cython.int:
        """Answer a publisher with an error whose text never changes; it is made once."""
        text = self.error_texts.get(kind.err_code)
        if text is None:
            text = stream_wire.ack_error(self.name, kind.error())
            self.error_texts[kind.err_code] = text
        return self.add_refusal(m, text)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def refuse_with(self, m: cython.pointer(Msg), error: object) -> cython.int:
        """Answer a publisher with an error."""
        return self.add_refusal(m, stream_wire.ack_error(self.name, error))

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_refusal(self, m: cython.pointer(Msg), payload: bytes) -> cython.int:
        """Answer a publisher with `payload`, after the answers that are already owed.

        While the store has failed, these may have to wait long for what was stored before to be
        durable; refusals do not wait for them.
        """
        queue: AckQueue = self.acks
        if m.reply_len and not self.no_ack:
            if self.store.failure is not None and len(queue):
                if self.refusals is None:
                    self.refusals = AckQueue(b"")
                queue = self.refusals
            queue.add(m.reply, m.reply_len, 0, 0, STORED, payload)
            self.account.kernel.schedule(self.releaser)
        return 0

    # --- sending -----------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self, committed: cython.ulonglong) -> cython.int:
        """Send what waits for `committed` or less, and the refusals that wait for nothing."""
        self.acks.release(self.account, committed)
        if self.refusals is not None:
            self.refusals.release(self.account, 0)
            if self.store.failure is None:
                self.refusals = None
        return 0

    def abandon(self, error: object) -> None:
        """Answer what is safe, and everybody else who waits with an error: whether their messages
        will count is for another node to decide."""
        self.acks.release(self.account, self.store.committed)
        self.acks.refuse(self.account, stream_wire.ack_error(self.name, error))

    def clear(self) -> None:
        """Forget what is owed; those publishers get no answer."""
        self.acks.clear()
