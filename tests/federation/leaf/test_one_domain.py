"""Hub and leaf in one JetStream domain, or both in none: what clients at either side are answered.

Each keeps its own JetStream, as two nats-servers do: all four pairs of both servers tell the same
story. A message goes to the streams of both sides, which is why domains have names.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bench.servers import HOST, Recipe, Server, free_port, program
from bench.wire import Link
from headwater.edge.wire.client import ApiError, NoResponders, TimedOut
from tests.waiting import until_seen

ACCOUNTS = """
accounts {{
  A {{ jetstream: enabled, users: [{{ user: a, password: x }}] }}
  SYS {{ users: [{{ user: s, password: x }}] }}
}}
system_account: SYS
server_name: {name}
jetstream {{ store_dir: "{{dir}}", max_mem: 64MB, max_file: 64MB {domain} }}
leafnodes {{ {leafs} }}
"""
COMMANDS = {"headwater": ("serve",), "nats-server": ()}
PAIRS = [(hub, leaf) for hub in COMMANDS for leaf in COMMANDS]


def server(kind: str, name: str, domain: str, leafs: str) -> Server:
    """One side."""
    config = ACCOUNTS.format(name=name, domain=domain, leafs=leafs)
    return Server(Recipe(kind, (program(kind), *COMMANDS[kind]), config))


def said(ask: Callable[[], Any]) -> Any:
    """An answer, an error's code, or that nobody answers."""
    try:
        return ask()
    except ApiError as error:
        return error.err_code
    except NoResponders:
        return "nobody"


def names(link: Link, prefix: str) -> Any:
    """Streams that are known to who asks under a prefix."""

    def ask() -> Any:
        found = json.loads(link.request(f"{prefix}.STREAM.NAMES").payload)
        return found.get("streams") or found.get("error", {}).get("err_code", [])

    return said(ask)


def acks(link: Link, subject: str, count: int) -> list[tuple[str, str, int]]:
    """Who acknowledges a message: stream, domain and sequence of so many answers."""
    found = []
    for answer in link.answers(subject, b"x"):
        ack = json.loads(answer.payload)
        found.append((ack["stream"], ack.get("domain", ""), ack["seq"]))
        if len(found) == count:
            break
    return sorted(found)


def until_linked(hub: Link, leaf: Link) -> None:
    """Until a message from the hub has come to a client at the leaf."""
    sid = leaf.subscribe("probe")
    leaf.flush()

    def heard() -> bool:
        hub.publish("probe", b"")
        hub.flush()
        try:
            return bool(leaf.next(timeout=0.1))
        except TimedOut:
            return False

    until_seen(heard, "the link")
    leaf.unsubscribe(sid)
    leaf.flush()


def messages(link: Link, stream: str) -> Any:
    """How many a stream has."""
    return link.api(f"STREAM.INFO.{stream}")["state"]["messages"]


def story(hub: Link, leaf: Link) -> list[Any]:
    """What both clients see, in turn."""
    seen: list[Any] = []
    both = (("hub", hub), ("leaf", leaf))
    for name, link in both:
        made = link.api(f"STREAM.CREATE.{name}", name=name, subjects=["s", name])
        seen.append(made["config"]["name"])
    for _, link in both:
        seen += [names(link, "$JS.API"), names(link, "$JS.D.API"), names(link, "$JS.E.API")]
        info = link.api("INFO")
        seen += [info["streams"], info.get("domain", "")]
        seen.append(acks(link, "s", 2))
    seen += [acks(hub, "leaf", 1), acks(leaf, "hub", 1)]
    for _, link in both:
        for name in ("hub", "leaf"):
            seen.append((name, said(partial(messages, link, name))))
    return seen


def told(pair: tuple[str, str], domain: str) -> list[Any]:
    """The story of a pair."""
    kind, other = pair
    port = free_port()
    users = "authorization { user: la, password: x, account: A }"
    listens = f'host: "{HOST}", port: {port}, {users}'
    dials = f'remotes: [{{ url: "nats://la:x@{HOST}:{port}", account: A }}]'
    with (
        server(kind, "HUB", domain, listens) as above,
        server(other, "LEAF", domain, dials) as below,
        Link(above.port, user="a:x@") as hub,
        Link(below.port, user="a:x@") as leaf,
        Link(above.port, user="s:x@") as system,
    ):
        until_linked(hub, leaf)
        return [*story(hub, leaf), names(system, "$JS.API"), names(system, "$JS.D.API")]


@pytest.mark.parametrize("domain", [", domain: D", ""])
def test_each_side_keeps_its_own(domain: str) -> None:
    stories = {pair: told(pair, domain) for pair in PAIRS}
    reference = stories["nats-server", "nats-server"]
    assert reference[2] == ["hub"] and ("leaf", 10059) in reference
    for pair, found in stories.items():
        assert found == reference, pair
