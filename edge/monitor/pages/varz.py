"""/varz: the node itself (NATS monitoring, `Varz`)."""

from typing import Any

from headwater.edge.conf.options import (
    DEFAULT_LEAF_PORT,
    ClusterOptions,
    LeafOptions,
    ProxyOptions,
    TLSOptions,
    WebSocketOptions,
)
from headwater.edge.facts.info import identity_fields
from headwater.edge.facts.moments import nanoseconds, rfc3339, uptime
from headwater.edge.facts.version import VERSION
from headwater.edge.monitor.pages import jsz
from headwater.edge.monitor.pages.links import links
from headwater.edge.ports.processors import cores, processors
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.system_info import feature_flags, shown_system_account
from headwater.security.auth_options import GLOBAL_ACCOUNT

AUTH_TIMEOUT_S = 2.0
"""Time that a link has to authenticate when its block names none."""


def varz(node: NodeView) -> dict[str, Any]:
    """The answer."""
    now_ns = node.kernel.wall_ns()
    options = node.options
    fields: dict[str, Any] = {
        **_identity(node),
        **_limits(node),
        "cluster": _cluster(node),
        "gateway": {},
        "leaf": _leaf(node, options.leaf),
        "mqtt": {},
        "websocket": _websocket(node, options.websocket),
        "jetstream": jetstream_varz(node),
        "tls_timeout": options.tls.timeout if options.tls is not None else 2.0,
        "write_deadline": nanoseconds(options.write_deadline),
    }
    if options.write_timeout != "default":
        fields["write_timeout"] = options.write_timeout
    fields.update(
        start=rfc3339(node.started_ns),
        now=rfc3339(now_ns),
        uptime=uptime(node.uptime_ns() / 1e9),
        mem=node.observations.process.memory(),
        cores=cores(),
        gomaxprocs=processors(),
        cpu=node.observations.process.processor(),
        **counters(node),
        http_req_stats=dict(node.observations.http_requests),
        config_load_time=rfc3339(node.observations.loaded_ns),
        config_digest=options.config_digest,
        **_labels(node),
        slow_consumer_stats=_by_kind(node.sessions.slow_consumers),
        stale_connection_stats=_by_kind(node.sessions.stale),
        disk_io_wait_stats={"waiters": 0, "waits": 0, "wait_time": 0, "max_wait_time": 0},
    )
    return fields


def counters(node: NodeView) -> dict[str, int]:
    """Numbers that change while the node works."""
    kernel, sessions = node.kernel, node.sessions
    leafs, routes = links(node, "leafs"), links(node, "routes")
    far = leafs + routes
    elsewhere = {
        field: sum(link.get(field, 0) for link in far)
        for field in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
    }
    conns = list(sessions.conns.values())
    return {
        "connections": len(conns),
        "total_connections": sessions.total,
        "routes": len(routes),
        "remotes": len({route.get("remote_id") for route in routes}),
        "leafnodes": len(leafs),
        "in_msgs": kernel.in_msgs,
        "in_bytes": kernel.in_bytes,
        "in_client_msgs": max(0, kernel.in_msgs - elsewhere["in_msgs"]),
        "in_client_bytes": max(0, kernel.in_bytes - elsewhere["in_bytes"]),
        "out_msgs": kernel.out_msgs,
        "out_bytes": kernel.out_bytes,
        "out_client_msgs": max(0, kernel.out_msgs - elsewhere["out_msgs"]),
        "out_client_bytes": max(0, kernel.out_bytes - elsewhere["out_bytes"]),
        "slow_consumers": sessions.slow_consumers,
        "stale_connections": sessions.stale,
        "stalled_clients": node.observations.tally.stalls + sum(conn.stalls for conn in conns),
        "subscriptions": subscriptions(node),
    }


def subscriptions(node: NodeView) -> int:
    """Subscriptions of all accounts, the node's own included."""
    return sum(account.trie.size for account in node.accounts.values())


def jetstream_varz(node: NodeView) -> dict[str, Any]:
    """The `jetstream` part; empty without JetStream."""
    if node.jetstream is None:
        return {}
    fields = {
        "config": jsz.node_config(node),
        "stats": jsz.node_stats(node),
        "limits": jsz.node_limits(node),
    }
    view = node.jetstream.cluster_view
    return fields if view is None else {**fields, "meta": view.meta()}


def _identity(node: NodeView) -> dict[str, Any]:
    facts = node.facts
    fields = {**identity_fields(facts), "headwater": VERSION}
    optional = {
        "auth_required": facts.auth_required,
        "tls_required": facts.tls_required,
        "tls_verify": facts.tls_verify,
        "connect_urls": facts.connect_urls,
    }
    fields.update({name: value for name, value in optional.items() if value})
    return fields


def _limits(node: NodeView) -> dict[str, Any]:
    options = node.options
    fields: dict[str, Any] = {"max_connections": options.max_connections}
    if options.max_subscriptions:
        fields["max_subscriptions"] = options.max_subscriptions
    fields.update(
        ping_interval=nanoseconds(options.ping_interval),
        ping_max=options.ping_max,
        http_host=options.http_host or options.host,
        http_port=options.http_port,
        http_base_path=options.http_base_path,
        https_port=options.https_port,
        auth_timeout=options.auth_timeout(),
        max_control_line=options.max_control_line,
        max_payload=options.max_payload,
        max_pending=options.max_pending,
    )
    return fields


def _tls(tls: TLSOptions | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {"tls_required": True, "tls_verify": tls.verify or tls.verify_and_map}


def _set(fields: dict[str, Any]) -> dict[str, Any]:
    """Only the fields that say something."""
    return {name: value for name, value in fields.items() if value}


def _cluster(node: NodeView) -> dict[str, Any]:
    cluster: ClusterOptions = node.options.cluster
    if not cluster.port:
        return _set({"name": cluster.name})
    return _set(
        {
            "name": node.facts.cluster,
            "addr": cluster.host,
            "cluster_port": node.port_of("cluster", cluster.port),
            "auth_timeout": cluster.authorization.timeout or AUTH_TIMEOUT_S,
            "urls": [route.rpartition("@")[2].rpartition("/")[2] for route in cluster.routes],
            "tls_timeout": cluster.tls.timeout if cluster.tls is not None else AUTH_TIMEOUT_S,
            "pool_size": cluster.pool_size,
            **_tls(cluster.tls),
        }
    )


def _leaf(node: NodeView, leaf: LeafOptions) -> dict[str, Any]:
    remotes = [
        _set(
            {
                "local_account": remote.account or GLOBAL_ACCOUNT,
                "tls_timeout": remote.tls.timeout if remote.tls is not None else 0.0,
                "urls": [_address(url) for url in remote.urls],
                "deny": _set({"exports": remote.deny_exports, "imports": remote.deny_imports}),
            }
        )
        for remote in leaf.remotes
    ]
    if not leaf.port:
        return _set({"remotes": remotes})
    return _set(
        {
            "host": leaf.host,
            "port": node.port_of("leafnodes", leaf.port),
            "auth_timeout": leaf.authorization.timeout or AUTH_TIMEOUT_S,
            "tls_timeout": leaf.tls.timeout if leaf.tls is not None else AUTH_TIMEOUT_S,
            "remotes": remotes,
            **_tls(leaf.tls),
        }
    )


def _address(url: str) -> str:
    """Host and port of a remote's URL."""
    address = url.rpartition("://")[2].rpartition("@")[2].partition("/")[0]
    named = address.rpartition("]")[2].rpartition(":")[2].isdigit() and ":" in address
    return address if named else f"{address}:{DEFAULT_LEAF_PORT}"


def _websocket(node: NodeView, websocket: WebSocketOptions) -> dict[str, Any]:
    if not websocket.port:
        return {}
    return _set(
        {
            "host": websocket.host or "0.0.0.0",
            "port": node.port_of("websocket", websocket.port),
            "advertise": websocket.advertise,
            "no_auth_user": websocket.no_auth_user,
            "jwt_cookie": websocket.jwt_cookie,
            "no_tls": websocket.no_tls,
            "tls_map": websocket.tls is not None and websocket.tls.verify_and_map,
            "same_origin": websocket.same_origin,
            "allowed_origins": websocket.allowed_origins,
            "compression": websocket.compression,
        }
    )


def _labels(node: NodeView) -> dict[str, Any]:
    options = node.options
    return _set(
        {
            "tags": options.server_tags,
            "metadata": options.server_metadata,
            "feature_flags": feature_flags(options.feature_flags),
            "trusted_operators_jwt": options.operator.operators,
            "system_account": shown_system_account(node),
            "proxies": _proxies(options.proxies),
        }
    )


def _proxies(proxies: ProxyOptions | None) -> dict[str, Any]:
    return {} if proxies is None else {"trusted": [{"key": key} for key in proxies.trusted]}


def _by_kind(clients: int) -> dict[str, int]:
    return {"clients": clients, "routes": 0, "gateways": 0, "leafs": 0}
