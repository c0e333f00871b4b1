"""Back-pressure and its end: a slow receiver slows its producers, a dead one is cut."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from bench.servers import Recipe, Server, program
from tests.measuring import within
from tests.waiting import stand_by

CONFIG = "write_deadline: 2s\nmax_pending: 16MB\n"
PAYLOAD = b"x" * 8192
FRAME = b"PUB slow %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n"


COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}


@pytest.fixture(params=COMMANDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(Recipe(request.param, COMMANDS[request.param], CONFIG)) as running:
        yield running


def connect(port: int, hello: bytes = b"") -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), 20)
    while b"\n" not in link.recv(65536):
        continue
    link.sendall(b'CONNECT {"verbose":false}\r\n' + hello + b"PING\r\n")
    while b"PONG" not in link.recv(65536):
        continue
    return link


def test_a_slow_reader_gets_everything(server: Server) -> None:
    count = 8000
    with connect(server.port, b"SUB slow 1\r\n") as reader, connect(server.port) as writer:
        sending = threading.Thread(target=lambda: [writer.sendall(FRAME) for _ in range(count)])
        sending.start()
        wanted = count * len(b"MSG slow 1 %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n")
        got = 0
        while got < wanted:
            part = reader.recv(1 << 20)
            assert part, f"cut after {got} of {wanted} bytes"
            got += len(part)
        sending.join()


@pytest.mark.alone
def test_a_dead_reader_is_cut_and_its_producer_goes_on(server: Server) -> None:
    with connect(server.port, b"SUB slow 1\r\n") as reader, connect(server.port) as writer:
        began = time.monotonic()
        for _ in range(10000):
            writer.sendall(FRAME)
        writer.sendall(b"PING\r\n")
        heard = b""
        while b"PONG" not in heard:
            more = writer.recv(65536)
            assert more, heard
            heard += more
        # The real server goes on whenever one of its tries to send has taken too long.
        assert within(time.monotonic() - began, 15) or server.recipe.name == "nats-server"
        reader.settimeout(10)
        ended = False
        while not ended:
            try:
                ended = not reader.recv(1 << 20)
            except ConnectionResetError:
                ended = True
        assert ended


def test_a_client_gets_all_that_it_publishes_to_itself(server: Server) -> None:
    """Ten times `max_pending` in answer to what fits into a few reads."""
    count, subscriptions = 40_000, 100
    hello = b"".join(b"SUB many %d\r\n" % sid for sid in range(100, 100 + subscriptions))
    frame = b"PUB many 16\r\n" + b"x" * 16 + b"\r\n"
    answer = len(b"MSG many 100 16\r\n" + b"x" * 16 + b"\r\n")
    with connect(server.port, hello) as link:
        sending = threading.Thread(target=link.sendall, args=(frame * count,))
        sending.start()
        wanted = count * subscriptions * answer
        got = 0
        while got < wanted:
            part = link.recv(1 << 20)
            assert part, f"cut after {got} of {wanted} bytes"
            got += len(part)
        sending.join()


def test_a_client_that_never_reads_what_it_publishes_to_itself_is_cut(server: Server) -> None:
    with connect(server.port, b"SUB slow 1\r\n") as link:
        link.settimeout(10)
        with pytest.raises((ConnectionError, BrokenPipeError)):
            for _ in range(100_000):
                link.sendall(FRAME)


@pytest.mark.alone
def test_a_reader_that_pauses_for_half_the_deadline_loses_nothing() -> None:
    """64 MiB to a reader that looks away for 3 s: more than `max_pending`, which the real server
    would exceed. Nor does a healthy reader beside it."""
    config = "write_deadline: 6s\nmax_pending: 16MB\n"
    count = 8000
    wanted = count * len(b"MSG slow 1 %d\r\n" % len(PAYLOAD) + PAYLOAD + b"\r\n")
    counts = [0, 0]
    with Server(Recipe("headwater", COMMANDS["headwater"], config)) as server:
        links = [connect(server.port, b"SUB slow 1\r\n") for _ in counts]

        def read(number: int, pause: float) -> None:
            stand_by(pause)
            while counts[number] < wanted and (part := links[number].recv(1 << 20)):
                counts[number] += len(part)

        readers = [
            threading.Thread(target=read, args=(number, pause))
            for number, pause in ((0, 3), (1, 0))
        ]
        with connect(server.port) as writer:
            for reader in readers:
                reader.start()
            for _ in range(count):
                writer.sendall(FRAME)
            for reader in readers:
                reader.join()
        for link in links:
            link.close()
        assert "Slow" not in server.log
    # The first PING to a client comes after two seconds.
    assert {count - wanted for count in counts} <= {0, len(b"PING\r\n")}
