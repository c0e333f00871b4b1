"""Who is told of a new node, and whether those who then connect to it tell others in turn."""

from urllib.parse import urlsplit

from headwater.hub.routes.session import (
    GOSSIP_DISABLED,
    GOSSIP_OVERRIDE,
    RouteInfo,
    RouteSession,
)


def heard_by_gossip(session: RouteSession) -> bool:
    """Whether the others are to be told of the node at the other end of a new route: not when it
    does not want that, nor when this node has itself been told of it, unless that is overridden."""
    heard_of_it = session.solicited and session.implicit and session.gossip != GOSSIP_OVERRIDE
    return not heard_of_it and session.peer.gossip_mode != GOSSIP_DISABLED


def gossip_mode(new: RouteSession, other: RouteSession) -> int:
    """The `gossip_mode` with which a node that is connected by `other` hears of the new one."""
    explicit = new.solicited and not new.implicit
    if explicit or (not new.solicited and other.solicited and not other.implicit):
        return GOSSIP_OVERRIDE
    return 0 if new.solicited else GOSSIP_DISABLED


def address_of(info: RouteInfo) -> tuple[str, int] | None:
    """Host and port at which other nodes reach the one of an INFO; None when it does not say."""
    try:
        parts = urlsplit(info.ip)
        return (parts.hostname, parts.port) if parts.hostname and parts.port else None
    except ValueError:
        return None
