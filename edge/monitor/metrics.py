"""/metrics: the Prometheus text format, under the names of the NATS exporter.

Numbers live as plain integers where they are counted, and are only rendered here.
"""

import math
import platform
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headwater.edge.facts.version import NATS_LEVEL, VERSION
from headwater.edge.monitor.pages import jsz
from headwater.edge.monitor.pages.links import links
from headwater.edge.monitor.pages.varz import varz
from headwater.edge.monitor.steps import Steps, at_once

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_COUNTED = frozenset(
    ("in_msgs", "in_bytes", "out_msgs", "out_bytes", "slow_consumers", "total_connections",
     "stale_connections", "stalled_clients", "jetstream_stats_api_total",
     "jetstream_stats_api_errors")
)  # fmt: skip
_VARZ = (
    "connections", "total_connections", "cpu", "mem", "cores", "routes", "remotes", "leafnodes",
    "in_msgs", "in_bytes", "out_msgs", "out_bytes", "slow_consumers", "stale_connections",
    "stalled_clients", "subscriptions", "max_connections", "max_payload", "max_pending",
    "max_control_line", "ping_interval", "ping_max", "auth_timeout", "write_deadline", "proto",
)  # fmt: skip
_ORIGIN_LABELS = ("account", "stream", "kind", "origin")
_ORIGIN_STATES = (
    "live", "catching_up", "stalled", "denied", "no_such_stream", "recreated", "offline",
)  # fmt: skip
# What nobody can tell is NaN, which no alarm takes for 0.
_ORIGIN_NUMBERS = (
    "pending_messages", "pending_bytes", "oldest_pending_seconds", "catchup_rate", "eta_seconds",
    "left_out",
)  # fmt: skip
_STORAGE = ("max_memory", "max_storage")
_USE = ("memory", "storage", "reserved_memory", "reserved_storage", "accounts", "ha_assets")

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Labels = dict[str, str]


class Page:
    """A page of metrics; samples of one name are kept together, as the format wants."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, value: float, labels: Labels, *, kind: str = "gauge") -> None:
        """One sample."""
        lines = self._lines.setdefault(name, [f"# TYPE {name} {kind}"])
        shown = ",".join(f'{k}="{v.translate(_ESCAPES)}"' for k, v in labels.items())
        lines.append(f"{name}{{{shown}}} {'NaN' if math.isnan(value) else value}")

    def text(self) -> str:
        """The whole page."""
        return "\n".join(line for lines in self._lines.values() for line in lines) + "\n"


def metrics(node: "NodeView") -> str:
    """Everything there is to measure on a node."""
    return at_once(metrics_steps(node))


def metrics_steps(node: "NodeView") -> Steps[str]:
    """The same in steps."""
    page = Page()
    build = {
        "version": VERSION,
        "nats_level": NATS_LEVEL,
        "python": platform.python_version(),
        "loop": type(node.loop).__module__.partition(".")[0],
        "accel": "compiled",
    }
    page.add("headwater_build_info", 1, build)
    _add_varz(page, node)
    if node.jetstream is not None:
        yield from _add_jetstream(page, node)
    if node.jetstream is not None and node.jetstream.cluster_view is not None:
        yield from _add_cluster(page, node)
    _add_links(page, node)
    return page.text()


def _add_cluster(page: Page, node: "NodeView") -> Steps[None]:
    """The Raft groups of a node: the meta group, and one for each replicated stream."""
    server = {"server_id": node.server_name}
    groups = node.jetstream.cluster_view.numbers()
    page.add("headwater_raft_groups", len(groups), server)
    for name, value in node.jetstream.cluster_view.totals().items():
        page.add(f"headwater_raft_{name}", value, server)
    for names, samples in groups:
        for name, value in samples.items():
            page.add(f"headwater_raft_{name}", value, {**server, **names})
        yield


def _add_links(page: Page, node: "NodeView") -> None:
    """Leaf links, the remotes that are dialled, and how far mirrors and sources have come."""
    server = {"server_id": node.server_name}
    leafs = links(node, "leafs")
    page.add("gnatsd_leafz_conn_nodes_total", len(leafs), server)
    for leaf in leafs:
        labels = {**server, "account": leaf["account"], "name": leaf["name"]}
        for field in ("in_msgs", "out_msgs", "in_bytes", "out_bytes"):
            page.add(f"gnatsd_leafz_conn_{field}", leaf[field], labels, kind="counter")
        pending = leaf.get("headwater", {}).get("pending_bytes", 0)
        page.add("headwater_leaf_pending_bytes", pending, labels)
        kept = leaf.get("headwater", {}).get("interest", {})
        page.add("headwater_leaf_wide_subjects", len(kept.get("wide", [])), labels)
        page.add("headwater_leaf_refused_subjects", kept.get("refused", 0), labels)
    for remote in links(node, "remotes"):
        labels = {**server, "account": remote["account"], "url": remote["url"]}
        page.add("headwater_leaf_remote_up", int(remote["state"] == "up"), labels)
    for driver in links(node, "origins"):
        labels = {**server, **{name: driver[name] for name in _ORIGIN_LABELS}}
        for state in _ORIGIN_STATES:
            now = {**labels, "state": state}
            page.add("headwater_link_state", int(driver["state"] == state), now)
        for name in _ORIGIN_NUMBERS:
            value = driver[name]
            page.add(f"headwater_link_{name}", math.nan if value is None else value, labels)
        page.add("headwater_link_stalled", int(driver["stalled"]), labels)


def _add_varz(page: Page, node: "NodeView") -> None:
    labels = {"server_id": node.server_name}
    fields = varz(node)
    jetstream = fields["jetstream"]
    samples = {name: fields[name] for name in _VARZ}
    if jetstream:
        samples.update({f"jetstream_config_{n}": jetstream["config"][n] for n in _STORAGE})
        samples.update({f"jetstream_stats_{n}": jetstream["stats"][n] for n in _USE})
        api = jetstream["stats"]["api"]
        samples["jetstream_stats_api_total"] = api["total"]
        samples["jetstream_stats_api_errors"] = api["errors"]
    for name, value in samples.items():
        kind = "counter" if name in _COUNTED else "gauge"
        page.add(f"gnatsd_varz_{name}", value, labels, kind=kind)
    disabled = {"server_id": node.server_name, "server_name": node.server_name}
    page.add("jetstream_server_jetstream_disabled", int(not jetstream), disabled)


def _add_jetstream(page: Page, node: "NodeView") -> Steps[None]:
    options = jsz.JszOptions(
        accounts=True, streams=True, consumer=True, config=True, limit=-1, stream_leader_only=True
    )
    answer = yield from jsz.jsz_steps(node, options)
    if "config" not in answer:
        return
    labels = {
        "server_id": node.server_id,
        "server_name": node.server_name,
        "cluster": node.facts.cluster,
        "domain": node.options.jetstream.domain,
    }
    server = {
        "total_streams": answer["streams"],
        "total_consumers": answer["consumers"],
        "total_messages": answer["messages"],
        "total_message_bytes": answer["bytes"],
        "max_memory": answer["config"]["max_memory"],
        "max_storage": answer["config"]["max_storage"],
    }
    _add_all(page, "jetstream_server", server, labels)
    for account in answer.get("account_details", []):
        yield from _add_account(page, node, account, labels)
    storage = node.jetstream.storage if node.jetstream is not None else None
    if storage is not None:
        for name, value in storage.numbers().items():
            page.add(f"headwater_storage_{name}", value, {"server_id": node.server_name})
        for kind, count in storage.problem_counts().items():
            labels = {"server_id": node.server_name, "kind": kind}
            page.add("headwater_storage_problems_by_kind", count, labels)


def _add_all(page: Page, prefix: str, samples: dict[str, float], labels: Labels) -> None:
    for name, value in samples.items():
        page.add(f"{prefix}_{name}", value, labels)


def _add_account(
    page: Page, node: "NodeView", account: dict[str, Any], server: Labels
) -> Steps[None]:
    labels = {**server, "account": account["name"], "account_id": account["id"]}
    js = jsz.enabled(node, account["id"])
    if js is None:
        return
    limits = js.tiers.flat
    samples = {
        "max_memory": limits.max_memory,
        "max_storage": limits.max_storage,
        "memory_used": account["memory"],
        "storage_used": account["storage"],
    }
    _add_all(page, "jetstream_account", samples, labels)
    for stream in account.get("stream_detail", []):
        _add_stream(page, node, stream, labels)
        yield


def _add_stream(page: Page, node: "NodeView", stream: dict[str, Any], account: Labels) -> None:
    labels = {
        **account,
        "stream_name": stream["name"],
        "stream_leader": node.server_name,
        "is_stream_leader": "true",
    }
    state, config = stream["state"], stream["config"]
    samples = {
        "total_messages": state["messages"],
        "total_bytes": state["bytes"],
        "first_seq": state["first_seq"],
        "last_seq": state["last_seq"],
        "consumer_count": state["consumer_count"],
        "subject_count": state.get("num_subjects", 0),
        "limit_messages": config["max_msgs"],
        "limit_bytes": config["max_bytes"],
    }
    _add_all(page, "jetstream_stream", samples, labels)
    allocated = jsz.allocated_bytes(node, account["account"], stream["name"])
    if allocated is not None:
        page.add("headwater_stream_allocated_bytes", allocated, labels)
    if state.get("lost"):
        page.add("headwater_stream_lost_messages", len(state["lost"]["msgs"]), labels)
    origins = [("mirror", stream["mirror"])] if stream.get("mirror") else []
    origins += [("source", source) for source in stream.get("sources", [])]
    for kind, source in origins:
        origin = {**labels, f"{kind}_name": source["name"]}
        lag = {f"{kind}_lag": source["lag"], f"{kind}_active_duration_ns": source["active"]}
        _add_all(page, "jetstream_stream", lag, origin)
    for consumer in stream.get("consumer_detail", []):
        _add_consumer(page, consumer, labels)


def _add_consumer(page: Page, consumer: dict[str, Any], stream: Labels) -> None:
    labels = {
        **stream,
        "consumer_name": consumer["name"],
        "consumer_leader": stream["stream_leader"],
        "is_consumer_leader": "true",
        "consumer_desc": consumer.get("config", {}).get("description", ""),
    }
    samples = {
        "delivered_consumer_seq": consumer["delivered"]["consumer_seq"],
        "delivered_stream_seq": consumer["delivered"]["stream_seq"],
        "ack_floor_consumer_seq": consumer["ack_floor"]["consumer_seq"],
        "ack_floor_stream_seq": consumer["ack_floor"]["stream_seq"],
        **{name: consumer[name] for name in _numbers(consumer)},
    }
    _add_all(page, "jetstream_consumer", samples, labels)


def _numbers(consumer: dict[str, Any]) -> Iterable[str]:
    names = ("num_ack_pending", "num_redelivered", "num_waiting", "num_pending")
    return (name for name in names if name in consumer)
