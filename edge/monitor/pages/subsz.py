"""/subsz: interest on this node (NATS monitoring, `Subsz`)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.facts.moments import rfc3339
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.pages.connz import sub_detail, text
from headwater.edge.monitor.query import Query
from headwater.edge.view.node_view import NodeView
from headwater.security.subjects import is_valid_publish_subject, matches

if TYPE_CHECKING:
    from headwater.edge.broker.account import Account

LIMIT_DEFAULT = 1024
"""Subscriptions in one answer when the request names no limit."""


class SubszOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.SUBSZ`."""

    offset: int = 0
    limit: int = 0
    subscriptions: bool = False
    account: str = ""
    test: str = ""

    @classmethod
    def from_query(cls, query: Query) -> "SubszOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(
            subscriptions=query.flag("subs"),
            offset=query.number("offset"),
            limit=query.number("limit"),
            account=query.text("acc"),
            test=query.text("test"),
        )


def subsz(node: NodeView, options: SubszOptions | None = None) -> dict[str, Any]:
    """The answer. Raises MonitorError."""
    wanted = options or SubszOptions()
    if wanted.test and not is_valid_publish_subject(wanted.test):
        raise MonitorError(
            f"invalid test subject, must be valid publish subject: {wanted.test}"
        )
    accounts = [a for a in node.accounts.values() if wanted.account in ("", a.name)]
    offset = max(0, wanted.offset)
    limit = wanted.limit if wanted.limit > 0 else LIMIT_DEFAULT
    answer: dict[str, Any] = {
        "server_id": node.server_id,
        "now": rfc3339(node.kernel.wall_ns()),
        **interest_stats(accounts),
        "total": 0,
        "offset": offset,
        "limit": limit,
    }
    if wanted.subscriptions and accounts:
        found = [detail for detail in _details(node, wanted) if _selected(detail, wanted.test)]
        answer["total"] = len(found)
        answer["subscriptions_list"] = found[offset : offset + limit]
    return answer


def interest_stats(accounts: Iterable["Account"]) -> dict[str, Any]:
    """Counts of the interest of some accounts; every change of it is a generation."""
    size = changes = lookups = walks = 0
    fanouts: list[int] = []
    for account in accounts:
        size += account.trie.size
        changes += account.generation - 1
        lookups += account.lookups
        walks += account.walks
        fanouts += account.fanouts()
    return {
        "num_subscriptions": size,
        "num_cache": len(fanouts),
        "num_inserts": (changes + size) // 2,
        "num_removes": (changes - size) // 2,
        "num_matches": lookups,
        "cache_hit_rate": (lookups - walks) / lookups if lookups else 0,
        "max_fanout": max(fanouts, default=0),
        "avg_fanout": sum(fanouts) / len(fanouts) if fanouts else 0,
    }


def _details(node: NodeView, options: SubszOptions) -> Iterable[dict[str, Any]]:
    for conn in list(node.sessions.conns.values()):
        if conn.account is None or options.account not in ("", conn.account.name):
            continue
        for sub in list(conn.subs.values()):
            yield sub_detail(conn, sub, conn.account.name)
    for account in node.accounts.values():
        if options.account in ("", account.name):
            yield from _own_details(account)


def _own_details(account: "Account") -> Iterable[dict[str, Any]]:
    """What the node itself listens on, as nats-server lists that of its internal clients; cid 0
    is no connection's."""
    for number, sink in enumerate(account.trie.everything(), 1):
        if sink.owner is None and not sink.remote:
            yield {
                "account": account.name,
                "account_tag": account.name,
                "subject": text(sink.subject),
                **({} if sink.queue is None else {"qgroup": text(sink.queue)}),
                "sid": str(number),
                "msgs": sink.delivered,
                "cid": 0,
            }


def _selected(detail: dict[str, Any], test: str) -> bool:
    return not test or matches(detail["subject"].split("."), test.split("."))


