"""Clients behind a TCP proxy that tells who they are, on both servers."""

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from functools import partial
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.servers import Recipe, Server, free_port, program
from headwater.edge.broker.listeners.proxy_protocol import ProxyHeaderError, parse
from tests.waiting import until_seen

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def v2(command: int, family: int, block: bytes) -> bytes:
    return SIGNATURE + struct.pack("!BBH", command, family, len(block)) + block


IPV4 = bytes([10, 1, 2, 3, 127, 0, 0, 1]) + struct.pack("!HH", 4711, 4222)
IPV6 = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(16) + struct.pack("!HH", 81, 82)
TAKEN = {
    b"PROXY TCP4 10.1.2.3 127.0.0.1 4711 4222\r\n": ("10.1.2.3", 4711),
    b"PROXY TCP6 2001:db8::7 ::1 81 82\r\n": ("2001:db8::7", 81),
    b"PROXY UNKNOWN\r\n": None,
    v2(0x21, 0x11, IPV4): ("10.1.2.3", 4711),
    v2(0x21, 0x11, IPV4 + b"\x04\x00\x01x"): ("10.1.2.3", 4711),
    v2(0x21, 0x21, IPV6): ("2001:db8::7", 81),
    v2(0x20, 0x00, b""): None,
}
REFUSED = [
    b"PROXY TCP4 10.1.2.3\r\n",
    b"PROXY TCP4 1.2.3 127.0.0.1 1 2\r\n",
    b"PROXY TCP4 10.1.2.3 127.0.0.1 99999 4222\r\n",
    b"PROXY " + b"x" * 200,
    v2(0x31, 0x11, IPV4),
    v2(0x21, 0x11, IPV4[:8]),
]


def monitored(port: int) -> bool:
    with contextlib.suppress(OSError), urlopen(f"http://127.0.0.1:{port}/varz"):
        return True
    return False


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    """Ports for clients and for monitoring of a server that wants headers."""
    words = (program(request.param), *(["serve"] if request.param == "headwater" else []))
    monitoring = free_port()
    config = f"proxy_protocol: true\nhttp: '127.0.0.1:{monitoring}'\nping_interval: '1m'\n"
    with Server(Recipe(request.param, words, config)) as server:
        until_seen(partial(monitored, monitoring), "the monitoring port answers")
        yield server.port, monitoring


@pytest.mark.parametrize("header", TAKEN)
@pytest.mark.parametrize("split", [False, True])
def test_a_header_names_the_client(behind: tuple[int, int], header: bytes, split: bool) -> None:
    port, monitoring = behind
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.settimeout(5)
        name = f"{header.hex()[:60]}{split}"
        hello = b'CONNECT {"verbose":false,"name":"%s"}\r\nPING\r\n' % name.encode()
        if split:
            link.sendall(header[:9])
            link.sendall(header[9:])
        else:
            link.sendall(header + hello)
        got = b""
        while b"INFO" not in got or b"\r\n" not in got:
            got += link.recv(65536)
        if split:
            link.sendall(hello)
        while b"PONG" not in got:
            got += link.recv(65536)
        with urlopen(f"http://127.0.0.1:{monitoring}/connz") as page:
            rows = json.load(page)["connections"]
        row = next(row for row in rows if row.get("name") == name)
        expected = TAKEN[header] or ("127.0.0.1", link.getsockname()[1])
        assert (row["ip"], row["port"]) == expected
        assert not json.loads(got[5 : got.index(b"\r\n")]).get("client_ip")


@pytest.mark.parametrize("header", REFUSED)
def test_what_is_no_header_ends_the_connection(behind: tuple[int, int], header: bytes) -> None:
    with socket.create_connection(("127.0.0.1", behind[0]), 5) as link:
        link.settimeout(5)
        link.sendall(header + b'CONNECT {"verbose":false}\r\nPING\r\n')
        said = b""
        try:
            while part := link.recv(65536):
                said += part
        except ConnectionError:
            pass
        assert b"PONG" not in said


def test_a_client_may_come_without_a_header(behind: tuple[int, int]) -> None:
    with socket.create_connection(("127.0.0.1", behind[0]), 5) as link:
        link.settimeout(5)
        assert link.recv(65536).startswith(b"INFO")
        link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"PONG" in link.recv(65536)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE]))
def test_any_bytes_are_judged(data: bytes, begin: bytes) -> None:
    try:
        found = parse(begin + data)
    except ProxyHeaderError:
        return
    assert found is None or 0 < found[0] <= len(begin + data)


@pytest.mark.parametrize("header", TAKEN)
def test_a_header_may_come_byte_by_byte(header: bytes) -> None:
    assert all(parse(header[:size]) is None for size in range(len(header)))
    assert parse(header + b"CONNECT") == (len(header), TAKEN[header])
