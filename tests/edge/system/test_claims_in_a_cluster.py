"""Requests about account tokens reach every server of a cluster, and each answers for itself."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server
from headwater.security.nkeys import KeyPair
from tests.edge.system.test_account_claims import Admin, admitted
from tests.edge.system.test_deleted_accounts import deletion, pushed, starts
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

PAIRS = [(first, second) for first in SERVERS for second in SERVERS]
both_kinds = pytest.mark.parametrize("pair", PAIRS, ids="-".join)


def answers(realm: Realm, port: int, subject: str, payload: bytes = b"") -> list[bytes]:
    """What both servers say to one request."""
    found = []
    with Raw(port) as admin:
        assert admin.login(realm.user("S")) == []
        head = f"SUB back 5\r\nPUB {subject} back {len(payload)}\r\n".encode()
        admin.socket.sendall(head + payload + b"\r\n")
        while len(found) < 2:
            line = admin.file.readline()
            assert line
            if line.startswith(b"MSG"):
                found.append(admin.file.read(int(line.split()[-1]) + 2)[:-2])
    return found


def judged(found: list[bytes]) -> list[dict[str, Any]]:
    """Answers by the name of the server, without what is about it and why it refused."""
    told = sorted((json.loads(text) for text in found), key=lambda each: each["server"]["name"])
    assert [each.pop("server")["name"] for each in told] == ["n0", "n1"]
    for each in told:
        if "error" in each:
            each["error"]["description"] = each["error"]["description"].split(" - ")[0]
        elif isinstance(each["data"], list):
            each["data"].sort()
    return told


@both_kinds
def test_both_servers_do_the_same(pair: tuple[str, str], tmp_path: Path) -> None:
    realm = Realm()
    first, second = starts(realm, pair, tmp_path)
    with Server(first) as here, Server(second) as there:
        (token,) = pushed(realm, "N")
        until_seen(lambda: b"".join(list_of(realm, here.port)).count(b"server") == 2, "a route")
        name = realm.account("N")
        for at, subject in enumerate((
            "$SYS.REQ.CLAIMS.UPDATE",
            f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.UPDATE",
            f"$SYS.ACCOUNT.{name}.CLAIMS.UPDATE",
        )):
            token = realm.token("N", int(time.time()) + at)
            done = {"account": name, "code": 200, "message": "jwt updated"}
            told = judged(answers(realm, here.port, subject, token.encode()))
            assert told == [{"data": done}] * 2, subject
        for server in (here, there):
            assert admitted(realm, server.port, "N")
            lookup = f"$SYS.REQ.ACCOUNT.{name}.CLAIMS.LOOKUP"
            assert answers(realm, server.port, lookup) == [token.encode()] * 2
        unknown = KeyPair.create("A").public_key
        assert answers(realm, here.port, f"$SYS.REQ.ACCOUNT.{unknown}.CLAIMS.LOOKUP") == [b""] * 2
        told = judged(answers(realm, here.port, "$SYS.REQ.CLAIMS.LIST"))
        assert told == [{"data": sorted(key.public_key for key in realm.keys.values())}] * 2
        other = f"$SYS.REQ.ACCOUNT.{unknown}.CLAIMS.UPDATE"
        for subject, payload in (
            ("$SYS.REQ.CLAIMS.UPDATE", b"nonsense"), (other, token.encode()),
            ("$SYS.REQ.CLAIMS.DELETE", token.encode()), ("$SYS.REQ.CLAIMS.DELETE", b""),
        ):
            told = judged(answers(realm, here.port, subject, payload))
            assert told[0] == told[1] and told[0]["error"]["code"] == 500, subject
        told = judged(
            answers(realm, there.port, "$SYS.REQ.CLAIMS.DELETE", deletion(realm, "N"))
        )
        assert told == [{"data": {"code": 200, "message": "deleted 1 accounts"}}] * 2
        for server in (here, there):
            assert not admitted(realm, server.port, "N")


def list_of(realm: Realm, port: int) -> list[bytes]:
    """Answers to a request for lists; empty until both servers give one."""
    try:
        return answers(realm, port, "$SYS.REQ.CLAIMS.LIST")
    except TimeoutError:
        return []


@both_kinds
def test_who_was_away_gets_what_is_newer(pair: tuple[str, str], tmp_path: Path) -> None:
    """In both directions, and of the same account the token that was issued last."""
    realm = Realm()
    first, second = starts(realm, pair, tmp_path)
    with Server(first) as here:
        pushed(realm, "N")
        older = Admin(realm, here.port).push(realm.token("N", int(time.time()) - 60))
        assert older["data"]["code"] == 200
        here.stop()
        with Server(second) as there:
            newer = realm.token("N", int(time.time()) - 30)
            (extra,) = pushed(realm, "M")
            for token in (newer, extra):
                Admin(realm, there.port).push(token)
            here.start()
            until_seen(lambda: admitted(realm, here.port, "M"), "the first hears of the second's")
            path = tmp_path / "0" / f"{realm.account('N')}.jwt"
            until_seen(lambda: path.exists() and path.read_text() == newer, "the newer one counts")
            assert (tmp_path / "1" / path.name).read_text() == newer


@both_kinds
def test_a_pack_of_what_is_the_same_is_empty(pair: tuple[str, str], tmp_path: Path) -> None:
    """Both kinds of servers make the same digest of the same tokens."""
    realm = Realm()
    first, second = starts(realm, pair, tmp_path)
    with Server(first) as here, Server(second), Raw(here.port) as ear:
        assert ear.login(realm.user("S")) == []
        ear.socket.sendall(b"SUB $SYS.REQ.CLAIMS.PACK 1\r\n")
        digests: dict[str, bytes] = {}
        while len(digests) < 2:
            line = ear.file.readline().split()
            if line[0] == b"MSG":
                digests[line[-2].decode()] = ear.file.read(int(line[-1]) + 2)[:-2]
        assert len(set(digests.values())) == 1
        assert all(len(digest) == 32 for digest in digests.values())


@pytest.mark.parametrize("name", SERVERS)
def test_the_limit_of_a_directory(name: str, tmp_path: Path) -> None:
    realm = Realm()
    resolver = f"{{ type: full, dir: '{tmp_path / 'jwt'}', limit: 4, interval: '1h' }}"
    with Server(recipe(name, realm.config("", resolver))) as server:
        admin = Admin(realm, server.port)
        fits, not_any_more = pushed(realm, "N", "M")
        assert admin.push(fits)["data"]["code"] == 200
        assert admin.push(not_any_more)["error"]["code"] == 500
        newer = realm.token("N", int(time.time()) + 5)
        assert admin.push(newer)["data"]["code"] == 200
        refused = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(realm, "N"))
        assert "delete must be enabled" in refused["error"]["description"]
        refused = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(Realm(), "A"))
        assert "delete must be enabled" in refused["error"]["description"]
        assert admitted(realm, server.port, "N") and not admitted(realm, server.port, "M")


@pytest.mark.parametrize("name", SERVERS)
def test_a_cache_forgets_what_an_operator_deletes(name: str, tmp_path: Path) -> None:
    """A cache has no setting for it: what it holds belongs to other servers."""
    realm = Realm()
    resolver = f"{{ type: cache, dir: '{tmp_path / 'jwt'}', limit: 4 }}"
    with Server(recipe(name, realm.config("", resolver))) as server:
        admin = Admin(realm, server.port)
        refused = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(Realm(), "A"))
        assert refused["error"]["description"].endswith("not trusted")
        answer = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(realm, "A"))
        assert answer["data"] == {"code": 200, "message": "deleted 1 accounts"}
