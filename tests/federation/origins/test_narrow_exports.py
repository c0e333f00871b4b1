"""Mirrors and sources across accounts need of the origin's API no more than nats-server does."""

from collections.abc import Iterator

import nats
import pytest
from nats.js.api import ExternalStream, StreamSource

from bench.servers import Recipe, Server, program
from tests.waiting import until_state

CONFIG = """
jetstream { store_dir: store }
accounts {
  O { jetstream: enabled, users: [{user: o, password: o}]
      exports: [{service: "$JS.API.CONSUMER.>"}, {service: "$JS.FC.>"}, {stream: "deliver.>"}] }
  M { jetstream: enabled, users: [{user: m, password: m}]
      imports: [{service: {account: O, subject: "$JS.API.CONSUMER.>"}, to: "origin.CONSUMER.>"}
                {service: {account: O, subject: "$JS.FC.>"}}
                {stream: {account: O, subject: "deliver.>"}}] }
}
"""
EXTERNAL = ExternalStream(api="origin", deliver="deliver")


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    command = (program(request.param),) + (("serve",) if request.param == "headwater" else ())
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield server.port


@pytest.mark.parametrize("role", ["mirror", "source"])
async def test_consumer_requests_are_enough(port: int, role: str) -> None:
    owner = await nats.connect(f"nats://o:o@127.0.0.1:{port}")
    other = await nats.connect(f"nats://m:m@127.0.0.1:{port}")
    origin = StreamSource(name=role, external=EXTERNAL)
    await owner.jetstream().add_stream(name=role)
    for number in range(10):
        await owner.jetstream().publish(role, b"%d" % number)
    js = other.jetstream()
    if role == "mirror":
        await js.add_stream(name="copy", mirror=origin)
    else:
        await js.add_stream(name="copy", sources=[origin])
    await until_state(js, "copy", lambda state: state.messages == 10)
    assert (await js.get_msg("copy", 10)).data == b"9"
    await js.delete_stream("copy")
    await owner.close()
    await other.close()
