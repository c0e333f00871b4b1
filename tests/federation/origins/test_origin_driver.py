"""Mirrors and sources over leaf links and domains, in every combination with the real server."""

import asyncio
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import (
    ExternalStream,
    RetentionPolicy,
    StreamConfig,
    StreamSource,
    SubjectTransform,
)

from headwater.edge.node.node import Node
from tests.federation.lab import Lab, RealServer, client_port, free_port, leafs
from tests.slow import one_in, shared
from tests.waiting import until

Server = Node | RealServer
JETSTREAM = 'jetstream {{ store_dir: "{store}", domain: {domain} }}\nserver_name: {domain}\n'
RECONNECT = 'reconnect: "100ms"'


async def server(lab: Lab, kind: str, domain: str, leafnodes: str) -> Server:
    """A server of a kind (H: Headwater, R: real) with JetStream in a domain."""
    if kind == "R":
        text = JETSTREAM.format(store="{store}", domain=domain).partition("server_name")[0]
        return await lab.real(f"{text}leafnodes {{ {leafnodes} }}", domain)
    text = JETSTREAM.format(store=lab.directory / f"headwater-{domain}", domain=domain)
    return await lab.node(f"{text}leafnodes {{ {leafnodes} }}")


async def pair(lab: Lab, kind: str) -> tuple[Server, Server, int]:
    """Hub and spoke in domains of their own, linked; and the leaf port."""
    port = free_port()
    hub = await server(lab, kind[0], "hub", f"listen: 127.0.0.1:{port}")
    spoke = await server(
        lab, kind[1], "edge", f'{RECONNECT}, remotes [ {{ url: "nats://127.0.0.1:{port}" }} ]'
    )
    return hub, spoke, port


async def context(lab: Lab, at: Server) -> JetStreamContext:
    """JetStream of a server, by a client of its own."""
    port = client_port(at) if isinstance(at, Node) else at.port
    return (await lab.client(port)).jetstream(timeout=10)


async def fill(js: JetStreamContext, count: int, start: int = 0) -> None:
    """Publish numbered messages on a few subjects, some with headers."""
    for i in range(start, start + count):
        headers = {"Number": str(i), "Nats-Expected-Stream": "ORIGIN"} if i % 2 else None
        await js.publish(f"data.{i % 3}", str(i).encode(), headers=headers)


async def holds(js: JetStreamContext, stream: str, messages: int) -> dict[str, Any]:
    """Wait until a stream holds that many messages; its state."""

    async def reached() -> Any:
        info = await js.stream_info(stream)
        return info if info.state.messages >= messages else None

    # The real server notices that its origin was restarted only by its own check, after 10-20 s.
    info = await until(reached, f"{stream} holds {messages} messages", seconds=45)
    assert info.state.messages == messages
    found: dict[str, Any] = info.state.__dict__
    return found


async def payloads(js: JetStreamContext, stream: str) -> list[int]:
    """The numbers in a stream, in its order."""
    state = (await js.stream_info(stream)).state
    found = []
    for sequence in range(state.first_seq, state.last_seq + 1):
        found.append(int((await js.get_msg(stream, seq=sequence)).data or b""))
    return found


def origin_of(domain: str, **fields: Any) -> StreamSource:
    """The stream ORIGIN of another domain."""
    return StreamSource(name="ORIGIN", external=ExternalStream(api=f"$JS.{domain}.API"), **fields)


@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_mirror_across_domains(lab: Lab, kind: str, up: bool) -> None:
    hub, spoke, _ = await pair(lab, kind)
    source, target, domain = (spoke, hub, "edge") if up else (hub, spoke, "hub")
    origin, copy = await context(lab, source), await context(lab, target)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 50)
    await origin.delete_msg("ORIGIN", 7)
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=origin_of(domain)))
    await holds(copy, "MIRROR", 49)
    await fill(origin, 50, 50)
    state = await holds(copy, "MIRROR", 99)
    assert (state["first_seq"], state["last_seq"]) == (1, 100)
    there, here = await origin.get_msg("ORIGIN", 42), await copy.get_msg("MIRROR", 42)
    assert (here.subject, here.data, here.headers) == (there.subject, there.data, {"Number": "41"})
    assert here.time == there.time
    info = await copy.stream_info("MIRROR")
    assert info.mirror is not None
    assert (info.mirror.name, info.mirror.lag, info.mirror.error) == ("ORIGIN", 0, None)


@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_sources_across_domains(lab: Lab, kind: str) -> None:
    hub, spoke, _ = await pair(lab, kind)
    origin, copy = await context(lab, spoke), await context(lab, hub)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 60)
    whole = StreamConfig(name="ALL", sources=[origin_of("edge")])
    some = StreamConfig(
        name="SOME",
        sources=[
            origin_of("edge", filter_subject="data.1"),
            origin_of("edge", subject_transforms=[SubjectTransform("data.2", "edge.two")]),
        ],
    )
    await copy.add_stream(whole)
    await copy.add_stream(some)
    await holds(copy, "ALL", 60)
    await holds(copy, "SOME", 40)
    await fill(origin, 30, 60)
    await holds(copy, "ALL", 90)
    await holds(copy, "SOME", 60)
    assert await payloads(copy, "ALL") == list(range(90))
    message = await copy.get_msg("ALL", 42)
    assert message.headers is not None
    assert message.headers["Number"] == "41"
    assert message.headers["Nats-Stream-Source"].split(" ")[1:5] == ["42", ">", ">", "data.2"]
    subjects = {(await copy.get_msg("SOME", number)).subject for number in range(1, 61)}
    assert subjects == {"data.1", "edge.two"}


@pytest.mark.parametrize("kind", ["HR", "RH"])
async def test_resumes_after_the_other_side_died(lab: Lab, kind: str) -> None:
    hub, spoke, _ = await pair(lab, kind)
    real = hub if isinstance(hub, RealServer) else spoke
    mine = hub if isinstance(hub, Node) else spoke
    assert isinstance(real, RealServer)
    assert isinstance(mine, Node)
    domain = "hub" if real is hub else "edge"
    origin, copy = await context(lab, real), await context(lab, mine)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 200)
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=origin_of(domain)))
    await copy.add_stream(StreamConfig(name="ALL", sources=[origin_of(domain)]))
    await holds(copy, "ALL", 200)
    real.kill()
    await until(lambda: not leafs(mine), "the link is down")
    await real.start()
    origin = await context(lab, real)
    await fill(origin, 100, 200)
    await holds(copy, "MIRROR", 300)
    await holds(copy, "ALL", 300)
    assert await payloads(copy, "ALL") == list(range(300))
    assert await payloads(copy, "MIRROR") == list(range(300))


async def test_a_real_server_mirrors_on_after_both_sides_restarted(lab: Lab) -> None:
    """The real server looks only every 10 s whether its origin is alive, so it is restarted too."""
    port = free_port()
    hub = await server(lab, "R", "hub", f"listen: 127.0.0.1:{port}")
    remote = f'{RECONNECT}, remotes [ {{ url: "nats://127.0.0.1:{port}" }} ]'
    spoke = await server(lab, "H", "edge", remote)
    assert isinstance(spoke, Node)
    assert isinstance(hub, RealServer)
    origin, copy = await context(lab, spoke), await context(lab, hub)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 100)
    await copy.add_stream(StreamConfig(name="MIRROR", mirror=origin_of("edge")))
    await copy.add_stream(StreamConfig(name="ALL", sources=[origin_of("edge")]))
    await holds(copy, "ALL", 100)
    hub.kill()
    await spoke.stop()
    spoke = await server(lab, "H", "edge", remote)
    origin = await context(lab, spoke)
    await fill(origin, 50, 100)
    await hub.start()
    copy = await context(lab, hub)
    await holds(copy, "MIRROR", 150)
    await holds(copy, "ALL", 150)
    assert await payloads(copy, "ALL") == list(range(150))


async def test_a_source_goes_on_where_it_was_after_its_data_was_purged(lab: Lab) -> None:
    hub, spoke, _ = await pair(lab, "HH")
    origin, copy = await context(lab, spoke), await context(lab, hub)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 20)
    await copy.add_stream(StreamConfig(name="ALL", sources=[origin_of("edge")]))
    await holds(copy, "ALL", 20)
    await copy.purge_stream("ALL")
    assert isinstance(hub, Node)
    await hub.stop()
    hub = await server(lab, "H", "hub", f"listen: 127.0.0.1:{free_port()}")
    copy = await context(lab, hub)
    info = await copy.stream_info("ALL")
    assert (info.state.messages, info.state.last_seq) == (0, 20)
    driver = hub.jetstream.accounts["$G"].streams["ALL"].origin_driver
    assert driver.followers[0].status()["sequence"] == 20


@pytest.mark.parametrize("count", one_in(2, [10, 40]), ids=["shorter", "longer"])
@pytest.mark.parametrize("kind", shared(["HH", "HR", "RH"], lambda kind: kind != "RH"))
async def test_an_origin_made_anew_is_taken_whole_by_a_source(
    lab: Lab, kind: str, count: int
) -> None:
    hub, spoke, _ = await pair(lab, kind)
    origin, copy = await context(lab, spoke), await context(lab, hub)
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, 30)
    await copy.add_stream(StreamConfig(name="ALL", sources=[origin_of("edge")]))
    await holds(copy, "ALL", 30)
    await origin.delete_stream("ORIGIN")
    await origin.add_stream(name="ORIGIN", subjects=["data.>"])
    await fill(origin, count, 100)
    await holds(copy, "ALL", 30 + count)
    assert await payloads(copy, "ALL") == [*range(30), *range(100, 100 + count)]


async def test_local_mirror_follows_at_once(lab: Lab) -> None:
    node = await server(lab, "H", "solo", "listen: 127.0.0.1:-1")
    js = await context(lab, node)
    await js.add_stream(name="ORIGIN", subjects=["data.>"])
    await js.add_stream(StreamConfig(name="MIRROR", mirror=StreamSource(name="ORIGIN")))
    await js.add_stream(StreamConfig(name="ALL", sources=[StreamSource(name="ORIGIN")]))
    await asyncio.gather(*(fill(js, 20, 20 * i) for i in range(10)))
    await holds(js, "MIRROR", 200)
    await holds(js, "ALL", 200)


async def test_a_driver_joins_those_who_listen_and_replaces_nobody(lab: Lab) -> None:
    node = await server(lab, "H", "solo", "listen: 127.0.0.1:-1")
    js = await context(lab, node)
    await js.add_stream(name="ORIGIN", subjects=["data.>"])
    await js.add_stream(StreamConfig(name="ALL", sources=[StreamSource(name="ORIGIN")]))
    await js.add_consumer("ALL", durable_name="reader")
    await fill(js, 20)
    await holds(js, "ALL", 20)
    hooks = [type(each).__name__ for each in node.kernel.turn_hooks.tasks]
    assert sorted(hooks[:2]) == ["Cursors", "Saver"]
    assert hooks[2:] == ["TurnEnd"]
    streams = node.accounts["$G"].jetstream.streams
    copy = streams["ALL"]
    assert streams["ORIGIN"].store.listener is streams["ORIGIN"]
    assert [type(each).__name__ for each in copy.store.listener.tasks] == [
        "Stream",
        "Confirmations",
    ]
    assert copy.store.listener.tasks[0] is copy
    copy.origin_driver.stop()
    assert copy.store.listener.tasks == [copy]


@pytest.mark.parametrize("kind", ["HR", "HH"])
async def test_a_work_queue_is_emptied_by_its_source(lab: Lab, kind: str) -> None:
    """The origin forgets what the copy has confirmed, by flow control, after its commit."""
    hub, spoke, _ = await pair(lab, kind)
    origin, copy = await context(lab, spoke), await context(lab, hub)
    await origin.add_stream(
        name="ORIGIN", subjects=["data.>"], retention=RetentionPolicy.WORK_QUEUE
    )
    await fill(origin, 100)
    await copy.add_stream(StreamConfig(name="ALL", sources=[origin_of("edge")]))
    await holds(copy, "ALL", 100)

    async def empty() -> bool:
        return (await origin.stream_info("ORIGIN")).state.messages == 0

    await until(empty, "the origin has let go")
    assert await payloads(copy, "ALL") == list(range(100))
