"""Who enforces each configuration key, or why it is refused: one row for every key that is read.

A key stands under the name of its section (`reader.Section`); the top level's is "". What has no
row is no option. A setting that would promise something that nobody keeps is an error, at the
check and at the start; one that only tunes what works otherwise here is a warning.
"""

import msgspec

from headwater.edge.conf.lexer import Scalar

UNSUPPORTED = "Headwater does not support"
"""How the sentence of every refused key begins."""

NO_EFFECT = "has no effect"
"""What stands in the warning for a hint."""


class By(msgspec.Struct, frozen=True):
    """Enforced. `module` is where to look, below `headwater`."""

    module: str


class Refused(msgspec.Struct, frozen=True):
    """An error unless it is off; `why` says what to do instead."""

    why: str


class Hint(msgspec.Struct, frozen=True):
    """A warning unless it is off; `why` says what happens instead."""

    why: str


class Inside(msgspec.Struct, frozen=True):
    """Judged with the key of the top level that it stands below."""

    parent: str


Fate = By | Refused | Hint | Inside

_OFF = ("", "off", "false", "disabled", "never", "default")


def fate_of(section: str, key: str) -> Fate | None:
    """The row of a key in lower case; None when there is none."""
    return _FATES.get((section, key))


def rows() -> set[tuple[str, str]]:
    """Every (section, key) that has a row."""
    return set(_FATES)


def is_off(data: "Scalar | list[object] | dict[str, object] | object") -> bool:
    """Whether a value asks for nothing."""
    if isinstance(data, str):
        return data.lower() in _OFF
    return not data


def _rows(section: str, fate: Fate, names: str) -> dict[tuple[str, str], Fate]:
    return {(section, name): fate for name in names.split()}


_MQTT = "listen port host net tls authorization authentication no_auth_user ack_wait ackwait " \
    "js_api_timeout api_timeout max_ack_pending max_pending max_inflight js_domain " \
    "stream_replicas consumer_replicas consumer_memory_storage consumer_inactive_threshold " \
    "consumer_auto_cleanup reject_qos2_publish downgrade_qos2_subscribe"
_GATEWAY = "listen port host net write_deadline write_timeout name authorization tls advertise " \
    "connect_retries connect_backoff gateways reject_unknown reject_unknown_cluster"
_LIST = "listen port host net"
_USERS = "user username pass password proxy_required"
_WRITE = Hint("a receiver that does not read is cut after write_deadline in every case")
_PLAIN_LINKS = Hint("what crosses this link is not compressed")
_PATIENT = Hint("attempts to connect are reported once, and when they succeed")
_RESOLVER = By("security.resolvers.memory")
_NO_BLOCKS = Hint("waits for locks are not recorded; the other profiles are at prof_port")

_FATES: dict[tuple[str, str], Fate] = {
    # --- the top level ---
    **_rows("", By("edge.node.node"), _LIST + " server_name tls allow_non_tls pidfile pid_file "
            "ports_file_dir no_system_account no_system no_sys_acc system_account system"),
    **_rows("", By("hub.routes.routes"), "client_advertise"),
    **_rows("", By("edge.logging.logs"), "debug trace logtime logtime_utc logfile log_file "
            "logfile_size_limit log_size_limit logfile_max_num log_max_num syslog remote_syslog"),
    **_rows("", By("edge.logging.protocol_log"), "trace_headers max_traced_msg_len"),
    **_rows("", Hint("what the node itself publishes is not logged"), "trace_verbose"),
    **_rows("", By("edge.broker.mappings"), "mappings maps"),
    **_rows("", Hint("matches are always cached, within a bound"),
            "disable_sublist_cache no_sublist_cache"),
    **_rows("", By("edge.conf.account_section"), "accounts"),
    **_rows("", By("security.authenticator"), "authorization default_sentinel no_auth_user "
            "operator operators roots root root_operators root_operator trusted trusted_keys "
            "resolver_pinned_accounts"),
    **_rows("", _RESOLVER, "resolver account_resolver accounts_resolver resolver_preload"),
    **_rows("", By("edge.system.account_lookups"), "resolver_tls"),
    **_rows("", By("edge.monitor.service"), "http https http_port monitor_port https_port "
            "http_base_path"),
    **_rows("", By("edge.monitor.pages.varz"), "feature_flags server_metadata"),
    **_rows("", By("hub.meta.placement"), "server_tags"),
    **_rows("", By("hub.routes.service"), "cluster"),
    **_rows("", Refused("gateways; join clusters by leafnodes instead"), "gateway"),
    **_rows("", By("federation.service"), "leaf leafnodes"),
    **_rows("", By("edge.jetstream.node.node"), "store_dir storedir jetstream"),
    **_rows("", By("edge.monitor.profile_service"), "prof_port"),
    **_rows("", _NO_BLOCKS, "prof_block_rate"),
    **_rows("", By("edge.broker.client"), "max_control_line max_payload max_subscriptions "
            "max_subs"),
    **_rows("", By("edge.broker.output"), "max_pending"),
    **_rows("", By("edge.broker.logins.sessions"), "max_connections max_conn max_sub_tokens "
            "max_subscription_tokens ping_interval ping_max write_deadline max_closed_clients "
            "no_header_support"),
    **_rows("", _WRITE, "write_timeout"),
    **_rows("", By("edge.broker.listeners.proxy_protocol"), "proxy_protocol"),
    **_rows("", By("edge.ocsp.staples"), "ocsp"),
    **_rows("", By("edge.ocsp.peer_checks"), "ocsp_cache"),
    **_rows("", By("edge.node.lame_duck"), "lame_duck_duration lame_duck_grace_period"),
    **_rows("", _PATIENT, "connect_error_reports reconnect_error_reports"),
    **_rows("", By("edge.websocket.websocket_listener"), "websocket ws"),
    **_rows("", Refused("MQTT; connect such devices through a bridge that speaks NATS"), "mqtt"),
    **_rows("", By("federation.leaf.domains"), "default_js_domain"),
    **_rows("", Hint("fast producers wait for slow receivers, within a bound"),
            "no_fast_producer_stall"),
    **_rows("", By("security.authenticator"), "proxies"),
    **_rows("", By("edge.jetstream.node.node"), "headwater"),
    # --- tls, wherever it stands ---
    **_rows("tls", By("security.tls.contexts"), "cert_file key_file ca_file insecure verify "
            "cipher_suites curve_preferences certs certificates min_version"),
    **_rows("tls", By("security.authenticator"), "verify_and_map"),
    **_rows("tls", By("edge.conf.tls_section"), "allow_insecure_cipher_suites"),
    **_rows("tls", By("federation.leaf.leaf_remote"), "server_name"),
    **_rows("tls", By("edge.node.node"), "timeout handshake_first first immediate"),
    **_rows("tls", Refused("a check of peers against known URLs; use pinned_certs"),
            "verify_cert_and_check_known_urls"),
    **_rows("tls", By("edge.broker.listeners.tls_filter"), "connection_rate_limit pinned_certs"),
    **_rows("tls", Refused("the certificate store of Windows; name files"),
            "cert_store cert_match_by cert_match ca_certs_match cert_match_skip_invalid"),
    **_rows("tls", By("edge.ocsp.peer_checks"), "ocsp_peer"),
    **_rows("tls.ocsp_peer", By("edge.ocsp.peer_checks"), "verify ca_timeout allowed_clockskew "
            "warn_only unknown_is_good allow_when_ca_unreachable "
            "cache_ttl_when_next_update_unset"),
    **_rows("tls.certs", By("security.tls.contexts"), "cert_file key_file"),
    **_rows("ocsp", By("edge.ocsp.staples"), "mode url urls"),
    **_rows("ocsp_cache", By("edge.ocsp.peer_checks"), "type local_store preserve_revoked"),
    **_rows("ocsp_cache", Hint("answers are written at once"), "save_interval"),
    **_rows("proxies", By("security.authenticator"), "trusted"),
    **_rows("proxies.trusted", By("security.authenticator"), "key public_key"),
    # --- who may do what ---
    **_rows("authorization", By("security.authenticator"), _USERS + " token users "
            "default_permission default_permissions permissions auth_callout auth_hook"),
    **_rows("authorization", By("edge.broker.logins.sessions"), "timeout"),
    **_rows("listener.authorization", By("security.authenticator"),
            "user username pass password token"),
    **_rows("listener.authorization", Hint("the node's authorization.timeout holds for all"),
            "timeout"),
    **_rows("leafnodes.authorization", By("security.authenticator"),
            _USERS + " nkey users account"),
    **_rows("leafnodes.authorization", By("federation.leaf.leaf_listener"), "timeout"),
    **_rows("leafnodes.authorization.users", By("security.authenticator"), _USERS + " account"),
    **_rows("users", By("security.authenticator"), _USERS + " nkey permission permissions "
            "authorization allowed_connection_types connection_types clients"),
    **_rows("auth_callout", By("security.authenticator"), "issuer account acc auth_users users "
            "xkey key allowed_accounts"),
    **_rows("permissions", By("edge.broker.authorize"), "pub publish import sub subscribe export "
            "publish_allow_responses allow_responses"),
    **_rows("allow_responses", By("edge.broker.rights.grants"), "max max_msgs max_messages "
            "max_responses expires expiration ttl"),
    **_rows("resolver", _RESOLVER, "type"),
    **_rows("resolver", By("security.resolvers.directory"), "dir limit allow_delete hard_delete"),
    **_rows("resolver", By("edge.system.system_claims"), "interval"),
    **_rows("resolver", By("security.resolvers.lookup"), "ttl"),
    **_rows("resolver", By("edge.system.account_lookups"), "timeout"),
    # --- accounts ---
    **_rows("accounts", By("edge.broker.imports.imports_plan"), "imports exports"),
    **_rows("accounts", By("edge.broker.mappings"), "mappings maps"),
    **_rows("accounts", By("edge.jetstream.account.account_js"), "jetstream"),
    **_rows("accounts", By("security.authenticator"), "nkey users default_permissions"),
    **_rows("accounts", By("edge.broker.logins.sessions"), "limits"),
    **_rows("accounts", By("edge.broker.logins.sessions"), "msg_trace trace_dest"),
    **_rows("accounts.trace", By("edge.broker.logins.sessions"), "dest sampling"),
    **_rows("accounts.limits", By("edge.broker.logins.sessions"), "max_connections max_conn "
            "max_subscriptions max_subs max_payload max_pay"),
    **_rows("accounts.limits", By("federation.leaf.leaf_links"), "max_leafnodes max_leafs"),
    **_rows("accounts.jetstream", By("edge.jetstream.account.account_js"),
        "max_memory max_mem mem memory "
            "max_store max_file max_disk store disk max_streams streams max_consumers consumers "
            "max_bytes_required max_stream_bytes max_bytes mem_max_stream_bytes "
            "memory_max_stream_bytes disk_max_stream_bytes store_max_stream_bytes"),
    **_rows("accounts.jetstream", By("edge.jetstream.config.consumer_config"), "max_ack_pending"),
    **_rows("accounts.jetstream", Hint("what replicas say to each other is in no account"),
            "cluster_traffic"),
    **_rows("mappings", By("edge.broker.mappings"), "dest destination weight cluster"),
    **_rows("exports", By("edge.broker.imports.imports_plan"),
        "stream service response response_type "
            "threshold response_threshold response_max_time response_time accounts "
            "account_token_position"),
    **_rows("exports", By("edge.broker.imports.service_latency"), "latency"),
    **_rows("latency", By("edge.broker.imports.service_latency"), "sampling subject"),
    **_rows("exports", By("edge.broker.imports.service_import"), "allow_trace"),
    **_rows("imports", By("edge.broker.imports.imports_plan"), "stream service prefix to share"),
    **_rows("imports", By("edge.broker.imports.stream_imports"), "allow_trace"),
    **_rows("shares.source", By("edge.broker.imports.imports_plan"), "account subject"),
    # --- listeners of clients ---
    **_rows("websocket", By("edge.websocket.websocket_listener"),
        _LIST + " tls authorization "
            "authentication no_auth_user advertise no_tls same_origin allowed_origins "
            "allowed_origin allow_origins allow_origin origins origin handshake_timeout compress "
            "compression jwt_cookie user_cookie pass_cookie token_cookie headers"),
    **_rows("websocket", Hint("the node's ping_interval holds for all"), "ping_interval"),
    **_rows("mqtt", Inside("mqtt"), _MQTT),
    # --- links ---
    **_rows("cluster", By("hub.routes.service"), _LIST + " tls"),
    **_rows("cluster", By("hub.routes.routes"), "write_deadline name authorization routes "
            "cluster_advertise advertise no_advertise ping_interval ping_max"),
    **_rows("cluster", By("hub.routes.dialer"), "connect_retries connect_backoff"),
    **_rows("cluster", _WRITE, "write_timeout"),
    **_rows("cluster", By("hub.routes.route_conn"), "permissions"),
    **_rows("cluster", By("hub.routes.peer_routes"), "pool_size accounts"),
    **_rows("cluster", By("federation.leaf.compression"), "compression"),
    **_rows("gateway", Inside("gateway"), _GATEWAY),
    **_rows("gateway.gateways", Inside("gateway"), "name tls url urls"),
    **_rows("leafnodes", By("federation.leaf.leaf_listener"), _LIST + " authorization tls "
            "leafnode_advertise advertise min_version minimum_version isolate_leafnode_interest "
            "isolate"),
    **_rows("leafnodes", By("federation.leaf.leaf_links"), "write_deadline rate"),
    **_rows("leafnodes", By("federation.leaf.leaf_remote"), "remotes reconnect reconnect_delay "
            "reconnect_interval dial_timeout"),
    **_rows("leafnodes", _WRITE, "write_timeout"),
    **_rows("leafnodes", Hint("spokes are told one address, that by which they came"),
            "no_advertise"),
    **_rows("leafnodes", By("federation.leaf.compression"), "compression"),
    **_rows("compression", By("federation.leaf.compression"), "mode rtt_thresholds thresholds "
            "rtts rtt"),
    **_rows("remotes", By("federation.leaf.leaf_remote"), "no_randomize dont_randomize url urls "
            "account local creds credentials nkey seed tls hub deny_imports deny_import "
            "deny_exports deny_export isolate_leafnode_interest isolate request_isolation "
            "first_info_timeout dial_timeout proxy ignore_discovered_servers hub_pins "
            "insecure_discovery rate"),
    **_rows("remotes", By("federation.service"), "disabled"),
    **_rows("remotes", _PLAIN_LINKS, "ws_compress ws_compression websocket_compress "
            "websocket_compression"),
    **_rows("remotes", By("federation.leaf.compression"), "compression"),
    **_rows("remotes", Hint("frames to the hub are masked"),
            "ws_no_masking websocket_no_masking"),
    **_rows("remotes", Hint("leaders stay where they are when this link is lost"),
            "jetstream_cluster_migrate js_cluster_migrate"),
    **_rows("remotes.migrate", Inside("jetstream_cluster_migrate"), "leader_migrate_delay"),
    **_rows("remotes.proxy", By("federation.leaf.leaf_remote"), "url username password timeout"),
    # --- jetstream ---
    **_rows("jetstream", By("edge.jetstream.node.node"), "strict store store_dir storedir sync "
            "sync_interval max_memory_store max_mem_store max_mem max_file_store max_file domain "
            "enable enabled limits"),
    **_rows("jetstream", By("edge.jetstream.config.sealing_keys"), "key ek encryption_key prev_key "
            "prev_ek prev_encryption_key cipher"),
    **_rows("jetstream", By("hub.meta.placement"), "unique_tag"),
    **_rows("jetstream", By("edge.jetstream.api.api"), "request_queue_limit"),
    **_rows("jetstream", Hint("groups of streams bound themselves; there is one queue of requests"),
            "extension_hint max_outstanding_catchup max_buffered_size "
            "max_buffered_msgs info_queue_limit meta_compact "
            "meta_compact_size meta_compact_sync max_concurrent_io"),
    **_rows("jetstream", Refused("keys in a TPM; name a file, a variable or a command in "
                                 "headwater.sealing"), "tpm"),
    **_rows("jetstream.tpm", Inside("jetstream tpm"),
            "keys_file encryption_password srk_password pcr cipher"),
    **_rows("jetstream.limits", By("edge.jetstream.config.stream_config"), "duplicate_window"),
    **_rows("jetstream.limits", By("edge.jetstream.config.consumer_config"),
            "max_ack_pending max_request_batch"),
    **_rows("jetstream.limits", By("edge.jetstream.consumer.consumers"), "default_max_consumers"),
    **_rows("jetstream.limits", By("edge.jetstream.publish.batch"), "batch"),
    **_rows("jetstream.limits", Hint("replicated streams of a node have no such bound"),
            "max_ha_assets"),
    **_rows("jetstream.limits.batch", By("edge.jetstream.publish.batch"),
            "max_inflight_per_stream max_inflight_total max_msgs timeout"),
    # --- headwater's own ---
    **_rows("headwater", By("edge.jetstream.node.node"), "durability profile "
            "commit_segment_bytes commit_max_delay scrub disk_budget"),
    **_rows("headwater", By("edge.jetstream.account.holdings"), "max_streams max_consumers"),
    **_rows("headwater", By("edge.jetstream.config.sealing_keys"), "sealing"),
    **_rows("headwater", By("federation.service"), "discovery"),
    **_rows("headwater.discovery", By("federation.service"), "enabled service name cluster"),
    **_rows("headwater", By("deploy.compose"), "fleet"),
    **_rows("headwater.fleet", By("hub.enrolment.service"), "account signing_key"),
    **_rows("headwater.scrub", By("edge.jetstream.node.node"), "rate pause"),
    **_rows("headwater.sealing", By("edge.jetstream.config.sealing_keys"),
            "key_file key_env key_command cipher previous"),
    **_rows("headwater.sealing.previous", By("edge.jetstream.config.sealing_keys"),
            "key_file key_env key_command"),
}
