"""Which parts of a configuration a running node takes over by a reload; everything else takes a
restart, and a reload that changes it is refused.

A key that is new in `Options` is refused until it is named here, so that no reload is answered with
success and does nothing.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.edge.conf.options import Options

LIVE = frozenset((
    "config_file", "config_digest", "defined_at", "client_advertise", "server_tags",
    "server_metadata", "debug", "trace", "trace_verbose", "trace_headers", "logtime",
    "logtime_utc", "log_file", "syslog", "remote_syslog", "max_traced_message", "pid_file",
    "ports_file_dir", "profile_block_rate", "max_payload", "max_connections", "max_control_line",
    "ping_interval", "ping_max", "write_deadline", "no_fast_producer_stall",
    "connect_error_reports", "reconnect_error_reports", "auth", "default_sentinel", "accounts",
    "mappings", "operator.preload", "operator.pinned_accounts", "proxies", "tls",
    "jetstream.enabled", "jetstream.max_memory_store", "jetstream.max_file_store",
    "jetstream.limits", "leaf.authorization", "leaf.remotes", "leaf.reconnect",
    "leaf.dial_timeout", "leaf.compression", "leaf.tls", "leaf.write_deadline", "leaf.rate",
    "leaf.write_timeout", "cluster.accounts", "cluster.advertise", "cluster.authorization",
    "cluster.compression", "cluster.connect_backoff", "cluster.connect_retries",
    "cluster.no_advertise", "cluster.permissions", "cluster.ping_interval", "cluster.ping_max",
    "cluster.pool_size", "cluster.routes", "cluster.write_deadline", "cluster.write_timeout",
    "headwater.disk_budget",
))  # fmt: skip
"""Paths in `Options`; what stands below one is live, too. Keys that nats-server does not take over
are refused here, too, but for those of `leafnodes` and limits of the store."""

WITHOUT_EFFECT = frozenset((
    "jetstream.meta_compact", "jetstream.meta_compact_size", "jetstream.meta_compact_sync",
))  # fmt: skip
"""Nothing reads them but pages, which say what the configuration says."""

SPELLED = {"leaf": "leafnodes", "leaf.isolate_interest": "leafnodes.isolate_leafnode_interest"}
"""Paths that have another name in a configuration."""


def needs_restart(old: Options, new: Options) -> list[str]:
    """Names, as in a configuration, of what differs and is not live."""
    return [spelled(path) for path in differing(old, new, "") if not is_live(path)]


def is_live(path: str) -> bool:
    """Whether a path of `Options`, or one above it, is taken over."""
    parts = path.split(".")
    above = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return not above.isdisjoint(LIVE | WITHOUT_EFFECT)


def spelled(path: str) -> str:
    """The name in a configuration."""
    if path in SPELLED:
        return SPELLED[path]
    head, dot, rest = path.partition(".")
    return SPELLED.get(head, head) + dot + rest


def differing(old: Any, new: Any, path: str) -> Iterator[str]:
    """Paths of all fields with another value."""
    for name in old.__struct_fields__:
        here = f"{path}{name}"
        before, after = getattr(old, name), getattr(new, name)
        if isinstance(before, msgspec.Struct) and isinstance(after, msgspec.Struct):
            yield from differing(before, after, f"{here}.")
        elif before != after:
            yield here
