"""Requests about a node's store on `$HW.API.STORE.*`, in the system account.

What is in quarantine can be listed, put back or removed for good. Every node answers for its own
store; a request may name the node that it means, as requests on `$SYS.REQ.SERVER.PING.*` may.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.monitor.errors import MonitorError
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.system.system_requests import SkipError
from headwater.edge.view.node_view import NodeView

if TYPE_CHECKING:
    from collections.abc import Callable


PREFIX = "$HW.API.STORE"


class Named(msgspec.Struct, kw_only=True):
    """Which thing in quarantine a request is about, by its whole name."""

    name: str = ""
    server_name: str = ""


def _storage(node: NodeView) -> Any:
    if node.jetstream is None or node.jetstream.storage is None:
        raise MonitorError("JetStream not enabled")
    return node.jetstream.storage


def _wanted(node: NodeView, payload: bytes) -> str:
    """The name that is asked for. Raises MonitorError, SkipError."""
    request = msgspec.json.decode(payload or b"{}", type=Named)
    if not request.name:
        raise MonitorError('"name" must be the whole name of something in quarantine')
    if request.name not in _storage(node).quarantine.names():
        if node.options.cluster.port and not request.server_name:
            raise SkipError
        raise MonitorError(f"there is no {request.name!r} in quarantine".replace("'", '"'))
    return request.name


def quarantine_list(node: NodeView, payload: bytes) -> dict[str, Any]:
    """QUARANTINE.LIST"""
    items = _storage(node).quarantine.items()
    return {"total": _storage(node).quarantined, "items": [msgspec.to_builtins(i) for i in items]}


def quarantine_restore(node: NodeView, payload: bytes) -> dict[str, Any]:
    """QUARANTINE.RESTORE: the stream is served again when this is answered."""
    name = _wanted(node, payload)
    try:
        stream = node.jetstream.restore_quarantined(name)
    except (StoreError, OSError) as error:
        raise MonitorError(str(error)) from error
    return {
        "restored": name,
        "account": stream.account.name,
        "stream": stream.name,
        "messages": stream.store.messages,
    }


def quarantine_purge(node: NodeView, payload: bytes) -> dict[str, Any]:
    """QUARANTINE.PURGE"""
    name = _wanted(node, payload)
    try:
        size = _storage(node).quarantine.purge(name)
    except (StoreError, OSError) as error:
        raise MonitorError(str(error)) from error
    return {"purged": name, "bytes": size}


REQUESTS: "dict[str, Callable[[NodeView, bytes], dict[str, Any]]]" = {
    "QUARANTINE.LIST": quarantine_list,
    "QUARANTINE.RESTORE": quarantine_restore,
    "QUARANTINE.PURGE": quarantine_purge,
}
