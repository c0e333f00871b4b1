"""API answers about consumers, compared field by field with those of a real nats-server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, anchor
from tests.waiting import until

SECOND = 1_000_000_000
# Fields that are another server's own: names, times, versions.
OWN = {"ts", "created", "_nats.ver", "_nats.level", "last_active", "pause_remaining"}



class Real:
    """A nats-server, asked over one raw connection."""

    def __init__(self, directory: Path) -> None:
        self.server = Server(anchor(), directory)

    async def connect(self) -> None:
        """Start the server and log in."""
        self.server.start()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        self.writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB answer 1\r\nPING\r\n')
        while (await self.reader.readline()) != b"PONG\r\n":
            pass

    async def ask(self, what: str, body: Any = None) -> Any:
        """One API request; the answer as a dictionary."""
        payload = json.dumps(body).encode() if body is not None else b""
        self.writer.write(
            b"PUB $JS.API.%b answer %d\r\n%b\r\n" % (what.encode(), len(payload), payload)
        )
        while True:
            line = await asyncio.wait_for(self.reader.readline(), 5)
            if line.startswith(b"MSG "):
                data = await self.reader.readexactly(int(line.split()[-1]) + 2)
                return json.loads(data)
            if line.startswith(b"HMSG "):
                head, total = (int(n) for n in line.split()[-2:])
                data = await self.reader.readexactly(total + 2)
                return json.loads(data[head:])

    def send(self, subject: str, payload: str = "") -> None:
        """Publish."""
        self.writer.write(f"PUB {subject} {len(payload)}\r\n{payload}\r\n".encode())

    def close(self) -> None:
        """End connection and server."""
        self.writer.close()
        self.server.close()


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Real]:
    server = Real(tmp_path / "real")
    try:
        await server.connect()
        yield server
    finally:
        server.close()


def shared(value: Any) -> Any:
    """`value` without what is the server's own."""
    if isinstance(value, dict):
        return {k: shared(v) for k, v in value.items() if k not in OWN}
    if isinstance(value, list):
        return [shared(v) for v in value]
    return value


PULL = {"durable_name": "C", "ack_policy": "explicit"}
PUSH = {"durable_name": "C", "ack_policy": "explicit", "deliver_subject": "deliver"}

CONFIGS: list[dict[str, Any]] = [
    PULL,
    PUSH,
    {"durable_name": "C"},
    {"durable_name": "C", "name": "D"},
    {"durable_name": "C", "name": "C", "ack_policy": "all"},
    {**PULL, "ack_wait": -1},
    {**PULL, "ack_wait": SECOND, "max_deliver": 3},
    {**PULL, "max_deliver": -5},
    {**PULL, "backoff": [SECOND, 2 * SECOND]},
    {**PULL, "backoff": [SECOND, 2 * SECOND], "max_deliver": 1},
    {**PULL, "backoff": [-1]},
    {**PULL, "max_waiting": -1},
    {**PULL, "max_waiting": 5, "max_ack_pending": -7},
    {**PULL, "max_batch": 5, "max_expires": SECOND, "max_bytes": 100},
    {**PULL, "max_expires": 10},
    {**PULL, "filter_subject": "a.1"},
    {**PULL, "filter_subject": "not.there"},
    {**PULL, "filter_subject": "a..b"},
    {**PULL, "filter_subjects": ["a.1", "a.2"]},
    {**PULL, "filter_subjects": ["a.1", "a.*"]},
    {**PULL, "filter_subjects": ["a.1", "a.1"]},
    {**PULL, "filter_subjects": ["a.1", ""]},
    {**PULL, "filter_subjects": [""]},
    {**PULL, "filter_subject": "a.1", "filter_subjects": ["a.2"]},
    {**PULL, "deliver_policy": "last"},
    {**PULL, "deliver_policy": "last", "filter_subject": "a.2"},
    {**PULL, "deliver_policy": "last", "filter_subject": "a.none"},
    {**PULL, "deliver_policy": "last", "opt_start_seq": 2},
    {**PULL, "deliver_policy": "new"},
    {**PULL, "deliver_policy": "new", "opt_start_time": "2024-01-01T00:00:00Z"},
    {**PULL, "deliver_policy": "all", "opt_start_seq": 2},
    {**PULL, "deliver_policy": "by_start_sequence"},
    {**PULL, "deliver_policy": "by_start_sequence", "opt_start_seq": 3},
    {**PULL, "deliver_policy": "by_start_sequence", "opt_start_seq": 100},
    {**PULL, "deliver_policy": "by_start_time"},
    {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2020-01-01T00:00:00Z"},
    {**PULL, "deliver_policy": "by_start_time", "opt_start_time": "2120-01-01T00:00:00Z"},
    {**PULL, "deliver_policy": "by_start_time", "opt_start_seq": 1,
     "opt_start_time": "2020-01-01T00:00:00Z"},
    {**PULL, "deliver_policy": "last_per_subject"},
    {**PULL, "deliver_policy": "last_per_subject", "filter_subject": "a.>"},
    {**PULL, "deliver_policy": "last_per_subject", "filter_subjects": ["a.1", "a.3"]},
    {**PULL, "deliver_policy": "undefined"},
    {**PULL, "ack_policy": "undefined"},
    {**PULL, "replay_policy": "original"},
    {**PULL, "rate_limit_bps": 1000},
    {**PULL, "sample_freq": "50%"},
    {**PULL, "sample_freq": "100"},
    {**PULL, "sample_freq": "x"},
    {**PULL, "headers_only": True, "description": "text", "metadata": {"k": "v"}},
    {**PULL, "description": "x" * 4097},
    {**PULL, "inactive_threshold": SECOND},
    {**PULL, "inactive_threshold": -SECOND},
    {**PULL, "num_replicas": 3},
    {**PULL, "num_replicas": -1},
    {**PULL, "mem_storage": True, "num_replicas": 1},
    {**PULL, "idle_heartbeat": SECOND},
    {**PULL, "flow_control": True},
    {**PULL, "direct": True},
    {**PULL, "deliver_group": "g"},
    {**PULL, "unknown_field": 1},
    {**PULL, "pause_until": "2100-01-01T00:00:00Z"},
    {**PULL, "pause_until": "2000-01-01T00:00:00Z"},
    {**PULL, "priority_policy": "overflow"},
    {**PULL, "priority_policy": "overflow", "priority_groups": ["g"]},
    {**PULL, "priority_policy": "pinned_client", "priority_groups": ["g"]},
    {**PULL, "priority_policy": "prioritized", "priority_groups": ["g", "h"]},
    {**PULL, "priority_policy": "overflow", "priority_groups": [""]},
    {**PULL, "priority_policy": "overflow", "priority_groups": ["a b"]},
    {**PULL, "priority_groups": ["g"]},
    {**PULL, "priority_timeout": SECOND},
    {**PUSH, "priority_policy": "overflow", "priority_groups": ["g"]},
    {**PUSH, "deliver_subject": "x.*"},
    {**PUSH, "deliver_subject": "x..y"},
    {**PUSH, "deliver_subject": "a.1"},
    {**PUSH, "max_waiting": 3},
    {**PUSH, "ack_policy": "none", "max_ack_pending": 5},
    {**PUSH, "ack_policy": "none"},
    {**PUSH, "idle_heartbeat": 1000},
    {**PUSH, "idle_heartbeat": SECOND, "flow_control": True},
    {**PUSH, "flow_control": True},
    {**PUSH, "rate_limit_bps": 1000, "deliver_group": "g"},
    {**PUSH, "ack_policy": "flow_control"},
    {**PUSH, "ack_policy": "flow_control", "ack_wait": SECOND},
    {**PUSH, "ack_policy": "flow_control", "max_deliver": 2},
    {**PULL, "ack_policy": "flow_control"},
    {**PUSH, "durable_name": "C", "direct": True},
]


async def prepare(server: Any, **config: Any) -> None:
    """A stream with five messages on three subjects."""
    config = {"name": "S", "subjects": ["a.>"], "storage": "memory", **config}
    answer = await server.ask("STREAM.CREATE.S", config)
    assert "error" not in answer, answer
    for n in (1, 2, 3, 1, 2):
        server.send(f"a.{n}", "x")

    async def are_stored() -> bool:
        return "message" in await server.ask("STREAM.MSG.GET.S", {"seq": 5})

    await until(are_stored, "the messages are stored")


async def both(world: Any, real: Real, what: str, body: Any = None) -> tuple[Any, Any]:
    """The answers of both servers, comparable."""
    return shared(await world.ask(what, body)), shared(await real.ask(what, body))


async def test_create(world: Any, real: Real) -> None:
    await prepare(world)
    await prepare(real)
    different = []
    for config in CONFIGS:
        body = {"stream_name": "S", "config": config}
        ours, theirs = await both(world, real, "CONSUMER.CREATE.S.C", body)
        if ours != theirs:
            different.append((config, ours, theirs))
        await both(world, real, "CONSUMER.DELETE.S.C")
    assert not different, "\n".join(str(row) for row in different)


async def test_create_on_a_work_queue(world: Any, real: Real) -> None:
    await prepare(world, retention="workqueue")
    await prepare(real, retention="workqueue")
    configs = [
        {**PULL, "ack_policy": "none"},
        {**PULL, "ack_policy": "all"},
        {**PULL, "deliver_policy": "new"},
        {**PUSH, "ack_policy": "none"},
        {**PULL, "num_replicas": 1},
        {**PULL, "num_replicas": 2},
        PULL,
    ]
    for config in configs:
        body = {"stream_name": "S", "config": config}
        ours, theirs = await both(world, real, "CONSUMER.CREATE.S.C", body)
        assert ours == theirs
        await both(world, real, "CONSUMER.DELETE.S.C")


SUBJECTS: list[tuple[str, dict[str, Any]]] = [
    ("CONSUMER.CREATE.S", {"config": {"ack_policy": "explicit", "durable_name": "C"}}),
    ("CONSUMER.CREATE.S", {"config": {"name": "N"}}),
    ("CONSUMER.CREATE.S.C", {"config": {"durable_name": "D"}}),
    ("CONSUMER.CREATE.S.C.a.1", {"config": {"durable_name": "C", "filter_subject": "a.1"}}),
    ("CONSUMER.CREATE.S.C.a.2", {"config": {"durable_name": "C", "filter_subject": "a.1"}}),
    ("CONSUMER.CREATE.S.C.a.1", {"config": {"durable_name": "C", "filter_subjects": ["a.1"]}}),
    ("CONSUMER.CREATE.S.x/y", {"config": {}}),
    ("CONSUMER.DURABLE.CREATE.S.C", {"config": {}}),
    ("CONSUMER.DURABLE.CREATE.S.C", {"config": {"durable_name": "D"}}),
    ("CONSUMER.DURABLE.CREATE.S.C", {"config": {"durable_name": "C"}}),
    ("CONSUMER.CREATE.T.C", {"config": {"durable_name": "C"}}),
    ("CONSUMER.CREATE.T.C", {"stream_name": "T", "config": {"durable_name": "C"}}),
    ("CONSUMER.CREATE.S.C", {"action": "update", "config": {"durable_name": "C"}}),
    ("CONSUMER.CREATE.S.C", {"action": "other", "config": {"durable_name": "C"}}),
    ("CONSUMER.INFO.S.C", {}),
    ("CONSUMER.INFO.T.C", {}),
    ("CONSUMER.INFO.S.C", {"x": 1}),
    ("CONSUMER.DELETE.S.none", {}),
    ("CONSUMER.NAMES.S", {"offset": 1}),
    ("CONSUMER.NAMES.T", {}),
    ("CONSUMER.LIST.S", {"offset": -1}),
    ("CONSUMER.PAUSE.S.none", {}),
    ("CONSUMER.UNPIN.S.none", {"group": "g"}),
    ("CONSUMER.UNPIN.S.none", {}),
    ("CONSUMER.UNPIN.S.none", {"group": "a b"}),
]


async def test_subjects_and_names(world: Any, real: Real) -> None:
    await prepare(world)
    await prepare(real)
    different = []
    for what, body in SUBJECTS:
        if what.startswith(("CONSUMER.CREATE", "CONSUMER.DURABLE")):
            body = {"stream_name": "S", **body}
        ours, theirs = await both(world, real, what, body)
        if ours != theirs:
            different.append((what, body, ours, theirs))
        if "NAMES" not in what:
            await both(world, real, "CONSUMER.DELETE.S.C")
    assert not different, "\n".join(str(row) for row in different)


UPDATES: list[dict[str, Any]] = [
    {"description": "new"},
    {"ack_wait": 5 * SECOND},
    {"max_deliver": 7},
    {"max_ack_pending": 3},
    {"filter_subject": "a.2"},
    {"headers_only": True},
    {"sample_freq": "10"},
    {"metadata": {"k": "v"}},
    {"inactive_threshold": SECOND},
    {"deliver_policy": "new"},
    {"ack_policy": "all"},
    {"replay_policy": "original"},
    {"max_waiting": 7},
    {"mem_storage": True},
    {"opt_start_seq": 2},
    {"deliver_subject": "x"},
    {"backoff": [SECOND, SECOND], "max_deliver": 1},
    {"pause_until": "2100-01-01T00:00:00Z"},
    {},
]


async def test_update(world: Any, real: Real) -> None:
    await prepare(world)
    await prepare(real)
    different = []
    for change in UPDATES:
        for action in ("", "create", "update"):
            for config, name in ((PULL, "C"), ({**PULL, **change}, "C")):
                body = {"stream_name": "S", "config": config}
                if config is not PULL:
                    body["action"] = action
                ours, theirs = await both(world, real, f"CONSUMER.CREATE.S.{name}", body)
                if ours != theirs:
                    different.append((change, action, ours, theirs))
            await both(world, real, "CONSUMER.DELETE.S.C")
    assert not different, "\n".join(str(row) for row in different)
