"""A stream that another one replaces: an empty one of the same configuration and consumers."""

from pathlib import Path
from typing import Any

import nats
import pytest

from headwater.edge.jetstream.account import stream_lifecycle
from tests.federation.lab import JETSTREAM, Lab, client_port


async def test_a_stream_that_could_not_be_replaced_lives_on_with_its_consumers(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device refuses the last step: nothing has changed, for consumers neither."""
    node = await lab.node(JETSTREAM.format(store=tmp_path / "store", domain="here"))
    client = await lab.client(client_port(node))
    context = client.jetstream()
    await context.add_stream(name="S", subjects=["s"])
    for number in range(3):
        await context.publish("s", b"%d" % number)
    pulled = await context.pull_subscribe("s", "C")
    [first] = await pulled.fetch(1)
    await first.ack_sync()

    def refuse(*_: Any) -> None:
        raise OSError("no room")

    js = node.account("$G").jetstream
    monkeypatch.setattr(node.jetstream.store(), "finish_stream", refuse)
    with pytest.raises(OSError, match="no room"):
        await stream_lifecycle.renew(js, js.streams["S"])
    info = await context.consumer_info("S", "C")
    assert info.ack_floor is not None and info.ack_floor.stream_seq == 1
    assert [each.data for each in await pulled.fetch(2)] == [b"1", b"2"]
    monkeypatch.undo()
    await stream_lifecycle.renew(js, js.streams["S"])
    assert (await context.stream_info("S")).state.messages == 0
    assert (await context.consumer_info("S", "C")).num_pending == 0
    with pytest.raises(nats.errors.TimeoutError):
        await pulled.fetch(1, timeout=0.2)
