"""What an outsider may cost before a login: bytes, time, processor, memory; on every listener."""

import asyncio
import json
import os
import resource
import socket
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program
from headwater.deploy.compose import services_for
from headwater.edge.broker.conn import LOGIN_BYTES
from headwater.edge.conf.load import load_text
from headwater.edge.conf.validate import complete
from headwater.edge.node.node import Node
from headwater.security import passwords
from tests.certificates import certificate
from tests.measuring import within
from tests.waiting import stand_by, until, until_seen

USER = "authorization { user: a, password: secret, timeout: 20 }\n"


@asynccontextmanager
async def running(text: str) -> AsyncIterator[Node]:
    """A node of this process with every service that the configuration asks for."""
    options = load_text('listen: "127.0.0.1:-1"\nserver_name: n\n' + text).options
    complete(options)
    node = Node(options, asyncio.get_running_loop())
    node.services.extend(services_for(options))
    node.start()
    try:
        yield node
    finally:
        await node.stop()


def port_of(node: Node, name: str) -> int:
    return int(node.ports()[name][0].rpartition(":")[2])


async def until_end(reader: asyncio.StreamReader, seconds: float = 10) -> bytes:
    """Everything that a server says until it ends the connection."""
    got = b""
    async with asyncio.timeout(seconds):
        while True:
            try:
                part = await reader.read(1 << 16)
            except ConnectionError:
                return got
            if not part:
                return got
            got += part


LISTENERS = {
    "nats": USER,
    "leafnodes": "leafnodes { listen: '127.0.0.1:-1', authorization { timeout: 20 } }\n",
    "cluster": "cluster { name: c, listen: '127.0.0.1:-1', "
    "authorization { user: r, password: r, timeout: 20 } }\n",
}


@pytest.mark.parametrize("listener", LISTENERS)
async def test_bytes_before_a_login_are_bounded(listener: str) -> None:
    async with running(LISTENERS[listener]) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node, listener))
        await reader.readline()
        writer.write(b"PING\r\n" * 400_000)
        said = await until_end(reader)
        assert said.count(b"PONG") <= LOGIN_BYTES // len(b"PING\r\n") + 1
        writer.close()


async def test_bytes_sent_behind_connect_are_no_concern() -> None:
    async with running(USER) as node:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node, "nats"))
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"user":"a","pass":"secret"}\r\nSUB a 1\r\n')
        writer.write(b"PUB a 100000\r\n" + bytes(100_000) + b"\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 5)).startswith(b"MSG a 1 100000")
        writer.close()


WEBSOCKET = "websocket { listen: '127.0.0.1:-1', no_tls: true, compression: true }\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)


def frame(payload: bytes) -> bytes:
    """A compressed, finished binary frame of a client, with an empty mask."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = (squeezer.compress(payload) + squeezer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    size = struct.pack("!BH", 126 | 128, len(data)) if len(data) > 125 else bytes([len(data) | 128])
    return b"\xc2" + size + bytes(4) + data


async def opened(node: Node) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node, "websocket"))
    writer.write(UPGRADE)
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_what_inflates_before_a_login_is_bounded() -> None:
    async with running(USER + WEBSOCKET) as node:
        reader, writer = await opened(node)
        began = time.process_time()
        writer.write(frame(b"PING\r\n" * 2_000_000))
        said = await until_end(reader)
        assert said.count(b"PONG") <= LOGIN_BYTES // len(b"PING\r\n") + 1
        assert within(time.process_time() - began, 1, time.process_time)
        writer.close()


@pytest.mark.alone
async def test_what_inflates_after_a_login_leaves_others_their_turn() -> None:
    async with running("max_payload: 4MB\n" + WEBSOCKET) as node:
        reader, writer = await opened(node)
        silences = []
        last = time.monotonic()
        writer.write(frame(b'CONNECT {"verbose":false}\r\n' + b"+OK\r\n" * 800_000))
        writer.write(frame(b"PING\r\n"))
        answered = asyncio.create_task(reader.readuntil(b"PONG"))
        while not answered.done():
            await asyncio.sleep(0)
            silences.append(time.monotonic() - last)
            last = time.monotonic()
        await answered
        assert len(silences) > 10
        assert within(max(silences), 0.3)
        writer.close()


async def test_a_message_that_inflates_beyond_its_bound_ends_the_connection() -> None:
    async with running("max_payload: 100KB\n" + WEBSOCKET) as node:
        reader, writer = await opened(node)
        writer.write(frame(b"\r\n" * 1_000_000))
        assert b"PONG" not in await until_end(reader)
        writer.close()


async def test_what_came_before_a_close_frame_is_taken() -> None:
    async with running(WEBSOCKET) as node:
        got, subscriber = await asyncio.open_connection("127.0.0.1", port_of(node, "nats"))
        subscriber.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
        await got.readuntil(b"PONG\r\n")
        reader, writer = await opened(node)
        writer.write(frame(b'CONNECT {"verbose":false}\r\nPUB a 0\r\n\r\n'))
        writer.write(b"\x88\x80" + bytes(4))
        assert (await asyncio.wait_for(got.readline(), 5)).startswith(b"MSG a 1 0")
        await until_end(reader)
        writer.close()
        subscriber.close()


async def test_an_idle_socket_that_owes_a_handshake_is_cut(tmp_path: Path) -> None:
    pair = certificate(tmp_path)
    text = (
        f'tls {{ cert_file: "{pair.cert_file}", key_file: "{pair.key_file}", '
        "handshake_first: true, timeout: 0.2 }\n"
        "authorization { user: a, password: b, timeout: 0.3 }\nmax_connections: 3\n"
    )
    async with running(text) as node:
        idle = [await asyncio.open_connection("127.0.0.1", port_of(node, "nats")) for _ in range(5)]
        for reader, writer in idle:
            await until_end(reader, 5)
            writer.close()
        assert not node.sessions.conns


async def test_half_a_request_to_the_monitoring_port_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    visitors = pytest.importorskip("headwater.edge.monitor.visitors")
    monkeypatch.setattr(visitors, "REQUEST_S", 0.3)
    monkeypatch.setattr(visitors, "VISITORS_MAX", 8)
    async with running("http: '127.0.0.1:-1'\n") as node:
        port = port_of(node, "monitoring")
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in halves:
            writer.write(b"GET /varz HTTP/1.1\r\nHost: x\r\n")
        for reader, writer in halves:
            await until_end(reader, 5)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


HASH = passwords.hash_password("right", cost=10)
HASHED = f"""
authorization {{ timeout: 20, users: [
    {{ user: slow, password: "{HASH}" }}, {{ user: plain, password: open }} ] }}
leafnodes {{ listen: '127.0.0.1:-1', authorization {{ timeout: 20, users: [
    {{ user: edge, password: "{HASH}" }} ] }} }}
"""


async def log_in(port: int, user: str, password: str) -> bytes:
    """The first answer to CONNECT and PING."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await reader.readline()
    fields = json.dumps({"verbose": False, "user": user, "pass": password}).encode()
    writer.write(b"CONNECT " + fields + b"\r\nPING\r\n")
    answer = await asyncio.wait_for(reader.readline(), 30)
    writer.close()
    return answer


@pytest.mark.alone
@pytest.mark.parametrize(("listener", "user"), [("nats", "slow"), ("leafnodes", "edge")])
async def test_hashing_passwords_stops_nobody(listener: str, user: str) -> None:
    async with running(HASHED) as node:
        port = port_of(node, listener)
        guesses = asyncio.gather(*(log_in(port, user, f"wrong{n}") for n in range(8)))
        silences = []
        last = time.monotonic()
        while not guesses.done():
            await asyncio.sleep(0.001)
            silences.append(time.monotonic() - last)
            last = time.monotonic()
        assert all(answer.startswith(b"-ERR 'Authorization") for answer in await guesses)
        silences.sort()
        assert within(silences[-1], 0.2)
        assert sum(silences) > 8 * 0.02
        right = await log_in(port, user, "right")
        assert right.startswith((b"PONG", b"INFO"))


async def test_wrong_passwords_take_as_long_for_names_that_do_not_exist() -> None:
    async with running(HASHED) as node:
        checked = []
        real = passwords.matches

        def matches(configured: str, presented: str) -> bool:
            checked.append(passwords.is_bcrypt(configured))
            return real(configured, presented)

        port = port_of(node, "nats")
        passwords.matches = matches
        try:
            for user, hashes in (("slow", 1), ("nobody", 1), ("plain", 1)):
                checked.clear()
                assert (await log_in(port, user, "guess")).startswith(b"-ERR")
                assert checked.count(True) == hashes, user
            checked.clear()
            assert (await log_in(port, "plain", "open")).startswith(b"PONG")
            assert not any(checked)
        finally:
            passwords.matches = real


async def test_one_address_that_guesses_makes_only_itself_wait() -> None:
    async with running(HASHED) as node:
        port = port_of(node, "nats")
        guesses = [asyncio.create_task(log_in(port, "slow", f"wrong{n}")) for n in range(20)]
        await until(lambda: node.sessions.checks.waiting >= 10)
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.setblocking(False)
        await asyncio.get_running_loop().sock_connect(other, ("127.0.0.1", port))
        reader, writer = await asyncio.open_connection(sock=other)
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false,"user":"slow","pass":"right"}\r\nPING\r\n')
        assert (await reader.readline()).startswith(b"PONG")
        assert sum(task.done() for task in guesses) < 10
        writer.close()
        await asyncio.gather(*guesses)


def resident(pid: int) -> int:
    """Bytes of memory that a process has in use."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def server() -> Iterator[Server]:
    recipe = Recipe("headwater", (program("headwater"), "serve"), "max_payload: 1MB\n")
    with Server(recipe) as running_server:
        yield running_server


def test_clients_that_leave_in_the_middle_leave_no_buffers(server: Server) -> None:
    def half_a_publish() -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.recv(4096)
            link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert b"PONG" in link.recv(4096)
            link.sendall(b"PUB a 1000000\r\n" + bytes(900_000))

    half_a_publish()
    before = resident(server.pid)
    for _ in range(60):
        half_a_publish()
    assert resident(server.pid) - before < 20e6


def test_without_descriptors_a_server_rests_and_comes_back(server: Server) -> None:
    used = len(os.listdir(f"/proc/{server.pid}/fd"))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 3, used + 1000))
    links = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    until_seen(lambda: server.complaints, "it has no descriptors")
    stand_by(1)
    assert 1 <= len(server.complaints) < 20
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + 1000, used + 1000))
    for link in links:
        link.settimeout(5)
        assert link.recv(4096).startswith(b"INFO")
        link.close()


def test_a_websocket_that_waits_costs_little(tmp_path: Path) -> None:
    config = USER + "websocket { port: {ws}, no_tls: true, compression: true }\n"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    recipe = Recipe("headwater", (program("headwater"), "serve"), config.replace("{ws}", str(port)))
    with Server(recipe) as running_server:

        def waiting() -> socket.socket:
            link = socket.create_connection(("127.0.0.1", port))
            link.sendall(UPGRADE)
            said = b""
            while len(said.partition(b"\r\n\r\n")[2]) < 100:
                said += link.recv(4096)
            return link

        links = [waiting() for _ in range(20)]
        before = resident(running_server.pid)
        links += [waiting() for _ in range(200)]
        assert (resident(running_server.pid) - before) / 200 < 24e3
        for link in links:
            link.close()
