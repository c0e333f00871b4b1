"""Ports that a node has chosen itself are those that it shows, beside nats-server."""

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program

COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
CONFIG = """
http: "0.0.0.0:-1"
cluster {{ name: C, listen: "0.0.0.0:-1" }}
leafnodes {{ listen: "127.0.0.1:-1" }}
websocket {{ listen: "0.0.0.0:-1", no_tls: true }}
ports_file_dir: "{folder}"
"""
PLACES = {
    "cluster": ("cluster", "cluster_port"),
    "websocket": ("websocket", "port"),
}


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.fixture(params=COMMANDS)
def ports(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[object]:
    """What the ports file of a server says, by the name of the listener."""
    recipe = Recipe(request.param, COMMANDS[request.param], CONFIG.format(folder=tmp_path))
    with Server(recipe):
        deadline = time.monotonic() + 10
        while not (text := "".join(path.read_text() for path in tmp_path.glob("*.ports"))):
            assert time.monotonic() < deadline, "no ports file"
        yield json.loads(text)


def test_varz_shows_the_ports_that_were_chosen(ports: dict[str, list[str]]) -> None:
    with urllib.request.urlopen(f"{ports['monitoring'][0]}/varz", timeout=5) as answer:
        varz = json.load(answer)
    for listener, (part, field) in PLACES.items():
        assert varz[part][field] == port_of(ports[listener][0])
    assert varz["leaf"]["port"] > 0


def test_the_ports_file_knows_every_address(ports: dict[str, list[str]]) -> None:
    for name in PLACES:
        hosts = {url.rpartition(":")[0].rpartition("/")[2] for url in ports[name]}
        assert {"127.0.0.1", "[::1]"} <= hosts
        assert len({port_of(url) for url in ports[name]}) == 1
