"""What a whole node may hold of streams and consumers, whoever makes them."""

from pathlib import Path
from typing import Any

import pytest
from nats.js.api import ConsumerConfig
from nats.js.errors import APIError

import headwater.edge
from headwater.edge.conf.options import HeadwaterOptions
from headwater.edge.jetstream.account import holdings
from headwater.edge.jetstream.account.holdings import Holdings

BOUNDED: dict[str, Any] = {"max_streams": 3, "max_consumers": 5}


def test_a_gateway_has_bounds_unasked() -> None:
    """A gateway whose configuration says nothing holds 1000 streams and 5000 consumers."""
    edge, hub = Holdings(HeadwaterOptions(profile="edge")), Holdings(HeadwaterOptions())
    assert (edge.streams, edge.consumers) == (1000, 5000)
    assert (hub.streams, hub.consumers) == (0, 0)
    assert Holdings(HeadwaterOptions(profile="edge", max_streams=7)).streams == 7


@pytest.mark.parametrize("unasked", [False, True])
async def test_one_too_many_is_refused_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unasked: bool
) -> None:
    monkeypatch.setattr(holdings, "EDGE_STREAMS", 3)
    monkeypatch.setattr(holdings, "EDGE_CONSUMERS", 5)
    said = {"profile": "edge"} if unasked else BOUNDED
    config = {"jetstream": {"store_dir": tmp_path}, "headwater": said}
    async with headwater.edge.open_node(config, listen=False) as node:
        js = node.jetstream
        for n in range(3):
            await node.stream(f"S{n}", [f"s{n}"])
        with pytest.raises(APIError) as refusal:
            await js.add_stream(name="S3", subjects=["s3"])
        assert refusal.value.err_code == 10027
        for n in range(5):
            await js.add_consumer(f"S{n % 3}", ConsumerConfig(durable_name=f"C{n}"))
        with pytest.raises(APIError) as refusal:
            await js.add_consumer("S0", ConsumerConfig(durable_name="C5"))
        assert refusal.value.err_code == 10026
        await js.add_consumer("S0", ConsumerConfig(durable_name="C0"))
        await node.publish("s0", b"m")
        await js.delete_consumer("S1", "C1")
        await js.add_consumer("S0", ConsumerConfig(durable_name="C5"))
        await js.delete_stream("S2")
        await js.add_stream(name="S3", subjects=["s3"])
    async with headwater.edge.open_node(config, listen=False) as node:
        assert (await node.jetstream.stream_info("S0")).state.messages == 1


@pytest.mark.parametrize(("profile", "bounded"), [("edge", True), ("", False)])
async def test_memory_streams_of_a_gateway_have_little_room_unasked(
    tmp_path: Path, profile: str, bounded: bool
) -> None:
    more = {"headwater": {"profile": profile}} if profile else {}
    config = {"jetstream": {"store_dir": tmp_path}, **more}
    async with headwater.edge.open_node(config, listen=False) as node:
        made = node.jetstream.add_stream(
            name="M", subjects=["m"], storage="memory", max_bytes=33 << 20
        )
        if not bounded:
            await made
            return
        with pytest.raises(APIError) as refusal:
            await made
        assert refusal.value.err_code == 10028


async def test_long_configurations_of_a_gateway_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of streams and consumers, made or changed; short ones are of no concern."""
    monkeypatch.setattr(holdings, "EDGE_CONFIG_BYTES", 250_000)
    long = {f"k{n}": "v" * 1000 for n in range(100)}
    config = {"jetstream": {"store_dir": tmp_path}, "headwater": {"profile": "edge"}}
    async with headwater.edge.open_node(config, listen=False) as node:
        js = node.jetstream
        await js.add_stream(name="A", subjects=["a"], metadata=long)
        await js.add_consumer("A", ConsumerConfig(durable_name="C", metadata=long))
        for refused in (
            js.add_stream(name="B", subjects=["b"], metadata=long),
            js.add_consumer("A", ConsumerConfig(durable_name="D", metadata=long)),
        ):
            with pytest.raises(APIError) as refusal:
                await refused
            assert refusal.value.err_code == 10023
        await js.add_stream(name="B", subjects=["b"])
        with pytest.raises(APIError) as refusal:
            await js.update_stream(name="B", subjects=["b"], metadata=long)
        assert refusal.value.err_code == 10023
        await js.update_stream(name="A", subjects=["a", "a2"], metadata=long)
        await js.delete_consumer("A", "C")
        await js.update_stream(name="B", subjects=["b"], metadata=long)
