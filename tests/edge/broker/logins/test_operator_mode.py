"""Operator mode over the wire: who is admitted, and what others are shown, on both servers."""

import json
import time
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Server, free_port
from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.security import creds
from headwater.security.claims import DefaultPermissions, ResponsePermission, SubjectPermission
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, recipe

REFUSED = ["-ERR 'Authorization Violation'"]


@pytest.mark.parametrize("name", SERVERS)
def test_strict_accounts_sign_by_signing_keys_only(name: str) -> None:
    signing, user_signing = KeyPair.create("O"), KeyPair.create("A")
    realm = Realm(strict_signing_key_usage=True, signing_keys=[signing.public_key])
    realm.signer = signing
    realm.bodies["A"].signing_keys = [user_signing.public_key]
    with Server(recipe(name, realm.config())) as server:
        with Raw(server.port) as good:
            assert good.login(realm.user(signer=user_signing)) == []
        with Raw(server.port) as bad:
            assert bad.login(realm.user()) == REFUSED


def test_strict_operator_without_signing_keys_admits_nobody() -> None:
    realm = Realm(strict_signing_key_usage=True)
    with Server(recipe("headwater", realm.config())) as server:
        for user in (None, realm.user()):
            with Raw(server.port) as client:
                assert client.info["auth_required"]
                assert client.login(user) == REFUSED


@pytest.mark.parametrize("name", SERVERS)
def test_bearer_tokens_are_not_shown(name: str) -> None:
    realm = Realm()
    bearer = realm.user(bearer_token=True)
    plain = realm.user()
    with Server(recipe(name, realm.config())) as server, Raw(server.port) as first:
        first.login(jwt=bearer.token)
        with Raw(server.port) as second, Raw(server.port) as system:
            second.login(plain)
            system.login(realm.user("S"))
            for client in (second, system):
                answer = client.request("$SYS.REQ.SERVER.PING.CONNZ", {"auth": True})
                shown = {row["cid"]: row.get("jwt") for row in answer["data"]["connections"]}
                assert shown[first.info["client_id"]] is None
                assert shown[second.info["client_id"]] == plain.token
        with Raw(server.port) as system:
            first.close()
            system.login(realm.user("S"))
            answer = system.request("$SYS.REQ.SERVER.PING.CONNZ", {"auth": True, "state": 1})
            assert bearer.token not in json.dumps(answer)


ACCOUNTS = """
accounts {
  PING { users: [{user: p, password: p}] }
  A { users: [{user: a, password: a}] }
}
"""


def test_an_account_named_ping_sees_itself_only() -> None:
    with Server(recipe("headwater", ACCOUNTS)) as server, Raw(server.port) as other:
        other.login(user="a", **{"pass": "a"})
        with Raw(server.port) as tenant:
            tenant.login(user="p", **{"pass": "p"})
            for subject in ("ACCOUNT.PING.CONNZ", "SERVER.PING.CONNZ", "ACCOUNT.PING.STATZ"):
                answer = tenant.request(f"$SYS.REQ.{subject}", {"auth": True}, seconds=0.3)
                text = json.dumps((answer or {}).get("data", {}))
                assert f'"cid": {other.info["client_id"]},' not in text
                assert '"A"' not in text


@pytest.mark.parametrize("account", ["a b", "a\tb", "*", "a.>", "", "a..b", "x" * 300])
def test_account_names_cannot_widen_subjects(account: str) -> None:
    with pytest.raises(ConfigError, match="account name"):
        load_text(f'accounts {{ "{account}": {{}} }}')


@pytest.mark.parametrize("name", SERVERS)
async def test_who_forwards_is_the_peer(name: str, tmp_path: Path) -> None:
    """What a request says of forwarding does not count against a token's source addresses."""
    realm, port = Realm(), free_port()
    extra = f"websocket {{ host: 127.0.0.1, port: {port}, no_tls: true }}"
    near, far = realm.user(src=["127.0.0.1/32"]), realm.user(src=["192.0.2.0/24"])
    with Server(recipe(name, realm.config(extra))):
        for user, admitted in ((near, True), (far, False)):
            path = tmp_path / "user.creds"
            creds.write(path, user.token, user.pair.seed)
            client = Client()
            try:
                await client.connect(
                    f"ws://127.0.0.1:{port}",
                    user_credentials=str(path),
                    ws_connection_headers={"X-Forwarded-For": ["192.0.2.7"]},
                    allow_reconnect=False,
                )
            except nats.errors.Error as error:
                assert not admitted
                assert "authorization violation" in str(error).lower()
            else:
                assert admitted
            await client.close()


def in_order(value: Any) -> Any:
    """Subjects of a rule, in order: the real server keeps those of an account in none."""
    return sorted(value) if isinstance(value, list) else value


def test_users_are_told_the_same_of_themselves() -> None:
    realm = Realm()
    realm.bodies["B"].default_permissions = DefaultPermissions(
        pub=SubjectPermission(allow=["a", "$SYS.REQ.USER.INFO"])
    )
    full = realm.user(
        pub=SubjectPermission(allow=["a", ">"], deny=["b"]),
        sub=SubjectPermission(allow=["x q", ">"]),
        resp=ResponsePermission(max=3, ttl=5_000_000_000),
        exp=int(time.time()) + 1000,
    )
    users = [full, realm.user(), realm.user("B"), realm.user("S")]
    told: dict[str, list[dict[str, Any]]] = {}
    for name in SERVERS:
        with Server(recipe(name, realm.config())) as server:
            for user in users:
                with Raw(server.port) as client:
                    client.login(user)
                    answer = client.request("$SYS.REQ.USER.INFO")["data"]
                    seconds = answer.pop("expires", 0) / 1e9
                    assert seconds == (pytest.approx(990, abs=10) if user is full else 0)
                    assert seconds == int(seconds)
                    rules = answer.get("permissions", {})
                    answer["permissions"] = {
                        kind: {side: in_order(value) for side, value in rule.items()}
                        for kind, rule in rules.items()
                    }
                    told.setdefault(name, []).append(answer)
    assert told["headwater"] == told["nats-server"]
