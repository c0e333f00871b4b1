"""`headwater keys`: make, hand out, revoke and rotate keys. Exit status 0, or 1 with a sentence."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headwater.deploy.keys.folder import KeyFolder, KeysError
from headwater.deploy.keys.realm import Realm
from headwater.edge.facts.reasons import reason
from headwater.security.gateway_roles import ENROL, GATEWAY, OWN_SUBJECTS

if TYPE_CHECKING:
    from headwater.deploy.keys.push import Pushed

DEFAULT_FOLDER = "~/.config/headwater/keys"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Duration(click.ParamType[float]):
    """A time such as 90s, 15m, 1h or 7d; seconds."""

    name = "duration"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        number, unit = value[:-1], value[-1:]
        if unit not in UNITS or not number.replace(".", "", 1).isdigit() or not float(number):
            self.fail(f"{value!r} is no time; write 90s, 15m, 1h or 7d", param, ctx)
        return float(number) * UNITS[unit]


def folder_option(command: Any) -> Any:
    """`--dir`, and `--json`."""
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--dir", "folder", default=DEFAULT_FOLDER, envvar="HEADWATER_KEYS", show_default=True,
        help="Folder with keys and tokens, as nsc keeps them.",
    )(command)


def hub_options(command: Any) -> Any:
    """Where the hub is."""
    command = click.option("--tlsca", default="", help="CA file for the hub.")(command)
    return click.option(
        "--server", default="", envvar="HEADWATER_HUB", help="URL of the hub for clients; tells "
        "it the change at once.",
    )(command)


def answered(as_json: bool, result: dict[str, Any], *lines: str) -> None:
    """Print a result."""
    if as_json:
        click.echo(json.dumps(result))
    else:
        for line in lines:
            click.echo(line)


class Guarded(click.Group):
    """A group whose commands end with a sentence when keys or the hub refuse."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        from headwater.edge.wire.message import WireError
        from headwater.security.errors import SecurityError

        try:
            return super().invoke(ctx)
        except (SecurityError, WireError, OSError) as error:
            raise click.ClickException(reason(error)) from error


@click.group(cls=Guarded)
def keys() -> None:
    """Keys and tokens of an operator, its accounts, users and gateways (files as of nsc)."""


@keys.command()
@click.argument("name")
@folder_option
def operator(name: str, folder: str, as_json: bool) -> None:
    """Make an operator with its system account."""
    claims = Realm(KeyFolder(Path(folder))).make_operator(name)
    answered(
        as_json, {"operator": name, "key": claims.sub},
        f"operator {name}  {claims.sub}",
        "next: headwater keys account NAME",
    )  # fmt: skip


@keys.command()
@click.argument("name")
@click.option(
    "--subjects", multiple=True, default=OWN_SUBJECTS, show_default=True,
    help="Subjects that a gateway of this account may use, both ways.",
)
@click.option("--mirror", multiple=True, help="DOMAIN:STREAM that gateways may follow.")
@folder_option
def account(
    name: str, subjects: tuple[str, ...], mirror: tuple[str, ...], folder: str, as_json: bool
) -> None:
    """Make an account with JetStream, and with keys that sign for gateways."""
    claims = Realm(KeyFolder(Path(folder))).make_account(name, subjects, mirror)
    answered(
        as_json, {"account": name, "key": claims.sub},
        f"account {name}  {claims.sub}",
        f"next: headwater keys config --account {name} > hub-keys.conf, and include it in hub.conf",
    )  # fmt: skip


@keys.command()
@click.argument("name")
@click.option("--account", required=True)
@click.option("--pub", multiple=True, help="Subjects it may publish to; all without this.")
@click.option("--sub", multiple=True, help="Subjects it may subscribe to; all without this.")
@click.option("--expires", type=Duration(), default=0.0, help="Lifetime, such as 30d.")
@folder_option
def user(
    name: str, account: str, pub: tuple[str, ...], sub: tuple[str, ...], expires: float,
    folder: str, as_json: bool,
) -> None:  # fmt: skip
    """Make a user with its creds file, for people and programs."""
    path = Realm(KeyFolder(Path(folder))).make_user(account, name, pub, sub, expires)
    answered(as_json, {"user": name, "creds": str(path)}, str(path))


@keys.command()
@click.argument("names", nargs=-1)
@click.option("--account", required=True)
@click.option("--file", "listed", type=click.File(), help="One name a line; - is stdin.")
@click.option("--count", type=click.IntRange(1, 100_000), help="Names PREFIX1 to PREFIXn.")
@click.option("--prefix", default="gw-", show_default=True)
@click.option("--ttl", type=Duration(), default="1h", show_default=True, help="Lifetime.")
@click.option("--output", default="enrol", show_default=True, help="Folder for the token files.")
@folder_option
def gateway(
    names: tuple[str, ...], account: str, listed: Any, count: int | None, prefix: str, ttl: float,
    output: str, folder: str, as_json: bool,
) -> None:  # fmt: skip
    """Make short-lived enrolment tokens, one file for each gateway.

    The gateway makes its own key and exchanges the token for credentials at the hub, once.
    """
    wanted = [*names, *(listed.read().split() if listed else [])]
    wanted += [f"{prefix}{number}" for number in range(1, (count or 0) + 1)]
    if not wanted:
        raise click.UsageError("name gateways, or give --file or --count")
    realm = Realm(KeyFolder(Path(folder)))
    paths = realm.enrolment_tokens(account, wanted, ttl, Path(output))
    answered(
        as_json, {"tokens": [str(path) for path in paths]},
        f"{len(paths)} tokens in {output}, valid for {ttl:g} s, each for one gateway and once",
        "next: headwater fleet flash -f fleet.toml, with [enrol] tokens = "
        f'"{output}" in the inventory',
    )  # fmt: skip


@keys.command()
@click.argument("names", nargs=-1)
@click.option("--account", required=True)
@click.option("--key", "public", multiple=True, help="Public key (U...) instead of a name.")
@hub_options
@folder_option
def revoke(
    names: tuple[str, ...], account: str, public: tuple[str, ...], server: str, tlsca: str,
    folder: str, as_json: bool,
) -> None:  # fmt: skip
    """Revoke users and gateways; with --server they are cut off at once, at every node."""
    store = KeyFolder(Path(folder))
    found = list(public)
    for name in names:
        found += _keys_of(store, account, name, server, tlsca)
    if not found:
        raise click.UsageError("name users or gateways, or give --key")
    Realm(store).revoke(account, found)
    pushed = _pushed(store, [account], server, tlsca)
    where = f"in force at {pushed.text()}" if pushed else (
        "not in force yet: run `headwater keys push --server URL`"
    )
    answered(
        as_json, {"revoked": found, **_nodes(pushed)}, f"revoked {len(found)} keys; {where}"
    )


def _keys_of(store: KeyFolder, account: str, name: str, server: str, tlsca: str) -> list[str]:
    """Keys of a user that was made here, or that the hub enrolled."""
    if name in store.users(account):
        return [store.user(account, name).sub]
    if not server:
        raise KeysError(
            f"{name} was not made here; name the hub with --server, which knows whom it enrolled"
        )
    from headwater.deploy.keys.push import enrolled_keys

    found = enrolled_keys(store, account, name, server, tlsca)
    if not found:
        raise KeysError(f"the hub has never enrolled {name}")
    return found


def _pushed(
    store: KeyFolder, accounts: list[str], server: str, tlsca: str
) -> "Pushed | None":
    if not server:
        return None
    from headwater.deploy.keys.push import push as push_tokens

    return push_tokens(store, accounts, server, tlsca)


def _nodes(pushed: "Pushed | None") -> dict[str, Any]:
    """What `--json` says of who took a change."""
    return {"nodes": pushed.nodes if pushed else [], "silent": pushed.silent if pushed else 0}


@keys.command()
@click.option("--account", required=True)
@click.option("--role", type=click.Choice([ENROL, GATEWAY]), default=GATEWAY, show_default=True)
@click.option("--drop", is_flag=True, help="Refuse what keys before it have signed.")
@hub_options
@folder_option
def rotate(
    account: str, role: str, drop: bool, server: str, tlsca: str, folder: str, as_json: bool
) -> None:
    """Give an account another key that signs for gateways or enrolments."""
    store = KeyFolder(Path(folder))
    claims = Realm(store).rotate(account, role, drop)
    pushed = _pushed(store, [account], server, tlsca)
    from headwater.security.gateway_roles import key_of_role

    path = store.key_path(key_of_role(claims, role))
    answered(
        as_json, {"key": path.stem, "file": str(path), **_nodes(pushed)},
        f"{role} key {path.stem}" + (f"; in force at {pushed.text()}" if pushed else ""),
        f"next: give the hub {path} as headwater.fleet.signing_key" if role == GATEWAY else
        "next: headwater keys gateway, for new enrolment tokens",
    )  # fmt: skip


@keys.command()
@click.option("--account", "accounts", multiple=True, help="All of them without this.")
@hub_options
@folder_option
def push(
    accounts: tuple[str, ...], server: str, tlsca: str, folder: str, as_json: bool
) -> None:
    """Tell a running hub the accounts' tokens."""
    if not server:
        raise click.UsageError("name the hub with --server")
    store = KeyFolder(Path(folder))
    pushed = _pushed(store, list(accounts) or store.accounts(), server, tlsca)
    assert pushed is not None
    answered(as_json, _nodes(pushed), f"taken by {pushed.text()}")


@keys.command()
@click.option("--account", required=True, help="Account of the gateways.")
@click.option("--resolver", default="/var/lib/headwater/accounts", show_default=True,
              help="Folder on the hub in which it keeps accounts' tokens.")
@folder_option
def config(account: str, resolver: str, folder: str, as_json: bool) -> None:
    """Print what a hub's configuration has to include."""
    text = Realm(KeyFolder(Path(folder))).hub_config(account, Path(resolver))
    answered(as_json, {"config": text}, text.rstrip())


