"""A TLS handshake that fails leaves a line in the log: who, and why, as with nats-server."""

import re
import socket
import ssl
import time
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program
from tests.certificates import certificate

COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_failed_handshake_is_logged(kind: str, tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    config = f'tls {{ cert_file: "{tls.cert_file}", key_file: "{tls.key_file}" }}'
    with Server(Recipe(kind, COMMANDS[kind], config)) as server:
        with socket.create_connection(("127.0.0.1", server.port), 5) as link:
            own_port = link.getsockname()[1]
            assert link.recv(65536).startswith(b"INFO ")
            strict = ssl.create_default_context()
            with pytest.raises(ssl.SSLError):
                strict.wrap_socket(link, server_hostname="127.0.0.1")
        deadline = time.monotonic() + 5
        wanted = rf"\[ERR\] 127\.0\.0\.1:{own_port} - cid:\d+ - TLS handshake error: \S+"
        while not re.search(wanted, server.log):
            assert time.monotonic() < deadline, server.log
