"""`python -m bench.faults flips`: one flipped bit, or one file cut short, while the server is down.

A store is made with streams of every retention and durable consumers, and the server stopped, every
other time by SIGKILL. Every round damages a copy of it at one place, starts a server on it, checks
every promise, publishes and consumes some more, kills the server, and checks again.
"""

import copy
import random
import shutil
import tempfile
from pathlib import Path

from bench.faults.tally import Tally
from bench.faults.trial import Script, Trial
from bench.faults.workload import Workload
from bench.servers import ServerFailed

MESSAGES = 300
"""Per stream in the store that is damaged."""

MORE = 20
"""Per stream after the damage."""

LIVES = 3
"""Starts that the store has behind it."""


def end_of_data(path: Path) -> int:
    """Offset behind the last byte that is not zero: files are allocated ahead."""
    return len(path.read_bytes().rstrip(b"\0"))


def damage(store: Path, chance: random.Random) -> str:
    """Flip a bit of a file, or cut it; says what was done."""
    files = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size)
    while True:
        path = chance.choice(files)
        size = end_of_data(path)
        if size:
            break
    at = chance.randrange(size)
    name = path.relative_to(store)
    if chance.random() < 1 / 3:
        with path.open("r+b") as file:
            file.truncate(at)
        return f"{name} cut to {at} of {size}"
    bit = chance.randrange(8)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))
    return f"bit {bit} of byte {at} of {size} flipped in {name}"


def make_store(script: Script, store: Path, clean: bool, chance: random.Random) -> Workload:
    """A store with a history, and the book of it."""
    workload = Workload(Tally("flips", script.recipe.name), chance)
    with Trial(script, workload, store) as trial:
        if not trial.start("at first"):
            raise ServerFailed("; ".join(workload.tally.told_findings()))
        trial.try_to("create", workload.create)
        for life in range(LIVES):
            trial.try_to("work", lambda link: workload.work(link, MESSAGES // LIVES))
            if life < LIVES - 1:
                trial.server.kill()
                trial.start("before any damage")
                trial.check("before any damage")
        if not clean:
            trial.server.kill()
    return workload


def run(script: Script) -> Tally:
    """All rounds on copies of two stores."""
    chance = random.Random(script.seed)
    total = Tally("flips", script.recipe.name)
    with tempfile.TemporaryDirectory(prefix="headwater-flips-", dir=script.parent) as place:
        parent = Path(place)
        bases = {}
        for name, clean in (("clean", True), ("killed", False)):
            bases[name] = make_store(script, parent / name, clean, chance)
            total.add(bases[name].tally)
        for number in range(script.rounds):
            name = ("clean", "killed")[number % 2]
            store = parent / "copy"
            shutil.copytree(parent / name, store)
            workload = bases[name].fork(total)
            _round(script, store, workload, f"round {number} ({name})", chance)
            total.rounds += 1
            shutil.rmtree(store)
    return total


def _round(
    script: Script, store: Path, workload: Workload, occasion: str, chance: random.Random
) -> None:
    """Damage, and two lives after it."""
    what = damage(store, chance)
    before = copy.copy(workload.tally)
    with Trial(script, workload, store) as trial:
        occasion = f"{occasion}, {what}"
        workload.tally.occasion = occasion
        if trial.start(occasion) and trial.check(occasion):
            trial.try_to(occasion, lambda link: workload.work(link, MORE))
            trial.server.kill()
            if trial.start(occasion):
                trial.check(occasion)
    after = workload.tally
    faults = after.broken - before.broken
    script.tell(f"{occasion}: {faults} faults, {after.told - before.told} lost and told")
