"""The soliciting side of leaf links: dials a hub, and dials again for ever."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from headwater.edge.conf.options import LeafRemoteOptions
from headwater.edge.logging.few_lines import FewLines
from headwater.edge.ports.draws import draw_between
from headwater.federation.dialling.credentials import LeafUrl, credential_fields, parse_url
from headwater.federation.dialling.http_proxy import ask_proxy, proxy_address
from headwater.federation.leaf.compression import OFF, normal_options
from headwater.federation.leaf.leaf_conn import LeafConn
from headwater.federation.leaf.leaf_links import LeafLinks, pace
from headwater.federation.leaf.leaf_session import SpokeSession, connect_line
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.errors import SecurityError

if TYPE_CHECKING:
    from headwater.federation.dialling.client_tls import ClientTLS
    from headwater.federation.dialling.hub_proofs import HubProofs

log = logging.getLogger("headwater.leaf")

TIMEOUT_MAX_S = 30.0
"""Time limits double with every failure up to this: a slow link gets through in the end."""

CONNECT_MAX_S = 8.0
"""The same of a TCP connect: the system asks at 0, 1, 3 and 7 s, and then ever more seldom. So a
network that comes back is used within four seconds."""

RECONNECT_MAX_S = 2.0
"""A configured pause grows with failures up to this, unless it is longer itself. A nats-server that
finds no link when it looks after its mirrors waits for 30 s: each second counts."""

ADMIT_TIMEOUT_S = 10.0
"""Time from the hub's first INFO to the admission of the link, at least."""

FOUND_PAUSE_S = 0.05
"""Pause before the next of several addresses that were found is tried."""

TRIED_ONE_BY_ONE = 4
"""Beyond this many addresses that were found, all are asked for their proof side by side."""

DISCOVERED_MAX = 64
"""Addresses learned from hubs that are kept for one remote."""

REPEAT_LOG_S = 60.0
"""The same failure is logged this often."""

FOUND_LINES = 4
"""Failures with addresses that were found which are logged in each `REPEAT_LOG_S`; others are
counted, as anybody can announce any number of addresses."""

DISCOVER_SCHEME = "discover"


HOW_TO_DIAL = frozenset((
    "no_randomize", "websocket_compression", "websocket_no_masking", "first_info_timeout",
    "dial_timeout", "proxy_url", "proxy_user", "proxy_password", "proxy_timeout",
    "ignore_discovered_servers", "jetstream_cluster_migrate", "jetstream_cluster_migrate_delay",
))  # fmt: skip
"""Options that a link which is up does not stand by."""

LIVE = frozenset(("compression", "rate"))
"""Options that a link which is up goes by at once."""

RemoteIdentity = tuple[tuple[str, ...], str, str, str]


class Finder(Protocol):
    """Where addresses for `discover://` URLs come from; see `federation/dialling/discovery.py`."""

    def urls(self, cluster: str) -> list[str]:
        """Leaf URLs of the hubs found so far that carry this cluster label."""


class LeafRemote:
    """One solicited link of a node."""

    def __init__(
        self, links: LeafLinks, options: LeafRemoteOptions, finder: Finder | None = None
    ) -> None:
        self.links = links
        self.options = options
        self.account = options.account or GLOBAL_ACCOUNT
        self._adopt(options)
        self.state = "waiting"
        """"waiting", "connecting", "handshake", "up" or "stopped"."""
        self.last_error = ""
        self.failures = 0
        self.connects = 0
        self._finder = finder
        self._learned: list[tuple[str, bool]] = []
        self._url: LeafUrl | None = None
        self._position = 0
        self._turn = 0
        """Whose turn it is when many hubs were found: a configured address, or all of those."""
        self._proofs: HubProofs | None = None
        self._proven = ""
        """Which of many addresses found has proven itself for this try."""
        self._task: asyncio.Task[None] | None = None
        self._conn: LeafConn | None = None
        self._pause: asyncio.Event | None = None
        self._logged: tuple[str, float] = ("", 0.0)
        self._found_lines = FewLines(FOUND_LINES, REPEAT_LOG_S)

    def _adopt(self, options: LeafRemoteOptions) -> None:
        """What sessions ask a remote for."""
        self.hub = options.hub
        self.isolated = options.local_isolation
        self.compression = normal_options(options.compression)
        self.deny_imports = options.deny_imports
        self.deny_exports = options.deny_exports

    def identity(self) -> RemoteIdentity:
        """What tells this remote from others of the node."""
        return remote_identity(self.options)

    # --- life ----------------------------------------------------

    def start(self) -> None:
        """Begin to dial in the background."""
        self._task = self.links.node.loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop dialling. The link itself is closed with all others."""
        self.state = "stopped"
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def end(self) -> None:
        """Stop dialling, and close the link: the configuration has this remote no more."""
        self.state = "stopped"
        if self._task is not None:
            self._task.cancel()
        self.links.failures.pop(self, None)
        if self._conn is not None:
            self._conn.close("Client Closed")

    def reload(self, options: LeafRemoteOptions) -> None:
        """Go by other options of the same remote. The link is made anew when it stands by what has
        changed; what only says how to dial holds from the next time on."""
        old, self.options = self.options, options
        names = options.__struct_fields__
        changed = [name for name in names if getattr(old, name) != getattr(options, name)]
        if not changed:
            return
        log.info("Reloaded: LeafNode Remote %s: %s", self.label(), ", ".join(changed))
        self._adopt(options)
        if set(changed) - HOW_TO_DIAL - LIVE:
            self._redial()
            return
        if "rate" in changed and self._conn is not None:
            pace(self._conn.sock, options.rate)
        if "compression" in changed and self._conn is not None:
            if self._conn.ready:
                self.links.recompress(self._conn)
            else:
                self._redial()
        elif self.state != "up":
            self.wake()

    def _redial(self) -> None:
        """Begin anew, with nothing learned and no failures."""
        self.end()
        self.state = "waiting"
        self.failures = self._position = self._turn = 0
        self._learned = []
        self._url = self._proofs = None
        self.start()

    def wake(self) -> None:
        """New addresses are known: try at once instead of after the pause."""
        if self._pause is not None:
            self._pause.set()

    async def _run(self) -> None:
        while True:
            delay = await self._attempt()
            self.state = "waiting"
            self._pause = asyncio.Event()
            try:
                async with asyncio.timeout(delay):
                    await self._pause.wait()
            except TimeoutError:
                self._pause = None

    async def _attempt(self) -> float:
        """Dial once and live with the link until it ends; returns the pause before the next try."""
        self._proven = ""
        url = await self._proven_url() if self._many_found() else self._next_url()
        if url is None:
            many = self._many_found()
            self._complain("none of the hubs found proves itself" if many else "no hub found yet")
            return self._delay()
        self._url = url
        if url.found and not (self._proves() or self.options.insecure_discovery):
            self._complain("a hub was found that does not have to prove itself: set tls with a "
                           "server_name, hub_pins, or insecure_discovery")
            return self._delay()
        self.state = "connecting"
        try:
            sock = await self._dial(url)
        except OSError as error:
            self._count_failure()
            self._complain(f"Error trying to connect as leafnode to remote server {url.text!r}: "
                           f"{_reason(error)}")
            return self._delay(growing=False)
        try:
            session = SpokeSession(self.links, f"{url.host}:{url.port}", self)
            conn = self.links.open(session, sock, self.options.rate)
        except OSError as error:
            sock.close()
            self._count_failure()
            self._complain(f"Connection to {url.text!r} was lost at once: {_reason(error)}")
            return self._delay()
        return await self._live(conn, session, sock)

    def _count_failure(self) -> None:
        self.failures += 1
        if self._proofs is not None and self._proven:
            self._proofs.let_down(self._proven)

    async def _live(self, conn: LeafConn, session: SpokeSession, sock: socket.socket) -> float:
        ended: asyncio.Future[str] = self.links.node.loop.create_future()
        self.links.when_closed(conn, lambda reason: finish(ended, reason))
        self._conn = conn
        self.state = "handshake"
        watch = self.links.node.loop.call_later(self._info_timeout(), self._no_info, conn, session)
        try:
            if self._url is not None and self._url.websocket:
                conn.attach(sock)
                self._open_websocket(conn, self._url)
                self.links.node.kernel.kick()
            elif self.options.tls is not None and self.options.tls.handshake_first:
                conn.attach(sock)
                self._start_tls(conn)
                self.links.node.kernel.kick()
            else:
                conn.attach(sock)
            reason = await ended
        except SecurityError as error:
            conn.close("TLS Handshake Failure")
            reason = str(error)
        finally:
            watch.cancel()
            self._conn = None
        if self.state != "up":
            self._count_failure()
        text = session.last_error or reason
        self._complain(f"Leafnode link to {self.label()} ended: {text}")
        return max(self._delay(), session.retry_delay)

    def _no_info(self, conn: LeafConn, session: SpokeSession) -> None:
        """A time limit of the handshake has passed."""
        if conn.closed or conn.ready:
            return
        if session.greeted:
            conn.fail("Stale Leaf Node Connection - Closing", "Stale Connection")
        else:
            session.last_error = "the hub did not send its INFO in time"
            conn.close("Stale Connection")

    def _rounds(self) -> int:
        """How often every address has failed. Of those that were found many may be no hubs, and
        must not use up the time of the one that is."""
        if self._url is None or not self._url.found:
            return self.failures
        return self.failures // max(1, len(self.candidates()))

    def _delay(self, *, growing: bool = True) -> float:
        """Seconds before the next try: longer each time for a hub that costs itself and others a
        handshake, the same where nobody listens."""
        if self._url is not None and self._url.found and self._position % max(
            1, len(self.candidates())
        ):
            return FOUND_PAUSE_S
        base = max(0.05, self.links.node.options.leaf.reconnect)
        rounds = min(self._rounds(), 16) if growing else 0
        grown = min(base * 1.5**rounds, max(base, RECONNECT_MAX_S))
        return grown * draw_between(self.links.node.kernel.chance, 0.75, 1.25)

    def _info_timeout(self) -> float:
        base = max(self.options.first_info_timeout, 0.1) * 2.0 ** min(self._rounds(), 8)
        limit = float(min(base, TIMEOUT_MAX_S))
        return limit * 2 if self._url is not None and self._url.found else limit + ADMIT_TIMEOUT_S

    def _complain(self, text: str) -> None:
        """Log a failure; the same one again only after a while."""
        self.last_error = text
        self.links.failures[self] = (self.account, text)
        now = self.links.node.loop.time()
        if count := self._found_lines.left_out(now):
            log.error("%d further failures with addresses that discovery found", count)
        if text == self._logged[0] and now - self._logged[1] <= REPEAT_LOG_S:
            return
        if self._url is None or not self._url.found or self._found_lines.has_room(now):
            self._logged = (text, now)
            log.error("%s", text)

    def label(self) -> str:
        """How log lines name the remote, without its password."""
        return repr(self._url.text) if self._url is not None else "an unknown hub"

    def _proves(self) -> bool:
        """Whether a hub that was found can prove itself to this remote."""
        options = self.options
        by_name = options.tls is not None and options.tls.server_name and not options.tls.insecure
        return bool(by_name or options.hub_pins)

    # --- addresses ----------------------------------------------------

    def candidates(self) -> list[tuple[str, bool]]:
        """Every URL that may be dialled now, configured ones first, and whether discovery brought
        it."""
        known: list[tuple[str, bool]] = []
        for url in self.options.urls:
            if url.startswith(f"{DISCOVER_SCHEME}://"):
                known.extend((each, True) for each in self._discovered(url))
            else:
                known.append((url, False))
        if not self.options.urls and self._finder is not None:
            known.extend((each, True) for each in self._finder.urls(""))
        present = {url for url, _ in known}
        return known + [each for each in self._learned if each[0] not in present]

    def _discovered(self, url: str) -> list[str]:
        """URLs found for `discover://[user[:password]@]<cluster label>`."""
        if self._finder is None:
            return []
        rest = url.partition("://")[2].strip("/")
        credentials, at, label = rest.rpartition("@")
        prefix = f"{credentials}{at}"
        return [found.replace("://", f"://{prefix}", 1) for found in self._finder.urls(label)]

    def _next_url(self) -> LeafUrl | None:
        urls = self.candidates()
        if not urls:
            return None
        if self._position == 0 and not self.options.no_randomize and len(self.options.urls) > 1:
            self._position = self.links.node.kernel.chance.below(len(urls))
        url, found = urls[self._position % len(urls)]
        self._position += 1
        try:
            return msgspec.structs.replace(parse_url(url), found=found)
        except ValueError as error:
            self._complain(str(error))
            return None

    def learn_urls(self, urls: Any) -> None:
        """Keep the addresses that a hub tells of; they take this remote's user and password."""
        if self.options.ignore_discovered_servers or not isinstance(urls, list):
            return
        current = self._url
        if current is None or current.websocket:
            # What a hub tells are addresses of its other listener.
            return
        known = {_host_port(url) for url in self.options.urls}
        user = f"{current.user}:{current.password}@" if current.password else (
            f"{current.user}@" if current.user else ""
        )
        self._learned = [
            (f"{current.scheme}://{user}{text}", current.found)
            for text in urls[:DISCOVERED_MAX]
            if isinstance(text, str) and _host_port(text) not in known
        ]

    def _many_found(self) -> bool:
        """Whether so many hubs were found that trying one after the other takes too long."""
        found = sum(found for _, found in self.candidates())
        return found > TRIED_ONE_BY_ONE and self._proves()

    async def _proven_url(self) -> LeafUrl | None:
        """The next configured address, or one of those found whose hub proves itself."""
        urls = self.candidates()
        known = [url for url, found in urls if not found]
        self._position = 0
        self._turn = (self._turn + 1) % (len(known) + 1)
        if self._turn < len(known):
            return parse_url(known[self._turn])
        if self._proofs is None:
            from headwater.federation.dialling.hub_proofs import HubProofs

            self._proofs = HubProofs(self.options, self._open)
        self.state = "connecting"
        proven = await self._proofs.first([url for url, found in urls if found])
        if proven is None:
            return None
        self._proven = proven
        return msgspec.structs.replace(parse_url(proven), found=True)

    async def _dial(self, url: LeafUrl) -> socket.socket:
        """A connected socket. Raises OSError."""
        loop = self.links.node.loop
        configured = self.options.dial_timeout or self.links.node.options.leaf.dial_timeout
        timeout = min(max(configured, 0.1) * 2 ** min(self._rounds(), 8), TIMEOUT_MAX_S)
        options = self.options
        if not options.proxy_url:
            return await self._open(url.host, url.port, timeout)
        sock = await self._open(*proxy_address(options.proxy_url), timeout)
        asked = ask_proxy(
            loop, sock, url.host, url.port, options.proxy_user, options.proxy_password
        )
        try:
            async with asyncio.timeout(options.proxy_timeout or timeout):
                await asked
        except TimeoutError:
            sock.close()
            raise OSError("the proxy did not answer") from None
        except BaseException:
            sock.close()
            raise
        return sock

    async def _open(self, host: str, port: int, timeout: float) -> socket.socket:
        """A socket connected to one of the addresses of `host`. Raises OSError."""
        loop = self.links.node.loop
        async with asyncio.timeout(timeout):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        last: OSError = OSError("the name has no address")
        for family, kind, protocol, _, address in found:
            sock = socket.socket(family, kind, protocol)
            sock.setblocking(False)
            try:
                async with asyncio.timeout(min(timeout, CONNECT_MAX_S)):
                    await loop.sock_connect(sock, address)
                return sock
            except TimeoutError:
                sock.close()
                last = OSError("i/o timeout")
            except OSError as error:
                sock.close()
                last = error
            except asyncio.CancelledError:
                sock.close()
                raise
        raise last

    # --- what the session asks for ----------------------------------------------------

    def secure(self, conn: LeafConn, required: bool, then: Callable[[], None]) -> None:
        """Begin TLS if this remote or the hub wants it and it has not begun; then go on."""
        wanted = required or self.options.tls is not None or bool(self.options.hub_pins)
        wanted = wanted or (self._url is not None and self._url.secure)
        if wanted and conn.filter is None:
            self._start_tls(conn, then)
        else:
            then()

    def _open_websocket(self, conn: LeafConn, url: LeafUrl) -> None:
        """Have a link go through a WebSocket, under TLS before anything else if that is wanted."""
        from headwater.edge.websocket.websocket_filter import FilterStack
        from headwater.federation.leaf.leaf_websocket import DialledWebSocket

        node = self.links.node
        frames = DialledWebSocket(
            url,
            node.kernel.chance.randbytes(16),
            deflate=self.options.websocket_compression,
            max_payload=node.options.max_payload,
        )
        self.links.detail(conn)["websocket"] = True
        wanted = url.secure or self.options.tls is not None or bool(self.options.hub_pins)
        secured = self._tls(conn, lambda: conn.queue(b"")) if wanted else None
        conn.use_filter(frames if secured is None else FilterStack(secured, frames))
        conn.queue(b"")

    def _start_tls(self, conn: LeafConn, then: Callable[[], None] | None = None) -> None:
        conn.use_filter(self._tls(conn, then))
        conn.queue(b"")

    def _tls(self, conn: LeafConn, then: Callable[[], None] | None) -> "ClientTLS":
        from headwater.federation.dialling.client_tls import dialled_tls

        def ready(session: Any) -> None:
            tls = self.options.tls
            wanted = tls.ocsp_peer if tls is not None else None
            after = then or (lambda: None)
            self.links.node.judge_peer(conn, session, wanted, after, "Leafnode")

        host = self._url.host if self._url is not None else None
        return dialled_tls(self.options.tls, host, self.options.hub_pins, ready)

    def connect_line(self, nonce: str, headers: bool, compression: str) -> bytes:
        """The CONNECT line of this remote. Raises SecurityError."""
        if self._url is None:
            raise SecurityError("not dialled yet")
        node = self.links.node
        fields: dict[str, Any] = {
            "server_id": node.server_id,
            "name": node.server_name,
            "domain": node.facts.domain,
            "cluster": node.options.cluster.name or node.server_name,
            "headers": headers,
            "compress_mode": "" if compression == OFF else compression,
            "jetstream": node.account(self.account).jetstream is not None,
            "is_hub": self.hub,
            "deny_pub": self.deny_imports,
            "isolate": self.options.request_isolation,
            "remote_account": self.account,
            **credential_fields(self.options, self._url, nonce),
        }
        return connect_line(fields)

    def established(self) -> None:
        """The link is up."""
        self.state = "up"
        self.failures = 0
        self.connects += 1
        self.last_error = ""
        self.links.failures.pop(self, None)
        self._logged = ("", 0.0)

    def status(self) -> dict[str, Any]:
        """Facts for monitoring."""
        return {
            "account": self.account,
            "url": self._url.text if self._url is not None else "",
            "state": self.state,
            "connects": self.connects,
            "failures": self.failures,
            "last_error": self.last_error,
            "link": self._conn.cid if self._conn is not None and self._conn.ready else 0,
        }


def finish(ended: "asyncio.Future[str]", reason: str) -> None:
    """Say once why a link has ended."""
    if not ended.done():
        ended.set_result(reason)


def remote_identity(options: LeafRemoteOptions) -> RemoteIdentity:
    """What tells one remote from another: addresses, account and credentials, as in nats-server."""
    account = options.account or GLOBAL_ACCOUNT
    return tuple(options.urls), account, options.credentials, options.nkey


def needs_discovery(options: LeafRemoteOptions) -> bool:
    """Whether a remote has to be found before it can be dialled."""
    schemes = [url.partition("://")[0] for url in options.urls]
    return not schemes or DISCOVER_SCHEME in schemes


def _host_port(text: str) -> tuple[str, int]:
    try:
        found = parse_url(text)
    except ValueError:
        return ("", 0)
    return (found.host, found.port)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error) or type(error).__name__).lower()
