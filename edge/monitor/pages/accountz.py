"""/accountz: accounts and one account's details (NATS monitoring, `Accountz`)."""

from collections.abc import Iterator
from typing import Any

import msgspec

from headwater.edge.broker.imports.claimed_shares import import_of, offers_of
from headwater.edge.broker.imports.default_domains import of_domain, with_default_domains
from headwater.edge.broker.imports.imports_plan import AccountShares, plan_of_options
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
from headwater.edge.view.system_info import shown_system_account
from headwater.security import jwt
from headwater.security.auth_options import GLOBAL_ACCOUNT
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
        ("$SYS.DEBUG.SUBSCRIBERS", "single"),
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
    }
    if system := shown_system_account(node):
        answer["system_account"] = system
    if options is None or not options.account:
        hidden = set() if system else {node.system_account}
        answer["accounts"] = [name for name in node.accounts if name not in hidden]
    else:
        answer["account_detail"] = account_info(node, options.account)
    return answer


def account_info(node: NodeView, name: str) -> dict[str, Any]:
    """One account. Raises MonitorError when it does not exist."""
    account = node.accounts.get(name)
    if account is None:
        raise MonitorError(f"Account {name} does not exist")
    leafs = len(links(node, "leafs", name))
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
    if configured is None and name == GLOBAL_ACCOUNT:
        configured = AccountOptions(name=name, mappings=node.options.mappings)
    if configured is not None:
        info.update(_shares(configured))
    if mapped := _domain_mappings(node, name):
        info["mappings"] = info.get("mappings", {}) | mapped
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
    if not shown_system_account(node):
        return
    own = [(f"$SYS.REQ.USER.{name}.INFO", "$SYS.REQ.USER.INFO", True)]
    if name != node.system_account:
        account = f"$SYS.REQ.ACCOUNT.{name}"
        own += [
            (f"{account}.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ", False),
            (f"{account}.CONNZ", "$SYS.REQ.SERVER.PING.CONNZ", False),
            (f"{account}.STATZ", "$SYS.REQ.ACCOUNT.PING.STATZ", False),
        ]
        if node.jetstream is not None or _asks_others(node, name):
            own.append((JS_API, JS_API, True))
    for subject, to, share in own:
        yield ImportOptions(
            kind=SERVICE, account=node.system_account, subject=subject, to=to, share=share
        )


def _asks_others(node: NodeView, name: str) -> bool:
    """Whether an account is to have JetStream, which this node has not, of others."""
    options = node.options
    configured = options.accounts.get(name)
    if configured is not None:
        return configured.jetstream is not None
    return name == GLOBAL_ACCOUNT and not options.accounts and options.cluster.port != 0


def _domain_mappings(node: NodeView, name: str) -> dict[str, Any]:
    """How requests that name this node's domain reach its API, and others another domain's."""
    domain = node.options.jetstream.domain
    found: dict[str, Any] = {}
    if node.options.default_js_domain:
        plan = with_default_domains(plan_of_options(node.options), node.options)
        for item in plan.get(name, AccountShares()).mappings:
            found[item.source] = list(map(_destination, item.destinations))
    if not domain or (node.jetstream is None and not _asks_others(node, name)):
        return found
    own = [(JS_API, f"$JS.{domain}.API.>")]
    pairs = own if name == node.system_account else of_domain(domain)
    return found | {source: [{"subject": subject, "weight": 100}] for subject, source in pairs}


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
    if export.latency is not None:
        fields["service_latency"] = {
            "sampling": export.latency.sampling or "headers",
            "results": export.latency.subject,
        }
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
