"""What streams do while leaders are killed: what each acknowledged is there once, at the end."""

import asyncio
import base64
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import ObjectStoreConfig
from nats.js.errors import NotFoundError

from bench.cluster.nodes import ask, insist
from tests.hub.cluster.failover_world import World, contents, until

PAUSE_SECONDS = 0.01
"""Between two messages of a publisher."""
LATER_SECONDS = 8
"""When a schedule is due at the earliest. An ack may be lost with its leader, and the publish comes
again. It must find the schedule there: what was carried out is gone, and its id may be too."""


class Story:
    """Begins, works until the world halts, and judges. `stream` is the one whose leader matters."""

    stream = ""
    config: dict[str, Any] = {}

    def __init__(self, world: World, first: int = 0) -> None:
        self.world = world
        self.first = first
        self.acked: dict[int, str] = {}
        self.client: Client
        self.rounds = 0

    async def begin(self) -> None:
        """Make what is needed."""
        self.client = await self.world.client(self.first)
        await self.world.stream(self.client, self.stream, **self.config)

    async def work(self) -> None:
        """Go on until the world halts."""
        number = 0
        while not self.world.halt.is_set():
            await self.one(number)
            number += 1
            self.rounds = number
            await asyncio.sleep(PAUSE_SECONDS)

    async def end(self) -> None:
        """Stop what goes on beside `work`."""

    async def one(self, number: int) -> None:
        """One publish of `work`."""
        ack = await self.world.put(self.client.jetstream(), self.subject(number), b"%d" % number)
        assert self.acked.setdefault(ack.seq, str(number)) == str(number)

    def subject(self, number: int) -> str:
        """Where a message goes."""
        return f"{self.stream}.{number % 3}"

    async def check(self) -> None:
        """Judge what is there."""
        found = await contents(self.client, self.stream)
        assert {seq: text(one) for seq, one in found.items()} == self.acked


def text(message: dict[str, Any]) -> str:
    """The payload of a message of the API."""
    return base64.b64decode(message.get("data", "")).decode()


def headers(message: dict[str, Any]) -> dict[str, str]:
    """The headers of a message of the API."""
    lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines if ": " in line)


class Mirrored(Story):
    """A mirror has what its origin has, under the same numbers."""

    stream = "ORIGIN"
    config = {"subjects": ["ORIGIN.*"]}

    async def begin(self) -> None:
        await super().begin()
        await self.world.stream(self.client, "MIRROR", mirror={"name": self.stream})

    async def check(self) -> None:
        await super().check()

        async def there() -> bool:
            info = await ask(self.client, "STREAM.INFO.MIRROR")
            return bool(info["state"]["last_seq"] >= max(self.acked))

        await until(there)
        found = await contents(self.client, "MIRROR")
        assert {seq: text(one) for seq, one in found.items()} == self.acked


class Sourced(Story):
    """A stream that gathers two others has each of their messages once, transformed."""

    stream = "GATHERED"
    config = {
        "sources": [
            {
                "name": "WEST",
                "subject_transforms": [{"src": "WEST.*", "dest": "all.west.{{wildcard(1)}}"}],
            },
            {"name": "EAST", "filter_subject": "EAST.0"},
        ]
    }

    async def begin(self) -> None:
        self.client = await self.world.client(self.first)
        for name in ("WEST", "EAST"):
            await self.world.stream(self.client, name, subjects=[f"{name}.*"])
        await super().begin()
        self.wanted: Counter[tuple[str, str]] = Counter()

    async def one(self, number: int) -> None:
        js, token = self.client.jetstream(), number % 2
        await self.world.put(js, f"WEST.{token}", b"%d" % number)
        self.wanted[f"all.west.{token}", str(number)] += 1
        await self.world.put(js, f"EAST.{token}", b"%d" % number)
        if not token:
            self.wanted["EAST.0", str(number)] += 1

    async def check(self) -> None:
        async def there() -> bool:
            info = await ask(self.client, "STREAM.INFO.GATHERED")
            return bool(info["state"]["messages"] >= sum(self.wanted.values()))

        await until(there)
        found = await contents(self.client, "GATHERED")
        assert Counter((one["subject"], text(one)) for one in found.values()) == self.wanted


class Sealed(Story):
    """A sealed stream stays what it was, and takes nothing."""

    stream = "SEALED"
    config = {"subjects": ["SEALED.*"]}

    async def begin(self) -> None:
        await super().begin()
        for number in range(10):
            await super().one(number)
        answer = await insist(
            self.client,
            "STREAM.UPDATE.SEALED",
            name="SEALED",
            num_replicas=3,
            sealed=True,
            **self.config,
        )
        assert answer["config"]["sealed"], answer

    async def one(self, number: int) -> None:
        try:
            answer = await self.client.request("SEALED.0", b"x", timeout=1)
        except NatsError:
            return
        assert json.loads(answer.data)["error"]["err_code"] == 10109, answer.data


class Batched(Story):
    """An atomic batch is there as a whole or not at all."""

    stream = "BATCHED"
    config = {"subjects": ["BATCHED.*"], "allow_atomic": True}
    size = 5

    async def begin(self) -> None:
        await super().begin()
        self.sent = 0
        self.done: set[str] = set()

    async def one(self, number: int) -> None:
        name, client = f"b{number}", self.client
        try:
            for step in range(1, self.size + 1):
                fields = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": str(step)}
                if step == self.size:
                    fields["Nats-Batch-Commit"] = "1"
                    answer = await client.request(
                        "BATCHED.0", name.encode(), timeout=1, headers=fields
                    )
                elif step == 1:
                    await client.request("BATCHED.0", name.encode(), timeout=1, headers=fields)
                else:
                    await client.publish("BATCHED.0", name.encode(), headers=fields)
        except (NatsError, TimeoutError):
            return
        told = json.loads(answer.data)
        if "error" not in told:
            assert told["count"] == self.size
            self.done.add(name)

    async def check(self) -> None:
        found = [text(one) for one in (await contents(self.client, "BATCHED")).values()]
        assert set(Counter(found).values()) <= {self.size}
        assert self.done <= set(found)
        assert len(self.done) > 10
        for at in range(0, len(found), self.size):
            assert len(set(found[at : at + self.size])) == 1


class Fast(Story):
    """What an answer of a fast batch says to be stored is stored, in order."""

    stream = "FAST"
    config = {"subjects": ["FAST.*"], "allow_batched": True}

    async def begin(self) -> None:
        await super().begin()
        self.committed: list[tuple[str, int]] = []
        self.done = 0

    async def one(self, number: int) -> None:
        client, name, size = self.client, f"f{number}", 20
        inbox = client.new_inbox()
        answers = await client.subscribe(f"{inbox}.>")
        try:
            for step in range(1, size + 1):
                operation = 0 if step == 1 else 2 if step == size else 1
                reply = f"{inbox}.{name}.10.fail.{step}.{operation}.$FI"
                await client.publish("FAST.0", f"{name} {step}".encode(), reply=reply)
            stored = 0
            while stored < size:
                answer = await answers.next_msg(1)
                told = json.loads(answer.data) if answer.data else {"error": "nobody"}
                if "error" in told:
                    break
                if told.get("count"):
                    stored = told["count"]
                    self.done += 1
                elif told.get("type") == "ack":
                    stored = told["seq"]
                self.committed.append((name, stored))
        except (NatsError, TimeoutError):
            pass
        finally:
            await answers.unsubscribe()

    async def check(self) -> None:
        found = [text(one).split() for one in (await contents(self.client, "FAST")).values()]
        kept: dict[str, list[int]] = {}
        for name, step in found:
            kept.setdefault(name, []).append(int(step))
        for name, stored in self.committed:
            assert kept.get(name, [])[:stored] == list(range(1, stored + 1)), name
        assert self.done > 10


class Counted(Story):
    """A counter holds the sum of what was acknowledged."""

    stream = "COUNTED"
    config = {"subjects": ["COUNTED.*"], "allow_msg_counter": True, "allow_direct": True}

    async def begin(self) -> None:
        await super().begin()
        self.sum = self.doubt = 0

    async def one(self, number: int) -> None:
        try:
            answer = await self.client.request(
                "COUNTED.hits", b"", timeout=1, headers={"Nats-Incr": "+1"}
            )
            told = json.loads(answer.data)
            if "error" not in told:
                self.sum += 1
                assert self.sum <= int(told["val"]) <= self.sum + self.doubt
        except (NatsError, TimeoutError):
            self.doubt += 1

    async def check(self) -> None:
        last = await insist(self.client, "STREAM.MSG.GET.COUNTED", last_by_subj="COUNTED.hits")
        value = int(json.loads(text(last["message"]))["val"])
        assert self.sum <= value <= self.sum + self.doubt
        assert self.sum > 50


class Expiring(Story):
    """Messages with a time to live go away, and each leaves one marker, which goes, too."""

    stream = "EXPIRING"
    config = {
        "subjects": ["EXPIRING.>"],
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": 2 * 10**9,
        "allow_rollup_hdrs": True,
    }

    async def begin(self) -> None:
        await super().begin()
        self.markers: dict[str, set[int]] = {}
        inbox = self.client.new_inbox()
        await self.client.subscribe(inbox, cb=self._hear)
        await self.world.consumer(
            self.client, self.stream, "all", deliver_subject=inbox, ack_policy="none"
        )

    async def _hear(self, message: Any) -> None:
        if "Nats-Marker-Reason" in (message.headers or {}):
            sequence = message.metadata.sequence.stream
            self.markers.setdefault(message.subject, set()).add(sequence)

    async def one(self, number: int) -> None:
        js = self.client.jetstream()
        await self.world.put(js, f"EXPIRING.short.{number}", b"", Nats_TTL="2s")
        await self.world.put(js, f"EXPIRING.long.{number}", b"", Nats_TTL="1h")
        self.acked[number] = ""

    async def check(self) -> None:
        async def gone() -> bool:
            info = await ask(self.client, "STREAM.INFO.EXPIRING")
            return bool(info["state"]["messages"] == len(self.acked))

        await until(gone)
        found = Counter(
            one["subject"] for one in (await contents(self.client, "EXPIRING")).values()
        )
        assert found == Counter({f"EXPIRING.long.{number}": 1 for number in self.acked})
        assert {len(told) for told in self.markers.values()} == {1}
        assert len(self.markers) >= len(self.acked) * 0.9


class Scheduled(Story):
    """Every scheduled message comes, and those that come once come once."""

    stream = "SCHEDULED"
    config = {"subjects": ["SCHEDULED.>"], "allow_msg_schedules": True, "allow_msg_ttl": True}

    async def begin(self) -> None:
        await super().begin()
        await self.world.put(
            self.client.jetstream(),
            "SCHEDULED.every",
            b"tick",
            Nats_Schedule="@every 1s",
            Nats_Schedule_Target="SCHEDULED.ticks",
        )

    async def one(self, number: int) -> None:
        due = datetime.now(UTC) + timedelta(seconds=LATER_SECONDS + number % 3)
        await self.world.put(
            self.client.jetstream(),
            f"SCHEDULED.at.{number}",
            b"%d" % number,
            Nats_Schedule=due.strftime("@at %Y-%m-%dT%H:%M:%SZ"),
            Nats_Schedule_Target="SCHEDULED.due",
        )
        self.acked[number] = ""

    async def check(self) -> None:
        async def all_came() -> bool:
            info = await ask(self.client, "STREAM.INFO.SCHEDULED", subjects_filter="SCHEDULED.due")
            there = info["state"].get("subjects") or {}
            return bool(there.get("SCHEDULED.due", 0) >= len(self.acked))

        await until(all_came)
        found = (await contents(self.client, "SCHEDULED")).values()
        due = Counter(int(text(one)) for one in found if one["subject"] == "SCHEDULED.due")
        wanted = Counter(dict.fromkeys(self.acked, 1))
        assert due == wanted, f"too often: {due - wanted}, missing: {wanted - due}"
        assert not [one for one in found if ".at." in one["subject"]]
        assert sum(one["subject"] == "SCHEDULED.ticks" for one in found) >= 2


class Republished(Story):
    """Who listens hears of every message that was acknowledged, but those whose leader died with
    them, and of none twice."""

    stream = "TOLD"
    config = {
        "subjects": ["TOLD.*"],
        "subject_transform": {"src": "TOLD.*", "dest": "kept.{{wildcard(1)}}"},
        "republish": {"src": "kept.*", "dest": "again.{{wildcard(1)}}"},
    }

    async def begin(self) -> None:
        await super().begin()
        self.heard: Counter[int] = Counter()

        async def hear(message: Any) -> None:
            self.heard[int(message.headers["Nats-Sequence"])] += 1

        await self.client.subscribe("again.*", cb=hear)

    async def check(self) -> None:
        await super().check()
        assert set(self.heard.values()) == {1}
        assert len(self.heard) >= len(self.acked) * 0.8


class Values(Story):
    """A bucket has the last value of every key; a watcher has seen it."""

    stream = "KV_VALUES"

    async def begin(self) -> None:
        self.client = await self.world.client(self.first)
        js = self.client.jetstream()
        self.bucket = await js.create_key_value(bucket="VALUES", replicas=3, history=5)
        self.last: dict[str, str] = {}
        self.seen: dict[str, str] = {}
        self.revision = 0
        self.watcher = await self.bucket.watchall()

    async def one(self, number: int) -> None:
        key = f"k{number % 7}"
        await self.world.persist(lambda: self.bucket.put(key, b"%d" % number))
        self.last[key] = str(number)

    async def check(self) -> None:
        async def seen() -> bool:
            async for entry in self.watcher:
                if entry is None:
                    continue
                self.seen[entry.key] = entry.value.decode()
                if self.seen == self.last:
                    return True
            return False

        await until(seen)
        for key, value in self.last.items():
            entry = await self.world.persist(lambda key=key: self.bucket.get(key))
            assert entry.value == value.encode()


class Objects(Story):
    """An object that was put is read back as it was."""

    stream = "OBJ_THINGS"

    async def begin(self) -> None:
        self.client = await self.world.client(self.first)
        js = self.client.jetstream(timeout=2)
        self.store = await js.create_object_store("THINGS", config=ObjectStoreConfig(replicas=3))
        self.names: set[str] = set()

    async def one(self, number: int) -> None:
        name = f"o{number % 20}"
        await self.world.persist(lambda: self.store.put(name, self.data(name)))
        self.names.add(name)

    def data(self, name: str) -> bytes:
        """Three chunks."""
        return (name * 200_000)[:300_000].encode()

    async def check(self) -> None:
        for name in self.names:
            found = await self.world.persist(lambda name=name: self.store.get(name))
            assert found.data == self.data(name)
        assert len(self.names) > 5


class Direct(Story):
    """What was acked can be read directly, whoever leads, also while nobody does."""

    stream = "DIRECT"
    config = {"subjects": ["DIRECT.*"], "allow_direct": True}

    async def one(self, number: int) -> None:
        await super().one(number)
        sequence = max(self.acked)
        js = self.client.jetstream()

        async def read() -> Any:
            try:
                return await js.get_msg(self.stream, sequence, direct=True)
            except NotFoundError:
                # A follower may not know yet that it is committed.
                raise NatsError from None

        message = await self.world.persist(read)
        assert message.data.decode() == self.acked[sequence]


class Leafed(Story):
    """A stream sources one of a leaf node, which mirrors one of the cluster: both are complete."""

    stream = "FROM_EDGE"
    config = {"sources": [{"name": "EDGE", "external": {"api": "$JS.edge.API"}}]}

    async def begin(self) -> None:
        edge = self.world.edge
        assert edge is not None
        self.edge: Client = await nats.connect(f"nats://127.0.0.1:{edge.port}")
        self.world.clients.append(self.edge)
        origin = {"name": "HUB", "external": {"api": "$JS.hub.API"}}
        for fields in (
            {"name": "EDGE", "subjects": ["EDGE.*"]},
            {"name": "COPY", "mirror": origin},
        ):
            answer = await insist(self.edge, f"STREAM.CREATE.{fields['name']}", **fields)
            assert "error" not in answer, answer
        await super().begin()
        await self.world.stream(self.client, "HUB", subjects=["HUB.*"])
        self.kept: dict[int, str] = {}

    async def one(self, number: int) -> None:
        ack = await self.world.put(self.edge.jetstream(), "EDGE.a", b"%d" % number)
        self.acked[ack.seq] = str(number)
        ack = await self.world.put(self.client.jetstream(), "HUB.a", b"%d" % number)
        self.kept[ack.seq] = str(number)

    async def check(self) -> None:
        for client, stream, wanted in (
            (self.client, self.stream, self.acked),
            (self.edge, "COPY", self.kept),
        ):

            async def there(
                client: Client = client, stream: str = stream, count: int = len(wanted)
            ) -> bool:
                info = await ask(client, f"STREAM.INFO.{stream}")
                return bool(info["state"]["messages"] >= count)

            await until(there)
            found = await contents(client, stream)
            assert {seq: text(one) for seq, one in found.items()} == wanted


STORIES = (
    Leafed,
    Mirrored,
    Sourced,
    Sealed,
    Batched,
    Fast,
    Counted,
    Expiring,
    Scheduled,
    Republished,
    Values,
    Objects,
    Direct,
)
