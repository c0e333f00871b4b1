"""Requests whose cost grows with what is stored, done in slices: others are served between them.

A slice is bounded by what it looks at or takes out. What a request decides is decided at its start
or at its end: a purge takes what was there when it came, and a page of subjects has for each one a
count that was true meanwhile. The router keeps the requester's own requests in their order.
"""

import asyncio
import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.models import SUBJECTS_LIMIT, PurgeRequest
from headwater.edge.jetstream.model.requests import Context
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.edge.subjects.tokens import literal_subject
from headwater.security.errors import StepsExceeded

# Subjects that a request may look at at once, and comparisons of subjects with patterns.
FEW = 20_000
STEPS = 100_000
# Rows that are sorted, merged or decoded at once.
ROWS = 10_000
# Subjects of a configuration that are compared at once.
MANY_SUBJECTS = 2000
# Messages that a purge takes out at once.
REMOVED = 2000
# Slices of a replicated purge that are decided on and not yet applied.
SLICES_ON_THE_WAY = 4

Row = tuple[bytes, int, int, int]
Answer = TypeVar("Answer")


async def judged(store: Any, patterns: tuple[bytes, ...]) -> Any:
    """A filter that knows about every subject of a store."""
    chosen = store.filter(patterns)
    while not chosen.sweep(STEPS):
        await asyncio.sleep(0)
    return chosen


async def with_filter(
    stream: Any, patterns: tuple[bytes, ...], work: Callable[[], Answer]
) -> Answer:
    """Do something that asks the stream's store for a filter, when that is ready."""
    chosen = await judged(stream.store, patterns)
    stream.store.handed_over = chosen
    try:
        return work()
    finally:
        stream.store.handed_over = None


def is_large(stream: Any, ctx: Context) -> bool:
    """Whether a request about a stream's subjects is done in slices; then the requester's later
    ones wait for it."""
    if stream.store.num_subjects <= FEW:
        return False
    ctx.holds = True
    return True


async def subject_page(store: Any, pattern: bytes, offset: int) -> tuple[int, dict[str, int]]:
    """How many subjects match, and messages of those from `offset` on, by subject."""
    chosen = await judged(store, (pattern,) if pattern != b">" else ())
    parts: list[list[Row]] = []
    number = 1
    while number:
        rows, number = store.rows_of(chosen, number, ROWS)
        parts.append(sorted(rows))
        await asyncio.sleep(0)
    found: dict[str, int] = {}
    merged: Iterator[Row] = heapq.merge(*parts)
    left = min(offset, sum(map(len, parts)))
    while left:
        left -= sum(1 for _ in islice(merged, min(left, ROWS)))
        await asyncio.sleep(0)
    while len(found) < SUBJECTS_LIMIT:
        rows = list(islice(merged, min(ROWS, SUBJECTS_LIMIT - len(found))))
        if not rows:
            break
        found |= {row[0].decode("utf-8", "replace"): row[1] for row in rows}
        await asyncio.sleep(0)
    return sum(map(len, parts)), found


async def find_apart(subjects: list[str]) -> list[str]:
    """The subjects of a configuration when they are many and do not overlap, for `Scope.apart` of
    the check that follows; otherwise none, and that check says what is wrong."""
    if len(subjects) <= MANY_SUBJECTS:
        return []
    tree, steps = SubjectTree(), Steps()
    with contextlib.suppress(StepsExceeded):
        for begin in range(0, len(subjects), MANY_SUBJECTS):
            for number, subject in enumerate(subjects[begin : begin + MANY_SUBJECTS], begin):
                tree.put(subject, number, subject)
            await asyncio.sleep(0)
        for begin in range(0, len(subjects), MANY_SUBJECTS):
            for subject in subjects[begin : begin + MANY_SUBJECTS]:
                if len(tree.overlapping(subject, steps)) != 1:
                    return []
            await asyncio.sleep(0)
        return list(subjects)
    return []


def is_long_purge(stream: Any, request: PurgeRequest) -> bool:
    """Whether a purge is done in slices; one of everything is cheap, also where the stream is to
    go on at a later sequence."""
    kept = stream.replicator if stream.replicator is not None else stream.store
    whole = request.filter in ("", ">") and not request.keep
    whole = whole and (not request.seq or request.seq > kept.last_seq)
    return stream.store.messages > REMOVED and not whole and request.seq != 1


async def purge(stream: Any, request: PurgeRequest) -> int:
    """Take out what a purge means, as of now; returns how many messages."""
    store = stream.store
    plan = store.purge_plan(
        await judged(store, patterns_of(request.filter)), request.seq, request.keep
    )
    purged = 0
    try:
        while not plan.done and not stream.deleted:
            purged += stream.purge_some(plan, REMOVED)
            await asyncio.sleep(0)
    finally:
        if purged and not stream.deleted:
            stream.purge_done(request.filter.encode())
    if stream.deleted:
        raise errors.STREAM_NOT_FOUND.error()
    return purged


async def purge_in_group(stream: Any, request: PurgeRequest, last: int) -> int:
    """`purge` of a replicated stream up to sequence `last`: no replica takes out more than a slice
    for one operation.

    A purge of one subject or of all up to a sequence is one operation for a slice; of a pattern,
    each message is, so that no replica has to look at every subject. Raises StoreError.
    """
    replicator, store = stream.replicator, stream.store
    await replicator.wait_durable(replicator.hand_over())
    pattern = patterns_of(request.filter)
    plan = store.purge_plan(await judged(store, pattern), request.seq, request.keep)
    plan.end = min(plan.end, last)
    ranged = not pattern or literal_subject(pattern[0])
    counts: list[int] = []
    on_the_way: deque[int] = deque()
    while not plan.done and not stream.deleted:
        consumers = 0 if ranged else len(stream.consumers)
        found = store.planned(plan, max(REMOVED // (1 + consumers), REMOVED // 40))
        if not found:
            continue
        if ranged:
            replicator.purge(b"".join(pattern), found[-1] + 1, 0, counts.append)
        else:
            for sequence in found:
                replicator.remove(sequence)
            counts.append(len(found))
        on_the_way.append(replicator.hand_over())
        await asyncio.sleep(0)
        if len(on_the_way) >= SLICES_ON_THE_WAY:
            await replicator.wait_durable(on_the_way.popleft())
    if on_the_way:
        await replicator.wait_durable(on_the_way[-1])
    if stream.deleted:
        raise errors.STREAM_NOT_FOUND.error()
    return sum(counts)


def patterns_of(subject: str) -> tuple[bytes, ...]:
    """What a filter is made of."""
    return (subject.encode(),) if subject not in ("", ">") else ()


async def trimmed(stream: Any, number: int) -> None:
    """Let a stream's limits hold for what it stores, from where `Stream.trim_some` stopped."""
    while number and not stream.deleted:
        await asyncio.sleep(0)
        number = stream.trim_some(number)
