"""A Spark driver as a process of its own, to be killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
END_S = 300
"""Ample for a driver to start and to end its work."""


class Driver:
    """A Python module with its JVM and its Python workers; its files are in `folder`."""

    def __init__(self, folder: Path, module: str, *words: str) -> None:
        self._log = folder / "driver.log"
        environment = os.environ | {
            "TMPDIR": str(folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder} -XX:-UsePerfData",
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        """All that it has printed, as all drivers in its folder."""
        return self._log.read_text()

    def alive(self) -> bool:
        return self._process.poll() is None

    def hold(self) -> None:
        """Let the Python process stand still."""
        self._process.send_signal(signal.SIGSTOP)

    def release(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def hold_all(self) -> None:
        """Let the process and all below it stand still."""
        self._signal_all(signal.SIGSTOP)

    def release_all(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        main = psutil.Process(self._process.pid)
        for one in (main, *main.children(recursive=True)):
            one.send_signal(number)

    def wait(self) -> int:
        """How it ends."""
        return self._process.wait(END_S)

    def kill(self, with_jvm: bool) -> None:
        """SIGKILL for the Python process, and perhaps its JVM; what is left ends by itself."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        victims = [one.pid for one in family if with_jvm and one.name() == "java"]
        assert len(victims) == with_jvm
        self._end(victims, family)

    def kill_all(self) -> None:
        """SIGKILL for the process and all below it."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        assert any(one.name() == "java" for one in family)
        self._end([one.pid for one in family], family)

    def _end(self, victims: list[int], family: list[psutil.Process]) -> None:
        for pid in (self._process.pid, *victims):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        _, left = psutil.wait_procs(family, END_S)
        assert not left

    def end(self) -> None:
        """Leave no process behind, whatever has failed."""
        if self.alive():
            self.kill(with_jvm=False)
