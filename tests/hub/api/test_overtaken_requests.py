"""Requests that the end of a cluster's node overtakes."""

import asyncio
import gc
import warnings

import pytest

from headwater.hub.api import relay
from tests.hub.lab import Lab, api

REQUESTS = {
    b"$JS.API.STREAM.INFO.S": b"",
    b"$JS.API.STREAM.PURGE.S": b"",
    b"$JS.API.CONSUMER.CREATE.S.C": b'{"stream_name":"S","config":{"name":"C"}}',
    b"$JS.API.CONSUMER.INFO.S.D": b"",
    b"$JS.API.CONSUMER.DELETE.S.D": b"",
}


async def test_requests_that_have_just_come_leave_no_warning(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream's leader ends before it does the first step of what it was asked for."""
    # One that leads since a moment ago would ask others before it begins.
    monkeypatch.setattr(relay, "RECENT_SECONDS", 0.0)
    await lab.formed()
    client = await lab.connect(0)
    assert "error" not in await api(client, "STREAM.CREATE.S", name="S", num_replicas=3)
    config = {"durable_name": "D", "ack_policy": "explicit"}
    made = await api(client, "CONSUMER.CREATE.S.D", stream_name="S", config=config)
    assert "error" not in made
    leader = (await api(client, "STREAM.INFO.S"))["cluster"]["leader"]
    node = lab.nodes[int(leader[1:])]
    assert node is not None
    router = node.jetstream.account_js("$G").router
    gc.collect()  # What earlier tests of the process have left warns here.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for subject, payload in REQUESTS.items():
            router.serve(subject, b"_INBOX.x", b"", payload, object())
        assert router.waiting
        waiting = set(router.waiting)
        router.stop()
        await asyncio.wait(waiting)
        gc.collect()
    unawaited = [str(each.message) for each in told if "never awaited" in str(each.message)]
    assert unawaited == []
