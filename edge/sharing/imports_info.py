"""Who asks: the JSON of the `Nats-Request-Info` header of requests that cross accounts."""

from typing import TYPE_CHECKING, Any, cast

import msgspec

from headwater.edge.kernel.kernel import Endpoint
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.system_info import client_info
from headwater.edge.wire.json_objects import object_in

if TYPE_CHECKING:
    from headwater.edge.broker.account import Account
    from headwater.edge.broker.client import ClientConn

_CLIENT = 0
_LEAF = 1
_ORDER = (
    "start",
    "host",
    "id",
    "acc",
    "svc",
    "user",
    "name",
    "lang",
    "ver",
    "rtt",
    "server",
    "cluster",
    "alts",
    "stop",
    "jwt",
    "issuer_key",
    "name_tag",
    "tags",
    "kind",
    "client_type",
    "client_id",
    "nonce",
    "reply",
)


class RequestInfo:
    """Describes the sender of requests; the `describe` of a node's `Crossing`."""

    def __init__(self, node: NodeView) -> None:
        self.node = node

    def __call__(
        self, sender: Endpoint | None, account: "Account", share: bool, via: bytes
    ) -> bytes:
        """Account and round trip time, and everything else with `share`.

        A request that comes from an earlier crossing keeps that description, `via`, and tells by
        which account it came on.
        """
        fields = _decoded(via)
        if fields and (sender is None or sender.kind != _LEAF):
            fields["svc"] = account.name
        else:
            fields = self._fields(sender, account, share)
        ordered = {name: fields[name] for name in _ORDER if fields.get(name)}
        return msgspec.json.encode(ordered)

    def client(self, sender: Endpoint | None, account: "Account", via: bytes) -> dict[str, Any]:
        """Who made a request in `account`, as advisories tell it; `via` is what a crossing said.

        Such a request went on to JetStream by way of this account, in this server.
        """
        fields = _decoded(via)
        if fields:
            fields["svc"] = account.name
            fields["server"] = self.node.server_name
            fields["cluster"] = self.node.facts.cluster
        else:
            fields = self._fields(sender, account, True)
        return {name: fields[name] for name in _ORDER if fields.get(name) and name != "jwt"}

    def _fields(self, sender: Endpoint | None, account: "Account", share: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"acc": account.name}
        if sender is not None and sender.kind == _CLIENT:
            client = cast("ClientConn", sender)
            if share:
                fields = client_info(self.node, client)
                fields["name_tag"] = client.identity.name
            rtt = self.node.sessions.detail(client).get("rtt_ns", 0)
            fields["rtt"] = rtt
        elif share and sender is not None:
            fields["kind"] = "Leafnode"
            fields["id"] = sender.cid
        if share:
            fields["server"] = self.node.server_name
            fields["cluster"] = self.node.facts.cluster
        return fields


def _decoded(text: bytes) -> dict[str, Any]:
    return object_in(text) or {}
