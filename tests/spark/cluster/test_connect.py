"""Spark Connect: the client has no JVM, and the server's Python finds the source by itself."""

import contextlib
import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from bench.servers import free_port
from headwater.spark.java import find_java
from tests.spark.cluster.standalone import HOST, START_S, driver_environment
from tests.spark.conftest import EVERY, SERVER_KINDS, start_server
from tests.waiting import until_seen

CLIENT_S = 240
pytestmark = [
    pytest.mark.timeout(2 * CLIENT_S),
    pytest.mark.skipif(not EVERY, reason="a minute: make spark-cluster"),
    pytest.mark.skipif(
        importlib.util.find_spec("grpc_status") is None,
        reason="Connect needs gRPC: pip install 'headwater[spark-connect]'",
    ),
]
MESSAGES = 300
CLIENT = """
import json, sys
from pyspark.sql import SparkSession

remote, url, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
where = {"servers": url, "stream": "S"}
frame = spark.read.format("headwater").options(**where).load()
found = {"rows": frame.count(), "last": frame.where("sequence > 290").count()}
value = {"valueFormat": "json", "valueSchema": "n long"}
values = spark.read.format("headwater").options(**where, **value).load()
found["sum"] = values.groupBy().sum("n").first()[0]
rows = spark.readStream.format("headwater").options(**where).load()
rows = rows.selectExpr("concat('t.', sequence) subject", "payload", "concat('S:', sequence) id")
writer = rows.writeStream.format("headwater").options(servers=url, stream="T")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
found["copied"] = spark.read.format("headwater").options(servers=url, stream="T").load().count()
spark.sql("CREATE TEMPORARY VIEW v USING headwater OPTIONS (servers '%s', stream 'S')" % url)
found["sql"] = spark.sql("SELECT count(DISTINCT sequence) FROM v").first()[0]
try:
    spark.read.format("headwater").options(servers=url, stream="MISSING").load().schema
except Exception as error:
    found["error"] = str(error)
print("found " + json.dumps(found))
spark.stop()
"""


@pytest.fixture(params=SERVER_KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A server with a full stream S and an empty one T."""
    folder = tmp_path / "server"
    folder.mkdir()
    running = start_server(folder, kind=request.param)

    async def make(_: Any, js: Any) -> None:
        await js.add_stream(name="S", subjects=["s.>"])
        await js.add_stream(name="T", subjects=["t.>"])
        for number in range(1, MESSAGES + 1):
            await js.publish("s.x", json.dumps({"n": number}).encode())

    running.run(make)
    yield running.url
    running.process.terminate()
    running.process.wait(10)


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A Connect server, started as docs/SPARK.md says."""
    home, port = Path(pyspark.__file__).parent, free_port()
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": HOST,
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    java = driver_environment(JAVA_HOME=str(find_java().home), PYSPARK_DRIVER_PYTHON=sys.executable)
    with (tmp_path / "connect.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"], cwd=tmp_path, env=java, stdout=log, stderr=log
        )

    def listens() -> bool:
        assert process.poll() is None, (tmp_path / "connect.log").read_text()[-4000:]
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
            return True
        return False

    try:
        until_seen(listens, "Connect listens", START_S)
        yield f"sc://{HOST}:{port}"
    finally:
        process.terminate()
        process.wait(START_S)


def test_a_client_reads_and_writes(remote: str, url: str, tmp_path: Path) -> None:
    """Batch, filter, decoded values, SQL, a streaming query from one stream into another."""
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, remote, url, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        timeout=CLIENT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.rpartition("found ")[2])
    assert "MISSING" in found.pop("error")
    assert found == {
        "rows": MESSAGES,
        "last": 10,
        "sum": MESSAGES * (MESSAGES + 1) // 2,
        "copied": MESSAGES,
        "sql": MESSAGES,
    }
