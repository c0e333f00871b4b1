"""A node as a process, on a free port and a given directory."""

import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent
START_SECONDS = 20


class Running:
    """A running server; `program` is "headwater" or "nats-server"."""

    def __init__(self, store_dir: Path, program: str = "headwater", *flags: str) -> None:
        words = [str(BIN / program), *(["serve"] if program == "headwater" else [])]
        words += ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(store_dir), *flags]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.url = ""

    def __enter__(self) -> "Running":
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "Listening for client connections on" in line:
                self.url = f"nats://127.0.0.1:{line.rsplit(':', 1)[1].strip()}"
            if "Server is ready" in line:
                return self
        self.process.wait(START_SECONDS)
        raise AssertionError("".join(lines))

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.communicate(timeout=START_SECONDS)
