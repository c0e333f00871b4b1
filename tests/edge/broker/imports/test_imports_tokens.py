"""Imports, exports and mappings out of account tokens (operator mode), on both servers."""

import time
from collections.abc import Iterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from bench.servers import Recipe, Server, program
from headwater.security import creds, jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    ActivationBody,
    ActivationClaims,
    Export,
    Import,
    OperatorClaims,
    UserBody,
    UserClaims,
    WeightedMapping,
)
from headwater.security.nkeys import KeyPair
from tests.measuring import slowness
from tests.operator_realm import SERVERS, Raw, User, recipe
from tests.waiting import until_seen


class Place:
    """An operator's three accounts: B offers to A, S is the system's."""

    def __init__(self) -> None:
        self.operator = KeyPair.create("O")
        self.keys = {name: KeyPair.create("A") for name in "ABS"}
        self.a, self.b = self.keys["A"].public_key, self.keys["B"].public_key
        activation = jwt.encode(
            ActivationClaims(sub=self.a, nats=ActivationBody(subject="closed.one", kind="service")),
            self.keys["B"],
        )
        self.bodies = {
            "A": AccountBody(
                imports=[
                    self.take("service", "svc.*", local_subject="here.*"),
                    Import(account=self.b, subject="old", to="svc.old", type="service"),
                    self.take("service", "closed.one", token=activation),
                    self.take("service", "closed.three"),
                    self.take("service", f"mine.{self.a}"),
                    self.take("service", "none"),
                    self.take("stream", "events.>", to="b"),
                    self.take("stream", "pub.*", local_subject="got.$1"),
                ]
            ),
            "B": AccountBody(
                exports=[
                    Export(subject="svc.*", type="service", response_type="Singleton"),
                    Export(subject="closed.*", type="service", token_req=True),
                    Export(subject="mine.*", type="service", account_token_position=2),
                    Export(subject="events.>", type="stream"),
                    Export(subject="pub.*", type="stream"),
                ],
                mappings={"before": [WeightedMapping(subject="after", weight=100)]},
            ),
            "S": AccountBody(),
        }

    def take(self, kind: str, subject: str, **more: str) -> Import:
        return Import(account=self.b, subject=subject, type=kind, **more)

    def config(self) -> str:
        tokens = []
        for name, body in self.bodies.items():
            body.limits = AccountLimits.unlimited()
            key = self.keys[name].public_key
            token = jwt.encode(AccountClaims(sub=key, name=name, nats=body), self.operator)
            tokens.append(f"  {key}: {token}")
        operator = jwt.encode(OperatorClaims(sub=self.operator.public_key), self.operator)
        preload = "\n".join(tokens)
        return (
            f"operator: {operator}\nsystem_account: {self.keys['S'].public_key}\n"
            f"resolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n"
        )

    def user(self, account: str) -> User:
        """A user of an account."""
        pair = KeyPair.create("U")
        claims = UserClaims(sub=pair.public_key, name="u", nats=UserBody.unlimited())
        return User(pair, jwt.encode(claims, self.keys[account]))

    async def connect(self, url: str, account: str, folder: Path) -> Client:
        user = self.user(account)
        path = folder / f"{account}.creds"
        creds.write(path, user.token, user.pair.seed)
        return await nats.connect(
            url, user_credentials=str(path), allow_reconnect=False, connect_timeout=3
        )


async def settled(client: Client) -> None:
    """Wait until the server has acted on everything that the client has sent."""
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    await client.publish(inbox, b"")
    await subscription.next_msg(timeout=3)
    await subscription.unsubscribe()


@pytest.fixture(scope="module", params=["headwater", "nats-server"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Place, str]]:
    found = Place()
    command = (
        (program("headwater"), "serve")
        if request.param == "headwater"
        else (program("nats-server"),)
    )
    with Server(Recipe(request.param, command, found.config())) as server:
        yield found, f"nats://127.0.0.1:{server.port}"


async def test_services(place: tuple[Place, str], tmp_path: Path) -> None:
    found, url = place
    a = await found.connect(url, "A", tmp_path)
    b = await found.connect(url, "B", tmp_path)

    async def answer(message: Msg) -> None:
        await b.publish(message.reply, message.subject.encode())

    for subject in ("svc.*", "closed.*", "mine.*", "none"):
        await b.subscribe(subject, cb=answer)
    await settled(b)
    for local, remote in (
        ("here.x", "svc.x"),
        ("old", "svc.old"),
        ("closed.one", "closed.one"),
        (f"mine.{found.a}", f"mine.{found.a}"),
    ):
        assert (await a.request(local, timeout=2)).data == remote.encode()
    for local in ("svc.x", "closed.three", "none"):
        with pytest.raises(NoRespondersError):
            await a.request(local, timeout=2)
    await a.close()
    await b.close()


async def test_streams_and_mappings(place: tuple[Place, str], tmp_path: Path) -> None:
    found, url = place
    a = await found.connect(url, "A", tmp_path)
    b = await found.connect(url, "B", tmp_path)
    far, near = await a.subscribe(">"), await b.subscribe(">")
    await settled(a)
    for subject in ("events.x", "pub.y", "before", "end"):
        await b.publish(subject, subject.encode())
    await b.publish("events.end", b"")
    got = [(await far.next_msg(timeout=2)).subject for _ in range(4)]
    assert got[1:] == ["b.events.x", "got.y", "b.events.end"]
    heard = [(await near.next_msg(timeout=2)).subject for _ in range(4)]
    assert heard == ["events.x", "pub.y", "after", "end"]
    await a.close()
    await b.close()


def activated(place: Place, kind: str, subject: str, exp: int) -> Import:
    """What A takes of B by a token that ends."""
    claims = ActivationClaims(sub=place.a, exp=exp, nats=ActivationBody(subject=subject, kind=kind))
    return place.take(kind, subject, token=jwt.encode(claims, place.keys["B"]))


@pytest.mark.parametrize("name", SERVERS)
def test_an_activation_that_expires_ends_its_imports(name: str) -> None:
    """They were in force until an account's token changed, or for ever."""
    found = Place()
    # A server is started before, and seen to share.
    ends = int(time.time() + 3 * slowness(time.monotonic)) + 1
    found.bodies["A"].imports = [
        activated(found, "service", "closed.one", ends),
        activated(found, "service", "closed.two", ends + 3600),
        activated(found, "stream", "feed", ends),
    ]
    found.bodies["B"].exports = [
        Export(subject="closed.*", type="service", token_req=True),
        Export(subject="feed", type="stream", token_req=True),
    ]
    with Server(recipe(name, found.config())) as server:
        a, b = Raw(server.port), Raw(server.port)
        assert a.login(found.user("A")) == [] == b.login(found.user("B"))
        assert b.send("SUB closed.* 1\r\n") == [] == a.send("SUB feed 1\r\n")

        def heard() -> list[bool]:
            """Whether each of the two services is asked, and the stream is heard."""
            a.send("PUB closed.one 1\r\n1\r\nPUB closed.two 1\r\n2\r\n")
            asked = b.send("PUB feed 1\r\n3\r\n")
            return ["1" in asked, "2" in asked, "3" in a.send()]

        assert heard() == [True, True, True]
        assert time.time() < ends
        until_seen(lambda: heard() == [False, True, False], "the token has ended")
        assert time.time() >= ends
        a.close()
        b.close()
