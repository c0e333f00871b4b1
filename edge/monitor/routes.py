"""What each monitoring path answers; independent of the HTTP library."""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from headwater.edge.monitor.debugging import expvarz
from headwater.edge.monitor.errors import MonitorError
from headwater.edge.monitor.metrics import CONTENT_TYPE, metrics_steps
from headwater.edge.monitor.pages import accountz, accstatz, connz, healthz, jsz, links, subsz, varz
from headwater.edge.monitor.pages.edgez import edgez
from headwater.edge.monitor.pages.index import index_page
from headwater.edge.monitor.pages.stacksz import stacksz
from headwater.edge.monitor.query import Query
from headwater.edge.monitor.steps import PageMaker, Steps

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
NOT_FOUND = 404


class Reply(NamedTuple):
    """An HTTP response."""

    status: int
    body: bytes
    content_type: str


Page = Callable[["NodeView", Query], Reply | Steps[Reply]]


def _indented(value: dict[str, Any]) -> Reply:
    return Reply(200, msgspec.json.format(msgspec.json.encode(value), indent=2), JSON)


def _health(node: "NodeView", query: Query) -> Reply:
    answer = healthz.healthz(node, healthz.HealthzOptions.from_query(query))
    status = answer.pop("status_code")
    return Reply(status, msgspec.json.encode(answer), JSON)


def _jsz(node: "NodeView", query: Query) -> Steps[Reply]:
    return _indented((yield from jsz.jsz_steps(node, jsz.JszOptions.from_query(query))))


def _metrics(node: "NodeView", query: Query) -> Steps[Reply]:
    return Reply(200, (yield from metrics_steps(node)).encode(), CONTENT_TYPE)


def _cluster(node: "NodeView") -> Any:
    """What a node knows of its cluster. Raises MonitorError where it is in none."""
    view = node.jetstream.cluster_view if node.jetstream is not None else None
    if view is None:
        raise MonitorError("No Raft nodes registered", 404)
    return view


PAGES: dict[str, Page] = {
    "/": lambda node, query: Reply(200, index_page().encode(), HTML),
    "/varz": lambda node, query: _indented(varz.varz(node)),
    "/connz": lambda node, query: _indented(
        connz.connz(node, connz.ConnzOptions.from_query(query))
    ),
    "/subsz": lambda node, query: _indented(
        subsz.subsz(node, subsz.SubszOptions.from_query(query))
    ),
    "/accountz": lambda node, query: _indented(
        accountz.accountz(node, accountz.AccountzOptions.from_query(query))
    ),
    "/accstatz": lambda node, query: _indented(
        accstatz.accstatz(node, accstatz.AccstatzOptions.from_query(query))
    ),
    "/jsz": _jsz,
    "/leafz": lambda node, query: _indented(
        links.leafz(node, links.LeafzOptions.from_query(query))
    ),
    "/routez": lambda node, query: _indented(
        links.routez(node, links.RoutezOptions.from_query(query))
    ),
    "/edgez": lambda node, query: _indented(edgez(node)),
    "/gatewayz": lambda node, query: _indented(
        links.gatewayz(node, links.GatewayzOptions.from_query(query))
    ),
    "/healthz": _health,
    "/raftz": lambda node, query: _indented(
        _cluster(node).raftz(query.text("acc"), query.text("group"))
    ),
    "/clusterz": lambda node, query: _indented(_cluster(node).status()),
    "/ipqueuesz": lambda node, query: Reply(200, b"{}", JSON),
    "/debug/vars": lambda node, query: _indented(
        {"memstats": expvarz(node.observations.process.memory())["memstats"]}
    ),
    "/stacksz": lambda node, query: Reply(200, stacksz().encode(), TEXT),
    "/metrics": _metrics,
}
PAGES["/subscriptionsz"] = PAGES["/subsz"]


async def render(node: "NodeView", path: str, query: Query, maker: PageMaker) -> Reply:
    """The answer to a request for `path`, which is below the base path."""
    page = PAGES.get(path)
    if page is None:
        return Reply(NOT_FOUND, b"404 page not found\n", TEXT)
    node.observations.http_requests[path] += 1
    try:
        made = page(node, query)
        return await maker.make(made) if isinstance(made, Generator) else made
    except MonitorError as error:
        return Reply(error.status, str(error).encode(), TEXT)
