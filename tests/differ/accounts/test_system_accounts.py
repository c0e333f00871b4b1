"""What the system account is told of accounts that are there and that are not, on both servers."""

import json
from typing import Any

import nats
import pytest

from tests.differ.pair import JETSTREAM, Pair

CONF = JETSTREAM + """
accounts {
  A { jetstream: enabled, users: [{user: a, password: p}] }
  B { users: [{user: b, password: p}] }
  SYS { users: [{user: s, password: p}] }
}
system_account: SYS
"""
OWN = ("server", "now")
REQUESTS = [
    *((f"ACCOUNT.{account}.{what}", {}) for account in ("NONE", "PING", "B") for what in (
        "CONNZ", "JSZ", "LEAFZ")),
    *((f"ACCOUNT.{account}.{what}", {}) for account in ("NONE", "PING") for what in (
        "INFO", "SUBSZ")),
    ("SERVER.PING.CONNZ", {"acc": "NONE"}), ("SERVER.PING.CONNZ", {"acc": "B"}),
    ("SERVER.PING.CONNZ", {"sort": "none"}), ("SERVER.PING.CONNZ", {"sort": "stop"}),
    ("SERVER.PING.ACCOUNTZ", {"account": "NONE"}), ("SERVER.PING.SUBSZ", {"test": "a..b"}),
    ("SERVER.PING.SUBSZ", {"account": "NONE", "subscriptions": True}),
]  # fmt: skip


@pytest.fixture(scope="module")
def ports() -> Any:
    with Pair(CONF) as pair:
        yield pair.ports


async def answers(port: int) -> dict[str, Any]:
    """What is answered to each request, without moments and names of the server."""
    client = await nats.connect(f"nats://s:p@127.0.0.1:{port}")
    found = {}
    for subject, body in REQUESTS:
        message = await client.request(f"$SYS.REQ.{subject}", json.dumps(body).encode(), timeout=5)
        answer = json.loads(message.data)
        data = answer.get("data") or {}
        if data.get("server_id"):
            data["server_id"] = "S"
        found[f"{subject} {body}"] = {
            key: {k: v for k, v in value.items() if k not in OWN} if key == "data" and value
            else value
            for key, value in answer.items() if key not in OWN
        }  # fmt: skip
    await client.close()
    return found


async def test_accounts_that_are_there_and_that_are_not(ports: tuple[int, int]) -> None:
    ours, theirs = [await answers(port) for port in ports]
    assert ours == theirs
