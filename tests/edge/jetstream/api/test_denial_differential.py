"""Accounts without JetStream, the system account, and one that has it and imports it, too."""

import json
from collections.abc import Iterator

import nats
import pytest
from nats.aio.client import Client
from nats.errors import TimeoutError as NatsTimeout

from bench.servers import Recipe, Server, program

CONFIG = """
jetstream { store_dir: store, domain: dom }
accounts {
  B { jetstream: enabled, users: [{user: b, password: b}]
      exports: [{service: "$JS.API.>", response_type: stream}] }
  A { jetstream: enabled, users: [{user: a, password: a}]
      imports: [{service: {account: B, subject: "$JS.API.>"}}] }
  N { users: [{user: n, password: n}] }
  $SYS { users: [{user: s, password: s}] }
}
"""
NONE = {"code": 503, "err_code": 10039, "description": "JetStream not enabled for account"}
PAGE = {"total": 0, "offset": 0, "limit": 0}
NO_RESPONDERS = "no responders"


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    command = (program(request.param),) + (("serve",) if request.param == "headwater" else ())
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield server.port


async def connect(port: int, user: str) -> Client:
    return await nats.connect(
        f"nats://{user}:{user}@127.0.0.1:{port}", allow_reconnect=False, connect_timeout=3
    )


async def ask(client: Client, name: str, answers: int = 1, prefix: str = "$JS.API.") -> list:
    """So many answers to a request, as (type, error and the other fields)."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(prefix + name, b"", reply=inbox)
    found: list = []
    for _ in range(answers):
        message = await subscription.next_msg(timeout=3)
        if (message.headers or {}).get("Status") == "503":
            found.append(NO_RESPONDERS)
            continue
        fields = json.loads(message.data)
        kind = fields.pop("type").removeprefix("io.nats.jetstream.api.v1.")
        found.append((kind.removesuffix("_response"), fields))
    with pytest.raises(NatsTimeout):
        await subscription.next_msg(timeout=0.05)
    await subscription.unsubscribe()
    return found


async def test_an_account_without_jetstream_is_told_so(port: int) -> None:
    client = await connect(port, "n")
    assert await ask(client, "INFO") == [("account_info", {"error": NONE})]
    assert await ask(client, "INFO", prefix="$JS.dom.API.") == [("account_info", {"error": NONE})]
    assert await ask(client, "STREAM.INFO.S") == [("stream_info", {"error": NONE, **PAGE})]
    listed = {"error": NONE, **PAGE, "streams": None}
    assert await ask(client, "STREAM.NAMES") == [("stream_names", listed)]
    assert await ask(client, "STREAM.DELETE.S") == [
        ("stream_delete", {"error": NONE})
    ]
    for name in ("CONSUMER.MSG.NEXT.S.c", "DIRECT.GET.S"):
        assert await ask(client, name) == [NO_RESPONDERS]
    await client.close()


async def test_so_is_the_system_account(port: int) -> None:
    client = await connect(port, "s")
    assert await ask(client, "INFO") == [("account_info", {"error": NONE})]
    for name in ("STREAM.NAMES", "STREAM.INFO.S", "NO.SUCH", "CONSUMER.MSG.NEXT.S.c",
                 "META.LEADER", "META.LEADER.STEPDOWN.x", "META", "SERVER.NONE", "SERVER",
                 "SERVER.REMOVE.x", "ACCOUNT", "ACCOUNTS.x"):  # fmt: skip
        assert await ask(client, name) == [("system", {"error": NONE})], name
    for name in ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE",
                 "ACCOUNT.NONE", "ACCOUNT.PURGE.A.B"):  # fmt: skip
        assert await ask(client, name, answers=0) == [], name
    await client.close()


async def test_one_that_has_it_and_imports_it_gets_two_answers(port: int) -> None:
    client = await connect(port, "a")
    answers = await ask(client, "STREAM.NAMES", answers=2)
    assert [kind for kind, _ in answers] == ["stream_names", "stream_names"]
    await client.close()


async def test_requests_that_nobody_knows_are_left_alone(port: int) -> None:
    """What answers them may be another account's service, or a stream."""
    client = await connect(port, "b")
    for name in ("BOGUS", "STREAM.INFO", "STREAM.INFO.a.b", "CONSUMER.INFO.a", "STREAM.NONE.a"):
        assert await ask(client, name, answers=0) == []
    await client.close()


async def test_an_account_is_purged_by_the_system_account(port: int) -> None:
    owner, system = await connect(port, "b"), await connect(port, "s")
    js = owner.jetstream()
    for name in ("one", "two"):
        await js.add_stream(name=name)
    purged = [("account_purge", {"initiated": True})]
    assert await ask(system, "ACCOUNT.PURGE.NOBODY") == purged
    assert len(await js.streams_info()) == 2
    assert await ask(owner, "ACCOUNT.PURGE.B", answers=0) == []
    assert len(await js.streams_info()) == 2
    assert await ask(system, "ACCOUNT.PURGE.B") == purged
    assert await js.streams_info() == []
    await owner.close()
    await system.close()
