"""Frames between the nodes of a cluster, over the routes that connect them.

A frame is a message on a route in an account that no node has (`NODE_ACCOUNT`), so no client can
send one, and only peers that have authenticated are heard. Its subject is the kind. Frames may be
lost, and large ones may be overtaken; whoever needs more asks again.

    u64 identity of the cluster's JetStream, 0 while the sender has none    body

`call` is a question to one node: it ends with the answer, or with `CallFailed`.
"""

import asyncio
import inspect
import logging
import struct
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from headwater.hub.cluster.peers import number_of_name
from headwater.hub.routes.fences import FENCES_VERSION
from headwater.hub.routes.route_conn import NODE_ACCOUNT, RouteConn

log = logging.getLogger("headwater.cluster")

HEAD = struct.Struct("<Q")
CALL = struct.Struct("<QB")
BACK = struct.Struct("<QB")
FRAME_BYTES_MAX = 16 << 20
"""A frame of a peer that is longer is not one."""
PENDING_BYTES_MAX = 32 << 20
"""What may wait on a route before frames are dropped: half of what ends the connection."""
CALLS_MAX = 10_000
"""Questions that wait for an answer."""
CALL_TIMEOUT_S = 5.0
OF_GROUPS = frozenset((b"raft", b"index", b"indexed"))
"""Kinds of frames that speak of groups, whose numbers are one cluster's."""

Handler = Callable[[int, memoryview], None]
Method = Callable[[int, bytes], "bytes | Awaitable[bytes]"]


class CallFailed(Exception):
    """A question to another node has no answer: the node is not there, too slow, or refused."""


class Peers(Protocol):
    """The registry of routes, as this module needs it; see `headwater.hub.routes.routes`."""

    peer_watchers: list[Callable[[RouteConn, bool], None]]
    route_watchers: list[Callable[[RouteConn], None]]
    on_frame: Callable[[RouteConn, bytes, bytes], None] | None

    async def fence(self, server_id: str) -> None:
        """Return when a node has heard all that was said to it on any route, and all that it had
        said before is here."""

    def beside(self, server_id: str, account: str) -> RouteConn | None:
        """The route on which a node is told of an account's interest and gets its messages."""

    def all_routes(self) -> Iterable[RouteConn]:
        """Every route that is up."""

    def doubt(self, conn: RouteConn) -> None:
        """Close a route that says nothing soon."""


class Transport:
    """Sends frames to nodes by number, and hands on what arrives."""

    def __init__(self, server_name: str) -> None:
        self.number = number_of_name(server_name)
        self.identity = 0
        """Of the JetStream that this node belongs to; sent with every frame."""
        self.conns: dict[int, RouteConn] = {}
        """The route to each node that understands frames; of several, the one that is used."""
        self._rivals: dict[int, dict[str, RouteConn]] = {}
        """Routes to other processes with the name of a node that is there, by their server's id."""
        self._routes: Peers | None = None
        self.handlers: dict[bytes, Handler] = {b"call": self._called, b"back": self._answered}
        self.methods: dict[str, Method] = {}
        self.watchers: list[Callable[[int, bool], None]] = []
        """Called with a node's number when it is there, and when it is gone."""
        self.route_watchers: list[Callable[[int, RouteConn], None]] = []
        """Called with a node's number and a route to it that has come up, before anything else is
        said on it."""
        self.strangers: dict[int, int] = {}
        """Nodes of another JetStream than this one's, with its identity."""
        self._calls: dict[int, tuple[int, asyncio.Future[bytes]]] = {}
        self._last_call = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.arriving: RouteConn | None = None
        """The route on which the frame came that is being handled."""
        self.closed = False

    def attach(self, routes: Peers) -> None:
        """Use the routes of a node, before the first one is up."""
        self._routes = routes
        routes.peer_watchers.append(self._peer_changed)
        routes.route_watchers.append(self._route_up)
        routes.on_frame = self.receive

    # -- peers ------------------------------------------------------------------

    def _peer_changed(self, conn: RouteConn, there: bool) -> None:
        peer = conn.session.peer
        if peer.headwater < 1 or not peer.jetstream or self.closed:
            return
        number = number_of_name(peer.server_name)
        if there:
            old = self.conns.get(number)
            same = old is not None and old.session.peer.server_id == peer.server_id
            if old is not None and not same and not old.closed:
                self._keep_out(number, old, conn)
                return
            self.conns[number] = conn
            if same:
                # Another route to the same process: only what was on the way is lost.
                if old is not None and old.closed:
                    self._give_up(number)
                return
        elif self.conns.get(number) is conn:
            del self.conns[number]
            self._give_up(number)
            self.strangers.pop(number, None)
        else:
            self._forget_rival(number, conn)
            return
        for watcher in self.watchers:
            watcher(number, there)
        if not there:
            self._let_in(number)

    def _keep_out(self, number: int, old: RouteConn, conn: RouteConn) -> None:
        """Two processes have one name: the first is heard, unless its route is dead."""
        rivals = self._rivals.setdefault(number, {})
        name, server_id = conn.session.peer.server_name, conn.session.peer.server_id
        if server_id not in rivals:
            log.error(
                "another server at %s is called %s, too: only the first one is heard, as long as "
                "it answers; stop one of them, or give it a name of its own",
                conn.session.label(conn),
                name,
            )
        rivals[server_id] = conn
        if self._routes is not None:
            self._routes.doubt(old)

    def _forget_rival(self, number: int, conn: RouteConn) -> None:
        rivals = self._rivals.get(number, {})
        for server_id, each in list(rivals.items()):
            if each is conn:
                del rivals[server_id]
        if not rivals:
            self._rivals.pop(number, None)

    def _let_in(self, number: int) -> None:
        """A node is gone: who has waited with its name takes its place."""
        for conn in self._rivals.pop(number, {}).values():
            if not conn.closed:
                self._peer_changed(conn, True)

    def _route_up(self, conn: RouteConn) -> None:
        number = number_of_name(conn.session.peer.server_name)
        used = self.conns.get(number)
        if used is not None and used.session.peer.server_id == conn.session.peer.server_id:
            for watcher in self.route_watchers:
                watcher(number, conn)

    def _give_up(self, number: int) -> None:
        for to, future in list(self._calls.values()):
            if to == number and not future.done():
                future.set_exception(CallFailed("the node is gone"))

    def version(self, number: int) -> int:
        """Of the frames that a node understands; 0 when it is not there."""
        conn = self.conns.get(number)
        return int(conn.session.peer.headwater) if conn is not None else 0

    # -- frames -------------------------------------------------------------------

    def send(self, number: int, kind: bytes, *body: bytes) -> bool:
        """Send a frame, its body in pieces; False when there is no route, or too much waits on
        it."""
        conn = self.conns.get(number)
        size = HEAD.size + sum(map(len, body))
        return conn is not None and self._put(conn, kind, size, body)

    def beside(self, number: int, account: str) -> RouteConn | None:
        """The route that an account has to a node."""
        known = self.conns.get(number)
        if known is None or self._routes is None:
            return None
        return self._routes.beside(known.session.peer.server_id, account)

    def send_beside(self, number: int, account: str, kind: bytes, body: bytes) -> bool:
        """`send`, on the route that the account has to the node: what was said of its interest
        before, or was published in it, arrives before."""
        conn = self.beside(number, account)
        return conn is not None and self._put(conn, kind, HEAD.size + len(body), (body,))

    def _put(self, conn: RouteConn, kind: bytes, size: int, body: tuple[bytes, ...]) -> bool:
        if conn.closed or conn.pending + size > PENDING_BYTES_MAX:
            return False
        head = b"RMSG %b %b %d\r\n" % (NODE_ACCOUNT, kind, size)
        conn.queue_pieces([head, HEAD.pack(self.identity), *body, b"\r\n"])
        return True

    def all_routes(self) -> Iterable[RouteConn]:
        """Every route to another node."""
        return self._routes.all_routes() if self._routes is not None else ()

    def receive(self, conn: RouteConn, kind: bytes, frame: bytes) -> None:
        """A peer sent a frame. One that makes no sense ends its route."""
        handler = self.handlers.get(kind)
        if self.closed or handler is None:
            return
        peer = conn.session.peer
        number = number_of_name(peer.server_name)
        used = self.conns.get(number)
        if used is None or used.session.peer.server_id != peer.server_id:
            return
        try:
            if not HEAD.size <= len(frame) <= FRAME_BYTES_MAX:
                raise ValueError("a frame of that length")
            (identity,) = HEAD.unpack_from(frame)
            if kind in OF_GROUPS and not self._is_ours(number, identity):
                return
            self.arriving = conn
            handler(number, memoryview(frame)[HEAD.size :])
        except ValueError as error:
            log.error(
                "node %s sends what is no frame: %s; its route is cut: run one version on both",
                peer.server_name,
                error,
            )
            conn.fail("Unknown Protocol Operation", "Parse Error")
        finally:
            self.arriving = None

    def _is_ours(self, number: int, identity: int) -> bool:
        if identity == self.identity and identity:
            self.strangers.pop(number, None)
            return True
        if identity and self.identity and number not in self.strangers:
            self.strangers[number] = identity
            log.error(
                "node %s is of another JetStream cluster, which was founded apart from this one: "
                "stop it, and empty its store to let it join",
                self.conns[number].session.peer.server_name,
            )
        return False

    # -- questions ------------------------------------------------------------------

    async def call(
        self, number: int, method: str, body: bytes, timeout: float = CALL_TIMEOUT_S
    ) -> bytes:
        """Ask a node, maybe this one. Raises CallFailed."""
        if number == self.number:
            return await self._perform(number, method, body)
        if len(self._calls) >= CALLS_MAX:
            raise CallFailed("too many questions wait for an answer")
        self._last_call += 1
        key = self._last_call
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._calls[key] = (number, future)
        name = method.encode()
        try:
            if not self.send(number, b"call", CALL.pack(key, len(name)) + name + body):
                raise CallFailed("the node is not there")
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise CallFailed("the node does not answer") from None
        finally:
            del self._calls[key]

    async def fence(self, number: int, timeout: float) -> None:
        """Return when a node has heard what this one said to it on any route, messages and interest
        included, and what it had said before is here. Raises CallFailed."""
        conn = self.conns.get(number)
        if conn is None or self._routes is None:
            raise CallFailed("the node is not there")
        if conn.session.peer.headwater < FENCES_VERSION:
            await self.call(number, "echo", b"", timeout)
            return
        try:
            async with asyncio.timeout(timeout):
                await self._routes.fence(conn.session.peer.server_id)
        except TimeoutError:
            raise CallFailed("the node does not answer") from None

    async def _perform(self, sender: int, method: str, body: bytes) -> bytes:
        found = self.methods.get(method)
        if found is None:
            raise CallFailed(f"there is no {method!r} here")
        answer = found(sender, body)
        return await answer if inspect.isawaitable(answer) else answer

    def _called(self, sender: int, body: memoryview) -> None:
        if len(body) < CALL.size:
            raise ValueError("a question is cut off")
        key, length = CALL.unpack_from(body)
        name = bytes(body[CALL.size : CALL.size + length]).decode("utf-8", "replace")
        work = self._answer(sender, key, name, bytes(body[CALL.size + length :]))
        if len(self._tasks) >= CALLS_MAX:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, sender: int, key: int, name: str, body: bytes) -> None:
        good = 1
        try:
            answer = await self._perform(sender, name, body)
        except CallFailed as error:
            good, answer = 0, str(error).encode()
        except Exception as error:
            log.exception(
                "a question of another node (%s) failed; it is answered with the error; report "
                "this fault",
                name,
            )
            good, answer = 0, str(error).encode()
        self.send(sender, b"back", BACK.pack(key, good) + answer)

    def _answered(self, sender: int, body: memoryview) -> None:
        if len(body) < BACK.size:
            raise ValueError("an answer is cut off")
        key, good = BACK.unpack_from(body)
        number, future = self._calls.get(key, (0, None))
        if future is None or future.done() or number != sender:
            return
        if good:
            future.set_result(bytes(body[BACK.size :]))
        else:
            future.set_exception(CallFailed(bytes(body[BACK.size :]).decode("utf-8", "replace")))

    def close(self) -> None:
        """Neither send nor hear any more."""
        self.closed = True
        for task in self._tasks:
            task.cancel()
        for number in list(self.conns):
            self._give_up(number)
        self.conns.clear()
