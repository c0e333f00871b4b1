"""Three of Headwater and three of nats-server, each a cluster, with one configuration."""

import json
import time

from bench.servers import Recipe, Server, ServerFailed, free_port, program
from tests.dial import dial
from tests.differ.pair import ACCOUNTS
from tests.differ.started import Started

SIZE = 3
LED_S = 30.0
"""Seconds within which both clusters must have a leader."""

USERS = "\n".join(
    [
        "accounts {",
        "$SYS { users: [{user: sys, password: p}] }",
        *(
            f"A{n} {{ jetstream: enabled, users: [{{user: u{n}, password: p}}] }}"
            for n in range(ACCOUNTS)
        ),
        "}",
        "",
    ]
)


def recipes(name: str) -> list[Recipe]:
    """The nodes of one cluster, run by this program."""
    ports = [free_port() for _ in range(SIZE)]
    routes = ", ".join(f"nats-route://127.0.0.1:{port}" for port in ports)
    command = (program("headwater"), "serve") if name == "headwater" else (program(name),)
    return [
        Recipe(
            f"{name} n{index}",
            command,
            f'server_name: n{index}\nserver_tags: ["az:{index}", "all"]\n'
            'jetstream { store_dir: "{dir}", domain: D, max_mem: 1G, max_file: 1G }\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{port}", routes: [{routes}] }}\n{USERS}',
        )
        for index, port in enumerate(ports)
    ]


def led(port: int) -> bool:
    """Whether a node's cluster answers."""
    login = json.dumps({"user": "u0", "pass": "p", "verbose": False})
    ask = f"CONNECT {login}\r\nSUB i 1\r\nPUB $JS.API.STREAM.NAMES i 0\r\n\r\n"
    with dial(port, 3) as link:
        link.sendall(ask.encode())
        data = b""
        try:
            while b"MSG i" not in data or not data.endswith(b"}\r\n"):
                piece = link.recv(65536)
                if not piece:
                    return False
                data += piece
        except TimeoutError:
            return False
    return b'"error"' not in data


class Trio(Started):
    """Both clusters; a context manager that starts and ends them."""

    def __init__(self) -> None:
        names = ("headwater", "nats-server")
        self.clusters = [[Server(one) for one in recipes(name)] for name in names]
        super().__init__([one for cluster in self.clusters for one in cluster])

    @property
    def ports(self) -> list[tuple[int, int]]:
        """Of each node, Headwater's port and nats-server's."""
        return [(a.port, b.port) for a, b in zip(*self.clusters, strict=True)]

    def ready(self) -> None:
        """Both clusters have a leader."""
        end = time.monotonic() + LED_S
        waiting = [port for pair in self.ports for port in pair]
        while waiting:
            waiting = [port for port in waiting if not led(port)]
            if time.monotonic() > end:
                raise ServerFailed(f"no leader within {LED_S:.0f} s at {waiting}")
