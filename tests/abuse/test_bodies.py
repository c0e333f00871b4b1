"""Bodies that are no sound JSON, or sound ones of no measure, for every request."""

import contextlib
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.abuse.attacked import UPGRADE, Attacked
from tests.abuse.test_wire import CONNECT, HELLO, frame

CALL_NAMES = (
    "INFO STREAM.CREATE.F STREAM.UPDATE.F STREAM.INFO.F STREAM.PURGE.F STREAM.MSG.GET.F "
    "STREAM.MSG.DELETE.F STREAM.NAMES STREAM.LIST STREAM.RESTORE.R STREAM.SNAPSHOT.F "
    "STREAM.DELETE.F CONSUMER.CREATE.F CONSUMER.CREATE.F.c CONSUMER.DURABLE.CREATE.F.c "
    "CONSUMER.NAMES.F CONSUMER.LIST.F CONSUMER.INFO.F.c CONSUMER.DELETE.F.c CONSUMER.PAUSE.F.c "
    "CONSUMER.UNPIN.F.c STREAM.PEER.REMOVE.F STREAM.LEADER.STEPDOWN.F "
    "CONSUMER.LEADER.STEPDOWN.F.c META.LEADER.STEPDOWN SERVER.REMOVE ACCOUNT.PURGE.A"
)
CALLS = CALL_NAMES.split()
SILENT = {
    "STREAM.PEER.REMOVE.F", "STREAM.LEADER.STEPDOWN.F", "CONSUMER.LEADER.STEPDOWN.F.c",
    "META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.A",
}  # fmt: skip
"""Requests that a node alone, or an ordinary account, need not be answered."""

BODIES: dict[str, bytes] = {
    "nested lists": b'{"name":"F","metadata":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "nested objects": b'{"config":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    "nested and open": b"[" * 500_000,
    "doubled keys": b'{"name":"F","name":"G","stream_name":"F","stream_name":"G","subjects":["f"],'
    b'"seq":1,"seq":-1,"config":{},"config":null}',
    "a lone surrogate": b'{"name":"F","description":"\\ud800","subjects":["\\udfff"],'
    b'"filter":"\\ud800","config":{"description":"\\udc00"}}',
    "bytes that are no UTF-8": b'{"name":"F\xff","description":"\xff\xfe\xc0\x80"}',
    "NaN": b'{"name":"F","max_msgs":NaN,"seq":NaN,"config":{"max_deliver":Infinity}}',
    "beyond a double": b'{"name":"F","max_msgs":1e999,"seq":-1e999,"config":{"ack_wait":1e308}}',
    "a double": b'{"name":"F","max_msgs":1e308,"seq":1.5,"offset":1e18,"batch":-0.0}',
    "a number of digits": b'{"name":"F","max_msgs":' + b"9" * 500_000 + b',"seq":1}',
    "a long string": b'{"name":"F","description":"' + b"x" * 900_000 + b'"}',
    "a long name": b'{"name":"' + b"F" * 900_000 + b'"}',
    "many keys": b"{" + b",".join(b'"k%d":1' % n for n in range(60_000)) + b"}",
    "a long key": b'{"' + b"k" * 100_000 + b'":1}',
    "NUL": b'{"name":"F\\u0000","subjects":["f\\u0000"]}\x00',
    "a byte order mark": b'\xef\xbb\xbf{"name":"F"}',
    "more behind": b'{"name":"F"}{"name":"G"}',
    "2^63": b'{"name":"F","subjects":["f"],"max_msgs":9223372036854775808'
    b',"seq":9223372036854775808'
    b',"offset":9223372036854775808,"config":{"opt_start_seq":9223372036854775808}}',
    "2^64": b'{"name":"F","subjects":["f"],"max_age":18446744073709551616'
    b',"seq":18446744073709551616,'
    b'"keep":18446744073709551616,"config":{"max_ack_pending":18446744073709551616}}',
    "-1": b'{"name":"F","subjects":["f"],"seq":-1,"keep":-1,"offset":-1,"first_seq":-1,'
    b'"config":{"opt_start_seq":-1,"max_batch":-1,"backoff":[-1]}}',
    "a list": b"[1,2,3]",
    "null": b"null",
    "a string": b'"F"',
    "CR LF": b'{"name":"F\\r\\nPING","subjects":["f\\r\\nPING"],"deliver_subject":"d\\r\\nPING",'
    b'"config":{"name":"c\\r\\nPING","deliver_subject":"d\\r\\nPING"}}',
}
END = b"_I.end "


def asked(body: bytes, verb: str) -> Iterator[bytes]:
    """A request of each kind with this body, and one that is answered last."""
    for number, call in enumerate(CALLS):
        prefix = "$JS.hub.API" if number % 2 else "$JS.API"
        yield b"%s %s.%s _I.%d %d\r\n%s\r\n" % (
            verb.encode(), prefix.encode(), call.encode(), number, len(body), body
        )  # fmt: skip
    yield b"%s $JS.API.INFO _I.end 0\r\n\r\n" % verb.encode()


def until_end(link: socket.socket) -> bytes:
    """What comes until the last answer."""
    got = bytearray()
    while END not in got[-70_000:]:
        part = link.recv(1 << 16)
        assert part, bytes(got[-300:])
        got += part
    return bytes(got)


@contextlib.contextmanager
def door(node: Attacked, listener: str) -> Iterator[tuple[socket.socket, Callable[..., None], str]]:
    """A session on a listener: its socket, how to send, and its verb for messages."""
    with node.open(listener) as link:
        link.settimeout(30)
        if listener == "ws":
            link.sendall(UPGRADE)
            link.recv(4096)

        def send(data: bytes) -> None:
            link.sendall(frame(data) if listener == "ws" else data)

        if listener == "leaf":
            send(HELLO["leaf"] + b"PING\r\nLS+ _I.>\r\n")
        else:
            send(CONNECT + b"SUB _I.> 1\r\n")
        yield link, send, "LMSG" if listener == "leaf" else "PUB"


@pytest.mark.parametrize("listener", ["client", "ws", "leaf"])
@pytest.mark.parametrize("name", BODIES)
def test_every_request_is_answered(node: Attacked, listener: str, name: str) -> None:
    """Or refused in words; the connection goes on, and so does the next request."""
    with door(node, listener) as (link, send, verb):
        for piece in asked(BODIES[name], verb):
            send(piece)
        got = until_end(link)
    for number, call in enumerate(CALLS):
        if call not in SILENT:
            assert b"_I.%d " % number in got, call
    assert b"\r\nPING\r\nPING" not in got
    for stream in "FGR":
        node.api(f"STREAM.DELETE.{stream}")
