"""How a node and its clients are described in system events (NATS `ServerInfo`, `ClientInfo`)."""

from typing import Any

import msgspec

from headwater.edge.facts.moments import nanoseconds, rfc3339
from headwater.edge.facts.version import FEATURE_FLAGS, NATS_LEVEL
from headwater.edge.view.encodings import encoded
from headwater.edge.view.node_view import NodeView
from headwater.security.auth_options import GLOBAL_ACCOUNT, PermissionOptions, SubjectRules
from headwater.security.identity import claimed_user

JETSTREAM_FLAG = 1


class ServerInfo:
    """Describes one node; every description carries the next number."""

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._sequence = 0

    def next(self) -> dict[str, Any]:
        """The description for one message."""
        self._sequence += 1
        node = self._node
        options = node.options
        jetstream = node.jetstream is not None
        fields: dict[str, Any] = {
            "name": node.server_name,
            "host": node.facts.host,
            "id": node.server_id,
        }
        optional = {
            "cluster": node.facts.cluster,
            "domain": node.facts.domain,
            "ver": NATS_LEVEL,
            "tags": options.server_tags,
            "metadata": options.server_metadata,
            "feature_flags": feature_flags(options.feature_flags),
        }
        fields.update({name: value for name, value in optional.items() if value})
        fields.update(
            jetstream=jetstream,
            flags=JETSTREAM_FLAG if jetstream else 0,
            seq=self._sequence,
            time=rfc3339(node.kernel.wall_ns()),
        )
        return fields

    def event(self, fields: dict[str, Any], accepted: str) -> tuple[bytes, bytes]:
        """An event of the node as it is sent, and its header block."""
        return encoded(msgspec.json.encode({"server": self.next(), **fields}), accepted)


def feature_flags(configured: dict[str, bool]) -> dict[str, bool]:
    """Every switch of the level of NATS that is claimed, and where it stands."""
    return {name: configured.get(name, value) for name, value in FEATURE_FLAGS.items()}


def client_info(node: NodeView, conn: Any, *, stop_ns: int = 0) -> dict[str, Any]:
    """One client, as it is or as it was when it ended at `stop_ns`."""
    detail = node.sessions.detail(conn)
    identity = conn.identity
    account = conn.account.name if conn.account is not None else GLOBAL_ACCOUNT
    told = {
        field: value if isinstance(value, str) else ""
        for field, value in ((f, conn.options.get(f)) for f in ("name", "lang", "version"))
    }
    fields: dict[str, Any] = {
        "start": rfc3339(nanoseconds(detail.get("start", 0.0))),
        "host": detail.get("ip", ""),
        "id": conn.cid,
        "acc": account,
        "user": user_name(conn),
        "name": told["name"],
        "lang": told["lang"],
        "ver": told["version"],
    }
    if stop_ns:
        fields["rtt"] = detail.get("rtt_ns", 0)
        fields["stop"] = rfc3339(stop_ns)
    fields["name_tag"] = account
    if identity is not None:
        fields.update(
            jwt=user_token(conn),
            issuer_key=identity.issuer,
            name_tag=identity.account_name or account,
            tags=identity.tags,
        )
    websocket = detail.get("kind") == "WEBSOCKET"
    fields["kind"] = "Client"
    fields["client_type"] = "websocket" if websocket else "nats"
    return {name: value for name, value in fields.items() if value}


def shown_system_account(node: NodeView) -> str:
    """The name of the system account; empty where the configuration has none."""
    return node.system_account if node.has_system else ""


def user_name(conn: Any) -> str:
    """The user for display: what a client claims where nothing is asked for. A token is a secret
    and is not shown."""
    identity = conn.identity
    if identity is None or identity.kind == "none":
        return claimed_user(conn.options)
    return "[REDACTED]" if identity.kind == "token" else str(identity.user)


def user_token(conn: Any) -> str:
    """The token that a client came in with; empty for one that needs no key to be used again, or
    that let it ask a callout service only."""
    told = conn.options.get("jwt")
    identity = conn.identity
    shown = identity is not None and not identity.bearer and identity.kind != "callout"
    return told if shown and isinstance(told, str) else ""


def user_info(conn: Any, now_s: float) -> dict[str, Any]:
    """What a user may know of itself (`$SYS.REQ.USER.INFO`) at a time in Unix seconds."""
    identity = conn.identity
    account = conn.account.name
    fields: dict[str, Any] = {
        "user": user_name(conn),
        "account": account,
    }
    optional: dict[str, Any] = {"account_name": account}
    if identity is not None:
        optional["account_name"] = identity.account_name or account
        optional["user_name"] = identity.name
        if identity.permissions is not None:
            optional["permissions"] = _permissions(identity.permissions)
        if identity.expires > 0:
            # Whole seconds, as NATS tells them.
            optional["expires"] = nanoseconds(max(0, int(identity.expires - now_s)))
    fields.update({name: value for name, value in optional.items() if value})
    return fields


def _permissions(permissions: PermissionOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, rules in (
        ("publish", permissions.publish),
        ("subscribe", permissions.subscribe),
    ):
        fields[name] = {} if rules is None else _rules(rules)
    if permissions.allow_responses is not None:
        fields["responses"] = {
            "max": permissions.allow_responses.max_messages,
            "ttl": nanoseconds(permissions.allow_responses.expires),
        }
    return fields


def _rules(rules: SubjectRules) -> dict[str, list[str]]:
    fields = {"allow": list(rules.allow or []), "deny": list(rules.deny)}
    return {name: subjects for name, subjects in fields.items() if subjects}
