"""The numbers that a node sends out by itself (NATS system events, `ServerStats`)."""

from typing import Any

from headwater.edge.facts.moments import rfc3339
from headwater.edge.monitor.pages.links import links
from headwater.edge.monitor.pages.varz import counters, jetstream_varz
from headwater.edge.ports.processors import cores, processors
from headwater.edge.view.node_view import NodeView


def statsz(node: NodeView) -> dict[str, Any]:
    """The body of `$SYS.SERVER.<id>.STATSZ`, without the server's description."""
    numbers = counters(node)
    active = sum(1 for account in node.accounts.values() if account.connections)
    stats: dict[str, Any] = {
        "start": rfc3339(node.started_ns),
        "mem": node.observations.process.memory(),
        "cores": cores(),
        "cpu": node.observations.process.processor(),
        "connections": numbers["connections"],
        "total_connections": numbers["total_connections"],
        "active_accounts": active,
        "subscriptions": numbers["subscriptions"],
        "sent": _data(numbers, "out"),
        "sent_to_clients": _data(numbers, "out_client"),
        "received": _data(numbers, "in"),
        "received_from_clients": _data(numbers, "in_client"),
        "slow_consumers": numbers["slow_consumers"],
    }
    for field in ("stale_connections", "stalled_clients"):
        if numbers[field]:
            stats[field] = numbers[field]
    routes = [_route(route) for route in links(node, "routes")]
    if routes:
        stats["routes"] = routes
    stats["active_servers"] = 1 + numbers["remotes"]
    jetstream = jetstream_varz(node)
    if jetstream:
        jetstream["config"].pop("store_dir")
        meta = jetstream.get("meta")
        if meta is not None and meta["leader"] != node.server_name:
            meta.pop("replicas", None)
        stats["jetstream"] = jetstream
    stats["gomaxprocs"] = processors()
    return stats


def _route(route: dict[str, Any]) -> dict[str, Any]:
    """One route, from its entry in /routez."""
    return {
        "rid": route["rid"],
        "name": route["remote_name"],
        "sent": _data(route, "out"),
        "received": _data(route, "in"),
        "pending": route["pending_size"],
    }


def _data(numbers: dict[str, Any], direction: str) -> dict[str, int]:
    return {"msgs": numbers[f"{direction}_msgs"], "bytes": numbers[f"{direction}_bytes"]}
