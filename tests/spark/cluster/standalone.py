"""A standalone Spark cluster on loopback: a master and workers, as docs/SPARK.md starts them."""

import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Self

import psutil
import pyspark

from headwater.spark.java import find_java
from tests.waiting import until_seen

START_S = 90
"""Ample for a JVM on a busy machine."""
HOST = "127.0.0.1"


class StandaloneCluster:
    """A master and `workers` of one core and 700 MiB each; `url` is where drivers go.

    `environment` is added to that of the workers, whose executors inherit it.
    """

    def __init__(
        self, folder: Path, workers: int = 2, environment: dict[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._count = workers
        self._environment = environment or {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self._start("master", "master.Master", "--port", "0", "--webui-port", "0")
            self.url = until_seen(self._master_url, "a master", START_S)
            for number in range(self._count):
                name = f"worker{number}"
                limits = ["--cores", "1", "--memory", "700m", "--webui-port", "0"]
                where = ["--work-dir", str(self._folder / name)]
                self._start(name, "worker.Worker", *limits, *where, self.url)
            for number in range(self._count):
                until_seen(partial(self._is_registered, f"worker{number}"), "a worker", START_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        family = [
            child
            for daemon in self._daemons
            if daemon.poll() is None
            for child in psutil.Process(daemon.pid).children(recursive=True)
        ]
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            daemon.wait(START_S)
        _, left = psutil.wait_procs(family, 10)
        for one in left:
            one.kill()

    def executors(self) -> list[psutil.Process]:
        """The processes of the executors that run now."""
        return [
            child
            for daemon in self._daemons
            for child in psutil.Process(daemon.pid).children(recursive=True)
            if "CoarseGrainedExecutorBackend" in " ".join(words_of(child))
        ]

    def kill_worker(self, number: int) -> None:
        """SIGKILL for a worker and all below it, as when its machine goes."""
        worker = psutil.Process(self._daemons[1 + number].pid)
        family = worker.children(recursive=True)
        assert any("CoarseGrainedExecutorBackend" in " ".join(words_of(one)) for one in family)
        for one in (worker, *family):
            one.kill()
        psutil.wait_procs(family, START_S)

    def log(self, name: str) -> str:
        """What a daemon printed so far."""
        path = self._folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def _master_url(self) -> str:
        found = re.search(r"spark://\S+:\d+", self.log("master"))
        return found.group() if found else ""

    def _is_registered(self, name: str) -> bool:
        return "Successfully registered with master" in self.log(name)

    def _start(self, name: str, kind: str, *words: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        environment = os.environ | {
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            **self._environment,
        }
        with (self._folder / f"{name}.log").open("ab") as log:
            self._daemons.append(
                subprocess.Popen(
                    [*command, "--host", HOST, *words],
                    cwd=self._folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )


def words_of(process: psutil.Process) -> list[str]:
    """The command of a process; nothing for one that has ended."""
    try:
        return process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return []


def driver_environment(**more: str) -> dict[str, str]:
    """The environment of a driver on this machine."""
    return os.environ | {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable, **more}
