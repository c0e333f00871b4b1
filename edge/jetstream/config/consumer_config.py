"""Checking consumer configurations: defaults, rules for new consumers and rules for updates.

The order of the checks and their texts are the protocol's, since clients match on them.
"""

import re

import msgspec

from headwater.edge.jetstream.config import link_choices
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.errors import JetStreamError, invalid_config
from headwater.edge.jetstream.model.models import NO_POLICY, ConsumerConfig, StreamConfig
from headwater.edge.jetstream.model.names import valid_name
from headwater.edge.jetstream.model.times import SECOND, ZERO_TIME, format_duration, parse_time
from headwater.edge.subjects.subject_tree import Steps, SubjectTree
from headwater.edge.subjects.tokens import (
    clean_word,
    covers,
    literal_subject,
    overlap,
    valid_subject,
)
from headwater.security.errors import StepsExceeded

DESCRIPTION_MAX = 4096
METADATA_MAX = 131072
WAITING_DEFAULT = 512
ACK_WAIT_DEFAULT = 30 * SECOND
ACK_PENDING_DEFAULT = 1000
PIN_DEFAULT = 120 * SECOND
HEARTBEAT_MIN = SECOND // 10
# Heartbeat of consumers that acknowledge by flow control, as mirrors and sources use them.
FLOW_HEARTBEAT = SECOND
EXPIRES_MIN = 1_000_000
LEVEL_KEY = "_nats.req.level"
DYNAMIC_KEYS = ("_nats.ver", "_nats.level")

_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")
_POLICY_NAMES = {
    "all": "all",
    "last": "last",
    "last_per_subject": "last per subject",
    "new": "new",
    "by_start_sequence": "by start sequence",
    "by_start_time": "by start time",
}
# (field, least legal value) of settings that fall back to that value below it.
_FLOORS = (
    ("max_waiting", 0, "max_waiting must not be negative"),
    ("max_ack_pending", -1, "max_ack_pending must be set to -1"),
    ("max_batch", 0, "max_batch must not be negative"),
    ("max_expires", 0, "max_expires must not be negative"),
    ("max_bytes", 0, "max_bytes must not be negative"),
    ("idle_heartbeat", 0, "idle_heartbeat must not be negative"),
    ("inactive_threshold", 0, "inactive_threshold must not be negative"),
    ("priority_timeout", 0, "priority_timeout must not be negative"),
)
# Fields that an update may not change, and how the refusal begins.
_FIXED = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


class Limits(msgspec.Struct, kw_only=True):
    """What node and account allow; 0 or below is unlimited."""

    max_ack_pending: int = 0
    account_max_ack_pending: int = 0
    account_max_consumers: int = 0
    """On each stream; of all its consumers, or of those with `tier_replicas`."""
    tier_replicas: int = 0
    """Replicas of the tier that the account's limits are of; 0 without tiers."""
    max_request_batch: int = 0
    default_max_consumers: int = 0
    """Of a stream, when neither it nor the account has a bound."""
    full: bool = False
    """Whether the node holds as many consumers as it may."""


def filters(config: ConsumerConfig) -> list[str]:
    """Subject filters, empty for everything."""
    if config.filter_subjects:
        return list(config.filter_subjects)
    return [config.filter_subject] if config.filter_subject else []


def fill(config: ConsumerConfig, stream: StreamConfig, limits: Limits, pedantic: bool) -> None:
    """Give what is unset its default. Raises JetStreamError 10157 when `pedantic`."""

    def strict(text: str) -> None:
        if pedantic:
            raise errors.PEDANTIC.error(err=text)

    if config.deliver_policy == "undefined":
        config.deliver_policy = "all"
    if config.max_deliver < -1:
        strict("max_deliver must be set to -1")
    if config.max_deliver < 1:
        config.max_deliver = -1
    for name, least, text in _FLOORS:
        if getattr(config, name) < least:
            strict(text)
            setattr(config, name, least)
    if not config.deliver_subject and config.max_waiting == 0:
        config.max_waiting = WAITING_DEFAULT
    if config.ack_wait == 0 and config.ack_policy in ("explicit", "all"):
        config.ack_wait = ACK_WAIT_DEFAULT
    if config.backoff:
        if config.ack_wait != config.backoff[0]:
            strict("first backoff value has to equal batch AckWait")
        config.ack_wait = config.backoff[0]
    caps = stream.consumer_limits
    if config.max_ack_pending == 0:
        if caps.max_ack_pending > 0:
            strict("max_ack_pending must be set if it's configured in stream limits")
        config.max_ack_pending = caps.max_ack_pending
    if config.inactive_threshold == 0:
        if caps.inactive_threshold > 0:
            strict("inactive_threshold must be set if it's configured in stream limits")
        config.inactive_threshold = caps.inactive_threshold
    _fill_rest(config, limits, pedantic)


def _fill_rest(config: ConsumerConfig, limits: Limits, pedantic: bool) -> None:
    if config.max_ack_pending == 0 and config.ack_policy != "none":
        known = (limits.max_ack_pending, limits.account_max_ack_pending)
        config.max_ack_pending = min([ACK_PENDING_DEFAULT, *(n for n in known if n > 0)])
    if not config.deliver_subject and config.max_batch == 0 and limits.max_request_batch > 0:
        if pedantic:
            text = "max_request_batch must be set if it's JetStream limits are set"
            raise errors.PEDANTIC.error(err=text)
        config.max_batch = limits.max_request_batch
    if config.priority_policy == "none":
        config.priority_policy = NO_POLICY
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        config.priority_timeout = PIN_DEFAULT
    if config.ack_policy == "flow_control" and not pedantic:
        config.flow_control = True
        config.idle_heartbeat = FLOW_HEARTBEAT


def check(config: ConsumerConfig, stream: StreamConfig, limits: Limits) -> None:
    """Refuse what a consumer of `stream` can not be. Raises JetStreamError."""
    _check_names(config)
    _check_replicas(config, stream)
    _check_acks(config)
    if config.deliver_subject:
        _check_push(config, stream)
    else:
        _check_pull(config, stream, limits)
    _check_caps(config, stream, limits)
    if config.direct and not config.deliver_subject:
        raise errors.CONSUMER_DIRECT_REQUIRES_PUSH.error()
    if config.direct and config.durable_name:
        raise errors.CONSUMER_DIRECT_REQUIRES_EPHEMERAL.error()
    _check_filters(config)
    _check_start(config)
    _check_sampling(config)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.CONSUMER_WITH_FLOW_CONTROL_NEEDS_HEARTBEATS.error()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_CREATE_DURABLE_AND_NAME_MISMATCH.error()
    size = sum(len(k.encode()) + len(v.encode()) for k, v in config.metadata.items())
    if size > METADATA_MAX:
        raise errors.CONSUMER_METADATA_LENGTH.error(limit=f"{METADATA_MAX // 1024}KB")
    link_choices.check_priority(config.metadata)
    _check_priority(config)


def _check_names(config: ConsumerConfig) -> None:
    characters = "can not contain '.', '*', '>', '\\', '/'"
    if config.name and not valid_name(config.name):
        raise invalid_config(f"consumer name {characters}")
    if config.durable_name and not valid_name(config.durable_name):
        raise invalid_config(f"consumer durable name {characters}")


def _check_replicas(config: ConsumerConfig, stream: StreamConfig) -> None:
    if config.num_replicas > max(stream.num_replicas, 1):
        raise errors.CONSUMER_REPLICAS_EXCEEDS_STREAM.error()
    if config.num_replicas < 0:
        raise errors.REPLICAS_COUNT_CANNOT_BE_NEGATIVE.error()
    if (
        stream.retention != "limits"
        and config.num_replicas
        and config.num_replicas != stream.num_replicas
    ):
        raise errors.CONSUMER_REPLICAS_SHOULD_MATCH_STREAM.error()


def _check_acks(config: ConsumerConfig) -> None:
    if any(wait < 0 for wait in config.backoff):
        raise errors.CONSUMER_BACK_OFF_NEGATIVE.error()
    if config.ack_wait < 0:
        raise errors.CONSUMER_ACK_WAIT_NEGATIVE.error()
    if config.ack_policy == "flow_control":
        if not config.deliver_subject:
            raise errors.CONSUMER_ACK_FC_REQUIRES_PUSH.error()
        if not config.flow_control:
            raise errors.CONSUMER_ACK_FC_REQUIRES_FC.error()
        if config.idle_heartbeat != FLOW_HEARTBEAT:
            raise invalid_config("flow control ack policy heartbeat needs to be 1s")
        if config.max_ack_pending <= 0:
            raise errors.CONSUMER_ACK_FC_REQUIRES_MAX_ACK_PENDING.error()
        if config.ack_wait or config.backoff:
            raise errors.CONSUMER_ACK_FC_REQUIRES_NO_ACK_WAIT.error()
        if config.max_deliver > 0:
            raise errors.CONSUMER_ACK_FC_REQUIRES_NO_MAX_DELIVER.error()
    check_backoff(config)
    if len(config.description.encode()) > DESCRIPTION_MAX:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG.error(max=DESCRIPTION_MAX)


def check_backoff(config: ConsumerConfig) -> None:
    """Refuse a backoff that is longer than the deliveries it is for."""
    if config.backoff and config.max_deliver != -1 and len(config.backoff) > config.max_deliver:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF.error()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    subject = config.deliver_subject.encode()
    if any(token in ("*", ">") for token in config.deliver_subject.split(".")):
        raise errors.CONSUMER_DELIVER_TO_WILDCARDS.error()
    if not literal_subject(subject):
        raise errors.CONSUMER_INVALID_DELIVER_SUBJECT.error()
    if config.deliver_group and not clean_word(config.deliver_group.encode()):
        raise invalid_config("deliver group can not contain spaces or control characters")
    if any(covers(own.encode(), subject) for own in stream.subjects):
        raise errors.CONSUMER_DELIVER_CYCLE.error()
    if config.max_waiting:
        raise errors.CONSUMER_PUSH_MAX_WAITING.error()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.CONSUMER_MAX_PENDING_ACK_POLICY_REQUIRED.error()
    if 0 < config.idle_heartbeat < HEARTBEAT_MIN:
        raise errors.CONSUMER_SMALL_HEARTBEAT.error()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, limits: Limits) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        raise errors.CONSUMER_PULL_REQUIRES_ACK.error()
    if config.rate_limit_bps:
        raise errors.CONSUMER_PULL_WITH_RATE_LIMIT.error()
    if config.idle_heartbeat:
        raise errors.CONSUMER_HB_REQUIRES_PUSH.error()
    if config.flow_control:
        raise errors.CONSUMER_FC_REQUIRES_PUSH.error()
    if 0 < config.max_expires < EXPIRES_MIN:
        raise errors.CONSUMER_MAX_REQUEST_EXPIRES_TOO_SMALL.error()
    if 0 < limits.max_request_batch < config.max_batch:
        raise errors.CONSUMER_MAX_REQUEST_BATCH_EXCEEDED.error(limit=limits.max_request_batch)


def _check_caps(config: ConsumerConfig, stream: StreamConfig, limits: Limits) -> None:
    caps = stream.consumer_limits
    for most in (limits.max_ack_pending, limits.account_max_ack_pending, caps.max_ack_pending):
        if 0 < most < config.max_ack_pending:
            raise errors.CONSUMER_MAX_PENDING_ACK_EXCESS.error(limit=most)
    if 0 < caps.inactive_threshold < config.inactive_threshold:
        most_text = format_duration(caps.inactive_threshold)
        raise errors.CONSUMER_INACTIVE_THRESHOLD_EXCESS.error(limit=most_text)


def _check_filters(config: ConsumerConfig) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTER_SUBJECTS.error()
    if config.filter_subject and not valid_subject(config.filter_subject.encode()):
        raise invalid_config("invalid subject")
    if "" in config.filter_subjects:
        raise errors.CONSUMER_EMPTY_FILTER.error()
    wanted = filters(config)
    tree, steps = SubjectTree(), Steps()
    for i, subject in enumerate(wanted):
        tree.put(subject, i, subject)
    try:
        for subject in wanted:
            if not valid_subject(subject.encode()):
                raise invalid_config("invalid subject")
            if len(tree.covering(subject, steps)) > 1:
                raise errors.CONSUMER_OVERLAPPING_SUBJECT_FILTERS.error()
    except StepsExceeded:
        raise invalid_config(f"filter {errors.TOO_MANY_SUBJECTS}") from None


def _check_start(config: ConsumerConfig) -> None:
    policy = config.deliver_policy
    name = _POLICY_NAMES[policy]

    def refuse(text: str) -> JetStreamError:
        return errors.CONSUMER_INVALID_POLICY.error(
            err=f"consumer delivery policy is deliver {name}, but optional {text}"
        )

    if policy == "by_start_sequence" and config.opt_start_seq <= 0:
        raise refuse("start sequence is not set")
    if policy == "by_start_time" and config.opt_start_time is None:
        raise refuse("start time is not set")
    if policy != "by_start_sequence" and config.opt_start_seq:
        text = "start start sequence" if policy == "by_start_time" else "start sequence"
        raise refuse(f"{text} is also set")
    if policy != "by_start_time" and config.opt_start_time is not None:
        raise refuse("start time is also set")
    if policy == "last_per_subject" and not filters(config):
        raise refuse("filter subject is not set")


def _check_sampling(config: ConsumerConfig) -> None:
    text = config.sample_freq.removesuffix("%")
    if config.sample_freq and not re.fullmatch(r"\+?\d+", text):
        number = re.fullmatch(r"-\d+", text)
        reason = "<nil>" if number else f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise errors.CONSUMER_INVALID_SAMPLING.error(err=reason)


def _check_priority(config: ConsumerConfig) -> None:
    if config.priority_policy in ("", "none"):
        if config.priority_groups:
            raise errors.CONSUMER_PRIORITY_GROUP_WITH_POLICY_NONE.error()
        if config.priority_timeout:
            raise errors.CONSUMER_PINNED_TTL_WITHOUT_PRIORITY_POLICY_NONE.error()
        return
    if config.deliver_subject:
        raise errors.CONSUMER_PUSH_WITH_PRIORITY_GROUP.error()
    if not config.priority_groups:
        raise errors.CONSUMER_PRIORITY_POLICY_WITHOUT_GROUP.error()
    for group in config.priority_groups:
        if not group:
            raise errors.CONSUMER_EMPTY_GROUP_NAME.error()
        if not valid_group(group):
            raise errors.CONSUMER_INVALID_GROUP_NAME.error()


def valid_group(name: str) -> bool:
    """Whether a priority group may have this name."""
    return _GROUP_NAME.fullmatch(name) is not None


def check_update(old: ConsumerConfig, new: ConsumerConfig, bound: bool) -> None:
    """Refuse a change that a consumer can not make; `bound`: somebody listens to a push consumer.

    Raises JetStreamError, 10012 with the protocol's text for most.
    """
    if same_config(old, new):
        return
    for field, text in _FIXED:
        if _normalized(old, field) != _normalized(new, field):
            raise errors.CONSUMER_CREATE.error(err=f"{text} can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if not old.deliver_subject:
            text = "can not update pull consumer to push based"
            raise errors.CONSUMER_CREATE.error(err=text)
        if not new.deliver_subject:
            text = "can not update push consumer to pull based"
            raise errors.CONSUMER_CREATE.error(err=text)
        if bound:
            raise errors.CONSUMER_NAME_EXIST.error()
    if old.max_waiting != new.max_waiting:
        raise errors.CONSUMER_CREATE.error(err="max waiting can not be updated")
    check_backoff(new)


def _normalized(config: ConsumerConfig, field: str) -> object:
    value = getattr(config, field)
    if field == "opt_start_time" and value is not None:
        return parse_time(value)
    return value


def same_config(old: ConsumerConfig, new: ConsumerConfig) -> bool:
    """Whether two checked configurations mean the same; server metadata is not compared."""
    level = old.metadata.get(LEVEL_KEY)
    metadata = {k: v for k, v in new.metadata.items() if k not in (LEVEL_KEY, *DYNAMIC_KEYS)}
    if level is not None:
        metadata[LEVEL_KEY] = level
    return msgspec.structs.replace(new, metadata=metadata) == old


def set_level(config: ConsumerConfig) -> None:
    """Set the API level (ADR-44) that a consumer needs, and drop what is only shown."""
    level = 0
    if (
        config.pause_until not in (None, ZERO_TIME)
        or config.priority_policy not in ("", "none")
        or config.priority_timeout
        or config.priority_groups
    ):
        level = 1
    if config.ack_policy == "flow_control":
        level = 4
    kept = {k: v for k, v in config.metadata.items() if k not in DYNAMIC_KEYS}
    kept[LEVEL_KEY] = str(level)
    config.metadata = kept


def overlaps(wanted: list[str], taken: list[str]) -> bool:
    """Whether some subject is wanted by both lists of filters; an empty list wants everything."""
    return any(overlap(a.encode(), b.encode()) for a in wanted or [">"] for b in taken or [">"])
