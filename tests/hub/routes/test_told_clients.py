"""When clients of a node hear of other nodes, on both servers."""

import json
from pathlib import Path

import pytest

from bench.servers import Server, free_port
from tests.operator_realm import SERVERS, Raw, recipe
from tests.waiting import until_seen

CONFIG = """
server_name: {name}
cluster {{ name: C, listen: '127.0.0.1:{own}', routes: ['nats://127.0.0.1:{other}'] }}
"""


@pytest.mark.parametrize("name", SERVERS)
def test_a_client_hears_of_other_nodes_after_its_first_pong(name: str, tmp_path: Path) -> None:
    """A client takes the next line after CONNECT for the answer to it."""
    ports = free_port(), free_port()
    first, second = (
        recipe(name, CONFIG.format(name=f"n{at}", own=ports[at], other=ports[1 - at]))
        for at in (0, 1)
    )
    with Server(first) as here, Raw(here.port) as client, Raw(here.port) as seen:
        hello = json.dumps({"verbose": False, "protocol": 1})
        assert seen.send(f"CONNECT {hello}\r\n") == []
        client.socket.sendall(f"CONNECT {hello}\r\nSUB a 1\r\nPUB a 0\r\n\r\n".encode())
        assert client.file.readline() == b"MSG a 1 0\r\n"
        assert client.file.readline() == b"\r\n"
        with Server(second) as there:

            def heard(raw: Raw) -> bool:
                lines = [line for line in raw.send() if line.startswith("INFO ")]
                return any(str(there.port) in line for line in lines)

            until_seen(lambda: heard(seen), "the other node")
            client.socket.sendall(b"PING\r\n")
            assert client.file.readline() == b"PONG\r\n"
            told = json.loads(client.file.readline()[5:])
            assert any(url.endswith(f":{there.port}") for url in told["connect_urls"])
