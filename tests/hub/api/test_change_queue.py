"""Changes of streams take turns among accounts, on a cluster as in a queue alone."""

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from headwater.edge.jetstream.api.routed_requests import RoutedRequests
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.requests import Context
from headwater.hub.api import change_queue
from headwater.hub.api.change_queue import OF_ACCOUNT_MAX, UNDER_WAY_MAX, ChangeQueue
from tests.hub.api.beside import ours
from tests.waiting import until

MANY = 200
CONTEXT = Context(subject=b"s", reply=b"r", headers=b"", payload=b"", strict=False)


class Account:
    """What the queue sees of an account: its name, and its router."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.router = self
        self.refused = 0

    def count_overload(self) -> None:
        self.refused += 1


class Changes:
    """Changes that last until they are let go."""

    def __init__(self, limit: int = 0) -> None:
        self.queue = ChangeQueue(asyncio.get_running_loop(), limit)
        self.under_way: list[str] = []
        self.gates: list[asyncio.Event] = []
        self.tasks: list[asyncio.Future[Any]] = []
        self.serve = self.queue.bounded(self._change)

    async def _change(
        self, account: Account, tokens: list[str], payload: bytes, ctx: Context
    ) -> None:
        gate = asyncio.Event()
        self.gates.append(gate)
        self.under_way.append(account.name)
        await gate.wait()

    async def ask(self, account: Account, times: int = 1, payload: bytes = b"") -> None:
        for _ in range(times):
            self.tasks.append(asyncio.ensure_future(self.serve(account, [], payload, CONTEXT)))
        await turns()

    async def end(self) -> None:
        """Let all go that have begun, and what begins then."""
        while self.gates:
            self.gates.pop(0).set()
            await turns()
        await asyncio.gather(*self.tasks)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_an_account_has_a_part_of_all_places() -> None:
    changes = Changes()
    await changes.ask(Account("A"), MANY)
    assert changes.under_way == ["A"] * OF_ACCOUNT_MAX
    await changes.ask(Account("B"))
    assert changes.under_way[-1] == "B"
    await changes.end()
    assert changes.under_way.count("A") == MANY


async def test_accounts_have_turns() -> None:
    changes = Changes()
    accounts = [Account(name) for name in "ABCD"]
    for account in accounts:
        await changes.ask(account, MANY)
    assert len(changes.under_way) == UNDER_WAY_MAX
    for _ in range(UNDER_WAY_MAX):
        changes.gates.pop(0).set()
        await turns()
    begun = changes.under_way[UNDER_WAY_MAX:]
    assert min(begun.count(account.name) for account in accounts) >= 3, begun
    await changes.end()


async def test_what_finds_no_place_to_wait_is_refused() -> None:
    changes = Changes(limit=2)
    account = Account("A")
    await changes.ask(account, OF_ACCOUNT_MAX + 2)
    with pytest.raises(JetStreamError, match="JetStream system temporarily unavailable"):
        changes.serve(account, [], b"", CONTEXT)
    assert account.refused == 1
    await changes.end()
    await changes.ask(account)
    await changes.end()


async def test_requests_that_wait_are_bounded_by_their_bytes() -> None:
    changes = Changes()
    account = Account("A")
    await changes.ask(account, OF_ACCOUNT_MAX)
    half = bytes(change_queue.LINE_BYTES_MAX // 2 - change_queue.ROW_BYTES)
    await changes.ask(account, 2, half)
    with pytest.raises(JetStreamError):
        changes.serve(account, [], b"more", CONTEXT)
    await changes.end()
    await changes.ask(account, OF_ACCOUNT_MAX + 1, half)
    await changes.end()


async def test_one_that_is_given_up_leaves_its_place() -> None:
    changes = Changes()
    account = Account("A")
    await changes.ask(account, OF_ACCOUNT_MAX + 3)
    waiting, begun = changes.tasks.pop(), changes.tasks.pop(0)
    waiting.cancel()
    begun.cancel()
    await turns()
    assert len(changes.under_way) == OF_ACCOUNT_MAX + 1
    await changes.end()
    assert len(changes.under_way) == OF_ACCOUNT_MAX + 2


async def test_what_lasts_long_does_not_hold_up_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_queue, "PLACE_SECONDS", 0.0)
    changes = Changes()
    await changes.ask(Account("A"), MANY)
    await until(lambda: len(changes.under_way) == MANY)
    await changes.end()


async def test_requests_of_routes_are_done_some_in_a_turn() -> None:
    done: list[int] = []
    busy = False
    requests = RoutedRequests(
        asyncio.get_running_loop(), lambda request: done.append(request[4]), lambda: busy
    )

    def serve(number: int) -> bool:
        return requests.serve((b"s", b"%d" % number, b"", b"12", number, None), 4, 10, 19)

    assert [serve(number) for number in range(15)].count(False) == 2
    assert done == [0, 1, 2, 3] and requests.has(b"s", b"12") and not requests.has(b"s", b"13")
    await asyncio.sleep(0)
    assert done == list(range(8))
    busy = True
    await turns()
    assert done == list(range(8))
    busy = False
    await until(lambda: not requests.has(b"s", b"12"))
    assert done == list(range(13)) and serve(13) and done[-1] == 13
    # As much has room as before.
    await turns()
    del done[:]
    assert [serve(number) for number in range(15)].count(False) == 2
    await until(lambda: done == list(range(13)))


async def ask_for_streams(client: Client, count: int) -> list[Any]:
    """Ask for many at once; the list in which their answers are, as they come."""
    answers: list[Any] = []

    async def heard(msg: Any) -> None:
        answers.append(json.loads(msg.data))

    inbox = client.new_inbox()
    await client.subscribe(inbox, cb=heard)
    for number in range(count):
        await create(client, f"X{number}", inbox)
    await client.flush()
    return answers


async def create(client: Client, name: str, reply: str) -> None:
    body = {"name": name, "subjects": [name], "num_replicas": 3, "storage": "memory"}
    await client.publish(f"$JS.API.STREAM.CREATE.{name}", json.dumps(body).encode(), reply=reply)


async def test_who_asks_for_many_streams_holds_up_nobody(tmp_path: Path) -> None:
    async with ours(tmp_path / "nodes") as port:
        url = f"nats://127.0.0.1:{port}"
        many, other = [await nats.connect(url, user=name, password=name) for name in "ab"]
        answers = await ask_for_streams(many, MANY)
        inbox = other.new_inbox()
        mine = await other.subscribe(inbox)
        await create(other, "MINE", inbox)
        made = json.loads((await mine.next_msg(timeout=30)).data)
        there = len(answers)
        await until(lambda: len(answers) >= MANY)
        await many.close()
        await other.close()
    assert "error" not in made and not [each for each in answers if "error" in each]
    assert there < MANY // 2, there
