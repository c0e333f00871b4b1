"""Checking the mirror and the sources of a stream configuration, and cycles among streams."""

from collections.abc import Callable

from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import Kind, invalid_config
from headwater.edge.jetstream.model.models import SourceConsumer, StreamConfig, StreamSource
from headwater.edge.jetstream.model.names import valid_name
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.edge.subjects.tokens import literal_subject, overlap, valid_subject
from headwater.edge.subjects.transform import TransformError, check_mapping
from headwater.security.errors import StepsExceeded

API_PREFIX = "$JS.API"

Lookup = Callable[[str], StreamConfig | None]


def check(new: StreamConfig, lookup: Lookup, pedantic: bool) -> None:
    """Refuse a bad mirror or source. Raises JetStreamError."""
    if new.mirror is not None:
        check_mirror(new, new.mirror, lookup, pedantic)
    if new.sources:
        if new.allow_msg_schedules:
            raise errors.SOURCE_WITH_MSG_SCHEDULES.error()
        check_sources(new, lookup)
    check_prefixes(new, lookup)
    check_cycle(new, lookup)


def check_mirror(new: StreamConfig, origin: StreamSource, lookup: Lookup, pedantic: bool) -> None:
    """Refuse what a mirror can not have, and align its direct gets with a local origin's."""
    refused: list[tuple[object, Kind]] = [
        (new.first_seq, errors.MIRROR_WITH_FIRST_SEQ),
        (new.subjects, errors.MIRROR_WITH_SUBJECTS),
        (new.sources, errors.MIRROR_WITH_SOURCES),
        (new.allow_msg_counter, errors.MIRROR_WITH_COUNTERS),
        (new.allow_atomic, errors.MIRROR_WITH_ATOMIC_PUBLISH),
        (new.allow_batched, errors.MIRROR_WITH_BATCH_PUBLISH),
        (new.allow_msg_schedules, errors.MIRROR_WITH_MSG_SCHEDULES),
    ]
    for present, kind in refused:
        if present:
            raise kind.error()
    check_durable(origin, origin.consumer, errors.MIRROR_DURABLE_CONSUMER_CFG_INVALID)
    if origin.filter_subject and origin.subject_transforms:
        raise errors.MIRROR_MULTIPLE_FILTERS_NOT_ALLOWED.error()
    if new.subject_delete_marker_ttl > 0:
        raise invalid_config("subject delete markers forbidden on mirrors")
    check_transforms(
        origin,
        errors.MIRROR_INVALID_SUBJECT_FILTER,
        errors.MIRROR_INVALID_TRANSFORM_DESTINATION,
        errors.MIRROR_OVERLAPPING_SUBJECT_FILTERS,
    )
    if origin.external is not None:
        return
    if not valid_name(origin.name):
        raise errors.MIRROR_INVALID_STREAM_NAME.error()
    other = lookup(origin.name)
    if other is None:
        return
    if 0 < new.max_msg_size < other.max_msg_size:
        raise errors.MIRROR_MAX_MESSAGE_SIZE_TOO_BIG.error()
    if pedantic and new.mirror_direct != other.allow_direct:
        text = "origin stream has direct get set, mirror has it disabled"
        raise errors.PEDANTIC.error(err=text)
    new.mirror_direct = other.allow_direct


def check_sources(new: StreamConfig, lookup: Lookup) -> None:
    """Refuse bad or repeated sources."""
    seen: set[object] = set()
    consumers: set[object] = set()
    for source in new.sources:
        if not valid_name(source.name):
            raise errors.SOURCE_INVALID_STREAM_NAME.error()
        key = identity(source)
        if key in seen:
            raise errors.SOURCE_DUPLICATE_DETECTED.error()
        seen.add(key)
        if source.filter_subject and source.subject_transforms:
            raise errors.SOURCE_MULTIPLE_FILTERS_NOT_ALLOWED.error()
        check_transforms(
            source,
            errors.SOURCE_INVALID_SUBJECT_FILTER,
            errors.SOURCE_INVALID_TRANSFORM_DESTINATION,
            errors.SOURCE_OVERLAPPING_SUBJECT_FILTERS,
            covered=True,
        )
        check_durable(source, source.consumer, errors.SOURCE_DURABLE_CONSUMER_CFG_INVALID)
        if source.consumer is not None:
            name = (source.name, api_of(source), source.consumer.name)
            if name in consumers:
                raise errors.SOURCE_DURABLE_CONSUMER_DUPLICATE_DETECTED.error()
            consumers.add(name)
        other = lookup(source.name) if source.external is None else None
        if other is not None and 0 < new.max_msg_size < other.max_msg_size:
            raise errors.SOURCE_MAX_MESSAGE_SIZE_TOO_BIG.error()


def identity(source: StreamSource) -> tuple[object, ...]:
    """What tells two sources of one stream apart."""
    transforms = tuple((t.src, t.dest) for t in source.subject_transforms)
    return source.name, api_of(source), source.filter_subject, transforms


def api_of(source: StreamSource) -> str:
    """The API prefix through which a source is reached; empty for the same account."""
    return source.external.api if source.external is not None else ""


def check_filters(new: StreamConfig) -> None:
    """Refuse a filter that is no subject. Raises JetStreamError.

    Apart from `check`, since a stream's name and its room in memory or files are judged before.
    """
    origins = [(one, "source:") for one in new.sources]
    if new.mirror is not None:
        origins.insert(0, (new.mirror, "mirror"))
    for origin, what in origins:
        wanted = origin.filter_subject
        if wanted and not valid_subject(wanted.encode()):
            text = f"subject filter '{wanted}' for the {what} invalid subject"
            raise errors.STREAM_CREATE.error(err=text)


def check_durable(source: StreamSource, consumer: SourceConsumer | None, kind: Kind) -> None:
    """Refuse a bad named consumer of a mirror or source."""
    if consumer is None:
        return
    if (
        not valid_name(consumer.name)
        or not literal_subject(consumer.deliver_subject.encode())
        or source.opt_start_seq
        or source.opt_start_time is not None
        or source.filter_subject
    ):
        raise kind.error()


def check_transforms(
    source: StreamSource,
    bad_source: Kind,
    bad_destination: Kind,
    overlapping: Kind,
    covered: bool = False,
) -> None:
    """Refuse transforms that are none, or whose sources overlap (`covered`: hide one another)."""
    for item in source.subject_transforms:
        if item.src and not valid_subject(item.src.encode()):
            raise bad_source.error(err=f"invalid subject {item.src}")
        try:
            check_mapping(item.src, item.dest)
        except TransformError as error:
            raise bad_destination.error(err=error) from None
    tree, steps = SubjectTree(), Steps()
    for i, item in enumerate(source.subject_transforms):
        tree.put(item.src or ">", i, item)
    try:
        for item in source.subject_transforms:
            src = item.src or ">"
            found = tree.covering(src, steps) if covered else tree.overlapping(src, steps)
            if len(found) > 1:
                raise overlapping.error()
    except StepsExceeded:
        raise overlapping.error() from None


def check_prefixes(new: StreamConfig, lookup: Lookup) -> None:
    """Refuse external prefixes that are no subjects or lead back here."""
    origins = [*([new.mirror] if new.mirror is not None else []), *new.sources]
    subjects: list[str] = []
    for origin in origins:
        other = lookup(origin.name) if origin.external is None else None
        subjects.extend(other.subjects if other is not None else [])
    for origin in origins:
        if origin.external is None:
            continue
        prefix = origin.external.deliver
        if prefix:
            if not literal_subject(prefix.encode()):
                raise errors.STREAM_INVALID_EXTERNAL_DELIVERY_SUBJ.error(prefix=prefix)
            for subject in subjects:
                if overlap(subject.encode(), f"{prefix}.{subject}".encode()):
                    raise errors.STREAM_EXTERNAL_DEL_PREFIX_OVERLAPS.error(
                        prefix=prefix, subject=subject
                    )
        api = origin.external.api
        if api:
            if not literal_subject(api.encode()):
                raise invalid_config(
                    f'stream external api prefix "{api}" must be a valid subject without wildcards'
                )
            if overlap(api.encode(), API_PREFIX.encode()):
                raise errors.STREAM_EXTERNAL_API_OVERLAP.error(prefix=api, subject=API_PREFIX)


def check_cycle(new: StreamConfig, lookup: Lookup) -> None:
    """Refuse sources and mirrors that lead back to the stream itself."""
    to_visit = [new]
    visited: set[str] = set()
    waiting: set[str] = set()

    def follow(name: str) -> None:
        other = lookup(name) if name not in waiting else None
        if other is not None:
            waiting.add(name)
            to_visit.append(other)

    while to_visit:
        config = to_visit.pop(0)
        visited.add(config.name)
        for source in config.sources:
            if source.external is not None:
                continue
            if source.name in visited:
                if reaches(config.subjects, source.filter_subject):
                    raise invalid_config("detected cycle")
                continue
            follow(source.name)
        if config.mirror is not None and config.mirror.external is None:
            if config.mirror.name in visited:
                raise invalid_config("detected cycle")
            follow(config.mirror.name)


def reaches(subjects: list[str], wanted: str) -> bool:
    """Whether a filter takes in some of the subjects."""
    if not wanted:
        return True
    return any(overlap(subject.encode(), wanted.encode()) for subject in subjects)
