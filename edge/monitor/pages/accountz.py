"""/accountz: accounts and one account's details (NATS monitoring, `Accountz`)."""

from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.edge.broker.imports.claimed_shares import import_of, offers_of
from headwater.edge.conf.options import (
    AccountOptions,
    ExportOptions,
    ImportOptions,
    MappingDestination,
)
from headwater.edge.facts.moments import SECOND_NS, rfc3339
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.pages.links import links
from headwater.edge.monitor.pages.subsz import interest_stats
from headwater.edge.monitor.query import Query
from headwater.edge.view.node_view import NodeView
from headwater.security import jwt
from headwater.security.claims import AccountClaims

SERVICE = "service"
JS_API = "$JS.API.>"
RESPONSE_TYPES = {"single": "Singleton", "stream": "Streamed", "chunked": "Chunked"}
"""How a page names the response types of the configuration."""

SYSTEM_EXPORTS = [
    ExportOptions(kind=SERVICE, subject=subject, response_type=kind)
    for subject, kind in (
        (JS_API, "single"),
        ("$SYS.REQ.ACCOUNT.*.CONNZ", "stream"),
        ("$SYS.REQ.ACCOUNT.*.STATZ", "stream"),
        ("$SYS.REQ.USER.*.INFO", "single"),
    )
]
"""What the system account offers to every account; the first, where there is JetStream."""


class AccountzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.ACCOUNTZ`."""

    account: str = ""

    @classmethod
    def from_query(cls, query: Query) -> "AccountzOptions":
        """From HTTP parameters."""
        return cls(account=query.text("acc"))


def accountz(node: NodeView, options: AccountzOptions | None = None) -> dict[str, Any]:
    """The names of all accounts, or one account. Raises MonitorError."""
    answer: dict[str, Any] = {
        "server_id": node.server_id,
        "now": rfc3339(node.kernel.wall_ns()),
        "system_account": node.system_account,
    }
    if options is None or not options.account:
        answer["accounts"] = list(node.accounts)
    else:
        answer["account_detail"] = account_info(node, options.account)
    return answer


def account_info(node: NodeView, name: str) -> dict[str, Any]:
    """One account. Raises MonitorError when it does not exist."""
    account = node.accounts.get(name)
    if account is None:
        raise MonitorError(f"Account {name} does not exist")
    leafs = sum(1 for leaf in links(node, "leafs") if leaf.get("account") == name)
    info: dict[str, Any] = {
        "account_name": name,
        "update_time": rfc3339(node.started_ns),
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.jetstream is not None,
        "leafnode_connections": leafs,
        "client_connections": account.connections,
        "subscriptions": account.trie.size,
        "name_tag": name,
        "sublist_stats": interest_stats([account]),
    }
    if name == node.system_account:
        info["is_system"] = True
    configured = node.options.accounts.get(name)
    if configured is not None:
        info.update(_shares(configured))
    own = [_import(item) for item in _system_imports(node, name)]
    info["imports"] = [*info.get("imports", ()), *own]
    if name == node.system_account:
        offers = SYSTEM_EXPORTS[0 if node.jetstream is not None else 1 :]
        info["exports"] = [*info.get("exports", ()), *map(_export, offers)]
    claims = node.authenticator.resolver.claims(name)
    token = node.authenticator.resolver.token(name)
    if claims is not None and token is not None:
        info.update(_claimed(claims, token))
        info["expired"] = jwt.expired(claims, node.kernel.wall_ns() / 1e9)
        info["imports"] = [*map(_import, map(import_of, claims.nats.imports)), *info["imports"]]
    return info


def _claimed(claims: AccountClaims, token: str) -> dict[str, Any]:
    """What an account has by its token, imports apart."""
    fields: dict[str, Any] = {
        "issuer_key": claims.iss,
        "jwt": token,
        "decoded_jwt": jwt.shown(token),
        "name_tag": claims.name or claims.sub,
    }
    offers = offers_of(claims)
    fields |= _shares(
        AccountOptions(name=claims.sub, mappings=offers.mappings, exports=offers.exports)
    )
    for shown, export in zip(fields.get("exports", ()), claims.nats.exports, strict=True):
        shown |= {"token_req": True} if export.token_req else {}
    if claims.nats.tags:
        fields["tags"] = claims.nats.tags
    if claims.nats.revocations:
        fields["revoked_user"] = {
            user: rfc3339(second * SECOND_NS) for user, second in claims.nats.revocations.items()
        }
    return fields


def _system_imports(node: NodeView, name: str) -> Iterator[ImportOptions]:
    """What an account has of the system's by itself: services that answer for this account."""
    own = [(f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", True)]
    if name != node.system_account:
        account = f"$SYS.REQ.ACCOUNT.{name}"
        own += [
            (f"{account}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
            (f"{account}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
            (f"{account}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
        ]
        if node.jetstream is not None:
            own.append((JS_API, JS_API, True))
    for subject, to, share in own:
        yield ImportOptions(
            kind=SERVICE, account=node.system_account, subject=subject, to=to, share=share
        )


def _shares(account: AccountOptions) -> dict[str, Any]:
    shares: dict[str, Any] = {}
    if account.mappings:
        shares["mappings"] = {
            mapping.source: [_destination(to) for to in mapping.destinations]
            for mapping in account.mappings
        }
    if account.exports:
        shares["exports"] = [_export(export) for export in account.exports]
    if account.imports:
        shares["imports"] = [_import(item) for item in account.imports]
    return shares


def _destination(to: MappingDestination) -> dict[str, Any]:
    fields: dict[str, Any] = {"subject": to.subject, "weight": to.weight}
    return fields | ({"cluster": to.cluster} if to.cluster else {})


def _export(export: ExportOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {"subject": export.subject, "type": export.kind}
    if export.kind == SERVICE:
        fields["response_type"] = RESPONSE_TYPES[export.response_type]
    if export.accounts:
        fields["approved_accounts"] = export.accounts
    return fields


def _import(item: ImportOptions) -> dict[str, Any]:
    local = item.to or (f"{item.prefix}.{item.subject}" if item.prefix else item.subject)
    fields: dict[str, Any] = {"subject": item.subject, "account": item.account}
    if item.kind == SERVICE:
        fields["to"] = local
    return fields | {
        "local_subject": local,
        "type": item.kind,
        "invalid": False,
        "share": item.share,
        "tracking": False,
    }
