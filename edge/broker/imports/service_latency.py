"""How long services take, told to whoever exports them (NATS `service_latency` metrics).

An export names the subject and how many requests are measured: a percentage, or those whose headers
say that they are traced. A measurement ends with the first answer, or with what went wrong. Where
the answer comes over a link, the server at the other end tells its half (`remote_latency.py`).
"""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.broker.msg_trace import headers_of
from headwater.edge.facts.moments import rfc3339
from headwater.edge.kernel.kernel import Endpoint, Sink
from headwater.edge.ports.draws import draw_text
from headwater.edge.subjects.tokens import matches
from headwater.edge.wire.json_objects import object_in

_LEAF = 1
_ROUTE = 3

EVENT = "io.nats.server.metric.v1.service_latency"
BAD_REQUEST = (400, "Bad Request")
INTEREST_LOST = (408, "Request Timeout")
UNAVAILABLE = (503, "Service Unavailable")
TIMED_OUT = (504, "Service Timeout")

WATCHED_MAX = 1024
"""Requests of one account for which the end of interest in their answer is told."""

Describe = Callable[[Endpoint | None, Account, bool, bytes], bytes]


class Halves(Protocol):
    """What brings both halves of a measurement together; `RemoteLatency`."""

    def expect(self, reply: bytes, measured: "Measurement") -> None:
        """A request goes out with a reply subject."""

    def hold(self, reply: bytes) -> None:
        """Its answer came over a link."""

    def forget(self, reply: bytes) -> None:
        """Nothing more is expected of it."""


class ServiceLatency:
    """The measurements of one exported service."""

    def __init__(self, account: Account, subject: str, sampling: int) -> None:
        """`sampling` is a percentage; 0 measures only what headers ask for."""
        self.account = account
        self._subject = subject.encode()
        self._sampling = sampling

    def begin(
        self,
        describe: Describe,
        sender: Endpoint | None,
        account: Account,
        share: bool,
        block: bytes,
        chance: int,
    ) -> "Measurement | None":
        """The measurement of a request from `sender` in `account`; None when it is not chosen.
        `chance` is from 0 to 99, each as probable."""
        headers: dict[str, list[str]] = {}
        if chance >= self._sampling:
            found = asked_by(headers_of(block)) if block else None
            if found is None:
                return None
            headers = found
        return Measurement(self, describe, sender, account, share, headers)

    def publish(self, event: dict[str, Any]) -> None:
        """Send one event to the exporter."""
        kernel = self.account.kernel
        head = {"type": EVENT, "id": draw_text(kernel.chance), "timestamp": rfc3339(kernel.clock())}
        self.account.send(self._subject, msgspec.json.encode({**head, **event}))


class Measurement:
    """One request that waits for its answer."""

    __slots__ = (
        "_account",
        "_begun_ns",
        "_describe",
        "_half",
        "_headers",
        "_latency",
        "_link",
        "_remote",
        "_reply",
        "_requestor",
        "_whole_ns",
    )

    def __init__(
        self,
        latency: ServiceLatency,
        describe: Describe,
        sender: Endpoint | None,
        account: Account,
        share: bool,
        headers: dict[str, list[str]],
    ) -> None:
        self._latency = latency
        self._describe = describe
        self._account = account
        self._headers = headers
        self._requestor = object_in(describe(sender, account, share, b"")) or {}
        self._begun_ns = account.kernel.clock()
        self._remote: Halves | None = None
        self._reply = b""
        self._whole_ns: int | None = None
        self._link: dict[str, Any] = {}
        self._half: tuple[dict[str, Any], int] | None = None

    @property
    def exporter(self) -> str:
        """The account that is told."""
        return self._latency.account.name

    def follow(self, remote: Halves, reply: bytes) -> None:
        """The request goes out with `reply`; another server may tell its half."""
        self._remote, self._reply = remote, reply
        remote.expect(reply, self)

    def answered(self, sender: Endpoint | None) -> None:
        """The first answer came from `sender`."""
        now_ns = self._account.kernel.clock()
        if self._remote is not None and sender is not None and sender.kind in (_LEAF, _ROUTE):
            self._whole_ns = now_ns - self._begun_ns
            if sender.kind == _LEAF:
                self._link = self._responder(sender)
            if self._half is not None:
                self.joined(*self._half)
            else:
                self._remote.hold(self._reply)
            return
        self._ended()
        responder = self._responder(sender)
        theirs, ours = responder.get("rtt", 0), self._requestor.get("rtt", 0)
        whole = now_ns - self._begun_ns
        system = max(0, self._account.kernel.clock() - now_ns) if theirs else 0
        self._publish(200, "", responder, max(0, whole - theirs), system, ours + whole + system)

    def joined(self, responder: dict[str, Any], service: int) -> bool:
        """Another server says who answered, and how long that took, in ns. False as long as the
        answer itself is not there."""
        if self._whole_ns is None:
            self._half = responder, service
            return False
        self._ended()
        rtt = responder.get("rtt", 0)
        system = max(0, self._whole_ns - service - rtt)
        total = self._requestor.get("rtt", 0) + self._whole_ns
        self._publish(200, "", responder, service, system, total)
        return True

    def alone(self) -> None:
        """No other server will tell its half."""
        self._remote = None
        if self._whole_ns is not None:
            total = self._requestor.get("rtt", 0) + self._whole_ns
            self._publish(200, "", self._link, self._whole_ns, 0, total)

    def _responder(self, sender: Endpoint | None) -> dict[str, Any]:
        return object_in(self._describe(sender, self._latency.account, True, b"")) or {}

    def _ended(self) -> None:
        if self._remote is not None:
            self._remote.forget(self._reply)
            self._remote = None

    def failed(self, what: tuple[int, str]) -> None:
        """There will be no answer."""
        self._ended()
        self._publish(*what, {}, 0, 0, 0)

    def _publish(
        self,
        status: int,
        text: str,
        responder: dict[str, Any],
        service: int,
        system: int,
        total: int,
    ) -> None:
        event: dict[str, Any] = {"status": status}
        optional = {
            "description": text,
            "requestor": self._requestor,
            "responder": responder,
            "header": self._headers,
        }
        event.update({name: value for name, value in optional.items() if value})
        event["start"] = rfc3339(self._begun_ns - self._requestor.get("rtt", 0))
        event.update(service=service, system=system, total=total)
        self._latency.publish(event)


class InterestWatch:
    """Tells when nobody waits for the answer to a measured request any more."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._lost: dict[bytes, Callable[[], None]] = {}

    def expect(self, reply: bytes, lost: Callable[[], None]) -> None:
        """Call `lost` once when interest in `reply` ends, unless it is forgotten before."""
        if not self._lost:
            self._account.add_watcher(self)
        if len(self._lost) < WATCHED_MAX:
            self._lost[reply] = lost

    def forget(self, reply: bytes) -> None:
        """The answer came, or will not come."""
        if self._lost.pop(reply, None) is not None and not self._lost:
            self._account.drop_watcher(self)

    def interest_added(self, sink: Sink) -> None:
        """Of no concern."""

    def interest_removed(self, sink: Sink) -> None:
        """Look for requests whose answers this sink would have taken."""
        gone = [
            reply
            for reply in self._lost
            if matches(sink.subject, reply) and not self._account.has_interest(reply)
        ]
        for reply in gone:
            lost = self._lost[reply]
            self.forget(reply)
            lost()


def asked_by(headers: dict[str, list[str]]) -> dict[str, list[str]] | None:
    """The headers of a request that ask for it to be measured, by their canonical names; None when
    none does (Uber, B3 and W3C trace context)."""
    given = {_canonical(name): values for name, values in headers.items()}
    first = {name: values[0] for name, values in given.items()}
    if "Uber-Trace-Id" in given:
        flags = first["Uber-Trace-Id"].split(":")
        if len(flags) != 4 or not _odd(flags[3]):
            return None
        return {
            name: values
            for name, values in given.items()
            if name == "Uber-Trace-Id" or name.startswith("Uberctx-")
        }
    if first.get("X-B3-Sampled") == "0":
        return None
    if first.get("X-B3-Sampled") == "1" or "X-B3-Traceid" in given:
        return {name: given[name] for name in _B3 if name in given}
    if "B3" in given:
        parts = first["B3"].split("-")
        denied = parts[2] == "0" if len(parts) > 2 else parts == ["0"]
        return None if denied else {"B3": given["B3"]}
    parts = first.get("Traceparent", "").split("-")
    if len(parts) != 4 or len(parts[3]) != 2 or not _odd(parts[3]):
        return None
    return {name: given[name] for name in ("Traceparent", "Tracestate") if name in given}


_B3 = ("X-B3-Sampled", "X-B3-Traceid", "X-B3-Parentspanid", "X-B3-Spanid")


def _canonical(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("-"))


def _odd(flags: str) -> bool:
    """Whether the lowest bit of one or two hexadecimal digits is set."""
    try:
        return 0 < len(flags) <= 2 and int(flags, 16) & 1 == 1
    except ValueError:
        return False
