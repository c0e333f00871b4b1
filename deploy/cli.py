"""Commands beside `serve`; each imports what it needs when it runs."""

import importlib
from typing import Any

import click

from headwater.deploy.interrupted import Interrupted
from headwater.edge.facts.version import NATS_LEVEL, VERSION

ELSEWHERE = {
    "edge": "deploy.gateway.cli",
    "fleet": "deploy.fleet.cli",
    "hub": "deploy.hub.cli",
    "keys": "deploy.keys.cli",
    "spark": "spark.cli",
    "store": "deploy.store.cli",
}
"""Commands with a module of their own, which has much to load: the group of that name in it."""


class LazyGroup(click.Group):
    """A group that loads what is `ELSEWHERE` only when named."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. An interrupt is no answer of it: many say something by status 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands."""
        return sorted([*super().list_commands(ctx), *ELSEWHERE])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name."""
        if name in ELSEWHERE:
            module = importlib.import_module(f"headwater.{ELSEWHERE[name]}")
            command: click.Command = getattr(module, name)
            return command
        return super().get_command(ctx, name)


@click.group(cls=LazyGroup)
@click.version_option(VERSION, message=f"headwater {VERSION} (NATS level {NATS_LEVEL})")
def cli() -> None:
    """Edge-to-cloud streaming, wire-compatible with NATS and JetStream."""


@cli.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def serve(flags: tuple[str, ...]) -> None:
    """Run a node; takes nats-server's flags (`headwater serve --help` lists them)."""
    from headwater.deploy.serve import serve as run

    raise SystemExit(run(list(flags)))


@cli.command()
@click.option("--messages", default=20_000, show_default=True, help="Messages each edge publishes.")
@click.option("--edges", default=3, show_default=True, help="Edge nodes beside the hub.")
@click.option("--seconds", default=20.0, show_default=True, help="Time the edges publish for.")
@click.option("--output", default="demo-output", show_default=True, help="Folder for results.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON too.")
def demo(messages: int, edges: int, seconds: float, output: str, as_json: bool) -> None:
    """Run a fleet on loopback: outage, crash, recovery, analytics."""
    try:
        from headwater.deploy.demo.run import run_demo
    except ModuleNotFoundError as error:
        needed = "install headwater[demo,spark]"
        raise click.ClickException(f"{error.name} is missing here; {needed}") from error

    status = run_demo(
        messages=messages, edges=edges, seconds=seconds, output=output, as_json=as_json
    )
    raise SystemExit(status)
