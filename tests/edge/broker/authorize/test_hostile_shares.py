"""Exports and imports that mean harm: both servers take and refuse the same ones, and what they
take carries the same messages, in configurations and in tokens."""

import os
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.servers import Server, program
from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from tests.edge.broker.authorize.hostile_shares import (
    Heard,
    Share,
    accounts,
    played,
    realm,
    shares,
)
from tests.operator_realm import SERVERS, Raw, recipe

SEEDS = random.Random(os.environ.get("HEADWATER_SEED", "shares")).sample(range(10**6), 2)
COUNT = int(os.environ.get("HEADWATER_SHARES", "120"))
WORKERS = 2


def taken_there(path: Path, config: str) -> str:
    """What nats-server finds wrong with a configuration."""
    path.write_text(config)
    run = subprocess.run(
        [program("nats-server"), "-t", "-c", path], capture_output=True, text=True, check=False
    )
    return run.stderr if run.returncode else ""


def taken_here(config: str) -> str:
    try:
        load_text(config)
    except ConfigError as error:
        return str(error)
    return ""


def both(config: str, play: Callable[[int], Heard]) -> list[str]:
    """What both servers do differently, in words."""

    def one(name: str) -> Heard:
        with Server(recipe(name, config)) as server:
            return play(server.port)

    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ours, theirs = pool.map(one, SERVERS)
    return [
        f"{what}\n  headwater: {ours.get(what)}\n  nats-server: {theirs.get(what)}"
        for what in sorted(ours.keys() | theirs.keys())
        if ours.get(what) != theirs.get(what)
    ]


def taken(found: list[Share], config: Callable[[list[Share]], str], directory: Path) -> list[Share]:
    """The shares that both servers take in a configuration of their own; the others both refuse."""
    configs = [config([each]) for each in found]
    paths = [directory / f"{each.number}.conf" for each in found]
    with ThreadPoolExecutor(WORKERS) as pool:
        there = list(pool.map(taken_there, paths, configs))
    here = list(map(taken_here, configs))
    different = [
        f"{each}\n  headwater: {ours or 'taken'}\n  nats-server: {theirs or 'taken'}"
        for each, ours, theirs in zip(found, here, there, strict=True)
        if bool(ours) != bool(theirs) and not (ours and each.is_refused_here())
    ]
    assert not different, "\n".join(different)
    rest = [each for each, problem in zip(found, here, strict=True) if not problem]
    assert COUNT // 5 < len(rest) < COUNT
    return rest


@pytest.mark.parametrize("seed", SEEDS)
def test_configurations(seed: int, tmp_path: Path) -> None:
    found = taken(shares(seed, COUNT), accounts, tmp_path)

    def login(wire: Raw, name: str) -> list[str]:
        return wire.login(user=name, **{"pass": "p"})

    different = both(accounts(found), lambda port: played(port, found, str, login))
    assert not different, "\n".join(different)


@pytest.mark.parametrize("seed", SEEDS)
def test_tokens(seed: int, tmp_path: Path) -> None:
    found = taken(shares(seed, COUNT), lambda each: realm(each).config(), tmp_path)
    found = [each for each in found if not each.is_refused_here()]
    made = realm(found)

    def login(wire: Raw, name: str) -> list[str]:
        return wire.login(made.user(name))

    different = both(made.config(), lambda port: played(port, found, made.account, login))
    assert not different, "\n".join(different)


def test_a_token_with_what_is_refused_here_imports_nothing() -> None:
    """nats-server ends by some of them; their accounts live here, without the import."""
    found = [
        each
        for each in shares("refused", COUNT * 2)
        if taken_here(accounts([each])) and not taken_here(realm([each]).config())
    ]
    assert len(found) > COUNT // 20
    made = realm(found)

    def login(wire: Raw, name: str) -> list[str]:
        return wire.login(made.user(name))

    with Server(recipe("headwater", made.config())) as server:
        heard = played(server.port, found, made.account, login)
        assert server.alive()
        assert "Traceback" not in server.log
    assert heard
    assert not any(came for what, came in heard.items() if what.endswith(" is heard"))
