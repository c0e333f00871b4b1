"""`headwater hub drain`: a node lets others lead, so that it can be stopped without a gap."""

import json
import time

import click

from headwater.deploy.interrupted import Interrupted
from headwater.edge.wire.client import Client, NoResponders
from headwater.edge.wire.login import Login
from headwater.edge.wire.message import WireError
from headwater.security.errors import SecurityError

PAUSE_S = 0.1
GOES_ON = "%s goes on if it was asked already; headwater hub drain %s --undo takes that back"


@click.command()
@click.argument("node")
@click.option("--server", default="nats://127.0.0.1:4222", envvar="NATS_URL", show_default=True)
@click.option("--creds", default="", envvar="NATS_CREDS", help="Of a user of the system account.")
@click.option("--user", default="")
@click.option("--password", default="", envvar="NATS_PASSWORD")
@click.option("--tlsca", default="", help="CA file for the hub.")
@click.option("--undo", is_flag=True, help="Let the node lead again, without a restart.")
@click.option("--timeout", default=30.0, show_default=True, help="Seconds to wait for the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def drain(
    node: str, server: str, creds: str, user: str, password: str, tlsca: str, undo: bool,
    timeout: float, as_json: bool,
) -> None:  # fmt: skip
    """Have the others lead what NODE (a server name) leads.

    NODE keeps its data and serves clients, but leads nothing and gets no new streams until it is
    started again. Exit status: 0 when it leads nothing any more, 1 when it still does. With --json:
    `node`, `leads` (the groups that it still leads), `drained`.
    """
    login = Login(user=user, password=password, creds=creds, tls_ca=tlsca)
    deadline = time.monotonic() + timeout
    try:
        with Client(server, login) as client:
            left = _ask(client, node, undo)
            while left and not undo and time.monotonic() < deadline:
                time.sleep(PAUSE_S)
                left = _ask(client, node, undo)
    except KeyboardInterrupt:
        raise Interrupted("" if undo else GOES_ON % (node, node)) from None
    except NoResponders as error:
        raise click.ClickException(
            f"{server} has no such order for this user: log in as one of the system account "
            "(--creds, or --user and --password), at a node of a cluster"
        ) from error
    except (WireError, SecurityError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"node": node, "leads": left, "drained": not (left or undo)}))
        raise SystemExit(1 if left and not undo else 0)
    if undo:
        click.echo(f"{node} may lead again")
    elif left:
        raise click.ClickException(
            f"{node} still leads {left} groups: no other replica is ready; see headwater hub status"
        )
    else:
        click.echo(f"{node} leads nothing: it can be stopped")


def _ask(client: Client, node: str, undo: bool) -> int:
    """How many groups the node leads. Raises WireError."""
    answer = client.api("SERVER.DRAIN", peer=node, undo=undo)
    return int(answer["leads"])
