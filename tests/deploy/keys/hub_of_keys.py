"""A hub that trusts an operator whose keys `headwater keys` made, and its ports."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from bench.servers import Recipe, Server, free_port, program
from headwater.deploy.cli import cli

ACCOUNT = "plant"


def run(*words: object, status: int = 0, stdin: str = "") -> Any:
    """A command of `headwater`; its JSON, or its text with `status` other than 0."""
    done = CliRunner().invoke(cli, [str(word) for word in words], input=stdin)
    assert done.exit_code == status, (done.output, done.exception)
    return json.loads(done.stdout) if "--json" in words and not status else done.output


class Hub(NamedTuple):
    """A running hub."""

    keys: Path
    server: Server
    leaf_port: int

    @property
    def url(self) -> str:
        """For clients."""
        return f"nats://127.0.0.1:{self.server.port}"

    @property
    def leaf_url(self) -> str:
        """For gateways."""
        return f"nats://127.0.0.1:{self.leaf_port}"


def make_keys(folder: Path) -> Path:
    """An operator and an account."""
    keys = folder / "keys"
    run("keys", "operator", "plant-op", "--dir", keys)
    run("keys", "account", ACCOUNT, "--dir", keys)
    return keys


@contextmanager
def running_cluster(folder: Path, count: int = 3) -> Iterator[list[Hub]]:
    """Hub nodes that are one cluster, with a leaf port each."""
    keys = make_keys(folder)
    ports = [free_port() for _ in range(count)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running_hub(
                    folder, f"hub-{number}", keys,
                    f"cluster {{ name: hub, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n",
                )
            )
            for number, port in enumerate(ports)
        ]  # fmt: skip


@contextmanager
def running_hub(
    folder: Path, name: str = "hub", keys: Path | None = None, more: str = ""
) -> Iterator[Hub]:
    """A hub node with a leaf port."""
    keys = keys or make_keys(folder)
    text = run("keys", "config", "--account", ACCOUNT, "--dir", keys, "--resolver", folder / name)
    leaf = free_port()
    text += f"server_name: {name}\nleafnodes {{ listen: 127.0.0.1:{leaf} }}\n"
    text += f'jetstream {{ store_dir: "{{dir}}", domain: hub }}\n{more}'
    with Server(Recipe(name, (program("headwater"), "serve"), text), parent=folder) as server:
        yield Hub(keys, server, leaf)
