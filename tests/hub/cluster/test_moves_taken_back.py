"""Moves that are taken back while they are under way, for sure: the node that they wait for is a
process that was stopped by SIGSTOP."""

from functools import partial
from typing import Any

import pytest
from nats.aio.client import Client

from tests.hub.cluster.test_moves import Traffic, arrived, keepers, nodes_of
from tests.hub.lab import Lab, api
from tests.hub.spare import SPARE, Spare
from tests.slow import one_in
from tests.waiting import until


async def on_its_way(client: Client, fields: dict[str, Any]) -> bool:
    """Whether a move was accepted. Where this machine stands still the node that is stopped is
    offline by then, and nothing is placed on it."""
    moved = await api(client, "STREAM.UPDATE.R", **fields)
    if "error" in moved:
        assert moved["error"]["err_code"] == 10005, moved
        return False
    assert moved["cluster"]["desired"]["origin"]["replicas"] == fields["num_replicas"]
    return True


async def has_moved(client: Client, name: str) -> bool:
    """Whether a node is one of the stream's."""
    return name in nodes_of(await api(client, "STREAM.INFO.R"))


async def taken_back(
    lab: Lab, spare: Spare, client: Client, before: dict[str, Any], after: dict[str, Any], step: str
) -> bool:
    """Move a stream to nodes of which the spare one does nothing, and cancel that when `step` is
    one of the stream's nodes. False when the spare one was offline too soon."""
    await until(lambda: SPARE in lab.places(), "the spare node is there", 40)
    here = nodes_of(await api(client, "STREAM.INFO.R"))
    with spare.stopped():
        if not await on_its_way(client, after):
            return False
        await until(partial(has_moved, client, step), f"{step} has it", 40)
        assert SPARE not in nodes_of(await api(client, "STREAM.INFO.R"))
        answer = await api(client, "STREAM.CANCEL_MOVE.R")
        assert "error" not in answer
        assert answer["config"]["placement"] == before["placement"]
        await until(partial(arrived, client, here), "it is where it was", 40)
        await until(lambda: keepers(lab) == here, "nothing is left elsewhere", 40)
        again = await api(client, "STREAM.CANCEL_MOVE.R")
        assert again["error"]["err_code"] == 10129
    await until(lambda: not spare.groups("$G"), "the spare node has nothing either", 40)
    assert spare.groups("$SYS") == {"_meta_"}
    return True


@pytest.mark.parametrize(
    ("replicas", "before", "after", "step"),
    one_in(2, [(3, ["!az:3"], ["!az:0"], "n1"), (2, ["!az:2", "!az:3"], ["!az:0", "!az:1"], "n2")]),
    ids=["before_the_first_step", "behind_the_first_step"],
)
async def test_a_move_is_taken_back(
    lab: Lab, spare: Spare, replicas: int, before: list[str], after: list[str], step: str
) -> None:
    """While the stream is written and read."""
    client = await lab.connect(0)
    base: dict[str, Any] = {"name": "R", "subjects": ["r.>"], "num_replicas": replicas}
    old, new = ({**base, "placement": {"tags": tags}} for tags in (before, after))
    assert "error" not in await api(client, "STREAM.CREATE.R", **old)
    traffic = Traffic(client)
    await traffic.begin()
    with traffic.more():
        await until(partial(taken_back, lab, spare, client, old, new, step), "a move is held", 120)
    await traffic.end()
