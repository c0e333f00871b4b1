"""`headwater edge`: what is done on a gateway itself."""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from headwater.deploy.gateway.report import ENVIRONMENT

DEFAULT_PREFIX = "/opt/headwater"
WATCH_S = 2.0
ASK_S = 5.0
STARTING = 503
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
@click.option("--prefix", default="", help=f"Where a fleet flashed it. [default: {DEFAULT_PREFIX}]")
@click.option("--url", default="", help="Monitoring port of a node that no fleet flashed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--watch", is_flag=True, help="Again every two seconds.")
def status(prefix: str, url: str, as_json: bool, watch: bool) -> None:
    """How this gateway is: link, backlog, disk, clock, versions. Status 3 when it is not well.

    A node that was started by hand is asked by its monitoring port: --url http://127.0.0.1:8222
    """
    if prefix and url:
        raise click.UsageError("--prefix or --url, not both")
    settings = os.environ.get(ENVIRONMENT, "")
    here = os.path.dirname(os.path.realpath(settings)) if settings else DEFAULT_PREFIX
    look = partial(_asked, url) if url else partial(_flashed, Path(prefix or here))
    if not (prefix or url or settings) and not os.path.exists(DEFAULT_PREFIX):
        raise click.ClickException(
            f"no fleet flashed this machine: there is no {DEFAULT_PREFIX}. Name the monitoring "
            "port of the node, as in --url http://127.0.0.1:8222"
        )
    try:
        while watch:
            _show(look, as_json, clear=sys.stdout.isatty() and not as_json)
            time.sleep(WATCH_S)
    except KeyboardInterrupt:
        raise SystemExit(0) from None
    raise SystemExit(0 if _show(look, as_json, clear=False) else UNHEALTHY)


def _show(look: Callable[[], dict[str, Any]], as_json: bool, *, clear: bool) -> bool:
    """Print how a gateway is; whether it is well. Raises ClickException."""
    from headwater.deploy.gateway.screen import screen

    seen = look()
    if clear:
        click.clear()
    click.echo(json.dumps(seen) if as_json else screen(seen))
    return bool(seen["node"].get("joined"))


def _flashed(prefix: Path) -> dict[str, Any]:
    """What is known of a gateway that a fleet flashed."""
    from headwater.deploy.fleet.device.apply import overview
    from headwater.deploy.fleet.device.places import DeviceError, Places

    try:
        return overview(Places(prefix))
    except (DeviceError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _asked(url: str) -> dict[str, Any]:
    """What a node says of itself at its monitoring port; that it does not answer is said, too."""
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    url = url if "://" in url else f"http://{url}"
    seen: dict[str, Any] = {
        "name": url, "fleet": "", "slot": None, "version": "unknown", "slots": {}, "disk": {},
        "state": {"committed": None, "trying": None, "last": None}, "node": {},
        "service": {"kind": "node", "running": False, "pid": None}, "time": time.time(),
    }  # fmt: skip
    try:
        with urlopen(f"{url.rstrip('/')}/edgez", timeout=ASK_S) as answer:
            node = json.load(answer)
    except HTTPError as error:
        if error.code == STARTING:
            seen["service"]["running"] = True
            return seen
        raise click.ClickException(f"{url} is no monitoring port of Headwater: {error}") from error
    except OSError as error:
        reason = getattr(error, "reason", error)
        seen["service"]["kind"] = getattr(reason, "strerror", None) or str(reason)
        return seen
    except (ValueError, HTTPException) as error:
        raise click.ClickException(f"{url} is no monitoring port of a node: {error}") from error
    seen["service"] |= {"running": True, "pid": node["pid"]}
    known = {"name": node["name"], "version": node["version"], "disk": node.get("disk", {})}
    return {**seen, **known, "node": node}
