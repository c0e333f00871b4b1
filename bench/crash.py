"""`python -m bench.crash`: SIGKILL storms against promise one, an acknowledged message is there.

Every round: start the server on the same store, check everything promised so far, publish from
several connections, kill the server at a random moment. What must hold after every restart:

- every acknowledged message is in the stream, under its sequence, with its payload;
- no sequence was acknowledged for two messages, and no message was stored twice;
- what a reader saw after one restart is still there, unchanged, after the next.

SIGKILL leaves the page cache intact: this finds acks sent before the write and broken recovery;
it does not find missing fdatasync.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bench.servers import Recipe, Server, ServerFailed, anchor, end_on_sigterm, headwater
from bench.wire import Link, WireError

STREAM = "CRASH"
WINDOW = 500
"""Unacknowledged messages per connection."""

PER_WRITE = 50
SAMPLES = 50
"""Direct gets per check, beside the replay of the whole stream."""

READY_SECONDS = 20.0
"""How long JetStream may answer with errors after a restart."""


@dataclass
class Ledger:
    """What the server promised, and what was seen of it.

    `acked` maps payload to sequence, `by_seq` the other way round; `seen` is what the latest
    replays showed, sequence to payload.
    """

    acked: dict[str, int] = field(default_factory=dict)
    by_seq: dict[int, str] = field(default_factory=dict)
    seen: dict[int, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def ack(self, payload: str, seq: int) -> None:
        """Note an acknowledgement; two messages for one sequence are a fault."""
        other = self.by_seq.get(seq) or self.seen.get(seq)
        if other is not None and other != payload:
            self.faults.append(f"seq {seq} acknowledged for {payload}, was {other}")
        self.acked[payload] = seq
        self.by_seq[seq] = payload

    def check(self, found: dict[int, str]) -> None:
        """Compare a replay of the whole stream with every promise."""
        for seq, payload in self.by_seq.items():
            if found.get(seq) != payload:
                self.faults.append(f"lost: seq {seq} {payload}, found {found.get(seq)}")
        for seq, payload in self.seen.items():
            if found.get(seq) != payload:
                self.faults.append(f"changed: seq {seq} was {payload}, is {found.get(seq)}")
        if len(set(found.values())) != len(found):
            self.faults.append("duplicated: a message is stored under two sequences")
        self.seen.update(found)


class Publisher(threading.Thread):
    """One connection that publishes unique payloads until its server dies.

    `acks` are (payload, sequence) in the order of arrival; `refused` are error answers.
    """

    def __init__(self, port: int, name: str, size: int) -> None:
        super().__init__(name=name, daemon=True)
        self.acks: list[tuple[str, int]] = []
        self.refused: list[str] = []
        self.begun = threading.Event()
        """Set when the first publish was answered, or none will be."""
        self._size = size
        self._sent: list[str] = []
        self._done = 0
        self._link = Link(port, 5.0)
        self._link.subscribe(f"_INBOX.{name}.*", "3")

    def run(self) -> None:
        """Publish within the window until the connection breaks."""
        try:
            self._publish()
        except (WireError, OSError):
            pass
        finally:
            self.begun.set()
            self._link.close()

    def _publish(self) -> None:
        frames = self._link.frames()
        while True:
            while len(self._sent) - self._done <= WINDOW - PER_WRITE:
                self._link.send(b"".join(self._message() for _ in range(PER_WRITE)))
            frame = next(frames)
            answer: dict[str, Any] = json.loads(frame.body or b'{"error":"no body"}')
            self._done += 1
            if "error" in answer:
                self.refused.append(str(answer["error"]))
            else:
                index = int(frame.subject.rpartition(".")[2])
                self.acks.append((self._sent[index], int(answer["seq"])))
            self.begun.set()

    def _message(self) -> bytes:
        index = len(self._sent)
        payload = f"{self.name}-{index}".ljust(self._size, ".")
        self._sent.append(payload)
        subject = f"crash.{index % 7}"
        reply = f"_INBOX.{self.name}.{index}"
        return f"PUB {subject} {reply} {len(payload)}\r\n{payload}\r\n".encode()


def patiently(action: Callable[[], None]) -> None:
    """Run `action` again while it fails, for `READY_SECONDS`: recovery may answer errors."""
    deadline = time.monotonic() + READY_SECONDS
    waiter = threading.Event()
    while True:
        try:
            action()
            return
        except WireError:
            if time.monotonic() > deadline:
                raise
            waiter.wait(0.05)


def create(link: Link) -> None:
    """Create the stream under test."""
    link.api(
        f"STREAM.CREATE.{STREAM}",
        name=STREAM,
        subjects=["crash.>"],
        storage="file",
        num_replicas=1,
        allow_direct=True,
    )


def replay(link: Link) -> dict[int, str]:
    """The whole stream, sequence to payload, through a consumer without acks."""
    state = link.api(f"STREAM.INFO.{STREAM}")["state"]
    found: dict[int, str] = {}
    if not state["messages"]:
        return found
    link.subscribe("crash-replay", "4")
    config = {
        "deliver_subject": "crash-replay",
        "deliver_policy": "all",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
    }
    payload = json.dumps({"stream_name": STREAM, "config": config})
    create = f"PUB $JS.API.CONSUMER.CREATE.{STREAM} crash-replay {len(payload)}\r\n{payload}\r\n"
    link.send(create.encode())
    for frame in link.frames():
        if frame.sid == "4" and frame.reply.startswith("$JS.ACK."):
            found[int(frame.reply.split(".")[-4])] = frame.body.decode()
            if len(found) == state["messages"]:
                break
        elif frame.sid == "4" and b'"error"' in frame.body:
            raise WireError(frame.body.decode())
    if max(found) != state["last_seq"]:
        raise WireError(f"last sequence {state['last_seq']}, replay ended at {max(found)}")
    return found


def sample(link: Link, ledger: Ledger, chance: random.Random) -> None:
    """Direct gets of a few acknowledged sequences."""
    known = list(ledger.by_seq.items())
    for seq, payload in chance.sample(known, min(SAMPLES, len(known))):
        body = json.dumps({"seq": seq}).encode()
        frame = link.request(f"$JS.API.DIRECT.GET.{STREAM}", body)
        if frame.body.decode() != payload:
            ledger.faults.append(f"direct get of seq {seq}: {frame.head!r} {frame.body!r}")


def verify(port: int, ledger: Ledger, chance: random.Random) -> int:
    """Check every promise against the running server; the number of messages in the stream."""
    found: dict[int, str] = {}

    def attempt() -> None:
        with Link(port) as link:
            link.api(f"STREAM.INFO.{STREAM}")
            found.update(replay(link))
            sample(link, ledger, chance)

    patiently(attempt)
    ledger.check(found)
    return len(found)


@dataclass(frozen=True)
class Storm:
    """Rounds of a storm: how many, how wide, how long until the kill (seconds), message bytes."""

    rounds: int = 5
    connections: int = 4
    longest: float = 0.5
    size: int = 64
    seed: int = 1


def blow(server: Server, storm: Storm, number: int, ledger: Ledger, delay: float) -> None:
    """Publish from all connections, and kill the server `delay` seconds after its first answer."""
    publishers = [
        Publisher(server.port, f"r{number}c{index}", storm.size)
        for index in range(storm.connections)
    ]
    for publisher in publishers:
        publisher.start()
    publishers[0].begun.wait()
    threading.Event().wait(delay)
    server.kill()
    for publisher in publishers:
        publisher.join()
        for payload, seq in publisher.acks:
            ledger.ack(payload, seq)
        if publisher.refused:
            ledger.faults.append(f"refused: {publisher.refused[0]} (x{len(publisher.refused)})")


def run(
    recipe: Recipe,
    storm: Storm,
    store: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Ledger:
    """The whole storm on one store directory; the ledger's `faults` are empty when it held."""
    chance = random.Random(storm.seed)
    ledger = Ledger()
    with Server(recipe, store) as server:
        with Link(server.port) as link:
            patiently(lambda: create(link))
        for number in range(storm.rounds):
            delay = chance.uniform(0.02, storm.longest)
            blow(server, storm, number, ledger, delay)
            startup = server.start()
            stored = verify(server.port, ledger, chance)
            tell(
                f"round {number + 1}/{storm.rounds}: killed after {delay * 1000:.0f} ms, "
                f"{len(ledger.acked)} acknowledged, {stored} stored, "
                f"restart {startup * 1000:.0f} ms, {len(ledger.faults)} faults"
            )
    return ledger


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
    storm = Storm(rounds, connections, longest, size, seed)
    try:
        ledger = run(recipe, storm, store, lambda line: click.echo(line, err=True))
    except (ServerFailed, WireError, OSError) as error:
        click.echo(f"not driven: {error}", err=True)
        sys.exit(2)
    if as_json:
        made = {"seed": seed, "acknowledged": len(ledger.acked), "faults": ledger.faults[:100]}
        click.echo(json.dumps(made))
    for fault in ledger.faults[:20]:
        click.echo(fault, err=True)
    verdict = "held" if not ledger.faults else f"{len(ledger.faults)} faults"
    click.echo(
        f"{len(ledger.acked)} acknowledged, {rounds} kills, seed {seed}: {verdict}", err=True
    )
    sys.exit(1 if ledger.faults else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.crash")
