"""A turn that touches many connections has its sends shared: each peer gets its own, whole."""

import asyncio
import os
import socket

import pytest

from headwater.edge.broker.conn import Conn
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.kernel.send_crew import crew_of_process
from tests.waiting import until

CONNECTIONS = 600
"""More than one round of the crew takes."""

ROUNDS = 20


def pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    made = [socket.socketpair() for _ in range(count)]
    for _, theirs in made:
        theirs.setblocking(False)
    return made


def test_there_is_a_member_for_another_processor() -> None:
    assert crew_of_process().members == min(3, len(os.sched_getaffinity(0)) - 1)
    assert crew_of_process() is crew_of_process()


@pytest.mark.parametrize("count", [1, 31, 32, 33, CONNECTIONS])
def test_each_peer_gets_what_was_queued_for_it_in_order(count: int) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        kernel = Kernel(loop)
        sockets = pairs(count)
        conns = [Conn(kernel, number, 64 << 20) for number in range(count)]
        for conn, (ours, _) in zip(conns, sockets, strict=True):
            conn.attach(ours)
        wanted = [b"" for _ in conns]
        for turn in range(ROUNDS):
            for number, conn in enumerate(conns):
                piece = b"%d of %d;" % (turn, number)
                conn.queue(piece)
                wanted[number] += piece
            kernel.turn()
        for number, (conn, (_, theirs)) in enumerate(zip(conns, sockets, strict=True)):
            assert conn.pending == 0
            assert await loop.sock_recv(theirs, 1 << 16) == wanted[number]
            conn.close("Client Closed")
            theirs.close()

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("count", [3, 99])
def test_full_sockets_and_lost_peers_among_them(count: int) -> None:
    """A third reads all, a third is full for a while, and a third is gone. Three are shared for
    the bytes that they have, 99 for their number."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        kernel = Kernel(loop)
        sockets = pairs(count)
        closed: list[int] = []
        conns = [Conn(kernel, number, 64 << 20) for number in range(count)]
        body = os.urandom(1 << 20)
        for number, (conn, (ours, theirs)) in enumerate(zip(conns, sockets, strict=True)):
            conn.attach(ours)
            conn.on_closed = lambda conn, reason: closed.append(conn.cid)
            if number % 3 == 2:
                theirs.close()
        for number, conn in enumerate(conns):
            conn.queue(body if number % 3 == 1 else b"small")
        kernel.turn()
        assert closed == list(range(2, count, 3))
        for number, (conn, (_, theirs)) in enumerate(zip(conns, sockets, strict=True)):
            if number % 3 == 2:
                continue
            assert (conn.pending == 0) == (number % 3 == 0)
            want, got = body if number % 3 == 1 else b"small", b""
            while len(got) < len(want):
                got += await loop.sock_recv(theirs, 1 << 20)
            assert got == want
            await until(lambda conn=conn: conn.pending == 0, "all has been sent")
            conn.close("Client Closed")
            theirs.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_forked_child_has_a_crew_of_its_own() -> None:
    before = crew_of_process()
    child = os.fork()
    if child == 0:
        os._exit(0 if crew_of_process() is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
