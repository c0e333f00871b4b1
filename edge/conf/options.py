"""Options of a node, as read from its configuration file and command line.

Plain records without behaviour beyond small derivations. Units everywhere: durations are
seconds (float), sizes are bytes, and -1 means "no limit" unless a field says otherwise.
Ports: 0 is "off" (for the client port: the default), -1 is "any free port".
"""

import msgspec

from headwater.security.auth_options import (
    DEFAULT_AUTH_TIMEOUT,
    GLOBAL_ACCOUNT,
    AuthCalloutOptions,
    AuthOptions,
    OperatorOptions,
    PermissionOptions,
    ResolverOptions,
    ResponseRules,
    SubjectRules,
    UserOptions,
)

__all__ = [
    "AccountJetStreamOptions",
    "AccountOptions",
    "AuthCalloutOptions",
    "AuthOptions",
    "BatchLimitOptions",
    "CertificatePair",
    "ClusterOptions",
    "CompressionOptions",
    "ExportOptions",
    "GatewayOptions",
    "HeadwaterOptions",
    "ImportOptions",
    "JetStreamLimitOptions",
    "JetStreamOptions",
    "LatencyOptions",
    "LeafOptions",
    "LeafRemoteOptions",
    "MappingDestination",
    "MappingOptions",
    "MqttOptions",
    "OperatorOptions",
    "Options",
    "PermissionOptions",
    "ProxyOptions",
    "RemoteGatewayOptions",
    "ResolverOptions",
    "ResponseRules",
    "SubjectRules",
    "TLSOptions",
    "TpmOptions",
    "UserOptions",
    "WebSocketOptions",
]

DEFAULT_HOST = "0.0.0.0"
DEFAULT_PORT = 4222
DEFAULT_LEAF_PORT = 7422
MIB = 1024 * 1024


class CertificatePair(msgspec.Struct, kw_only=True):
    """Paths of a PEM certificate chain and of its key."""

    cert_file: str = ""
    key_file: str = ""


class OCSPPeerOptions(msgspec.Struct, kw_only=True):
    """A `tls.ocsp_peer` block. Times are in seconds."""

    verify: bool = False
    ca_timeout: float = 2.0
    """What a responder may take for one attempt."""
    allowed_clockskew: float = 30.0
    warn_only: bool = False
    unknown_is_good: bool = False
    allow_when_ca_unreachable: bool = False
    ttl_without_next: float = 3600.0
    """How long an answer counts that does not say."""


class OCSPCacheOptions(msgspec.Struct, kw_only=True):
    """The `ocsp_cache` block."""

    kind: str = "local"
    """"local" or "none"."""
    local_store: str = "_rc_"
    preserve_revoked: bool = False


class TLSOptions(msgspec.Struct, kw_only=True):
    """A `tls` block; paths are as written (relative to the working directory)."""

    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    verify: bool = False
    verify_and_map: bool = False
    """Take the user name from the client's certificate; implies `verify`."""
    check_known_urls: bool = False
    insecure: bool = False
    """Do not verify the remote end; for solicited connections only."""
    server_name: str = ""
    """Name that the remote end's certificate must be for; empty means the host that is dialled.
    For solicited leaf connections only."""
    cipher_suites: list[str] = []
    """IANA names; empty means the library's defaults."""
    allow_insecure_cipher_suites: bool = False
    curve_preferences: list[str] = []
    timeout: float = 2.0
    connection_rate_limit: int = 0
    """TLS handshakes per second; 0 is unlimited."""
    pinned_certs: list[str] = []
    """Lower-case hex SHA-256 of accepted subject public key infos."""
    handshake_first: bool = False
    handshake_first_fallback: float = 0.0
    """Seconds to wait for a ClientHello before INFO is sent anyway; 0 never falls back."""
    min_version: str = "1.2"
    """"1.2" or "1.3"."""
    certificates: list[CertificatePair] = []
    ocsp_peer: OCSPPeerOptions | None = None
    """How peers are judged by what their authorities say; None: not at all."""


class LatencyOptions(msgspec.Struct, kw_only=True):
    """Latency reports of a service export. `sampling` is a percentage; 0 means "headers"."""

    sampling: int = 100
    subject: str = ""


class ExportOptions(msgspec.Struct, kw_only=True):
    """One exported stream or service."""

    kind: str = "stream"
    """"stream" or "service"."""
    subject: str = ""
    accounts: list[str] = []
    """Accounts that may import; empty makes the export public."""
    response_type: str = "single"
    """"single", "stream" or "chunked"."""
    threshold: float = 0.0
    latency: LatencyOptions | None = None
    account_token_position: int = 0
    allow_trace: bool = False


class ImportOptions(msgspec.Struct, kw_only=True):
    """One imported stream or service."""

    kind: str = "stream"
    account: str = ""
    subject: str = ""
    to: str = ""
    prefix: str = ""
    share: bool = False
    allow_trace: bool = False


class MappingDestination(msgspec.Struct, kw_only=True):
    """Where a share of the mapped messages goes. `weight` is a percentage, 0 to 100."""

    subject: str
    weight: int = 100
    cluster: str = ""


class MappingOptions(msgspec.Struct, kw_only=True):
    """A subject mapping of an account."""

    source: str
    destinations: list[MappingDestination] = []


class AccountJetStreamOptions(msgspec.Struct, kw_only=True):
    """JetStream limits of an account; -1 is unlimited."""

    max_memory: int = -1
    max_store: int = -1
    max_streams: int = -1
    max_consumers: int = -1
    max_bytes_required: bool = False
    memory_max_stream_bytes: int = -1
    store_max_stream_bytes: int = -1
    max_ack_pending: int = -1
    cluster_traffic: str = "system"
    """"system" or "owner": the account that carries replication traffic."""
    tiers: "dict[str, AccountJetStreamOptions]" = {}
    """Limits by replication tier ("R1", "R3"), instead of the ones above; from a token only."""


class AccountOptions(msgspec.Struct, kw_only=True):
    """One account of the `accounts` block; -1 is unlimited."""

    name: str
    nkey: str = ""
    users: list[UserOptions] = []
    """Each has `account` set to this account's name."""
    jetstream: AccountJetStreamOptions | None = None
    """None: JetStream is off for this account."""
    exports: list[ExportOptions] = []
    imports: list[ImportOptions] = []
    mappings: list[MappingOptions] = []
    default_permissions: PermissionOptions | None = None
    max_connections: int = -1
    max_subscriptions: int = -1
    max_payload: int = -1
    max_leafnodes: int = -1
    trace_destination: str = ""
    trace_sampling: int = 0


class BatchLimitOptions(msgspec.Struct, kw_only=True):
    """Bounds of atomic batch publishing; 0 means the built-in default. `timeout` in seconds."""

    max_inflight_per_stream: int = 0
    max_inflight_total: int = 0
    max_messages: int = 0
    timeout: float = 0.0


class JetStreamLimitOptions(msgspec.Struct, kw_only=True):
    """`jetstream.limits`; 0 means the built-in default. `duplicate_window` in seconds."""

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0
    duplicate_window: float = 0.0
    batch: BatchLimitOptions = msgspec.field(default_factory=BatchLimitOptions)


class TpmOptions(msgspec.Struct, kw_only=True):
    """`jetstream.tpm`: accepted, not acted upon."""

    keys_file: str = ""
    encryption_password: str = ""
    srk_password: str = ""
    pcr: int = 0


class JetStreamOptions(msgspec.Struct, kw_only=True):
    """The `jetstream` block and flags. Sizes: -1 is "choose", 0 disables that tier."""

    enabled: bool = False
    store_dir: str = ""
    """Parent of the `jetstream` directory; empty means a directory of the system's tmp."""
    domain: str = ""
    max_memory_store: int = -1
    max_file_store: int = -1
    sync_interval: float = 120.0
    sync_always: bool = False
    sync_is_set: bool = False
    """Whether the file said anything about syncing; else `headwater.durability` decides."""
    strict: bool = True
    """Refuse unknown fields in API requests."""
    key: str = ""
    previous_key: str = ""
    cipher: str = ""
    """"", "chacha" or "aes"."""
    extension_hint: str = ""
    unique_tag: str = ""
    max_outstanding_catchup: int = 0
    max_buffered_size: int = 0
    max_buffered_messages: int = 0
    request_queue_limit: int = 0
    info_queue_limit: int = 0
    meta_compact: int = 0
    meta_compact_size: int = 0
    meta_compact_sync: bool = False
    max_concurrent_io: int = 0
    limits: JetStreamLimitOptions = msgspec.field(default_factory=JetStreamLimitOptions)
    tpm: TpmOptions | None = None


class WebSocketOptions(msgspec.Struct, kw_only=True):
    """The `websocket` block; off while `port` is 0."""

    host: str = ""
    port: int = 0
    advertise: str = ""
    no_tls: bool = False
    tls: TLSOptions | None = None
    same_origin: bool = False
    allowed_origins: list[str] = []
    compression: bool = False
    handshake_timeout: float = 2.0
    authorization: AuthOptions | None = None
    """Replaces the top-level single user, password and token for WebSocket clients."""
    no_auth_user: str = ""
    jwt_cookie: str = ""
    user_cookie: str = ""
    pass_cookie: str = ""
    token_cookie: str = ""
    headers: dict[str, str] = {}
    ping_interval: float = 0.0
    """0 means the node's `ping_interval`."""


class CompressionOptions(msgspec.Struct, kw_only=True):
    """Link compression: "" (default of the link), "off", "accept", "s2_auto", "s2_fast", …"""

    mode: str = ""
    rtt_thresholds: list[float] = []


class LeafRemoteOptions(msgspec.Struct, kw_only=True):
    """One solicited leaf connection."""

    urls: list[str] = []
    account: str = ""
    """Local account; empty means `$G`."""
    credentials: str = ""
    """Path of a creds file."""
    nkey: str = ""
    """Path of a seed file, or the seed itself."""
    tls: TLSOptions | None = None
    hub: bool = False
    deny_imports: list[str] = []
    deny_exports: list[str] = []
    no_randomize: bool = False
    websocket_compression: bool = False
    websocket_no_masking: bool = False
    jetstream_cluster_migrate: bool = False
    jetstream_cluster_migrate_delay: float = 0.0
    local_isolation: bool = False
    request_isolation: bool = False
    compression: CompressionOptions = msgspec.field(default_factory=CompressionOptions)
    first_info_timeout: float = 1.0
    dial_timeout: float = 0.0
    """0 means the listener block's `dial_timeout`."""
    disabled: bool = False
    proxy_url: str = ""
    proxy_user: str = ""
    proxy_password: str = ""
    proxy_timeout: float = 0.0
    ignore_discovered_servers: bool = False
    hub_pins: list[str] = []
    """Lower-case hex SHA-256 of the public key infos of hubs: one of them has to prove itself by
    TLS, whoever vouches for its certificate and whatever name that has."""
    rate: int = 0
    """Bytes a second that are sent over the link at most; 0 is any number."""
    insecure_discovery: bool = False
    """Log in to whoever answers discovery, without proof of who that is."""


class LeafOptions(msgspec.Struct, kw_only=True):
    """The `leafnodes` block; does not listen while `port` is 0."""

    host: str = ""
    port: int = 0
    advertise: str = ""
    no_advertise: bool = False
    authorization: AuthOptions = msgspec.field(default_factory=AuthOptions)
    tls: TLSOptions | None = None
    remotes: list[LeafRemoteOptions] = []
    reconnect: float = 1.0
    dial_timeout: float = 1.0
    min_version: str = ""
    compression: CompressionOptions = msgspec.field(default_factory=CompressionOptions)
    isolate_interest: bool = False
    rate: int = 0
    """Bytes a second that are sent over each accepted link at most; 0 is any number."""
    write_deadline: float = 0.0
    write_timeout: str = "default"


class ClusterOptions(msgspec.Struct, kw_only=True):
    """The `cluster` block; does not listen while `port` is 0."""

    name: str = ""
    host: str = ""
    port: int = 0
    advertise: str = ""
    no_advertise: bool = False
    authorization: AuthOptions = msgspec.field(default_factory=AuthOptions)
    tls: TLSOptions | None = None
    routes: list[str] = []
    connect_retries: int = 0
    connect_backoff: bool = False
    permissions: PermissionOptions | None = None
    """`publish` holds the import rules, `subscribe` the export rules."""
    pool_size: int = 3
    accounts: list[str] = []
    compression: CompressionOptions = msgspec.field(default_factory=CompressionOptions)
    ping_interval: float = 0.0
    ping_max: int = 0
    write_deadline: float = 0.0
    write_timeout: str = "default"


class RemoteGatewayOptions(msgspec.Struct, kw_only=True):
    """One entry of `gateway.gateways`: accepted, not acted upon."""

    name: str = ""
    urls: list[str] = []
    tls: TLSOptions | None = None


class GatewayOptions(msgspec.Struct, kw_only=True):
    """The `gateway` block: accepted, not acted upon."""

    name: str = ""
    host: str = ""
    port: int = 0
    advertise: str = ""
    authorization: AuthOptions = msgspec.field(default_factory=AuthOptions)
    tls: TLSOptions | None = None
    connect_retries: int = 0
    connect_backoff: bool = False
    gateways: list[RemoteGatewayOptions] = []
    reject_unknown: bool = False
    write_deadline: float = 0.0
    write_timeout: str = "default"


class MqttOptions(msgspec.Struct, kw_only=True):
    """The `mqtt` block: accepted, not acted upon. Durations in seconds."""

    host: str = ""
    port: int = 0
    tls: TLSOptions | None = None
    authorization: AuthOptions | None = None
    no_auth_user: str = ""
    ack_wait: float = 0.0
    api_timeout: float = 0.0
    max_ack_pending: int = 0
    js_domain: str = ""
    stream_replicas: int = 0
    consumer_replicas: int = 0
    consumer_memory_storage: bool = False
    consumer_inactive_threshold: float = 0.0
    reject_qos2_publish: bool = False
    downgrade_qos2_subscribe: bool = False


class ProxyOptions(msgspec.Struct, kw_only=True):
    """The `proxies` block: public keys of proxies that may vouch for connections."""

    trusted: list[str] = []
    """Public NKeys."""


class KeySourceOptions(msgspec.Struct, kw_only=True):
    """Where a key for stored data comes from: one of these."""

    key_file: str = ""
    """A file with mode 0600."""
    key_env: str = ""
    """An environment variable."""
    key_command: str = ""
    """A command that prints it."""


class SealingOptions(KeySourceOptions, kw_only=True):
    """`headwater.sealing`: what `jetstream.key` says, with the key kept out of the file."""

    cipher: str = ""
    """"", "chacha" or "aes"."""
    previous: list[KeySourceOptions] = []
    """Keys that still open what is stored."""


MAX_DELAY_LIMIT = 1.0
"""Longest `commit_max_delay` in seconds; acks wait that long."""


SEGMENT_BYTES_RANGE = (64 << 10, 1 << 30)
"""Of `commit_segment_bytes`, as storage takes it."""

LEAST_SEGMENT_BYTES = 256 << 10
"""Of a commit-log segment whose size nobody sets."""


class HeadwaterOptions(msgspec.Struct, kw_only=True):
    """The `headwater` block: what this system adds to the NATS configuration."""

    durability: str = "fsync"
    """Of file-backed streams that say nothing themselves: "fsync" or "interval"."""
    profile: str = ""
    """"edge" is for gateways with little disk; "" for all others."""
    commit_segment_bytes: int = 0
    """Size of a commit-log segment; 0 means 8 MiB alone, 64 MiB in a cluster and 256 KiB with the
    profile "edge"."""
    commit_max_delay: float = 0.0
    """Seconds, at most 1, that the sync of such a stream's messages, and their acks, may wait for
    company with "fsync"; 0 syncs at once."""
    max_streams: int = 0
    max_consumers: int = 0
    """Of all accounts together; 0 is any number, but 1000 and 5000 with the profile "edge"."""
    disk_budget: int = 0
    """Bytes that the store may take on its device, all that is allocated; 0 is any number."""
    scrub_rate: int = 4 << 20
    """Bytes per second that are read to verify what is stored; 0 verifies nothing."""
    scrub_pause: float = 86400.0
    """Seconds from the end of one such pass to the begin of the next."""
    sealing: SealingOptions | None = None
    discovery: bool = False
    """Announce this node by zeroconf, and look for others."""
    discovery_service: str = "_nats._tcp.local."
    discovery_name: str = ""
    """Instance name; empty means the server name."""
    cluster_label: str = ""
    """Only nodes that carry the same label find one another."""
    fleet_account: str = ""
    """Account of the gateways that this hub enrols; empty enrols none."""
    fleet_signing_key: str = ""
    """File with the seed of the account's scoped signing key for gateways."""


class Options(msgspec.Struct, kw_only=True):
    """Everything that a node can be told."""

    config_file: str = ""
    config_digest: str = ""
    """"sha256:<hex>" of the configuration; empty without a file."""
    defined_at: dict[str, str] = {}
    """Key with the blocks around it (`cluster.tls`) to "file:line:column" where it first stands."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    listens: bool = True
    """Whether clients are listened for; a program that runs a node in itself may need none."""
    client_advertise: str = ""
    server_name: str = ""
    server_tags: list[str] = []
    server_metadata: dict[str, str] = {}
    feature_flags: dict[str, bool] = {}

    http_host: str = ""
    """Empty means `host`."""
    http_port: int = 0
    https_port: int = 0
    http_base_path: str = ""

    debug: bool = False
    trace: bool = False
    trace_verbose: bool = False
    trace_headers: bool = False
    logtime: bool = True
    logtime_utc: bool = False
    log_file: str = ""
    log_size_limit: int = 0
    log_max_files: int = 0
    syslog: bool = False
    remote_syslog: str = ""
    max_traced_message: int = 0
    pid_file: str = ""
    ports_file_dir: str = ""
    profile_port: int = 0
    profile_block_rate: int = 0

    max_payload: int = 1 * MIB
    max_pending: int = 64 * MIB
    max_connections: int = 65536
    """-1 is unlimited."""
    max_control_line: int = 4096
    max_subscriptions: int = 0
    """Per connection; 0 is unlimited."""
    max_subscription_tokens: int = 0
    """0 is unlimited."""
    max_closed_clients: int = 10000
    ping_interval: float = 120.0
    ping_max: int = 2
    write_deadline: float = 10.0
    write_timeout: str = "default"
    """"default", "close" or "retry"."""
    lame_duck_duration: float = 120.0
    lame_duck_grace: float = 10.0
    no_header_support: bool = False
    no_fast_producer_stall: bool = False
    no_sublist_cache: bool = False
    proxy_protocol: bool = False
    connect_error_reports: int = 3600
    reconnect_error_reports: int = 1

    auth: AuthOptions = msgspec.field(default_factory=AuthOptions)
    no_auth_user: str = ""
    system_account: str = ""
    """Empty means `$SYS`, unless `no_system_account`."""
    no_system_account: bool = False
    """False where one is named; see `without_system`."""
    default_sentinel: str = ""
    accounts: dict[str, AccountOptions] = {}
    """By name. `$G` is present only when the file configures it."""
    mappings: list[MappingOptions] = []
    """Subject mappings of the global account."""
    operator: OperatorOptions = msgspec.field(default_factory=OperatorOptions)
    resolver_tls: TLSOptions | None = None
    default_js_domain: dict[str, str] = {}
    proxies: ProxyOptions | None = None

    tls: TLSOptions | None = None
    allow_non_tls: bool = False
    ocsp_mode: str = ""
    """"auto", "always", "must" or "never"; "" is "auto" that nobody has asked for."""
    ocsp_cache: OCSPCacheOptions = msgspec.field(default_factory=OCSPCacheOptions)
    ocsp_urls: list[str] = []
    """Responders that are asked in the place of those that certificates name."""

    jetstream: JetStreamOptions = msgspec.field(default_factory=JetStreamOptions)
    websocket: WebSocketOptions = msgspec.field(default_factory=WebSocketOptions)
    leaf: LeafOptions = msgspec.field(default_factory=LeafOptions)
    cluster: ClusterOptions = msgspec.field(default_factory=ClusterOptions)
    gateway: GatewayOptions = msgspec.field(default_factory=GatewayOptions)
    mqtt: MqttOptions = msgspec.field(default_factory=MqttOptions)
    headwater: HeadwaterOptions = msgspec.field(default_factory=HeadwaterOptions)

    def all_users(self) -> list[UserOptions]:
        """Users of the `authorization` block (account `$G`) and of every account."""
        users = list(self.auth.users)
        for account in self.accounts.values():
            users.extend(account.users)
        return users

    def auth_timeout(self) -> float:
        """Seconds that a connection has for CONNECT; a second more than the TLS handshake."""
        if self.auth.timeout:
            return self.auth.timeout
        return self.tls.timeout + 1.0 if self.tls else DEFAULT_AUTH_TIMEOUT

    def auth_required(self) -> bool:
        """Whether INFO must announce that credentials are needed."""
        return (
            self.auth.is_set()
            or self.operator.enabled()
            or any(account.users for account in self.accounts.values())
        )

    def without_system(self) -> bool:
        """Whether nothing is to answer in a system account. JetStream is a service of it."""
        return self.no_system_account and not self.jetstream.enabled

    def names_system_alone(self) -> bool:
        """Whether a system account is all that is configured of accounts and logins: nats-server
        tells clients then that they have to log in, and lets them in without."""
        own = [name for name in self.accounts if name != GLOBAL_ACCOUNT]
        plain = not (self.auth.is_set() or self.operator.enabled() or self.no_auth_user)
        return plain and bool(own) and own == [self.system_account]

    def account_names(self) -> list[str]:
        """Configured account names, the global account first."""
        return [GLOBAL_ACCOUNT, *(name for name in self.accounts if name != GLOBAL_ACCOUNT)]
