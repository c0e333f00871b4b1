"""`python -m bench.faults filling`: a file system of 64 MiB that fills up and is freed again.

Every round publishes until everything is refused, lets somebody else write until no byte is left,
consumes and deletes, kills the server while the device is full, several times, some before it is
ready, checks every promise, makes room, by a purge or by removing the other's file, and wants
publishes to be taken again by the same process.
"""

import os
import random
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bench.faults.device import small_device
from bench.faults.tally import Tally
from bench.faults.trial import Script, Trial
from bench.faults.workload import LIMITS, QUEUE, VALUES, Workload
from bench.servers import Recipe
from bench.wire import Link
from headwater.edge.wire.message import WireError

MEBIBYTES = 64
FOREIGN_BYTES = 16 << 20
"""Of somebody else's file on the device, before it takes what the server leaves."""

PAYLOADS = (32 << 10, 4 << 10, 1000)
"""Message sizes; a round has one."""

PER_TURN = 50
FEW = 5
KILLS = 3
STOPPED_SHARE = 0.25
"""Of those kills, by SIGTERM instead."""

HUNGRY_SECONDS = 0.001
"""How often somebody else looks for room to take."""

EARLY_SECONDS = 0.3
"""A launch that is killed before it is ready ends within this."""

RESUME_SECONDS = 20.0
"""Publishes must be taken again this long after there is room."""

NOTHING_STORED = "nothing is stored until there is room"
"""What Headwater says when somebody took all the room that a start gave back (docs/STORAGE.md)."""

FILES_MAX = 1 << 30
CONFIG = 'jetstream {{ store_dir: "{{dir}}", max_file_store: {limit}{more} }}\n'


def roomy(recipe: Recipe) -> Recipe:
    """A recipe whose server relies on the device, not on a limit of its own."""
    more = ", sync_interval: always" if "always" in recipe.config else ""
    return replace(recipe, config=CONFIG.format(limit=FILES_MAX, more=more))


def take(path: Path, size: int) -> None:
    """Somebody else's file, as large as there is room for."""
    with suppress(OSError), path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def take_the_rest(path: Path) -> None:
    """Add to somebody else's file until no byte is left."""
    with suppress(OSError), path.open("ab", buffering=0) as file:
        for size in (65536, 4096, 512):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


class Hungry(threading.Thread):
    """Somebody else who takes whatever room there is, as soon as there is some."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._over = threading.Event()

    def run(self) -> None:
        """Until `end`."""
        while not self._over.wait(HUNGRY_SECONDS):
            take_the_rest(self._path)

    def end(self) -> None:
        """Stop, and wait for that."""
        self._over.set()
        self.join()


def fill(trial: Trial, link: Link) -> int:
    """Publish until a whole turn is refused; how many were acknowledged."""
    count = 0
    chance = trial.workload.chance
    while True:
        subjects = [f"fl.{chance.randrange(5)}" for _ in range(PER_TURN)]
        done = trial.workload.publish(link, LIMITS, subjects)
        count += done
        if not done:
            return count


def while_full(trial: Trial, link: Link) -> None:
    """What a full device has to take: progress of consumers, removals, reads."""
    workload = trial.workload
    for stream in (LIMITS, QUEUE):
        workload.consume(link, stream, FEW)
    for sequence in workload.some_of(LIMITS, FEW):
        workload.delete(link, sequence)


def while_starving(trial: Trial) -> None:
    """`while_full`, unless the server says that nobody left it any room for its log."""
    try:
        with trial.link() as link:
            while_full(trial, link)
    except (WireError, OSError) as error:
        if not any(NOTHING_STORED in line for line in trial.server.complaints):
            trial.tally.stick(f"consume and delete after a start while full: {error!r}"[:400])


def storms(trial: Trial, chance: random.Random, occasion: str) -> bool:
    """Kill and start on the full device; whether the server still serves."""
    for kill in range(KILLS):
        if chance.random() < STOPPED_SHARE and not trial.server.stop():
            trial.tally.stick("SIGTERM did not end the server in time")
        elif trial.server.alive():
            trial.server.kill()
        for _ in range(chance.randrange(3)):
            trial.server.launch()
            threading.Event().wait(chance.uniform(0.0, EARLY_SECONDS))
            trial.server.kill()
        if not (trial.start(f"{occasion}, kill {kill}") and trial.check(f"{occasion}, {kill}")):
            return False
        while_starving(trial)
    return True


def resumes(trial: Trial) -> bool:
    """Whether publishes are taken again, all of a turn, by the process that refused them."""
    deadline = time.monotonic() + RESUME_SECONDS
    waiter = threading.Event()
    while time.monotonic() < deadline:
        with suppress(WireError, OSError), trial.link() as link:
            if trial.workload.publish(link, LIMITS, ["fl.1"] * FEW) == FEW:
                return True
        waiter.wait(0.1)
    return False


def make_room(trial: Trial, rest: Path, number: int) -> None:
    """By removing the foreign file, or by purges, or both."""
    if number % 3 != 1:
        os.unlink(rest)
    if number % 3 != 0:
        trial.try_to("purge", lambda link: trial.workload.purge(link, LIMITS, 10))


def _round(trial: Trial, place: Path, number: int, chance: random.Random) -> bool:
    workload, tally = trial.workload, trial.tally
    occasion = tally.occasion
    rest = place / "rest"
    take(rest, FOREIGN_BYTES)
    workload.size = PAYLOADS[number % len(PAYLOADS)]
    filled = trial.try_to("publish until full", lambda link: fill(trial, link))
    take_the_rest(rest)
    if filled:
        trial.try_to("publish while full", lambda link: fill(trial, link))
        trial.try_to("consume and delete while full", lambda link: while_full(trial, link))
    hungry = Hungry(rest)
    hungry.start()
    try:
        if not storms(trial, chance, occasion):
            return False
    finally:
        hungry.end()
    make_room(trial, rest, number)
    if not resumes(trial):
        tally.stick(f"no publish was taken within {RESUME_SECONDS:.0f} s of there being room")
        trial.server.kill()
        if not trial.start(f"{occasion}, room"):
            return False
    workload.size = PAYLOADS[0]
    trial.try_to("work", lambda link: workload.work(link, PER_TURN))
    rest.unlink(missing_ok=True)
    for stream in (LIMITS, VALUES):
        trial.try_to("purge", lambda link, name=stream: workload.purge(link, name, 10))
    return trial.check(occasion)


def run(script: Script) -> Tally:
    """All rounds on one device."""
    chance = random.Random(script.seed)
    tally = Tally("filling", script.recipe.name)
    workload = Workload(tally, random.Random(script.seed))
    plan = replace(script, recipe=roomy(script.recipe))
    with (
        small_device(MEBIBYTES, script.parent) as device,
        Trial(plan, workload, device.path / "store") as trial,
    ):
        script.tell(f"{MEBIBYTES} MiB of {device.kind}")
        if not trial.start("at first"):
            return tally
        trial.try_to("create", workload.create)
        trial.try_to("work", lambda link: workload.work(link, PER_TURN))
        for number in range(script.rounds):
            tally.occasion = f"round {number + 1}"
            before = tally.acknowledged
            goes_on = _round(trial, device.path, number, chance)
            tally.rounds += 1
            script.tell(
                f"{tally.occasion}: {tally.acknowledged - before} acknowledged, "
                f"{tally.broken} faults, {len(workload.errors)} refused in all"
            )
            if not goes_on:
                break
    return tally
