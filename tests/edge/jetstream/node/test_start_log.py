"""What a start says of JetStream: test harnesses of clients read the store's folder from it."""

import re
from pathlib import Path

import pytest

from tests.edge.jetstream.conftest import JetStreamServer

GIVEN = re.compile(r"\s(Max Memory|Max Storage|Store Directory|Domain|API Level):\s+(\S.*)")


@pytest.mark.parametrize("kind", ["headwater", "nats"])
def test_limits_and_folder_are_told(kind: str, tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text("jetstream { max_memory_store: 64MiB, max_file_store: 10GiB, domain: D }\n")
    server = JetStreamServer(kind, tmp_path / "store", "-c", str(config))
    try:
        told = dict(found.groups() for line in server.log if (found := GIVEN.search(line)))
    finally:
        server.stop()
    assert told == {
        "Max Memory": "64.00 MB",
        "Max Storage": "10.00 GB",
        "Store Directory": f'"{tmp_path}/store/jetstream"',
        "Domain": "D",
        "API Level": "5",
    }
