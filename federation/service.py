"""What federation plugs into a node: leaf links, discovery, mirrors and sources.

A node that has none of it does not load it: it has to be ready soon after its launch.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.edge.conf.options import Options
from headwater.edge.view.service import Service
from headwater.edge.websocket.paths import LEAF_PATH

if TYPE_CHECKING:
    from headwater.edge.view.node_view import NodeView
    from headwater.federation.dialling.discovery import Discovery
    from headwater.federation.leaf.leaf_links import LeafLinks
    from headwater.federation.leaf.leaf_listener import LeafListener
    from headwater.federation.leaf.leaf_remote import LeafRemote
    from headwater.federation.origins.origin_driver import OriginDrivers

log = logging.getLogger("headwater.leaf")


class LeafService:
    """Leaf links of a node, both listening and soliciting."""

    name = "leafnodes"

    def __init__(self) -> None:
        self.links: LeafLinks | None = None
        self.listener: LeafListener | None = None
        self.remotes: list[LeafRemote] = []
        self.discovery: Discovery | None = None
        self.on_links: Callable[[LeafLinks], None] | None = None
        """Called when the node has its first listener or remote: with its start, or a reload."""
        self._browses = False

    def start(self, node: "NodeView") -> None:
        """Listen and begin to dial. Raises ListenError or TLSConfigError."""
        node.reload_hooks.append(lambda: self._reloaded(node))
        options = node.options
        if options.leaf.port or options.leaf.remotes or options.headwater.discovery:
            self._begin(node)

    def _begin(self, node: "NodeView") -> None:
        from headwater.federation.leaf.leaf_links import LeafLinks
        from headwater.federation.leaf.leaf_listener import LeafListener

        self.links = LeafLinks(node)
        if self.on_links is not None:
            self.on_links(self.links)
        if node.options.leaf.port:
            self.listener = LeafListener(self.links)
            self.listener.start(node)
            for service in node.services:
                if service.name == "websocket":
                    service.paths[LEAF_PATH] = self.listener.accept_upgrade
        self._dial(node)

    def _dial(self, node: "NodeView") -> None:
        """Have exactly the remotes that the configuration has; those it had already stay."""
        from headwater.federation.leaf.leaf_remote import (
            LeafRemote,
            needs_discovery,
            remote_identity,
        )

        assert self.links is not None
        wanted = [each for each in node.options.leaf.remotes if not each.disabled]
        browse = any(needs_discovery(each) for each in wanted)
        if (browse and not self._browses) or (
            self.discovery is None and node.options.headwater.discovery
        ):
            self._discover(node, browse)
        known = {remote.identity(): remote for remote in self.remotes}
        kept = {remote_identity(each) for each in wanted}
        for identity, remote in known.items():
            if identity not in kept:
                log.info("Reloaded: LeafNode Remote %s removed", remote.label())
                remote.end()
        self.remotes = []
        for each in wanted:
            found = known.get(remote_identity(each))
            if found is None:
                found = LeafRemote(self.links, each, self.discovery)
                found.start()
            else:
                found.reload(each)
            self.remotes.append(found)

    def _reloaded(self, node: "NodeView") -> None:
        """Other options are in force."""
        if self.links is None:
            if node.options.leaf.remotes:
                self._begin(node)
            return
        self.links.reload()
        self._dial(node)

    def _discover(self, node: "NodeView", browse: bool) -> None:
        """Announce the leaf listener, and look for hubs when a remote has no fixed address."""
        from headwater.federation.dialling.discovery import Announcement, Discovery

        options = node.options
        announcement = None
        if self.listener is not None and options.headwater.discovery:
            announcement = Announcement(
                name=options.headwater.discovery_name or node.server_name,
                node_id=node.server_id,
                port=self.listener.port,
                host=options.leaf.host,
                domain=node.facts.domain,
                cluster=options.headwater.cluster_label or options.cluster.name,
                tls=options.leaf.tls is not None,
            )
        chance = node.kernel.chance
        if self.discovery is not None:
            # It announces and does not look: the one that takes its place does both.
            node.loop.run_in_executor(None, self.discovery.close)
        self._browses = browse
        self.discovery = Discovery(
            options, node.loop, node.server_id, lambda names: names[chance.below(len(names))]
        )
        self.discovery.on_change = self._found
        self.discovery.start(announcement, browse)

    def _found(self) -> None:
        """The list of hubs has changed."""
        for remote in self.remotes:
            remote.wake()

    async def stop(self) -> None:
        """Stop listening and dialling, and end every link."""
        if self.discovery is not None:
            await asyncio.get_running_loop().run_in_executor(None, self.discovery.close)
        if self.listener is not None:
            self.listener.close()
        for remote in self.remotes:
            await remote.stop()
        if self.links is not None:
            self.links.close_all()

    def ports(self) -> dict[str, list[str]]:
        """The leaf listener's URL."""
        return {"leafnodes": self.listener.urls()} if self.listener is not None else {}

    def status(self) -> dict[str, Any]:
        """`leafs` as of /leafz, and the state of every remote."""
        return {
            "leafs": self.shown_links("leafs", lists=True),
            "remotes": self.shown_links("remotes"),
            "discovery": self.discovery.status() if self.discovery is not None else {},
        }

    def shown_links(
        self, kind: str, account: str = "", lists: bool = False
    ) -> list[dict[str, Any]]:
        """As of `LinkService`: leaf links, and remotes, which are dialled."""
        if kind == "leafs" and self.links is not None:
            return self.links.status(account, lists)
        if kind == "remotes":
            return [each.status() for each in self.remotes if account in ("", each.account)]
        return []


class OriginService:
    """Mirrors and sources of a node with JetStream, from local streams or over leaf links."""

    name = "origins"

    def __init__(self, leafs: LeafService) -> None:
        self.drivers: OriginDrivers | None = None
        """Made with the first mirror or source: most edges have none, and start without it."""
        self._leafs = leafs

    def start(self, node: "NodeView") -> None:
        """Drive every mirror and source that JetStream has or will have."""
        self._leafs.on_links = self._linked
        node.jetstream_switch.hooks.append(lambda: self._follow(node))
        self._follow(node)

    def _follow(self, node: "NodeView") -> None:
        """JetStream has begun, or has ended: the streams' drivers with them."""
        if node.jetstream is None:
            return
        if self.drivers is not None:
            self.drivers.unplug()
            self.drivers = None
        node.jetstream.origin_driver_factory = lambda stream: self._drive_first(node, stream)
        accounts = [account.jetstream for account in node.accounts.values() if account.jetstream]
        streams = [stream for account in accounts for stream in account.streams.values()]
        if any(stream.config.mirror or stream.config.sources for stream in streams):
            self._begin(node)

    def _begin(self, node: "NodeView") -> "OriginDrivers":
        """Make the drivers of what there is, and of what comes."""
        from headwater.federation.origins.origin_driver import OriginDrivers

        self.drivers = OriginDrivers(node)
        if self._leafs.links is not None:
            self._linked(self._leafs.links)
        self.drivers.start()
        return self.drivers

    def _drive_first(self, node: "NodeView", stream: Any) -> Any:
        """The driver of the first stream that has an origin."""
        drivers = self._begin(node)
        return stream.origin_driver or drivers.make(stream)

    def _linked(self, links: "LeafLinks") -> None:
        """The node has leaf links, or may get some."""
        if self.drivers is not None:
            self.drivers.links = links
            links.on_link_up.append(self.drivers.link_up)
            links.on_link_down.append(self.drivers.link_down)

    async def stop(self) -> None:
        """End all of them; what is stored says where to go on."""
        if self.drivers is not None:
            self.drivers.stop()

    def ports(self) -> dict[str, list[str]]:
        """Nothing is listened on."""
        return {}

    def status(self) -> dict[str, Any]:
        """One record per mirror and source."""
        return {"origins": self.shown_links("origins")}

    def shown_links(
        self, kind: str, account: str = "", lists: bool = False
    ) -> list[dict[str, Any]]:
        """As of `LinkService`: mirrors and sources."""
        if kind != "origins" or self.drivers is None:
            return []
        return [each for each in self.drivers.status() if account in ("", each["account"])]


def leaf_services(options: Options) -> list[Service]:
    """Services that a node with these options needs of this package, in order of starting."""
    # A reload may bring the first remote.
    leafs = LeafService()
    return [leafs, OriginService(leafs)]
