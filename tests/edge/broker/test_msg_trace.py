"""Traced messages: the same events, deliveries and stored messages as with nats-server."""

import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import nats
import pytest

from bench.servers import Recipe, Server, free_port, program
from tests.encodings import unpacked

COMMANDS = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
CONFIG = """
jetstream { store_dir: "{dir}" }
accounts {
  A { jetstream: enabled, msg_trace: { dest: "sampled.traces", sampling: "100%" }
      users: [
        { user: a, password: a }
        { user: b, password: b, permissions: { publish: { deny: "secret.>" } } }
      ]
      mappings { "old.*": "x.$1", "same.*": "same.$1" } }
}
"""
VOLATILE = {"server", "ts", "cid"}
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"


def comparable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return value


class Lab:
    """A server with a publisher, and receivers that note what they get."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.got: list[tuple[str, bytes]] = []
        self.traces: list[Any] = []
        self.clients: list[Any] = []

    async def client(self, name: str, user: str = "a", **options: Any) -> Any:
        found = await nats.connect(self.url, name=name, user=user, password=user, **options)
        self.clients.append(found)
        return found

    async def receive(self, message: Any) -> None:
        self.got.append((message.subject, message.data))

    async def trace(self, message: Any) -> None:
        event = json.loads(message.data)
        events = sorted(event["events"], key=lambda e: (e["type"] != "in", str(comparable(e))))
        self.traces.append(comparable({**event, "events": events}))
        assert event["server"]["name"]

    async def open(self) -> None:
        watcher = await self.client("watcher")
        await watcher.subscribe("traces", cb=self.trace)
        await watcher.subscribe("sampled.traces", cb=self.trace)
        for name in ("one", "two"):
            receiver = await self.client(name)
            await receiver.subscribe("x.*", cb=self.receive)
            await receiver.subscribe("x.y", "workers" if name == "one" else "", cb=self.receive)
        self.publisher = await self.client("publisher", no_echo=True)
        await self.publisher.subscribe("x.>", cb=self.receive)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(2):
            for client in self.clients:
                await client.flush()

    async def publish(self, subject: str, client: Any = None, **headers: str) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        await (client or self.publisher).publish(subject, b"hello", headers=named)
        await self.settle()


@pytest.fixture
async def labs() -> AsyncIterator[list[Lab]]:
    """A lab on each server, headwater's first."""
    with ExitStack() as stack:
        found = []
        for kind, command in COMMANDS.items():
            server = stack.enter_context(Server(Recipe(kind, command, CONFIG)))
            found.append(Lab(f"nats://127.0.0.1:{server.port}"))
            await found[-1].open()
        yield found
        for lab in found:
            for client in lab.clients:
                await client.close()


def same(labs: list[Lab]) -> Lab:
    """What both labs have seen alike."""
    ours, theirs = labs
    assert ours.traces == theirs.traces
    assert sorted(ours.got) == sorted(theirs.got)
    return ours


async def test_who_gets_a_message_is_told(labs: list[Lab]) -> None:
    for lab in labs:
        await lab.publish("x.y", Nats_Trace_Dest="traces", Other="kept")
        await lab.publish("nobody.there", Nats_Trace_Dest="traces")
        await lab.publish("x.z", Nats_Trace_Dest="trace disabled")
        await lab.publish("x.z", Nats_Trace_Dest="not a subject")
    seen = same(labs)
    assert len(seen.traces) == 2
    assert len(seen.got) == 8


async def test_a_mapping_is_told(labs: list[Lab]) -> None:
    for lab in labs:
        await lab.publish("old.y", Nats_Trace_Dest="traces")
        await lab.publish("same.y", Nats_Trace_Dest="traces")
    seen = same(labs)
    kinds = [sorted(event["type"] for event in trace["events"]) for trace in seen.traces]
    assert "sm" in kinds[0]


async def test_a_message_that_is_only_traced_reaches_nobody(labs: list[Lab]) -> None:
    for lab in labs:
        for word in ("true", "1", "ON"):
            await lab.publish("x.y", Nats_Trace_Dest="traces", Nats_Trace_Only=word)
        await lab.publish("x.y", Nats_Trace_Dest="not a subject", Nats_Trace_Only="true")
    seen = same(labs)
    assert len(seen.traces) == 3
    assert seen.got == []


async def test_a_trace_of_a_form_that_is_no_more_is_none(labs: list[Lab]) -> None:
    for lab in labs:
        for only in ("true", "false"):
            old = {"Nats_Trace_Dest": "traces", "Nats_Trace_Only": only}
            await lab.publish("x.y", Nats_Trace_Origin_Account="A", **old)
        await lab.publish("x.y", traceparent=PARENT[:-1] + "1", Nats_Trace_Origin_Account="A")
    seen = same(labs)
    assert seen.traces == []
    assert seen.got


@pytest.mark.parametrize("accepted", ["snappy", "gzip, S2", "GZIP", "br", ""])
async def test_traces_come_in_the_encoding_that_is_accepted(
    labs: list[Lab], accepted: str
) -> None:
    found = []
    for lab in labs:
        client = await lab.client("reader")
        subscription = await client.subscribe("packed")
        await client.flush()
        await lab.publish("x.y", Nats_Trace_Dest="packed", Accept_Encoding=accepted)
        message = await subscription.next_msg(5)
        event = json.loads(unpacked(message))
        found.append(((message.headers or {}).get("Content-Encoding"), sorted(event)))
    assert found[0] == found[1]


async def test_streams_store_what_is_delivered(labs: list[Lab]) -> None:
    for lab in labs:
        js = lab.publisher.jetstream()
        await js.add_stream(name="S", subjects=["s.>"])
        await lab.publish("s.a", Nats_Trace_Dest="traces", Nats_Trace_Only="true")
        await lab.publish("s.b", Nats_Trace_Dest="traces")
        while len(lab.traces) < 2:
            await lab.settle()
        info = await js.stream_info("S")
        stored = await js.get_msg("S", 1)
        lab.got.append((json.dumps(stored.headers), stored.data))
        assert info.state.messages == 1
    assert "trace disabled" in same(labs).got[0][0]


async def test_an_account_may_have_its_sampled_messages_traced(labs: list[Lab]) -> None:
    for lab in labs:
        await lab.publish("x.a", traceparent=PARENT + "1")
        await lab.publish("x.b", TraceParent=PARENT + "1")
        await lab.publish("x.c", traceparent=PARENT + "0", Nats_Trace_Only="true")
    seen = same(labs)
    assert len(seen.traces) == 2
    assert len(seen.got) == 6


async def test_a_trace_goes_only_where_its_publisher_may_publish(labs: list[Lab]) -> None:
    for lab in labs:

        async def ignore(error: Exception) -> None:
            return

        user = await lab.client("limited", "b", error_cb=ignore)
        await lab.clients[0].subscribe("secret.traces", cb=lab.trace)
        await lab.publish("x.y", user, Nats_Trace_Dest="secret.traces")
        await lab.publish("x.y", user, Nats_Trace_Dest="traces")
    seen = same(labs)
    assert len(seen.traces) == 1


@pytest.mark.parametrize("only", ["false", "true"])
async def test_a_trace_goes_on_behind_a_leaf_link(only: str) -> None:
    seen = [await hops(kind, only) for kind in COMMANDS]
    assert seen[0] == seen[1]
    traces, got = seen[0]
    assert len(traces) == 2
    assert len(got) == (0 if only == "true" else 1)


async def hops(kind: str, only: str) -> tuple[list[Any], list[tuple[str, bytes]]]:
    """What a trace from a spoke to a subscriber at its hub tells, the origin's events first."""
    port = free_port()
    hub_config = f'server_name: hub\nleafnodes {{ listen: "127.0.0.1:{port}" }}'
    spoke_config = (
        f'server_name: spoke\nleafnodes {{ remotes: [{{ url: "nats://127.0.0.1:{port}" }}] }}'
    )
    with (
        Server(Recipe(kind, COMMANDS[kind], hub_config)) as hub,
        Server(Recipe(kind, COMMANDS[kind], spoke_config)) as spoke,
    ):
        lab = Lab(f"nats://127.0.0.1:{hub.port}")
        receiver = await lab.client("receiver")
        await receiver.subscribe("far", cb=lab.receive)
        await receiver.subscribe("hello", cb=answer)
        await lab.settle()
        lab.url = f"nats://127.0.0.1:{spoke.port}"
        publisher = await lab.client("publisher")
        await publisher.subscribe("traces", cb=lab.trace)
        while not await reaches(publisher):
            continue
        await lab.publish("far", publisher, Nats_Trace_Dest="traces", Nats_Trace_Only=only)
        while len(lab.traces) < 2:
            await lab.settle()
        for client in lab.clients:
            await client.close()
        return sorted(lab.traces, key=lambda trace: "hops" not in trace), lab.got


async def answer(message: Any) -> None:
    await message.respond(b"here")


async def reaches(client: Any) -> bool:
    """Whether the other end of the link is there already."""
    try:
        await client.request("hello", timeout=0.5)
    except nats.errors.Error:
        return False
    return True


SHARING = """
accounts {
  A { users: [{ user: a, password: a }]
      imports: [
        { service: { account: B, subject: "seen.svc" }, to: "ask" }
        { service: { account: B, subject: "hidden.svc" } }
        { service: { account: B, subject: "seen.chain" } }
      ]
      exports: [{ stream: "out.>" }] }
  B { users: [{ user: b, password: b }]
      exports: [{ service: "seen.svc", allow_trace: true }, { service: "hidden.svc" },
                { service: "seen.chain", allow_trace: true }]
      imports: [
        { stream: { account: A, subject: "out.seen" }, to: "in.seen", allow_trace: true }
        { stream: { account: A, subject: "out.hidden" } }
        { service: { account: C, subject: "end" }, to: "seen.chain" }
      ] }
  C { users: [{ user: c, password: c }], exports: [{ service: "end", allow_trace: true }] }
}
"""


@pytest.mark.parametrize("only", ["false", "true"])
async def test_a_trace_crosses_to_other_accounts_where_that_is_allowed(only: str) -> None:
    found = []
    for kind, command in COMMANDS.items():
        with Server(Recipe(kind, command, SHARING)) as server:
            lab = Lab(f"nats://127.0.0.1:{server.port}")
            publisher = await lab.client("publisher")
            await publisher.subscribe("traces", cb=lab.trace)
            await publisher.subscribe("out.*", cb=lab.receive)
            for user, subjects in (
                ("b", ("seen.svc", "hidden.svc", "in.seen", "out.hidden")),
                ("c", ("end",)),
            ):
                other = await lab.client(user, user)
                for subject in subjects:
                    await other.subscribe(subject, cb=lab.receive)
            await lab.settle()
            for subject in ("ask", "hidden.svc", "seen.chain", "out.seen", "out.hidden"):
                await lab.publish(
                    subject, publisher, Nats_Trace_Dest="traces", Nats_Trace_Only=only
                )
            found.append(lab)
            for client in lab.clients:
                await client.close()
    seen = same(found)
    assert len(seen.traces) == 5
    assert len(seen.got) == (0 if only == "true" else 7)
    kinds = [[event["type"] for event in trace["events"]] for trace in seen.traces]
    assert sum(events.count("si") for events in kinds) == 4
    assert sum(events.count("se") for events in kinds) == 2


async def test_other_nodes_tell_of_what_crossed() -> None:
    """Their events come back by the crossing."""
    seen = []
    for kind, command in COMMANDS.items():
        ports = free_port(), free_port()
        configs = [
            SHARING + f'cluster {{ name: c, listen: "127.0.0.1:{ports[n]}", pool_size: -1, '
            f'routes: ["nats-route://127.0.0.1:{ports[1 - n]}"] }}\n'
            for n in (0, 1)
        ]
        with ExitStack() as stack:
            one, two = (stack.enter_context(Server(Recipe(kind, command, c))) for c in configs)
            lab = Lab(f"nats://127.0.0.1:{two.port}")
            service = await lab.client("service", "b")
            await service.subscribe("seen.svc", cb=answer)
            lab.url = f"nats://127.0.0.1:{one.port}"
            publisher = await lab.client("publisher")
            await publisher.subscribe("traces", cb=lab.trace)
            while True:
                try:
                    await publisher.request("ask", timeout=0.5)
                    break
                except nats.errors.Error:
                    continue
            await lab.publish("ask", publisher, Nats_Trace_Dest="traces")
            while len(lab.traces) < 2:
                await lab.settle()
            for client in lab.clients:
                await client.close()
        kinds = sorted([event["type"] for event in trace["events"]] for trace in lab.traces)
        seen.append(kinds)
    assert seen[0] == seen[1] == [["in", "eg"], ["in", "eg", "si"]]
