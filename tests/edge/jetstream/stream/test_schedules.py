"""Schedules of a running node: what replaced ones leave, and many that are due at once."""

import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import headwater.edge
from headwater.edge.embedded.embedded_node import EmbeddedNode
from headwater.edge.jetstream.model.cron import Fields
from headwater.edge.jetstream.stream import schedules
from tests.waiting import until

FAR = "@at 2036-01-01T00:00:00Z"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def opened(node: EmbeddedNode) -> Any:
    """The schedules of a stream that takes them."""
    config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True}
    await node.client.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode(), timeout=10)
    return node.node.jetstream.accounts["$G"].streams["S"].schedules


async def plan(node: EmbeddedNode, subject: str, when: str, target: str) -> None:
    headers = {"Nats-Schedule": when, "Nats-Schedule-Target": target}
    await node.publish(subject, b"x", headers=headers)


async def test_replaced_ones_take_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "SLICE", 20)
    settings = {"jetstream": {"store_dir": tmp_path}}
    async with headwater.edge.open_node(settings, listen=False) as node:
        found = await opened(node)
        for _ in range(300):
            await plan(node, "s.a", FAR, "s.to")
        await plan(node, "s.b", FAR, "s.to")
        assert set(found.by_subject) == {b"s.a", b"s.b"}
        assert len(found.queue) <= 2 * 2 + 20 + 1


async def test_many_that_are_due_at_once_fire_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "FIRED", 7)
    fired: list[int] = []
    turn = schedules.Schedules.on_timer

    def counted(self: Any) -> None:
        before = len(self.by_subject)
        turn(self)
        fired.append(before - len(self.by_subject))

    monkeypatch.setattr(schedules.Schedules, "on_timer", counted)
    settings = {"jetstream": {"store_dir": tmp_path}}
    async with headwater.edge.open_node(settings, listen=False) as node:
        found = await opened(node)
        moment = datetime.now(UTC) + timedelta(seconds=1)
        when = moment.strftime("@at %Y-%m-%dT%H:%M:%S.%fZ")
        await asyncio.gather(*(plan(node, f"s.{at}", when, f"s.to.{at}") for at in range(40)))
        await until(lambda: not found.by_subject, "all have fired")
        assert max(fired) <= 7
        assert sum(fired) == 40
        for at in range(40):
            message = await node.jetstream.get_last_msg("S", f"s.to.{at}")
            assert message.data == b"x"


def matches(pattern: str, moment: datetime) -> bool:
    """Whether each field of a pattern of numbers and stars is what a moment has."""
    values = (moment.second, moment.minute, moment.hour, moment.day, moment.month)
    fields = pattern.split()[:5]
    return all(
        field == "*" or str(value) in field.split(",")
        for field, value in zip(fields, values, strict=True)
    )


@pytest.mark.parametrize("zone", [UTC, ZoneInfo("Europe/Berlin")], ids=["UTC", "Berlin"])
def test_the_next_match_of_a_pattern(zone: Any) -> None:
    """As a search second by second finds it, also around the ends of minutes and hours."""
    chance = random.Random(11)
    for _ in range(60):
        seconds = chance.choice(["*", "0", "59", "7,58"])
        minutes = chance.choice(["*", "0,59", "30", "58,59"])
        pattern = f"{seconds} {minutes} * * * *"
        start = datetime(2026, 7, chance.randrange(1, 28), 23, tzinfo=UTC)
        start += timedelta(seconds=chance.choice([0, 1700, 3500, 3538, 3597, 3598, 3599]))
        wanted = start + timedelta(seconds=1)
        while not matches(pattern, wanted.astimezone(zone)):
            wanted += timedelta(seconds=1)
        ns = int((start - EPOCH).total_seconds()) * 10**9
        due = int((wanted - EPOCH).total_seconds()) * 10**9
        assert Fields(pattern).after(ns, zone) == due, (pattern, start)
