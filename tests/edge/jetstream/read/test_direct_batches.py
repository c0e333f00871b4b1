"""Large batches of direct gets: in parts, while the stream moves, to slow readers and to nobody."""

import asyncio
import json
import socket
from collections.abc import Iterator
from typing import Any, BinaryIO

import nats

GET = "$JS.API.DIRECT.GET.LARGE"
MESSAGES = 6000
PATIENCE_S = 20
KINDS = 3000
"""Subjects of the stream: more than a filter follows one by one."""


async def filled(url: str, name: str = "LARGE", size: int = 300) -> Any:
    """A connection, and a stream whose last messages are there."""
    nc = await nats.connect(url)
    config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "allow_direct": True}
    create = json.dumps(config).encode()
    await nc.request(f"$JS.API.STREAM.CREATE.{name}", create, timeout=PATIENCE_S)
    for at in range(MESSAGES):
        headers = {"At": str(at)} if at % 7 == 0 else None
        subject = f"{name}.{at % KINDS // 1000}.{at % KINDS}"
        await nc.publish(subject, bytes([at % 251]) * size, headers=headers)
    await nc.request(f"{name}.last", b"", timeout=PATIENCE_S)
    return nc


async def batch(nc: Any, request: dict[str, Any]) -> list[tuple[bytes, dict[str, str]]]:
    """All messages that answer a request, without their times."""
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await nc.publish(GET, json.dumps(request).encode(), reply=inbox)
    found: list[tuple[bytes, dict[str, str]]] = []
    while not found or "Status" not in found[-1][1]:
        msg = await sub.next_msg(timeout=PATIENCE_S)
        headers = {k: v for k, v in (msg.headers or {}).items() if k != "Nats-Time-Stamp"}
        found.append((msg.data, headers))
    await sub.unsubscribe()
    return found


async def test_batches_of_many_parts(both_urls: tuple[str, str]) -> None:
    requests: list[dict[str, Any]] = [
        {"seq": 1, "batch": MESSAGES * 2},
        {"seq": 100, "batch": 5000},
        {"next_by_subj": "LARGE.*.*", "seq": 2, "batch": MESSAGES},
        {"next_by_subj": "LARGE.*.*", "seq": 4000, "batch": MESSAGES},
        {"next_by_subj": "LARGE.0.17", "batch": 5},
        {"next_by_subj": "LARGE.last", "seq": 2, "batch": 5},
        {"seq": 1, "batch": MESSAGES, "max_bytes": 1_000_000},
        {"seq": 5, "batch": 50, "max_bytes": -1},
        {"seq": 1, "batch": -1},
        {"seq": MESSAGES + 2, "batch": 9},
        {"multi_last": ["LARGE.1.*"]},
        {"multi_last": ["LARGE.1.*"], "batch": 3},
        {"multi_last": ["LARGE.>"]},
    ]
    ours, theirs = [await filled(url) for url in both_urls]
    for request in requests:
        assert await batch(ours, request) == await batch(theirs, request), request
    for nc in (ours, theirs):
        await nc.request("$JS.API.STREAM.DELETE.LARGE", b"", timeout=PATIENCE_S)
        await nc.close()


async def test_a_stream_that_moves_meanwhile(headwater_url: str) -> None:
    """What is stored later is pending only; what is deleted does not come, and nothing else
    stays away."""
    nc = await filled(headwater_url, size=2000)
    inbox = nc.new_inbox()
    sub = await nc.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
    await nc.publish(GET, b'{"seq": 1, "batch": 100000, "next_by_subj": "LARGE.*.*"}', reply=inbox)
    await nc.publish("LARGE.new.one", b"later")
    gone = range(MESSAGES - 20, MESSAGES + 1, 2)
    for sequence in gone:
        await nc.publish("$JS.API.STREAM.MSG.DELETE.LARGE", json.dumps({"seq": sequence}).encode())
    seen = []
    while True:
        msg = await sub.next_msg(timeout=PATIENCE_S)
        if "Status" in msg.headers:
            break
        seen.append(int(msg.headers["Nats-Sequence"]))
        assert int(msg.headers["Nats-Last-Sequence"]) == ([0, *seen][-2])
    kept = {*range(1, MESSAGES + 1)} - set(gone)
    assert kept <= set(seen) <= {*range(1, MESSAGES + 1)}
    assert seen == sorted(seen)
    assert msg.headers["Nats-Num-Pending"] == "1"
    await nc.request("$JS.API.STREAM.DELETE.LARGE", b"", timeout=PATIENCE_S)
    await nc.close()


def ask(url: str, requests: list[bytes]) -> socket.socket:
    """A connection that asks for batches and has read nothing yet."""
    host, port = url.removeprefix("nats://").split(":")
    link = socket.create_connection((host, int(port)), timeout=30)
    link.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB inb 1\r\n')
    for request in requests:
        link.sendall(b"PUB %b inb %d\r\n%b\r\n" % (GET.encode(), len(request), request))
    return link


def answers(file: BinaryIO) -> Iterator[bytes]:
    """Header blocks of what comes."""
    for line in file:
        if line.startswith(b"HMSG"):
            head, size = map(int, line.split()[-2:])
            yield file.read(size + 2)[:head]


async def test_a_slow_reader_gets_all_and_holds_up_nobody(headwater_url: str) -> None:
    """Five times 12 MB for who reads nothing yet; others are answered meanwhile."""
    nc = await filled(headwater_url, size=2000)
    rounds = 5
    link = ask(headwater_url, [b'{"seq":1,"batch":100000}'] * rounds)
    for _ in range(20):
        answer = await nc.request(GET, b'{"seq": 3}', timeout=PATIENCE_S)
        assert answer.headers["Nats-Sequence"] == "3"

    def read() -> list[bytes]:
        ends = []
        with link, link.makefile("rb") as file:
            count = 0
            for block in answers(file):
                count += 1
                if b"204 EOB" in block:
                    ends.append(block)
                if len(ends) == rounds:
                    break
        assert count == rounds * (MESSAGES + 2)
        return ends

    ends = await asyncio.to_thread(read)
    line = b"Nats-Num-Pending: 0\r\nNats-Last-Sequence: %d\r\n" % (MESSAGES + 1)
    assert all(line in end for end in ends)
    await nc.request("$JS.API.STREAM.DELETE.LARGE", b"", timeout=PATIENCE_S)
    await nc.close()


async def test_batches_of_who_is_gone_end(headwater_url: str) -> None:
    """More than may be under way at once, by connections that ask and go."""
    nc = await filled(headwater_url, size=2000)
    for _ in range(110):
        ask(headwater_url, [b'{"seq":1,"batch":100000}'] * 10).close()
    found = await batch(nc, {"seq": 1, "batch": 100})
    while "503" in found[-1][1].values():
        found = await batch(nc, {"seq": 1, "batch": 100})
    assert len(found) == 101
    await nc.request("$JS.API.STREAM.DELETE.LARGE", b"", timeout=PATIENCE_S)
    await nc.close()
