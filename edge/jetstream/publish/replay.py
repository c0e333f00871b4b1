"""Applies what the leader of a replicated stream has decided, on every replica the same.

Where the leader is, its consumers are told in passing; elsewhere the stream has none. Nothing is
decided here: limits remove what the same messages in the same order make them remove anywhere.
"""

from collections.abc import Callable

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.jetstream.replication.operations import (
    FLAG_ERASE,
    OP_CONFIG,
    OP_MESSAGE,
    OP_PASS,
    OP_PURGE,
    OP_REMOVE,
    OP_SKIP,
    OP_STATE_DELETE,
    OP_STATE_DELTA,
    OP_STATE_PUT,
    Operation,
    room_for,
)
from cython.cimports.headwater.edge.jetstream.stream.stream import Stream
from cython.cimports.headwater.edge.kernel.kernel import MADE, Msg
from cython.cimports.headwater.edge.storage.format.record import record_size
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.log.logged_store import LoggedStore
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.format.errors import StoreError


def apply(
    stream: Stream, data: bytes, log: CommitLog, configure: Callable[[bytes], None]
) -> None:
    """Apply one entry to a replica: all of it, or StoreError and nothing.

    `log` is the node's commit log, `configure` is called with a new description of the stream.
    """
    at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
    end: cython.p_const_uchar = at + PyBytes_GET_SIZE(data)
    begin: cython.p_const_uchar = at
    adopted: cython.p_const_uchar = at
    op: Operation
    log.ensure(room_for(data))
    at += 1
    try:
        while at < end:
            memcpy(cython.address(op), at, cython.sizeof(Operation))
            if log.entry_segment and op.kind == OP_MESSAGE and at >= adopted:
                adopted = adopt(stream, begin, at, end, log)
            at += cython.sizeof(Operation)
            if op.kind == OP_CONFIG:
                configure(PyBytes_FromStringAndSize(cython.cast(cython.p_char, at), op.length))
            else:
                apply_one(stream, cython.address(op), at, log)
            at += op.length
            if at == adopted:
                log.end_adoption()
    finally:
        log.adopter = None
    stream.entry_applied()


@cython.cfunc
def adopt(
    stream: Stream,
    begin: cython.p_const_uchar,
    at: cython.p_const_uchar,
    end: cython.p_const_uchar,
    log: CommitLog,
) -> cython.p_const_uchar:
    """Let the log keep the messages that follow each other from `at` on where it has them already:
    in the entry, which begins at `begin`. Returns where the last one ends; `begin` when they are
    to be written."""
    first: cython.p_const_uchar = at
    sequence: cython.ulonglong = 0
    start: cython.ulonglong = 0
    need: cython.Py_ssize_t = 0
    op: Operation
    if not isinstance(stream.store, LoggedStore):
        return begin
    while at < end:
        memcpy(cython.address(op), at, cython.sizeof(Operation))
        if op.kind != OP_MESSAGE or (sequence and op.sequence != sequence + 1):
            break
        sequence = op.sequence
        start = start or sequence
        need += record_size(op.length)
        at += cython.sizeof(Operation) + op.length
    if log.adopt(
        cython.cast(LoggedStore, stream.store),
        cython.cast(cython.uint, first - begin),
        cython.cast(cython.uint, at - first),
        need,
        start,
        sequence,
    ):
        return at
    return begin


@cython.cfunc
@cython.exceptval(-1, check=False)
def apply_one(
    stream: Stream, op: cython.pointer(Operation), at: cython.p_const_uchar, log: object
) -> cython.int:
    """Do what one operation says; what belongs to it begins at `at`."""
    m: Msg
    first: bytes
    rest: bytes
    delay_ns: cython.longlong = stream.store.sync_delay_ns
    if op.kind == OP_MESSAGE or op.kind == OP_PASS:
        m.subject = at
        m.subject_len = op.first
        m.reply = m.shown = cython.NULL
        m.reply_len = m.shown_len = 0
        m.via = MADE
        m.body = at + op.first
        m.header_len = op.header_len
        m.size = op.length - op.first
        if stream.replicator is None:
            stream.remember_id(cython.address(m), op.timestamp, op.sequence)
        if op.kind == OP_PASS:
            stream.enter_passed(cython.address(m), op.timestamp, op.sequence)
            return 0
        stream.enter(cython.address(m), op.timestamp, op.sequence)
        if stream.replicator is not None:
            stream.replicator.applied(
                at,
                op.first,
                op.sequence,
                stream.replicator.cost(op.first, op.header_len, m.size),
            )
        return 0
    first = PyBytes_FromStringAndSize(cython.cast(cython.p_char, at), op.first)
    at += op.first
    rest = PyBytes_FromStringAndSize(cython.cast(cython.p_char, at), op.length - op.first)
    if op.kind == OP_REMOVE:
        stream.remove_here(op.sequence, op.flags & FLAG_ERASE)
    elif op.kind == OP_PURGE:
        count = stream.enter_purge(first, op.sequence, op.timestamp)
        if stream.replicator is not None:
            stream.replicator.purged(count)
    elif op.kind == OP_SKIP:
        stream.store.skip(op.sequence)
    elif op.kind == OP_STATE_PUT:
        log.put_state(stream.store.incarnation.encode(), first, rest, delay_ns)
    elif op.kind == OP_STATE_DELTA:
        log.add_delta(stream.store.incarnation.encode(), first, rest, delay_ns)
    elif op.kind == OP_STATE_DELETE:
        log.delete_state(stream.store.incarnation.encode(), first, delay_ns)
    else:
        raise StoreError(f"an entry of the stream says {op.kind}, which this node does not know")
    return 0
