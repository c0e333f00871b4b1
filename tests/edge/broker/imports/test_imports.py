"""Imports and exports between accounts: the same scripts see the same on both servers."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.js.api import ConsumerConfig
from nats.js.errors import NotFoundError

from bench.servers import Recipe, Server, program
from tests.waiting import until, until_state

CONFIG = """
jetstream { store_dir: store }
accounts {
  B {
    jetstream: enabled
    users: [ {user: b, password: b}
             {user: shy, password: s, permissions: {subscribe: "svc.shy", publish: {deny: ">"}
                                                    allow_responses: true}} ]
    exports: [
      {service: "svc.>"}, {service: "swap.*.*"}, {service: "told"}, {service: "acc.*.q"
       account_token_position: 2}
      {service: "many", response_type: stream}, {service: "brief", threshold: "200ms"}
      {service: "secret", accounts: [A]}, {service: "orders.>"}, {service: "mapped"}
      {stream: "events.>"}, {stream: "pub.*.x"}, {stream: "lit"}, {stream: "orders.>"}
      {service: "$JS.API.>", response_type: stream}, {service: "$JS.ACK.>"}
      {service: "$JS.FC.>"}, {stream: "deliver.>"} ]
    mappings: { mapped: mapped.here }
  }
  A {
    users: [{user: a, password: a}]
    imports: [
      {service: {account: B, subject: "svc.>"}}
      {service: {account: B, subject: "swap.*.*"}, to: "local.$2.$1"}
      {service: {account: B, subject: "told"}, share: true}
      {service: {account: B, subject: "acc.A.q"}, to: "ask"}
      {service: {account: B, subject: "many"}}, {service: {account: B, subject: "brief"}}
      {service: {account: B, subject: "secret"}}, {service: {account: B, subject: "orders.>"}}
      {service: {account: B, subject: "mapped"}}
      {service: {account: D, subject: "svc.both"}}
      {stream: {account: B, subject: "events.>"}, prefix: "from.b"}
      {stream: {account: B, subject: "pub.*.x"}, to: "got.$1"}
      {stream: {account: B, subject: "lit"}, to: "litlocal"}
      {stream: {account: B, subject: "orders.>"}}
      {stream: {account: B, subject: "deliver.>"}}
      {service: {account: B, subject: "$JS.API.>"}}
      {service: {account: B, subject: "$JS.ACK.>"}}
      {service: {account: B, subject: "$JS.FC.>"}} ]
    exports: [ {stream: "from.b.>"}, {service: "svc.one"} ]
  }
  C {
    users: [{user: c, password: c}]
    imports: [ {stream: {account: A, subject: "from.b.>"}}
               {service: {account: A, subject: "svc.one"}, to: "chained"} ]
  }
  D { users: [{user: d, password: d}], exports: [{service: "svc.both"}] }
  E {
    jetstream: enabled
    users: [{user: e, password: e}]
    imports: [ {stream: {account: B, subject: "events.>"}, prefix: "kept"}
               {service: {account: B, subject: "$JS.API.>"}, to: "JS.B.API.>"} ]
  }
}
"""


def recipe(name: str, config: str) -> Recipe:
    command = (program("headwater"), "serve") if name == "headwater" else (program("nats-server"),)
    return Recipe(name, command, config)


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with Server(recipe(request.param, CONFIG)) as server:
        yield f"nats://127.0.0.1:{server.port}"


class Accounts:
    """One client per account, made when it is first used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clients: list[Client] = []

    async def __call__(self, user: str, **how: object) -> Client:
        client = await nats.connect(
            self.url, user=user, password=user[0], allow_reconnect=False, connect_timeout=3, **how
        )
        self.clients.append(client)
        return client

    async def __aenter__(self) -> "Accounts":
        return self

    async def __aexit__(self, *rest: object) -> None:
        for client in self.clients:
            await client.close()


async def settled(client: Client) -> None:
    """Wait until the server has acted on everything that the client has sent.

    An own message says so; a PONG may be that of an earlier PING.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(inbox, b"")
    await subscription.next_msg(timeout=3)
    await subscription.unsubscribe()


async def serve(client: Client, subject: str, queue: str = "") -> list[Msg]:
    seen: list[Msg] = []

    async def answer(message: Msg) -> None:
        seen.append(message)
        await client.publish(message.reply, b"ok " + message.subject.encode())

    await client.subscribe(subject, queue=queue, cb=answer)
    await settled(client)
    return seen


async def drained(subscription: Subscription, clients: list[Client]) -> list[tuple[str, bytes]]:
    for client in clients:
        await settled(client)
    found = []
    while subscription.pending_msgs:
        message = await subscription.next_msg()
        if not message.subject.startswith("_INBOX."):
            found.append((message.subject, message.data))
    return found


async def test_a_service_answers_and_is_told_who_asks(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        with pytest.raises(NoRespondersError):
            await a.request("svc.one", b"?", timeout=2)
        seen = await serve(b, "svc.one")
        headers = {"x": "y", "Nats-Request-Info": '{"acc":"forged"}'}
        answer = await a.request("svc.one", b"?", timeout=2, headers=headers)
        assert answer.data == b"ok svc.one"
        assert answer.subject.startswith("_INBOX.")
        request = seen[0]
        assert request.data == b"?"
        assert request.reply.startswith("_R_.")
        assert request.headers is not None
        assert request.headers["x"] == "y"
        info = json.loads(request.headers["Nats-Request-Info"])
        assert info.pop("rtt") > 0
        assert info == {"acc": "A"}


async def test_share_tells_everything(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a", name="asker"), await accounts("b")
        seen = await serve(b, "told")
        await a.request("told", b"?", timeout=2)
        assert seen[0].headers is not None
        info = json.loads(seen[0].headers["Nats-Request-Info"])
        names = [
            "start",
            "host",
            "id",
            "acc",
            "user",
            "name",
            "lang",
            "ver",
            "rtt",
            "server",
            "kind",
            "client_type",
        ]
        assert list(info) == names
        assert (info["acc"], info["user"], info["name"]) == ("A", "a", "asker")
        assert (info["kind"], info["client_type"]) == ("Client", "nats")


async def test_subjects_of_services(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        for subject in ("swap.*.*", "acc.*.q", "secret", "mapped.here"):
            await serve(b, subject)
        for local, remote in (
            ("local.p.q", b"swap.q.p"),
            ("ask", b"acc.A.q"),
            ("secret", b"secret"),
            ("mapped", b"mapped.here"),
        ):
            assert (await a.request(local, timeout=2)).data == b"ok " + remote


async def test_services_chain(url: str) -> None:
    async with Accounts(url) as accounts:
        b, c = await accounts("b"), await accounts("c")
        seen = await serve(b, "svc.one")
        assert (await c.request("chained", b"?", timeout=2)).data == b"ok svc.one"
        assert seen[0].headers is not None
        info = json.loads(seen[0].headers["Nats-Request-Info"])
        assert (info["acc"], info["svc"]) == ("C", "A")


async def test_a_queue_serves_once_and_two_accounts_both(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b, d = await accounts("a"), await accounts("b"), await accounts("d")
        lists = [await serve(b, "svc.q", "workers") for _ in range(2)]
        for _ in range(20):
            await a.request("svc.q", timeout=2)
        assert sum(map(len, lists)) == 20
        assert all(lists)
        lists = [await serve(b, "svc.both"), await serve(d, "svc.both")]
        assert (await a.request("svc.both", b"?", timeout=2)).data == b"ok svc.both"
        for client in (b, d):
            await settled(client)
        assert [len(seen) for seen in lists] == [1, 1]


async def test_kinds_of_responses(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")

        async def answer(message: Msg) -> None:
            for data in (b"1", b"2", b"", b"late"):
                await b.publish(message.reply, data)
            await settled(b)

        await b.subscribe("many", cb=answer)
        await b.subscribe("svc.many", cb=answer)
        await settled(b)
        inbox = await a.subscribe("answers.*")
        await a.publish("many", reply="answers.many")
        await a.publish("svc.many", reply="answers.one")
        await settled(a)
        await until(lambda: inbox.pending_msgs >= 4, "all answers")
        got = await drained(inbox, [a, b, a])
        assert sorted(got) == [
            ("answers.many", b""),
            ("answers.many", b"1"),
            ("answers.many", b"2"),
            ("answers.one", b"1"),
        ]


async def test_an_answer_may_come_too_late(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        requests = await b.subscribe("brief")
        await settled(b)
        inbox = await a.subscribe("brief.answers")
        await a.publish("brief", reply="brief.answers")
        await settled(a)
        first = await requests.next_msg(timeout=2)
        with pytest.raises(NatsTimeout):
            await inbox.next_msg(timeout=0.7)
        await b.publish(first.reply, b"late")
        await a.publish("brief", reply="brief.answers")
        await settled(a)
        second = await requests.next_msg(timeout=2)
        await b.publish(second.reply, b"in time")
        await settled(b)
        assert (await inbox.next_msg(timeout=2)).data == b"in time"


async def test_an_answer_to_an_answer(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        requests = await b.subscribe("svc.talk")
        back = await b.subscribe("talk.back")
        await settled(b)
        inbox = await a.subscribe("talk.inbox")
        await a.publish("svc.talk", b"1", reply="talk.inbox")
        await settled(a)
        request = await requests.next_msg(timeout=2)
        await b.publish(request.reply, b"2", reply="talk.back")
        await settled(b)
        answer = await inbox.next_msg(timeout=2)
        assert answer.reply.startswith("_R_.")
        await a.publish(answer.reply, b"3")
        await settled(a)
        assert (await back.next_msg(timeout=2)).data == b"3"


async def test_a_service_that_may_only_respond(url: str) -> None:
    async with Accounts(url) as accounts:
        a, shy = await accounts("a"), await accounts("shy")

        async def answer(message: Msg) -> None:
            await shy.publish(message.reply, b"yes")

        await shy.subscribe("svc.shy", cb=answer)

        async def asked() -> Msg | None:
            with contextlib.suppress(NoRespondersError):
                return await a.request("svc.shy", timeout=2)
            return None

        # It may not publish to itself, which would tell that the server knows its subscription.
        assert (await until(asked, "it is subscribed")).data == b"yes"


async def test_streams_bring_what_is_wanted(url: str) -> None:
    patterns = {
        "from.b.>": ["from.b.events.k.z", "from.b.events.other"],
        "from.*.events.*": ["from.b.events.other"],
        "from.b.events.k.>": ["from.b.events.k.z"],
        "*.b.*.*.z": ["from.b.events.k.z"],
        "got.*": ["got.bar", "got.foo"],
        "got.foo": ["got.foo"],
        "litlocal": ["litlocal"],
        "*": ["litlocal"],
        "events.>": [],
        ">": ["from.b.events.k.z", "from.b.events.other", "got.bar", "got.foo", "litlocal"],
    }
    async with Accounts(url) as accounts:
        a, b, c = [await accounts(name) for name in "abc"]
        subscriptions = {pattern: await a.subscribe(pattern) for pattern in patterns}
        chained = await c.subscribe("from.b.>")
        for client in (a, b, c):
            await settled(client)
        for subject in ("events.k.z", "events.other", "pub.foo.x", "pub.bar.x", "lit", "none"):
            await b.publish(subject, subject.encode(), reply="re.ply")
        for pattern, expected in patterns.items():
            got = await drained(subscriptions[pattern], [b, a])
            assert sorted(subject for subject, _ in got) == expected, pattern
        assert await drained(chained, [c]) == []


async def test_queue_groups_span_accounts(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        members = [
            await a.subscribe("got.foo", queue="q"),
            await b.subscribe("pub.foo.x", queue="q"),
        ]
        await settled(a)
        for _ in range(50):
            await b.publish("pub.foo.x", b"")
        counts = [len(await drained(member, [b, a])) for member in members]
        assert sum(counts) == 50
        assert all(counts)


async def test_interest_in_streams_ends(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        with pytest.raises(NoRespondersError):
            await b.request("pub.y.x", timeout=2)
        some = await a.subscribe("got.*")
        limited = await a.subscribe("got.y")
        await limited.unsubscribe(limit=2)
        await settled(a)
        with pytest.raises(NatsTimeout):
            await b.request("pub.y.x", timeout=0.1)
        for _ in range(3):
            await b.publish("pub.y.x", b"")
        assert len(await drained(some, [b, a])) == 4
        assert len(await drained(limited, [])) == 2
        await some.unsubscribe()
        await settled(a)
        with pytest.raises(NoRespondersError):
            await b.request("pub.z.x", timeout=2)


async def test_what_a_service_took_away_no_stream_brings_back(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        near, far = await a.subscribe("orders.x"), await b.subscribe("orders.x")
        await settled(b)
        await settled(a)
        await a.publish("orders.x", b"1")
        await settled(a)
        await b.publish("orders.x", b"2")
        assert sorted(await drained(near, [b, a])) == [("orders.x", b"1"), ("orders.x", b"2")]
        assert sorted(await drained(far, [b])) == [("orders.x", b"1"), ("orders.x", b"2")]


async def test_jetstream_of_another_account(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        there = b.jetstream(timeout=3)
        await there.add_stream(name="S", subjects=["orders.>", "loc"])
        js = a.jetstream(timeout=3)
        assert (await js.publish("orders.x", b"1", headers={"k": "v"})).seq == 1
        assert (await there.publish("loc", b"2")).seq == 2
        stored = await js.get_msg("S", 1)
        assert (stored.subject, stored.data, stored.headers) == ("orders.x", b"1", {"k": "v"})
        assert (await js.account_info()).streams == 1
        pull = await js.pull_subscribe("", "pull", stream="S")
        fetched = await pull.fetch(2, timeout=2)
        assert [(m.subject, m.data) for m in fetched] == [("orders.x", b"1"), ("loc", b"2")]
        for message in fetched:
            await message.ack_sync(timeout=2)
        assert (await there.consumer_info("S", "pull")).ack_floor.stream_seq == 2
        with pytest.raises(NatsTimeout):
            await pull.fetch(1, timeout=0.3)
        await there.delete_stream("S")


async def test_pushed_deliveries_of_another_account(url: str) -> None:
    async with Accounts(url) as accounts:
        a, b = await accounts("a"), await accounts("b")
        there = b.jetstream(timeout=3)
        await there.add_stream(name="P", subjects=["pushed"])
        config = ConsumerConfig(
            durable_name="push",
            deliver_subject="deliver.me",
            ack_policy="explicit",
            flow_control=True,
            idle_heartbeat=0.2,
        )
        await there.add_consumer("P", config)
        assert not (await there.consumer_info("P", "push")).push_bound
        count = 300
        got: list[bytes] = []
        done = asyncio.Event()

        async def take(message: Msg) -> None:
            if message.headers and "Status" in message.headers:
                if message.reply:
                    await a.publish(message.reply)
                return
            got.append(message.data)
            await a.publish(message.reply, b"+ACK")
            if len(got) == count:
                done.set()

        subscription = await a.subscribe("deliver.me", cb=take)
        await settled(a)
        for number in range(count):
            await b.publish("pushed", b"%d" % number)
        await asyncio.wait_for(done.wait(), 5)
        assert got == [b"%d" % number for number in range(count)]
        await settled(a)

        async def acked() -> Any:
            found = await there.consumer_info("P", "push")
            return None if found.num_ack_pending else found

        info = await until(acked, "all acks")
        assert info.ack_floor.stream_seq == count
        assert info.push_bound
        await subscription.unsubscribe()
        await settled(a)
        assert not (await there.consumer_info("P", "push")).push_bound
        await there.delete_stream("P")


async def test_both_an_own_jetstream_and_that_of_another_account(url: str) -> None:
    async with Accounts(url) as accounts:
        b, e = await accounts("b"), await accounts("e")
        there, own = b.jetstream(timeout=3), e.jetstream(timeout=3)
        far = e.jetstream(timeout=3, prefix="JS.B.API")
        await there.add_stream(name="T", subjects=["elsewhere"])
        await own.add_stream(name="K", subjects=["kept.>"])
        assert (await far.stream_info("T")).config.name == "T"
        assert (await own.stream_info("K")).config.name == "K"
        with pytest.raises(NotFoundError):
            await own.stream_info("T")
        for number in range(5):
            await b.publish(f"events.{number}", b"%d" % number)
        await settled(b)
        await settled(e)
        await until_state(own, "K", lambda state: state.last_seq == 5)
        stored = await own.get_msg("K", 3)
        assert (stored.subject, stored.data) == ("kept.events.2", b"2")
        assert (await own.publish("kept.x", b"")).seq == 6
        # The stream answers in its own account, where the publisher's inbox is nobody's.
        with pytest.raises(NatsTimeout):
            await b.request("events.ack", b"7", timeout=0.3)
        assert (await own.stream_info("K")).state.messages == 7
        await there.delete_stream("T")
        await own.delete_stream("K")
