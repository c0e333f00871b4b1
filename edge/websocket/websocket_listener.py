"""The WebSocket listener: TLS, HTTP upgrade, then an ordinary client session over a frame filter.

Until the upgrade has succeeded there is no session; a socket that does not get that far within
`handshake_timeout` is dropped.
"""

import contextlib
import logging
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.broker.listeners.listener import Listener, shown_hosts
from headwater.edge.broker.listeners.tls_filter import TLSFilter
from headwater.edge.conf.options import DEFAULT_HOST, Options
from headwater.edge.websocket.paths import LEAF_PATH, MQTT_PATH
from headwater.edge.websocket.websocket_filter import FilterStack, WebSocketFilter
from headwater.edge.websocket.websocket_request import RefusedError, Upgrade, UpgradeReader
from headwater.edge.wire.http_heads import HEAD_MAX, HeadRoom
from headwater.security.tls.contexts import cipher_suite

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView

log = logging.getLogger("headwater.broker")

READ_BYTES = 16 * 1024
TLS_BYTES_MAX = 64 * 1024
"""What a TLS handshake, with a client's chain of certificates, may take beside the request."""
LINGER_S = 0.5
"""How long what nobody reads may still come, so that no reset overtakes a refusal."""
HANDSHAKE_TIMEOUT_S = 2.0
"""Used when the configuration names none."""

Opened = Callable[["Handshake", Upgrade], None]


class Handshake:
    """One socket on its way to become a WebSocket."""

    def __init__(
        self, service: "WebSocketService", sock: socket.socket, address: tuple[Any, ...]
    ) -> None:
        self.service = service
        self.sock = sock
        self.address = address
        self.peer = f"{address[0]}:{address[1]}"
        self.cid = 0
        self.judging = False
        self._held = bytearray()
        self.tls: TLSFilter | None = None
        if service.context is not None:
            self.tls = TLSFilter(service.context, on_ready=self._on_secured)
        self._reader = UpgradeReader(
            service.options.websocket, secure=self.tls is not None, room=service.heads
        )
        self._room = HEAD_MAX + TLS_BYTES_MAX
        self._begin()
        service.pending.add(self)

    def _begin(self) -> None:
        """Read, for a bounded time."""
        loop = self.service.loop
        self._timer = loop.call_later(self.service.timeout, self._end, "handshake timeout")
        loop.add_reader(self.sock.fileno(), self._on_readable)

    # --- while what an authority says of the peer's certificate is awaited ---

    def _on_secured(self, session: TLSFilter) -> None:
        tls = self.service.node.options.websocket.tls
        wanted = tls.ocsp_peer if tls is not None else None
        self.service.node.judge_peer(self, session, wanted, lambda: None, "Client")

    @property
    def closed(self) -> bool:
        """Whether the socket is gone."""
        return self.sock.fileno() < 0

    def halt(self) -> None:
        """Read nothing until `proceed`; who judges has a time limit of its own."""
        self.judging = True
        self._timer.cancel()
        self.service.loop.remove_reader(self.sock.fileno())

    def proceed(self) -> None:
        """The peer may go on, with what came behind its handshake."""
        self.judging = False
        if self.closed:
            return
        self._begin()
        plain = bytes(self._held)
        self._held.clear()
        self._read_request(plain)

    def close(self, reason: str) -> None:
        """The peer may not go on."""
        self._end(reason)

    # --- bytes ---

    def _on_readable(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._room -= len(data)
        if not data:
            self._end("")
            return
        if self._room < 0:
            self._end("too many bytes before the handshake was complete")
            return
        try:
            plain = self._plain(data)
        except ConnectionError as error:
            self._flush_tls()
            self._end(str(error))
            return
        if self.judging:
            self._held += plain
            self._flush_tls()
        elif not self.closed:
            self._read_request(plain)

    def _read_request(self, plain: bytes) -> None:
        """Read on in the request; the upgrade when it is complete."""
        try:
            upgrade = self._reader.feed(plain) if plain else None
        except RefusedError as error:
            self._write(error.answer())
            self._linger(str(error))
            return
        self._flush_tls()
        if upgrade is not None:
            self._leave()
            self.service.opened(self, upgrade)

    def _plain(self, data: bytes) -> bytes:
        return data if self.tls is None else self.tls.receive(data)

    def _flush_tls(self) -> None:
        if self.tls is not None:
            self._write(b"")

    def _write(self, data: bytes) -> None:
        """Send a few hundred bytes on a socket that has just been opened: they always fit."""
        if self.tls is not None:
            data = self.tls.send(data)
        try:
            if data and self.sock.send(data) < len(data):
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            log.debug("%s:%s - websocket handshake: %s", *self.address[:2], error)

    def accept(self, upgrade: Upgrade, extra: dict[str, str]) -> "WebSocketFilter | FilterStack":
        """Answer the request; returns the filter for the connection that follows."""
        self._write(upgrade.answer(extra))
        frames = WebSocketFilter(compression=upgrade.compression, masked=upgrade.masked)
        frames.bound(self.service.options.max_payload, LOGIN_BYTES)
        return frames if self.tls is None else FilterStack(self.tls, frames)

    def refuse(self, error: RefusedError) -> None:
        """Answer with an error, after the request was complete."""
        self._write(error.answer())
        self._end(str(error))

    def _leave(self) -> None:
        self._timer.cancel()
        self._reader.end()
        self.service.pending.discard(self)
        self.service.loop.remove_reader(self.sock.fileno())

    def _end(self, text: str) -> None:
        if self.sock.fileno() < 0:
            return
        self._leave()
        if text:
            log.error("%s:%s - %s", self.address[0], self.address[1], text)
        self.sock.close()

    def _linger(self, text: str) -> None:
        """End what was refused, once the peer has stopped sending, or had time for that."""
        log.error("%s:%s - %s", self.address[0], self.address[1], text)
        if self.closed:
            return
        self._leave()
        loop = self.service.loop
        self.service.pending.add(self)
        self._timer = loop.call_later(LINGER_S, self._end, "")
        loop.add_reader(self.sock.fileno(), self._discard)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def _discard(self) -> None:
        try:
            more = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            more = b""
        if not more:
            self._end("")

    def drop(self) -> None:
        """Give up without a word."""
        self._end("")


class WebSocketService:
    """Listens for WebSocket clients, and for leaf connections that come the same way."""

    name = "websocket"

    def __init__(self, options: Options) -> None:
        self.options = options
        self.pending: set[Handshake] = set()
        self.heads = HeadRoom()
        self.timeout = options.websocket.handshake_timeout or HANDSHAKE_TIMEOUT_S
        self.paths: dict[str, Opened] = {}
        """Who takes an upgrade of a path, by its end; without an entry it is refused."""
        self._listener: Listener | None = None

    def start(self, node: "NodeView") -> None:
        """Bind and listen. Raises ListenError and TLSConfigError."""
        settings = self.options.websocket
        self.node = node
        self.loop = node.loop
        host = settings.host or DEFAULT_HOST
        self._listener = Listener(node.loop, host, settings.port, self._on_socket)
        self._listener.start()
        node.farewells.append(self.quiesce)
        log.info("Listening for websocket clients on %s", self.url(host))
        if self.context is None:
            log.warning("Websocket not configured with TLS. DO NOT USE IN PRODUCTION!")

    @property
    def context(self) -> Any:
        """The TLS context of connections that come now; None without TLS."""
        return self.node.tls.websocket

    def url(self, host: str) -> str:
        """This listener under a host name."""
        port = self._listener.port if self._listener is not None else 0
        return f"{'ws' if self.context is None else 'wss'}://{host}:{port}"

    def _on_socket(self, sock: socket.socket, address: tuple[Any, ...]) -> None:
        Handshake(self, sock, address)

    def opened(self, handshake: Handshake, upgrade: Upgrade) -> None:
        """A valid request came: make a session of it."""
        for ending in (LEAF_PATH, MQTT_PATH):
            if upgrade.path.endswith(ending):
                taker = self.paths.get(ending)
                if taker is not None:
                    taker(handshake, upgrade)
                else:
                    name = ending.removeprefix("/")
                    handshake.refuse(
                        RefusedError(HTTPStatus.NOT_FOUND, f"{name} websocket endpoint not enabled")
                    )
                return
        self._open_client(handshake, upgrade)

    def _open_client(self, handshake: Handshake, upgrade: Upgrade) -> None:
        sessions = self.node.sessions
        frames = handshake.accept(upgrade, self.options.websocket.headers)
        conn = sessions.accept(handshake.sock, handshake.address, kind="WEBSOCKET")
        self._describe(sessions.detail(conn), handshake, upgrade)
        conn.attach(handshake.sock, frames)
        sessions.greet(conn)
        self.node.kernel.turn()

    def _describe(self, detail: dict[str, Any], handshake: Handshake, upgrade: Upgrade) -> None:
        """Put what is special about this client where sessions look for it."""
        settings = self.options.websocket
        forwarded = upgrade.forwarded_for()
        if forwarded:
            detail["forwarded"] = forwarded
        detail["info"] = self._info()
        detail["fallback"] = self._credentials(upgrade.cookies())
        if settings.authorization is not None and settings.authorization.is_set():
            detail["auth"] = settings.authorization
        if settings.no_auth_user:
            detail["no_auth_user"] = settings.no_auth_user
        if handshake.tls is not None:
            session = handshake.tls.tls
            detail.update(
                secure=True,
                certificate=session.getpeercert(),
                tls_version=session.version(),
                tls_cipher=cipher_suite(session),
            )

    def _info(self) -> dict[str, Any]:
        """INFO fields that differ from those of the TCP listener."""
        settings = self.options.websocket
        fields: dict[str, Any] = {
            "host": settings.host or DEFAULT_HOST,
            "port": self._listener.port if self._listener is not None else settings.port,
        }
        if self.context is not None:
            fields["tls_required"] = fields["tls_available"] = True
        if settings.authorization is not None and settings.authorization.is_set():
            fields["auth_required"] = True
        return fields

    def _credentials(self, cookies: dict[str, str]) -> dict[str, str]:
        """CONNECT fields out of cookies, for clients that send none themselves."""
        settings = self.options.websocket
        names = {
            "jwt": settings.jwt_cookie,
            "user": settings.user_cookie,
            "pass": settings.pass_cookie,
            "auth_token": settings.token_cookie,
        }
        return {field: cookies[name] for field, name in names.items() if name and name in cookies}

    def quiesce(self) -> None:
        """Take no new connections."""
        if self._listener is not None:
            self._listener.close()
        for handshake in list(self.pending):
            handshake.drop()

    async def stop(self) -> None:
        """Stop listening; sessions end with the node's others."""
        self.quiesce()

    def ports(self) -> dict[str, list[str]]:
        """The listener's URL, for the ports file."""
        if self._listener is None:
            return {}
        return {"websocket": [self.url(host) for host in shown_hosts(self.options.websocket.host)]}

    def status(self) -> dict[str, Any]:
        """Nothing beyond what connections themselves show."""
        return {}
