"""What may be published, on which reply, and under which other name: the same on both servers."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Recipe, Server, program
from headwater.edge.broker.account import Account
from headwater.edge.broker.authorize import is_reserved
from headwater.edge.kernel.kernel import CallbackSink, Kernel

CONFIG = """
jetstream { store_dir: store, domain: hub }
accounts {
  A { jetstream: enabled
      users: [
        {user: all, password: p}
        {user: denied, password: p, permissions: {publish: {deny:
          ["$JS.API.STREAM.DELETE.>", "$KV.secret.>", "$OBJ.secret.>"]}}}
        {user: alias, password: p, permissions: {publish: "$JS.hub.API.>"}}
        {user: plain, password: p, permissions: {publish: "$JS.API.>"}}
      ]
      imports: [{service: {account: B, subject: "svc"}}]
  }
  B { jetstream: enabled, users: [{user: b, password: p}]
      exports: [{service: "svc"}] }
}
"""


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    command = (program(request.param),) + (("serve",) if request.param == "headwater" else ())
    with Server(Recipe(request.param, command, CONFIG)) as server:
        yield server.port


class Wire:
    """A raw connection of a user."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 5)
        options = {"verbose": False, "user": name, "pass": "p"}
        self.say(b"CONNECT " + json.dumps(options).encode() + b"\r\n")

    def say(self, data: bytes) -> str:
        """What is answered until everything was looked at."""
        self.socket.sendall(data + b"PING\r\n")
        heard = b""
        while not heard.endswith(b"PONG\r\n"):
            part = self.socket.recv(65536)
            assert part, heard
            heard += part
        return heard.removesuffix(b"PONG\r\n").decode()

    def publish(self, subject: str, reply: str = "") -> str:
        """What an empty message is answered by."""
        return self.say(f"PUB {subject} {reply} 0\r\n\r\n".encode())


@pytest.fixture
def login(port: int) -> Iterator[Callable[[str], Wire]]:
    wires: list[Wire] = []

    def connect(name: str) -> Wire:
        wires.append(Wire(port, name))
        return wires[-1]

    yield connect
    for wire in wires:
        wire.socket.close()


async def client(port: int, name: str) -> Client:
    return await nats.connect(f"nats://{name}:p@127.0.0.1:{port}", allow_reconnect=False)


DELETE = "$JS.hub.API.STREAM.DELETE.V"


@pytest.mark.parametrize(
    ("name", "subject", "allowed"),
    [
        ("denied", "$JS.API.STREAM.DELETE.V", False),
        ("denied", DELETE, False),
        ("denied", "$JS.hub.API.$KV.secret.k", False),
        ("denied", "$JS.hub.API.$OBJ.secret.k", False),
        ("denied", "$JS.hub.API.$KV.open.k", True),
        ("denied", "$JS.hub.API.STREAM.INFO.V", True),
        ("denied", "$JS.other.API.STREAM.DELETE.V", True),
        ("alias", "$JS.hub.API.STREAM.INFO.V", False),
        ("plain", "$JS.hub.API.STREAM.INFO.V", True),
        ("plain", "$JS.hub.API.CONSUMER.MSG.NEXT.V.c", True),
        ("plain", "$JS.hub.API.$KV.open.k", False),
    ],
)
def test_a_domain_alias_gives_no_other_rights(
    login: Callable[[str], Wire], name: str, subject: str, allowed: bool
) -> None:
    assert ("Permissions Violation" not in login(name).publish(subject)) == allowed


@pytest.mark.parametrize(
    "subject, heard",
    [
        ("$JS.hub.API.INFO", "$JS.API.INFO"),
        ("$JS.hub.API.STREAM.NAMES", "$JS.API.STREAM.NAMES"),
        ("$JS.hub.API.$KV.b.k", "$KV.b.k"),
        ("$JS.hub.API.ELSE.x", "$JS.hub.API.ELSE.x"),
        ("$JS.hub.OTHER", "$JS.hub.OTHER"),
        ("$JS.other.API.INFO", "$JS.other.API.INFO"),
    ],
)
async def test_what_a_domain_stands_for_goes_under_its_own_name(
    port: int, login: Callable[[str], Wire], subject: str, heard: str
) -> None:
    """Who listens to all hears the subject that it was mapped to, once."""
    listener = await client(port, "all")
    messages = await listener.subscribe(">")
    await listener.flush()
    wire = login("all")
    wire.publish(subject)
    wire.publish("end")
    subjects: list[str] = []
    while "end" not in subjects:
        subjects.append((await messages.next_msg(5)).subject)
    subjects = [each for each in subjects if not each.startswith("$JS.EVENT.")]
    assert subjects == [heard, "end"]
    await listener.close()


async def test_the_denied_stream_is_still_there(port: int, login: Callable[[str], Wire]) -> None:
    every = await client(port, "all")
    await every.jetstream().add_stream(name="V", subjects=["v"])
    login("denied").publish(DELETE)
    assert (await every.jetstream().stream_info("V")).config.name == "V"
    await every.jetstream().delete_stream("V")
    await every.close()


@pytest.mark.parametrize("reply", ["$JS.ACK.S.C.1.1.1.1.0", "_R_.abc.def", "$JS.ACK.x"])
@pytest.mark.parametrize("name", ["all", "denied"])
def test_replies_that_only_servers_give(
    login: Callable[[str], Wire], name: str, reply: str
) -> None:
    wire = login(name)
    expected = f"-ERR 'Permissions Violation for Publish with Reply of \"{reply}\"'\r\n"
    assert wire.publish("anything", reply) == expected
    assert wire.publish("anything", "_INBOX.x") == ""


async def test_an_imported_service_acknowledges_nothing(
    port: int, login: Callable[[str], Wire]
) -> None:
    """Its requester names an ack subject of the exporting account as the reply."""
    owner = await client(port, "b")
    js = owner.jetstream()
    await js.add_stream(name="S", subjects=["s"])
    consumer = await js.pull_subscribe("s", durable="C", stream="S")
    await js.publish("s", b"x")
    message = (await consumer.fetch(1))[0]

    async def serve(request: Any) -> None:
        await request.respond(b"+ACK")

    await owner.subscribe("svc", cb=serve)
    await owner.flush()
    login("all").publish("svc", message.reply)
    await owner.flush()
    assert (await js.consumer_info("S", "C")).num_ack_pending == 1
    await js.delete_stream("S")
    await owner.close()


# --- what the node itself sends --------------------------------------------------------------


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.API.INFO",
        "$JS.hub.API.INFO",
        "$SYS.REQ.SERVER.PING",
        "$JS.ACK.S.C.1.1.1.1.0",
        "$JS.SNAPSHOT.RESTORE.S.x",
        "$NRG.V.g",
    ],
)
def test_reserved(subject: str) -> None:
    assert is_reserved(subject.encode())


@pytest.mark.parametrize(
    "subject",
    [
        "$JS.EVENT.ADVISORY.STREAM.CREATED.S",
        "$JS.FC.S.C.x",
        "$JSC.R.x",
        "_R_.x.y",
        "$KV.b.k",
        "$JS",
        "$JS.",
        "$JS.API",
        "$SYS",
        "api",
        "$JS.M.x",
        "",
    ],
)
def test_not_reserved(subject: str) -> None:
    assert not is_reserved(subject.encode())


async def test_what_the_node_sends_is_guarded() -> None:
    account = Account("A", Kernel(asyncio.get_running_loop()))
    got: list[bytes] = []
    account.insert(CallbackSink(b">", lambda subject, *_: got.append(subject)))
    for subject, reply in [
        (b"a b", b""),
        (b"a\r\nPING", b""),
        (b"", b""),
        (b"ok", b"r\n"),
        (b"x" * 40_000, b""),
        (b"aaaaaaaa\x7f", b""),
        (b"aaaaaaaaaaaa\x1faaaaaaaaa", b""),
        (b"$JS.API.INFO", b""),
    ]:
        account.send(subject, json.dumps({}).encode(), reply)
    assert got == [] and account.refused == 8
    account.send(b"gr\xc3\xbc\xc3\x9fe.aus.berlin", b"", b"_INBOX.a")
    account.send(b"$SYS.SERVER.N.STATSZ", b"", own=True)
    assert got == [b"gr\xc3\xbc\xc3\x9fe.aus.berlin", b"$SYS.SERVER.N.STATSZ"]


@pytest.mark.parametrize(("subject", "queue"), [(b"a b", None), (b"a\n", None), (b"a", b"q\r")])
async def test_interest_is_clean(subject: bytes, queue: bytes | None) -> None:
    account = Account("A", Kernel(asyncio.get_running_loop()))
    with pytest.raises(ValueError, match="makes no subject"):
        account.insert(CallbackSink(subject, print, queue))


async def test_a_consumer_on_a_reserved_subject_reaches_clients_alone(port: int) -> None:
    """Whoever listens there gets its messages; no service hears them."""
    client = await nats.connect(f"nats://all:p@127.0.0.1:{port}")
    js = client.jetstream()
    for name in ("RESERVED", "V"):
        await js.add_stream(name=name, subjects=[f"{name.lower()}.>"])
    for subject in ("$JS.API.STREAM.DELETE.V", "$JS.API.zzz", "$SYS.zzz", "$JS.ACK.x.y"):
        heard = await client.subscribe(subject)
        config = {"deliver_subject": subject, "ack_policy": "none", "deliver_policy": "new"}
        body = json.dumps({"stream_name": "RESERVED", "config": config}).encode()
        made = await client.request("$JS.API.CONSUMER.CREATE.RESERVED", body)
        assert "error" not in json.loads(made.data)
        await js.publish("reserved.x", b"hi")
        assert (await heard.next_msg(5)).data == b"hi"
        await heard.unsubscribe()
    assert (await js.stream_info("V")).config.name == "V"
    for name in ("RESERVED", "V"):
        await js.delete_stream(name)
    await client.close()
