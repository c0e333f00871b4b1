"""A group that breaks on a node ends there, and holds up no other group of the node."""

import contextlib
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError, ServiceUnavailableError

from headwater.hub.meta.assignment import META_GROUP
from headwater.hub.streams.stream_group import StreamGroup
from tests.hub.cluster.test_replicas import current
from tests.hub.lab import Lab, api
from tests.waiting import until


def group_of(lab: Lab, index: int, name: str) -> StreamGroup:
    """The group of a stream of the default account, on a node."""
    groups = lab.cluster(index).groups
    assert groups is not None
    return next(group for group in groups.groups.values() if group.wanted.name == name)


def health(lab: Lab, index: int) -> str:
    """What a node says that is wrong with it."""
    view: Any = lab.cluster(index).jetstream.cluster_view
    return "; ".join(view.health())


async def publish(js: JetStreamContext, subject: str, number: int) -> None:
    """Publish until it is acked: a leader that ends in the middle does not know, or is gone."""

    async def acked() -> bool:
        with contextlib.suppress(TimeoutError, NoStreamResponseError, ServiceUnavailableError):
            headers = {"Nats-Msg-Id": str(number)}
            await js.publish(subject, b"x", headers=headers, timeout=2)
            return True
        return False

    await until(acked, f"{subject} takes a message")


def poison(*_: Any) -> None:
    raise RuntimeError("a poisoned entry")


@pytest.mark.parametrize("where", ["leader", "follower"])
@pytest.mark.parametrize("part", ["apply", "raft"])
async def test_a_poisoned_stream_holds_up_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, where: str, part: str
) -> None:
    await lab.formed()
    client = await lab.connect(0)
    for name in "AB":
        await api(client, f"STREAM.CREATE.{name}", name=name, subjects=[name], num_replicas=3)
        await until(lambda name=name: current(lab, name, 3))  # type: ignore[misc]
    leader = next(index for index in range(3) if group_of(lab, index, "A").stream)
    index = leader if where == "leader" else (leader + 1) % 3
    client = await lab.connect((index + 1) % 3)
    broken = group_of(lab, index, "A")
    assert broken.raft is not None
    target: Any = broken.machine if part == "apply" else broken.raft
    with monkeypatch.context() as patch:
        patch.setattr(target, "apply" if part == "apply" else "step", poison)
        js = client.jetstream()
        for number in range(5):
            await publish(js, "A", number)
            await publish(js, "B", number)
        await until(lambda: "stream '$G > A' stopped on this node" in health(lab, index))
    applied = group_of(lab, index, "B").replica
    await until(lambda: applied.store is not None and applied.store.messages == 5)
    assert not broken.machine.lives
    await lab.stop_node(index)
    lab.start(index)
    await lab.settled(3)
    await until(lambda: current(lab, "A", 3))
    again = group_of(lab, index, "A").replica
    await until(lambda: again.store is not None and again.store.messages == 5)
    assert "stopped" not in health(lab, index)


async def test_broken_metadata_is_told_and_streams_go_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.formed()
    client = await lab.connect(0)
    await api(client, "STREAM.CREATE.A", name="A", subjects=["A"], num_replicas=3)
    await until(lambda: current(lab, "A", 3))
    leader = lab.leader()
    assert leader is not None
    group = lab.cluster(leader).group
    monkeypatch.setattr(group, "ready", poison)
    client = await lab.connect((leader + 1) % 3)
    await api(client, "STREAM.CREATE.B", name="B", subjects=["B"])
    await until(lambda: "the cluster's metadata stopped" in health(lab, leader))
    assert META_GROUP in group.driver.broken
    await publish(client.jetstream(), "A", 1)
    applied = group_of(lab, leader, "A").replica
    await until(lambda: applied.store is not None and applied.store.messages == 1)
