"""Advisories of streams: JSON events below `$JS.EVENT.ADVISORY`, sent if anyone listens."""

from typing import Any

import msgspec

from headwater.edge.jetstream.model.times import format_time
from headwater.edge.ports.draws import draw_text
from headwater.edge.wire.json_objects import escaped

PREFIX = "$JS.EVENT.ADVISORY."
# Sequences that one advisory lists; `count` tells how many there are.
SEQUENCES_MAX = 1000
TYPE_PREFIX = "io.nats.jetstream.advisory.v1."


class Advisories:
    """Publishes what happens to the streams of a node."""

    def __init__(self, domain: str) -> None:
        self.domain = domain

    def wanted(self, account: Any, tail: str) -> bool:
        """Whether anybody listens to an event in `account`."""
        return bool(account.has_interest((PREFIX + tail).encode()))

    def send(self, account: Any, tail: str, kind: str, fields: dict[str, Any]) -> None:
        """Publish one event in `account`, when there is interest in its subject."""
        if not self.wanted(account, tail):
            return
        event: dict[str, Any] = {
            "type": TYPE_PREFIX + kind,
            "id": draw_text(account.kernel.chance),
            "timestamp": format_time(account.kernel.clock()),
            **fields,
        }
        if self.domain:
            event["domain"] = self.domain
        account.send((PREFIX + tail).encode(), escaped(msgspec.json.encode(event)))

    def audit(
        self, account: Any, fields: dict[str, Any], subject: bytes, payload: bytes, answer: bytes
    ) -> None:
        """A request of the API was answered; `fields` are the server and the client."""
        fields["subject"] = subject.decode("utf-8", "replace")
        fields["response"] = answer.decode("utf-8", "replace")
        if payload:
            fields["request"] = payload.decode("utf-8", "replace")
        self.send(account, "API", "api_audit", fields)

    def requests_refused(self, system: Any, server: str, dropped: int) -> None:
        """So many requests found the queue full; `system` is the system account."""
        fields = {"server": server, "dropped": dropped}
        self.send(system, "API.LIMIT_REACHED", "api_limit_reached", fields)

    def stream_action(self, stream: Any, action: str) -> None:
        """A stream was made (`create`), changed (`modify`) or deleted (`delete`)."""
        tail = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}[action]
        fields = {"stream": stream.name, "action": action}
        self.send(stream.account, f"STREAM.{tail}.{stream.name}", "stream_action", fields)

    def messages_lost(self, stream: Any, found: dict[int, str]) -> None:
        """Messages were found damaged: they cannot be read any more, and are in `state.lost`."""
        fields = {
            "stream": stream.name,
            "sequences": sorted(found)[:SEQUENCES_MAX],
            "count": len(found),
            "reason": found[min(found)],
        }
        tail = f"STREAM.MSGS_LOST.{stream.name}"
        self.send(stream.account, tail, "stream_msgs_lost", fields)

    def origin_state(self, stream: Any, report: dict[str, Any]) -> None:
        """A mirror or source has come into another state; `report` is what INFO shows of it."""
        tail = f"STREAM.ORIGIN_STATE.{stream.name}"
        self.send(stream.account, tail, "stream_origin_state", {"stream": stream.name, **report})

    def leaf_link(self, account: Any, what: str, fields: dict[str, Any]) -> None:
        """A leaf link of `account` is up, down, or takes no bytes: `what` is `up`, `down` or
        `stalled`."""
        self.send(account, f"LEAFNODE.{what.upper()}", f"leafnode_{what}", fields)

    def batch_abandoned(self, stream: Any, batch: str, reason: str) -> None:
        """An atomic batch was given up: timeout, large, incomplete or unsupported."""
        fields = {"stream": stream.name, "batch": batch, "reason": reason}
        tail = f"STREAM.BATCH_ABANDONED.{stream.name}"
        self.send(stream.account, tail, "stream_batch_abandoned", fields)

    def transfer(self, account: Any, stream: str, action: str, fields: dict[str, Any]) -> None:
        """A backup or restore began or ended: `action` is `snapshot_create`, `snapshot_complete`,
        `restore_create` or `restore_complete`."""
        tail = f"STREAM.{action.upper()}.{stream}"
        self.send(account, tail, action, {"stream": stream, **fields})
