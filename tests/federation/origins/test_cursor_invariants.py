"""Cursors that cannot be are planted, and not written."""

import json
from typing import Any

import pytest
from nats.js.api import StreamConfig, StreamSource

from headwater.edge.storage.format.errors import InvariantBroken
from headwater.federation.origins.origin_cursor import Cursor
from tests.federation.lab import Lab, client_port, until


def cursor(stream: Any) -> dict[str, Any]:
    """The cursor of a source, as the log has it."""
    log = stream.account.jetstream.node.storage.log
    states = log.states(stream.store.incarnation.encode())
    (value,) = [states[key][0] for key in states if key.startswith(b"upstream/")]
    found: dict[str, Any] = json.loads(value)
    return found


async def test_a_cursor_never_goes_back_behind_the_data(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    node = await lab.node(f'jetstream {{ store_dir: "{lab.directory}/data" }}')
    js = (await lab.client(client_port(node))).jetstream(timeout=10)
    await js.add_stream(name="ORIGIN", subjects=["data"])
    await js.add_stream(StreamConfig(name="COPY", sources=[StreamSource(name="ORIGIN")]))
    await js.add_stream(StreamConfig(name="MIRROR", mirror=StreamSource(name="ORIGIN")))
    await js.publish("data", b"1")
    streams = node.accounts["$G"].jetstream.streams
    copy = streams["COPY"]
    await until(lambda: copy.store.last_seq == 1 and cursor(copy)["seq"] == 1, "the first one")
    sink = copy.origin_driver.followers[0].sink
    sink.kept = 1 << 40
    await js.publish("data", b"2")
    await until(lambda: "is not written" in caplog.text, "the refusal")
    assert "the cursor of 'ORIGIN" in caplog.text and "with data up to 2" in caplog.text
    assert cursor(copy)["seq"] == 1 and copy.store.last_seq == 2
    sink.kept = 2
    await js.publish("data", b"3")
    await until(lambda: cursor(copy)["seq"] == 3, "the cursor goes on")
    mirror = streams["MIRROR"]
    manager = mirror.origin_driver.manager
    with pytest.raises(InvariantBroken, match="the cursor of mirror 'MIRROR' would be 99"):
        manager.keep_cursor(mirror, "ORIGIN", True, Cursor(seq=99))
