"""Frames split at every byte, and random bytes: the parser neither loses nor crashes."""

import socket
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.servers import Recipe, Server, program

SERVE = (program("headwater"), "serve", "-a", "127.0.0.1", "-p", "{port}")
STREAM = (
    b'CONNECT {"verbose":false,"headers":true}\r\nSUB foo 1\r\nPUB foo 5\r\nhello\r\n'
    b"HPUB foo reply.to 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPUB foo 0\r\n\r\nPING\r\n"
)
ANSWER = (
    b"MSG foo 1 5\r\nhello\r\nHMSG foo 1 reply.to 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    b"MSG foo 1 0\r\n\r\nPONG\r\n"
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with Server(Recipe("headwater", SERVE)) as server:
        yield server.port


def connect(port: int) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 5)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while b"\n" not in link.recv(65536):
        continue
    return link


def read_until(link: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        part = link.recv(65536)
        if not part:
            break
        data += part
    return data


@pytest.mark.parametrize("at", range(1, len(STREAM), 3))
def test_a_stream_of_frames_may_be_cut_anywhere(port: int, at: int) -> None:
    with connect(port) as link:
        link.sendall(STREAM[:at])
        link.sendall(STREAM[at:])
        assert read_until(link, b"PONG\r\n").endswith(ANSWER)


def test_a_large_payload_in_many_packets(port: int) -> None:
    payload = bytes(range(256)) * 4096
    with connect(port) as link:
        link.sendall(b'CONNECT {"verbose":false}\r\nSUB big 1\r\nPUB big 1048576\r\n')
        for start in range(0, len(payload), 70001):
            link.sendall(payload[start : start + 70001])
        link.sendall(b"\r\nPING\r\n")
        assert payload in read_until(link, b"PONG\r\n")


FRAGMENTS = st.sampled_from(
    [
        b"PUB ",
        b"HPUB ",
        b"SUB ",
        b"UNSUB ",
        b"PING\r\n",
        b"\r\n",
        b"foo ",
        b"12 ",
        b"-1 ",
        b"\x00",
        b"CONNECT ",
        b'{"a":',
        b"}",
        b"99999999999 ",
        b"> ",
        b"*.",
        b"\t",
        b"\n",
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(FRAGMENTS, st.binary(max_size=20)), max_size=12).map(b"".join))
def test_no_input_ends_the_node(port: int, data: bytes) -> None:
    with connect(port) as link:
        link.sendall(data)
        link.shutdown(socket.SHUT_WR)
        read_until(link, b"never sent")
    with connect(port) as link:
        link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert read_until(link, b"PONG\r\n").endswith(b"PONG\r\n")


@pytest.mark.parametrize(
    "line",
    [
        b"PUB a\r1 4",
        b"PUB a\x00 4",
        b"PUB a r\x0b 4",
        b"PUB a\x0cb 4",
        b"PUB a \x1f 4",
        b"HPUB a\rb 4 4",
    ],
)
def test_a_control_byte_makes_no_frame(port: int, line: bytes) -> None:
    """A real nats-server passes it on, and the line ends early in who gets it."""
    with connect(port) as listener, connect(port) as link:
        listener.sendall(b'CONNECT {"verbose":false}\r\nSUB > 1\r\nPING\r\n')
        read_until(listener, b"PONG\r\n")
        link.sendall(b'CONNECT {"verbose":false,"headers":true}\r\n' + line + b"\r\nbody\r\n")
        assert b"MSG" not in read_until(link, b"never sent")
        listener.sendall(b"PING\r\n")
        assert read_until(listener, b"PONG\r\n") == b"PONG\r\n"


@pytest.mark.parametrize("line", [b"SUB a\x00b 1", b"SUB a q\x01 1", b"SUB a \x7f"])
def test_a_control_byte_makes_no_interest(port: int, line: bytes) -> None:
    with connect(port) as link:
        link.sendall(b'CONNECT {"verbose":false}\r\n' + line + b"\r\nPING\r\n")
        assert b"-ERR 'Invalid Subject'" in read_until(link, b"PONG\r\n")


LEVEL = st.sampled_from([b"a", b"ab", b"a" * 30, b"b" * 31, b"*x"])
WRITTEN = st.lists(LEVEL, min_size=1, max_size=3).map(b".".join)
GAP = st.sampled_from([b" ", b" ", b" ", b"  ", b"\t"])
SIZE = st.one_of(st.integers(0, 120), st.sampled_from([999, 1000, 9_999, 10_000, 65_536, 100_000]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(WRITTEN, GAP, st.sampled_from([b"", b"re.ply"]), SIZE), max_size=12))
def test_a_subject_again_is_the_same_subject(
    port: int, rows: list[tuple[bytes, bytes, bytes, int]]
) -> None:
    """Publishers repeat themselves, which the node makes use of: subjects that come again, that
    begin as the one before, and that are longer than what is remembered."""
    wanted = b""
    with connect(port) as link:
        link.sendall(b'CONNECT {"verbose":false}\r\nSUB > 1\r\n')
        for subject, gap, reply, size in rows:
            words = [word for word in (subject, reply, b"%d" % size) if word]
            body = b"%d" % (size % 7) * size
            link.sendall(b"PUB" + gap + gap.join(words) + b"\r\n" + body + b"\r\n")
            words.insert(1, b"1")
            wanted += b"MSG " + b" ".join(words) + b"\r\n" + body + b"\r\n"
        link.sendall(b"PING\r\n")
        assert read_until(link, b"PONG\r\n") == wanted + b"PONG\r\n"
