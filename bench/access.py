"""`python -m bench.access`: what logins and permissions cost, beside the real nats-server.

`logins` opens connections, signs every nonce before the clock runs, then sends all CONNECTs and
waits for all PONGs: logins by JWT per second, and the processor time of the server for each.
`permissions` is 1 -> 1 with 128 bytes of a user with rules and of one without, on one server, in
turn: how much of the rate is left. Figures are medians of rounds that alternate.
"""

import base64
import json
import selectors
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import click

from bench.patterns import Load, core_publish
from bench.servers import HOST, Recipe, Server, anchor, end_on_sigterm, headwater
from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorBody,
    OperatorClaims,
    UserBody,
    UserClaims,
)
from headwater.security.nkeys import KeyPair

REQUIRED = {"logins": 0.7, "permissions": 0.9}
"""Lowest ratio that is good: of theirs, and of the rate without permissions."""

PERMITTED = """
authorization { users: [
  { user: open, password: p }
  { user: held, password: p, permissions: {
      publish: { allow: ["bench.>", "other.*"], deny: ["bench.secret.>"] }
      subscribe: { allow: ["bench.>", "_INBOX.>"], deny: ["bench.secret.>"] } } }
] }
"""
PATIENCE = 30.0
EXIT_BELOW = 1


@dataclass(frozen=True)
class Found:
    """One row: medians of both servers, and the ratio that counts."""

    name: str
    ours: float
    theirs: float
    ratio: float

    def met(self) -> bool:
        """Whether the ratio is high enough."""
        return self.ratio >= REQUIRED[self.name]


class Realm:
    """An operator with one account, and a user's token."""

    def __init__(self) -> None:
        operator, account, system = (KeyPair.create(kind) for kind in "OAA")
        self.user = KeyPair.create("U")
        body = AccountBody(limits=AccountLimits.unlimited())
        held = [
            jwt.encode(AccountClaims(sub=pair.public_key, name="a", nats=body), operator)
            for pair in (account, system)
        ]
        own = jwt.encode(OperatorClaims(sub=operator.public_key, nats=OperatorBody()), operator)
        claims = UserClaims(sub=self.user.public_key, name="u", nats=UserBody.unlimited())
        self.token = jwt.encode(claims, account)
        self.config = (
            f"operator: {own}\nsystem_account: {system.public_key}\nresolver: MEMORY\n"
            f"resolver_preload {{\n {account.public_key}: {held[0]}\n"
            f" {system.public_key}: {held[1]}\n}}\n"
        )

    def connect(self, info: bytes) -> bytes:
        """The CONNECT and PING that answer a server's INFO."""
        nonce = json.loads(info[5:])["nonce"]
        signature = base64.urlsafe_b64encode(self.user.sign(nonce.encode())).decode().rstrip("=")
        fields = {"verbose": False, "pedantic": False, "jwt": self.token, "sig": signature}
        return b"CONNECT " + json.dumps(fields).encode() + b"\r\nPING\r\n"


def logins(server: Server, realm: Realm, count: int) -> tuple[float, float]:
    """Logins per second, and seconds of processor time for each."""
    with ExitStack() as stack:
        links = []
        for _ in range(count):
            link = stack.enter_context(socket.create_connection((HOST, server.port), PATIENCE))
            links.append((link, realm.connect(link.makefile("rb").readline())))
        waiting = selectors.DefaultSelector()
        before, began = processor_time(server.pid), time.monotonic()
        for link, line in links:
            link.sendall(line)
            waiting.register(link, selectors.EVENT_READ, bytearray())
        while waiting.get_map():
            for key, _ in waiting.select(PATIENCE):
                key.data.extend(key.fileobj.recv(65536))
                if b"-ERR" in key.data:
                    raise RuntimeError(f"a login failed: {bytes(key.data)!r}")
                if key.data.endswith(b"PONG\r\n"):
                    waiting.unregister(key.fileobj)
        took = time.monotonic() - began
        return count / took, (processor_time(server.pid) - before) / count


def processor_time(pid: int) -> float:
    """Seconds of processor time that a process has used, all threads, by the scheduler's count."""
    with open(f"/proc/{pid}/stat") as facts:
        fields = facts.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@contextmanager
def pair(config: str, ours: str | None, theirs: str | None) -> Iterator[tuple[Server, Server]]:
    """Both servers with one configuration."""
    with ExitStack() as stack:
        recipes = [headwater(ours), anchor(theirs)]
        made = [
            stack.enter_context(Server(Recipe(recipe.name, recipe.command, config)))
            for recipe in recipes
        ]
        yield made[0], made[1]


def in_turn(servers: tuple[Server, Server], rounds: int) -> Iterator[tuple[int, Server]]:
    """Each server once in each round, the order flipped with every round."""
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            yield side, servers[side]


def compare_logins(
    rounds: int, scale: float, ours: str | None, theirs: str | None, say: Callable[[str], None]
) -> Found:
    """The row of JWT logins."""
    realm = Realm()
    rates: tuple[list[float], list[float]] = ([], [])
    with pair(realm.config, ours, theirs) as servers:
        for side, server in in_turn(servers, rounds):
            rate, cost = logins(server, realm, max(10, round(500 * scale)))
            rates[side].append(rate)
            say(f"logins {server.recipe.name}: {rate:,.0f}/s, {cost * 1e3:.2f} ms of processor")
    mine, other = map(statistics.median, rates)
    return Found("logins", mine, other, mine / other)


def compare_permissions(
    rounds: int, scale: float, ours: str | None, theirs: str | None, say: Callable[[str], None]
) -> Found:
    """The row of permissions: the part of the rate that is left."""
    left: tuple[list[float], list[float]] = ([], [])
    load = Load(max(1000, round(1_000_000 * scale)), 20.0)
    with pair(PERMITTED, ours, theirs) as servers:
        for side, server in in_turn(servers, rounds):
            users = ("open", "held") if len(left[side]) % 2 else ("held", "open")
            rates = {
                user: core_publish(server, load, size=128, receivers=1, user=f"{user}:p@").rate
                for user in users
            }
            left[side].append(rates["held"] / rates["open"])
            say(
                f"permissions {server.recipe.name}: {rates['held']:,.0f}/s of "
                f"{rates['open']:,.0f}/s, {left[side][-1]:.3f}"
            )
    mine, other = map(statistics.median, left)
    return Found("permissions", mine, other, mine)


CASES = {"logins": compare_logins, "permissions": compare_permissions}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, type=click.Choice(list(CASES)), help="Cases; else all.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 1000))
@click.option("--scale", default=1.0, show_default=True, help="Of a full run.")
@click.option("--ours", metavar="COMMAND", help="Launch this in place of `headwater serve`.")
@click.option("--theirs", metavar="COMMAND", help="Launch this in place of `nats-server`.")
@click.option("--check", is_flag=True, help="Exit with 1 when a ratio is too low.")
def main(
    only: tuple[str, ...],
    rounds: int,
    scale: float,
    ours: str | None,
    theirs: str | None,
    check: bool,
) -> None:
    """Measure logins by JWT, and 1 -> 1 with permissions on, on both servers in turn."""
    end_on_sigterm()

    def say(line: str) -> None:
        click.echo(line, err=True)

    low = False
    for name, compare in CASES.items():
        if only and name not in only:
            continue
        found = compare(rounds, scale, ours, theirs, say)
        low = low or not found.met()
        click.echo(
            f"{name} ours {found.ours:.4g} theirs {found.theirs:.4g} "
            f"ratio {found.ratio:.3f} required {REQUIRED[name]}"
        )
    sys.exit(EXIT_BELOW if check and low else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.access")
