"""What a node, or an account, that is full still stores: as much as nats-server does."""

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.errors import APIError

from tests.edge.jetstream.conftest import Client, JetStreamServer, comparable
from tests.slow import one_in

LIMIT = 200_000
CONFIG = """
jetstream { max_file: %(node)d, max_mem: %(node)d }
accounts { A { users: [{user: a, password: a}], jetstream: {%(account)s} } }
"""
OF_ACCOUNT = f"max_file: {LIMIT}, max_mem: {LIMIT}"
STREAMS: dict[str, list[dict[str, Any]]] = {
    "all of it": [{"max_bytes": LIMIT}],
    "most of it": [{"max_bytes": LIMIT - 500}],
    "no bound": [{}],
    "discards new": [{"max_bytes": LIMIT, "discard": "new"}],
    "halves": [{"max_bytes": LIMIT // 2}, {"max_bytes": LIMIT // 2}],
    "one of two": [{"max_bytes": LIMIT // 2}, {}],
}


async def fill(server: JetStreamServer, streams: list[dict[str, Any]]) -> list[Any]:
    """Publish twice as much as fits; what was refused at which message, and the states."""
    connection = await nats.connect(server.url, user="a", password="a")
    client, found = Client(connection), list[Any]()
    js = connection.jetstream()
    for i, config in enumerate(streams):
        body = {"name": f"S{i}", "subjects": [f"s{i}"], **config}
        found.append(comparable(await client.api(f"STREAM.CREATE.S{i}", body)))
    for at in range(2 * LIMIT // 1000):
        for i in range(len(streams)):
            try:
                await js.publish(f"s{i}", b"%03d" % at + bytes(900 + at % 50))
            except APIError as error:
                found.append((at, i, error.code, error.err_code, error.description))
    for i in range(len(streams)):
        state = (await client.api(f"STREAM.INFO.S{i}"))["state"]
        found.append([state[name] for name in ("messages", "bytes", "first_seq", "last_seq")])
    await connection.close()
    return found


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("limited", ["node", "account"])
@pytest.mark.parametrize("streams", one_in(2, STREAMS))
async def test_a_full_node(tmp_path: Path, streams: str, limited: str, storage: str) -> None:
    config = tmp_path / "server.conf"
    node = LIMIT if limited == "node" else 10 * LIMIT
    account = OF_ACCOUNT if limited == "account" else ""
    config.write_text(CONFIG % {"node": node, "account": account})
    wanted = [{**one, "storage": storage} for one in STREAMS[streams]]
    answers = []
    for kind in ("headwater", "nats"):
        server = JetStreamServer(kind, tmp_path / kind, "-c", str(config))
        server.read_on()
        try:
            answers.append(await asyncio.wait_for(fill(server, wanted), 60))
        finally:
            server.stop()
    assert answers[0] == answers[1]
