"""Putting a new configuration into force without a restart (SIGHUP, `$SYS.REQ.SERVER.*.RELOAD`).

What can change: users, permissions, account limits, connection limits and timeouts, the TLS
certificate, log settings, the store's limits and disk budget, remotes of leaf links, routes of a
cluster, whether JetStream runs. Whatever a running node cannot change is refused, and then nothing
has changed.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.logins.registry import Session
from headwater.edge.conf.options import Options
from headwater.edge.conf.problems import ConfigError
from headwater.edge.logging import logs
from headwater.edge.node.reloadable import needs_restart

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.node")


@dataclass(frozen=True, repr=False)
class _Secret:
    """Compared, but not shown."""

    value: Any

    def __repr__(self) -> str:
        return "(not shown)"


_FIXED: dict[str, Callable[[Options], Any]] = {
    "host": lambda options: options.host,
    "port": lambda options: options.port,
    "server_name": lambda options: options.server_name,
    "http_port": lambda options: options.http_port,
    "https_port": lambda options: options.https_port,
    "http_base_path": lambda options: options.http_base_path,
    "system_account": lambda options: options.system_account,
    # Who leads and where streams are is a cluster's, which knows its nodes with JetStream.
    "jetstream": lambda options: bool(options.cluster.port and options.jetstream.enabled),
    "jetstream.store_dir": lambda options: options.jetstream.store_dir,
    "jetstream.domain": lambda options: options.jetstream.domain,
    "jetstream.key": lambda options: _Secret(
        (options.jetstream.key, options.jetstream.previous_key, options.jetstream.cipher)
    ),
    "websocket": lambda options: options.websocket,
    "cluster.name": lambda options: options.cluster.name,
    "cluster.port": lambda options: options.cluster.port,
    "cluster.tls": lambda options: options.cluster.tls,
    "proxy_protocol": lambda options: options.proxy_protocol,
    "ocsp": lambda options: (options.ocsp_mode, options.ocsp_urls),
    "tls.ocsp_peer": lambda options: options.tls is not None and bool(options.tls.ocsp_peer),
    "leafnodes.tls": lambda options: (
        options.leaf.tls is not None and ("TLS", bool(options.leaf.tls.ocsp_peer))
    ),
    "leafnodes.port": lambda options: options.leaf.port,
    "operator": lambda options: (options.operator.operators, options.operator.trusted_keys),
    "resolver": lambda options: options.operator.resolver,
    "authorization.auth_callout": lambda options: options.auth.callout is not None,
    "headwater.sealing": lambda options: options.headwater.sealing,
    "headwater": lambda options: msgspec.structs.replace(
        options.headwater, disk_budget=0, sealing=None
    ),
}
"""What a running node cannot change, and a refusal shows; `reloadable` knows of everything else."""

_REPORTED: dict[str, Callable[[Options], Any]] = {
    "debug": lambda options: options.debug,
    "trace": lambda options: options.trace,
    "logtime": lambda options: options.logtime,
    "log_file": lambda options: options.log_file,
    "authorization": lambda options: options.auth,
    "accounts": lambda options: options.accounts,
    "cluster.routes": lambda options: _Secret(options.cluster.routes),
    "cluster.permissions": lambda options: options.cluster.permissions,
    "cluster.accounts": lambda options: options.cluster.accounts,
    "cluster.authorization": lambda options: _Secret(options.cluster.authorization),
    "tls": lambda options: options.tls,
    "pid_file": lambda options: options.pid_file,
    "ports_file_dir": lambda options: options.ports_file_dir,
    "jetstream.max_memory_store": lambda options: options.jetstream.max_memory_store,
    "jetstream.max_file_store": lambda options: options.jetstream.max_file_store,
    "max_connections": lambda options: options.max_connections,
    "max_payload": lambda options: options.max_payload,
    "max_control_line": lambda options: options.max_control_line,
    "ping_interval": lambda options: options.ping_interval,
    "ping_max": lambda options: options.ping_max,
    "write_deadline": lambda options: options.write_deadline,
    "headwater.disk_budget": lambda options: options.headwater.disk_budget,
}
"""Changes that are reported in the log."""


def reload_node(node: "NodeView", options: Options) -> None:
    """Make `options` those of a running node. Raises ConfigError; then nothing has changed."""
    from headwater.edge.broker.listeners.tls_context import listener_contexts
    from headwater.edge.conf.auth_config import auth_config
    from headwater.security.authenticator import Authenticator
    from headwater.security.errors import SecurityError

    old = node.options
    problems = _unsupported(old, _judged(node, options))
    if problems:
        raise ConfigError(problems)
    try:
        authenticator = Authenticator(auth_config(options), node.kernel.wall_ns)
        authenticator.resolver.inherit(node.authenticator.resolver)
        contexts = listener_contexts(options)
    except SecurityError as error:
        raise ConfigError([str(error)]) from error
    _apply_log_settings(old, options)
    try:
        _apply_disk_budget(node, options)
    except ConfigError:
        _apply_log_settings(options, old)
        raise
    node.options = node.sessions.options = options
    node.authenticator = node.sessions.authenticator = authenticator
    node.use_tls(contexts)
    node.replace_files(old)
    if node.jetstream is not None and options.jetstream.enabled:
        node.jetstream.resize(options.jetstream)
    _trace_anew(node)
    _apply_facts(node)
    node.jetstream_switch.follow()
    node.apply_account_limits()
    _apply_limits(node)
    _judge_sessions(node, old)
    for action in node.reload_hooks:
        action()
    node.observations.loaded_ns = node.kernel.wall_ns()
    for name, read in _REPORTED.items():
        if read(old) != read(options):
            log.info("Reloaded: %s", name)
    digest = f" ({options.config_digest})" if options.config_digest else ""
    log.info("Reloaded server configuration%s", digest)
    node.kernel.kick()


def _judged(node: "NodeView", options: Options) -> Options:
    """The options without what may change while JetStream is off, now or from now on."""
    wanted = options.jetstream
    if node.jetstream is not None and wanted.enabled:
        return options
    same_place = msgspec.structs.replace(wanted, store_dir=node.options.jetstream.store_dir)
    return msgspec.structs.replace(options, jetstream=same_place)


def _unsupported(old: Options, new: Options) -> list[str]:
    """What a running node cannot change, in sentences."""
    shown = tuple(name for name, read in _FIXED.items() if read(old) != read(new))
    problems = [
        f"config reload not supported for {name}: old={_FIXED[name](old)!r}, "
        f"new={_FIXED[name](new)!r}"
        for name in shown
    ]
    return problems + [
        f"config reload not supported for {name}: start the node again"
        for name in needs_restart(old, new)
        if not any(name == one or name.startswith(f"{one}.") for one in shown)
    ]


def _apply_disk_budget(node: "NodeView", options: Options) -> None:
    """Raises ConfigError when it is too small; then nothing has changed."""
    from headwater.edge.jetstream.node.node import disk_budget
    from headwater.edge.storage.format.errors import StoreError

    storage = node.jetstream.storage if node.jetstream is not None else None
    if storage is None or not options.jetstream.enabled:
        return
    try:
        storage.disk.set(disk_budget(options))
    except StoreError as error:
        raise ConfigError([str(error)]) from error


def _apply_log_settings(old: Options, new: Options) -> None:
    """Raises ConfigError when the new log cannot be opened; then the old one goes on."""
    if logs.settings_of(old) == logs.settings_of(new):
        return
    try:
        logs.configure(logs.settings_of(new))
    except (OSError, ValueError) as error:
        raise ConfigError([f"cannot open the log: {error}"]) from error


def _trace_anew(node: "NodeView") -> None:
    """Have every connection heed whether the protocol is logged."""
    registry = node.sessions.registry
    for conn in [*node.sessions.conns.values(), *(session.conn for session in registry.all())]:
        conn.trace_protocol()


def _apply_facts(node: "NodeView") -> None:
    """Bring what INFO tells up to date; clients see it when they connect next."""
    options, facts = node.options, node.facts
    facts.max_payload = options.max_payload
    facts.auth_required = node.authenticator.auth_required() or options.names_system_alone()
    facts.tls_required = options.tls is not None and not options.allow_non_tls
    facts.tls_available = options.tls is not None and options.allow_non_tls
    facts.tls_verify = options.tls is not None and (
        options.tls.verify or options.tls.verify_and_map
    )


def _apply_limits(node: "NodeView") -> None:
    """Bounds of connections that are open; too many of them are closed, the newest first.

    Accounts have seen to their own, see `Node.apply_account_limits`.
    """
    options = node.options
    conns = list(node.sessions.conns.values())
    for conn in conns:
        conn.max_control_line = options.max_control_line
        node.sessions.apply_limits(conn)
    if options.max_connections:
        for conn in conns[max(options.max_connections, 0) :]:
            conn.refuse("maximum connections exceeded", "Maximum Connections Exceeded")


def _judge_sessions(node: "NodeView", old: Options) -> None:
    """Decide again on the sessions whose grounds for being here have changed."""
    new = node.options
    before, after = _users(old), _users(new)
    same_rules = (
        old.operator == new.operator
        and _single(old) == _single(new)
        and _open(old) == _open(new)
    )
    proxies = set(new.proxies.trusted) if new.proxies is not None else set()
    same_leaf_rules = old.leaf.authorization == new.leaf.authorization

    def unchanged(session: Session) -> bool:
        if session.is_leaf and not same_leaf_rules:
            return False
        if session.identity.proxy and session.identity.proxy not in proxies:
            return False
        known = before.get(session.identity.user)
        if known is not None:
            return bool(known == after.get(session.identity.user))
        return same_rules

    gone = before.keys() - after.keys()
    registry = node.sessions.registry
    for session in [each for each in registry.all() if not unchanged(each)]:
        if session.identity.user in gone and not session.is_leaf:
            # As who has another account now: nats-server says nothing to them.
            session.conn.close("Client Closed")
        else:
            registry.judge([session])


def _users(options: Options) -> dict[str, Any]:
    return {user.nkey or user.user: user for user in options.all_users()}


def _single(options: Options) -> tuple[str, str, str, str]:
    """What decides on clients that are no named users."""
    return options.auth.user, options.auth.password, options.auth.token, options.no_auth_user


def _open(options: Options) -> bool:
    return not options.auth_required()
