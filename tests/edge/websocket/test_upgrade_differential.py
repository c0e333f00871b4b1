"""Which requests open a WebSocket, and what the others are told, on both servers."""

from collections.abc import Iterator

import pytest

from bench.servers import HOST, Recipe, Server, free_port, program
from headwater.edge.wire.http_heads import FIELDS_MAX, HEAD_MAX
from tests.dial import dial

FIELDS = {
    "Host": "x", "Upgrade": "websocket", "Connection": "Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13",
}  # fmt: skip
ENDED_SOON_S = 10.0
"""So long an answer may take."""


def request(method: str = "GET", path: str = "/", version: str = "HTTP/1.1", **more: str) -> bytes:
    """A request for a WebSocket with other header fields, `_` in their names for `-`."""
    fields = FIELDS | {name.replace("_", "-"): value for name, value in more.items()}
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in fields.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def filled(size: int) -> bytes:
    """A request of that many bytes."""
    return request(X="y" * (size - len(request(X=""))))


REQUESTS = {
    "as clients ask": request(),
    "another method": request(method="POST"),
    "a method in small letters": request(method="get"),
    "a path of its own": request(path="/nats?x=1"),
    "a path with a host": request(path="http://h/mqtt"),
    "of a whole server": request(path="*"),
    "a percent sign that begins nothing": request(path="/%zz"),
    "a space in the path": request(path="/a b"),
    **{f"version {name!r}": request(version=name) for name in (
        "HTTP/0.9", "HTTP/1.0", "HTTP/1.2", "HTTP/2.0", "HTTP/3.0", "HTTP/1", "http/1.1", "",
    )},
    **{f"host {name!r}": request(Host=name) for name in (
        "", "a b", "x/y", "é", "x,y", "[::1]:8080", "x:99999",
    )},
    **{f"upgrade {name!r}": request(Upgrade=name) for name in ("WebSocket, x", "x", "")},
    **{f"key {name!r}": request(Sec_WebSocket_Key=name) for name in ("", "x", "a" * 100)},
    **{f"protocol {name!r}": request(Sec_WebSocket_Version=name) for name in ("12", "13, 14", "")},
    "an expectation": request(Expect="100-continue"),
    "an unknown expectation": request(Expect="x"),
    "another encoding": request(Transfer_Encoding="x"),
    "no length": request(Content_Length="x"),
    "a control byte": request(A="\x7f"),
    "a zero byte": request(A="\0"),
    "cookies of 60 kB": request(Cookie="a=" + "b" * 60_000),
    "the longest head": filled(HEAD_MAX),
    "a byte more": filled(HEAD_MAX + 1),
    "two megabytes": filled(2 << 20),
    "the most fields": request(**{f"X{i}": "" for i in range(FIELDS_MAX - len(FIELDS))}),
    "a field more": request(**{f"X{i}": "" for i in range(FIELDS_MAX - len(FIELDS) + 1)}),
    "very many fields": request(**{f"X{i}": "" for i in range(20_000)}),
}  # fmt: skip


@pytest.fixture(scope="module")
def listeners() -> Iterator[tuple[int, int]]:
    """Ports where Headwater and nats-server await WebSockets."""
    found = free_port(), free_port()
    conf = 'websocket {{ listen: "{}:{}", no_tls: true }}\n'
    ours, theirs = (
        Recipe(name, command, conf.format(HOST, port))
        for port, name, command in zip(
            found, ("headwater", "nats-server"),
            ((program("headwater"), "serve"), (program("nats-server"),)), strict=True,
        )
    )  # fmt: skip
    with Server(ours), Server(theirs):
        yield found


PATHS = (
    "//", "/a//b", "/a/../b", "/..", "/a/./b", "/a/..", "/a/.", "/.", "/./", "/...", "/a/b/",
    "/a//",
    "//leafnode", "/leafnode/", "/leafnode/..", "/x/../leafnode", "//mqtt", "/a//b?q=1//2", "?a",
    "/%2e%2e/b", "/a%2f%2fb", "/a//%20x", "http://h//x", "http://h", "http://h/x?q", "http://h?q",
    "a//b", "a/b", "://h/x", "http://", "http:/h", "h", "//host/x", "///",
)  # fmt: skip


def answer(port: int, head: bytes) -> tuple[bytes, bytes]:
    """The status that answers a request, and the place that it names."""
    with dial(port, ENDED_SOON_S) as conn:
        conn.sendall(head)
        said = b""
        while b"\r\n\r\n" not in said and (data := conn.recv(65536)):
            said += data
    place = said.partition(b"\r\nLocation: ")[2].partition(b"\r\n")[0]
    return said.partition(b"\r\n")[0].split()[1], place


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_requests_open_websockets(listeners: tuple[int, int], name: str) -> None:
    ours, theirs = (answer(port, REQUESTS[name]) for port in listeners)
    assert ours == theirs


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_the_same_paths_are_elsewhere(listeners: tuple[int, int], method: str, path: str) -> None:
    ours, theirs = (answer(port, request(method, path)) for port in listeners)
    assert ours == theirs
