"""Bounds what the streams of a node together may waste in segments that are left alone otherwise.

A stream's newest segment still grows, and its first one goes away as a whole: neither is rewritten,
however little of it lives. Of one stream that is a segment or two; of thousands of streams that
change their messages, or work them off, it would be the device.
"""

from contextlib import suppress

import cython
from cython.cimports.headwater.edge.storage.log.commit_log import CommitLog
from cython.cimports.headwater.edge.storage.segments.file_store import FileStore
from cython.cimports.headwater.edge.storage.segments.stream_segment import StreamSegment

from headwater.edge.storage.format.errors import StoreError

# Less than this is not worth another file.
SMALL = cython.declare(cython.Py_ssize_t, 64 << 10)


def dead_space(stores: dict) -> list:
    """(dead bytes, store, segment) of every first or newest segment that is mostly dead."""
    store: FileStore
    segment: StreamSegment
    found: list = []
    for item in stores.values():
        store = item
        if not store.segments or store.closed:
            continue
        for at in {0, len(store.segments) - 1}:
            segment = store.segments[at]
            if segment.end > SMALL and segment.mostly_dead() and not segment.busy:
                dead = segment.end - segment.live_bytes - segment.rest
                found.append((dead, len(found), store, segment))
    return found


def press(stores: dict, most: int) -> int:
    """When there are more than `most` dead bytes of that kind, have the segments that hold the most
    of them rewritten, until half of `most` is left; returns how many. A newest segment ends with
    that. Not while messages are on their way to segments."""
    store: FileStore
    segment: StreamSegment
    found = dead_space(stores)
    total = sum(row[0] for row in found)
    if total <= most:
        return 0
    pressed = 0
    for dead, _, item, part in sorted(found, reverse=True):
        if total <= most // 2:
            break
        store = item
        segment = part
        if not segment.avoided and not store.copying:
            segment.sealed = segment.pressed = True
            store.ask_compact(segment)
            total -= dead
            pressed += 1
    return pressed


def let_dead_go(log: CommitLog) -> None:
    """On a full device: have segments that waste room rewritten, and end newest segments of which
    nothing is left, so that they go away with the log segment that holds the removal."""
    store: FileStore
    segment: StreamSegment
    dead_end: cython.bint = False
    press(log.stores, 0)
    for item in log.stores.values():
        store = item
        if store.segments:
            segment = store.segments[len(store.segments) - 1]
            dead_end = dead_end or segment.is_dead_end(store.first_seq)
    if dead_end and not log.blocked and len(log.live) <= log.keep + 1:
        log.hand_over()
        with suppress(StoreError):
            log.begin_next()
