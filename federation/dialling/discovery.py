"""Finding hubs by zeroconf (DNS service discovery over multicast, RFC 6763).

A hub announces its leaf listener; edges collect the addresses of hubs. That yields addresses and
nothing else: whoever is found has still to be authenticated, and has to authenticate us. The
library runs in a thread of its own and is loaded there, so that a node starts without waiting.
"""

import contextlib
import ipaddress
import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.edge.conf.options import Options
from headwater.edge.facts.version import VERSION
from headwater.edge.logging.few_lines import FewLines

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("headwater.discovery")

FOUND_MAX = 2048
"""Hubs that are remembered; a further one takes the place of any, so that nobody can keep others
out by announcing many."""

ADDRESSES_MAX = 4
"""Addresses of one hub that are remembered."""

RESOLVERS = 8
"""Announcements without their addresses that are asked for them side by side."""

UNRESOLVED_MAX = 256
"""Such announcements that wait; a further one takes the place of any."""

RESOLVE_TIMEOUT_MS = 3000

CHANGES_S = 0.2
"""Changes of the list within this are told together."""

LINES = 4
"""Changes of the list that are logged one by one in each `LINES_S`; the others are counted."""

LINES_S = 60.0

NAMES_MAX = 20_000
"""Names that one browser is told of. It remembers when to ask for each, about 250 bytes and as long
as whoever announced it likes; so another takes its place then."""

PORT_MAX = 65535
LABEL_MAX = 63
"""Bytes of an instance name (RFC 6763, 4.1.1)."""


class Announcement(msgspec.Struct, kw_only=True, frozen=True):
    """What a hub tells of its leaf listener."""

    name: str
    node_id: str
    port: int
    host: str = ""
    """Address that is listened on; a wildcard or empty announces every address."""
    domain: str = ""
    cluster: str = ""
    tls: bool = False


class Hub(msgspec.Struct, kw_only=True, frozen=True):
    """A hub that was found."""

    node_id: str
    urls: list[str]
    cluster: str = ""
    domain: str = ""


class Waiting:
    """Names that wait for a thread; a bounded number, of which any gives way to a further one."""

    def __init__(self, choose: Callable[[list[str]], str]) -> None:
        self._choose = choose
        self._names: dict[str, None] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, name: str) -> None:
        """A further one."""
        with self._changed:
            if len(self._names) >= UNRESOLVED_MAX:
                del self._names[self._choose(list(self._names))]
            self._names[name] = None
            self._changed.notify()

    def get(self) -> str | None:
        """The newest, once there is one; None at the end."""
        with self._changed:
            while not self._names and not self._closed:
                self._changed.wait()
            return None if self._closed else self._names.popitem()[0]

    def close(self) -> None:
        """Let everybody who waits go."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Discovery:
    """Announces and finds hubs. `on_change()` is called on the loop when the list changed."""

    def __init__(
        self,
        options: Options,
        loop: "asyncio.AbstractEventLoop",
        node_id: str,
        chance: Callable[[list[str]], str],
    ) -> None:
        """`chance` takes any of some names."""
        self._loop = loop
        self._service = options.headwater.discovery_service
        self._label = options.headwater.cluster_label
        self._interfaces = interfaces(options)
        self._node_id = node_id
        self._zeroconf: Any = None
        self._browser: Any = None
        self._hubs: dict[str, Hub] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._any = chance
        self._unresolved = Waiting(chance)
        self._lines = FewLines(LINES, LINES_S)
        self._tells_change = False
        self._tells_left_out = False
        self._names = 0
        """How often the browser told of a further name."""
        self.on_change: Callable[[], None] | None = None
        self.error = ""

    def start(self, announcement: Announcement | None, browse: bool) -> None:
        """Begin in the background; `browse` looks for hubs."""
        self._thread = threading.Thread(
            target=self._open, args=(announcement, browse), name="discovery", daemon=True
        )
        self._thread.start()

    def urls(self, cluster: str) -> list[str]:
        """Leaf URLs of the hubs found that carry the label `cluster` (empty: this node's own)."""
        wanted = cluster or self._label
        with self._lock:
            hubs = sorted(self._hubs.items())
        return [url for _, hub in hubs if not wanted or hub.cluster == wanted for url in hub.urls]

    def status(self) -> dict[str, Any]:
        """Facts for monitoring."""
        with self._lock:
            hubs = [msgspec.to_builtins(hub) for hub in self._hubs.values()]
        return {"hubs": hubs, "error": self.error}

    def close(self) -> None:
        """Take the announcement back and end; waits for the goodbye to be sent."""
        with self._lock:
            self._closed = True
            opened = self._zeroconf
            self._zeroconf = None
        self._unresolved.close()
        if opened is not None:
            opened.close()

    # --- in the thread ----------------------------------------------------------------------

    def _open(self, announcement: Announcement | None, browse: bool) -> None:
        try:
            opened = self._open_sockets()
            if opened is None:
                return
            if browse:
                self._browse(opened)
            if announcement is not None:
                opened.register_service(self._describe(announcement), allow_name_change=True)
                log.info("Announcing leafnode port %d as %s", announcement.port, self._service)
        except Exception as error:  # the library raises a great many kinds
            self.error = f"{type(error).__name__}: {error}"
            if not self._closed:
                log.error(
                    "Discovery is not available: %s; hubs are reached by configured addresses only",
                    self.error,
                )

    def _open_sockets(self) -> Any:
        from zeroconf import InterfaceChoice, IPVersion, Zeroconf

        chosen: Any = self._interfaces or InterfaceChoice.All
        opened = Zeroconf(interfaces=chosen, ip_version=IPVersion.V4Only)
        with self._lock:
            if not self._closed:
                self._zeroconf = opened
                return opened
        opened.close()
        return None

    def _browse(self, opened: Any) -> None:
        for number in range(RESOLVERS):
            threading.Thread(
                target=self._resolve, args=(opened,), name=f"resolver-{number}", daemon=True
            ).start()
        self._browser = self._make_browser(opened)

    def _make_browser(self, opened: Any) -> Any:
        from zeroconf import ServiceBrowser, ServiceInfo, ServiceStateChange

        def changed(
            zeroconf: Any, service_type: str, name: str, state_change: ServiceStateChange
        ) -> None:
            if state_change is ServiceStateChange.Removed:
                self._forget(name)
                return
            self._names += state_change is ServiceStateChange.Added
            if self._names == NAMES_MAX:
                # A browser does not end itself.
                threading.Thread(
                    target=self._browse_anew, args=(opened,), name="discovery", daemon=True
                ).start()
            found = ServiceInfo(service_type, name)
            # Most announcements come with everything; nobody waits for those that do not.
            if found.load_from_cache(zeroconf):
                self._learn(name, found)
            else:
                self._unresolved.put(name)

        return ServiceBrowser(opened, self._service, handlers=[changed])

    def _browse_anew(self, opened: Any) -> None:
        """Have another browser, which is told again of what is announced."""
        with contextlib.suppress(Exception):  # the library raises a great many kinds, at its end
            self._browser.cancel()
            self._names = 0
            self._browser = self._make_browser(opened)

    def _resolve(self, opened: Any) -> None:
        """Ask for what announcements did not tell, until the end."""
        while (name := self._unresolved.get()) is not None:
            with contextlib.suppress(Exception):  # the library raises a great many kinds
                found = opened.get_service_info(self._service, name, RESOLVE_TIMEOUT_MS)
                if found is not None:
                    self._learn(name, found)

    def _describe(self, announcement: Announcement) -> Any:
        from zeroconf import ServiceInfo

        instance = instance_name(announcement.name)
        return ServiceInfo(
            self._service,
            f"{instance}.{self._service}",
            addresses=[socket.inet_aton(each) for each in self._addresses(announcement.host)],
            port=announcement.port,
            properties={
                "v": VERSION,
                "id": announcement.node_id,
                "domain": announcement.domain,
                "cluster": announcement.cluster,
                "tls": "1" if announcement.tls else "0",
                "leaf": str(announcement.port),
            },
            server=f"{announcement.node_id.lower()[:LABEL_MAX]}.local.",
        )

    def _addresses(self, host: str) -> list[str]:
        import ifaddr

        if self._interfaces:
            return self._interfaces
        if host and host not in ("0.0.0.0", "::"):
            return [socket.gethostbyname(host)]
        ips = [ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4]
        every = [str(ip.ip) for ip in ips]
        return [each for each in every if not _is_loopback(each)] or ["127.0.0.1"]

    def _learn(self, name: str, info: Any) -> None:
        text = {
            key.decode("utf-8", "replace"): (value or b"").decode("utf-8", "replace")
            for key, value in info.properties.items()
        }
        port = text.get("leaf", "")
        if text.get("id") == self._node_id or not _is_port(port):
            return
        scheme = "tls" if text.get("tls") == "1" else "nats"
        addresses = info.parsed_addresses()[:ADDRESSES_MAX]
        hub = Hub(
            node_id=text.get("id", ""),
            urls=[f"{scheme}://{address}:{port}" for address in addresses],
            cluster=text.get("cluster", ""),
            domain=text.get("domain", ""),
        )
        with self._lock:
            if name not in self._hubs and len(self._hubs) >= FOUND_MAX:
                del self._hubs[self._any(list(self._hubs))]
            known = self._hubs.get(name)
            self._hubs[name] = hub
        if known != hub:
            self._notify("Found hub %s at %s", name, ", ".join(hub.urls))

    def _forget(self, name: str) -> None:
        with self._lock:
            gone = self._hubs.pop(name, None)
        if gone is not None:
            self._notify("Hub %s is no longer announced", name)

    def _notify(self, text: str, *values: str) -> None:
        """Tell that the list has changed, and soon, of all changes together, who goes by it."""
        with self._lock:
            shown = self._lines.has_room(self._loop.time())
            left_out = not shown and not self._tells_left_out
            change = not self._tells_change
            self._tells_left_out |= left_out
            self._tells_change = True
        if shown:
            log.info(text, *values)
        if left_out:
            self._later(LINES_S, self._tell_left_out)
        if change:
            self._later(CHANGES_S, self._tell_change)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(self._loop.call_later, seconds, action)

    # --- on the loop ------------------------------------------------------------------------

    def _tell_change(self) -> None:
        with self._lock:
            self._tells_change = False
        if self.on_change is not None and not self._closed:
            self.on_change()

    def _tell_left_out(self) -> None:
        with self._lock:
            self._tells_left_out = False
            count, known = self._lines.left_out(self._loop.time()), len(self._hubs)
        if count and not self._closed:
            log.info(
                "%d more times a hub was found or is no longer announced; %d are known: anybody on "
                "the network can announce hubs, and each has to prove itself", count, known,
            )  # fmt: skip


def interfaces(options: Options) -> list[str]:
    """Addresses of the interfaces to use; empty means all of them.

    A node that listens on the loopback interface alone announces and looks only there.
    """
    hosts = [options.host]
    if options.leaf.host:
        hosts.append(options.leaf.host)
    return ["127.0.0.1"] if all(map(_is_loopback, hosts)) else []


def instance_name(name: str) -> str:
    """A name as one label of a service instance."""
    label = name.replace(".", "-").encode()[:LABEL_MAX]
    return label.decode("utf-8", "ignore") or "headwater"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) <= PORT_MAX
