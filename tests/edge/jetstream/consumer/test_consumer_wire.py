"""What clients see of consumers on the wire, line by line beside a real nats-server."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, anchor, headwater
from tests.waiting import silence, until

SECOND = 1_000_000_000
PATIENCE = 300 * SECOND
"""Of requests and acks that are not to end by time, however slowly a scenario goes on."""
QUIET_S = 0.25
CALM_S = 0.05
"""By how much a quiet time may take longer while the machine has time to spare."""
QUIET_TIMES_MAX = 12


class Client:
    """A raw connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.early: list[tuple[str, str, str, str]] = []

    async def connect(self) -> None:
        """Log in."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        options = b'{"verbose":false,"headers":true,"no_responders":true}'
        self.writer.write(b"CONNECT " + options + b"\r\nPING\r\n")
        while (await self.reader.readline()) != b"PONG\r\n":
            pass

    def put(self, text: str) -> None:
        """Send protocol lines."""
        self.writer.write(text.encode())

    def publish(self, subject: str, payload: str = "", reply: str = "") -> None:
        """Publish."""
        self.put(f"PUB {subject} {reply} {len(payload)}\r\n{payload}\r\n")

    async def frames(self) -> list[tuple[str, str, str, str]]:
        """(subject, reply, headers, payload) of everything until PONG."""
        found = []
        self.put("PING\r\n")
        while (frame := await self._frame()) is not None:
            found.append(frame)
        return found

    async def frames_until(
        self, enough: Callable[[list[tuple[str, str, str, str]]], bool]
    ) -> list[tuple[str, str, str, str]]:
        """Frames as they come, until they are enough."""
        found: list[tuple[str, str, str, str]] = []
        while not enough(found):
            frame = await self._frame()
            assert frame is not None, "a PONG without a PING"
            found.append(frame)
        return found

    async def done(self, wanted: int) -> None:
        """Wait for so many answers on `done`. What comes among them, as a late advisory of the
        consumer before, is for `settled`."""
        found = await self.frames_until(lambda seen: [f[0] for f in seen].count("done") == wanted)
        self.early += [frame for frame in found if frame[0] != "done"]

    async def _frame(self) -> tuple[str, str, str, str] | None:
        """(subject, reply, headers, payload) of the next message; None for a PONG."""
        while True:
            line = (await asyncio.wait_for(self.reader.readline(), 10)).decode().split()
            if line[0] == "PONG":
                return None
            if line[0] == "PING":
                continue
            assert line[0] in ("MSG", "HMSG"), line
            total = int(line[-1])
            head = int(line[-2]) if line[0] == "HMSG" else 0
            reply = line[3] if len(line) == (6 if head else 5) else ""
            body = await self.reader.readexactly(total + 2)
            return line[1], reply, body[:head].decode(), body[head:total].decode()

    async def settled(self) -> list[tuple[str, str, str, str]]:
        """Frames until nothing more comes for a while.

        Where the machine is busy, the while says little: then some more of them are waited for.
        """
        found, self.early = self.early, []
        found += await self.frames()
        busy = 0
        while True:
            began = time.monotonic()
            await silence(QUIET_S)
            more = await self.frames()
            if time.monotonic() - began > QUIET_S + CALM_S:
                busy += 1
            elif not more:
                return found
            if not more and busy >= QUIET_TIMES_MAX:
                return found
            found += more

    async def ask(self, what: str, body: Any = None) -> Any:
        """One API request. What comes before its answer is for `settled`."""
        payload = "" if body is None else json.dumps(body)
        self.put("SUB answer 99\r\n")
        self.publish(f"$JS.API.{what}", payload, "answer")
        while True:
            frames = await self.frames()
            answers = [frame for frame in frames if frame[0] == "answer"]
            self.early += [frame for frame in frames if frame[0] != "answer"]
            if answers:
                self.put("UNSUB 99\r\n")
                return json.loads(answers[0][3])


@pytest.fixture(scope="module")
def servers() -> Iterator[list[int]]:
    with Server(headwater()) as ours, Server(anchor()) as theirs:
        yield [ours.port, theirs.port]


@pytest.fixture
async def pair(servers: list[int]) -> AsyncIterator[list[Client]]:
    clients = [Client(port) for port in servers]
    for client in clients:
        await client.connect()
    yield clients
    for client in clients:
        client.writer.close()


def masked(frames: list[tuple[str, str, str, str]]) -> list[tuple[str, ...]]:
    """Frames without what differs from run to run: times and random tokens."""
    rows = []
    for subject, reply, headers, payload in frames:
        reply = re.sub(r"(\$JS\.ACK\.\S+\.\d+\.\d+\.\d+)\.\d+\.", r"\1.T.", reply)
        reply = re.sub(r"(\$JS\.FC\.\S+)\.\w{4}$", r"\1.R", reply)
        headers = re.sub(r"(Stalled: \S+)\.\w{4}\r", r"\1.R\r", headers)
        headers = re.sub(r"Nats-Pin-Id: \w{22}", "Nats-Pin-Id: P", headers)
        if payload.startswith("{") and subject.startswith("$JS.EVENT"):
            event = json.loads(payload)
            payload = json.dumps({k: v for k, v in event.items() if k not in ("id", "timestamp")})
        rows.append((subject, reply, headers, payload))
    return rows


KEPT = ("num_ack_pending", "num_redelivered", "num_pending", "num_waiting")
PLACES = ("delivered", "ack_floor")


def positions(info: Any) -> dict[str, Any]:
    """The part of an info that both servers must agree on."""
    kept = {k: info[k] for k in (*KEPT, *PLACES)}
    for place in PLACES:
        kept[place] = {k: v for k, v in kept[place].items() if k != "last_active"}
    return kept


async def fresh(client: Client, stream: dict[str, Any], consumer: dict[str, Any]) -> None:
    """A new stream S on `a.>` with a consumer C."""
    await client.ask("STREAM.DELETE.S")
    config = {"name": "S", "subjects": ["a.>"], "storage": "memory", **stream}
    made = await client.ask("STREAM.CREATE.S", config)
    assert "error" not in made, made
    config = {"durable_name": "C", "ack_policy": "explicit", **consumer}
    made = await client.ask("CONSUMER.CREATE.S.C", {"stream_name": "S", "config": config})
    assert "error" not in made, made
    client.put("SUB in.> 1\r\nSUB $JS.EVENT.ADVISORY.CONSUMER.*.S.C 2\r\nSUB done 3\r\n")
    # An advisory of a consumer made before comes ahead of its answer, or behind it.
    client.early += await client.frames()


NEXT = "$JS.API.CONSUMER.MSG.NEXT.S.C"
ACK = re.compile(r"^\$JS\.ACK\.")


def batch(n: int, **more: Any) -> str:
    """Body of a pull request."""
    return json.dumps({"batch": n, **more})


async def pulls(client: Client) -> list[Any]:
    """Requests of all sorts, and what is answered."""
    await fresh(client, {}, {"max_waiting": 3})
    seen: list[Any] = []
    bodies = [
        batch(1, no_wait=True),
        batch(2, expires=SECOND // 10),
        batch(1, expires=SECOND // 10, max_bytes=500),
        batch(1, expires=SECOND, idle_heartbeat=SECOND),
        batch(1, expires=SECOND // 2, idle_heartbeat=SECOND // 10),
        "2",
        "",
        "x",
        "{",
        batch(1, priority=11),
        batch(1, min_pending=1),
        batch(1, id="x"),
        batch(1, group="g"),
    ]
    for number, body in enumerate(bodies):
        client.publish(NEXT, body, f"in.{number}")
        seen += masked(await client.settled())
        for n in range(3):
            client.publish(f"a.{n}", f"{number}.{n}")
        # How many messages are pending depends on how fast they were taken in.
        seen += [row[:1] + row[2:] for row in masked(await client.settled())]
        seen.append(positions(await client.ask("CONSUMER.INFO.S.C")))
        client.publish(NEXT, batch(5, no_wait=True), "in.rest")
        for frame in await client.settled():
            seen += masked([frame])
            if ACK.match(frame[1]):
                client.publish(frame[1], "", "done")
        seen += masked(await client.settled())
    return seen


async def acks(client: Client) -> list[Any]:
    """Every kind of ack, right and wrong."""
    await fresh(client, {}, {"max_deliver": 3, "ack_wait": PATIENCE})
    seen: list[Any] = []
    for n in range(12):
        client.publish(f"a.{n}", str(n))
    await client.settled()
    client.publish(NEXT, batch(10, expires=20 * SECOND), "in.x")
    frames = await client.settled()
    seen += masked(frames)
    replies = [frame[1] for frame in frames]
    for at, body in (
        (0, "+ACK"), (2, "-NAK"), (1, ""), (3, '-NAK {"delay": 100000000}'), (4, "-NAK 50ms"),
        (5, "+WPI"), (6, "+TERM"), (7, "+TERM because"), (8, "+OK"), (9, "what"),
        (0, "+ACK"), (0, "-NAK"), (6, "-NAK"), (9, "-NAK"), (9, "-NAK nonsense"),
    ):
        client.publish(replies[at], body, "done")
        seen += sorted(masked(await client.settled()))
        seen.append(positions(await client.ask("CONSUMER.INFO.S.C")))
    client.publish(replies[5], "+NXT", "in.next")
    seen += masked(await client.settled())
    client.publish(replies[5], '+NXT {"batch":2,"no_wait":true}', "in.next")
    seen += masked(await client.settled())
    for bad in ("1.99.99.1.1", "1.x.1.1.1"):
        client.publish(f"$JS.ACK.S.C.{bad}", "", "done")
        seen += masked(await client.settled())
    seen.append(positions(await client.ask("CONSUMER.INFO.S.C")))
    return seen


async def pushes(client: Client) -> list[Any]:
    """A push consumer with heartbeats and flow control."""
    config = {
        "deliver_subject": "in.push",
        "idle_heartbeat": SECOND // 5,
        "flow_control": True,
        "headers_only": True,
        "filter_subject": "a.b",
    }
    await fresh(client, {}, config)
    seen: list[Any] = []
    client.put("UNSUB 1\r\n")
    client.put("HPUB a.b 22 24\r\nNATS/1.0\r\nK: value\r\n\r\nab\r\n")
    client.publish("a.c", "other")
    client.publish("a.b", "last")
    await client.settled()
    client.put("SUB in.push 4\r\n")
    seen += masked(await client.frames_until(lambda found: len(found) == 3))
    info = await client.ask("CONSUMER.INFO.S.C")
    seen.append(info["push_bound"])
    client.put("UNSUB 4\r\n")
    await client.frames()
    info = await client.ask("CONSUMER.INFO.S.C")
    seen.append("push_bound" in info)
    return seen


async def limits_of_delivery(client: Client) -> list[Any]:
    """max_deliver, max_ack_pending and deletions while messages are pending."""
    await fresh(client, {}, {"max_deliver": 2, "ack_wait": SECOND // 4, "max_ack_pending": 3})
    seen: list[Any] = []
    for n in range(6):
        client.publish(f"a.{n}", str(n))
    await client.settled()
    client.publish(NEXT, batch(10, expires=20 * SECOND), "in.x")
    # Three twice, the next three once, and one of these again; the others wait for a request.
    rows = masked(await client.frames_until(lambda found: len(found) == 13))
    seen += sorted(row for row in rows if not row[0].startswith("$JS") and row[1][14] == "1")
    seen += sorted(row[0] for row in rows if row[0].endswith(".MAX_DELIVERIES.S.C"))[:3]
    await client.ask("STREAM.MSG.DELETE.S", {"seq": 5})
    await client.settled()
    await client.ask("STREAM.PURGE.S")
    seen.append(positions(await client.ask("CONSUMER.INFO.S.C")))
    return seen


async def priorities(client: Client) -> list[Any]:
    """A pinned client."""
    await fresh(client, {}, {"priority_policy": "pinned_client", "priority_groups": ["g"]})
    seen: list[Any] = []
    client.publish(NEXT, batch(1, expires=PATIENCE), "in.0")
    client.publish(NEXT, batch(1, expires=PATIENCE, group="h"), "in.0")
    client.publish(NEXT, batch(1, expires=PATIENCE, group="g"), "in.1")
    seen += masked(await client.settled())
    client.publish(NEXT, batch(5, expires=PATIENCE, group="g"), "in.2")
    seen += masked(await client.settled())
    client.publish("a.1", "1")
    rows = await client.settled()
    client.publish("a.2", "2")
    rows += await client.settled()
    seen += [row[:4] for row in masked(rows) if not row[0].startswith("$JS")]
    client.publish(NEXT, batch(5, expires=PATIENCE, group="g", id="wrong"), "in.3")
    seen += masked(await client.settled())
    client.publish("$JS.API.CONSUMER.UNPIN.S.C", '{"group": "g"}', "done")
    # Whether the answer or the message that is free again comes first is each server's own.
    rows = masked(await client.settled())
    seen += sorted(row[:4] for row in rows if not row[0].startswith("$JS"))
    return seen


async def ends(client: Client) -> list[Any]:
    """Deletion and purge under waiting requests."""
    await fresh(client, {}, {})
    seen: list[Any] = []
    client.publish(NEXT, batch(1, expires=PATIENCE), "in.1")
    await client.frames()
    seen.append(await client.ask("CONSUMER.DELETE.S.C"))
    seen += masked(await client.settled())
    client.publish(NEXT, batch(1), "in.2")
    seen += masked(await client.settled())
    await fresh(client, {}, {})
    client.publish(NEXT, batch(1, expires=PATIENCE), "in.1")
    await client.frames()
    seen.append(await client.ask("STREAM.DELETE.S"))
    seen += masked(await client.settled())
    return seen


async def refusals(client: Client) -> list[Any]:
    """What is refused again and again comes in the order of the refusals."""
    await fresh(client, {}, {"ack_wait": PATIENCE})
    for n in range(6):
        client.publish("a.1", str(n), "done")
    await client.done(6)
    seen: list[Any] = []
    for first in (0, 2, 4, 3):
        client.publish(NEXT, batch(6, expires=PATIENCE), "in.x")
        frames = await client.frames_until(lambda found: len(delivered(found)) == 6)
        taken = delivered(frames)
        seen += masked(taken)
        for _, reply, _, _ in taken[first:] + taken[:first]:
            client.publish(reply, "-NAK")
    return seen


def delivered(frames: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    """What can be acknowledged."""
    return [frame for frame in frames if ACK.match(frame[1])]


PURGES: tuple[tuple[list[str], str, int], ...] = (
    (["a.1", "a.3"], "a.3", 0),
    (["a.1", "a.3"], "a.1", 0),
    (["a.1"], "a.1", 3),
    (["a.1", "a.2"], "a.*", 4),
    (["a.1", "b.2"], "a.*", 0),
    (["a.*"], "a.1", 0),
    ([], "a.3", 0),
    (["a.1", "b.>"], "", 4),
)
"""Filters of a consumer, and a purge: of a subject, and below a sequence."""


async def purges(client: Client) -> list[Any]:
    """What a purge leaves is delivered, whatever else the consumer wants."""
    seen: list[Any] = []
    for filters, subject, below in PURGES:
        consumer = {"filter_subjects": filters} if filters else {}
        await fresh(client, {"subjects": ["a.>", "b.>"]}, consumer)
        for published in ("a.1", "a.2", "a.3", "b.2", "a.1", "a.2"):
            client.publish(published, "x", "done")
        await client.done(6)
        body: dict[str, Any] = {"filter": subject} if subject else {}
        if below:
            body["seq"] = below
        seen.append((await client.ask("STREAM.PURGE.S", body))["purged"])
        client.publish(NEXT, batch(9, no_wait=True), "in.1")
        seen += masked(await client.settled())
        seen.append(positions(await client.ask("CONSUMER.INFO.S.C")))
    return seen


SCENARIOS = [pulls, acks, pushes, limits_of_delivery, priorities, ends, purges, refusals]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_scenario(pair: list[Client], scenario: Any) -> None:
    ours, theirs = await asyncio.gather(*(scenario(client) for client in pair))
    different = [
        f"{n}: ours {a}\n   theirs {b}"
        for n, (a, b) in enumerate(zip(ours, theirs, strict=False))
        if a != b
    ]
    assert not different, "\n".join(different[:12])
    assert len(ours) == len(theirs)


async def take(client: Client, most: int) -> list[str]:
    """Ack subjects of what one pull request gets at once."""
    client.publish(NEXT, batch(most, no_wait=True), "in.x")
    found: list[str] = []
    while len(found) < most:
        for frame in await client.frames():
            if frame[0] == "in.x":
                return found
            if ACK.match(frame[1]):
                found.append(frame[1])
    return found


async def agree(pair: list[Client]) -> bool:
    """Whether both say the same of the consumer: an ack has no answer."""
    ours, theirs = [positions(await client.ask("CONSUMER.INFO.S.C")) for client in pair]
    return bool(ours == theirs)


@pytest.mark.parametrize("seed", range(4))
async def test_random_walks_agree(pair: list[Client], seed: int) -> None:
    rng = random.Random(seed)
    policy = rng.choice(["explicit", "explicit", "all"])
    retention = rng.choice(["limits", "limits", "workqueue", "interest"])
    if retention == "workqueue":
        policy = "explicit"
    stream = {"retention": retention, "max_msgs_per_subject": rng.choice([-1, 3])}
    consumer = {"ack_policy": policy, "filter_subject": rng.choice(["", "a.1", "a.*"])}
    for client in pair:
        await fresh(client, stream, consumer)
    replies: list[list[str]] = [[], []]
    for step in range(60):
        action = rng.random()
        number = rng.randrange(1000)
        for at, client in enumerate(pair):
            if action < 0.35:
                client.publish(f"a.{number % 4}", "x" * (number % 7))
            elif action < 0.6:
                replies[at] += await take(client, number % 4 + 1)
            elif action < 0.9 and replies[at]:
                body = ("", "", "-NAK", "+TERM")[number % 4]
                client.publish(replies[at][number % len(replies[at])], body)
            elif action < 0.95:
                await client.ask("STREAM.MSG.DELETE.S", {"seq": number % 20 + 1})
            elif action > 0.99:
                await client.ask("STREAM.PURGE.S")
            await client.frames()
        where = step, action, number, stream, consumer
        await until(partial(agree, pair), where)
        numbers = [[reply.split(".")[4:7] for reply in side] for side in replies]
        assert numbers[0] == numbers[1], (step, stream, consumer)


async def test_a_killed_server_knows_what_was_acknowledged(tmp_path: Path) -> None:
    with Server(headwater(), tmp_path) as server:
        client = Client(server.port)
        await client.connect()
        await fresh(client, {"storage": "file", "retention": "workqueue"}, {})
        for n in range(200):
            client.publish(f"a.{n}", str(n), "done")
        assert len(await client.settled()) == 200
        client.publish(NEXT, batch(120), "in.x")
        replies = [frame[1] for frame in await client.settled()]
        for reply in replies[:100:2]:
            client.publish(reply, "", "done")
        answers: list[tuple[str, str, str, str]] = []
        while len(answers) < 50:
            answers += await client.settled()
        before = await client.ask("CONSUMER.INFO.S.C")
        server.kill()
        server.start()
        client = Client(server.port)
        await client.connect()
        after = await client.ask("CONSUMER.INFO.S.C")
        assert after["num_ack_pending"] <= 70
        assert after["delivered"]["stream_seq"] <= 120
        assert after["config"] == before["config"]
        stream = await client.ask("STREAM.INFO.S")
        assert stream["state"]["messages"] == 150
        client.put("SUB in.> 1\r\n")
        client.publish(NEXT, batch(200, no_wait=True), "in.x")
        frames = [frame for frame in await client.settled() if frame[1]]
        assert {int(frame[3]) for frame in frames} >= set(range(120, 200))
        acked = set(range(0, 100, 2))
        assert not acked & {int(frame[3]) for frame in frames}


async def test_a_receiver_that_does_not_read_holds_delivery_back(servers: list[int]) -> None:
    client = Client(servers[0])
    await client.connect()
    await fresh(client, {}, {"ack_policy": "none", "max_ack_pending": -1})
    body = "x" * 10_000
    for n in range(3000):
        client.publish(f"a.{n % 3}", body)
    await client.settled()
    slow = Client(servers[0])
    await slow.connect()
    slow.put("SUB big 7\r\nPING\r\n")
    await slow.reader.readline()
    config = {"deliver_subject": "big", "ack_policy": "none", "durable_name": "P"}
    await client.ask("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": config})
    delivered, before = 0, -1
    while not delivered or delivered != before:
        await silence(0.1)
        info = await client.ask("CONSUMER.INFO.S.P")
        delivered, before = info["delivered"]["stream_seq"], delivered
    assert delivered < 3000
    seen = 0
    while seen < 3000:
        line = await asyncio.wait_for(slow.reader.readline(), 10)
        if line.startswith(b"MSG"):
            await slow.reader.readexactly(int(line.split()[-1]) + 2)
            seen += 1
    info = await client.ask("CONSUMER.INFO.S.P")
    assert info["num_pending"] == 0
    client.writer.close()
    slow.writer.close()
