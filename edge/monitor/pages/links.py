"""/leafz, /routez and /gatewayz: what services report of their links.

Of services that have links, `leafs` and `routes` have NATS's field names. For metrics there are
`remotes` (links that are dialled) and `origins` (mirrors and sources).
"""

from typing import Any

import msgspec

from headwater.edge.facts.moments import rfc3339
from headwater.edge.monitor.query import Query
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.service import LinkService


class LeafzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.LEAFZ`."""

    subscriptions: bool = False
    account: str = ""

    @classmethod
    def from_query(cls, query: Query) -> "LeafzOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(subscriptions=query.flag("subs"), account=query.text("acc"))


class RoutezOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.ROUTEZ`."""

    subscriptions: bool = False
    subscriptions_detail: bool = False

    @classmethod
    def from_query(cls, query: Query) -> "RoutezOptions":
        """From HTTP parameters. Raises MonitorError."""
        names, details = query.subscriptions()
        return cls(subscriptions=names, subscriptions_detail=details)


class GatewayzOptions(msgspec.Struct, kw_only=True):
    """What a request asks for; names as in `$SYS.REQ.SERVER.*.GATEWAYZ`."""

    name: str = ""
    accounts: bool = False
    account_name: str = ""

    @classmethod
    def from_query(cls, query: Query) -> "GatewayzOptions":
        """From HTTP parameters. Raises MonitorError."""
        return cls(
            name=query.text("gw_name"),
            accounts=query.flag("accs"),
            account_name=query.text("acc_name"),
        )


def links(
    node: NodeView, kind: str, account: str = "", *, lists: bool = False
) -> list[dict[str, Any]]:
    """All entries of one kind that services of this node report, as of `LinkService`."""
    found: list[dict[str, Any]] = []
    for service in node.services:
        if isinstance(service, LinkService):
            found.extend(service.shown_links(kind, account, lists))
    return found


def leafz(node: NodeView, options: LeafzOptions | None = None) -> dict[str, Any]:
    """Leaf connections."""
    wanted = options or LeafzOptions()
    leafs = links(node, "leafs", wanted.account, lists=wanted.subscriptions)
    return {
        "server_id": node.server_id,
        "now": rfc3339(node.kernel.wall_ns()),
        "leafnodes": len(leafs),
        "leafs": leafs,
    }


def routez(node: NodeView, options: RoutezOptions | None = None) -> dict[str, Any]:
    """Routes to the other nodes of the cluster."""
    wanted = options or RoutezOptions()
    routes = links(node, "routes", lists=wanted.subscriptions)
    return {
        "server_id": node.server_id,
        "server_name": node.server_name,
        "now": rfc3339(node.kernel.wall_ns()),
        "num_routes": len(routes),
        "routes": routes,
    }


def gatewayz(node: NodeView, options: GatewayzOptions | None = None) -> dict[str, Any]:
    """Gateways: none, the clusters of a fleet are joined by leaf connections."""
    return {
        "server_id": node.server_id,
        "now": rfc3339(node.kernel.wall_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }
