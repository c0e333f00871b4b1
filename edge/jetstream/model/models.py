"""The objects of the JetStream API as they stand on the wire (ADR-1, ADR-2, ADR-8, ADR-31, ...).

Field names are the JSON names and field order is the order in which the protocol writes them.
Durations are ns. Times are RFC 3339 texts (`times.parse_time`), since clients may send more digits
than a datetime holds. A field declared by `always` is written even when it has its zero value.

`bodies` decodes them.
"""

from typing import Any, Literal

import msgspec

from headwater.edge.jetstream.model.bounds import Signed, Small, Unsigned
from headwater.edge.jetstream.model.times import ZERO_TIME

NAMES_LIMIT = 1024
LIST_LIMIT = 256
SUBJECTS_LIMIT = 100_000

def always(value: Any) -> Any:
    """A field that is written even when it equals its default."""
    return msgspec.field(default_factory=lambda: value)


NO_POLICY: Any = ""
"""Requests that name no priority policy have this, but may not name it so."""
NO_STORAGE: Any = ""
"""The same for requests that name no storage; what is checked has one."""


class Wire(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of everything in this module."""


# --- streams ---------------------------------------------------------------------------------


class Placement(Wire):
    """Where a clustered asset may live."""

    cluster: str = ""
    tags: list[str] = []
    preferred: str = ""


class SubjectTransform(Wire):
    """A mapping of subjects (ADR-30); an empty `src` means `>`."""

    src: str = always("")
    dest: str = always("")


class Republish(Wire):
    """Where stored messages are published again."""

    src: str = ""
    dest: str = always("")
    headers_only: bool = False


class ExternalStream(Wire):
    """API and delivery prefixes that reach a stream of another account or domain."""

    api: str = always("")
    deliver: str = always("")


class SourceConsumer(Wire):
    """A named consumer on the origin that a mirror or source uses (ADR-60)."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(Wire):
    """The origin of a mirror, or one source of a stream."""

    name: str = always("")
    opt_start_seq: Unsigned = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None


class ConsumerLimits(Wire):
    """Caps and defaults for the consumers of a stream."""

    inactive_threshold: Signed = 0
    max_ack_pending: Signed = 0


class StreamConfig(Wire):
    """What a stream is told to be (ADR-2 and later). -1 is unlimited."""

    name: str = always("")
    description: str = ""
    subjects: list[str] = []
    retention: Literal["limits", "interest", "workqueue"] = always("limits")
    max_consumers: Signed = always(0)
    max_msgs: Signed = always(0)
    max_bytes: Signed = always(0)
    max_age: Signed = always(0)
    max_msgs_per_subject: Signed = always(0)
    max_msg_size: Small = 0
    discard: Literal["old", "new"] = always("old")
    storage: Literal["file", "memory"] = always("file")
    num_replicas: Signed = always(0)
    no_ack: bool = False
    duplicate_window: Signed = 0
    placement: Placement | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = []
    compression: Literal["none", "s2"] = always("none")
    first_seq: Unsigned = 0
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_direct: bool = always(False)
    mirror_direct: bool = always(False)
    discard_new_per_subject: bool = False
    sealed: bool = always(False)
    deny_delete: bool = always(False)
    deny_purge: bool = always(False)
    allow_rollup_hdrs: bool = always(False)
    consumer_limits: ConsumerLimits = msgspec.field(default_factory=ConsumerLimits)
    allow_msg_ttl: bool = always(False)
    subject_delete_marker_ttl: Signed = 0
    allow_msg_counter: bool = False
    allow_atomic: bool = False
    allow_msg_schedules: bool = False
    persist_mode: Literal["", "default", "async"] = ""
    allow_batched: bool = False
    metadata: dict[str, str] = {}


class StreamRequest(StreamConfig):
    """Body of STREAM.CREATE and STREAM.UPDATE."""

    storage: Literal["file", "memory"] = NO_STORAGE
    pedantic: bool = False


class LostData(Wire):
    """Messages that were found damaged and could not be repaired."""

    msgs: list[int] | None = always(None)
    bytes: Signed = always(0)


class StreamState(Wire):
    """What a stream holds at the moment."""

    messages: Unsigned = always(0)
    bytes: Signed = always(0)
    first_seq: Unsigned = always(0)
    first_ts: str = always(ZERO_TIME)
    last_seq: Unsigned = always(0)
    last_ts: str = always(ZERO_TIME)
    num_subjects: Unsigned = 0
    subjects: dict[str, int] = {}
    num_deleted: Signed = 0
    deleted: list[Unsigned] = []
    lost: LostData | None = None
    consumer_count: Signed = always(0)


class PeerInfo(Wire):
    """A replica of a clustered asset. `active` is ns since it was heard of."""

    name: str = always("")
    current: bool = always(False)
    observer: bool = False
    offline: bool = False
    active: Signed = always(0)
    lag: Signed = 0
    peer: str = always("")


class DesiredPeer(Wire):
    """A server that is to carry an asset."""

    name: str = always("")
    peer: str = always("")


class DesiredOrigin(Wire):
    """What a cancellation gives a stream back."""

    replicas: Signed = always(0)
    placement: Placement | None = None


class DesiredClusterInfo(Wire):
    """Where an asset is on its way to."""

    created: str = always("")
    name: str = ""
    replicas: list[DesiredPeer] = []
    origin: DesiredOrigin | None = None


class ClusterInfo(Wire):
    """The servers that carry an asset."""

    name: str = ""
    raft_group: str = ""
    leader: str = ""
    leader_since: str | None = None
    system_account: bool = False
    traffic_account: str = ""
    replicas: list[PeerInfo] = []
    desired: DesiredClusterInfo | None = None


class SourceInfo(Wire):
    """How far a mirror or source is. `active` is ns since the last message, -1 for never; `seq` is
    the last of a source's messages that is stored, in the origin."""

    name: str = always("")
    external: ExternalStream | None = None
    lag: Signed = always(0)
    seq: int = 0
    active: Signed = always(-1)
    error: dict[str, Any] | None = None
    filter_subject: str = ""
    subject_transforms: list[SubjectTransform] = []


class StreamAlternate(Wire):
    """A stream that holds the same data."""

    name: str = always("")
    domain: str = ""
    cluster: str = always("")


class StreamInfo(Wire):
    """A stream as INFO shows it."""

    config: StreamConfig = msgspec.field(default_factory=StreamConfig)
    created: str = always("")
    state: StreamState = msgspec.field(default_factory=StreamState)
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = []
    alternates: list[StreamAlternate] = []
    ts: str = always("")


class StreamCreated(StreamInfo):
    """Answer to STREAM.CREATE."""

    did_create: bool = False


class PagedStreamInfo(Wire):
    """Answer to STREAM.INFO; `total`, `offset` and `limit` page `state.subjects`."""

    total: Signed = always(0)
    offset: Signed = always(0)
    limit: Signed = always(0)
    config: StreamConfig = msgspec.field(default_factory=StreamConfig)
    created: str = always("")
    state: StreamState = msgspec.field(default_factory=StreamState)
    domain: str = ""
    cluster: ClusterInfo | None = None
    mirror: SourceInfo | None = None
    sources: list[SourceInfo] = []
    alternates: list[StreamAlternate] = []
    ts: str = always("")


# --- stream requests and answers -------------------------------------------------------------


class StreamInfoRequest(Wire):
    """Body of STREAM.INFO."""

    offset: Signed = 0
    deleted_details: bool = False
    subjects_filter: str = ""


class StreamNamesRequest(Wire):
    """Body of STREAM.NAMES."""

    offset: Signed = 0
    subject: str = ""


class StreamListRequest(StreamNamesRequest):
    """Body of STREAM.LIST."""


class StreamNames(Wire):
    """Answer to STREAM.NAMES."""

    total: Signed = always(0)
    offset: Signed = always(0)
    limit: Signed = always(NAMES_LIMIT)
    streams: list[str] | None = always(None)


class StreamList(Wire):
    """Answer to STREAM.LIST."""

    total: Signed = always(0)
    offset: Signed = always(0)
    limit: Signed = always(LIST_LIMIT)
    streams: list[StreamInfo] = always([])
    missing: list[str] = []
    """Streams of a cluster whose leaders did not answer."""


class Success(Wire):
    """Answer of the requests that only say that it is done."""

    success: bool = False


class PurgeRequest(Wire):
    """`seq` is exclusive; `keep` is a number of messages; not both."""

    seq: Unsigned = 0
    filter: str = ""
    keep: Unsigned = 0


class Purged(Wire):
    """Answer to STREAM.PURGE."""

    success: bool = False
    purged: Signed = always(0)


class MsgDeleteRequest(Wire):
    """Body of STREAM.MSG.DELETE."""

    seq: Unsigned = 0
    no_erase: bool = False


class MsgGetRequest(Wire):
    """Body of STREAM.MSG.GET and DIRECT.GET."""

    seq: Unsigned = 0
    last_by_subj: str = ""
    next_by_subj: str = ""
    batch: Signed = 0
    max_bytes: Signed = 0
    start_time: str | None = None
    multi_last: list[str] = []
    up_to_seq: Unsigned = 0
    up_to_time: str | None = None
    no_hdr: bool = False


class StoredMessage(Wire):
    """A message as MSG.GET shows it; `hdrs` and `data` are base64."""

    subject: str = always("")
    seq: Unsigned = always(0)
    hdrs: bytes = b""
    data: bytes = b""
    time: str = always("")


class MsgGot(Wire):
    """Answer to STREAM.MSG.GET."""

    message: StoredMessage = msgspec.field(default_factory=StoredMessage)


class SnapshotRequest(Wire):
    """Body of STREAM.SNAPSHOT; sizes in bytes."""

    deliver_subject: str = ""
    no_consumers: bool = False
    chunk_size: Signed = 0
    window_size: Signed = 0
    jsck: bool = False


class SnapshotStarted(Wire):
    """Answer to STREAM.SNAPSHOT."""

    config: StreamConfig = msgspec.field(default_factory=StreamConfig)
    state: StreamState = msgspec.field(default_factory=StreamState)


class RestoreRequest(Wire):
    """Body of STREAM.RESTORE."""

    config: StreamConfig = msgspec.field(default_factory=StreamConfig)
    state: StreamState = msgspec.field(default_factory=StreamState)


class RestoreStarted(Wire):
    """Answer to STREAM.RESTORE."""

    deliver_subject: str = always("")


class PeerRemoveRequest(Wire):
    """Body of STREAM.PEER.REMOVE."""

    peer: str = ""


class StepDownRequest(Wire):
    """Body of the LEADER.STEPDOWN requests."""

    placement: Placement | None = None


# --- consumers -------------------------------------------------------------------------------


class ConsumerConfig(Wire):
    """What a consumer is told to be (ADR-2, ADR-42 and later)."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: Literal[
        "all",
        "last",
        "new",
        "by_start_sequence",
        "by_start_time",
        "last_per_subject",
        "undefined",
    ] = always("all")
    opt_start_seq: Unsigned = 0
    opt_start_time: str | None = None
    ack_policy: Literal["none", "all", "explicit", "flow_control"] = always("none")
    ack_wait: Signed = 0
    max_deliver: Signed = 0
    backoff: list[Signed] = []
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: Literal["instant", "original"] = always("instant")
    rate_limit_bps: Unsigned = 0
    sample_freq: str = ""
    max_waiting: Signed = 0
    max_ack_pending: Signed = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: Signed = 0
    max_expires: Signed = 0
    max_bytes: Signed = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: Signed = 0
    inactive_threshold: Signed = 0
    num_replicas: Signed = always(0)
    mem_storage: bool = False
    direct: bool = False
    sourcing: bool = False
    metadata: dict[str, str] = {}
    pause_until: str | None = None
    priority_groups: list[str] = []
    priority_policy: Literal["none", "overflow", "pinned_client", "prioritized"] = NO_POLICY
    priority_timeout: Signed = 0


class ConsumerRequest(Wire):
    """Body of the CONSUMER.CREATE family."""

    stream_name: str = ""
    config: ConsumerConfig = msgspec.field(default_factory=ConsumerConfig)
    action: Literal["", "create", "update"] = ""
    """create, update or empty for both; other texts are refused by the request's handler."""
    pedantic: bool = False


class SequenceInfo(Wire):
    """A position in a consumer and its stream."""

    consumer_seq: Unsigned = always(0)
    stream_seq: Unsigned = always(0)
    last_active: str | None = None


class PriorityGroupState(Wire):
    """Who is pinned in a priority group."""

    group: str = always("")
    pinned_client_id: str = ""
    pinned_ts: str = always(ZERO_TIME)


class ConsumerInfo(Wire):
    """A consumer as INFO shows it."""

    stream_name: str = always("")
    name: str = always("")
    created: str = always("")
    config: ConsumerConfig | None = None
    delivered: SequenceInfo = msgspec.field(default_factory=SequenceInfo)
    ack_floor: SequenceInfo = msgspec.field(default_factory=SequenceInfo)
    num_ack_pending: Signed = always(0)
    num_redelivered: Signed = always(0)
    num_waiting: Signed = always(0)
    num_pending: Signed = always(0)
    cluster: ClusterInfo | None = None
    push_bound: bool = False
    paused: bool = False
    pause_remaining: Signed = 0
    ts: str = always("")
    priority_groups: list[PriorityGroupState] = []


class ConsumersRequest(Wire):
    """Body of CONSUMER.NAMES and CONSUMER.LIST."""

    offset: Signed = 0


class ConsumerNames(Wire):
    """Answer to CONSUMER.NAMES."""

    total: Signed = always(0)
    offset: Signed = always(0)
    limit: Signed = always(NAMES_LIMIT)
    consumers: list[str] = always([])


class ConsumerList(Wire):
    """Answer to CONSUMER.LIST."""

    total: Signed = always(0)
    offset: Signed = always(0)
    limit: Signed = always(LIST_LIMIT)
    consumers: list[ConsumerInfo] = always([])


class PauseRequest(Wire):
    """Body of CONSUMER.PAUSE; a time in the past resumes."""

    pause_until: str = ZERO_TIME


class Paused(Wire):
    """Answer to CONSUMER.PAUSE."""

    paused: bool = always(False)
    pause_until: str = always(ZERO_TIME)
    pause_remaining: Signed = 0


class UnpinRequest(Wire):
    """Body of CONSUMER.UNPIN."""

    group: str = ""


class Unpinned(Wire):
    """Answer to CONSUMER.UNPIN: nothing but its type."""


class ResetRequest(Wire):
    """Body of CONSUMER.RESET; 0 resets to the ack floor."""

    seq: Unsigned = 0


class ConsumerReset(ConsumerInfo):
    """Answer to CONSUMER.RESET; `reset_seq` is delivered next."""

    reset_seq: Unsigned = always(0)


class PullRequest(Wire):
    """Body of CONSUMER.MSG.NEXT; `decode_pull` reads it."""

    expires: Signed = 0
    batch: Signed = 0
    max_bytes: Signed = 0
    no_wait: bool = False
    idle_heartbeat: Signed = 0
    group: str = ""
    min_pending: Signed = 0
    min_ack_pending: Signed = 0
    id: str = ""
    priority: Signed = 0


# --- account ---------------------------------------------------------------------------------


class AccountLimits(Wire):
    """What an account may use; -1 is unlimited."""

    max_memory: Signed = always(-1)
    max_storage: Signed = always(-1)
    max_streams: Signed = always(-1)
    max_consumers: Signed = always(-1)
    max_ack_pending: Signed = always(-1)
    memory_max_stream_bytes: Signed = always(-1)
    storage_max_stream_bytes: Signed = always(-1)
    max_bytes_required: bool = always(False)


class ApiStats(Wire):
    """Requests served since the start, and the level of the API (ADR-44)."""

    level: Signed = always(0)
    total: Signed = always(0)
    errors: Signed = always(0)
    inflight: Signed = 0


class TierInfo(Wire):
    """What an account may use and uses in one replication tier."""

    memory: Signed = always(0)
    storage: Signed = always(0)
    reserved_memory: Signed = always(0)
    reserved_storage: Signed = always(0)
    streams: Signed = always(0)
    consumers: Signed = always(0)
    limits: AccountLimits = msgspec.field(default_factory=AccountLimits)


class AccountInfo(TierInfo):
    """Answer to INFO; `tiers` instead of `limits` where an account has them."""

    domain: str = ""
    api: ApiStats = msgspec.field(default_factory=ApiStats)
    tiers: dict[str, TierInfo] = {}
