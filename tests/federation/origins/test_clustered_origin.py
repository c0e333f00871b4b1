"""The origin is in a cluster of nats-servers, which tells nobody of the consumers that mirrors and
sources have: asked for them, it says that there are none."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import ExternalStream, StreamConfig, StreamSource
from nats.js.errors import APIError

from headwater.federation.origins import origin_follower
from tests.federation.lab import JETSTREAM, Lab, RealServer, client_port, free_port, leafs
from tests.waiting import until, until_state


async def cluster(lab: Lab, directory: Path) -> tuple[RealServer, int]:
    """One of three servers, and its port for leafs."""
    routes = [free_port() for _ in range(3)]
    urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    leaf = free_port()
    config = 'jetstream {{ store_dir: "{{store}}", domain: hub }}\ncluster {{ name: C, {} }}\n'
    listens = [f"listen: 127.0.0.1:{port}, routes: [{urls}]" for port in routes]
    links = [f"leafnodes {{ listen: 127.0.0.1:{leaf} }}", "", ""]
    made = await asyncio.gather(
        *(lab.real(config.format(listens[n]) + links[n], f"node{n}") for n in range(3))
    )
    return made[0], leaf


async def test_its_consumers_are_not_taken_for_lost(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHECK_S", "CHECK_BEHIND_S"):
        monkeypatch.setattr(origin_follower, name, 0.1)
    server, leaf = await cluster(lab, tmp_path)
    there = await lab.client(server.port)
    origin = there.jetstream(timeout=10)

    async def created() -> bool:
        with contextlib.suppress(APIError, NatsTimeoutError):
            await origin.add_stream(StreamConfig(name="S", subjects=["s"], num_replicas=3))
            return True
        return False

    await until(created, "the stream is there")
    await asyncio.gather(*(origin.publish("s", bytes(100)) for _ in range(1000)))
    edge = await lab.node(
        JETSTREAM.format(store=lab.directory / "edge", domain="edge")
        + f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{leaf}" }} ] }}'
    )
    await until(lambda: leafs(edge), "the link is up")
    here = await lab.client(client_port(edge))
    asked = []

    async def count(message: object) -> None:
        asked.append(message)

    await here.subscribe("$JS.hub.API.CONSUMER.INFO.>", cb=count)
    js = here.jetstream(timeout=10)
    of = StreamSource(name="S", external=ExternalStream(api="$JS.hub.API"))
    await js.add_stream(StreamConfig(name="M", mirror=of))
    await until_state(js, "M", lambda state: state.messages == 1000)
    (follower,) = edge.jetstream.accounts["$G"].streams["M"].origin_driver.followers
    before = len(asked)
    await until(lambda: len(asked) >= before + 5, "it is asked again and again")
    assert follower.recreations == 0
    assert follower.health.state == "live"
    await origin.publish("s", b"new")
    await until_state(js, "M", lambda state: state.messages == 1001)
