"""The routes to one other node: a pool that accounts share, and routes of single accounts.

Every account has one place on each pair of nodes, so its messages stay in order. Its interest is
told on the route of that place, and messages follow interest (NATS route protocol).
"""

from collections.abc import Iterator

import msgspec

from headwater.hub.routes.route_conn import RouteConn

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619


def pool_index(size: int, account: bytes) -> int:
    """The index in a pool of `size` routes that an account has: FNV-1a of its name, as both ends
    must agree."""
    if size <= 1:
        return 0
    value = _FNV_OFFSET
    for byte in account:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value % size


class PeerRoutes(msgspec.Struct, kw_only=True, eq=False):
    """What there is of routes to one node."""

    server_id: str
    pooled: bool
    """Whether there is more than one route to it at all; a server of old has one for everything."""
    pool: list[RouteConn | None]
    """The shared routes by index; None where one is missing."""
    pinned: dict[str, RouteConn] = {}
    """Routes of one account each, by its name."""
    speaker: RouteConn | None = None
    """The route on which nodes themselves speak."""

    def all(self) -> Iterator[RouteConn]:
        """Every route that is up, shared ones first."""
        yield from (conn for conn in self.pool if conn is not None)
        yield from self.pinned.values()

    def shared(self) -> RouteConn | None:
        """The first shared route that is up."""
        return next((conn for conn in self.pool if conn is not None), None)

    def carrier(self, account: str, pool_index: int, pinned: frozenset[str]) -> RouteConn | None:
        """The route on which this node tells of an account's interest; None while it is missing.

        `pool_index` is of the pool of this node's configuration: a peer may have another one.
        """
        if not self.pooled:
            return self.pool[0]
        if account in pinned:
            return self.pinned.get(account)
        return self.pool[pool_index]

    def at(self, account: str, index: int) -> RouteConn | None:
        """What has the index of a new route: that of an account, or one of the pool."""
        return self.pinned.get(account) if account else self.pool[index]

    def free(self) -> int:
        """The first index of the pool that is empty; -1 when it is full."""
        return next((index for index, conn in enumerate(self.pool) if conn is None), -1)

    def grow(self, size: int) -> None:
        """Have room for at least so many."""
        self.pool += [None] * (size - len(self.pool))

    def put(self, conn: RouteConn, account: str, index: int) -> None:
        """Use a route from now on."""
        if account:
            self.pinned[account] = conn
        else:
            self.pool[index] = conn

    def remove(self, conn: RouteConn) -> bool:
        """Forget a route that has ended; whether it was in use."""
        for index, each in enumerate(self.pool):
            if each is conn:
                self.pool[index] = None
                return True
        for account, each in list(self.pinned.items()):
            if each is conn:
                del self.pinned[account]
                return True
        return False
