"""Accounts that are deleted while a server is away do not come back with it."""

from pathlib import Path

import pytest

from bench.servers import Recipe, Server, free_port
from headwater.security import jwt
from headwater.security.claims import GenericClaims
from headwater.security.nkeys import KeyPair
from tests.edge.system.test_account_claims import Admin, admitted
from tests.operator_realm import Realm, recipe
from tests.waiting import until_seen

PAIRS = [("headwater", "headwater"), ("headwater", "nats-server")]


def starts(realm: Realm, pair: tuple[str, ...], folder: Path, more: str = "") -> list[Recipe]:
    """Servers of one cluster with a directory each, which begin with the same tokens."""
    ports = [free_port() for _ in pair]
    config = realm.config("@CLUSTER@", "@RESOLVER@")
    made = []
    for at, name in enumerate(pair):
        others = ", ".join(f"'nats://127.0.0.1:{port}'" for port in ports if port != ports[at])
        cluster = (
            f"server_name: n{at}\ncluster {{ name: C, listen: '127.0.0.1:{ports[at]}', "
            f"routes: [{others}] }}"
        )
        resolver = (
            f"{{ type: full, dir: '{folder / str(at)}', allow_delete: true, interval: '1s', "
            f"timeout: '1s', {more} }}"
        )
        text = config.replace("@CLUSTER@", cluster).replace("@RESOLVER@", resolver)
        made.append(recipe(name, text))
    return made


def deletion(realm: Realm, *names: str) -> bytes:
    """A request that the operator has signed."""
    accounts = [realm.account(name) for name in names]
    claims = GenericClaims(sub=realm.operator.public_key, nats={"accounts": accounts})
    return jwt.encode(claims, realm.operator).encode()


def pushed(realm: Realm, *names: str) -> list[str]:
    """Tokens of new accounts."""
    for name in names:
        realm.keys[name], realm.bodies[name] = KeyPair.create("A"), realm.bodies["B"]
    return [realm.token(name) for name in names]


@pytest.mark.parametrize("more", ["", "hard_delete: true"])
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_who_was_away_hears_of_it(pair: tuple[str, str], more: str, tmp_path: Path) -> None:
    realm = Realm()
    first, second = starts(realm, pair, tmp_path, more)
    tokens = pushed(realm, "N", "M")
    request = deletion(realm, "N")
    with Server(first) as here, Server(second) as there:
        for token in tokens:
            Admin(realm, here.port).push(token)
        until_seen(lambda: admitted(realm, there.port, "N") and admitted(realm, there.port, "M"))
        there.stop()
        admin = Admin(realm, here.port)
        answer = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", request)
        assert answer["data"]["message"] == "deleted 1 accounts"
        kept = (tmp_path / "0" / f"{realm.account('N')}.jwt.deleted").exists()
        assert kept is not bool(more)
        there.start()
        until_seen(lambda: not admitted(realm, there.port, "N"), "the other deletes it, too")
        assert not admitted(realm, here.port, "N")
        assert not (tmp_path / "0" / f"{realm.account('N')}.jwt").exists()
        assert not (tmp_path / "1" / f"{realm.account('N')}.jwt").exists()
        for server in (here, there):
            assert admitted(realm, server.port, "M")


def test_a_push_counts_more_than_an_old_deletion(tmp_path: Path) -> None:
    """Nor is a request, which others have heard, of use a second time."""
    realm = Realm()
    first, second = starts(realm, PAIRS[0], tmp_path)
    tokens = pushed(realm, "N", "M")
    request = deletion(realm, "N", "M")
    with Server(first) as here, Server(second) as there:
        admin = Admin(realm, here.port)
        for token in tokens:
            admin.push(token)
        until_seen(lambda: admitted(realm, there.port, "N"))
        assert admin.raw.request("$SYS.REQ.CLAIMS.DELETE", request)["data"]["code"] == 200
        until_seen(lambda: not admitted(realm, there.port, "N"))
        admin.push(tokens[0])
        for server in (here, there):
            until_seen(lambda: admitted(realm, server.port, "N"))  # noqa: B023
        again = admin.raw.request("$SYS.REQ.CLAIMS.DELETE", request)
        assert "pushed again" in again["error"]["description"]
        here.stop()
        here.start()
        for server in (here, there):
            assert admitted(realm, server.port, "N")
            assert not admitted(realm, server.port, "M")


def test_a_login_does_not_bring_it_back(tmp_path: Path) -> None:
    """What is not held is looked for with the others, one of which has not heard."""
    realm = Realm()
    first, second = starts(realm, PAIRS[0], tmp_path)
    (token,) = pushed(realm, "N")
    with Server(first) as here:
        admin = Admin(realm, here.port)
        admin.push(token)
        admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(realm, "N"))
        folder = tmp_path / "1"
        folder.mkdir()
        (folder / f"{realm.account('N')}.jwt").write_text(token)
        silent = second.config.replace("allow_delete: true, interval: '1s'", "interval: '1h'")
        with Server(recipe("headwater", silent)) as there:
            until_seen(lambda: len(routes(realm, here.port)) > 0)
            assert admitted(realm, there.port, "N")
            assert not admitted(realm, here.port, "N")
            assert not admitted(realm, here.port, "N")


def routes(realm: Realm, port: int) -> list[object]:
    """What a server says of its routes."""
    admin = Admin(realm, port)
    name = admin.raw.info["server_id"]
    found: list[object] = admin.raw.request(f"$SYS.REQ.SERVER.{name}.ROUTEZ")["data"]["routes"]
    return found


def test_a_preloaded_token_does_not_bring_it_back(tmp_path: Path) -> None:
    realm = Realm()
    (start,) = starts(realm, ("headwater",), tmp_path)
    with Server(start) as here:
        admin = Admin(realm, here.port)
        admin.raw.request("$SYS.REQ.CLAIMS.DELETE", deletion(realm, "B"))
        assert not admitted(realm, here.port, "B")
        here.stop()
        here.start()
        assert not admitted(realm, here.port, "B")
        assert admitted(realm, here.port, "A")


def test_a_note_that_is_damaged_stops_nobody(tmp_path: Path) -> None:
    realm = Realm()
    (start,) = starts(realm, ("headwater",), tmp_path)
    (tmp_path / "0").mkdir()
    note = tmp_path / "0" / f"{realm.account('B')}.deletion"
    for content in (b"", b"[" * 100_000, b'{"request": 1}', b"\xff"):
        note.write_bytes(content)
        with Server(start) as server:
            assert admitted(realm, server.port, "B")
            assert note.name in server.log
