"""The doctor on executors: processes of their own, each looked at from inside."""

import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.cluster.executors import patience_for_more
from tests.slow import slow
from tests.spark.cluster.standalone import StandaloneCluster, driver_environment
from tests.spark.conftest import EVERY, start_server

DOCTOR_S = 240
SMALL = ("--conf", "spark.executor.memory=512m")
EXECUTORS = 2 if EVERY else 1
"""An executor is a JVM more, which starts for ten seconds on a busy machine."""
minutes = pytest.mark.skipif(not EVERY, reason="a minute or more: make spark-cluster")
pytestmark = pytest.mark.timeout(2 * DOCTOR_S)


def doctor(*words: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings of `headwater spark doctor`."""
    command = [sys.executable, "-m", "headwater.deploy.main", "spark", "doctor", "--json"]
    done = subprocess.run(
        [*command, *SMALL, *words],
        env=driver_environment(**environment),
        stdout=subprocess.PIPE,
        timeout=DOCTOR_S,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)["checks"]


def failed(checks: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Executor and name of what is not well."""
    return {(check["executor"], check["name"]) for check in checks if not check["ok"]}


def on_executors(checks: list[dict[str, Any]]) -> dict[str, set[str]]:
    """What was looked at, by executor."""
    names: dict[str, set[str]] = {}
    for check in checks:
        if check["executor"]:
            assert check["host"]
            names.setdefault(check["executor"], set()).add(check["name"])
    return names


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "server"
    folder.mkdir()
    running = start_server(folder, "authorization { user: u, password: p }", "headwater")
    yield running.url
    running.process.terminate()
    running.process.wait(10)


@slow
def test_every_executor_is_looked_at(url: str) -> None:
    """Spark's own cluster in one process, whose executors are processes of their own."""
    login = ("-s", url, "--user", "u", "--password-env", "SECRET")
    code, checks = doctor("--master", f"local-cluster[{EXECUTORS},1,512]", *login, SECRET="p")
    assert failed(checks) == set() and code == 0
    looks = {"python", "java", "headwater", "pyarrow", "wire reader", "servers", "login"}
    assert on_executors(checks) == {str(number): looks for number in range(EXECUTORS)}


def test_a_slow_first_executor_means_that_others_are_slow() -> None:
    """On a busy machine the first took a minute, and the second came 12 s later: three seconds
    had left it out, and all looked well."""
    assert patience_for_more(60) > 12
    assert patience_for_more(0.5) == 3


def test_a_master_that_is_not_there_is_told_at_once() -> None:
    code, checks = doctor("--master", "spark://127.0.0.1:1")
    assert (code, failed(checks)) == (1, {("", "master")})


def test_a_wrong_password_is_told_without_a_jvm(url: str) -> None:
    code, checks = doctor("-s", url, "--user", "u", "--password-env", "SECRET", SECRET="q")
    assert (code, failed(checks)) == (1, {("", "server")})
    assert "check user and password" in checks[-2]["detail"]


@minutes
def test_wrong_executors_of_a_standalone_master(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No Python, a Python without headwater, too little memory; then all is well."""
    bare = tmp_path / "bare"
    venv.create(bare, symlinks=True)
    with StandaloneCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        master = ("--master", cluster.url)
        code, checks = doctor(*master, PYSPARK_PYTHON="/nowhere/python")
        assert (code, failed(checks)) == (1, {("0", "python"), ("1", "python")})
        assert all("/nowhere/python" in each["detail"] for each in checks if not each["ok"])

        code, checks = doctor(*master, PYSPARK_PYTHON=str(bare / "bin" / "python"))
        lacking = {(name, what) for name in "01" for what in ("headwater", "pyarrow")}
        assert (code, failed(checks)) == (1, lacking)

        more = ("--conf", "spark.executor.memory=2g", "--wait", "5")
        code, checks = doctor(*master, *more)
        assert (code, failed(checks)) == (1, {("", "executors")})

        code, checks = doctor(*master)
        assert (code, failed(checks)) == (0, set())
        assert set(on_executors(checks)) == {"0", "1"}
