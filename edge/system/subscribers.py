"""`$SYS.DEBUG.SUBSCRIBERS`: how many subscribe to a subject of an account, in the whole cluster.

The request names a subject, and behind a space a queue group. Whose account is meant is who asks:
by an import its own, in the system account that one. Source: nats-server, `server/events.go`,
`debugSubscribers`.
"""

import asyncio
import base64
import binascii
import itertools
from typing import Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.jetstream.api.denial import CLIENT_OR_LEAF
from headwater.edge.jetstream.model.headers import get
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.subjects.tokens import covers, literal_subject
from headwater.edge.system.account_counts import AccountCounts
from headwater.edge.view.node_view import NodeView
from headwater.edge.wire.json_objects import object_in

SUBJECT = b"$SYS.DEBUG.SUBSCRIBERS"
OTHERS = b"$SYS.REQ.ACCOUNT.NSUBS"
"""Where the servers of a cluster ask each other."""

WAIT_S = 0.5
"""How long the other servers have to answer."""

ASKED_MAX = 1024
"""Questions to other servers at the same time; one more hears of this server alone."""


class _Wanted(msgspec.Struct):
    """What one server asks another."""

    acc: str
    subject: str
    queue: str | None = None
    """The group as Base64."""


class _Question:
    """A request that waits for other servers."""

    def __init__(self, reply: bytes, count: int, left: int) -> None:
        self.reply = reply
        self.count = count
        self.left = left
        self.timer: asyncio.TimerHandle | None = None


class Subscribers:
    """Answers of one node."""

    def __init__(self, node: NodeView, counts: AccountCounts) -> None:
        self._node = node
        self._counts = counts
        self._system = node.account(node.system_account)
        self._inbox = f"$SYS._INBOX_.{node.server_id}.".encode()
        self._numbers = itertools.count(1)
        self._asked: dict[bytes, _Question] = {}
        self._sinks: list[CallbackSink] = []

    def start(self) -> None:
        """Listen."""
        listened: list[tuple[bytes, Any]] = [(SUBJECT, self._on_request)]
        if self._node.options.cluster.port:
            listened += [(OTHERS, self._on_question), (self._inbox + b"*", self._on_answer)]
        for subject, heard in listened:
            sink = CallbackSink(subject, heard)
            self._system.insert(sink)
            self._sinks.append(sink)

    def stop(self) -> None:
        """Listen no more; who waits is not answered."""
        for question in self._asked.values():
            if question.timer is not None:
                question.timer.cancel()
        self._asked.clear()
        for sink in self._sinks:
            self._system.remove(sink)
        self._sinks.clear()

    def _on_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        if getattr(sender, "kind", None) != CLIENT_OR_LEAF[0] or not reply:
            return
        asks = object_in(get(headers, b"Nats-Request-Info") or b"") or {}
        name = asks.get("svc") or asks.get("acc") or self._node.system_account
        account = self._node.accounts.get(name)
        if account is None:
            return
        wanted, *more = payload.strip().split(b" ")
        group = more[0] if more else None
        question = _Question(reply, subscribers(account, wanted, group), 0)
        question.left = self._counts.servers_with(name)
        if not question.left or len(self._asked) >= ASKED_MAX:
            self._answer(question)
            return
        inbox = self._inbox + b"%d" % next(self._numbers)
        self._asked[inbox] = question
        question.timer = self._node.loop.call_later(WAIT_S, self._end, inbox)
        fields = {"acc": name, "subject": wanted.decode("utf-8", "replace")}
        if group:  # An empty one is not told, as by nats-server.
            fields["queue"] = base64.b64encode(group).decode()
        self._system.send(OTHERS, msgspec.json.encode(fields), inbox, own=True)

    def _on_question(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        """Another server asks. Who has no session of that account is not waited for."""
        try:
            wanted = msgspec.json.decode(payload, type=_Wanted)
            group = None if wanted.queue is None else base64.b64decode(wanted.queue)
        except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error):
            return
        account = self._node.accounts.get(wanted.acc)
        if account is None or reply in self._asked:
            return
        if reply and wanted.acc in self._node.sessions.registry.busy():
            count = subscribers(account, wanted.subject.encode(), group)
            self._system.send(reply, b"%d" % count, own=True)

    def _on_answer(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        question = self._asked.get(subject)
        if question is None:
            return
        if payload.isdigit() and len(payload) <= len(str(2**31)):
            question.count += int(payload)
        question.left -= 1
        if question.left <= 0:
            self._end(subject)

    def _end(self, inbox: bytes) -> None:
        question = self._asked.pop(inbox)
        if question.timer is not None:
            question.timer.cancel()
        self._answer(question)

    def _answer(self, question: _Question) -> None:
        self._system.send(question.reply, b"%d" % question.count)


def subscribers(account: Account, subject: bytes, group: bytes | None) -> int:
    """How many subscriptions of clients and of spokes on this node a literal subject reaches, or
    are within a wildcard; with a group, those of its members."""
    literal = literal_subject(subject)
    sinks = account.sinks(subject) if literal else account.trie.everything()
    plain = None if literal else b""
    return sum(
        _is_asked_for(sink)
        and (literal or covers(subject, sink.subject))
        and (group is None or group == (plain if sink.queue is None else sink.queue))
        for sink in sinks
    )


def _is_asked_for(sink: Any) -> bool:
    """Whether a client, or a spoke for those behind it, subscribes."""
    client, leaf = CLIENT_OR_LEAF
    owner = sink.owner
    if owner is None:
        return False
    return bool(owner.kind == client or (owner.kind == leaf and not owner.spoke))
