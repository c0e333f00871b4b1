"""The handshake of a route, on the accepting and on the dialling side (NATS route protocol).

Sans-IO: a session is told what the peer said, and answers by queueing lines on the connection or
by closing it. The acceptor sends INFO first; the dialler answers with CONNECT and its own INFO,
unless it finds that a route to this peer is there already.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from headwater.edge.wire.json_objects import BAD_JSON
from headwater.security.errors import SecurityError

log = logging.getLogger("headwater.route")


class RouteInfo(msgspec.Struct, kw_only=True, omit_defaults=True):
    """INFO on a route. `ip` is the URL by which other nodes reach the peer."""

    server_id: str
    server_name: str = ""
    version: str = ""
    proto: int = 1
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    max_payload: int = 0
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    jetstream: bool = False
    ip: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: list[str] = []
    ws_connect_urls: list[str] = []
    ldm: bool = False
    headwater: int = 0
    """Version of the frames between nodes that the peer speaks; 0 for a server that has none."""


class RouteConnect(msgspec.Struct, kw_only=True, omit_defaults=True):
    """CONNECT on a route; `name` is the dialler's server id."""

    verbose: bool = msgspec.field(default=True)
    pedantic: bool = msgspec.field(default=True)
    echo: bool = msgspec.field(default=False)
    user: str = ""
    password: str = msgspec.field(default="", name="pass")
    tls_required: bool = False
    name: str = ""
    headers: bool = False
    cluster: str = ""
    cluster_dynamic: bool = False
    lang: str = ""


class Registry(Protocol):
    """Where sessions turn to; see `headwater.hub.routes.routes`."""

    server_id: str
    server_name: str

    def own_info(self) -> RouteInfo:
        """What this node says of itself."""

    def judge(self, conn: Any, connect: RouteConnect, done: Callable[[Any], None]) -> None:
        """Call `done` with an identity when a dialler's credentials are right, or AuthError."""

    def agree_on_cluster(self, name: str, dynamic: bool) -> bool:
        """Whether the peer's cluster is this node's; a made-up name gives way."""

    def has(self, server_id: str) -> bool:
        """Whether there is a route to that node."""

    def register(self, conn: Any) -> bool:
        """Begin to use a route; False when it is superfluous."""

    def heard_of(self, info: RouteInfo) -> None:
        """A peer tells of another node of the cluster."""

    def peer_changed(self, conn: Any, info: RouteInfo) -> None:
        """A peer tells something new of itself."""


class RouteSession:
    """One side of one route. `credentials` are those that a dialler presents."""

    def __init__(
        self,
        registry: Registry,
        place: tuple[str, int],
        *,
        solicited: bool = False,
        credentials: tuple[str, str] = ("", ""),
    ) -> None:
        self.registry = registry
        self.place = place
        """IP address and port of the peer."""
        self.solicited = solicited
        self.credentials = credentials
        self.peer = RouteInfo(server_id="")
        self.implicit = False
        self.registered = False
        self._connected = False
        self.told: RouteConnect | None = None
        """How a peer that dialled has introduced itself."""

    def label(self, conn: Any) -> str:
        """How log lines name the route."""
        return f"{self.place[0]}:{self.place[1]} - rid:{conn.cid}"

    def greet(self, conn: Any) -> None:
        """The accepting side speaks first."""
        conn.queue(info_line(self.registry.own_info()))

    def got_connect(self, conn: Any, payload: bytes) -> None:
        """A dialler introduces itself."""
        if self.solicited or self._connected:
            conn.fail("Unknown Protocol Operation", "Protocol Violation")
            return
        try:
            connect = msgspec.json.decode(payload, type=RouteConnect)
        except BAD_JSON:
            conn.fail("Unknown Protocol Operation", "Parse Error")
            return
        if connect.lang:
            conn.fail("attempted to connect to route port", "Incorrect Port")
        else:
            self.registry.judge(
                conn, connect, lambda outcome: self._decided(conn, connect, outcome)
            )

    def _decided(self, conn: Any, connect: RouteConnect, outcome: Any) -> None:
        if isinstance(outcome, SecurityError):
            log.error("%s - authentication error: %s", self.label(conn), outcome)
            conn.fail("Authorization Violation", "Authentication Failure")
        elif self._same_cluster(conn, connect.cluster, connect.cluster_dynamic):
            self._connected = True
            self.told = connect
            conn.headers = connect.headers

    def _same_cluster(self, conn: Any, name: str, dynamic: bool) -> bool:
        if self.registry.agree_on_cluster(name, dynamic):
            return True
        log.error("%s - Rejecting connection, cluster name %r conflicts", self.label(conn), name)
        conn.fail("cluster name from remote server conflicts", "Cluster Name Conflict")
        return False

    def got_info(self, conn: Any, payload: bytes) -> None:
        """The peer tells of itself, or of another node."""
        try:
            info = msgspec.json.decode(payload, type=RouteInfo)
        except BAD_JSON:
            conn.fail("Unknown Protocol Operation", "Parse Error")
            return
        if conn.ready:
            if info.server_id == self.peer.server_id:
                self.registry.peer_changed(conn, info)
            elif info.server_id:
                self.registry.heard_of(info)
            return
        self._first_info(conn, info)

    def _first_info(self, conn: Any, info: RouteInfo) -> None:
        registry = self.registry
        self.peer = info
        if info.server_id == registry.server_id:
            conn.close("Duplicate Route")
        elif not self.solicited and not self._connected:
            conn.fail("Authorization Violation", "Authentication Failure")
        elif not self.solicited and info.server_name == registry.server_name:
            log.error("%s - Remote server has a duplicate name", self.label(conn))
            conn.close("Duplicate Server Name")
        elif not self._same_cluster(conn, info.cluster, info.cluster_dynamic):
            return
        elif self.solicited and registry.has(info.server_id):
            conn.close("Duplicate Route")
        else:
            conn.headers = conn.headers and info.headers
            if self.solicited:
                self._introduce(conn)
            self.registered = registry.register(conn)
            if not self.registered:
                conn.close("Duplicate Route")

    def _introduce(self, conn: Any) -> None:
        own = self.registry.own_info()
        user, password = self.credentials
        connect = RouteConnect(
            verbose=False,
            pedantic=False,
            echo=True,
            user=user,
            password=password,
            tls_required=own.tls_required,
            name=own.server_id,
            headers=own.headers,
            cluster=own.cluster,
            cluster_dynamic=own.cluster_dynamic,
        )
        conn.queue(b"CONNECT " + msgspec.json.encode(connect) + b"\r\n" + info_line(own))

    def got_error(self, conn: Any, text: bytes) -> None:
        """The peer complains; it usually ends the route itself."""
        log.error("%s - Route Error %r", self.label(conn), text.decode("utf-8", "replace"))


def info_line(info: RouteInfo) -> bytes:
    """The protocol line for `info`."""
    return b"INFO " + msgspec.json.encode(info) + b" \r\n"
