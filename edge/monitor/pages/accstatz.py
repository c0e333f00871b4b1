"""/accstatz: what accounts have sent and received here (NATS monitoring, `AccountStatz`)."""

from typing import Any

import msgspec

from headwater.edge.facts.moments import rfc3339
from headwater.edge.monitor.pages.links import links
from headwater.edge.monitor.query import Query
from headwater.edge.view.node_view import NodeView


class AccstatzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.ACCOUNT.PING.STATZ`."""

    accounts: list[str] = []
    include_unused: bool = False

    @classmethod
    def from_query(cls, query: Query) -> "AccstatzOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(include_unused=query.flag("unused"))


def accstatz(node: NodeView, options: AccstatzOptions | None = None) -> dict[str, Any]:
    """The answer; accounts without connections are left out unless asked for."""
    wanted = options or AccstatzOptions()
    names = [name for name in wanted.accounts or node.accounts if name in node.accounts]
    stats = [account_stat(node, name) for name in names]
    return {
        "server_id": node.server_id,
        "now": rfc3339(node.kernel.wall_ns()),
        "account_statz": [s for s in stats if wanted.include_unused or s["total_conns"]],
    }


def account_stat(node: NodeView, name: str) -> dict[str, Any]:
    """One account that exists."""
    account = node.accounts[name]
    claims = node.authenticator.resolver.claims(name)
    leafs = links(node, "leafs", name)
    sessions = node.sessions.registry.of_account(account)
    conns = [session.conn for session in sessions if not session.is_leaf]
    clients = node.observations.tally.traffic(name, conns)
    leaf_in = _data(_sum(leafs, "in_msgs"), _sum(leafs, "in_bytes"))
    leaf_out = _data(_sum(leafs, "out_msgs"), _sum(leafs, "out_bytes"))
    return {
        "acc": name,
        "name": claims.name if claims is not None and claims.name else name,
        "conns": account.connections,
        "leafnodes": len(leafs),
        "total_conns": account.connections + len(leafs),
        "num_subscriptions": account.trie.size,
        "sent": _totals(clients.out_msgs, clients.out_bytes, leaf_out),
        "received": _totals(clients.in_msgs, clients.in_bytes, leaf_in),
        "slow_consumers": node.observations.tally.slow_consumers(name),
    }


def _sum(leafs: list[dict[str, Any]], field: str) -> int:
    return sum(leaf.get(field, 0) for leaf in leafs)


def _data(msgs: int, size: int) -> dict[str, int]:
    return {"msgs": msgs, "bytes": size}


def _totals(msgs: int, size: int, leafs: dict[str, int]) -> dict[str, Any]:
    return {
        **_data(msgs + leafs["msgs"], size + leafs["bytes"]),
        "gateways": _data(0, 0),
        "routes": _data(0, 0),
        "leafs": leafs,
    }
