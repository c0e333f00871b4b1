"""What an account's token grants, enforced as nats-server does it, on both servers."""

import select
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.servers import Recipe, Server, free_port
from headwater.security.claims import (
    Export,
    Import,
    JetStreamTier,
    SigningScope,
    UserLimits,
)
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, recipe

REFUSED = ["-ERR 'Authorization Violation'"]
FULL = ["-ERR 'maximum account active connections exceeded'"]
EXPIRED = ["-ERR 'Account Authentication Expired'"]
JETSTREAM = 'jetstream { store_dir: "{dir}" }'


def limited(**limits: Any) -> Realm:
    """A realm whose account A has these limits."""
    realm = Realm()
    for field, value in limits.items():
        setattr(realm.bodies["A"].limits, field, value)
    return realm


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("conn", [0, 2])
def test_connections(name: str, conn: int) -> None:
    realm = limited(conn=conn)
    with Server(recipe(name, realm.config())) as server:
        clients = [Raw(server.port) for _ in range(conn + 1)]
        answers = [client.login(realm.user()) for client in clients]
        assert answers == [[]] * conn + [FULL]
        with Raw(server.port) as other:
            assert other.login(realm.user("B")) == []
        if conn:
            clients[0].close()
            with Raw(server.port) as again:
                assert again.login(realm.user()) == []
        for client in clients:
            client.close()


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("subs", "own"), [(1, -1), (5, 1), (1, 5)])
def test_subscriptions(name: str, subs: int, own: int) -> None:
    realm = limited(subs=subs)
    lowest = min(limit for limit in (subs, own) if limit >= 0)
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as client:
        assert client.login(realm.user(subs=own)) == []
        for number in range(lowest):
            assert client.send(f"SUB a.{number} {number}\r\n") == []
        assert client.send("SUB b 99\r\n") == ["-ERR 'maximum subscriptions exceeded'"]


@pytest.mark.parametrize("name", SERVERS)
def test_a_template_without_limits_limits_nothing(name: str) -> None:
    """As nsc writes it when a role is made."""
    realm, key = Realm(), KeyPair.create("A")
    realm.bodies["A"].signing_keys = [SigningScope(key=key.public_key, template=UserLimits())]
    user = realm.user(signer=key, subs=0, data=0, payload=0)
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as client:
        assert client.login(user) == []
        assert client.send("SUB a 1\r\nPUB b 1\r\nx\r\n") == []


@pytest.mark.parametrize("name", SERVERS)
def test_no_subscriptions_at_all(name: str) -> None:
    realm = limited(subs=0)
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as client:
        assert client.login(realm.user()) + client.rest() == [
            "-ERR 'maximum subscriptions exceeded'"
        ]


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("payload", "own"), [(8, -1), (100, 8), (8, 100)])
def test_payload(name: str, payload: int, own: int) -> None:
    realm = limited(payload=payload)
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as client:
        assert client.login(realm.user(payload=own)) == []
        assert client.send("PUB a 8\r\n12345678\r\n") == []
        assert client.send("PUB a 9\r\n123456789\r\n") == ["-ERR 'Maximum Payload Violation'"]


@pytest.mark.parametrize("name", SERVERS)
def test_a_user_may_not_send_more_than_the_server_takes(name: str) -> None:
    realm = Realm()
    config = realm.config("max_payload: 8")
    with Server(recipe(name, config)) as server, Raw(server.port) as client:
        assert client.login(realm.user(payload=100)) == []
        assert client.send("PUB a 9\r\n123456789\r\n") == ["-ERR 'Maximum Payload Violation'"]


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("what", ["imports", "exports", "wildcards"])
def test_a_token_beyond_its_own_limits_is_not_in_force(name: str, what: str) -> None:
    realm = Realm()
    body = realm.bodies["A"]
    body.exports = [Export(subject="a.*", type="stream")]
    if what == "imports":
        body.imports = [Import(account=realm.account("B"), subject="b", type="stream")]
    if what == "wildcards":
        body.limits.exports, body.limits.wildcards = 5, False
    else:
        setattr(body.limits, what, 0)
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as client:
        assert client.login(realm.user()) == REFUSED


def test_data_in_both_directions() -> None:
    """No other server counts the bytes that a token allows."""
    realm = limited(data=100)
    with Server(recipe("headwater", realm.config())) as server, Raw(server.port) as client:
        client.login(realm.user())
        assert client.send("SUB a 1\r\nPUB a 50\r\n" + "x" * 50 + "\r\n") != []
        assert client.send("PUB b 1\r\n1\r\n") in ([], ["-ERR 'maximum data exceeded'"])
        assert client.rest()[-1:] in ([], ["-ERR 'maximum data exceeded'"])


@pytest.mark.parametrize("name", SERVERS)
def test_an_account_that_expires_ends_its_sessions(name: str) -> None:
    realm = Realm()
    end = int(time.time()) + 3
    realm.expires["A"] = end
    leaf = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{leaf}' }}"
    with Server(recipe(name, realm.config(extra))) as server, Raw(leaf) as link:
        client, other = Raw(server.port), Raw(server.port)
        assert client.login(realm.user()) == []
        assert not any("-ERR" in line for line in link.link(realm.user()))
        assert other.login(realm.user("B")) == []
        assert client.rest() == EXPIRED
        assert end - 1 <= time.time() < end + 2
        assert link.rest()[-1:] == EXPIRED
        assert other.send() == []
        with Raw(server.port) as late:
            assert late.login(realm.user())[0].startswith("-ERR")
        client.close()
        other.close()


@pytest.mark.parametrize("name", SERVERS)
def test_leafs(name: str) -> None:
    realm = limited(leaf=1)
    port = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    with Server(recipe(name, realm.config(extra))), Raw(port) as first, Raw(port) as second:
        assert not any("-ERR" in line for line in first.link(realm.user(), name="one"))
        assert FULL[0] in second.link(realm.user(), name="two")


@pytest.mark.parametrize("name", SERVERS)
def test_a_leaf_ends_with_its_user(name: str) -> None:
    realm = Realm()
    port = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    with Server(recipe(name, realm.config(extra))), Raw(port) as link:
        lines = link.link(realm.user(exp=int(time.time()) + 2))
        assert not any("-ERR" in line for line in lines)
        assert link.rest()[-1:] == ["-ERR 'User Authentication Expired'"]


@pytest.mark.parametrize("name", SERVERS)
def test_limits_of_a_leafs_account_and_user(name: str) -> None:
    realm = limited(payload=8)
    port = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    with Server(recipe(name, realm.config(extra))), Raw(port) as link:
        assert not any("-ERR" in line for line in link.link(realm.user(subs=2)))
        answers = [line for i in range(4) for line in link.send(f"LS+ a.{i}\r\n")]
        assert "-ERR 'maximum subscriptions exceeded'" in answers
        # A PONG overtakes what was said before it.
        assert not any("Payload" in line for line in link.send("LMSG a 8\r\n12345678\r\n"))
        assert "-ERR 'Maximum Payload Violation'" in link.send("LMSG a 9\r\n123456789\r\n")


@pytest.fixture(scope="module", params=SERVERS)
def jetstream(request: pytest.FixtureRequest) -> Iterator[tuple[Realm, int]]:
    """A: overall limits; B: tiers; C: memory only; N: none."""
    realm = Realm(more="CDN")
    a = realm.bodies["A"].limits
    a.mem_storage, a.disk_storage = 1000, 100_000
    a.streams, a.consumer, a.max_ack_pending = 2, 1, 10
    a.disk_max_stream_bytes, a.max_bytes_required = 50_000, True
    realm.bodies["B"].limits.tiered_limits = {
        "R1": JetStreamTier(disk_storage=100_000, mem_storage=0, streams=1, consumer=-1),
        "R3": JetStreamTier(disk_storage=5, mem_storage=5, streams=1, consumer=1),
    }
    realm.bodies["C"].limits.mem_storage = -1
    realm.bodies["D"].limits.tiered_limits = {"R3": JetStreamTier(disk_storage=5, streams=1)}
    with Server(recipe(request.param, realm.config(JETSTREAM))) as server:
        yield realm, server.port


def stream(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"], "storage": "file", **fields}


def code(answer: dict[str, Any]) -> int:
    """The error's code; 0 without."""
    return int(answer.get("error", {}).get("err_code", 0))


def test_jetstream_is_as_granted(jetstream: tuple[Realm, int]) -> None:
    realm, port = jetstream
    found = {}
    for name in "ABCDN":
        with Raw(port) as client:
            assert client.login(realm.user(name)) == []
            answer = client.request("$JS.API.INFO")
            answer.pop("api", None)
            found[name] = answer
    assert found["N"]["error"]["err_code"] == 10039
    assert found["A"]["limits"] == {
        "max_memory": 1000,
        "max_storage": 100_000,
        "max_streams": 2,
        "max_consumers": 1,
        "max_ack_pending": 10,
        "memory_max_stream_bytes": -1,
        "storage_max_stream_bytes": 50_000,
        "max_bytes_required": True,
    }
    assert "tiers" not in found["A"]
    assert found["B"]["limits"]["max_storage"] == 0
    assert found["B"]["tiers"]["R1"]["limits"]["max_storage"] == 100_000
    assert found["B"]["tiers"]["R3"]["limits"]["max_streams"] == 1
    assert found["C"]["limits"]["max_memory"] == -1
    assert found["C"]["limits"]["max_storage"] == 0


def test_jetstream_limits_are_enforced(jetstream: tuple[Realm, int]) -> None:
    realm, port = jetstream
    with Raw(port) as client:
        client.login(realm.user("A"))

        def create(name: str, **fields: Any) -> int:
            return code(client.request(f"$JS.API.STREAM.CREATE.{name}", stream(name, **fields)))

        assert create("s0") == 10113
        assert create("s1", max_bytes=60_000) == 10122
        assert create("s2", max_bytes=2000, storage="memory") == 10028
        assert create("s3", max_bytes=40_000) == 0
        assert create("s4", max_bytes=40_000) == 0
        assert create("s5", max_bytes=100) == 10027
        consumer = {"stream_name": "s3", "config": {"durable_name": "d", "ack_policy": "explicit"}}
        made = client.request("$JS.API.CONSUMER.DURABLE.CREATE.s3.d", consumer)
        assert made["config"]["max_ack_pending"] == 10
        consumer["config"] = {"durable_name": "e", "ack_policy": "explicit"}
        made = client.request("$JS.API.CONSUMER.DURABLE.CREATE.s3.e", consumer)
        assert code(made) == 10026
        assert code(client.request("$JS.API.STREAM.DELETE.s4")) == 0
        assert create("s6", max_bytes=50_000, max_consumers=2) == 10026


def test_tiers_are_enforced(jetstream: tuple[Realm, int]) -> None:
    realm, port = jetstream
    with Raw(port) as client:
        client.login(realm.user("B"))

        def create(name: str, **fields: Any) -> int:
            return code(client.request(f"$JS.API.STREAM.CREATE.{name}", stream(name, **fields)))

        assert create("m", storage="memory") == 10028
        assert create("t0", max_bytes=200_000) == 10047
        assert create("t1", max_bytes=60_000) == 0
        assert create("t2", max_bytes=10) == 10027
        info = client.request("$JS.API.INFO")
        assert (info["streams"], info["reserved_storage"]) == (1, 60_000)
        assert info["tiers"]["R1"]["streams"] == 1
        assert info["tiers"]["R1"]["reserved_storage"] == 60_000
    with Raw(port) as client:
        client.login(realm.user("D"))
        assert create("u") == 10120
    with Raw(port) as client:
        client.login(realm.user("C"))
        assert create("f") == 10047
        assert create("g", storage="memory") == 0


ACCOUNTS = """
accounts {{
  A {{ users: [{{user: a, password: a}}], limits {{ max_connections: {limit} }} }}
  B {{ users: [{{user: b, password: b}}] }}
}}
"""


@pytest.mark.parametrize("name", SERVERS)
def test_a_reload_that_lowers_a_limit_ends_the_newest(name: str, tmp_path: Any) -> None:
    path = tmp_path / "accounts.conf"
    path.write_text(ACCOUNTS.format(limit=3))
    start = recipe(name, "").command
    command = (*start, "-c", str(path), "-a", "127.0.0.1", "-p", "{port}")
    with Server(Recipe(name, command)) as server:
        clients = [Raw(server.port) for _ in range(3)]
        for client in clients:
            assert client.login(user="a", **{"pass": "a"}) == []
        path.write_text(ACCOUNTS.format(limit=1))
        server.signal(signal.SIGHUP)
        ended: list[Raw] = []
        while len(ended) < 2:
            waiting = [client for client in clients if client not in ended]
            ready, _, _ = select.select([client.socket for client in waiting], [], [], 5)
            assert ready
            for client in waiting:
                if client.socket in ready:
                    assert client.rest() == FULL
                    ended.append(client)
        [left] = [client for client in clients if client not in ended]
        assert left.send() == []
        if name == "headwater":
            assert left is clients[0]
        for client in clients:
            client.close()
