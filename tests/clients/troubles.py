"""Clusters of three that are restarted, killed, paused and led by others, and what a program of an
official client sees of it: `python -m tests.clients.troubles rust java --server real`.

Each language has one small program (`trouble.mjs`, `Trouble.java`, ...). It publishes, consumes
with double acks, follows a stream and a bucket, puts objects, asks a service and shares a queue
group. It prints what it sees; moments, gaps and books are kept here.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.cluster.nodes import SERVERS, ClusterNodes, ask, insist, leader_of, whole
from bench.servers import HOST, end_on_sigterm
from tests.waiting import silence, until

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
LAME_DUCK = 'lame_duck_duration: "30s"\nlame_duck_grace_period: "1s"\n'
LEAVE_S = 60.0
STALL_S = 2.0
QUIET_S = 60.0
"""Until a program must have caught up, at the end."""

PROGRAMS = {
    "javascript": (["node", "javascript/trouble.mjs"], "javascript/node_modules"),
    "python": (
        [sys.executable, "-m", "tests.clients.python.trouble"], "python/trouble.py"
    ),
    "new-python": (
        ["../../build/orbit-py/bin/python", "-m", "tests.clients.python.trouble_new"],
        "../../build/orbit-py",
    ),
    "rust": (["rust/target/debug/trouble"], "rust/target/debug/trouble"),
    "java": (["java", "-cp", "java/classes:java/lib/*", "Trouble"], "java/classes/Trouble.class"),
}
"""Each language's command, and what is there once `make clients` has installed its client."""


@dataclass
class Book:
    """What a program saw, and when."""

    acked: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    got: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    errors: Counter[str] = field(default_factory=Counter)
    done: set[int] = field(default_factory=set)
    redone: list[int] = field(default_factory=list)
    """Sequences that came again behind their confirmed ack."""
    gaps: dict[str, float] = field(default_factory=dict)
    """The longest time without an ack or a message of a kind, by the trouble in which it began."""
    last: dict[str, tuple[float, str]] = field(default_factory=dict)
    phase: str = "start"
    began: float = field(default_factory=time.monotonic)
    stalls: list[str] = field(default_factory=list)
    """What stood, and when; and what was done to the nodes."""

    def enter(self, line: str) -> None:
        """One line of a program."""
        kind, _, rest = line.partition(" ")
        if kind == "ACKED":
            who, number = rest.split()
            self.acked[who].append(int(number))
            self._seen(f"{who} acked")
        elif kind == "GOT":
            who, number = rest.split()
            self.got[who].append(int(number))
            self._seen(who)
            if who == "work" and int(number) in self.done:
                self.redone.append(int(number))
        elif kind == "DONE":
            self.done.add(int(rest))
        elif kind in ("ERROR", "LINK"):
            self.errors[f"{self.phase}: {kind} {rest}"] += 1

    def mark(self, what: str) -> None:
        """Something is done to a node now."""
        self.stalls.append(f"[{time.monotonic() - self.began:.1f} {what}]")

    def _seen(self, kind: str) -> None:
        now = time.monotonic()
        since, phase = self.last.get(kind, (now, self.phase))
        gap = now - since
        self.last[kind] = (now, self.phase)
        key = f"{phase}: {kind}"
        self.gaps[key] = max(self.gaps.get(key, 0.0), gap)
        if gap > STALL_S and not kind.startswith("object"):
            self.stalls.append(f"{kind} {since - self.began:.1f} to {now - self.began:.1f}")


@dataclass
class Outcome:
    """What became of a program's messages."""

    book: Book
    missing: list[str]
    """Acknowledged ids that the stream lacks."""
    twice: list[str]
    """Ids that it has more than once."""
    unseen: int
    """Messages of the stream that the work consumer did not hand out."""
    unordered: list[tuple[int, int]]
    """Sequences of the ordered consumer, each with the one before, where it left some out or went
    back."""
    old_watch: bool
    """The watcher never saw the last value."""

    def wrong(self) -> list[str]:
        """What must not be, with any client."""
        found = {
            "missing": self.missing, "twice": self.twice, "unordered": self.unordered,
            "again behind an ack": self.book.redone,
        }  # fmt: skip
        return [f"{name}: {each[:5]}" for name, each in found.items() if each]


class Trouble:
    """One program beside one cluster."""

    def __init__(self, nodes: ClusterNodes, language: str) -> None:
        self.nodes = nodes
        self.language = language
        self.book = Book()
        self.words: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def prepare(self) -> None:
        """Start the cluster; make what the program uses."""
        self.nodes.start_all()
        await self.nodes.ready()
        self.admin = await self.nodes.client()
        common = {"num_replicas": 3, "max_age": 0}
        await self._ask(
            "STREAM.CREATE.TROUBLE", name="TROUBLE", subjects=["trouble.sync", "trouble.async"],
            duplicate_window=120_000_000_000, **common,
        )  # fmt: skip
        await self._ask("CONSUMER.DURABLE.CREATE.TROUBLE.work", stream_name="TROUBLE", config={
            "durable_name": "work", "ack_policy": "explicit", "ack_wait": 10_000_000_000,
            "max_ack_pending": 1000,
        })  # fmt: skip
        rolled = {"allow_rollup_hdrs": True, "allow_direct": True, "discard": "new"}
        values = {"max_msgs_per_subject": 64, "deny_delete": True}
        parts = ["$O.TROUBLEOBJ.C.>", "$O.TROUBLEOBJ.M.>"]
        for name, subjects, more in (
            ("KV_TROUBLEKV", ["$KV.TROUBLEKV.>"], values),
            ("OBJ_TROUBLEOBJ", parts, {"max_bytes": 1 << 28}),
        ):
            await self._ask(
                f"STREAM.CREATE.{name}", name=name, subjects=subjects, **rolled, **more, **common
            )

    async def _ask(self, request: str, **body: Any) -> None:
        answer = await insist(self.admin, request, **body)
        assert "error" not in answer, answer

    async def run(self, troubles: "dict[str, Callable[[Trouble], Awaitable[None]]]") -> Outcome:
        """The program through all troubles."""
        (program, *words), _ = PROGRAMS[self.language]
        urls = ",".join(self.nodes.url(index) for index in range(self.nodes.size))
        process = await asyncio.create_subprocess_exec(
            program, *words, urls, cwd=HERE, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        reading = asyncio.create_task(self._read(process))
        try:
            await self._heard("READY")
            for name, trouble in troubles.items():
                self.book.phase = name
                await trouble(self)
            return await self._end(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await reading
            await self.admin.close()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode().strip()
            self.words[text].set()
            self.book.enter(text)

    async def _heard(self, word: str) -> None:
        async with asyncio.timeout(QUIET_S):
            await self.words[word].wait()

    async def _end(self, process: asyncio.subprocess.Process) -> Outcome:
        assert process.stdin is not None
        self.book.phase = "end"
        process.stdin.write(b"\n")
        await self._heard("STOPPED")
        stored = await self.stored()
        last = (await insist(self.admin, "STREAM.INFO.KV_TROUBLEKV"))["state"]["last_seq"]
        everything = set(stored)
        with contextlib.suppress(AssertionError):
            await until(lambda: self._caught_up(everything, last), "all is seen", QUIET_S)
        process.stdin.write(b"\n")
        ids = Counter(stored.values())
        acked = [f"{who[0]}{n}" for who in ("sync", "async") for n in self.book.acked[who]]
        seen = self.book.got["ordered"]
        return Outcome(
            self.book,
            missing=[each for each in acked if each not in ids],
            twice=[each for each, count in ids.items() if count > 1],
            unseen=len(everything - set(self.book.got["work"])),
            unordered=[(a, b) for a, b in zip([0, *seen], seen, strict=False) if b != a + 1],
            old_watch=last > 0 and last not in self.book.got["watch"],
        )

    def _caught_up(self, everything: set[int], last: int) -> bool:
        got = self.book.got
        return (
            everything <= set(got["work"])
            and max(everything) in got["ordered"][-1:]
            and (last == 0 or last in got["watch"][-1:])
        )

    def clients(self, index: int) -> int:
        """How many clients a node has."""
        with urlopen(f"http://{HOST}:{self.nodes.monitor_ports[index]}/connz") as page:
            return int(json.load(page)["num_connections"])

    async def stored(self) -> dict[int, str]:
        """The id of each message of the stream."""
        await whole(self.admin, "TROUBLE")
        js = self.admin.jetstream()
        found: dict[int, str] = {}
        last = (await insist(self.admin, "STREAM.INFO.TROUBLE"))["state"]["last_seq"]
        reader = await js.subscribe("trouble.*", stream="TROUBLE", ordered_consumer=True)
        while last not in found:
            msg = await reader.next_msg(timeout=QUIET_S)
            found[msg.metadata.sequence.stream] = (msg.headers or {})["Nats-Msg-Id"]
        return found


async def rolling(trouble: Trouble) -> None:
    """Each node leaves by lame duck, and starts again."""
    for index in range(trouble.nodes.size):
        trouble.book.mark(f"n{index} leaves")
        await asyncio.to_thread(trouble.nodes.leave, index, LEAVE_S)
        trouble.book.mark(f"n{index} starts")
        trouble.nodes.start(index)
        await trouble.nodes.ready()
        await whole(trouble.admin, "TROUBLE")


async def killed(trouble: Trouble) -> None:
    """SIGKILL for the leader of the stream; it is back after three seconds."""
    leader = await leader_of(trouble.admin, "TROUBLE")
    trouble.book.mark(f"n{leader} is killed")
    trouble.nodes.kill(leader)
    await silence(3)
    trouble.nodes.start(leader)
    await trouble.nodes.ready()
    await whole(trouble.admin, "TROUBLE")


async def paused(trouble: Trouble, seconds: float = 15.0) -> None:
    """SIGSTOP for the node with the fewest clients of those that do not lead the stream."""
    leader = await leader_of(trouble.admin, "TROUBLE")
    others = [index for index in range(trouble.nodes.size) if index != leader]
    other = min(others, key=trouble.clients)
    trouble.book.mark(f"n{other} stands, {trouble.clients(other)} clients")
    trouble.nodes.signal(other, signal.SIGSTOP)
    await silence(seconds)
    trouble.nodes.signal(other, signal.SIGCONT)
    await whole(trouble.admin, "TROUBLE")


async def stepping(trouble: Trouble, times: int = 10) -> None:
    """Another leader for all three streams each second."""
    trouble.book.mark("other leaders")
    for _ in range(times):
        for stream in ("TROUBLE", "KV_TROUBLEKV", "OBJ_TROUBLEOBJ"):
            with contextlib.suppress(Exception):
                await ask(trouble.admin, f"STREAM.LEADER.STEPDOWN.{stream}", seconds=1)
        await silence(1)
    await whole(trouble.admin, "TROUBLE")


TROUBLES = {"rolling": rolling, "killed": killed, "paused": paused, "stepping": stepping}


async def meet(language: str, server: str, names: list[str]) -> Outcome:
    """One program, one cluster, some troubles."""
    with ClusterNodes(SERVERS[server], more=LAME_DUCK) as nodes:
        trouble = Trouble(nodes, language)
        await trouble.prepare()
        return await trouble.run({name: TROUBLES[name] for name in names})


def report(language: str, server: str, outcome: Outcome) -> None:
    """For a reader."""
    book = outcome.book
    counts = {who: len(found) for who, found in {**book.acked}.items()}
    print(f"== {language}, {server}: acked {json.dumps(counts)}")
    print(
        f"missing {len(outcome.missing)}, twice {len(outcome.twice)}, unseen {outcome.unseen}, "
        f"again behind an ack {len(book.redone)}, unordered {outcome.unordered[:5]}, "
        f"watch {'old' if outcome.old_watch else 'whole'}, "
        f"repeated {len(book.got['work']) - len(set(book.got['work']))}, "
        f"queue lost {len(set(book.acked['queue']) - set(book.got['queue']))}"
    )
    for name in TROUBLES:
        gaps = [f"{key.split(': ')[1]} {gap:.2f}" for key, gap in sorted(book.gaps.items())
                if key.startswith(name)]  # fmt: skip
        print(f"  {name}: longest gaps in s: {', '.join(gaps)}")
    print(f"  stalls: {', '.join(book.stalls)}")
    for text, count in sorted(book.errors.items()):
        print(f"  {count:4} {text[:160]}")
    sys.stdout.flush()


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--server", choices=SERVERS, action="append")
    parser.add_argument("--trouble", choices=TROUBLES, action="append")
    chosen = parser.parse_args()
    end_on_sigterm()
    for language in chosen.languages or PROGRAMS:
        for server in chosen.server or ("headwater", "real"):
            outcome = asyncio.run(meet(language, server, chosen.trouble or list(TROUBLES)))
            report(language, server, outcome)


if __name__ == "__main__":
    main()
