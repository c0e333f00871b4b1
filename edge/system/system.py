"""The system account: requests to nodes, and events about them (NATS system events).

Events are made only when somebody listens.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from headwater.edge.broker.account import Account
from headwater.edge.broker.client import ClientConn
from headwater.edge.facts.moments import rfc3339
from headwater.edge.jetstream.model import errors
from headwater.edge.jetstream.model.headers import get
from headwater.edge.kernel.kernel import CallbackSink
from headwater.edge.monitor.pages.accstatz import account_stat
from headwater.edge.monitor.pages.statsz import statsz
from headwater.edge.ports.draws import draw_text
from headwater.edge.storage.format.errors import StoreError
from headwater.edge.system import system_store
from headwater.edge.system.account_counts import AccountCounts
from headwater.edge.system.shown_certificate import shown_certificate
from headwater.edge.system.subscribers import Subscribers
from headwater.edge.system.system_requests import (
    ACCOUNT,
    COMMANDS,
    SERVER,
    Responder,
    account_answer,
    every_account_answer,
)
from headwater.edge.view.node_view import NodeView
from headwater.edge.view.system_info import ServerInfo, client_info, user_info
from headwater.edge.wire.json_objects import object_in
from headwater.security.auth_options import GLOBAL_ACCOUNT

log = logging.getLogger("headwater.system")

STATSZ_S = 10.0
"""How often statistics are sent."""

COUNTS_S = 0.25
"""Least time between two events about the connections of one account."""

EVERY_ACCOUNT = "PING"
"""In the place of an account's name, in requests of the system account."""

_PURGED = "io.nats.jetstream.api.v1.account_purge_response"
_ADVISORY = "io.nats.server.advisory.v1."

Callback = Callable[[bytes, bytes, bytes, bytes, Any], None]


class SystemService:
    """Services and events of a node's system account."""

    name = "system"

    def __init__(self) -> None:
        self._sinks: list[tuple[Account, CallbackSink]] = []
        self._purging: CallbackSink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._counted: dict[str, asyncio.TimerHandle] = {}
        self._changed: set[str] = set()
        self._purges: set[asyncio.Task[None]] = set()

    # --- life ---

    def start(self, node: NodeView) -> None:
        """Listen for requests, and watch sessions."""
        self._node = node
        self._info = ServerInfo(node)
        self._responder = Responder(node, self._info)
        self._system = node.account(node.system_account)
        self._listen_to_servers()
        for name in ACCOUNT:
            self._listen(self._system, f"$SYS.REQ.ACCOUNT.*.{name}", self._on_account_request)
        self._listen_to_purges()
        node.jetstream_switch.hooks.append(self._listen_to_purges)
        for account in list(node.accounts.values()):
            self._serve_account(account)
        node.account_hooks.append(self._serve_account)
        node.farewells.append(lambda: self._publish_event(f"$SYS.SERVER.{node.server_id}.LAMEDUCK"))
        node.departures.append(self._say_goodbye)
        node.sessions.observers.append(self)
        self._counts = AccountCounts(node, self._tell_connections)
        self._counts.start()
        self._subscribers = Subscribers(node, self._counts)
        self._subscribers.start()
        self._timer = node.loop.call_later(STATSZ_S, self._send_statsz)

    def _listen_to_purges(self) -> None:
        """Exactly where JetStream runs, and no cluster answers."""
        jetstream = self._node.jetstream
        if self._purging is not None:
            self._system.remove(self._purging)
            self._sinks.remove((self._system, self._purging))
            self._purging = None
        if jetstream is not None and not jetstream.clustered:
            self._listen(self._system, "$JS.API.ACCOUNT.PURGE.*", self._on_account_purge)
            self._purging = self._sinks[-1][1]

    async def _say_goodbye(self) -> None:
        """Tell everybody, while there are routes to tell it by."""
        self._publish_event(f"$SYS.SERVER.{self._node.server_id}.SHUTDOWN")
        self._node.kernel.turn()

    async def stop(self) -> None:
        """Stop answering."""
        if self._timer is not None:
            self._timer.cancel()
        self._counts.stop()
        self._responder.stop()
        self._subscribers.stop()
        for timer in self._counted.values():
            timer.cancel()
        for task in self._purges:
            task.cancel()
        for account, sink in self._sinks:
            account.remove(sink)
        self._sinks.clear()

    def ports(self) -> dict[str, list[str]]:
        """None of its own."""
        return {}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what monitoring knows."""
        return {}

    def _listen(self, account: Account, subject: str, callback: Callback) -> None:
        sink = CallbackSink(subject.encode(), callback)
        account.insert(sink)
        self._sinks.append((account, sink))

    # --- requests ---

    def _listen_to_servers(self) -> None:
        own = f"$SYS.REQ.SERVER.{self._node.server_id}"
        for prefix in ("$SYS.REQ.SERVER.PING", own):
            for name in SERVER:
                self._listen(self._system, f"{prefix}.{name}", self._on_server_request)
            self._listen(self._system, f"{prefix}.IDZ", self._on_id_request)
            self._listen(self._system, f"{prefix}.STATSZ", self._on_statsz_request)
        self._listen(self._system, "$SYS.REQ.SERVER.PING", self._on_statsz_request)
        for name in COMMANDS:
            self._listen(self._system, f"{own}.{name}", self._on_command)
        for name in system_store.REQUESTS:
            self._listen(self._system, f"{system_store.PREFIX}.{name}", self._on_store_request)

    def _on_server_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        answer = SERVER[_last(subject)]
        self._responder.respond(self._system, reply, headers, payload, answer)

    def _on_command(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        answer = COMMANDS[_last(subject)]
        self._responder.respond(self._system, reply, headers, payload, answer)

    def _on_store_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        name = subject.decode()[len(system_store.PREFIX) + 1 :]
        self._responder.respond(self._system, reply, headers, payload, system_store.REQUESTS[name])

    def _on_id_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        self._responder.respond_id(self._system, reply)

    def _on_statsz_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        own = f"$SYS.SERVER.{self._node.server_id}.STATSZ".encode()
        self._responder.respond_statsz(self._system, reply or own, payload, own=not reply)

    def _on_account_request(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        account, name = subject.decode("utf-8", "replace").split(".")[3:5]
        if name == "CONNS":
            # As nats-server, who has nothing to say is silent.
            if reply and self._node.sessions.registry.has_sessions(account):
                self._publish_connection_count(reply, account, own=False)
            return
        self._responder.respond(
            self._system,
            reply,
            headers,
            payload,
            lambda node, body: (
                every_account_answer(node, body)
                if (account, name) == (EVERY_ACCOUNT, "STATZ")
                else account_answer(node, account, name, body)
            ),
        )

    def _on_account_purge(
        self, subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
    ) -> None:
        """Delete all streams of an account; the node that the client is connected to answers."""
        from headwater.edge.jetstream.api.denial import CLIENT_OR_LEAF

        if getattr(sender, "kind", None) not in CLIENT_OR_LEAF:
            reply = b""
        task = self._node.loop.create_task(self._purge(_last(subject), reply))
        self._purges.add(task)
        task.add_done_callback(self._purges.discard)

    async def _purge(self, name: str, reply: bytes) -> None:
        answer: dict[str, Any] = {"type": _PURGED, "initiated": True}
        js = self._node.jetstream.accounts.get(name) if self._node.jetstream else None
        if js is not None:
            log.info("Purge request for account %s (streams: %d)", name, len(js.streams))
            try:
                await js.delete_all()
            except (errors.JetStreamError, StoreError) as error:
                refusal = errors.STREAM_DELETE.error(err=error).wire()
                answer = {"type": _PURGED, "error": refusal, "initiated": False}
        if reply:
            self._system.send(reply, msgspec.json.encode(answer))

    # --- requests from any account ---

    def _serve_account(self, account: Account) -> None:
        """What every account may ask about itself."""
        name = account.name

        def ask(what: str) -> Callback:
            def callback(
                subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any
            ) -> None:
                self._responder.respond(
                    account,
                    reply,
                    headers,
                    payload,
                    lambda node, body: account_answer(node, name, what, body),
                )

            return callback

        def user(subject: bytes, reply: bytes, headers: bytes, payload: bytes, sender: Any) -> None:
            if isinstance(sender, ClientConn):
                self._responder.respond(
                    account,
                    reply,
                    headers,
                    b"",
                    lambda node, body: _user(sender, account, headers, node.sessions.now_s()),
                )

        self._listen(account, "$SYS.REQ.USER.INFO", user)
        if account is not self._system:
            self._listen(account, "$SYS.REQ.ACCOUNT.PING.CONNZ", ask("CONNZ"))
            self._listen(account, "$SYS.REQ.SERVER.PING.CONNZ", ask("CONNZ"))
            self._listen(account, "$SYS.REQ.ACCOUNT.PING.STATZ", ask("STATZ"))

    # --- events ---

    def client_admitted(self, conn: Any) -> None:
        """Tell of a client that has logged in."""
        account = conn.account.name
        self._tell_connections(account)
        self._publish_event(
            f"$SYS.ACCOUNT.{account}.CONNECT",
            lambda: {**self._event("client_connect"), "client": client_info(self._node, conn)},
        )

    def client_refused(self, conn: Any, reason: str) -> None:
        """Tell of a login that failed."""
        self._publish_event(
            f"$SYS.SERVER.{self._node.server_id}.CLIENT.AUTH.ERR",
            lambda: self._ended(conn, reason),
        )

    def client_closed(self, conn: Any, reason: str) -> None:
        """Tell of a client that is gone."""
        account = conn.account.name if conn.account is not None else GLOBAL_ACCOUNT
        if conn.identity is not None:
            self._tell_connections(account)
        self._publish_event(f"$SYS.ACCOUNT.{account}.DISCONNECT", lambda: self._ended(conn, reason))

    def peer_invalid(self, peer: bytes, link: bytes, reason: str) -> None:
        """Tell that OCSP speaks against a certificate of a peer's chain."""
        self._publish_event(
            f"$SYS.SERVER.{self._node.server_id}.OCSP.PEER.LINK.INVALID",
            lambda: {
                **self._event("ocsp_peer_link_invalid"),
                "link": shown_certificate(link),
                "peer": shown_certificate(peer),
                "reason": reason,
            },
        )

    def peer_refused(self, kind: str, peer: bytes, reason: str) -> None:
        """Tell of a peer that was not admitted because of OCSP."""
        self._publish_event(
            f"$SYS.SERVER.{self._node.server_id}.OCSP.PEER.CONN.REJECT",
            lambda: {
                **self._event("ocsp_peer_reject"),
                "kind": kind,
                "peer": shown_certificate(peer),
                "reason": reason,
            },
        )

    def _event(self, kind: str) -> dict[str, Any]:
        kernel = self._node.kernel
        now = rfc3339(kernel.wall_ns())
        return {"type": _ADVISORY + kind, "id": draw_text(kernel.chance), "timestamp": now}

    def _ended(self, conn: Any, reason: str) -> dict[str, Any]:
        return {
            **self._event("client_disconnect"),
            "client": client_info(self._node, conn, stop_ns=self._node.kernel.wall_ns()),
            "sent": {"msgs": conn.in_msgs, "bytes": conn.in_bytes},
            "received": {"msgs": conn.out_msgs, "bytes": conn.out_bytes},
            "reason": reason,
        }

    def _tell_connections(self, account: str) -> None:
        """Tell how many there are now; a burst of changes is told at its begin and at its end."""
        if account in self._counted:
            self._changed.add(account)
            return
        self._send_connections(account)
        self._counted[account] = self._node.loop.call_later(
            COUNTS_S, self._count_again, account
        )

    def _count_again(self, account: str) -> None:
        del self._counted[account]
        if account in self._changed:
            self._changed.discard(account)
            self._tell_connections(account)

    def _send_connections(self, account: str) -> None:
        for subject in (
            f"$SYS.SERVER.ACCOUNT.{account}.CONNS",
            f"$SYS.ACCOUNT.{account}.SERVER.CONNS",
        ):
            self._publish_connection_count(subject.encode(), account)

    def _publish_connection_count(self, subject: bytes, account: str, own: bool = True) -> None:
        self._publish_event(
            subject,
            lambda: {**self._event("account_connections"), **account_stat(self._node, account)},
            own,
        )

    def _send_statsz(self) -> None:
        subject = f"$SYS.SERVER.{self._node.server_id}.STATSZ"
        self._publish_event(subject, lambda: {"statsz": statsz(self._node)})
        self._timer = self._node.loop.call_later(STATSZ_S, self._send_statsz)

    def _publish_event(
        self,
        subject: str | bytes,
        make: Callable[[], dict[str, Any]] | None = None,
        own: bool = True,
    ) -> None:
        """Send an event, if anybody wants it; `make` gives what it says beside the server, `own`
        says that the subject is not what somebody asked to be answered on."""
        name = subject.encode() if isinstance(subject, str) else subject
        if not self._system.has_interest(name):
            return
        if make is None:
            body = self._info.next()
        else:
            fields = make()
            keys = ("type", "id", "timestamp")
            head: dict[str, Any] = {key: fields.pop(key) for key in keys if key in fields}
            body = {**head, "server": self._info.next(), **fields}
        self._system.send(name, msgspec.json.encode(body), own=own)


def _last(subject: bytes) -> str:
    return subject.rpartition(b".")[2].decode()


def _user(conn: ClientConn, account: Account, block: bytes, now_s: float) -> dict[str, Any]:
    """What a user may know of itself. A request that came by way of another account tells no more
    of its name than the import shares."""
    fields = user_info(conn, now_s)
    if conn.account is not account:
        shared = object_in(get(block, b"Nats-Request-Info") or b"") or {}
        fields["user"] = shared.get("user", "")
    return fields
