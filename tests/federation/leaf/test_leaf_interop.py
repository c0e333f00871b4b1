"""Leaf links with the real nats-server on the other end, and between two nodes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from headwater.edge.conf.load import load_text
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from headwater.security import nkeys
from tests.federation.lab import Lab, client_port, free_port, leaf_port, leafs
from tests.waiting import silence, until

Pair = Callable[..., Awaitable[tuple[Client, Client]]]


async def linked(
    lab: Lab, kind: str, listener: str = "", url: str = "127.0.0.1"
) -> tuple[int, int]:
    """(hub's client port, spoke's client port) of two servers with a leaf link.

    `kind` names the hub and the spoke: H is Headwater, R the real server. `listener` goes into
    the hub's leafnodes block, `url` may carry credentials.
    """
    port = free_port()
    hub_config = f"leafnodes {{ listen: 127.0.0.1:{port}\n {listener} }}"
    spoke_config = f'leafnodes {{ remotes [ {{ url: "nats://{url}:{port}" }} ] }}'
    if kind[0] == "H":
        hub = client_port(node := await lab.node(hub_config))
    else:
        hub = (server := await lab.real(hub_config, "hub")).port
    if kind[1] == "H":
        spoke_node = await lab.node(spoke_config)
        spoke = client_port(spoke_node)
        await until(lambda: leafs(spoke_node), "the link is up")
    else:
        spoke = (await lab.real(spoke_config, "spoke")).port
    if kind[0] == "H":
        await until(lambda: leafs(node), "the link is up")
    else:
        await until(lambda: "Leafnode connection created" in server.text(), "the link is up")
    return hub, spoke


@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_messages_cross_in_both_directions(lab: Lab, kind: str) -> None:
    ports = await linked(lab, kind)
    for publisher_port, subscriber_port in (ports, ports[::-1]):
        publisher = await lab.client(publisher_port)
        subscriber = await lab.client(subscriber_port)
        await check_plain(publisher, subscriber)
        await check_requests(publisher, subscriber)
        await check_queue_groups(publisher, subscriber)
        await check_end_of_interest(publisher, subscriber)
        await subscriber.close()


async def interest_known(publisher: Client, subject: str) -> None:
    """Wait until the publisher's server knows that somebody answers on `subject`."""

    async def answered() -> bool:
        try:
            await publisher.request(subject, b"", timeout=1)
        except Exception:
            return False
        return True

    await until(answered, f"interest in {subject} has crossed")


async def answer(message: Msg) -> None:
    """A service that echoes."""
    await message.respond(b"re:" + message.data)


async def check_plain(publisher: Client, subscriber: Client) -> None:
    """Payload, reply subject and headers arrive unchanged, once and in order."""
    got: asyncio.Queue[Msg] = asyncio.Queue()
    await subscriber.subscribe("plain.>", cb=got.put)
    await subscriber.subscribe("ready.plain", cb=answer)
    await subscriber.flush()
    await interest_known(publisher, "ready.plain")
    await publisher.publish("plain.1", b"x" * 70_000, headers={"Key": "value"})
    await publisher.publish("plain.2", b"", reply="some.where")
    await publisher.flush()
    first = await asyncio.wait_for(got.get(), 5)
    second = await asyncio.wait_for(got.get(), 5)
    assert (first.subject, len(first.data), first.headers) == ("plain.1", 70_000, {"Key": "value"})
    assert (second.subject, second.data, second.reply) == ("plain.2", b"", "some.where")
    assert got.empty()


async def check_requests(publisher: Client, subscriber: Client) -> None:
    """Requests find a service on the other side."""
    await subscriber.subscribe("service", queue="workers", cb=answer)
    await subscriber.flush()
    await interest_known(publisher, "service")
    assert (await publisher.request("service", b"1", timeout=5)).data == b"re:1"


async def check_queue_groups(publisher: Client, subscriber: Client) -> None:
    """Each queue group gets a message once; plain subscribers beside it get every one."""
    counts = {"a": 0, "b": 0, "plain": 0}

    def counting(name: str) -> Callable[[Msg], Awaitable[None]]:
        async def count(_: Msg) -> None:
            counts[name] += 1

        return count

    for name in ("a", "a", "b"):
        await subscriber.subscribe("queued", queue=name, cb=counting(name))
    await subscriber.subscribe("queued", cb=counting("plain"))
    await subscriber.subscribe("ready.queued", cb=answer)
    await subscriber.flush()
    await interest_known(publisher, "ready.queued")
    for _ in range(200):
        await publisher.publish("queued", b"")
    await publisher.flush()
    await until(lambda: counts == {"a": 200, "b": 200, "plain": 200}, counts)


async def check_end_of_interest(publisher: Client, subscriber: Client) -> None:
    """What nobody wants any more is answered as such on the publisher's side."""
    subscription = await subscriber.subscribe("ends", cb=answer)
    await subscriber.flush()
    await interest_known(publisher, "ends")
    await subscription.unsubscribe()
    await subscriber.flush()

    async def nobody() -> bool:
        try:
            await publisher.request("ends", b"", timeout=1)
        except Exception as error:
            return type(error).__name__ == "NoRespondersError"
        return False

    await until(nobody, "the end of interest has crossed")


@pytest.mark.parametrize("kind", ["HR", "RH"])
async def test_user_and_password(lab: Lab, kind: str) -> None:
    listener = "authorization { user: leaf, password: s3cret }"
    hub, spoke = await linked(lab, kind, listener, "leaf:s3cret@127.0.0.1")
    await check_requests(await lab.client(hub), await lab.client(spoke))


@pytest.mark.parametrize("hub", ["H", "R"])
async def test_wrong_password_is_said_and_retried(
    lab: Lab, hub: str, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    config = f"leafnodes {{ listen: 127.0.0.1:{port}, authorization {{ user: a, password: b }} }}"
    if hub == "H":
        await lab.node(config)
    else:
        await lab.real(config, "hub")
    spoke = await lab.node(
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://a:no@127.0.0.1:{port}" }} ] }}'
    )

    def remote() -> dict[str, Any]:
        service = next(each for each in spoke.services if each.name == "leafnodes")
        found: dict[str, Any] = service.status()["remotes"][0]
        return found

    await until(lambda: remote()["failures"] >= 2, "it is tried again")
    assert "Authorization Violation" in remote()["last_error"]
    assert "Authorization Violation" in caplog.text
    assert not leafs(spoke)


@pytest.mark.parametrize("kind", ["HH", "RH"])
async def test_nkey(lab: Lab, kind: str) -> None:
    pair = nkeys.KeyPair.create("U")
    port = free_port()
    config = (
        f"authorization {{ users [ {{ nkey: {pair.public_key} }}, {{ user: c, password: c }} ] }}\n"
        f"leafnodes {{ listen: 127.0.0.1:{port} }}"
    )
    if kind[0] == "H":
        await lab.node(config)
    else:
        await lab.real(config, "hub")
    spoke = await lab.node(
        f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{port}", nkey: {pair.seed} }} ] }}'
    )
    await until(lambda: leafs(spoke), "the link is up")


def known(node: Node) -> list[str]:
    """Subjects that the other ends of a node's links want."""
    return [subject for link in leafs(node) for subject in link["subscriptions_list"]]


async def test_permissions_of_the_user_hold_on_the_link(lab: Lab) -> None:
    port = free_port()
    hub = await lab.node(
        f"""authorization {{ users [
            {{ user: leaf, password: leaf, permissions {{ publish: "up.>", subscribe: "down.>" }} }}
            {{ user: all, password: all }} ] }}
        leafnodes {{ listen: 127.0.0.1:{port} }}"""
    )
    spoke = await lab.node(
        f'leafnodes {{ remotes [ {{ url: "nats://leaf:leaf@127.0.0.1:{port}" }} ] }}'
    )
    await until(lambda: leafs(spoke), "the link is up")
    above = await lab.client(client_port(hub), user="all", password="all")
    below = await lab.client(client_port(spoke))
    got: list[str] = []

    async def on_message(message: Msg) -> None:
        got.append(message.subject)

    for client in (above, below):
        await client.subscribe("up.>", cb=on_message)
        await client.subscribe("down.>", cb=on_message)
        await client.subscribe("else.>", cb=on_message)
        await client.flush()
    # A link tells interest in order, and what it may tell comes last here.
    await below.subscribe("down.last", cb=on_message)
    await above.subscribe("up.last", cb=on_message)
    await until(lambda: "down.last" in known(hub) and "up.last" in known(spoke), "interest")
    for subject in ("up.1", "down.1", "else.1"):
        await above.publish(subject, b"")
        await below.publish(subject, b"")
    await above.flush()
    await below.flush()
    await until(lambda: len(got) >= 8, "all that may cross has crossed")
    await silence(0.1)
    assert sorted(got) == ["down.1"] * 3 + ["else.1"] * 2 + ["up.1"] * 3


@pytest.mark.parametrize("second", ["H", "R"])
async def test_a_loop_is_found(lab: Lab, second: str, caplog: pytest.LogCaptureFixture) -> None:
    ports = free_port(), free_port()
    configs = [
        f"leafnodes {{ listen: 127.0.0.1:{ports[i]}, remotes [ "
        f'{{ url: "nats://127.0.0.1:{ports[1 - i]}" }} ] }}'
        for i in range(2)
    ]
    await lab.node(configs[0])
    if second == "H":
        await lab.node(configs[1])
    else:
        await lab.real(configs[1], "second")
    await until(lambda: "Loop detected" in caplog.text, "the loop was found")


async def test_the_link_comes_back_after_the_hub_died(lab: Lab) -> None:
    port = free_port()
    hub = await lab.real(f"leafnodes {{ listen: 127.0.0.1:{port} }}", "hub")
    spoke = await lab.node(
        f'leafnodes {{ reconnect: "100ms", remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    )
    await until(lambda: leafs(spoke), "the link is up")
    hub.kill()
    await until(lambda: not leafs(spoke), "the link is down")
    await hub.start()
    await until(lambda: leafs(spoke), "the link is up again")
    await check_requests(await lab.client(hub.port), await lab.client(client_port(spoke)))


async def test_three_nodes_in_a_row(lab: Lab) -> None:
    top = await lab.node("leafnodes { listen: 127.0.0.1:-1 }")
    middle = await lab.node(
        "leafnodes { listen: 127.0.0.1:-1, remotes [ "
        f'{{ url: "nats://127.0.0.1:{leaf_port(top)}" }} ] }}'
    )
    bottom = await lab.node(
        f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{leaf_port(middle)}" }} ] }}'
    )
    await until(lambda: leafs(top) and leafs(bottom) and len(leafs(middle)) == 2, "links are up")
    above, below = await lab.client(client_port(top)), await lab.client(client_port(bottom))
    await check_plain(above, below)
    await check_requests(below, above)


@pytest.mark.parametrize(
    ("spoke", "expected"),
    [("", 1), ("cluster { name: same }", 0)],
    ids=["strangers", "same cluster"],
)
async def test_from_one_spoke_to_the_other(lab: Lab, spoke: str, expected: int) -> None:
    hub = await lab.node("leafnodes { listen: 127.0.0.1:-1 }")
    url = f"nats://127.0.0.1:{leaf_port(hub)}"
    config = f'{spoke}\nleafnodes {{ remotes [ {{ url: "{url}" }} ] }}'
    one, two = await lab.node(config), await lab.node(config)
    await until(lambda: leafs(one) and leafs(two), "links are up")
    sender, receiver = await lab.client(client_port(one)), await lab.client(client_port(two))
    above = await (await lab.client(client_port(hub))).subscribe("news")
    below = await receiver.subscribe("news")
    await receiver.flush()
    await receiver.subscribe("last")
    await until(lambda: "last" in known(hub), "interest has crossed")
    await sender.publish("news", b"")
    await sender.flush()
    await above.next_msg(5)
    await silence(0.1)
    assert below.pending_msgs == expected


@pytest.mark.parametrize("isolate", [True, False])
async def test_interest_of_other_spokes(lab: Lab, isolate: bool) -> None:
    hub = await lab.node(f"leafnodes {{ listen: 127.0.0.1:-1, isolate: {str(isolate).lower()} }}")
    config = f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{leaf_port(hub)}" }} ] }}'
    one, two = await lab.node(config), await lab.node(config)
    await until(lambda: leafs(one) and leafs(two), "links are up")
    below = await lab.client(client_port(two))
    await below.subscribe("private")
    await below.flush()
    await (await lab.client(client_port(hub))).subscribe("last")

    await until(lambda: "last" in known(one), "interest has crossed")
    await silence(0.1)
    assert ("private" in known(one)) is not isolate


@pytest.mark.parametrize("kind", ["HR", "RH", "HH"])
async def test_sources_of_mappings_are_interest(lab: Lab, kind: str) -> None:
    port = free_port()
    hub_config = f"""mappings {{ orders: mapped.orders }}
        leafnodes {{ listen: 127.0.0.1:{port} }}"""
    spoke_config = f'leafnodes {{ remotes [ {{ url: "nats://127.0.0.1:{port}" }} ] }}'
    hub_node = await lab.node(hub_config) if kind[0] == "H" else None
    hub = client_port(hub_node) if hub_node else (await lab.real(hub_config, "hub")).port
    if kind[1] == "H":
        spoke = client_port(await lab.node(spoke_config))
    else:
        spoke = (await lab.real(spoke_config, "spoke")).port
    service, client = await lab.client(hub), await lab.client(spoke)
    await service.subscribe("mapped.orders", cb=answer)
    await service.flush()
    await interest_known(client, "orders")
    assert (await client.request("orders", b"1", timeout=2)).data == b"re:1"
    if hub_node is None:
        return
    listen = f"listen: 127.0.0.1:-1\nleafnodes {{ listen: 127.0.0.1:{port} }}"
    reload_node(hub_node, load_text(listen).options)

    async def unheard() -> bool:
        try:
            await client.request("orders", b"", timeout=0.2)
        except NoRespondersError:
            return True
        except NatsTimeout:
            return False
        return False

    await until(unheard, "the interest has ended")
