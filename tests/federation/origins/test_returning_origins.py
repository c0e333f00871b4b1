"""Two nodes of one domain and stream name take turns as a source's origin: two gateways that were
made from one image, or a site and the one that stands in for it.
"""

import json

from nats.js.api import ExternalStream, StreamConfig, StreamSource

from bench.servers import free_port
from tests.federation.lab import Lab, RealServer
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
