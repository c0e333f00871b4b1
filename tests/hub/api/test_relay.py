"""Requests that come while another node begins to lead are answered, and done once."""

import asyncio
import json
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from headwater.hub.api.relay import RECENT_SECONDS, REMEMBERED_MAX, RecentRequests
from tests.hub.lab import Lab, api
from tests.waiting import until

STEPS = 25
"""Other leaders, of the metadata and of a stream."""


class Asking:
    """A client that asks for the same again and again, and keeps all answers to each request."""

    def __init__(self, client: Client, request: str, at_once: int = 4) -> None:
        self.client = client
        self.subject = f"$JS.API.{request}"
        self.answers: dict[str, list[bytes]] = {}
        self.ends = False
        self._inbox = client.new_inbox()
        self._answered = asyncio.Condition()
        self._loops = [asyncio.create_task(self._ask(n)) for n in range(at_once)]

    async def _ask(self, number: int) -> None:
        inbox = f"{self._inbox}.{number}"
        subscription = await self.client.subscribe(f"{inbox}.*", cb=self._take)
        count = 0
        while not self.ends:
            count += 1
            reply = f"{inbox}.{count}"
            self.answers[reply] = []
            await self.client.publish(self.subject, b"", reply=reply)
            async with self._answered:
                await self._answered.wait_for(lambda r=reply: self.answers[r])  # type: ignore[misc]
        await subscription.unsubscribe()

    async def _take(self, message: Msg) -> None:
        self.answers[message.subject].append(message.data)
        async with self._answered:
            self._answered.notify_all()

    async def stop(self) -> None:
        """Ask no more. Raises TimeoutError for a request without an answer."""
        self.ends = True
        await asyncio.wait_for(asyncio.gather(*self._loops), 30)


async def test_no_request_is_lost_between_two_leaders(lab: Lab) -> None:
    await lab.formed()
    clients = [await lab.connect(index) for index in range(3)]
    made = await api(clients[0], "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    assert made["did_create"]
    requests = ("STREAM.NAMES", "STREAM.INFO.S", "CONSUMER.NAMES.S", "STREAM.INFO.NONE")
    asking = [Asking(client, request) for client in clients for request in requests]
    for _ in range(STEPS):
        await _another_meta_leader(lab)
        await _another_leader(clients[0], lab)
    for each in asking:
        await each.stop()
    await asyncio.gather(*(client.flush() for client in clients))
    answered = [answer for each in asking for answer in each.answers.values()]
    assert len(answered) > 10 * STEPS
    assert all(answered)
    # A node that is too slow to say what it has done is not waited for.
    assert sum(len(found) > 1 for found in answered) * 50 < len(answered)


async def test_consumers_are_made_and_deleted_while_leaders_change(lab: Lab) -> None:
    """What a leader that hands over hears is done by the next one, and nobody is refused."""
    await lab.formed()
    clients = [await lab.connect(index) for index in range(3)]
    await api(clients[0], "STREAM.CREATE.S", name="S", subjects=["s"], num_replicas=3)
    refused: list[Any] = []
    rounds = [0, 0, 0]
    ends = asyncio.Event()

    async def come_and_go(index: int) -> None:
        while not ends.is_set():
            rounds[index] += 1
            name = f"c{index}-{rounds[index]}"
            config = {"name": name, "ack_policy": "none", "inactive_threshold": 60 * 10**9}
            body = {"stream_name": "S", "config": config}
            made = await api(clients[index], f"CONSUMER.CREATE.S.{name}", **body)
            gone = await api(clients[index], f"CONSUMER.DELETE.S.{name}")
            refused.extend(answer["error"] for answer in (made, gone) if "error" in answer)

    loops = [asyncio.create_task(come_and_go(index)) for index in range(3)]
    for _ in range(STEPS):
        await _another_leader(clients[0], lab)
        before = list(rounds)
        await until(lambda before=before: all(map(int.__gt__, rounds, before)))
    ends.set()
    await asyncio.gather(*loops)
    assert refused == []
    assert (await api(clients[0], "CONSUMER.NAMES.S"))["total"] == 0


async def _another_meta_leader(lab: Lab) -> None:
    before = await until(lambda: next((c for c in lab.clusters() if c.group.leads), None))
    before.group.step_down(0)
    await until(lambda: any(c.group.leads for c in lab.clusters() if c is not before))


async def _another_leader(client: Client, lab: Lab) -> None:
    def leads() -> Any:
        return next((c for c in lab.clusters() if c.here("$G", "S") is not None), None)

    before = await until(leads)
    answer = await client.request("$JS.API.STREAM.LEADER.STEPDOWN.S", b"", timeout=10)
    assert json.loads(answer.data).get("success"), answer.data
    await until(lambda: leads() not in (None, before))


def test_recent_requests_are_forgotten_by_time_and_number() -> None:
    recent = RecentRequests()
    recent.add(b"a", 1, 0.0)
    recent.add(b"a", 2, 1.0)
    assert recent.pop(b"a", lambda value: value == 2, 1.0) == 2
    assert recent.values(b"a", RECENT_SECONDS) == [1]
    assert recent.values(b"a", RECENT_SECONDS + 0.1) == []
    for number in range(REMEMBERED_MAX + 10):
        recent.add(b"%d" % number, True, 10.0)
    assert len(recent) == REMEMBERED_MAX
    assert recent.pop(b"9", lambda value: True, 10.0) is None
    assert recent.pop(b"10", lambda value: True, 10.0) is True
