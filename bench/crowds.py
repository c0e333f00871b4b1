"""Patterns of many: publishers beside each other, subscriptions by the million, and TLS.

Those that need a server of their own start one by the measured server's recipe.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import build
from bench.certificate import write_certificate
from bench.patterns import PER_WRITE, Figure, Load, Mismatch, Pattern, rate, whole
from bench.servers import HOST, Server
from bench.wire import Link

PAIRS = 4
SUBJECTS = 1_000
WILDCARDS = 10_000
PER_CONNECTION = 100
"""Subscriptions of each of the many connections."""

MANY_S = 60.0
"""Longest silence of a server that is taking subscriptions by the million, in seconds."""

OWN_WORDS = 64
"""Bytes at most that a server says of its own during a measurement."""

RECORDS = 1 << 20
"""Bytes of the buffer that a TLS receiver reads into."""


def together(works: "list[Callable[[], None]]") -> None:
    """Run each in a thread of its own, and raise what the first of them raised."""
    errors: list[Exception] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def pairs(server: Server, load: Load, *, size: int) -> Figure:
    """`PAIRS` publishers, each with a subject and a subscriber of its own, at once."""
    generator = build.generator()
    each = whole(load.messages // PAIRS, PER_WRITE)
    found: list[tuple[int, int]] = []
    begins: list[int] = []
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(Link(server.port, load.timeout)) for _ in range(2 * PAIRS)]
        works: list[Callable[[], None]] = []
        for number in range(PAIRS):
            sender, receiver = links[2 * number : 2 * number + 2]
            subject = f"bench.pair.{number}"
            receiver.subscribe(subject, "1")
            receiver.subscribe(f"{subject}.end", "2")
            frame = f"PUB {subject} {size}\r\n".encode() + b"x" * size + b"\r\n"
            end = f"PUB {subject}.end 0\r\n\r\nPING\r\n".encode()
            header = f"MSG {subject} 1 {size}\r\n".encode()

            def take(fd: int = receiver.fd, header: bytes = header) -> None:
                found.append(generator.receive(fd, header, size))

            def send(fd: int = sender.fd, frame: bytes = frame, end: bytes = end) -> None:
                row = frame * PER_WRITE
                sent = generator.publish(
                    fd, row, len(frame), PER_WRITE, each, end, 10 * load.cap_ns
                )
                begins.append(sent[1])

            works += [take, send]
        together(works)
    total = sum(count for count, _ in found)
    if total != each * PAIRS:
        raise Mismatch(f"{total} of {each * PAIRS} messages arrived")
    return rate(total, max(at for _, at in found) - min(begins))


def wildcards(server: Server, load: Load, *, size: int) -> Figure:
    """One publisher to `SUBJECTS` subjects; one of `WILDCARDS` subscriptions wants each."""
    generator = build.generator()
    count = min(WILDCARDS, max(SUBJECTS, load.messages))
    step = count // SUBJECTS
    with Link(server.port, load.timeout) as taker, Link(server.port, load.timeout) as sender:
        taker.send(
            b"".join(b"SUB bench.wild.%05d.* 1%05d\r\n" % (each, each) for each in range(count))
        )
        taker.subscribe("bench.wild.end", "2")
        frames = [
            f"PUB bench.wild.{each * step:05d}.x {size}\r\n".encode() + b"x" * size + b"\r\n"
            for each in range(SUBJECTS)
        ]
        found: list[tuple[int, int]] = []
        sent: list[tuple[int, int, int]] = []
        end = b"PUB bench.wild.end 0\r\n\r\nPING\r\n"
        total = whole(load.messages, SUBJECTS)
        together(
            [
                lambda: found.append(generator.receive_any(taker.fd)),
                lambda: sent.append(
                    generator.publish(
                        sender.fd,
                        b"".join(frames),
                        len(frames[0]),
                        250,
                        total,
                        end,
                        load.cap_ns,
                    )
                ),
            ]
        )
    if found[0][0] != sent[0][0]:
        raise Mismatch(f"{found[0][0]} of {sent[0][0]} messages arrived")
    return rate(sent[0][0], found[0][1] - sent[0][1])


@contextlib.contextmanager
def alone(server: Server, config: str) -> Iterator[Server]:
    """A server of the same kind with a configuration of its own; the other one rests meanwhile."""
    server.pause()
    try:
        with Server(replace(server.recipe, config=config)) as other:
            yield other
    finally:
        server.resume()


def tls_publish(server: Server, load: Load, *, size: int) -> Figure:
    """1 -> 1 over TLS on both connections. Python's `ssl` makes the load, for both servers."""
    total = whole(load.messages, PER_WRITE)
    with TemporaryDirectory() as folder:
        pem = write_certificate(Path(folder))
        config = f'tls {{ cert_file: "{pem}", key_file: "{pem}" }}\n'
        with alone(server, config) as other, contextlib.ExitStack() as stack:
            taker, sender = (
                stack.enter_context(_tls_link(other.port, pem, load.timeout)) for _ in range(2)
            )
            taker.sendall(b"SUB bench.tls 1\r\nPING\r\n")
            _read_until(taker, b"PONG\r\n")
            row = (f"PUB bench.tls {size}\r\n".encode() + b"x" * size + b"\r\n") * PER_WRITE
            wanted = total * (len(f"MSG bench.tls 1 {size}\r\n") + size + 2)
            began = time.monotonic_ns()

            def send() -> None:
                for _ in range(total // PER_WRITE):
                    sender.sendall(row)

            together([send, lambda: _take(taker, wanted)])
            return rate(total, time.monotonic_ns() - began)


def _tls_link(port: int, pem: Path, timeout: float) -> ssl.SSLSocket:
    """A client over TLS that has said hello."""
    import socket

    plain = socket.create_connection((HOST, port), timeout)
    while not plain.recv(1, socket.MSG_PEEK) or b"\n" not in plain.recv(65536):
        pass
    context = ssl.create_default_context(cafile=str(pem))
    link = context.wrap_socket(plain, server_hostname="localhost")
    link.sendall(b'CONNECT {"verbose":false,"tls_required":true}\r\nPING\r\n')
    _read_until(link, b"PONG\r\n")
    return link


def _read_until(link: ssl.SSLSocket, end: bytes) -> None:
    data = b""
    while not data.endswith(end):
        part = link.recv(65536)
        if not part:
            raise Mismatch(f"closed after {data[-200:]!r}")
        data += part


def _take(link: ssl.SSLSocket, wanted: int) -> None:
    """Read so many bytes of messages, and whatever a server says of its own (PING) with them."""
    buffer = bytearray(RECORDS)
    taken = 0
    while taken < wanted:
        got = link.recv_into(buffer)
        if not got:
            raise Mismatch(f"closed after {taken} of {wanted} bytes")
        taken += got
    if taken > wanted + OWN_WORDS:
        raise Mismatch(f"{taken} bytes instead of {wanted}")


def interest(server: Server, load: Load, *, what: str) -> Figure:
    """`load.messages` subscriptions, `PER_CONNECTION` for each of their connections, in a server of
    their own: the time to take them, its memory for each, and the time to match one of them.

    The first of the three rows that asks in a round measures all of them.
    """
    key = (server.pid, load.messages)
    if what not in _interest.get(key, {}):
        _interest.clear()
        _interest[key] = _measure_interest(server, load)
    return _interest[key].pop(what)


_interest: dict[tuple[int, int], dict[str, Figure]] = {}
"""What one measurement found, by the process id of the server that it was asked of."""


def _measure_interest(server: Server, load: Load) -> dict[str, Figure]:
    connections = max(1, load.messages // PER_CONNECTION)
    total = connections * PER_CONNECTION
    config = f"max_connections: {connections + 10}\n"
    with alone(server, config) as other, contextlib.ExitStack() as stack:
        before = other.rss()
        began = time.monotonic_ns()
        links = [stack.enter_context(Link(other.port, MANY_S)) for _ in range(connections)]
        for number, link in enumerate(links):
            subjects = (f"bench.{number}.{each}.a 1{each}" for each in range(PER_CONNECTION))
            link.send("".join(f"SUB {subject}\r\n" for subject in subjects).encode())
        for link in links:
            link.flush()
        taken = rate(total, time.monotonic_ns() - began)
        return {
            "take": taken,
            "memory": less((other.rss() - before) * (1 << 20) / total, taken),
            "match": _matching(other, connections),
        }


def less(value: float, run: Figure) -> Figure:
    """A figure of which less is better, of a run that took as long as `run`."""
    value = max(value, 0.001)
    return Figure(0.0, run.messages, run.seconds, {"p50": value, "p99": value})


def _matching(server: Server, connections: int) -> Figure:
    """Publish to each subject once, so that no cache of matches knows it; microseconds for each."""
    with Link(server.port, MANY_S) as sender:
        began = time.monotonic_ns()
        for each in range(PER_CONNECTION):
            frames = (f"PUB bench.{number}.{each}.a 0\r\n\r\n" for number in range(connections))
            sender.send("".join(frames).encode())
            sender.flush()
        passed = time.monotonic_ns() - began
    total = connections * PER_CONNECTION
    return less(passed / total / 1000, rate(total, passed))


def _crowds() -> Iterator[Pattern]:
    run = partial(pairs, size=128)
    yield Pattern("pairs-128", "4 -> 4, 128 B", 2_000_000, run, required=2.5)
    run = partial(wildcards, size=128)
    title = "1,000 subjects, 10,000 wildcards"
    yield Pattern("wild-128", title, 1_000_000, run, required=2.5)
    run = partial(tls_publish, size=128)
    yield Pattern("tls-128", "TLS, 1 -> 1, 128 B", 600_000, run, required=1.2)
    # Nothing else may come between these three.
    many = partial(Pattern, messages=1_000_000)
    run = partial(interest, what="take")
    yield many("subs-take", "10,000 connections, 1,000,000 subscriptions", run=run, required=1.0)
    run = partial(interest, what="memory")
    title = "memory for each of those"
    yield many("subs-memory", title, run=run, latency=True, unit="B", required=1.0)
    run = partial(interest, what="match")
    title = "one message to each of those"
    yield many("subs-match", title, run=run, latency=True, required=2.0)


CROWDS: tuple[Pattern, ...] = tuple(_crowds())
