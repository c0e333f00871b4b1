"""`headwater fleet`: bundles, and what is done with many gateways at once."""

import json
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from headwater.deploy.fleet.bundling.bundler import MACHINES, PYTHONS, CannotBundle
from headwater.deploy.interrupted import Interrupted

HERE = platform.machine()
PYTHON_HERE = ".".join(platform.python_version_tuple()[:2])


class Guarded(click.Group):
    """A group whose commands end with a sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from headwater.deploy.fleet.device.bundle_file import BundleError
        from headwater.deploy.fleet.flash.inventory import InventoryError

        try:
            return super().invoke(ctx)
        except InventoryError as error:
            raise Wrong(str(error)) from error
        except (CannotBundle, BundleError) as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            raise click.ClickException(
                f"{error.name} is missing here; install headwater[deploy]"
            ) from error


class Wrong(click.ClickException):
    """The command or its inventory is wrong: nothing was done."""

    exit_code = 2


@click.group(cls=Guarded)
def fleet() -> None:
    """Flash, upgrade and look after gateways."""


@fleet.command()
@click.option("--output", default="bundle.key", show_default=True, help="File for the secret key.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def key(output: str, as_json: bool) -> None:
    """Make a key that signs bundles; gateways pin its public half."""
    from headwater.deploy.fleet.bundling.signing import make_key

    pair = make_key(Path(output))
    click.echo(json.dumps({"key": pair.public_key, "file": output}) if as_json else pair.public_key)


@fleet.command()
@click.option("--key", "key_file", default="bundle.key", show_default=True, help="Signs it.")
@click.option("--next-key", multiple=True, help="Public key that gateways shall trust as well.")
@click.option("--machine", type=click.Choice(MACHINES), default=HERE, show_default=True)
@click.option("--python", type=click.Choice(PYTHONS), default=PYTHON_HERE, show_default=True)
@click.option("--wheel", default="", help="Wheel of Headwater, or folder with several.")
@click.option("--wheels", default="", help="Folder with wheels of all it needs; no registry then.")
@click.option("--interpreter", default="", help="Folder of a relocatable Python to put in.")
@click.option("--output", default=".", show_default=True, help="Folder for the bundle.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def bundle(
    key_file: str, next_key: tuple[str, ...], machine: str, python: str, wheel: str, wheels: str,
    interpreter: str, output: str, as_json: bool,
) -> None:  # fmt: skip
    """Make one signed file with all that a gateway needs.

    For gateways like this machine, what is installed here is packed. For others, --wheel names
    the wheel that `make wheels` made, and the rest comes from --wheels or the package registry.
    """
    from headwater.deploy.fleet.bundling import bundler, signing

    target = bundler.Target(machine, python)
    with tempfile.TemporaryDirectory() as scratch:
        made = bundler.build(
            bundler.Recipe(
                target, _wheels(target, wheel, wheels, Path(scratch)),
                signing.read_key(Path(key_file)), next_key,
                Path(interpreter) if interpreter else None,
            ),
            Path(output),
        )  # fmt: skip
    size = made.stat().st_size
    answer = {"bundle": str(made), "bytes": size, "target": target.text()}
    click.echo(json.dumps(answer) if as_json else f"{made}  {size / 1e6:.1f} MB")


def _wheels(target: Any, wheel: str, wheels: str, scratch: Path) -> Sequence[Path]:
    from headwater.deploy.fleet.bundling import installed, registry

    if not wheel and (target.machine, target.python) == (HERE, PYTHON_HERE):
        try:
            return installed.write_wheels(scratch)
        except installed.NotInstalled as error:
            raise CannotBundle(str(error)) from error
    given = Path(wheel or "dist")
    own = given if given.suffix == ".whl" else registry.wheel_for(given, target)
    if wheels:
        return [own, *(each for each in Path(wheels).glob("*.whl") if each.name != own.name)]
    try:
        names = installed.direct_requirements()
    except installed.NotInstalled as error:
        raise CannotBundle(str(error)) from error
    return [own, *registry.fetch(names, target, scratch)]


def run_options(command: Any) -> Any:
    """What all commands over an inventory take."""
    options = [
        click.option("-f", "--file", default="fleet.toml", show_default=True, help="Inventory."),
        click.option("--limit", multiple=True, help="Names, globs, groups, or @failed."),
        click.option("--concurrency", type=click.IntRange(1, 500), default=30, show_default=True,
                     help="Gateways at a time."),
        click.option("--uploads", type=click.IntRange(1, 100), default=5, show_default=True,
                     help="Uploads at a time."),
        click.option("--accept-new", is_flag=True, help="Remember host keys that are not known."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _request(words: dict[str, Any], **more: Any) -> Any:
    from headwater.deploy.fleet.flash.command import Request

    file = Path(words.pop("file"))
    return Request(file=file, **words, **more)


@fleet.command()
@run_options
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--one-way", is_flag=True, help="Allow a store format without a way back.")
@click.option("--set-clock", is_flag=True, help="Set gateways' clocks by this one's.")
@click.option("--bundle", default="", help="Instead of the inventory's.")
def flash(**words: Any) -> None:
    """Bring gateways to what the inventory says; a second run changes nothing."""
    from headwater.deploy.fleet.flash.command import carry_out
    from headwater.deploy.fleet.flash.host_run import flash_job

    raise SystemExit(carry_out(_request(words), flash_job, "flash"))


@fleet.command()
@run_options
@click.option("--one-way", is_flag=True, help="Allow a store format without a way back.")
@click.option("--bundle", default="", help="Instead of the inventory's.")
@click.option("--tolerance", type=click.FloatRange(0, 100), default=1.0, show_default=True,
              help="Percent of gateways that may fail before it pauses.")
def upgrade(tolerance: float, **words: Any) -> None:
    """Flash in batches (1, 5 %, 25 %, the rest), and pause when gateways fail."""
    from headwater.deploy.fleet.flash.command import carry_out
    from headwater.deploy.fleet.flash.host_run import flash_job
    from headwater.deploy.fleet.flash.rollout import Rollout

    status = carry_out(
        _request(words), flash_job, "upgrade", rollout=lambda: Rollout(tolerance / 100)
    )
    raise SystemExit(status)


@fleet.command()
@run_options
def rollback(**words: Any) -> None:
    """Bring gateways back to the version before."""
    from headwater.deploy.fleet.flash.command import carry_out
    from headwater.deploy.fleet.flash.host_run import rollback_job

    raise SystemExit(carry_out(_request(words), rollback_job, "rollback", with_bundles=False))


@fleet.command("ls")
@run_options
def listing(**words: Any) -> None:
    """What gateways run, and how they are, asked over SSH. Status 3 when one is not well."""
    from headwater.deploy.fleet.flash.command import look_at
    from headwater.deploy.fleet.flash.host_run import look_job
    from headwater.deploy.fleet.flash.listing import as_rows, table

    seen = look_at(_request(words), look_job)
    rows = as_rows(seen.results, seen.facts)
    click.echo(json.dumps({"hosts": rows}) if words.get("as_json") else table(rows))
    if seen.interrupted:
        raise Interrupted
    raise SystemExit(0 if all(row["joined"] for row in rows) else 3)


@fleet.command()
@run_options
@click.option("--bundle", "archive", default="", help="Write a redacted archive for support.")
def doctor(archive: str, **words: Any) -> None:
    """Check configuration, connectivity and readiness. Status 3 when something is wrong."""
    from headwater.deploy.fleet.flash import doctor as checks
    from headwater.deploy.fleet.flash.command import look_at
    from headwater.deploy.fleet.flash.host_run import look_job

    seen = look_at(_request(words), look_job, with_logs=bool(archive))
    findings = [
        finding
        for host, result in zip(seen.hosts, seen.results, strict=True)
        for finding in checks.examine(host, result, seen.facts.get(host.name))
    ]
    if archive and not seen.interrupted:
        checks.write_archive(Path(archive), findings, seen.facts, seen.logs)
    if words.get("as_json"):
        click.echo(json.dumps({"findings": [each._asdict() for each in findings]}))
    else:
        click.echo(checks.show(findings))
    if seen.interrupted:
        raise Interrupted("no archive was written" if archive else "")
    raise SystemExit(3 if any(each.state == checks.BAD for each in findings) else 0)
