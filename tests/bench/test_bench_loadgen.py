"""The load generator notices everything that makes a figure worthless."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from bench import build

HEADER = b"MSG a 1 3\r\n"
MESSAGE = HEADER + b"abc\r\n"
END = b"MSG end 2 0\r\n\r\n"
CAP = 5_000_000_000


@pytest.fixture(scope="module")
def generator():
    return build.generator()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """(peer, measured side): the latter gives up after 0.2 s of silence."""
    peer, measured = socket.socketpair()
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        measured.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, 200_000))
    with peer, measured:
        yield peer, measured


def test_counts_messages_split_at_every_byte(generator, pair):
    peer, measured = pair
    stream = MESSAGE * 3 + b"PING\r\n" + MESSAGE + b'INFO {"a":1}\r\n' + END

    def trickle() -> None:
        for at in range(len(stream)):
            peer.sendall(stream[at : at + 1])

    thread = threading.Thread(target=trickle)
    thread.start()
    count, _ = generator.receive(measured.fileno(), HEADER, 3)
    thread.join()
    assert count == 4
    assert peer.recv(100) == b"PONG\r\n"


def test_payload_that_looks_like_frames_is_not_counted(generator, pair):
    peer, measured = pair
    payload = MESSAGE * 10
    header = b"MSG a 1 %d\r\n" % len(payload)
    peer.sendall((header + payload + b"\r\n") * 2 + END)
    count, _ = generator.receive(measured.fileno(), header, len(payload))
    assert count == 2


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (MESSAGE + b"-ERR 'Slow Consumer'\r\n", "Slow Consumer"),
        (MESSAGE, "nothing for the whole timeout"),
        (b"MSG b 1 2\r\nxy\r\n", "no frame"),
        (b"MSG a 1 99999999\r\n", "no frame"),
        (b"MSG a 1 -3\r\n", "no frame"),
        (b"MSG a\r\n", "no frame"),
        (b"HMSG a 1 9 3\r\nabc\r\n", "no frame"),
        (b"nonsense\r\n", "no frame"),
        (b"x\n", "no frame"),
    ],
)
def test_receive_faults(generator, pair, sent, text):
    peer, measured = pair
    peer.sendall(sent)
    with pytest.raises(generator.LoadError, match=text):
        generator.receive(measured.fileno(), HEADER, 3)


def test_closed_connection(generator, pair):
    peer, measured = pair
    peer.sendall(MESSAGE)
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(generator.LoadError, match="closed"):
        generator.receive(measured.fileno(), HEADER, 3)


def test_a_receiver_that_takes_nothing_fails_the_publisher(generator, pair):
    _, measured = pair
    frame = b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n"
    with pytest.raises(generator.LoadError, match="took no bytes"):
        generator.publish(measured.fileno(), frame * 100, len(frame), 100, 10**6, b"PING\r\n", CAP)


@pytest.mark.parametrize(
    "answer",
    [
        b'{"error":{"code":503,"description":"insufficient"},"stream":"S","seq":0}',
        b'{"stream":"S"}',
    ],
)
def test_refused_publish(generator, pair, answer):
    peer, measured = pair
    peer.sendall(b"MSG inbox 3 %d\r\n%s\r\n" % (len(answer), answer))
    with pytest.raises(generator.LoadError, match="refused"):
        generator.publish_sync(measured.fileno(), b"PUB s inbox 0\r\n\r\n", 1, CAP)


def test_no_responders_is_refusal(generator, pair):
    peer, measured = pair
    peer.sendall(b"HMSG inbox 3 16 16\r\nNATS/1.0 503\r\n\r\n\r\n")
    with pytest.raises(generator.LoadError, match="refused"):
        generator.publish_window(measured.fileno(), b"x" * 10, 10, 1, 1, 10, CAP)


def test_flow_control_is_answered(generator, pair):
    peer, measured = pair
    status = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    missed = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: fc.2\r\n\r\n"
    peer.sendall(
        b"HMSG d 4 fc.1 %d %d\r\n%s\r\n" % (len(status), len(status), status)
        + b"HMSG d 4 %d %d\r\n%s\r\n" % (len(missed), len(missed), missed)
    )
    answers = []

    def answer() -> None:
        data = b""
        while data.count(b"PUB fc.") < 2:
            data += peer.recv(1000)
        answers.append(data)
        peer.sendall(b"MSG s 4 $JS.ACK.S.C.1.1.1.1.0 2\r\nok\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    count, _ = generator.drain_push(measured.fileno(), b"GO\r\n", 1, CAP)
    thread.join()
    assert count == 1
    assert answers == [b"GO\r\nPUB fc.1 0\r\n\r\nPUB fc.2 0\r\n\r\n"]
