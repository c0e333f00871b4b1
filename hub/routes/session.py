"""The handshake of a route, on the accepting and on the dialling side (NATS route protocol).

Sans-IO: a session is told what the peer said, and answers by queueing lines on the connection or
by closing it. The acceptor sends INFO first; the dialler answers with CONNECT and its own INFO, in
which it names the account or the place in the pool that the route is for, unless it finds that
there is no place left. When both ends compress, each tells its mode in one more INFO: the dialler's
is its last plain line, the acceptor's the first thing in its compressed stream.
"""

import logging
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from headwater.edge.conf.options import CompressionOptions
from headwater.edge.wire.json_objects import BAD_JSON
from headwater.federation.leaf.compression import AUTO, OFF, compress, normal, retuned
from headwater.security.errors import SecurityError

log = logging.getLogger("headwater.route")


GOSSIP_DISABLED = 1
GOSSIP_OVERRIDE = 2
"""Of `gossip_mode`: whoever connects after an INFO tells nobody of it, or does although it heard of
the node from another one; 0 is the usual thing between the two (NATS route protocol)."""


class SubjectLists(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a node lets over its routes in one direction, as it says so in INFO."""

    allow: list[str] | None = None
    deny: list[str] | None = None


class RouteInfo(msgspec.Struct, kw_only=True, omit_defaults=True, rename={"imports": "import"}):
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
    imports: SubjectLists | None = None
    export: SubjectLists | None = None
    route_pool_size: int = 0
    """How many shared routes the node wants; 0 for one that knows nothing of pools."""
    route_pool_idx: int = 0
    """The place of this route in the pool, as the dialler has chosen it."""
    route_account: str = ""
    """The account that has this route for itself."""
    route_acc_add_reqid: str = ""
    """With `route_account`: it gets a route of its own from now on. The answer names none."""
    compression: str = ""
    gossip_mode: int = 0
    lnoc: bool = False
    """Understands LS+ and LMSG, which name the cluster behind a leaf link that they are of."""
    lnocu: bool = False
    """The same of LS-."""
    headwater: int = 0
    """Version of what nodes say to each other; 0 for a server that says nothing."""
    fence: int = 0
    """Asks for an INFO with the same number in `fenced`, which follows all that was said before."""
    fenced: int = 0
    hold: str = ""
    """Asks that producers of an account wait, for all messages or, behind a space, of a subject,
    for this route. Its bytes are characters here."""
    let_go: str = ""
    """The same may go on."""


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
    compression: CompressionOptions

    def own_info(self, session: "RouteSession", compression: str) -> RouteInfo:
        """What this node says of itself on one route."""

    def agree(self, session: "RouteSession", peer: str) -> str:
        """This end's mode of compression. Raises ValueError for a peer's that is unknown."""

    def judge(self, conn: Any, connect: RouteConnect, done: Callable[[Any], None]) -> None:
        """Call `done` with an identity when a dialler's credentials are right, or AuthError."""

    def agree_on_cluster(self, name: str, dynamic: bool) -> bool:
        """Whether the peer's cluster is this node's; a made-up name gives way."""

    def rival(self, conn: Any) -> Any:
        """The route that has the place of a new one, when only the peer knows which one stays."""

    def register(self, conn: Any) -> bool:
        """Begin to use a route; False when it is superfluous, or was refused."""

    def heard_of(self, info: RouteInfo) -> None:
        """A peer tells of another node of the cluster."""

    def peer_changed(self, conn: Any, info: RouteInfo) -> None:
        """A peer tells something new of itself."""

    def account_moves(self, conn: Any, info: RouteInfo) -> None:
        """A peer gives an account a route of its own."""

    def fenced(self, conn: Any, number: int) -> None:
        """A peer has heard all that was said before a fence."""


class RouteSession:
    """One side of one route. `credentials` are those that a dialler presents."""

    def __init__(
        self,
        registry: Registry,
        address: tuple[str, int],
        *,
        solicited: bool = False,
        credentials: tuple[str, str] = ("", ""),
        account: str = "",
    ) -> None:
        self.registry = registry
        self.address = address
        """IP address and port of the peer."""
        self.solicited = solicited
        self.credentials = credentials
        self.peer = RouteInfo(server_id="")
        self.dialer: Any = None
        """What has dialled it; None when the peer has."""
        self.implicit = False
        self.gossip = 0
        """The `gossip_mode` under which this node has heard of the peer."""
        self.account = account
        """The account that has the route for itself; empty when it is shared."""
        self.pool_index = 0
        """Which one of the shared routes it is."""
        self.opened_ns = 0
        self.compression = OFF
        """What this end does to what it sends."""
        self.registered = False
        self.accepted = False
        """Whether the peer has answered over the route: it uses it too."""
        self.on_proven: Callable[[], None] | None = None
        """Called when the peer has answered over a route that is in use: it has accepted it."""
        self.on_resolved: Callable[[], None] | None = None
        """Called when the peer has answered over the route, or it has ended: another route, to the
        same place, waits for that."""
        self._negotiated = False
        self._introduced = False
        self._connected = False
        self.connect: RouteConnect | None = None
        """How a peer that dialled has introduced itself."""

    def label(self, conn: Any) -> str:
        """How log lines name the route."""
        return f"{self.address[0]}:{self.address[1]} - rid:{conn.cid}"

    def greet(self, conn: Any) -> None:
        """The accepting side speaks first."""
        registry = self.registry
        conn.queue(info_line(registry.own_info(self, registry.compression.mode)))

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
            self.connect = connect
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
            self._news(conn, info)
        else:
            self._first_info(conn, info)

    def _news(self, conn: Any, info: RouteInfo) -> None:
        registry = self.registry
        if info.fence:
            answer = RouteInfo(server_id=registry.server_id, fenced=info.fence)
            conn.queue(info_line(answer))
        elif info.fenced:
            registry.fenced(conn, info.fenced)
        elif info.hold or info.let_go:
            self._change_held(conn, info)
        elif info.route_acc_add_reqid:
            registry.account_moves(conn, info)
        elif info.server_id == self.peer.server_id:
            registry.peer_changed(conn, info)
        elif info.server_id:
            registry.heard_of(info)

    def _change_held(self, conn: Any, info: RouteInfo) -> None:
        try:
            if info.hold:
                conn.halts.hold(info.hold.encode("latin-1"))
            else:
                conn.halts.let_go(info.let_go.encode("latin-1"))
        except UnicodeEncodeError:
            conn.fail("Unknown Protocol Operation", "Parse Error")

    def tell_halt(self, conn: Any, key: bytes, over: bool) -> None:
        """Ask the peer to hold something back, or to let it go, ahead of what waits."""
        said = RouteInfo(server_id=self.registry.server_id)
        if over:
            said.let_go = key.decode("latin-1")
        else:
            said.hold = key.decode("latin-1")
        conn.urge(info_line(said))

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
        elif not self._compresses(conn, info):
            self._join(conn, info)

    def _compresses(self, conn: Any, info: RouteInfo) -> bool:
        """Whether the peer's next INFO is awaited, since both ends compress from now on."""
        registry = self.registry
        if self._negotiated or registry.compression.mode == OFF or not info.compression:
            return False
        self._negotiated = True
        try:
            mode = registry.agree(self, info.compression)
        except ValueError as error:
            conn.fail(str(error), "Protocol Violation")
            return True
        if mode == OFF:
            return False
        self.compression = mode
        shown = AUTO if registry.compression.mode == AUTO else mode
        line = info_line(registry.own_info(self, shown))
        if self.solicited:
            line = self._connect_line() + line
            self._introduced = True
        compress(conn, mode, line if self.solicited else b"").trusted = True
        if not self.solicited:
            conn.queue(line)
        return True

    def _join(self, conn: Any, info: RouteInfo) -> None:
        conn.headers = conn.headers and info.headers
        if not self.solicited:
            self.account = info.route_account
            self.pool_index = info.route_pool_idx
        elif not self._introduced:
            conn.queue(self._connect_line())
        self._register(conn)

    def _register(self, conn: Any) -> None:
        rival = self.registry.rival(conn)
        if rival is not None:
            # What of the two the peer stays with, it says on the other one.
            conn.halt()
            rival.session.on_resolved = lambda: self._resolved(conn)
            return
        self.registered = self.registry.register(conn)
        if not self.registered and not conn.closed:
            conn.close("Duplicate Route")

    def _resolved(self, conn: Any) -> None:
        """The peer uses the route that stood in the way, or has ended it."""
        if not conn.closed:
            self._register(conn)
            conn.proceed()

    def resolve(self) -> None:
        """The peer has answered over this route, or it has ended."""
        resolved, self.on_resolved = self.on_resolved, None
        if resolved is not None:
            resolved()

    def _connect_line(self) -> bytes:
        own = self.registry.own_info(self, "")
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
        return b"CONNECT " + msgspec.json.encode(connect) + b"\r\n"

    def shown_compression(self) -> str:
        """As /routez has it: a peer that never heard of compression does not support it."""
        known = self.peer.compression and normal(self.peer.compression)
        return self.compression if known else "not supported"

    def got_pong(self, conn: Any) -> None:
        """A round trip has been measured."""
        self.compression = retuned(conn, self.registry.compression, self.compression)
        self.accepted = self.registered
        self.resolve()
        proven, self.on_proven = self.on_proven, None
        if proven is not None:
            proven()

    def got_error(self, conn: Any, text: bytes) -> None:
        """The peer complains; it usually ends the route itself."""
        log.error("%s - Route Error %r", self.label(conn), text.decode("utf-8", "replace"))


def info_line(info: RouteInfo) -> bytes:
    """The protocol line for `info`."""
    return b"INFO " + msgspec.json.encode(info) + b" \r\n"
