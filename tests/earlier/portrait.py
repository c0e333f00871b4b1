"""What a client can read of all streams and consumers."""

import hashlib
import json
from typing import Any

from nats.aio.client import Client

from tests.earlier.story import ANSWER_S, ask


async def portrait(client: Client) -> dict[str, Any]:
    """By name of stream: configuration, state, a digest of all messages, and its consumers."""
    names = (await ask(client, "STREAM.NAMES", {}))["streams"]
    return {name: await _stream(client, name) for name in sorted(names)}


async def _stream(client: Client, name: str) -> dict[str, Any]:
    info = await ask(client, f"STREAM.INFO.{name}", {"deleted_details": True})
    state = info["state"]
    digest, count = hashlib.sha256(), 0
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        found = await _message(client, name, sequence)
        if found is not None:
            digest.update(json.dumps(found, sort_keys=True).encode())
            count += 1
    consumers = (await ask(client, f"CONSUMER.LIST.{name}", {}))["consumers"] or []
    return {
        "config": _without_metadata(info["config"]),
        "created": info["created"],
        "state": state,
        "messages": count,
        "digest": digest.hexdigest(),
        "consumers": {each["name"]: _consumer(each) for each in consumers},
    }


async def _message(client: Client, name: str, sequence: int) -> Any:
    """None where there is none."""
    body = json.dumps({"seq": sequence}).encode()
    answer = await client.request(f"$JS.API.STREAM.MSG.GET.{name}", body, timeout=ANSWER_S)
    return json.loads(answer.data).get("message")


def _consumer(info: dict[str, Any]) -> dict[str, Any]:
    counts = ("num_ack_pending", "num_redelivered", "num_pending")
    places = {
        place: {kind: info[place][kind] for kind in ("consumer_seq", "stream_seq")}
        for place in ("delivered", "ack_floor")
    }
    return {
        **places,
        **{count: info[count] for count in counts},
        "config": _without_metadata(info["config"]),
    }


def _without_metadata(config: dict[str, Any]) -> dict[str, Any]:
    """What the server adds to it names its own version."""
    return {key: value for key, value in config.items() if key != "metadata"}
