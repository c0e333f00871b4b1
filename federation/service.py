"""What federation plugs into a node: leaf links, discovery, mirrors and sources."""

import logging
from typing import TYPE_CHECKING, Any

from headwater.edge.conf.options import Options
from headwater.edge.service import Service
from headwater.federation.leaf_links import LeafLinks
from headwater.federation.leaf_listener import LeafListener
from headwater.federation.leaf_remote import LeafRemote

if TYPE_CHECKING:
    from headwater.edge.node import Node

log = logging.getLogger("headwater.leaf")


class LeafService:
    """Leaf links of a node, both listening and soliciting."""

    name = "leafnodes"

    def __init__(self) -> None:
        self.links: LeafLinks | None = None
        self.listener: LeafListener | None = None
        self.remotes: list[LeafRemote] = []

    def start(self, node: "Node") -> None:
        """Listen and begin to dial. Raises ListenError or TLSConfigError."""
        options = node.options.leaf
        self.links = LeafLinks(node)
        if options.port:
            self.listener = LeafListener(self.links)
            self.listener.start(node)
        for remote in options.remotes:
            if not remote.disabled:
                self.remotes.append(LeafRemote(self.links, remote))
        for dialled in self.remotes:
            dialled.start()

    async def stop(self) -> None:
        """Stop listening and dialling, and end every link."""
        if self.listener is not None:
            self.listener.close()
        for remote in self.remotes:
            await remote.stop()
        if self.links is not None:
            self.links.close_all()

    def ports(self) -> dict[str, list[str]]:
        """The leaf listener's URL."""
        return {"leafnodes": [self.listener.url()]} if self.listener is not None else {}

    def status(self) -> dict[str, Any]:
        """`leafs` as of /leafz, and the state of every remote."""
        return {
            "leafs": self.links.status() if self.links is not None else [],
            "remotes": [remote.status() for remote in self.remotes],
        }


def leaf_services(options: Options) -> list[Service]:
    """Services that a node with these options needs of this package, in order of starting."""
    services: list[Service] = []
    if options.leaf.port or options.leaf.remotes or options.headwater.discovery:
        services.append(LeafService())
    return services
