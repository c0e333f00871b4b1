"""Checking stream configurations: defaults, rules for new streams and rules for updates.

The order of the checks and their texts are the protocol's, since clients match on them. A checked
configuration is complete: limits are -1 or positive, defaults are filled in.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from headwater.edge.facts.version import API_LEVEL, NATS_LEVEL
from headwater.edge.jetstream.config import (
    link_choices,
    stream_budget,
    stream_durability,
    stream_sources,
)
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.bounds import SEQUENCE_MAX
from headwater.edge.jetstream.model.errors import invalid_config
from headwater.edge.jetstream.model.models import Placement, Republish, StreamConfig
from headwater.edge.jetstream.model.names import NAME_MAX, valid_name
from headwater.edge.jetstream.model.times import SECOND, format_duration
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.edge.subjects.tokens import covers, overlap, valid_subject
from headwater.edge.subjects.transform import TransformError, check_mapping, transform
from headwater.security.errors import StepsExceeded

DESCRIPTION_MAX = 4096
METADATA_MAX = 131072
REPLICAS_MAX = 5
# Go clients read `max_msg_size` into 32 bits.
INT32 = 1 << 31
TOO_LARGE = (
    "json: cannot unmarshal number {} into Go struct field StreamConfigRequest.max_msg_size of "
    "type int32"
)
MIN_DURATION = SECOND // 10
DEFAULT_WINDOW = 120 * SECOND
LEVEL_KEY = "_nats.req.level"
DYNAMIC_KEYS = ("_nats.ver", "_nats.level")
LINK_PREFIX = "_headwater."
"""Of metadata that only answers have: how a mirror and sources are. The wire's schemas have no
other place for what NATS does not know, and strict clients refuse other fields."""
LINKS_MAX = 100
"""Sources that metadata tells of, so that a configuration that is sent back stays small."""

Lookup = Callable[[str], StreamConfig | None]


class Scope(msgspec.Struct, kw_only=True):
    """What a configuration is checked against besides itself."""

    lookup: Lookup
    """Configuration of another stream of the account."""
    window_max: int = 0
    """Longest deduplication window in ns; 0 is unlimited."""
    bytes_required: bool = False
    stream_bytes_max: dict[str, int] = {}
    """Per storage, the most `max_bytes` of one stream; absent or below 1 is unlimited."""
    pedantic: bool = False
    replicated: bool = False
    """Whether a stream may have more than one replica here."""
    apart: list[str] = []
    """Subjects that were found not to overlap: a second check against this scope believes it."""


def checked(config: StreamConfig, scope: Scope) -> StreamConfig:
    """A complete copy of `config`. Raises JetStreamError."""
    check_texts(config)
    new = copy_of(config)
    fill_limits(new, scope)
    check_ages(new, scope)
    check_features(new, scope)
    stream_sources.check(new, scope.lookup, scope.pedantic)
    check_subjects(new, scope)
    check_bytes(new, scope)
    check_transforms(new, scope)
    if new.placement == Placement():
        new.placement = None
    if new.placement is not None and new.placement.preferred:
        raise invalid_config("preferred server not permitted in placement")
    return new


def copy_of(config: StreamConfig) -> StreamConfig:
    """A deep copy, as a plain StreamConfig; what names no storage is for a file."""
    fields = {name: getattr(config, name) for name in StreamConfig.__struct_fields__}
    fields["storage"] = config.storage or "file"
    return msgspec.convert(msgspec.to_builtins(StreamConfig(**fields)), StreamConfig)


def check_texts(config: StreamConfig) -> None:
    """Refuse a bad name, description or metadata."""
    if not valid_name(config.name):
        raise invalid_config("stream name is required and can not contain '.', '*', '>', '\\', '/'")
    if len(config.name.encode()) > NAME_MAX:
        raise invalid_config(f"stream name is too long, maximum allowed is {NAME_MAX}")
    if len(config.description.encode()) > DESCRIPTION_MAX:
        raise invalid_config(
            f"stream description is too long, maximum allowed is {DESCRIPTION_MAX}"
        )
    if config.first_seq > SEQUENCE_MAX:
        raise invalid_config(f"first sequence is too large, maximum allowed is {SEQUENCE_MAX}")
    size = sum(len(k.encode()) + len(v.encode()) for k, v in asked_metadata(config).items())
    if size > METADATA_MAX:
        raise invalid_config(f"stream metadata exceeds maximum size of {METADATA_MAX} bytes")


def fill_limits(new: StreamConfig, scope: Scope) -> None:
    """Give replicas and limits their defaults."""
    if new.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.error()
    if new.num_replicas > REPLICAS_MAX:
        raise invalid_config(f"maximum replicas is {REPLICAS_MAX}")
    new.num_replicas = new.num_replicas or 1
    wanted_size = new.max_msg_size
    for name in (
        "max_msgs",
        "max_msgs_per_subject",
        "max_bytes",
        "max_msg_size",
        "max_consumers",
    ):
        value = getattr(new, name)
        if value < -1 and scope.pedantic:
            raise errors.PEDANTIC.error(err=f"{name} must be set to -1")
        if value < 1:
            setattr(new, name, -1)
    if not -INT32 <= wanted_size < INT32:
        raise errors.INVALID_JSON.error(err=TOO_LARGE.format(wanted_size))


def check_ages(new: StreamConfig, scope: Scope) -> None:
    """Refuse bad ages, and give the deduplication window its default."""
    if new.max_age < 0:
        raise invalid_config("max age can not be negative")
    if 0 < new.max_age < MIN_DURATION:
        raise invalid_config("max age needs to be >= 100ms")
    if new.duplicate_window == 0 and new.mirror is None and not new.sources:
        new.duplicate_window = default_window(new, scope)
    if new.duplicate_window < 0:
        raise invalid_config("duplicates window can not be negative")
    if new.max_age and new.duplicate_window > new.max_age:
        raise invalid_config("duplicates window can not be larger then max age")
    if 0 < scope.window_max < new.duplicate_window:
        limit = format_duration(scope.window_max)
        raise invalid_config(f"duplicates window can not be larger then server limit of {limit}")
    if 0 < new.duplicate_window < MIN_DURATION:
        raise invalid_config("duplicates window needs to be >= 100ms")


def default_window(new: StreamConfig, scope: Scope) -> int:
    """The deduplication window of a stream that names none, in ns."""
    window = DEFAULT_WINDOW
    if 0 < scope.window_max < window:
        if scope.pedantic:
            text = "duplicate window limits are higher than current limits"
            raise errors.PEDANTIC.error(err=text)
        window = scope.window_max
    if 0 < new.max_age < window:
        if scope.pedantic:
            raise errors.PEDANTIC.error(err="duplicate window cannot be bigger than max age")
        window = new.max_age
    return window


def check_features(new: StreamConfig, scope: Scope) -> None:
    """Refuse combinations that contradict each other, and what this server does not do."""
    if new.deny_purge and new.allow_rollup_hdrs:
        raise invalid_config("roll-ups require the purge permission")
    if new.allow_msg_counter:
        check_counter(new)
    if new.discard_new_per_subject:
        if new.discard != "new":
            raise invalid_config("discard new per subject requires discard new policy to be set")
        if new.max_msgs_per_subject <= 0:
            raise invalid_config("discard new per subject requires max msgs per subject > 0")
    check_markers(new, scope)
    if new.allow_msg_schedules:
        if new.discard == "new":
            raise invalid_config("message scheduling cannot use discard new")
        if scope.pedantic and not new.allow_rollup_hdrs:
            raise invalid_config("message scheduling cannot be set if roll-ups are disabled")
        if not new.allow_rollup_hdrs:
            new.allow_rollup_hdrs, new.deny_purge = True, False
    if new.persist_mode == "default":
        new.persist_mode = ""
    if new.persist_mode == "async":
        if new.storage != "file":
            raise invalid_config("async persist mode is only supported on file storage")
        if new.num_replicas > 1:
            raise invalid_config("async persist mode is not supported on replicated streams")
        if new.allow_atomic:
            raise invalid_config("async persist mode is not supported with atomic batch publish")
    stream_durability.check(new)
    stream_budget.budget_of(new)
    link_choices.check(new)


def check_counter(new: StreamConfig) -> None:
    """Refuse what a counter stream can not be."""
    if new.discard == "new":
        raise invalid_config("counter stream cannot use discard new")
    if new.allow_msg_ttl:
        raise invalid_config("counter stream cannot use message TTLs")
    if new.allow_msg_schedules:
        raise invalid_config("counter stream cannot use message schedules")
    if new.retention != "limits":
        raise invalid_config("counter stream can only use limits retention")


def check_markers(new: StreamConfig, scope: Scope) -> None:
    """Refuse bad delete markers, and turn on what they need."""
    if new.subject_delete_marker_ttl < 0:
        raise invalid_config("subject delete marker TTL must not be negative")
    if new.subject_delete_marker_ttl == 0:
        return
    if new.subject_delete_marker_ttl < SECOND:
        raise invalid_config("subject delete marker TTL must be at least 1 second")
    if scope.pedantic and not new.allow_msg_ttl:
        raise invalid_config("subject delete marker cannot be set if message TTLs are disabled")
    if scope.pedantic and not new.allow_rollup_hdrs:
        raise invalid_config("subject delete marker cannot be set if roll-ups are disabled")
    new.allow_msg_ttl = True
    if not new.allow_rollup_hdrs:
        new.allow_rollup_hdrs, new.deny_purge = True, False


def check_subjects(new: StreamConfig, scope: Scope) -> None:
    """Refuse bad subjects; a stream without any takes its name."""
    if not new.subjects:
        if new.mirror is None and not new.sources:
            new.subjects = [new.name]
        return
    if new.mirror is not None:
        raise errors.MIRROR_WITH_SUBJECTS.error()
    tree, steps = SubjectTree(), Steps()
    known = new.subjects == scope.apart
    for i, subject in enumerate(new.subjects):
        if not known and valid_subject(subject.encode()):
            tree.put(subject, i, subject)
    try:
        for i, subject in enumerate(new.subjects):
            if not valid_subject(subject.encode()):
                raise invalid_config("invalid subject")
            check_reach(new, subject)
            if known:
                continue
            others = [at for at in tree.overlapping(subject, steps) if at > i]
            if others:
                other = new.subjects[min(others)]
                raise invalid_config(f'subject "{subject}" overlaps with "{other}"')
    except StepsExceeded:
        raise invalid_config(errors.TOO_MANY_SUBJECTS) from None
    scope.apart = list(new.subjects)


def check_reach(new: StreamConfig, subject: str) -> None:
    """Refuse a subject that would take in the server's own traffic."""
    text = subject.encode()
    if subject == ">":
        if not new.no_ack:
            raise invalid_config("capturing all subjects requires no-ack to be true")
        if new.num_replicas != 1:
            raise invalid_config("capturing all subjects requires replicas of 1")
    if new.no_ack or subject[0] not in "$*>":
        return
    for space in (b"$JS.>", b"$JSC.>", b"$NRG.>"):
        if overlap(text, space) and not covers(b"$JS.EVENT.>", text):
            raise invalid_config(
                "subjects that overlap with jetstream api require no-ack to be true"
            )
    if overlap(text, b"$SYS.>") and not covers(b"$SYS.ACCOUNT.>", text):
        raise invalid_config("subjects that overlap with system api require no-ack to be true")


def check_bytes(new: StreamConfig, scope: Scope) -> None:
    """Refuse a `max_bytes` that the account does not permit."""
    if scope.bytes_required and new.max_bytes <= 0:
        raise errors.STREAM_MAX_BYTES_REQUIRED.error()
    limit = scope.stream_bytes_max.get(new.storage, 0)
    if 0 < limit < new.max_bytes:
        raise errors.STREAM_MAX_STREAM_BYTES_EXCEEDED.error()


def check_transforms(new: StreamConfig, scope: Scope) -> None:
    """Refuse a bad input transform or republish."""
    wanted = new.subject_transform
    if wanted is not None:
        if wanted.src and not valid_subject(wanted.src.encode()):
            text = f"invalid subject {wanted.src}"
            raise errors.STREAM_TRANSFORM_INVALID_SOURCE.error(err=text)
        try:
            check_mapping(wanted.src, wanted.dest)
        except TransformError as error:
            raise errors.STREAM_TRANSFORM_INVALID_DESTINATION.error(err=error) from None
    if new.republish is not None:
        check_republish(new, new.republish, scope.pedantic)


def check_republish(new: StreamConfig, wanted: Republish, pedantic: bool) -> None:
    """Refuse a republish that is no transform, or that would feed the stream itself. One without
    destination publishes nothing."""
    if not wanted.src:
        if pedantic:
            raise errors.PEDANTIC.error(err="republish source can not be empty")
        wanted.src = ">"
    through = new.subject_transform
    if (
        wanted.dest == ">"
        and wanted.src == ">"
        and through is not None
        and new.subjects == [through.src]
    ):
        if pedantic:
            text = "implicit republish based on subject transform"
            raise errors.PEDANTIC.error(err=text)
        wanted.src = wanted.dest = through.dest
    if not wanted.dest:
        return
    for subject in new.subjects:
        if overlap(wanted.dest.encode(), subject.encode()):
            raise invalid_config("stream configuration for republish destination forms a cycle")
    try:
        transform(wanted.src, wanted.dest)
    except TransformError:
        raise invalid_config(
            f"stream configuration for republish with transform from '{wanted.src}' "
            f"to '{wanted.dest}' not valid"
        ) from None


# --- updates ---------------------------------------------------------------------------------


def checked_update(old: StreamConfig, wanted: StreamConfig, scope: Scope) -> StreamConfig:
    """A complete copy of `wanted`, as a successor of `old`. Raises JetStreamError."""
    new = checked(wanted, scope)
    if new.name != old.name:
        raise invalid_config("stream configuration name must match original")
    if new.num_replicas > 1 and not scope.replicated:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED.error()
    refuse_change(old, new)
    if new.mirror is not None and new.mirror != old.mirror:
        raise errors.STREAM_MIRROR_NOT_UPDATABLE.error()
    # nats-server takes such a filter here, and copies nothing then.
    stream_sources.check_filters(new)
    if new.sealed:
        new.max_age = 0
        new.discard = "new"
        new.deny_delete = new.deny_purge = True
        new.allow_rollup_hdrs = False
    return new


def refuse_change(old: StreamConfig, new: StreamConfig) -> None:
    """Refuse changes of what is fixed for the life of a stream."""
    same = "stream configuration update can not change "
    if new.storage != old.storage:
        raise invalid_config(same + "storage type")
    if new.retention != old.retention and "workqueue" in (new.retention, old.retention):
        raise invalid_config(same + "retention policy to/from workqueue")
    if old.sealed and not new.sealed:
        raise invalid_config("stream configuration update can not unseal a sealed stream")
    if old.deny_delete and not new.deny_delete:
        raise invalid_config("stream configuration update can not cancel deny message deletes")
    if old.deny_purge and not new.deny_purge:
        raise invalid_config("stream configuration update can not cancel deny purge")
    if old.allow_msg_ttl and not new.allow_msg_ttl:
        raise invalid_config("message TTL status can not be disabled")
    if new.allow_msg_counter != old.allow_msg_counter:
        raise invalid_config(same + "message counter setting")
    if old.allow_msg_schedules and not new.allow_msg_schedules:
        raise invalid_config("message schedules can not be disabled")
    if (new.persist_mode == "async") != (old.persist_mode == "async"):
        raise invalid_config(same + "persist mode")


def refuse_tight_limits(old: StreamConfig, new: StreamConfig, consumers: Iterable[Any]) -> None:
    """Refuse new limits for consumers that some of those which are there exceed."""
    before, after = old.consumer_limits, new.consumer_limits
    if before == after:
        return
    idle, pending = after.inactive_threshold, after.max_ack_pending
    violated = sorted(
        found.name
        for found in consumers
        if 0 < idle < found.config.inactive_threshold
        or 0 < pending < found.config.max_ack_pending
    )
    if violated:
        text = f"change to limits violates consumers: {', '.join(violated)}"
        raise errors.STREAM_UPDATE.error(err=text)


# --- metadata of the server ------------------------------------------------------------------


def required_level(config: StreamConfig) -> int:
    """The API level (ADR-44) that a stream needs of a server."""
    if config.allow_batched:
        return 4
    if (
        config.allow_msg_counter
        or config.allow_atomic
        or config.allow_msg_schedules
        or config.persist_mode == "async"
    ):
        return 2
    return 1 if config.allow_msg_ttl or config.subject_delete_marker_ttl > 0 else 0


def asked_metadata(config: StreamConfig) -> dict[str, str]:
    """Metadata without what only answers have. A client may send an answer's configuration back."""
    return {
        key: value
        for key, value in config.metadata.items()
        if key not in DYNAMIC_KEYS and not key.startswith(LINK_PREFIX)
    }


def set_level(config: StreamConfig) -> None:
    """Set the API level that a stream needs, and drop what is only shown."""
    config.metadata = {**asked_metadata(config), LEVEL_KEY: str(required_level(config))}


def shown(config: StreamConfig) -> StreamConfig:
    """`config` as answers show it, with the server's version and level."""
    metadata = {**config.metadata, "_nats.ver": NATS_LEVEL, "_nats.level": str(API_LEVEL)}
    return msgspec.structs.replace(config, metadata=metadata)


def hide_links(shown_as: StreamConfig) -> None:
    """Take out of an answer's configuration how its mirror and sources are."""
    shown_as.metadata = {
        key: value
        for key, value in shown_as.metadata.items()
        if not key.startswith(LINK_PREFIX)
    }


def same_config(old: StreamConfig, new: StreamConfig) -> bool:
    """Whether two checked configurations mean the same; server metadata is not compared."""
    level = old.metadata.get(LEVEL_KEY)
    metadata = asked_metadata(new)
    metadata.pop(LEVEL_KEY, None)
    if level is not None:
        metadata[LEVEL_KEY] = level
    return msgspec.structs.replace(new, metadata=metadata) == old
