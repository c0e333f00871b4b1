"""A standalone master with two workers: jobs, a killed executor, a shipped environment."""

import json
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from headwater.spark.options import parse_options
from headwater.spark.write.sink import HeadwaterWriter
from tests.spark.cluster.standalone import StandaloneCluster, driver_environment, words_of
from tests.spark.conftest import EVERY, SERVER_KINDS, Server, start_server
from tests.spark.jobs.test_rollup import reading
from tests.waiting import until_seen

JOB_S = 300
pytestmark = [
    pytest.mark.timeout(2 * JOB_S),
    pytest.mark.skipif(not EVERY, reason="minutes: make spark-cluster"),
]
ROOT = Path(__file__).parents[3]
MESSAGES = 40_000
PACKAGES = ("pyarrow", "numpy", "numpy.libs", "msgspec", "nacl", "_cffi_backend*", "cffi")
"""What the source needs on executors, besides headwater and Spark's own."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module", params=SERVER_KINDS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server with a stream S."""
    running = start_server(tmp_path_factory.mktemp("server"), kind=request.param)

    async def make(_: Any, js: Any) -> None:
        await js.add_stream(name="S", subjects=["s.>"])

    running.run(make)
    rows = {"subject": ["s.x"] * MESSAGES, "payload": [bytes(200)] * MESSAGES}
    writer = HeadwaterWriter(parse_options(running.options("S")))
    assert writer.write(iter([pa.RecordBatch.from_pydict(rows)])).rows == MESSAGES
    yield running
    running.process.terminate()
    running.process.wait(10)


def submit(
    cluster: StandaloneCluster,
    folder: Path,
    options: dict[str, str],
    *words: str,
    **environment: str,
) -> subprocess.Popen[str]:
    """Start the counting job with spark-submit."""
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", cluster.url]
    job = Path(__file__).with_name("counting_job.py")
    command += ["--executor-memory", "512m", *words, str(job)]
    return subprocess.Popen(
        [*command, str(folder), json.dumps(options)],
        cwd=folder,
        env=driver_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


def counted(job: subprocess.Popen[str]) -> dict[str, Any]:
    """What the job saw."""
    text, _ = job.communicate(timeout=JOB_S)
    assert job.returncode == 0
    (line,) = [line for line in text.splitlines() if line.startswith("counted ")]
    found: dict[str, Any] = json.loads(line.removeprefix("counted "))
    return found


@pytest.mark.parametrize("path", ["auto", "wire"])
def test_every_row_is_read_when_an_executor_is_killed(
    cluster: StandaloneCluster, server: Server, tmp_path: Path, path: str
) -> None:
    options = server.options("S", readPath=path, partitions="4", batchBytes="65536")
    job = submit(cluster, tmp_path, options)
    try:
        until_seen(lambda: any(tmp_path.glob("reading-*")), "a task reads", JOB_S)
        victim = cluster.executors()[0]
        victim.send_signal(signal.SIGKILL)
        found = counted(job)
    finally:
        job.kill()
    assert (found["rows"], found["distinct"]) == (MESSAGES, MESSAGES)


def test_a_rollup_is_added_up_by_executors(
    cluster: StandaloneCluster, server: Server, tmp_path: Path
) -> None:
    async def make(_: Any, js: Any) -> None:
        await js.add_stream(name="TEL", subjects=["tel.>"])

    server.run(make)
    payloads = [reading(f"d{n % 3}", n / 100, float(n), n) for n in range(MESSAGES)]
    rows = {"subject": ["tel.x"] * MESSAGES, "payload": payloads}
    writer = HeadwaterWriter(parse_options(server.options("TEL")))
    assert writer.write(iter([pa.RecordBatch.from_pydict(rows)])).rows == MESSAGES
    words = ["run", "rollup", "-s", server.url, "--stream", "TEL", "--out", str(tmp_path / "out")]
    words += ["--partitions", "4", "--count-ids", "--json", "--master", cluster.url]
    words += ["--conf", "spark.executor.memory=512m"]
    command = [str(Path(sys.executable).with_name("headwater")), "spark", *words]
    environment = driver_environment(PYSPARK_PYTHON=sys.executable)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=JOB_S, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["rows"], found["planned"], found["duplicates"]) == (MESSAGES, MESSAGES, 0)
    assert (found["distinct_ids"], found["groups"]) == (MESSAGES, 3 * (MESSAGES // 6000 + 1))


def packed(folder: Path) -> Path:
    """An environment as venv-pack makes it of `pip install headwater[spark]`, without Spark; it
    stays in the folder, too."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (target,) = environment.glob("lib/python*/site-packages")
    installed = Path(pa.__file__).parents[1]
    for pattern in (*PACKAGES, "pyarrow-*", "headwater-*", "cffi-*"):
        for source in installed.glob(pattern):
            if source.is_dir():
                shutil.copytree(source, target / source.name)
            else:
                shutil.copy(source, target)
    for room in ("security", "edge", "spark"):
        shutil.copytree(ROOT / room, target / "headwater" / room)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for item in sorted(environment.iterdir()):
            tar.add(item, item.name)
    return archive


def test_an_environment_travels_with_the_job(
    cluster: StandaloneCluster, server: Server, tmp_path: Path
) -> None:
    """The executors' Python, and headwater in it, come from the archive: those of the reader and
    of other functions."""
    words = ("--archives", f"{packed(tmp_path)}#environment")
    python = "./environment/bin/python"
    options = server.options("S", partitions="4", batchBytes="65536")
    job = submit(
        cluster, tmp_path, options, *words,
        PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=sys.executable,
    )  # fmt: skip
    try:
        until_seen(lambda: any(tmp_path.glob("reading-*")), "a task reads", JOB_S)
        family = [one for each in cluster.executors() for one in each.children(recursive=True)]
        commands = {words[0] for one in family if (words := words_of(one))}
        found = counted(job)
    finally:
        job.kill()
    assert commands == {python}
    assert (found["rows"], found["distinct"]) == (MESSAGES, MESSAGES)
    (place,) = {each.partition(" ")[2].partition("environment/lib/")[2] for each in found["places"]}
    assert place.endswith("headwater/spark/source.py")
