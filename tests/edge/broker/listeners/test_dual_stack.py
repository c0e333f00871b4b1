"""The any address takes connections of both families, as a Go server's does."""

import json
import socket

import pytest

from bench.servers import Recipe, Server, program
from headwater.edge.facts.peer_address import plain_address

FLAGS = ("-a", "0.0.0.0", "-p", "{port}")
RECIPES = {
    "headwater": Recipe("headwater", (program("headwater"), "serve", *FLAGS)),
    "nats-server": Recipe("nats-server", (program("nats-server"), *FLAGS)),
}


def client_ip(host: str, port: int) -> str:
    """What the server's INFO calls this client."""
    with socket.create_connection((host, port), 5) as link, link.makefile("rb") as lines:
        return str(json.loads(lines.readline().removeprefix(b"INFO "))["client_ip"])


def has_ipv6() -> bool:
    """Whether this machine has IPv6's loopback address."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_the_any_address_takes_both_families(recipe: Recipe) -> None:
    with Server(recipe) as server:
        assert client_ip("127.0.0.1", server.port) == "127.0.0.1"
        assert client_ip("::1", server.port) == "::1"


def test_only_mapped_addresses_change() -> None:
    assert plain_address(("::ffff:192.0.2.1", 4, 0, 0)) == ("192.0.2.1", 4)
    assert plain_address(("::1", 4, 0, 0)) == ("::1", 4, 0, 0)
    assert plain_address(("192.0.2.1", 4)) == ("192.0.2.1", 4)
