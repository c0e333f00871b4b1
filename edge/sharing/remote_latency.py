"""Measurements of services whose requester and responder are on two servers of a cluster.

The server of the requester knows the whole time, that of the responder how much of it the service
took and who it was. The second tells the first on `$SYS.LATENCY.M2.<token>` in the system account.
The token stands in the reply subject of the request (nats-server's `remoteLatency`).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.broker.imports.latency_watch import AnswerWatch, RequestWatch
from headwater.edge.broker.imports.service_latency import Describe, Measurement
from headwater.edge.facts.moments import rfc3339
from headwater.edge.kernel.kernel import CallbackSink, Endpoint
from headwater.edge.ports.draws import draw_text
from headwater.edge.wire.json_objects import object_in

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

SUBJECT = "$SYS.LATENCY.M2."
TOKEN_LETTERS = 8
TRACKED = b"T"

HALF_S = 2.0
"""How long a measurement waits for its other half after the answer. A server behind a leaf link
does not tell it."""

WAITING_MAX = 4096
"""Measurements that wait for it, and requests of other servers that are noted; beyond this the
oldest goes."""

HALF_BYTES_MAX = 16 * 1024
LONGEST_NS = 1 << 62


class RemoteLatency:
    """Both halves, as one node sees them."""

    def __init__(self, node: "NodeView", describe: Describe) -> None:
        """`describe` gives the JSON of a responder."""
        self._node = node
        self._describe = describe
        self._kernel = node.kernel
        token = draw_text(self._kernel.chance)[:TOKEN_LETTERS]
        self.suffix = f".{token}.".encode() + TRACKED
        """What the reply subjects of measured requests end with."""
        self._measured: OrderedDict[bytes, Measurement] = OrderedDict()
        self._asked: OrderedDict[bytes, int] = OrderedDict()
        self._watches: list[tuple[Account, AnswerWatch | RequestWatch]] = []
        self._system = node.account(node.system_account)
        self._sink = CallbackSink(
            f"{SUBJECT}{token}".encode(),
            lambda subject, reply, headers, payload, sender: self._on_half(payload),
        )
        self._system.insert(self._sink)

    # --- at the requester ---

    def expect(self, reply: bytes, measured: "Measurement") -> None:
        """A measured request goes out with this reply subject."""
        self._measured[reply] = measured
        if len(self._measured) > WAITING_MAX:
            _, oldest = self._measured.popitem(last=False)
            oldest.alone()

    def forget(self, reply: bytes) -> None:
        """Nothing more is expected of a request."""
        self._measured.pop(reply, None)

    def hold(self, reply: bytes) -> None:
        """Its answer came over a link: give the other half some time."""
        self._kernel.loop.call_later(HALF_S, self._give_up, reply)

    def _give_up(self, reply: bytes) -> None:
        measured = self._measured.pop(reply, None)
        if measured is not None:
            measured.alone()
            self._kernel.kick()

    def _on_half(self, payload: bytes) -> None:
        """Another server tells its half; what is malformed or of another account is ignored."""
        fields = object_in(payload) if len(payload) <= HALF_BYTES_MAX else None
        if fields is None or not isinstance(fields.get("req_id"), str):
            return
        reply = fields["req_id"].encode("utf-8", "replace")
        measured, half = self._measured.get(reply), fields.get("m2")
        if measured is None or fields.get("account") != measured.exporter or not half:
            return
        responder = half.get("responder") if isinstance(half, dict) else None
        if not isinstance(responder, dict):
            return
        service, rtt = half.get("service", 0), responder.get("rtt", 0)
        if not all(type(n) is int and 0 <= n < LONGEST_NS for n in (service, rtt)):
            return
        if measured.joined(responder, service):
            self._measured.pop(reply, None)

    # --- at the responder ---

    def watch(self, services: list[tuple[Account, str]]) -> None:
        """Look at these services from now on, which are measured: (exporting account, subject)."""
        self._unwatch()
        for account in {account.name: account for account, _ in services}.values():
            self._stand(account, AnswerWatch(self._answers_of(account)))
        for account, subject in services:
            self._stand(account, RequestWatch(subject.encode(), self._requested))

    def _stand(self, account: Account, sink: AnswerWatch | RequestWatch) -> None:
        account.insert(sink)
        self._watches.append((account, sink))

    def _unwatch(self) -> None:
        for account, sink in self._watches:
            account.remove(sink)
        self._watches.clear()

    def _requested(self, reply: bytes) -> None:
        self._asked[reply] = self._kernel.clock()
        if len(self._asked) > WAITING_MAX:
            self._asked.popitem(last=False)

    def _answers_of(self, account: Account) -> Callable[[bytes, Endpoint | None], None]:
        def answered(subject: bytes, sender: Endpoint | None) -> None:
            begun_ns = self._asked.pop(subject, None)
            if begun_ns is not None:
                self._send_half(account, subject, sender, self._kernel.clock() - begun_ns, begun_ns)

        return answered

    def _send_half(
        self, account: Account, reply: bytes, sender: Endpoint | None, took_ns: int, begun_ns: int
    ) -> None:
        """Send this half to the server that asked."""
        responder = object_in(self._describe(sender, account, True, b"")) or {}
        service = max(0, took_ns - responder.get("rtt", 0))
        half: dict[str, Any] = {
            "status": 200,
            "responder": responder,
            "start": rfc3339(begun_ns),
            "service": service,
            "system": 0,
            "total": service + responder.get("rtt", 0),
        }
        text = reply.decode("ascii", "replace")
        body = {"account": account.name, "req_id": text, "m2": half}
        subject = SUBJECT + text.split(".")[-2]
        self._system.send(subject.encode(), msgspec.json.encode(body), own=True)

    def stop(self) -> None:
        """Measure nothing any more."""
        self._unwatch()
        self._system.remove(self._sink)
        self._measured.clear()
