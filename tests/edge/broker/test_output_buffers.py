"""Memory of output buffers: used again while a receiver is busy, given back when it is idle."""

import asyncio
import socket
from pathlib import Path

import pytest

from bench import build
from bench.patterns import Load, core_publish
from bench.servers import Recipe, Server, program
from headwater.edge.broker.conn import Conn
from headwater.edge.kernel.kernel import Kernel
from tests.waiting import until

LARGE = 1_200_000
KEPT_MAX = 1 << 20
RECEIVERS = 4
MESSAGES = 100_000
PAGE_FAULTS_MAX = 6_000


def page_faults(server: Server) -> int:
    text = Path(f"/proc/{server.pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[7])


def test_a_busy_receiver_gets_the_same_memory_again() -> None:
    build.generator()
    with Server(Recipe("headwater", (program("headwater"), "serve"))) as server:
        load = Load(MESSAGES, 60.0, 60.0)
        core_publish(server, load, size=128, receivers=RECEIVERS)
        before = page_faults(server)
        core_publish(server, load, size=128, receivers=RECEIVERS)
        assert page_faults(server) - before < PAGE_FAULTS_MAX


@pytest.mark.parametrize("size", [LARGE, 4 * LARGE])
def test_an_idle_receiver_keeps_no_large_buffer(size: int) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            conn = Conn(Kernel(loop), 1, 64 << 20)
            conn.attach(ours)
            for _ in range(3):
                conn.queue(b"x" * size)
                assert conn.reserved > KEPT_MAX
                got = 0
                while got < size:
                    got += len(await loop.sock_recv(theirs, 1 << 20))
            await until(lambda: conn.reserved <= KEPT_MAX, "the buffer is given back")
            conn.queue(b"again")
            assert await loop.sock_recv(theirs, 100) == b"again"
            conn.close("Client Closed")

    async def limited() -> None:
        await asyncio.wait_for(run(), 30)

    asyncio.run(limited())
