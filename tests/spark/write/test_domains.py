"""Writing into the JetStream of another domain, over a leaf link."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.spark.options import SourceOptions, parse_options
from headwater.spark.write.sink import commit_batch, write_batch
from tests.federation.lab import free_port
from tests.spark.conftest import SERVER_KINDS, Server, start_server
from tests.waiting import until

QUERY = "query-1"


@pytest.fixture(params=SERVER_KINDS)
def edge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """The server of domain `edge`; that of domain `hub` is behind its link."""
    port = free_port()
    link = f'reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ]'
    started: list[Server] = []
    try:
        for name, leafs in (("hub", f"listen: 127.0.0.1:{port}"), ("edge", link)):
            folder = tmp_path / name
            folder.mkdir()
            config = f"server_name: {name}\nleafnodes {{ {leafs} }}"
            kind = request.param
            started.append(start_server(folder, config, kind, jetstream=f"domain: {name}"))
        yield started[-1]
    finally:
        for running in started:
            running.process.terminate()
            running.process.wait(10)


def prepare(edge: Server) -> None:
    """The same stream in each domain, with subjects of its own, and the same bucket."""

    async def work(connection: Any, js: Any) -> None:
        for domain in ("edge", "hub"):
            remote = connection.jetstream(domain=domain, timeout=10)

            async def answers(remote: Any = remote) -> bool:
                try:
                    await remote.account_info()
                except Exception:
                    return False
                return True

            await until(answers, f"the API of {domain} answers")
            await remote.add_stream(name="OUT", subjects=[f"{domain}.>"])
            await remote.create_key_value(bucket="CONF")

    edge.run(work)


def held(edge: Server, domain: str, bucket: str) -> dict[str, bytes]:
    """Keys and values of a bucket of that domain."""

    async def work(connection: Any, js: Any) -> dict[str, bytes]:
        remote, stream = connection.jetstream(domain=domain, timeout=10), f"KV_{bucket}"
        subjects = (await remote.stream_info(stream, subjects_filter=">")).state.subjects
        return {
            subject.removeprefix(f"$KV.{bucket}."): (
                await remote.get_last_msg(stream, subject)
            ).data
            for subject in subjects
        }

    return edge.run(work)


def batches(options: SourceOptions, rows: pa.RecordBatch, count: int = 1) -> None:
    for at in range(count):
        commit_batch(options, [write_batch(options, iter([rows]), QUERY, "run", at)], at)


def test_a_query_writes_into_the_domain_that_is_named(edge: Server) -> None:
    prepare(edge)
    for domain, count in (("edge", 1), ("hub", 3)):
        for name, where in (("stream", "OUT"), ("kv", "CONF")):
            given = {"servers": edge.url, name: where, "domain": domain, "retryTimeout": "5"}
            key, value = ("subject", "payload") if name == "stream" else ("key", "value")
            columns = {key: [f"{domain}.a"], value: [b"x"]}
            if name == "stream":
                columns["id"] = [f"{domain}-id"]
            batches(parse_options(given), pa.RecordBatch.from_pydict(columns), count)
    for domain, count in (("edge", 1), ("hub", 3)):
        assert held(edge, domain, "CONF") == {f"{domain}.a": b"x"}
        entries = held(edge, domain, "headwater-spark")
        assert {key: json.loads(entries[key])["batch"] for key in entries} == {
            f"{QUERY}.OUT": count - 1,
            f"{QUERY}.KV_CONF": count - 1,
        }
