"""A client gets a PING two seconds after its login: launchers of servers wait for it."""

import pytest

from bench.servers import Server
from tests.operator_realm import SERVERS, Raw, recipe


@pytest.mark.parametrize("name", SERVERS)
def test_the_first_ping_comes_early(name: str) -> None:
    with Server(recipe(name, 'ping_interval: "10m"\n')) as server, Raw(server.port) as raw:
        raw.socket.sendall(b'CONNECT {"verbose":false,"protocol":1}\r\n')
        assert raw.file.readline() == b"PING\r\n"
