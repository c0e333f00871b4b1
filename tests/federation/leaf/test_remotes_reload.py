"""Remotes come, go and change by a reload, and a link whose remote stays as it was stays up.

The edge is the real server, too, where both do the same."""

import signal
from typing import Any

import pytest
from nats.js.api import ExternalStream, StreamConfig, StreamSource

from headwater.edge.conf.load import load_text
from headwater.edge.node.node import Node
from headwater.edge.node.reload import reload_node
from tests.federation.lab import Lab, RealServer, client_port, free_port, leaf_port, leafs
from tests.waiting import until

HUB = "server_name: {name}\nleafnodes {{ listen: 127.0.0.1:-1, compression: s2_fast }}"


class Edge:
    """A server with remotes, in a process of its own, and two hubs in this one."""

    def __init__(self, server: RealServer, hubs: list[Node]) -> None:
        self.server, self.hubs = server, hubs
        self.links: list[int] = []
        """The link that each hub had when it was last asked; 0 for none."""

    def remote(self, hub: int, more: str = "compression: s2_fast") -> str:
        """A remote for one of the hubs."""
        return f'{{ url: "nats://127.0.0.1:{leaf_port(self.hubs[hub])}", {more} }}'

    def reload(self, *remotes: str) -> None:
        """Give it these remotes."""
        head = self.server.config.read_text().splitlines()[:2]
        self.server.config.write_text("\n".join([*head, config(*remotes)]))
        assert self.server.process is not None
        self.server.process.send_signal(signal.SIGHUP)

    async def has(self, first: str, second: str) -> None:
        """Wait until the link to each hub is "same" as before, "new", or there is none ("")."""

        def found() -> list[int]:
            # A link that ends is there until the hub has heard of it.
            return [max((leaf["id"] for leaf in leafs(hub)), default=0) for hub in self.hubs]

        def one(wanted: str, before: int, now: int) -> bool:
            if wanted == "same":
                return now == before != 0
            return now != before and now != 0 if wanted else now == 0

        before = self.links or [0, 0]
        await until(
            lambda: all(map(one, (first, second), before, found())),
            f"links {first!r} and {second!r}: {self.server.log}",
        )
        self.links = found()


def config(*remotes: str) -> str:
    """A configuration with these remotes."""
    listed = ", ".join(remotes)
    return (
        f'leafnodes {{ reconnect: "100ms", remotes [ {listed} ] }}\n'
        "accounts { A {} }\n"
    )


async def edge(lab: Lab, kind: str, *hubs: int) -> Edge:
    """An edge with remotes for some of the two hubs."""
    nodes = [await lab.node(HUB.format(name=name)) for name in ("one", "two")]
    made = Edge(RealServer(lab.directory, "", "edge", kind), nodes)
    made.server = await lab.real(config(*map(made.remote, hubs)), "edge", kind)
    return made


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_what_stays_as_it_was_keeps_its_link(lab: Lab, kind: str) -> None:
    made = await edge(lab, kind, 0)
    await made.has("new", "")
    one, two = made.remote(0), made.remote(1)
    made.reload(one, two)
    await made.has("same", "new")
    made.reload(two, one)
    made.reload(two, one, made.remote(1, "account: A, disabled: true"))
    made.reload(one, made.remote(1, "compression: s2_fast, disabled: true"))
    await made.has("same", "")
    made.reload(one, two)
    await made.has("same", "new")
    made.reload(one, made.remote(1, "compression: off"))
    await made.has("same", "new")
    made.reload(one, made.remote(1, "compression: off, account: A"))
    await made.has("same", "new")
    made.reload(one)
    await made.has("same", "")


async def test_a_link_goes_by_what_its_remote_has_become(lab: Lab) -> None:
    """Where nats-server refuses a reload: what denies subjects is in force at once."""
    made = await edge(lab, "headwater", 0, 1)
    await made.has("new", "new")
    made.reload(made.remote(0), made.remote(1, "deny_exports: [secret]"))
    await made.has("same", "new")
    client = await lab.client(made.server.port)
    heard = await (await lab.client(client_port(made.hubs[1]))).subscribe(">")

    async def known() -> bool:
        await client.publish("secret", b"")
        await client.publish("open", b"")
        await client.flush()
        return heard.pending_msgs > 3

    await until(known, "interest crosses")
    while heard.pending_msgs:
        assert (await heard.next_msg()).subject != "secret"
    # How a remote is dialled does not touch the link that is up.
    made.reload(made.remote(0, 'compression: s2_fast, dial_timeout: "3s"'), made.remote(1, ""))
    await made.has("same", "new")


BAD_REMOTES = {
    "address": 'url: "nats://[::1"',
    "authority": 'url: "tls://127.0.0.1:1", tls {{ ca_file: "{here}/missing.pem" }}',
    "certificate": (
        'url: "tls://127.0.0.1:1", tls {{ cert_file: "{here}/missing.pem", key_file: "{here}/k" }}'
    ),
    "seed": 'url: "nats://127.0.0.1:1", nkey: "SUXXX"',
    "account": 'url: "nats://127.0.0.1:1", account: NONE',
    "proxy": 'url: "nats://127.0.0.1:1", proxy {{ url: "ftp://127.0.0.1:1" }}',
    "subject": 'url: "nats://127.0.0.1:1", deny_imports: ["a..b"]',
    "pin": 'url: "nats://127.0.0.1:1", hub_pins: ["zz"]',
    "proof": 'url: "discover://"',
}


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_a_remote_that_cannot_be_leaves_all_as_it_was(lab: Lab, kind: str) -> None:
    """The reload is refused whole: neither the remote beside it comes, nor does one go."""
    made = await edge(lab, kind, 0)
    await made.has("new", "")
    bad = dict(BAD_REMOTES)
    if kind == "real":
        # It has no such pins, and looks for a host of no name.
        del bad["pin"], bad["proof"]
    for count, remote in enumerate(bad.values(), 1):
        made.reload(made.remote(1), f"{{ {remote.format(here=lab.directory)} }}")
        await until(
            lambda: made.server.text().count("Failed to reload") == count,  # noqa: B023
            f"refused: {remote}",
        )
        await made.has("same", "")
    made.reload(made.remote(1), made.remote(0))
    await made.has("same", "new")


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_a_remote_without_its_credentials_hinders_no_other(lab: Lab, kind: str) -> None:
    made = await edge(lab, kind, 0)
    await made.has("new", "")
    missing = f'account: A, credentials: "{lab.directory}/missing.creds"'
    made.reload(made.remote(1, missing), made.remote(1), made.remote(0))
    await made.has("same", "new")
    await until(lambda: "missing.creds" in made.server.text(), "the file is named")
    made.reload(made.remote(1), made.remote(0))
    await made.has("same", "same")


def text(*remotes: str, more: str = "") -> str:
    """A configuration for a node in this process."""
    return f"listen: 127.0.0.1:-1\nleafnodes {{ {more} remotes [ {', '.join(remotes)} ] }}\n"


async def test_the_first_remote_may_come_with_a_reload(lab: Lab) -> None:
    hub = await lab.node(
        f'jetstream {{ store_dir: "{lab.directory}/hub", domain: hub }}\n'
        "leafnodes { listen: 127.0.0.1:-1 }"
    )
    store = f'jetstream {{ store_dir: "{lab.directory}/edge", domain: edge }}\n'
    node = await lab.node(store)
    url = f"nats://127.0.0.1:{leaf_port(hub)}"
    reload_node(node, load_text(store + text(f'{{ url: "{url}" }}')).options)
    await until(lambda: leafs(node), "the link is up")
    there = (await lab.client(client_port(hub))).jetstream(timeout=10)
    here = (await lab.client(client_port(node))).jetstream(timeout=10)
    await there.add_stream(name="ORIGIN", subjects=["data"])
    await there.publish("data", b"1")
    origin = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.hub.API"))
    await here.add_stream(StreamConfig(name="COPY", mirror=origin))

    async def copied() -> bool:
        return bool((await here.stream_info("COPY")).state.messages)

    await until(copied, "the mirror goes over the new link")
    reload_node(node, load_text(store + text()).options)
    await until(lambda: not leafs(hub), "the link ends")


async def test_modes_change_on_links_that_stay(lab: Lab) -> None:
    """Both ends go on compressing, each as it is set; without it they agree anew."""
    hub_text = HUB.format(name="hub").replace(":-1", f":{free_port()}")
    hub = await lab.node(hub_text)
    url = f'{{ url: "nats://127.0.0.1:{leaf_port(hub)}", compression: MODE }}'
    node = await lab.node(text(url.replace("MODE", "s2_fast"), more='reconnect: "50ms",'))
    await until(lambda: leafs(node), "the link is up")
    (link,) = leafs(node)

    def mode(at: Node, wanted: str) -> Any:
        return any(leaf["compression"] == wanted for leaf in leafs(at))

    made = load_text(text(url.replace("MODE", "s2_better"), more='reconnect: "50ms",')).options
    reload_node(node, made)
    hub_made = "listen: 127.0.0.1:-1\n" + hub_text
    reload_node(hub, load_text(hub_made.replace("s2_fast", "s2_best")).options)
    assert mode(node, "s2_better")
    assert mode(hub, "s2_best")
    assert [leaf["id"] for leaf in leafs(node)] == [link["id"]]
    big = bytes(range(256)) * 2000
    got = await (await lab.client(client_port(hub))).subscribe("x")
    client = await lab.client(client_port(node))

    async def crossed() -> bool:
        await client.publish("x", big)
        await client.flush()
        return bool(got.pending_msgs)

    await until(crossed, "messages cross")
    assert (await got.next_msg()).data == big
    reload_node(hub, load_text(hub_made.replace("s2_fast", "off")).options)
    await until(lambda: mode(node, "off") and mode(hub, "off"), "they agree on none")


ORIGIN_HUB = """
jetstream {{ store_dir: "{store}", domain: hub }}
accounts {{ A {{ jetstream: enabled
  users: [ {{ user: one, password: p }}
           {{ user: two, password: p }}
           {{ user: client, password: p }} ]
}} }}
leafnodes {{ listen: "127.0.0.1:{leaf}" }}
no_auth_user: client
"""
CHANGES = (
    ("two", "compression: s2_fast"),
    ("two", "compression: off"),
    ("two", "compression: off, deny_exports: [secret]"),
    None,
    ("one", "compression: s2_fast"),
    ("two", 'compression: s2_fast, dial_timeout: "3s"'),
)
"""The remote's user and options with each reload, or that there is no remote."""


@pytest.mark.parametrize("kind", ["headwater", "real"])
async def test_mirrors_go_on_while_their_remote_changes(lab: Lab, kind: str) -> None:
    """A mirror and a source of a stream that grows meanwhile: each message once, in order."""
    leaf = free_port()
    hub = await lab.real(ORIGIN_HUB.format(store="{store}", leaf=leaf), "hub", kind)
    store = f'jetstream {{ store_dir: "{lab.directory}/edge", domain: edge }}\n'

    def made(change: tuple[str, str] | None) -> str:
        if change is None:
            return store + text()
        user, more = change
        remote = f'{{ url: "nats://{user}:p@127.0.0.1:{leaf}", {more} }}'
        return store + text(remote, more='reconnect: "50ms",')

    node = await lab.node(made(("one", "compression: s2_fast")))
    await until(lambda: leafs(node), "the link is up")
    there = (await lab.client(hub.port)).jetstream(timeout=10)
    here = (await lab.client(client_port(node))).jetstream(timeout=10)
    await there.add_stream(name="ORIGIN", subjects=["data"])
    origin = StreamSource(name="ORIGIN", external=ExternalStream(api="$JS.hub.API"))
    await here.add_stream(StreamConfig(name="COPY", mirror=origin))
    await here.add_stream(StreamConfig(name="GATHERED", sources=[origin]))
    sent = 0

    async def more(count: int) -> None:
        nonlocal sent
        for _ in range(count):
            await there.publish("data", b"%d" % sent)
            sent += 1

    async def copied() -> bool:
        infos = [await here.stream_info(name) for name in ("COPY", "GATHERED")]
        return all(info.state.messages >= sent for info in infos)

    for change in CHANGES:
        await more(20)
        reload_node(node, load_text("listen: 127.0.0.1:-1\n" + made(change)).options)
        await more(20)
        if change is not None:
            await until(copied, f"{sent} messages after {change}")
    for name in ("COPY", "GATHERED"):
        assert (await here.stream_info(name)).state.messages == sent
        for number in range(sent):
            assert (await here.get_msg(name, number + 1)).data == b"%d" % number
