"""Requests that a node's end overtakes."""

import asyncio
import gc
import warnings
from pathlib import Path

import pytest

import headwater.edge

REQUESTS = {
    b"$JS.API.STREAM.CREATE.T": b'{"name":"T","subjects":["t"]}',
    b"$JS.API.STREAM.UPDATE.S": b'{"name":"S","subjects":["s","u"]}',
    b"$JS.API.STREAM.PURGE.S": b"",
    b"$JS.API.CONSUMER.CREATE.S.C": b'{"stream_name":"S","config":{"name":"C"}}',
    b"$JS.API.STREAM.DELETE.S": b"",
}


@pytest.mark.parametrize("subject", REQUESTS, ids=lambda subject: subject.decode()[8:])
async def test_a_request_that_has_just_come_leaves_no_warning(
    tmp_path: Path, subject: bytes
) -> None:
    """The node ends before the request waits for what it did to be durable."""
    config = {"jetstream": {"store_dir": tmp_path / "store"}}
    gc.collect()  # What earlier tests of the process have left warns here.
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        async with headwater.edge.open_node(config, listen=False) as node:
            await node.stream("S", ["s"])
            router = node.node.jetstream.account_js("$G").router
            router.serve(subject, b"_INBOX.x", b"", REQUESTS[subject], object())
            assert router.waiting
            router.stop()
            await asyncio.wait(router.waiting)
        gc.collect()
    assert [str(each.message) for each in told] == []
