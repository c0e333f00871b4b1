"""A message as direct gets answer with it (ADR-31): its header block says which one it is."""

import cython
from cython.cimports.headwater.edge.jetstream.stream.identity import (
    LINES_MAX,
    Content,
    identified,
    put,
    put_place,
)
from cython.cimports.headwater.edge.storage.index.store import Record
from cython.cimports.headwater.edge.wire.numbers import put_number


@cython.cfunc
def direct_body(
    stream: bytes, record: cython.pointer(Record), place: cython.pointer(BatchPlace)
) -> bytes:
    """Header block and payload of a message of `stream`; with `place` (or NULL), that in a batch.

    What it grew by is the block's.
    """
    original: Content
    lines: cython.uchar[LINES_MAX]
    at: cython.p_uchar = put_place(
        cython.address(lines[0]), record.sequence, record.timestamp
    )
    if place != cython.NULL:
        at = put(at, b"\r\nNats-Num-Pending: ", 20)
        at += put_number(at, place.pending)
        at = put(at, b"\r\nNats-Last-Sequence: ", 22)
        at += put_number(at, place.last)
    at = put(at, b"\r\n\r\n", 4)
    original.subject = record.subject
    original.subject_len = record.subject_len
    original.body = record.body
    original.header_len = record.header_len
    return identified(
        stream,
        cython.address(original),
        record.size - record.header_len,
        cython.address(lines[0]),
        at,
    )
