"""Header blocks of any form go into and out of streams as they do with nats-server."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

Frame = tuple[str, bytes, bytes]

PLAIN = b"NATS/1.0\r\n\r\n"
BLOCKS = {
    "none": b"",
    "three bytes": b"abc",
    "empty": PLAIN,
    "no empty line": b"NATS/1.0\r\n",
    "other version": b"NATS/9.9\r\nA: b\r\n\r\n",
    "status": b"NATS/1.0 503\r\n\r\n",
    "status and header": b"NATS/1.0 100 Idle\r\nA: b\r\n\r\n",
    "first line is a header": b"Nats-Msg-Id: first\r\n\r\n",
    "header has no end": b"NATS/1.0\r\nNats-Expected-Stream: OTHER",
    "no carriage returns": b"NATS/1.0\nNats-Expected-Stream: OTHER\n\n",
    "empty line between": b"NATS/1.0\r\n\r\nNats-Expected-Stream: OTHER\r\n\r\n",
}
FATAL = {
    "one byte": b"x",
    "two bytes": b"\r\n",
}
"""nats-server itself ends, or republishes what no client can read."""
NUMBERS = count()


class Wire:
    """A raw client that reads frames and publishes blocks of any form."""

    def __init__(self, url: str) -> None:
        port = int(url.rsplit(":", 1)[1])
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        self.reader = self.socket.makefile("rb")
        self.reader.readline()
        self.stream = ""
        self.waiting: dict[bytes, list[Frame]] = {b"1": [], b"2": [], b"3": []}
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n')
        self.send(b"SUB answer 1\r\nSUB again.> 2\r\nSUB bare 3\r\n")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self, sid: bytes = b"1") -> Frame:
        """The next message of a subscription: subject, header block, payload."""
        while not self.waiting[sid]:
            line = self.reader.readline()
            assert line, "the connection has ended"
            words = line.split()
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            if words[0] not in (b"MSG", b"HMSG"):
                continue
            body = self.reader.read(int(words[-1]) + 2)[:-2]
            cut = int(words[-2]) if words[0] == b"HMSG" else 0
            block = re.sub(rb"(Nats-Time-Stamp:) \S+", rb"\1 now", body[:cut])
            self.waiting[words[2]].append((words[1].decode(), block, body[cut:]))
        return self.waiting[sid].pop(0)

    def publish(self, subject: str, block: bytes, payload: bytes = b"hi") -> Frame:
        """Publish with a reply, and return the answer."""
        head = f"HPUB {subject} answer {len(block)} {len(block) + len(payload)}\r\n".encode()
        self.send(head + block + payload + b"\r\n")
        return self.frame()

    def request(self, subject: str, body: Any) -> Any:
        """A request of the JetStream API, answered with JSON."""
        text = json.dumps(body).encode()
        self.send(b"PUB $JS.API.%s answer %d\r\n%s\r\n" % (subject.encode(), len(text), text))
        answer = json.loads(self.frame()[2])
        assert "error" not in answer, answer
        return answer

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture(params=["memory", "file"])
def wires(request: pytest.FixtureRequest, both_urls: tuple[str, str]) -> Iterator[list[Wire]]:
    """Connections to both servers, with a stream that republishes what comes.

    Each test has a name of its own: nats-server may give messages of a stream that was deleted,
    when one of the same name on files follows at once.
    """
    links = [Wire(url) for url in both_urls]
    name = f"ODD{next(NUMBERS)}"
    for wire in links:
        wire.stream = name
        stream = {
            "name": name,
            "subjects": ["odd.>"],
            "storage": request.param,
            "allow_direct": True,
            "republish": {"src": "odd.>", "dest": "again.>"},
        }
        wire.request(f"STREAM.CREATE.{name}", stream)
    yield links
    for wire in links:
        wire.request(f"STREAM.DELETE.{name}", {})
        wire.close()


def outcome(wire: Wire, block: bytes) -> list[Frame]:
    """What a publish is answered, and what the stream gives back of it."""
    found = [wire.publish("odd.a", block)]
    if "error" in json.loads(found[0][2]):
        return found
    found.append(wire.frame(b"2"))
    name = wire.stream.encode()
    wire.send(b"PUB $JS.API.DIRECT.GET.%b.odd.a answer 0\r\n\r\n" % name)
    found.append(wire.frame())
    wire.send(b'PUB $JS.API.DIRECT.GET.%b answer 24\r\n{"last_by_subj":"odd.a"}\r\n' % name)
    found.append(wire.frame())
    return found


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_stored_and_read(wires: list[Wire], name: str) -> None:
    ours, theirs = (outcome(wire, BLOCKS[name]) for wire in wires)
    assert ours == theirs


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_delivered_without_its_payload(wires: list[Wire], name: str) -> None:
    found = []
    for wire in wires:
        outcome(wire, BLOCKS[name])
        consumer = {"deliver_subject": "bare", "headers_only": True, "ack_policy": "none"}
        request = {"stream_name": wire.stream, "config": consumer}
        wire.request(f"CONSUMER.CREATE.{wire.stream}", request)
        wire.publish("odd.end", b"")
        frames = [wire.frame(b"3")]
        while frames[-1][0] != "odd.end":
            frames.append(wire.frame(b"3"))
        found.append(frames)
    assert found[0] == found[1]


@pytest.mark.parametrize("name", FATAL)
def test_a_block_harms_nobody(headwater_url: str, name: str) -> None:
    with closing(Wire(headwater_url)) as wire:
        stream = {"name": "ONE", "subjects": ["odd.>"], "allow_direct": True}
        republish = {"republish": {"src": "odd.>", "dest": "again.>"}}
        wire.stream = "ONE"
        wire.request("STREAM.CREATE.ONE", {**stream, **republish})
        stored, again, *read = outcome(wire, FATAL[name])
        assert json.loads(stored[2]) == {"stream": "ONE", "seq": 1}
        assert b"Nats-Stream: ONE\r\n" in again[1]
        assert [frame[2] for frame in (again, *read)] == [b"hi"] * 3
        wire.request("STREAM.DELETE.ONE", {})
