"""What INFO tells of a stream."""

from typing import Any

import msgspec

from headwater.edge.jetstream.config.stream_config import LINK_PREFIX, LINKS_MAX, shown
from headwater.edge.jetstream.model.models import (
    LostData,
    SourceInfo,
    StreamInfo,
    StreamSource,
    StreamState,
)
from headwater.edge.jetstream.model.times import ZERO_TIME, format_time
from headwater.edge.storage.format.errors import invariant
from headwater.edge.storage.segments.loss import lost_bytes

# Deleted sequences that an answer lists at most: a page of the protocol's client tools.
DELETED_MAX = 1_000_000


def stream_info(
    stream: Any, details: bool = False, domain: str = "", listed: bool = False
) -> StreamInfo:
    """A stream as INFO shows it; `details` lists the deleted sequences. One entry of STREAM.LIST
    (`listed`) does without the server's version."""
    config = stream.config
    info = StreamInfo(
        config=msgspec.structs.replace(config) if listed else shown(config),
        created=format_time(stream.created_ns),
        state=stream_state(stream, details),
        domain=domain,
        ts=format_time(stream.kernel.clock()),
    )
    links: dict[str, str] = {}
    if config.mirror is not None:
        info.mirror = _source_info(stream, config.mirror, "mirror", links)
    if config.sources:
        info.sources = [
            _source_info(stream, source, f"sources.{at}", links)
            for at, source in enumerate(config.sources)
        ]
    info.config.metadata = dict(sorted({**info.config.metadata, **links}.items()))
    return info


def _source_info(
    stream: Any, source: StreamSource, place: str, links: dict[str, str]
) -> SourceInfo:
    """How far a mirror or source is: its driver knows, else only what was configured. What NATS
    does not know of it goes to `links`, by its place in the configuration."""
    found = stream.origin_driver.info(source) if stream.origin_driver is not None else None
    if found is None:
        return SourceInfo(
            name=source.name,
            external=source.external,
            filter_subject=source.filter_subject,
            subject_transforms=source.subject_transforms,
        )
    shown_as: SourceInfo = found[0]
    if len(links) < LINKS_MAX:
        links[LINK_PREFIX + place] = msgspec.json.encode(found[1]).decode()
    return shown_as


def stream_state(stream: Any, details: bool = False) -> StreamState:
    """The numbers of a stream. Raises InvariantBroken rather than answer what cannot be."""
    store = stream.store
    invariant(
        store.first_seq <= store.last_seq + 1
        and store.messages <= store.last_seq + 1 - store.first_seq
        and bool(store.messages) >= bool(store.bytes),
        f"stream '{stream.name}' cannot have {store.messages} messages of {store.bytes} bytes at "
        f"{store.first_seq} to {store.last_seq}",
    )
    # An update may name a first sequence, too: it is shown, and changes nothing.
    asked = stream.config.first_seq == store.first_seq
    unused = store.last_seq == 0 and not (stream.emptied or asked)
    state = StreamState(
        messages=store.messages,
        bytes=store.bytes,
        first_seq=0 if unused else store.first_seq,
        first_ts=format_time(store.first_ts) if store.messages else ZERO_TIME,
        last_seq=store.last_seq,
        last_ts=format_time(store.last_ts) if store.last_ts else ZERO_TIME,
        num_subjects=store.num_subjects,
        num_deleted=store.num_deleted,
        consumer_count=visible_consumers(stream),
    )
    if details and state.num_deleted:
        state.deleted = store.deleted(DELETED_MAX)
    if store.lost:
        state.lost = LostData(msgs=sorted(store.lost), bytes=lost_bytes(store))
    return state


def visible_consumers(stream: Any) -> int:
    """How many consumers a stream has, not counting those of mirrors and sources."""
    return int(stream.consumers.visible)
