"""A member of a cluster beside the lab's: a process, which can be stopped where it is."""

import contextlib
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from bench.servers import free_port
from headwater.hub.cluster.peers import number_of, peer_id


def number(name: str) -> int:
    """Of a node. Among nodes that are equal, the one with the lowest number is taken first."""
    return number_of(peer_id(name))


SPARE = next(name for k in range(1000) if number(name := f"spare{k}") > number("n2"))
"""The last one to which a stream goes."""


class Spare:
    """A member that can be stopped where it is."""

    def __init__(self, folder: Path, routes: list[str]) -> None:
        self.monitor = free_port()
        self.config = folder / "spare.conf"
        self.config.write_text(
            f'server_name: {SPARE}\nserver_tags: ["az:3"]\nlisten: "127.0.0.1:-1"\n'
            f'http: "127.0.0.1:{self.monitor}"\njetstream {{ store_dir: "{folder}/spare" }}\n'
            f'cluster {{ name: C, listen: "127.0.0.1:{free_port()}", '
            f"routes: [{', '.join(routes)}] }}\n"
        )
        self.log = folder / "spare.log"
        self.program = [str(Path(sys.executable).parent / "headwater")]

    def __enter__(self) -> Self:
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [*self.program, "serve", "-c", str(self.config)], stdout=output, stderr=output
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(30)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """It does nothing, and its connections stay."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def page(self, path: str) -> Any:
        """What its monitoring says at a path."""
        url = f"http://127.0.0.1:{self.monitor}/{path}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)

    def groups(self, account: str) -> set[str]:
        """The groups of an account that it has, by /raftz."""
        return set(self.page(f"raftz?acc={account}").get(account, {}))

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"nats://127.0.0.1:{self.page('varz')['port']}"
