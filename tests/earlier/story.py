"""What a program is told before its store is kept: something of each kind that a store can hold.

Nothing in it depends on the day on which it is read: times to live and waits take a hundred years.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ObjectStoreConfig

CENTURY = "876000h"
CENTURY_NS = 876000 * 3600 * 10**9
AT_ONCE = 50
ANSWER_S = 20.0

STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {"subjects": ["plain.>"]},
    "PACKED": {"subjects": ["packed.>"], "compression": "s2"},
    "LAST": {"subjects": ["last.>"], "max_msgs_per_subject": 3},
    "QUEUE": {"subjects": ["queue.>"], "retention": "workqueue"},
    "INTEREST": {"subjects": ["interest.>"], "retention": "interest"},
    "TWICE": {"subjects": ["twice.>"], "duplicate_window": CENTURY_NS},
    "LIVES": {"subjects": ["lives.>"], "allow_msg_ttl": True},
    "COUNTER": {"subjects": ["counter.>"], "allow_msg_counter": True},
    "FULL": {"subjects": ["full.>"], "max_bytes": 10_000},
    "BATCHES": {"subjects": ["batches.>"], "allow_atomic": True},
    "LATER": {"subjects": ["later.>"], "allow_msg_schedules": True},
    "RENAMED": {
        "subjects": ["renamed.>"],
        "subject_transform": {"src": "renamed.*", "dest": "renamed.new.{{wildcard(1)}}"},
    },
    "MIRROR": {"mirror": {"name": "PLAIN"}},
    "SOURCES": {"sources": [{"name": "PLAIN", "filter_subject": "plain.3"}, {"name": "PACKED"}]},
}
CONSUMERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("PLAIN", "all", {}),
    ("PLAIN", "some", {"filter_subjects": ["plain.1", "plain.5"]}),
    ("PLAIN", "pushed", {"deliver_subject": "pushed"}),
    ("PLAIN", "paused", {"pause_until": "2099-01-01T00:00:00Z"}),
    ("QUEUE", "workers", {}),
    ("INTEREST", "first", {"filter_subject": "interest.0"}),
    ("INTEREST", "second", {"filter_subject": "interest.1"}),
)


async def ask(client: Client, subject: str, body: Any = None) -> dict[str, Any]:
    """The answer of JetStream's API."""
    payload = b"" if body is None else json.dumps(body).encode()
    answer = await client.request(f"$JS.API.{subject}", payload, timeout=ANSWER_S)
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, (subject, found["error"])
    return found


async def _publish(
    js: JetStreamContext, count: int, message: Callable[[int], tuple[str, bytes, Any]]
) -> None:
    async def one(number: int) -> None:
        subject, payload, headers = message(number)
        await js.publish(subject, payload, headers=headers, timeout=ANSWER_S)

    for begin in range(0, count, AT_ONCE):
        await asyncio.gather(*(one(each) for each in range(begin, min(count, begin + AT_ONCE))))


async def _messages(client: Client, js: JetStreamContext) -> None:
    await _publish(
        js, 400, lambda n: (f"plain.{n % 7}", b"%d" % n * 20, {"N": str(n)} if n % 3 else None)
    )
    await _publish(js, 300, lambda n: (f"packed.{n % 5}", b'{"device": %d, "value": 17}' % n, None))
    await _publish(js, 200, lambda n: (f"last.{n % 20}", b"%d" % n, None))
    await _publish(js, 150, lambda n: (f"queue.{n % 9}", b"%d" % n, None))
    await _publish(js, 150, lambda n: (f"interest.{n % 3}", b"%d" % n, None))
    await _publish(js, 50, lambda n: ("twice.a", b"%d" % n, {"Nats-Msg-Id": f"id-{n}"}))
    await _publish(js, 30, lambda n: (f"lives.{n % 3}", b"%d" % n, {"Nats-TTL": CENTURY}))
    await _publish(js, 60, lambda n: (f"counter.{n % 3}", b"", {"Nats-Incr": f"+{n}"}))
    await _publish(js, 200, lambda n: (f"full.{n % 3}", b"%d" % n * 50, None))
    await _publish(js, 20, lambda n: (f"renamed.{n}", b"%d" % n, None))
    at = {"Nats-Schedule": "@at 2099-01-01T00:00:00Z", "Nats-Schedule-Target": "later.b"}
    await _publish(js, 1, lambda n: ("later.a", b"in time", at))
    for batch in range(3):
        for number in range(1, 6):
            headers = {"Nats-Batch-Id": f"b{batch}", "Nats-Batch-Sequence": str(number)}
            if number < 5:
                await client.publish("batches.x", b"%d" % number, headers=headers)
        headers["Nats-Batch-Commit"] = "1"
        await client.request("batches.x", b"5", headers=headers, timeout=ANSWER_S)


async def _buckets(js: JetStreamContext, replicas: int) -> None:
    values = await js.create_key_value(bucket="values", history=5, replicas=replicas)
    for number in range(100):
        await values.put(f"k{number % 10}", b"%d" % number)
    await values.delete("k3")
    await values.purge("k4")
    objects = await js.create_object_store("objects", ObjectStoreConfig(replicas=replicas))
    await objects.put("large", b"0123456789abcdef" * 8_500)
    await objects.put("small", b"abc")


async def _removals(js: JetStreamContext) -> None:
    for sequence in (*range(10, 30), *range(100, 300, 7)):
        await js.delete_msg("PLAIN", sequence)
    await js.purge_stream("PACKED", subject="packed.2")
    await js.purge_stream("PACKED", seq=50)


async def _fetch(
    js: JetStreamContext, stream: str, consumer: str, count: int, acked: Callable[[int], bool]
) -> None:
    subscription = await js.pull_subscribe_bind(consumer, stream)
    got: list[Any] = []
    while len(got) < count:
        got += await subscription.fetch(min(50, count - len(got)), timeout=ANSWER_S)
    for number, each in enumerate(got):
        if acked(number):
            await each.ack_sync(timeout=ANSWER_S)


async def tell(client: Client, replicas: int) -> None:
    """Make streams with so many replicas, fill them, and let consumers get on."""
    js = client.jetstream(timeout=ANSWER_S)
    for name, fields in STREAMS.items():
        config = {"name": name, "storage": "file", "num_replicas": replicas, **fields}
        await ask(client, f"STREAM.CREATE.{name}", config)
    for stream, name, fields in CONSUMERS:
        config = {
            "durable_name": name, "ack_policy": "explicit", "ack_wait": CENTURY_NS, **fields,
        }  # fmt: skip
        body = {"stream_name": stream, "config": config}
        await ask(client, f"CONSUMER.DURABLE.CREATE.{stream}.{name}", body)
    await _messages(client, js)
    await _buckets(js, replicas)
    await _removals(js)
    await _fetch(js, "PLAIN", "all", 150, lambda number: number < 30 or number % 5 > 0)
    await _fetch(js, "PLAIN", "some", 60, lambda number: number % 3 > 0)
    await _fetch(js, "QUEUE", "workers", 60, lambda number: number % 4 > 0)
    await _fetch(js, "INTEREST", "first", 30, lambda number: number < 20)
