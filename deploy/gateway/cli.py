"""`headwater edge`: what is done on a gateway itself."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import click

from headwater.deploy.gateway.report import ENVIRONMENT

DEFAULT_PREFIX = "/opt/headwater"
WATCH_S = 2.0
UNHEALTHY = 3


@click.group()
def edge() -> None:
    """On a gateway: enrol it, and see how it is."""


@edge.command()
@click.option("--hub", "hubs", multiple=True, required=True, help="Where leaf nodes join.")
@click.option("--folder", required=True, help="Where key and credentials are kept.")
@click.option("--ca", default="", help="CA file for the hub.")
@click.option("--token-file", type=click.File(), default="-", help="Standard input without this.")
def enrol(hubs: tuple[str, ...], folder: str, ca: str, token_file: Any) -> None:
    """Make a key here, and exchange an enrolment token for credentials of it."""
    from headwater.deploy.gateway.enrol import EnrolmentError
    from headwater.deploy.gateway.enrol import enrol as ask
    from headwater.security.errors import SecurityError

    try:
        click.echo(ask(token_file.read(), hubs, Path(folder), ca))
    except (EnrolmentError, SecurityError, OSError) as error:
        raise click.ClickException(str(error)) from error


@edge.command()
@click.option("--prefix", default="", help=f"[default: {DEFAULT_PREFIX}]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Again every two seconds.")
def status(prefix: str, as_json: bool, watch: bool) -> None:
    """How this gateway is: link, backlog, disk, clock, versions. Status 3 when it is not well."""
    from headwater.deploy.fleet.device.apply import overview
    from headwater.deploy.fleet.device.places import DeviceError, Places
    from headwater.deploy.gateway.screen import screen

    settings = os.environ.get(ENVIRONMENT, "")
    here = os.path.dirname(os.path.realpath(settings)) if settings else DEFAULT_PREFIX
    places = Places(Path(prefix or here))
    while True:
        try:
            seen = overview(places)
        except (DeviceError, OSError) as error:
            raise click.ClickException(str(error)) from error
        if watch and sys.stdout.isatty() and not as_json:
            click.clear()
        click.echo(json.dumps(seen) if as_json else screen(seen))
        if not watch:
            raise SystemExit(0 if seen["node"].get("joined") else UNHEALTHY)
        time.sleep(WATCH_S)
