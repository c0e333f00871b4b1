"""What is shown of copies and consumers that were made just now, beside three nats-servers."""

import asyncio
import json
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led
from tests.hub.lab import api
from tests.waiting import connected, until

POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"ack_policy": "all"},
    {"deliver_policy": "new"},
    {"deliver_policy": "by_start_sequence", "opt_start_seq": 8},
    {"deliver_policy": "last_per_subject", "filter_subject": ">"},
    {"num_replicas": 1},
    {"durable_name": ""},
)


POSITIONS = ("consumer_seq", "stream_seq")


def progress(found: dict[str, Any]) -> list[Any]:
    """How far a consumer is."""
    assert "error" not in found, found
    ends = [found[end][of] for end in ("delivered", "ack_floor") for of in POSITIONS]
    return [*ends, found["num_ack_pending"]]


async def floors(user: Client, replicas: int) -> list[Any]:
    """Consumers of a stream whose first messages are gone: when they are made, before
    and behind their first ack."""
    name, found = f"S{replicas}", []
    config = {"name": name, "subjects": [f"{name}.*"], "num_replicas": replicas}
    await api(user, f"STREAM.CREATE.{name}", **config)
    for number in range(12):
        await user.request(f"{name}.{number % 3}", b"x", timeout=5)
    await api(user, f"STREAM.PURGE.{name}", seq=5)
    for number, more in enumerate(POLICIES):
        which = f"{name}.C{number}"
        config = {"name": f"C{number}", "durable_name": f"C{number}", "ack_policy": "explicit"}
        body = {"stream_name": name, "config": {**config, **more}}
        found.append(progress(await api(user, f"CONSUMER.CREATE.{which}", **body)))
        found.append(progress(await api(user, f"CONSUMER.INFO.{which}")))
        if more.get("deliver_policy") == "new":
            continue
        inbox = await user.subscribe(f"to.{which}")
        ask = json.dumps({"batch": 2, "expires": 5_000_000_000}).encode()
        await user.publish(f"$JS.API.CONSUMER.MSG.NEXT.{which}", ask, f"to.{which}")
        pulled = [await inbox.next_msg(5) for _ in range(2)]
        found.append(progress(await api(user, f"CONSUMER.INFO.{which}")))
        await user.request(pulled[0].reply, b"+ACK", timeout=5)
        found.append(progress(await api(user, f"CONSUMER.INFO.{which}")))
        await inbox.unsubscribe()
    return found


async def answers(nodes: Nodes) -> dict[str, Any]:
    """All of it, and the answers to creating copies of an empty stream."""
    user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
    try:
        await until(lambda: led(user), "there is a leader")
        found: dict[str, Any] = {str(n): await floors(user, n) for n in (1, 3)}
        await api(user, "STREAM.CREATE.O", name="O", num_replicas=3, first_seq=50)
        for number, copies in enumerate(({"mirror": {"name": "O"}}, {"sources": [{"name": "O"}]})):
            name = f"M{number}"
            made = await api(user, f"STREAM.CREATE.{name}", name=name, num_replicas=3, **copies)
            found[name] = [made.get("mirror"), made.get("sources")]
        return found
    finally:
        await user.close()


async def test_what_was_made_just_now_is_shown_alike(tmp_path: Path) -> None:
    theirs, ours = await at_both(tmp_path, lambda nodes: asyncio.wait_for(answers(nodes), 60))
    assert ours == theirs
    assert ours["3"][:3] == [[0, 4, 0, 0, 0], [0, 4, 0, 0, 0], [2, 6, 0, 0, 2]]
