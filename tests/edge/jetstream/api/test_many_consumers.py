"""Requests that come often do not list a stream's consumers, of which there may be thousands."""

import json
from pathlib import Path
from typing import Any

import pytest

import headwater.edge
from headwater.edge.embedded.embedded_node import EmbeddedNode
from headwater.edge.jetstream.account import account_js
from headwater.edge.jetstream.consumer import consumers


async def api(node: EmbeddedNode, subject: str, **body: Any) -> dict[str, Any]:
    """The answer to a request of the API, which is no refusal."""
    payload = json.dumps(body).encode() if body else b""
    answer = await node.client.request(f"$JS.API.{subject}", payload, timeout=10)
    found: dict[str, Any] = json.loads(answer.data)
    assert "error" not in found, found
    return found


async def make(node: EmbeddedNode, name: str) -> None:
    config = {"name": name, "mem_storage": True}
    await api(node, f"CONSUMER.CREATE.S.{name}", stream_name="S", config=config)


async def test_none_of_them_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def listed(stream: Any) -> list[Any]:
        raise AssertionError(f"the consumers of {stream.name} are listed")

    settings = {"jetstream": {"store_dir": tmp_path}}
    async with headwater.edge.open_node(settings, listen=False) as node:
        await api(node, "STREAM.CREATE.S", name="S", subjects=["s"])
        for module in (consumers, account_js):
            monkeypatch.setattr(module, "limitable", listed)
        names = [f"c{at}" for at in range(20)]
        for name in names:
            await make(node, name)
        assert (await api(node, "STREAM.INFO.S"))["state"]["consumer_count"] == 20
        assert (await api(node, "INFO"))["consumers"] == 20
        assert (await api(node, "CONSUMER.NAMES.S"))["consumers"] == sorted(names)
        await api(node, "CONSUMER.DELETE.S.c9")
        names.remove("c9")
        await make(node, "b")
        page = await api(node, "CONSUMER.LIST.S", offset=5)
        expected = sorted(["b", *names])
        assert page["total"] == 20
        assert [each["name"] for each in page["consumers"]] == expected[5:]
        assert (await api(node, "STREAM.INFO.S"))["state"]["consumer_count"] == 20


async def test_where_they_are_counted_the_limit_holds(tmp_path: Path) -> None:
    settings = {"jetstream": {"store_dir": tmp_path}}
    async with headwater.edge.open_node(settings, listen=False) as node:
        await api(node, "STREAM.CREATE.S", name="S", subjects=["s"], max_consumers=3)
        for name in "abc":
            await make(node, name)
        with pytest.raises(AssertionError, match="10026"):
            await make(node, "d")
        await api(node, "CONSUMER.DELETE.S.a")
        await make(node, "d")
