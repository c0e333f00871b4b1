"""Account tokens pushed, looked up, listed and deleted while servers run, on both servers."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Recipe, Server, free_port
from headwater.security import jwt
from headwater.security.claims import AccountClaims, GenericClaims
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

REFUSED = ["-ERR 'Authorization Violation'"]
FULL = "{{ type: full, dir: '{}', allow_delete: true, interval: '1s', timeout: '1s' }}"


class Admin:
    """The system account's user."""

    def __init__(self, realm: Realm, port: int) -> None:
        self.raw = Raw(port)
        assert self.raw.login(realm.user("S")) == []

    def push(self, token: str, subject: str = "$SYS.REQ.CLAIMS.UPDATE") -> dict[str, Any]:
        answer: dict[str, Any] = self.raw.request(subject, token.encode())
        return answer

    def text(self, subject: str, payload: bytes = b"") -> str:
        """An answer that is no JSON."""
        head = f"SUB _INBOX.t 88\r\nPUB {subject} _INBOX.t {len(payload)}\r\n".encode()
        self.raw.socket.sendall(head + payload + b"\r\n")
        size = int(self.raw.file.readline().split()[-1])
        data = self.raw.file.read(size + 2)[:-2]
        self.raw.send("UNSUB 88\r\n")
        return data.decode()

    def delete(self, signer: KeyPair, *accounts: str) -> dict[str, Any]:
        claims = GenericClaims(sub=signer.public_key, nats={"accounts": list(accounts)})
        token = jwt.encode(claims, signer).encode()
        answer: dict[str, Any] = self.raw.request("$SYS.REQ.CLAIMS.DELETE", token)
        return answer


@pytest.fixture(params=SERVERS)
def full(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Realm, Recipe, Path]:
    realm = Realm()
    directory = tmp_path / "jwt"
    config = realm.config(resolver=FULL.format(directory))
    return realm, recipe(request.param, config), directory


def admitted(realm: Realm, port: int, name: str) -> bool:
    with Raw(port) as client:
        return client.login(realm.user(name)) == []


def test_push_look_up_list_and_delete(full: tuple[Realm, Recipe, Path]) -> None:
    realm, start, directory = full
    extra = realm.keys["N"] = KeyPair.create("A")
    realm.bodies["N"] = realm.bodies["B"]
    with Server(start) as server:
        admin = Admin(realm, server.port)
        assert not admitted(realm, server.port, "N")
        answer = admin.push(realm.token("N"))
        assert answer["data"] == {
            "account": extra.public_key, "code": 200, "message": "jwt updated",
        }
        assert admitted(realm, server.port, "N")
        assert admin.text(f"$SYS.REQ.ACCOUNT.{extra.public_key}.CLAIMS.LOOKUP").startswith("eyJ")
        unknown = KeyPair.create("A").public_key
        assert admin.text(f"$SYS.REQ.ACCOUNT.{unknown}.CLAIMS.LOOKUP") == ""
        listed = admin.raw.request("$SYS.REQ.CLAIMS.LIST")["data"]
        assert sorted(listed) == sorted(key.public_key for key in realm.keys.values())
        assert (directory / f"{extra.public_key}.jwt").read_text().startswith("eyJ")

        assert admin.push("nonsense")["error"]["code"] == 500
        wrong = admin.push(realm.token("N"), f"$SYS.REQ.ACCOUNT.{unknown}.CLAIMS.UPDATE")
        assert wrong["error"]["code"] == 500
        by_name = f"$SYS.REQ.ACCOUNT.{extra.public_key}.CLAIMS.UPDATE"
        assert admin.push(realm.token("N", int(time.time()) + 1), by_name)["data"]["code"] == 200

        for signer in (KeyPair.create("O"), realm.keys["N"]):
            assert "not trusted" in admin.delete(signer, extra.public_key)["error"]["description"]
        own = admin.delete(realm.operator, realm.account("S"))
        assert "system account" in own["error"]["description"]
        with Raw(server.port) as client:
            assert client.login(realm.user("N")) == []
            gone = admin.delete(realm.operator, extra.public_key)
            assert gone["data"] == {"code": 200, "message": "deleted 1 accounts"}
            assert client.rest()[-1].startswith("-ERR")
        assert not admitted(realm, server.port, "N")
        assert not (directory / f"{extra.public_key}.jwt").exists()


def test_what_was_pushed_lasts_and_acts_at_once(full: tuple[Realm, Recipe, Path]) -> None:
    realm, start, _ = full
    with Server(start) as server:
        admin = Admin(realm, server.port)
        first, second = Raw(server.port), Raw(server.port)
        user = realm.user("B")
        assert first.login(user) == []
        assert second.login(realm.user("B")) == []
        realm.bodies["B"].revocations = {user.pair.public_key: int(time.time()) + 10}
        admin.push(realm.token("B", int(time.time()) + 1))
        assert first.rest() == ["-ERR 'User Authentication Revoked'"]
        realm.bodies["B"].limits.conn = 0
        admin.push(realm.token("B", int(time.time()) + 2))
        assert second.rest() == ["-ERR 'maximum account active connections exceeded'"]
        server.stop()
        server.start()
        assert not admitted(realm, server.port, "B")
        assert admitted(realm, server.port, "A")


def test_a_token_that_no_operator_signed_is_not_taken(tmp_path: Path) -> None:
    """The real server keeps it, and refuses its users."""
    realm = Realm()
    config = realm.config(resolver=FULL.format(tmp_path / "jwt"))
    claims = AccountClaims(sub=KeyPair.create("A").public_key)
    with Server(recipe("headwater", config)) as server:
        admin = Admin(realm, server.port)
        answer = admin.push(jwt.encode(claims, KeyPair.create("O")))
        assert "trusted operator" in answer["error"]["description"]


def test_an_older_token_does_not_come_back(tmp_path: Path) -> None:
    """A token that was replaced could undo a revocation; the real server takes it."""
    realm = Realm()
    config = realm.config(resolver=FULL.format(tmp_path / "jwt"))
    old = realm.token("B", int(time.time()) - 100)
    with Server(recipe("headwater", config)) as server:
        admin = Admin(realm, server.port)
        assert "older" in admin.push(old)["error"]["description"]


@pytest.mark.parametrize("pair", [("headwater", "headwater"), ("headwater", "nats-server")])
def test_nodes_of_a_cluster_tell_one_another(pair: tuple[str, str], tmp_path: Path) -> None:
    realm = Realm()
    ports = [free_port(), free_port()]
    starts = []
    for index, name in enumerate(pair):
        resolver = FULL.format(tmp_path / f"jwt{index}")
        cluster = (
            f"server_name: n{index}\ncluster {{ name: C, listen: '127.0.0.1:{ports[index]}', "
            f"routes: ['nats://127.0.0.1:{ports[1 - index]}'] }}"
        )
        starts.append(recipe(name, realm.config(cluster, resolver)))
    realm.keys["N"], realm.bodies["N"] = KeyPair.create("A"), realm.bodies["B"]
    with Server(starts[0]) as first:
        Admin(realm, first.port).push(realm.token("N"))
        with Server(starts[1]) as second:
            until_seen(lambda: admitted(realm, second.port, "N"), "the other knows the account")


def test_memory_is_updated_and_a_reload_keeps_it(tmp_path: Path) -> None:
    realm = Realm()
    with Server(recipe("headwater", realm.config())) as server:
        admin = Admin(realm, server.port)
        realm.bodies["B"].limits.conn = 0
        assert admin.push(realm.token("B", int(time.time()) + 1))["data"]["code"] == 200
        assert not admitted(realm, server.port, "B")
        reload = f"$SYS.REQ.SERVER.{admin.raw.info['server_id']}.RELOAD"
        assert "error" not in json.dumps(admin.raw.request(reload))
        assert not admitted(realm, server.port, "B")


def test_a_directory_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    realm = Realm()
    (tmp_path / "file").write_text("")
    config = realm.config(resolver=FULL.format(tmp_path / "file" / "jwt"))
    with pytest.raises(Exception, match="resolver directory"), Server(recipe("headwater", config)):
        pass


