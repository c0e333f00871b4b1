"""Who may read what a node writes: on both servers nobody but its user, and its group the log."""

import os
import socket
from pathlib import Path

import pytest

from bench.servers import Recipe, Server, program

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}


@pytest.mark.parametrize("name", BOTH)
def test_stored_data_is_for_the_node_alone(name: str, tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "server.log"
    config = f'logfile: "{log}"\njetstream {{ store_dir: "{store}" }}\n'
    before = os.umask(0o022)
    try:
        with Server(Recipe(name, BOTH[name], config)) as server:
            make_stream(server.port)
            directories = [store, *(path for path in store.rglob("*") if path.is_dir())]
            files = [path for path in store.rglob("*") if path.is_file()]
            assert len(directories) > 2
            assert {path.stat().st_mode & 0o777 for path in directories} == {0o700}
            assert all(path.stat().st_mode & 0o027 == 0 for path in files)
            assert log.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def make_stream(port: int) -> None:
    """Make a stream, and wait for the answer."""
    body = b'{"name":"S","subjects":["s"]}'
    with socket.create_connection(("127.0.0.1", port), 5) as link:
        link.sendall(
            b'CONNECT {"verbose":false}\r\nSUB answer 1\r\n'
            b"PUB $JS.API.STREAM.CREATE.S answer %d\r\n%s\r\n" % (len(body), body)
        )
        got = b""
        while b"MSG answer" not in got:
            got += link.recv(65536)
