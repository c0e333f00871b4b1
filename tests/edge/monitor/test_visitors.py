"""HTTP at the monitoring port: what a client may send, and what becomes of what it may not."""

import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.servers import Recipe, Server, free_port, program
from headwater.edge.wire.http_heads import FIELDS_MAX, HEAD_MAX, LARGE_TOGETHER
from tests.certificates import certificate
from tests.waiting import until_seen

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
TAIL = b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: "
ANSWERED = {
    "get": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + TAIL,
    "head": b"HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n" + TAIL,
    "body": b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc" + TAIL,
    "absolute": b"GET http://x/healthz?js-enabled=0 HTTP/1.1\r\nHost: x\r\n\r\n" + TAIL,
    "escaped": b"GET /health%7a HTTP/1.1\r\nHost: x\r\n\r\n" + TAIL,
    "older": b"GET /healthz HTTP/1.0\r\n\r\n",
    "long": b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 9000 + b"\r\n\r\n" + TAIL,
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n" + TAIL,
    "two hosts": b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + TAIL,
    "junk": b"JUNK\r\n\r\n" + TAIL,
    "length": b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n" + TAIL,
    "negative": b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n" + TAIL,
    "header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n" + TAIL,
    "space": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n" + TAIL,
    "longest": GET + b"y" * (HEAD_MAX - len(GET) - 4) + b"\r\n\r\n" + TAIL,
    "most fields": GET + b"\r\nY: " * (FIELDS_MAX - 2) + b"\r\n\r\n" + TAIL,
}
REFUSED = {
    "a byte more": GET + b"y" * (HEAD_MAX - len(GET) - 3) + b"\r\n\r\n",
    "two megabytes": GET + b"y" * (2 << 20),
    "a field more": GET + b"\r\nY: " * (FIELDS_MAX - 1) + b"\r\n\r\n",
}


@contextmanager
def monitored(name: str, config: str = "") -> Iterator[int]:
    """A server's monitoring port."""
    port = free_port()
    text = config.replace("PORT", str(port)) or f"http: '127.0.0.1:{port}'\n"
    with Server(Recipe(name, BOTH[name], text)):
        yield port


def ask(port: int, data: bytes) -> list[tuple[int, bytes]]:
    """Statuses and bodies of the answers to `data`, until the server closes."""
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(data)
        with link.makefile("rb") as stream:
            text = stream.read()
    answers = []
    while text:
        head, _, rest = text.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")),
            len(rest),
        )
        if data.startswith(b"HEAD") and not answers:
            length = 0
        status = int(head.split()[1])
        # The words of a refusal are each server's own.
        answers.append((status, rest[:length] if status != 400 else b""))
        text = rest[length:]
    return answers


def test_answers_are_those_of_the_real_server() -> None:
    found = {}
    for name in BOTH:
        with monitored(name) as port:
            found[name] = {kind: ask(port, data) for kind, data in ANSWERED.items()}
    assert found["headwater"] == found["nats-server"]
    assert found["headwater"]["get"][0] == (200, b'{"status":"ok"}')


def test_heads_are_refused_that_the_real_server_refuses() -> None:
    for name in BOTH:
        with monitored(name) as port:
            for kind, data in REFUSED.items():
                assert [status for status, _ in ask(port, data)] == [431], (name, kind)


def test_large_heads_share_what_they_may_take() -> None:
    """Those of many connections are refused; a small one is answered all the same."""
    with monitored("headwater") as port, ExitStack() as links:
        for _ in range(LARGE_TOGETHER // (1 << 20)):
            link = links.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            link.sendall(GET + b"y" * (1 << 20))
        until_seen(lambda: ask(port, ANSWERED["longest"])[0][0] == 431)
        assert [status for status, _ in ask(port, ANSWERED["get"])] == [200, 404]
        links.close()
        until_seen(lambda: ask(port, ANSWERED["longest"])[0][0] == 200)


def test_what_would_cost_too_much_is_refused() -> None:
    post = b"POST /healthz HTTP/1.1\r\nHost: x\r\n"
    with monitored("headwater") as port:
        assert ask(port, post + b"Content-Length: 1000000\r\n\r\n")[0][0] == 413
        both = b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
        assert [status for status, _ in ask(port, post + both + TAIL)] == [400]
        chunked = b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        assert [status for status, _ in ask(port, post + chunked + TAIL)] == [200, 404]
        assert ask(port, b"GET / HTTP/9.9\r\nHost: x\r\n\r\n" + TAIL)[0][0] == 505


def test_requests_in_small_parts_and_many_at_once() -> None:
    request = b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n"
    with monitored("headwater") as port:
        with socket.create_connection(("127.0.0.1", port), 10) as link:
            for at in range(len(request)):
                link.sendall(request[at : at + 1])
            assert link.recv(65536).startswith(b"HTTP/1.1 200 OK")
        statuses = [status for status, _ in ask(port, request * 2000 + TAIL)]
    assert statuses == [200] * 2000 + [404]


def test_over_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    files = f"cert_file: '{tls.cert_file}', key_file: '{tls.key_file}'"
    config = f"https: '127.0.0.1:PORT'\ntls {{ {files} }}\n"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with monitored("headwater", config) as port:
        plain = socket.create_connection(("127.0.0.1", port), 10)
        with context.wrap_socket(plain) as link, link.makefile("rb") as stream:
            link.sendall(ANSWERED["get"])
            text = stream.read()
    assert b"200 OK" in text and b"404 Not Found" in text


WATCHED = """
import asyncio, sys
from headwater.deploy.compose import services_for
from headwater.edge.conf.load import load_text
from headwater.edge.conf.validate import complete
from headwater.edge.node.node import Node

async def main():
    options = load_text("listen: '127.0.0.1:-1'\\nhttp: '127.0.0.1:-1'\\n").options
    complete(options)
    node = Node(options, asyncio.get_running_loop())
    node.services.extend(services_for(options))
    node.start()
    known = set(sys.modules)
    port = int(node.ports()["monitoring"][0].rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /varz HTTP/1.0\\r\\n\\r\\n")
    print((await reader.read()).partition(b"\\r\\n")[0].decode(), sorted(set(sys.modules) - known))
    await node.stop()

asyncio.run(main())
"""


def test_the_first_page_waits_for_no_imports() -> None:
    found = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True)
    assert found.stdout == "HTTP/1.1 200 OK []\n", found.stderr
