"""A node that has every door open, as a process, and what an attacker does with them."""

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.servers import Recipe, Server, free_port, program
from tests.dial import dial
from tests.measuring import within
from tests.operator_realm import Raw

CONFIG = """
server_name: hub, max_payload: 1MB, max_pending: 8MB, max_subscriptions: 5000
http: "127.0.0.1:{monitor}"
authorization {{ timeout: 1 }}
accounts {{
  A {{ jetstream: enabled, users: [
      {{user: a, password: pa}}
      {{user: shy, password: ps, permissions: {{
          publish: {{deny: ["secret.>", "traced"]}}
          subscribe: {{deny: ["secret.>", "work.here queue"]}} }} }} ]
    exports: [{{service: "svc"}}] }}
  B {{ jetstream: enabled, users: [{{user: b, password: pb}}]
    imports: [{{service: {{account: A, subject: "svc"}}}}] }}
  SYS {{ users: [{{user: s, password: ss}}] }}
}}
system_account: SYS
jetstream {{ store_dir: "{{dir}}", domain: hub, max_file_store: 64MB, max_memory_store: 64MB }}
websocket {{ listen: "127.0.0.1:{ws}", no_tls: true, compression: true, handshake_timeout: "1s" }}
leafnodes {{ listen: "127.0.0.1:{leaf}", compression: accept, authorization {{ timeout: 1 }} }}
"""
ROUTER = """
server_name: router, http: "127.0.0.1:{route_monitor}"
accounts {{ A {{ users: [{{user: a, password: pa}}] }} }}
cluster {{ name: C, listen: "127.0.0.1:{route}"
  authorization {{ user: r, password: pr, timeout: 1 }} }}
"""
PORTS = ("monitor", "ws", "leaf", "route", "route_monitor")
PASSWORDS = {"a": "pa", "b": "pb", "s": "ss", "shy": "ps"}
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
EXTENSION = b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
CALM_S = 2.0
"""How long somebody else may have to wait while an attack goes on."""


class Attacked:
    """The node, its ports by listener, and a neighbour who must not notice anything. Routes are
    those of a node without streams, since these need a majority of a cluster."""

    def __init__(self, server: Server, router: Server, ports: dict[str, int]) -> None:
        self.server = server
        self.router = router
        self.ports = {"client": server.port, **ports}

    def open(self, listener: str = "client") -> socket.socket:
        """A fresh socket to a listener."""
        return dial(self.ports[listener], 10)

    def login(self, user: str = "a", **fields: Any) -> Raw:
        """A client that has logged in."""
        raw = Raw(self.server.port)
        told = raw.login(user=user, **{"pass": PASSWORDS[user], "no_responders": True, **fields})
        assert not any("-ERR" in line for line in told), told
        return raw

    def leaf(self, user: str = "a", **fields: Any) -> Raw:
        """A leaf link that has logged in."""
        raw = Raw(self.ports["leaf"])
        told = raw.login(
            user=user,
            name="edge",
            server_id="EDGE",
            version="2.11.0",
            **{"pass": PASSWORDS[user], **fields},
        )
        assert not any("-ERR" in line for line in told), told
        return raw

    def route(self, name: str = "PEER") -> Raw:
        """A node of the cluster that has logged in."""
        raw = Raw(self.ports["route"])
        connect = {"name": name, "cluster": "C", "user": "r", "pass": "pr", "headers": True}
        info = {"server_id": name, "server_name": name, "cluster": "C", "headers": True}
        told = raw.send(f"CONNECT {json.dumps(connect)}\r\nINFO {json.dumps(info)}\r\n")
        assert not any("-ERR" in line for line in told), told
        return raw

    def websocket(self, data: bytes, *, squeezed: bool = False) -> bytes:
        """What is answered over an upgraded connection, `squeezed` when it may be compressed."""
        got = b""
        with self.open("ws") as link, contextlib.suppress(ConnectionError):
            link.sendall(UPGRADE.replace(b"\r\n\r\n", EXTENSION) if squeezed else UPGRADE)
            while b"\r\n\r\n" not in got:
                part = link.recv(4096)
                assert part, got
                got += part
            assert b" 101 " in got, got
            with contextlib.suppress(OSError):
                link.sendall(data)
            while part := link.recv(1 << 16):
                got += part
        return got.partition(b"\r\n\r\n")[2]

    def say(self, data: bytes, listener: str = "client") -> bytes:
        """What a listener answers to `data`, until it ends the connection."""
        got = b""
        with self.open(listener) as link, contextlib.suppress(OSError):
            with contextlib.suppress(OSError):
                link.sendall(data)
                link.shutdown(socket.SHUT_WR)
            while part := link.recv(1 << 16):
                got += part
                if len(got) > 64 << 20:
                    break
        return got

    def ends(self, data: bytes, listener: str = "client") -> bytes:
        """The same; the listener has to end the connection by itself within ten seconds."""
        got = b""
        with self.open(listener) as link:
            with contextlib.suppress(OSError):
                link.sendall(data)
            with contextlib.suppress(ConnectionError):
                while part := link.recv(1 << 16):
                    got += part
        return got

    def api(self, call: str, body: Any = b"", user: str = "a", seconds: float = 5) -> Any:
        """The answer to one request of JetStream's API."""
        with self.login(user) as raw:
            return raw.request(f"$JS.API.{call}", body, seconds)

    def page(self, path: str, listener: str = "monitor") -> tuple[int, bytes]:
        """Status and body of a page of a monitoring port."""
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        head, _, body = self.say(request.encode(), listener).partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    @property
    def log(self) -> bytes:
        """All that was logged."""
        return self.server.log_path.read_bytes() + self.router.log_path.read_bytes()

    def check(self) -> None:
        """The node serves others at once, has failed nowhere, and its log is one line a record."""
        assert self.server.alive(), self.server.log
        assert self.router.alive(), self.router.log
        begin = time.monotonic()
        with self.login("b") as raw:
            assert raw.send() == []
        assert within(time.monotonic() - begin, CALM_S)
        log = self.log
        assert b"Traceback" not in log, log[log.index(b"Traceback") :][:3000].decode()
        for line in log.splitlines():
            assert RECORD.match(line), line


RECORD = re.compile(rb"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+ \[(INF|WRN|ERR|FTL|DBG|TRC)\] ")


@contextlib.contextmanager
def attacked(folder: Path) -> Iterator[Attacked]:
    """The node in a folder of its own."""
    ports = {name: free_port() for name in PORTS}
    command = (program("headwater"), "serve")
    config = CONFIG.format(**ports).replace("{dir}", str(folder))
    with (
        Server(Recipe("headwater", command, config)) as server,
        Server(Recipe("headwater", command, ROUTER.format(**ports))) as router,
    ):
        yield Attacked(server, router, ports)
