"""`headwater hub fleet`: the gateways as the hub sees them."""

import json
import sys
import time

import click

from headwater.deploy.gateway.screen import size, span
from headwater.deploy.hub.fleet_view import LIVE, as_metrics, gateways

UNHEALTHY = 3
WATCH_S = 5.0


@click.command()
@click.option("--server", default="nats://127.0.0.1:4222", envvar="NATS_URL", show_default=True)
@click.option("--creds", default="", envvar="NATS_CREDS", help="Of a user of the account.")
@click.option("--user", default="")
@click.option("--password", default="", envvar="NATS_PASSWORD")
@click.option("--tlsca", default="", help="CA file for the hub.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--metrics", is_flag=True, help="Print text for Prometheus.")
@click.option("--watch", is_flag=True, help="Again every five seconds.")
def fleet(
    server: str, creds: str, user: str, password: str, tlsca: str, as_json: bool, metrics: bool,
    watch: bool,
) -> None:  # fmt: skip
    """Every gateway that ever enrolled: version, last seen, link, backlog, disk, clock.

    Exit status 3 when one of them is not live.
    """
    from headwater.edge.wire.client import Client
    from headwater.edge.wire.login import Login
    from headwater.edge.wire.message import WireError
    from headwater.security.errors import SecurityError

    login = Login(user=user, password=password, creds=creds, tls_ca=tlsca)
    while True:
        try:
            with Client(server, login) as client:
                rows = gateways(client)
        except (WireError, SecurityError) as error:
            raise click.ClickException(str(error)) from error
        if watch and sys.stdout.isatty() and not as_json:
            click.clear()
        if metrics:
            click.echo(as_metrics(rows), nl=False)
        else:
            click.echo(json.dumps({"gateways": rows}) if as_json else table(rows))
        if not watch:
            raise SystemExit(0 if all(row["state"] == LIVE for row in rows) else UNHEALTHY)
        try:
            time.sleep(WATCH_S)
        except KeyboardInterrupt:
            raise SystemExit(0) from None


HEAD = ("gateway", "state", "version", "slot", "seen", "backlog", "disk free", "clock", "")


def table(rows: list[dict[str, object]]) -> str:
    """Columns, one gateway a line."""
    lines = [HEAD, *map(_line, rows)]
    widths = [max(len(line[each]) for line in lines) for each in range(len(HEAD))]
    shown = ["  ".join(w.ljust(n) for w, n in zip(x, widths, strict=True)).rstrip() for x in lines]
    live = sum(row["state"] == LIVE for row in rows)
    return "\n".join([*shown, f"{live} of {len(rows)} live"])


def _line(row: dict[str, object]) -> tuple[str, ...]:
    waiting, disk = row["backlog"], row["disk"]
    assert isinstance(waiting, dict)
    assert isinstance(disk, dict)
    seen, offset = row["last_seen_s"], row["clock_offset_s"]
    backlog = ""
    if waiting:
        backlog = f"{waiting.get('messages', 0)} / {size(waiting.get('bytes', 0))}"
        backlog += f" / {span(waiting.get('seconds', 0))}"
    return (
        str(row["name"]), str(row["state"]), str(row["version"]), str(row["slot"]),
        span(seen) if isinstance(seen, float) else "-", backlog,
        size(disk["free"]) if "free" in disk else "",
        f"{offset:+.1f} s" if isinstance(offset, float) else "", str(row["why"]),
    )  # fmt: skip
