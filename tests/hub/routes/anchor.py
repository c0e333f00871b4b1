"""nats-server as another node of a cluster."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.request import urlopen

from bench.servers import free_port


class Anchor:
    """A nats-server with routes and a monitoring port. `cluster` is added to that block."""

    def __init__(
        self, folder: Path, name: str, routes: list[str], cluster: str = "", extra: str = ""
    ) -> None:
        self.port, self.route_port, self.http_port = free_port(), free_port(), free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self.config = folder / f"{name}.conf"
        self.config.write_text(
            f'server_name: {name}\nlisten: "127.0.0.1:{self.port}"\n'
            f'http: "127.0.0.1:{self.http_port}"\n{extra}\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{self.route_port}", '
            f"routes: [{', '.join(routes)}]\n{cluster} }}\n"
        )
        self.output = (folder / f"{name}.log").open("a")
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Anchor":
        program = Path(sys.executable).parent / "nats-server"
        self.process = subprocess.Popen(
            [str(program), "-c", str(self.config), "-D"], stderr=self.output
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.output.close()

    def stop(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def page(self, name: str) -> Any:
        """A page of its monitoring port; None while it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.http_port}/{name}", timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    def routes(self) -> list[dict[str, Any]]:
        """The routes that it has."""
        page = self.page("routez")
        found: list[dict[str, Any]] = page["routes"] if page else []
        return found
