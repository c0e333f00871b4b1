"""What was seen once on a running node, and the tests that fail where it comes back.

Those over the wire run against another build, too: `HEADWATER=/old/headwater make test`.
"""

CONFIG = "edge/jetstream/config/test_guarded_subjects.py"
BOUNDS = "edge/jetstream/model/test_number_bounds.py"
LOGIN = "edge/broker/logins/test_before_login.py"
AUTHORIZE = "edge/broker/authorize/test_authorize.py"
OPERATOR = "edge/broker/logins/test_operator_mode.py"
LIMITS = "edge/broker/logins/test_account_limits.py"
LIVE = "edge/broker/logins/test_live_sessions.py"
CALLOUT = "edge/broker/logins/test_auth_callout.py"
CONF = "edge/conf/test_conf_enforcement.py"
LOGS = "edge/logging/test_logs.py"
ROUTES = "hub/routes/test_routes.py"
HOLD = "edge/jetstream/api/test_loop_hold.py"

SEEN: dict[str, tuple[str, ...]] = {
    "CR LF in republish, transform, source and deliver subjects": (
        f"{CONFIG}::test_no_configuration_holds_control_bytes",
        f"{CONFIG}::test_no_consumer_holds_control_bytes",
    ),
    "CR LF in archives": (
        f"{CONFIG}::test_archives_are_no_way_around",
        "abuse/test_streams.py::test_a36_archives",
    ),
    "`PUB a\\r1 4` splits in a client": (
        "edge/broker/test_client_frames.py::test_a_control_byte_makes_no_frame",
        "federation/leaf/test_leaf_frames.py::test_nonsense_ends_the_link",
    ),
    "limits of 2^63, durations of 2^64 are kept on disk: no start": (
        f"{BOUNDS}::test_streams",
        f"{BOUNDS}::test_the_largest_numbers_live_and_start_again",
        "abuse/test_streams.py::test_a37_extreme_configurations",
    ),
    "in a cluster, thousands of streams asked for at once hold up all other accounts": (
        "hub/api/test_change_queue.py::test_who_asks_for_many_streams_holds_up_nobody",
        "hub/api/test_change_queue.py::test_requests_of_routes_are_done_some_in_a_turn",
    ),
    "8,000 filters, 10,000 subjects, large restores hold the loop": (
        "abuse/test_streams.py::test_a39_filters",
        "abuse/test_streams.py::test_a39_subjects_of_a_stream",
        f"{HOLD}::test_others_are_served_meanwhile",
    ),
    "a pull of 2^63-1 cuts a whole link; negative sequences, year 1": (
        f"{BOUNDS}::test_pull_requests_end_no_connection",
        "abuse/test_streams.py::test_a40_requests_without_measure",
    ),
    "WebSocket compression before a login: CPU, memory": (
        f"{LOGIN}::test_what_inflates_before_a_login_is_bounded",
        "abuse/test_wire.py::test_a17_what_inflates",
    ),
    "closed connections keep buffers; WebSockets before a login cost much": (
        f"{LOGIN}::test_clients_that_leave_in_the_middle_leave_no_buffers",
        f"{LOGIN}::test_a_websocket_that_waits_costs_little",
    ),
    "a domain's alias leads around a deny": (
        f"{AUTHORIZE}::test_a_domain_alias_gives_no_other_rights",
        f"{AUTHORIZE}::test_the_denied_stream_is_still_there",
        "federation/leaf/test_leaf_frames.py::test_an_alias_is_no_way_around_a_deny",
    ),
    "restricted leafs receive `$JS.ACK.>` and `_R_.>`": (
        "federation/leaf/test_leaf_frames.py::test_rules_hold_for_acks_and_answers_that_leave",
        f"{AUTHORIZE}::test_replies_that_only_servers_give",
    ),
    "deliveries, snapshots and answers are requests of the API": (
        f"{CONFIG}::test_push_deliveries_are_no_requests",
        f"{CONFIG}::test_snapshot_chunks_are_no_requests",
        f"{CONFIG}::test_answers_are_no_requests",
    ),
    "a republish deletes streams": (f"{CONFIG}::test_republished_messages_are_no_requests",),
    "a service's reply is an ack": (
        f"{AUTHORIZE}::test_an_imported_service_acknowledges_nothing",
    ),
    "`X-Forwarded-For` from anybody defeats `src`": (f"{OPERATOR}::test_who_forwards_is_the_peer",),
    "bearer tokens in CONNZ": (f"{OPERATOR}::test_bearer_tokens_are_not_shown",),
    "an account's claim `authorization` is ignored": (f"{CALLOUT}::test_by_an_accounts_token",),
    "`strict_signing_key_usage` without keys: no authentication": (
        f"{OPERATOR}::test_strict_operator_without_signing_keys_admits_nobody",
    ),
    "account limits are ignored": (
        f"{LIMITS}::test_connections",
        f"{LIMITS}::test_leafs",
        f"{LIMITS}::test_jetstream_limits_are_enforced",
        f"{LIMITS}::test_tiers_are_enforced",
    ),
    "leafs outlive expiry and revocation": (
        f"{LIMITS}::test_a_leaf_ends_with_its_user",
        f"{LIVE}::test_revocation_by_reload_ends_clients_and_leafs",
    ),
    "the callout is bypassed over the leaf port": (
        f"{CALLOUT}::test_leafs_are_asked_about",
        f"{LIVE}::test_a_leaf_does_not_pass_by_the_callout",
    ),
    "settings and claims are ignored in silence": (
        f"{CONF}::test_every_key_has_a_row_and_every_row_a_key",
        f"{CONF}::test_check_and_start_say_so",
        "security/test_claim_duties.py::test_every_claim_has_a_duty_and_every_duty_a_claim",
        "edge/broker/listeners/test_tls_demands.py::test_pinned_certificates",
        "edge/broker/listeners/test_proxy_protocol.py::test_a_header_names_the_client",
        "edge/ocsp/test_peer_checks.py::test_who_gets_in",
        "hub/routes/test_route_permissions.py::test_routes_carry_what_is_permitted",
    ),
    "newlines in a leaf's JSON forge log lines": (
        f"{LOGS}::test_a_leaf_cannot_make_lines_of_the_log",
    ),
    "floods of log lines; tracebacks for bad input": (
        f"{LOGS}::test_lines_of_one_peer_are_limited",
        f"{LOGS}::test_what_is_no_connect_gets_no_traceback",
        "abuse/test_links_and_pages.py::test_a57_lines_of_the_log",
        "abuse/test_links_and_pages.py::test_a51_requests_of_pages",
    ),
    "without descriptors: 31,000 log lines a second": (
        f"{LOGIN}::test_without_descriptors_a_server_rests_and_comes_back",
    ),
    "2.4 MB of PING before a login": (f"{LOGIN}::test_bytes_before_a_login_are_bounded",),
    "idle sockets that owe a handshake; half-sent page requests": (
        f"{LOGIN}::test_an_idle_socket_that_owes_a_handshake_is_cut",
        f"{LOGIN}::test_half_a_request_to_the_monitoring_port_ends",
    ),
    "a route peer makes accounts by naming them": (
        f"{ROUTES}::test_a_peer_makes_no_accounts_by_naming_them",
        "abuse/test_links_and_pages.py::test_a48_routes_that_lie",
    ),
    "wrong bcrypt passwords stop the node": (
        f"{LOGIN}::test_hashing_passwords_stops_nobody",
        "abuse/test_links_and_pages.py::test_a58_time_that_tells",
    ),
    "an account named `PING` sees all tenants": (
        f"{OPERATOR}::test_an_account_named_ping_sees_itself_only",
    ),
    "store directories are 0755": (
        "deploy/test_file_modes.py::test_stored_data_is_for_the_node_alone",
    ),
    "a discovered address gets the password": (
        "federation/dialling/test_discovery.py::test_only_a_hub_that_proves_itself_is_told_anything",
        "federation/dialling/test_discovery.py::test_discovery_without_proof_is_refused",
    ),
}
"""What was seen: files below tests/ and functions in them."""


def table() -> str:
    """The table in Markdown."""
    rows = ["| seen | tests |\n|---|---|\n"]
    for what, tests in SEEN.items():
        names = "<br>".join(f"`{test}`" for test in tests)
        rows.append(f"| {what} | {names} |\n")
    return "".join(rows)
