"""`python -m bench.operations`: how many requests of each kind a node or a cluster answers.

One raw connection has `WINDOW` requests under way at a time; the answers are counted as they come.
Nodes of Headwater and of nats-server are measured in turn, on streams in files, in a cluster with a
replica on every node. A kind whose answers are refusals fails. What waits for the disk (purges,
new streams) is measured, too: nats-server syncs that later.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from bench.cluster.nodes import SERVERS, ClusterNodes, ClusterRecipe
from bench.servers import HOST, ServerFailed, end_on_sigterm

COUNT = 10_000
WINDOW = 500
PATIENCE_S = 30.0
READ_BYTES = 1 << 20
PROBE_S = 0.2
"""Between two probes of a stream, or consumer, that was made just now."""
ANSWER = b"MSG i."
PROBED = b"MSG k."
REFUSAL = b'"err_code"'
API = "$JS.API"
BODY = b"x" * 100
NEAR = 20
"""Messages, and subjects, that reads ask for in turn."""

LOGIN = b'CONNECT {"verbose":false,"headers":true}\r\nSUB i.* 1\r\nSUB k.* 2\r\nPING\r\n'

Frames = Callable[[int], Iterator[bytes]]


@dataclass(frozen=True)
class Kind:
    """One kind of requests: their `frames`, `share` of the count, and what begins an answer."""

    name: str
    frames: Frames
    share: float = 1.0
    window: int = WINDOW
    answer: bytes = ANSWER
    config: dict[str, Any] | None = None
    """The stream that is made first, as far as it is not as all are."""
    consumer: dict[str, Any] | None = None
    """A durable consumer `one` on `P`, made first."""


def frame(subject: str, body: object = BODY, head: str = "") -> bytes:
    """A request on the wire; `head` are header lines between commas."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    if not head:
        return b"PUB %b i.1 %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)
    block = f"NATS/1.0\r\n{head}\r\n\r\n".replace(", ", "\r\n").encode()
    sizes = len(block), len(block) + len(payload)
    return b"HPUB %b i.1 %d %d\r\n%b%b\r\n" % (subject.encode(), *sizes, block, payload)


def publish(stream: str, spread: int = 1000, head: str = "", body: bytes = BODY) -> Frames:
    """Publishes on subjects of a stream; `{}` in the headers is the number of the message."""

    def made(count: int) -> Iterator[bytes]:
        return (
            frame(f"{stream.lower()}.{at % spread}", body, head.replace("{}", str(at)))
            for at in range(count)
        )

    return made


def ask(subject: str, body: Callable[[int], object] = lambda at: b"") -> Frames:
    """Requests of the API; `{}` in the subject is the number of the request."""

    def made(count: int) -> Iterator[bytes]:
        return (
            frame(f"{API}.{subject.replace('{}', str(at))}", body(at)) for at in range(count)
        )

    return made


def consumer_named(at: int) -> dict[str, Any]:
    """A request for a push consumer in memory."""
    config = {
        "name": f"c{at}",
        "deliver_subject": f"to.{at}",
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": 60_000_000_000,
    }
    return {"stream_name": "P", "config": config}


def small_stream(at: int, **more: Any) -> dict[str, Any]:
    """The configuration of a stream in memory."""
    return {"name": f"Z{at}", "subjects": [f"z{at}.>"], "storage": "memory", **more}


def timed(at: int) -> str:
    return "Nats-Schedule: @at 2036-01-01T00:00:00Z, Nats-Schedule-Target: sc.to.{}"


EXPLICIT = {"ack_policy": "explicit", "max_ack_pending": 1_000_000}
GROUP = {**EXPLICIT, "priority_groups": ["g"], "priority_policy": "overflow"}
PULL = {"batch": 1, "group": "g", "min_pending": 1, "expires": 20_000_000_000}
KINDS = [
    Kind("publish", publish("P"), config={"name": "P"}),
    Kind("publish, with an id", publish("ID", head="Nats-Msg-Id: {}"), config={"name": "ID"}),
    Kind("publish, with a TTL", publish("TT", head="Nats-TTL: 1000s"),
         config={"name": "TT", "allow_msg_ttl": True}),
    Kind("publish, first of its subject",
         publish("EX", 1 << 30, "Nats-Expected-Last-Subject-Sequence: 0"), config={"name": "EX"}),
    Kind("publish, one kept for each subject", publish("KV", 500),
         config={"name": "KV", "max_msgs_per_subject": 1}),
    Kind("publish, rolled up", publish("RU", 100, "Nats-Rollup: sub"), 0.5,
         config={"name": "RU", "allow_rollup_hdrs": True}),
    Kind("publish, subjects changed", publish("TR"),
         config={"name": "TR", "subject_transform": {"src": "tr.*", "dest": "t.{{wildcard(1)}}"}}),
    Kind("publish, republished", publish("RP"),
         config={"name": "RP", "republish": {"src": "rp.>", "dest": "rep.>"}}),
    Kind("count", publish("CT", head="Nats-Incr: 5", body=b""), 0.5,
         config={"name": "CT", "allow_msg_counter": True}),
    Kind("schedule", publish("SC", 1 << 30, timed(0)), 0.5,
         config={"name": "SC", "allow_msg_schedules": True}),
    Kind("get by sequence", ask("STREAM.MSG.GET.P", lambda at: {"seq": at % NEAR + 1}), 0.5),
    Kind("get the last",
         ask("STREAM.MSG.GET.P", lambda at: {"last_by_subj": f"p.{at % NEAR}"}), 0.5),
    Kind("get directly by sequence", ask("DIRECT.GET.P", lambda at: {"seq": at % NEAR + 1})),
    Kind("get the last directly",
         ask("DIRECT.GET.P", lambda at: {"last_by_subj": f"p.{at % NEAR}"})),
    Kind("get the last directly, by subject", ask("DIRECT.GET.P.p.7")),
    Kind("get the next directly",
         ask("DIRECT.GET.P", lambda at: {"next_by_subj": "p.*", "seq": at % NEAR + 1}), 0.25),
    Kind("get 100 directly", ask("DIRECT.GET.P", lambda at: {"seq": 1, "batch": 100}), 0.02, 20,
         answer=b" 204 EOB"),
    Kind("get the last of 100 directly",
         ask("DIRECT.GET.P", lambda at: {"multi_last": [f"p.{n}" for n in range(100)]}), 0.02, 20,
         answer=b" 204 EOB"),
    Kind("stream info", ask("STREAM.INFO.P"), 0.25),
    Kind("consumer info", ask("CONSUMER.INFO.P.one"), 0.25, consumer=EXPLICIT),
    Kind("pull one", ask("CONSUMER.MSG.NEXT.P.one", lambda at: b"1"), 0.5, 100, b"MSG p.",
         consumer=EXPLICIT),
    Kind("pull one, in a group", ask("CONSUMER.MSG.NEXT.P.one", lambda at: PULL), 0.5, 100,
         b"MSG p.", consumer=GROUP),
    Kind("delete a message", ask("STREAM.MSG.DELETE.ID", lambda at: {"seq": at + 1}), 0.1),
    Kind("purge a subject",
         ask("STREAM.PURGE.ID", lambda at: {"filter": f"id.{at % 1000}"}), 0.05, 50),
    Kind("create a consumer", ask("CONSUMER.CREATE.P.c{}", consumer_named), 0.05, 50),
    Kind("delete a consumer", ask("CONSUMER.DELETE.P.c{}"), 0.05, 50),
    Kind("stream names", ask("STREAM.NAMES"), 0.1, 50),
    Kind("stream list", ask("STREAM.LIST"), 0.05, 20),
    Kind("account info", ask("INFO"), 0.2, 50),
    Kind("create a stream", ask("STREAM.CREATE.Z{}", small_stream), 0.02, 20),
    Kind("update a stream",
         ask("STREAM.UPDATE.Z{}", lambda at: small_stream(at, max_msgs=100)), 0.02, 20),
    Kind("delete a stream", ask("STREAM.DELETE.Z{}"), 0.02, 20),
]  # fmt: skip


class Asker:
    """One connection that asks as fast as it is answered."""

    def __init__(self, name: str, replicas: int) -> None:
        self.name = name
        self.replicas = replicas

    async def connect(self, port: int) -> None:
        """Log in and listen for answers."""
        self.reader, self.writer = await asyncio.open_connection(HOST, port, limit=READ_BYTES)
        self.writer.write(LOGIN)
        while await self.reader.readline() != b"PONG\r\n":
            pass

    async def message(self) -> tuple[bool, bytes]:
        """The next message: whether it answers a probe, and its content."""
        line = b""
        while b"MSG " not in line:
            line = await self.reader.readline()
        content = await self.reader.readexactly(int(line.split()[-1]) + 2)
        return PROBED in line, content

    async def call(self, subject: str, body: dict[str, Any]) -> None:
        """Ask for something that has to be done. Raises ServerFailed."""
        self.writer.write(frame(subject, body))
        probed = True
        while probed:
            probed, answer = await asyncio.wait_for(self.message(), PATIENCE_S)
        if REFUSAL in answer:
            raise ServerFailed(f"{self.name}: {subject}: {answer.decode()}")

    async def probe(self, request: bytes) -> None:
        """Ask until it is answered: nodes hear of what is new a moment later than who has made it,
        and publishes and pulls until then are nobody's. Raises ServerFailed."""
        heard = asyncio.ensure_future(self.message())
        for _ in range(int(PATIENCE_S / PROBE_S)):
            self.writer.write(request.replace(b" i.1 ", b" k.1 ", 1))
            done, _ = await asyncio.wait([heard], timeout=PROBE_S)
            if done:
                return
        heard.cancel()
        raise ServerFailed(f"{self.name}: no answer to {request!r}")

    async def prepare(self, kind: Kind, count: int) -> None:
        """Make the stream and the consumer of a kind of which `count` requests will come. Raises
        ServerFailed."""
        if kind.config is not None:
            name = kind.config["name"]
            usual = {"subjects": [f"{name.lower()}.>"], "num_replicas": self.replicas}
            config = {**usual, "allow_direct": True, **kind.config}
            await self.call(f"{API}.STREAM.CREATE.{name}", config)
            *_, behind = kind.frames(count + 1)
            await self.probe(behind)
        if kind.consumer is not None:
            config = {"name": "one", "durable_name": "one", **kind.consumer}
            await self.call(
                f"{API}.CONSUMER.CREATE.P.one", {"stream_name": "P", "config": config}
            )
            await self.probe(frame(f"{API}.CONSUMER.MSG.NEXT.P.one", b"{"))

    async def leave(self, kind: Kind) -> None:
        """Take the consumer of a kind away. Raises ServerFailed."""
        if kind.consumer is not None:
            await self.call(f"{API}.CONSUMER.DELETE.P.one", {})

    async def flood(self, kind: Kind, count: int) -> float:
        """Requests a second. Raises ServerFailed."""
        frames = list(kind.frames(count))
        sent = answered = 0
        rest = b""
        began = time.perf_counter()
        while answered < count:
            end = min(count, answered + kind.window)
            if end > sent:
                self.writer.write(b"".join(frames[sent:end]))
                sent = end
            try:
                data = await asyncio.wait_for(self.reader.read(READ_BYTES), PATIENCE_S)
            except TimeoutError:
                missing = f"{count - answered} of {count} were not answered"
                raise ServerFailed(f"{self.name}: {kind.name}: {missing}") from None
            if not data:
                raise ServerFailed(f"{kind.name}: the connection ended")
            data = rest + data
            if REFUSAL in data and PROBED not in data:
                raise ServerFailed(f"{kind.name}: {data[:300].decode(errors='replace')}")
            answered += data.count(kind.answer)
            # What may be half an answer's mark, and no whole one.
            rest = data[len(data) - len(kind.answer) + 1 :]
        return count / (time.perf_counter() - began)


async def measure(recipe: ClusterRecipe, nodes: int, count: int, only: str) -> dict[str, float]:
    """Requests a second of each kind, at a server of one kind. Raises ServerFailed."""
    found = {}
    with ClusterNodes(recipe, nodes) as cluster:
        cluster.start_all()
        await cluster.ready()
        asker = Asker(recipe.name, nodes)
        await asker.connect(cluster.ports[0])
        for kind in KINDS:
            asked = max(int(count * kind.share), 2)
            await asker.prepare(kind, asked)
            if only in kind.name or kind.config is not None:
                # Later kinds read what the first ones have stored.
                rate = await asker.flood(kind, asked)
                if only in kind.name:
                    found[kind.name] = rate
            await asker.leave(kind)
        asker.writer.close()
    return found


def row(name: str, ours: list[float], theirs: list[float]) -> str:
    """A line of the table: medians, and the range of ratios of single rounds."""
    ratios = sorted(one / other for one, other in zip(ours, theirs, strict=True))
    middle = statistics.median(ours) / statistics.median(theirs)
    return (
        f"{name:36} {statistics.median(ours):11,.0f} {statistics.median(theirs):11,.0f} "
        f"{middle:6.2f}   {ratios[0]:.2f} to {ratios[-1]:.2f}"
    )


@click.command()
@click.option("--nodes", type=click.Choice(["1", "3"]), default="1", help="One node, or a cluster.")
@click.option("--count", default=COUNT, help="Requests of the quickest kinds.")
@click.option("--rounds", default=3, help="Rounds; the order of the servers alternates.")
@click.option("--only", default="", help="Kinds whose name has this text.")
def main(nodes: str, count: int, rounds: int, only: str) -> None:
    """Requests of each kind, answered by Headwater and by nats-server."""
    end_on_sigterm()
    names = ["headwater", "real"]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for at in range(rounds):
        for name in names[:: 1 - 2 * (at % 2)]:
            found[name].append(asyncio.run(measure(SERVERS[name], int(nodes), count, only)))
    click.echo(f"{'requests a second':36} {'headwater':>11} {'nats-server':>11} {'ratio':>6}")
    ours, theirs = found["headwater"], found["real"]
    for name in ours[0]:
        click.echo(row(name, [one[name] for one in ours], [one[name] for one in theirs]))


if __name__ == "__main__":
    try:
        main(prog_name="python -m bench.operations")
    except ServerFailed as error:
        click.echo(f"bench.operations: {error}", err=True)
        sys.exit(1)
