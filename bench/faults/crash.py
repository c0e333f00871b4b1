"""`python -m bench.faults.crash`: SIGKILL storms against promise one, acknowledged means stored.

Every round: start the server on the same store, check everything promised so far, publish from
several connections while another one consumes, deletes and puts, and kill the server at a random
moment. What must hold after every restart:

- every acknowledged message is in its stream, under its sequence, with its payload;
- no sequence was acknowledged for two messages, and no message is stored twice;
- what a reader saw after one restart is still there, unchanged, after the next;
- what was removed, or acknowledged by a consumer, stays so when that was answered.

SIGKILL leaves the page cache intact: this finds acks sent before the write and broken recovery;
it does not find missing fdatasync.
"""

import random
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import click

from bench.faults.publisher import Publisher
from bench.faults.tally import Tally
from bench.faults.trial import Script, Trial
from bench.faults.workload import LIMITS, Workload
from bench.servers import ServerFailed, anchor, end_on_sigterm, headwater
from bench.wire import Link
from headwater.edge.wire.message import WireError

SUBJECTS = 7
WORK = 20
"""Messages per stream and turn of the connection that consumes."""


@dataclass(frozen=True)
class Storm:
    """How wide a storm is, how long until the kill (seconds), message bytes."""

    connections: int = 4
    longest: float = 0.5
    size: int = 64


class Worker(threading.Thread):
    """Works on every stream until the connection breaks."""

    def __init__(self, link: Link, workload: Workload) -> None:
        super().__init__(daemon=True)
        self._link = link
        self._workload = workload

    def run(self) -> None:
        """Publish, consume, delete and put."""
        try:
            while True:
                self._workload.work(self._link, WORK)
        except (WireError, OSError):
            self._link.close()


def subject_of(index: int) -> str:
    """Where the message of a number goes."""
    return f"fl.storm.{index % SUBJECTS}"


def blow(trial: Trial, storm: Storm, number: int, delay: float) -> None:
    """Publish from all connections, and kill the server `delay` seconds after its first answer."""
    server, workload = trial.server, trial.workload
    publishers = [
        Publisher(server.port, f"r{number}c{index}", subject_of, storm.size)
        for index in range(storm.connections)
    ]
    worker = Worker(trial.link(), workload)
    for thread in (*publishers, worker):
        thread.start()
    publishers[0].begun.wait()
    threading.Event().wait(delay)
    server.kill()
    worker.join()
    for publisher in publishers:
        publisher.join()
        for subject, ident, sequence in publisher.acks:
            workload.books[LIMITS].ack(subject, ident, sequence)
        if publisher.refused:
            trial.tally.stick(f"{len(publisher.refused)} refused: {publisher.refused[0]}")


def run(script: Script, storm: Storm | None = None, store: Path | None = None) -> Tally:
    """The whole storm on one store directory."""
    storm = storm or Storm()
    chance = random.Random(script.seed)
    tally = Tally("kills", script.recipe.name)
    workload = Workload(tally, random.Random(script.seed), storm.size)
    with Trial(script, workload, store) as trial:
        if not trial.start("at first"):
            return tally
        trial.try_to("create", workload.create)
        for number in range(script.rounds):
            delay = chance.uniform(0.02, storm.longest)
            tally.occasion = f"round {number + 1}, killed after {delay * 1000:.0f} ms"
            blow(trial, storm, number, delay)
            tally.rounds += 1
            if not (trial.start(tally.occasion) and trial.check(tally.occasion)):
                break
            script.tell(
                f"{tally.occasion}: {tally.acknowledged} acknowledged, "
                f"restart {tally.ready[-1] * 1000:.0f} ms, {tally.broken} faults"
            )
    return tally


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--server", default="headwater", type=click.Choice(["headwater", "real"]))
@click.option("--command", help="Launch this instead; may contain {port} and {dir}.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option("--connections", default=4, show_default=True, type=click.IntRange(1, 64))
@click.option("--longest", default=0.5, show_default=True, help="Latest kill, s after an answer.")
@click.option("--size", default=64, show_default=True, type=click.IntRange(16, 65536))
@click.option("--seed", default=1, show_default=True)
@click.option("--store", type=click.Path(file_okay=False, path_type=Path), help="Keep it here.")
@click.option("--json", "as_json", is_flag=True)
def main(
    server: str,
    command: str | None,
    rounds: int,
    connections: int,
    longest: float,
    size: int,
    seed: int,
    store: Path | None,
    as_json: bool,
) -> None:
    """Kill a server again and again while it acknowledges publishes; nothing may be lost.

    Exit codes: 0 every promise held, 1 faults, 2 the server could not be driven.
    """
    end_on_sigterm()
    recipe = anchor(command) if server == "real" else headwater(command)
    script = Script(recipe, rounds, seed, tell=lambda line: click.echo(line, err=True))
    try:
        tally = run(script, Storm(connections, longest, size), store)
    except (ServerFailed, WireError, OSError) as error:
        click.echo(f"not driven: {error}", err=True)
        sys.exit(2)
    if as_json:
        click.echo(tally.as_json())
    for line in tally.told_findings():
        click.echo(line, err=True)
    verdict = "held" if not tally.broken else f"{tally.broken} faults"
    summary = f"{tally.acknowledged} acknowledged, {rounds} kills, seed {seed}: {verdict}"
    click.echo(summary, err=True)
    sys.exit(1 if tally.broken else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.faults.crash")
