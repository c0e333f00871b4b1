"""Origins that come back with what was taken before. Two nodes of one domain and stream name take
turns as a source's origin: two gateways that were made from one image, or a site and the one that
stands in for it. Or the origin is a mirror, whose node lost everything.
"""

import json
from typing import Any

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from tests.federation.lab import JETSTREAM, Lab, RealServer, client_port, free_port, leaf_port
from tests.slow import one_in
from tests.waiting import until

ORIGIN = ExternalStream(api="$JS.edge.API", deliver="")


async def publish(lab: Lab, edge: RealServer, texts: list[str]) -> None:
    """Publish to the edge's stream, which is made when it is not there."""
    js = (await lab.client(edge.port)).jetstream()
    await js.add_stream(name="O", subjects=["o"])
    for text in texts:
        await js.publish("o", text.encode())


async def taken(lab: Lab, hub: RealServer, count: int) -> list[str]:
    """What the source has, once it has so many and its origin says that nothing is missing."""
    js = (await lab.client(hub.port)).jetstream()

    async def whole() -> bool:
        info = await js.stream_info("ALL")
        link = json.loads((info.config.metadata or {}).get("_headwater.sources.0", "{}"))
        return info.state.messages >= count and link.get("state") == "live"

    await until(whole, f"{count} messages")
    last = (await js.stream_info("ALL")).state.last_seq
    found = [await js.get_msg("ALL", sequence) for sequence in range(1, last + 1)]
    return [(one.data or b"").decode() for one in found]


async def test_an_origin_that_comes_back_is_not_taken_twice(lab: Lab) -> None:
    """Not after a start of the source's node, either."""
    port = free_port()
    hub = RealServer(
        lab.directory,
        'jetstream { store_dir: "{store}", domain: hub }\n'
        f"leafnodes {{ listen: 127.0.0.1:{port} }}",
        "hub",
        "headwater",
    )
    a, b = (
        RealServer(
            lab.directory,
            'jetstream { store_dir: "{store}", domain: edge }\n'
            f'leafnodes {{ reconnect: "50ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}',
            name,
            "headwater",
        )
        for name in ("a", "b")
    )
    expected: list[str] = []
    try:
        await hub.start()
        js = (await lab.client(hub.port)).jetstream()
        source = StreamSource(name="O", external=ORIGIN)
        await js.add_stream(StreamConfig(name="ALL", sources=[source]))
        for turn, (edge, count) in enumerate([(a, 6), (b, 3), (a, 0), (b, 4), (a, 5)]):
            if turn == 3:
                hub.kill()
                await hub.start()
            await edge.start()
            texts = [f"{turn}-{n}" for n in range(count)]
            await publish(lab, edge, texts)
            expected += texts
            assert await taken(lab, hub, len(expected)) == expected
            edge.kill()
    finally:
        for server in (hub, a, b):
            server.kill()


@pytest.mark.parametrize("middle", one_in(2, ["headwater", "nats-server"]))
async def test_a_mirror_that_fills_again_is_not_taken_twice(lab: Lab, middle: str) -> None:
    """Gateway, site and cloud: the site's mirror is deleted and made again while its own origin is
    out of reach. The cloud's source waits until it has filled, and takes what is new."""
    cloud = await lab.node(
        JETSTREAM.format(store=lab.directory / "cloud", domain="cloud")
        + "leafnodes { listen: 127.0.0.1:-1 }"
    )
    site_port = free_port()
    config = (
        'jetstream {{ store_dir: "{store}", domain: {name} }}\n'
        'leafnodes {{ {listen} reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}", '
        "ignore_discovered_servers: true }} ] }}"
    ).format
    site = await lab.real(
        config(
            store="{store}", name="site", listen=f"listen: 127.0.0.1:{site_port},",
            port=leaf_port(cloud),
        ),
        "site",
        "real" if middle == "nats-server" else middle,
    )  # fmt: skip
    wire = await lab.wire(site_port)
    edge = await lab.node(
        config(store=lab.directory / "edge", name="edge", listen="", port=wire.port)
    )
    js = [(await lab.client(port)).jetstream() for port in (client_port(edge), site.port)]
    top = (await lab.client(client_port(cloud))).jetstream()
    copied = StreamConfig(name="M", mirror=StreamSource(name="O", external=ORIGIN))
    far = StreamSource(name="M", external=ExternalStream(api="$JS.site.API", deliver=""))

    async def source() -> dict[str, Any]:
        info = await top.stream_info("ALL")
        shown = json.loads((info.config.metadata or {}).get("_headwater.sources.0", "{}"))
        return {**shown, "messages": info.state.messages}

    async def takes(count: int) -> None:
        async def whole() -> bool:
            seen = await source()
            return bool(seen["messages"] >= count and seen["state"] == "live")

        await until(whole, f"{count} messages", 60)

    async def waits() -> bool:
        return "behind its own origin" in str((await source())["cause"])

    await js[0].add_stream(name="O", subjects=["o"])
    for n in range(20):
        await js[0].publish("o", b"%d" % n)
    await js[1].add_stream(copied)
    await top.add_stream(StreamConfig(name="ALL", sources=[far]))
    await takes(20)
    wire.silence(True)
    await js[1].delete_stream("M")
    await js[1].add_stream(copied)
    await until(waits, "the source waits", 60)
    wire.silence(False)
    wire.cut()
    for n in range(20, 25):
        await js[0].publish("o", b"%d" % n)
    await takes(25)
    found = [await top.get_msg("ALL", n) for n in range(1, (await source())["messages"] + 1)]
    assert [one.data for one in found] == [b"%d" % n for n in range(25)]
