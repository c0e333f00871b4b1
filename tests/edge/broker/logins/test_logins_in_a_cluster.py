"""What is said on one server of a cluster ends sessions and decides on logins on the other one."""

import asyncio
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, free_port
from headwater.security import jwt
from headwater.security.claims import (
    ActivationBody,
    ActivationClaims,
    Export,
    Import,
    SigningScope,
    SubjectPermission,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.nkeys import KeyPair
from tests.edge.broker.logins.test_auth_callout import (
    ADMITTED,
    CONFIG,
    REFUSED,
    Service,
    login,
    serving,
)
from tests.edge.broker.logins.test_live_sessions import from_file
from tests.edge.system.test_account_claims import Admin
from tests.edge.system.test_deleted_accounts import starts
from tests.operator_realm import SERVERS, Raw, Realm, User, recipe
from tests.waiting import until, until_seen

PAIRS = [(first, second) for first in SERVERS for second in SERVERS]
both_kinds = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


@contextmanager
def cluster(realm: Realm, pair: tuple[str, str], folder: Path) -> Iterator[tuple[Server, Server]]:
    """Two servers with a directory of tokens each, once each hears the other."""
    first, second = starts(realm, pair, folder)
    with Server(first) as here, Server(second) as there:
        until_seen(lambda: heard(realm, here, there), "a route")
        yield here, there


def heard(realm: Realm, here: Server, there: Server) -> bool:
    """Whether each server hears the other in the system account."""
    with Raw(here.port) as near, Raw(there.port) as far:
        near.login(realm.user("S"))
        far.login(realm.user("S"))
        return all(
            one.request(f"$SYS.REQ.SERVER.{other.info['server_id']}.IDZ", seconds=0.5)
            for one, other in ((near, far), (far, near))
        )


def push(realm: Realm, server: Server, name: str, later: int = 1) -> None:
    """Push the account's token as it is now, issued so many seconds from now."""
    answer = Admin(realm, server.port).push(realm.token(name, int(time.time()) + later))
    assert answer["data"]["code"] == 200, answer


@both_kinds
def test_revocation_expiry_and_keys_that_are_taken_away(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    realm = Realm()
    key = KeyPair.create("A")
    template = UserLimits(pub=SubjectPermission(allow=["only.this"]))
    realm.bodies["A"].signing_keys = [SigningScope(key=key.public_key, template=template)]
    with cluster(realm, pair, tmp_path) as (here, there):
        revoked, kept = realm.user("B"), realm.user("B")
        own = KeyPair.create("U")
        body = UserBody(issuer_account=realm.account("A"))
        claims = UserClaims(sub=own.public_key, name="u", nats=body)
        scoped = User(own, jwt.encode(claims, key))
        with Raw(there.port) as one, Raw(there.port) as two, Raw(there.port) as three:
            assert one.login(revoked) == [] == two.login(kept)
            assert three.login(scoped) == []
            assert three.send("PUB only.this 0\r\n\r\n") == []
            assert three.send("PUB other 0\r\n\r\n") == ADMITTED
            realm.bodies["B"].revocations = {revoked.pair.public_key: int(time.time()) + 10}
            push(realm, here, "B")
            assert one.rest() == ["-ERR 'User Authentication Revoked'"]
            assert two.send() == []
            realm.bodies["A"].signing_keys = []
            push(realm, here, "A")
            three.rest()
            realm.expires["B"] = int(time.time()) + 3
            push(realm, here, "B", 2)
            assert two.rest() == ["-ERR 'Account Authentication Expired'"]
        for user in (revoked, kept, scoped):
            with Raw(there.port) as again:
                assert again.login(user) == REFUSED


@both_kinds
def test_a_bearer_needs_no_signature_until_the_account_forbids_it(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    realm = Realm()
    bearer, plain = realm.user("B", bearer_token=True), realm.user("B")
    with cluster(realm, pair, tmp_path) as (here, there):
        for server in (here, there):
            with Raw(server.port) as client, Raw(server.port) as other:
                assert client.login(jwt=bearer.token) == []
                assert other.login(jwt=plain.token) == REFUSED
        held = Raw(there.port)
        held.login(jwt=bearer.token)
        realm.bodies["B"].limits.disallow_bearer = True
        push(realm, here, "B")
        assert held.rest() == REFUSED
        for server in (here, there):
            with Raw(server.port) as client, Raw(server.port) as other:
                assert client.login(jwt=bearer.token) == REFUSED
                assert other.login(plain) == []


@both_kinds
def test_one_server_is_asked_to_end_a_connection_of_the_other(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    realm = Realm()
    with cluster(realm, pair, tmp_path) as (here, there):
        admin = Admin(realm, here.port)
        with Raw(there.port) as victim, Raw(there.port) as other:
            assert victim.login(realm.user()) == [] == other.login(realm.user())
            kick = f"$SYS.REQ.SERVER.{victim.info['server_id']}.KICK"
            admin.raw.request(kick, {"cid": victim.info["client_id"]}, seconds=0.5)
            victim.rest()
            assert other.send() == []


USERS = """
accounts {{
  APP {{ users: [{{user: a, password: a}}, {more}] }}
  SYS {{ users: [{{user: s, password: s}}] }}
}}
system_account: SYS
server_name: n{at}
cluster {{ name: C, listen: '127.0.0.1:{own}', routes: ['nats://127.0.0.1:{other}'] }}
"""


def asked(port: int, subject: str) -> Any:
    """An answer to the system's user of `USERS`; None when none comes at once."""
    with Raw(port) as admin:
        admin.login(user="s", **{"pass": "s"})
        return admin.request(subject, seconds=0.5)


@both_kinds
def test_one_server_is_asked_to_read_its_configuration_again(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    ports = free_port(), free_port()
    path = tmp_path / "there.conf"
    gone = "{user: b, password: b}"
    first = USERS.format(at=0, own=ports[0], other=ports[1], more=gone)
    path.write_text(USERS.format(at=1, own=ports[1], other=ports[0], more=gone))
    with Server(recipe(pair[0], first)) as here, Server(from_file(pair[1], path)) as there:
        with Raw(there.port) as a, Raw(there.port) as b, Raw(here.port) as admin:
            assert a.login(user="a", **{"pass": "a"}) == []
            assert b.login(user="b", **{"pass": "b"}) == []
            assert admin.login(user="s", **{"pass": "s"}) == []
            path.write_text(USERS.format(at=1, own=ports[1], other=ports[0], more=""))
            name = b.info["server_id"]
            until_seen(lambda: asked(here.port, f"$SYS.REQ.SERVER.{name}.IDZ"), "a route")
            assert "error" not in admin.request(f"$SYS.REQ.SERVER.{name}.RELOAD")
            b.rest()
            assert a.send() == []
        with Raw(here.port) as b:
            assert b.login(user="b", **{"pass": "b"}) == []


def share(realm: Realm, revoked: int = 0) -> None:
    """B offers `svc` to who has an activation token, A takes it with one."""
    activation = ActivationClaims(
        sub=realm.account("A"), nats=ActivationBody(subject="svc", kind="service")
    )
    realm.bodies["B"].exports = [Export(name="svc", subject="svc", type="service", token_req=True)]
    if revoked:
        realm.bodies["B"].exports[0].revocations = {realm.account("A"): revoked}
    else:
        realm.bodies["A"].imports = [
            Import(
                name="svc",
                subject="svc",
                account=realm.account("B"),
                type="service",
                token=jwt.encode(activation, realm.keys["B"]),
            )
        ]


@both_kinds
def test_a_revoked_activation_ends_an_import_on_the_other_server(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    realm = Realm()
    share(realm)
    with cluster(realm, pair, tmp_path) as (here, there):
        asker, service = Raw(there.port), Raw(here.port)
        assert asker.login(realm.user("A")) == [] == service.login(realm.user("B"))
        assert service.send("SUB svc 1\r\n") == [] == asker.send("SUB back 1\r\n")

        def arrives() -> bool:
            asker.send("PUB svc back 2\r\nhi\r\n")
            came = bool(select.select([service.socket], [], [], 0.5)[0])
            if came:
                service.send()
            return came

        until_seen(arrives, "a request crosses the route")
        share(realm, revoked=int(time.time()) + 10)
        push(realm, here, "B")
        until_seen(lambda: not arrives(), "the import is in force no more")
        asker.close()
        service.close()


@pytest.mark.parametrize("encrypted", [False, True])
@both_kinds
async def test_who_decides_is_connected_to_the_other_server(
    pair: tuple[str, str], encrypted: bool
) -> None:
    """The callout's service is on the first server, who logs in comes to the second."""
    issuer, curve = KeyPair.create("A"), KeyPair.create("X") if encrypted else None
    ports = free_port(), free_port()
    configs = []
    for at in (0, 1):
        config = CONFIG.format(
            issuer=issuer.public_key, xkey=curve.public_key if curve else '""', leaf=free_port()
        )
        if curve is None:
            config = config.replace(', xkey: ""', "")
        configs.append(
            f"{config}server_name: n{at}\ncluster {{ name: C, listen: '127.0.0.1:{ports[at]}', "
            f"routes: ['nats://127.0.0.1:{ports[1 - at]}'] }}\n"
        )
    service = Service(issuer, curve)
    service.token = {"aud": "APP"}
    right: dict[str, Any] = {"user": "u", "pass": "right"}
    with Server(recipe(pair[0], configs[0])) as here, Server(recipe(pair[1], configs[1])) as there:
        async with serving(service, here.port, user="auth", password="auth"):

            async def admitted() -> bool:
                return await login(there.port, **right) == ADMITTED

            await until(admitted, "the question crosses the route")
            told = service.questions[-1].nats
            assert told["server_id"]["name"] == "n1"
            assert await login(there.port, user="u", **{"pass": "wrong"}) == REFUSED
            service.twist = {"server_id": {"id": KeyPair.create("N").public_key}}
            assert await login(there.port, **right) == REFUSED
            service.twist = {}
            assert await login(here.port, **right) == ADMITTED
        refused = asyncio.create_task(login(there.port, **right))
        assert await refused == REFUSED
