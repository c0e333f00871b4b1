"""What the system account is told of clients that come, go and are refused, by both servers."""

import json
from typing import Any

import pytest

from bench.servers import Server
from tests.operator_realm import SERVERS, Raw, Realm, User, recipe

REFUSED = "Authentication Failure"
GLOBAL = {"acc": "$G", "name_tag": "$G"}
CONFIG = """
accounts {
  A { users: [{user: a, password: a}] }
  SYS { users: [{user: sys, password: sys}] }
}
system_account: SYS
"""
LOGINS: dict[str, dict[str, str]] = {
    "a wrong password": {"user": "a", "pass": "wrong"},
    "a token": {"auth_token": "secret"},
    "nobody": {},
}
SHOWN = {"a wrong password": {"user": "a"}, "a token": {"user": "[REDACTED]"}, "nobody": {}}


SUBJECTS = ("$SYS.ACCOUNT.*.*", "$SYS.SERVER.*.CLIENT.AUTH.ERR", "$SYS.SERVER.ACCOUNT.*.CONNS")


class Told:
    """The events that a user of the system account hears."""

    def __init__(self, port: int, user: User | None = None, /, **fields: Any) -> None:
        self.raw = Raw(port)
        assert self.raw.login(user, **fields) == []
        self.raw.send("".join(f"SUB {one} {number}\r\n" for number, one in enumerate(SUBJECTS)))

    def of(self, client: Raw, account: str, *wanted: str) -> dict[str, dict[str, Any]]:
        """The next events of a client and its account, by the last word of their subjects."""
        cid = client.info["client_id"]
        found: dict[str, dict[str, Any]] = {}
        while not found.keys() >= set(wanted):
            while not (line := self.raw.file.readline()).startswith(b"MSG"):
                assert line
            words = line.split()
            event = json.loads(self.raw.file.read(int(words[-1]) + 2))
            who = event.get("client", event)
            if who.get("acc") == account and who.get("id") in (cid, event["id"]):
                found[words[1].decode().rpartition(".")[2]] = event
        return found


def client_of(event: dict[str, Any], *fields: str) -> dict[str, Any]:
    """Who it was, without moments and addresses."""
    wanted = (*fields, "acc", "name_tag", "user")
    return {field: event["client"][field] for field in wanted if field in event["client"]}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("name", SERVERS)
def test_of_refused_ones(name: str, login: str) -> None:
    """Such a connection has been in the global account, for both servers."""
    with Server(recipe(name, CONFIG)) as server:
        told = Told(server.port, user="sys", **{"pass": "sys"})
        with Raw(server.port) as client:
            assert client.login(**LOGINS[login]) == ["-ERR 'Authorization Violation'"]
        events = told.of(client, "$G", "ERR", "DISCONNECT")
        for event in (events["ERR"], events["DISCONNECT"]):
            assert event["reason"] == REFUSED
            assert client_of(event) == {**GLOBAL, **SHOWN[login]}
        told.raw.close()


@pytest.mark.parametrize("name", SERVERS)
def test_of_users_by_token(name: str) -> None:
    realm = Realm()
    user = realm.user("A", tags=["site:north"])
    with Server(recipe(name, realm.config())) as server:
        told = Told(server.port, realm.user("S"))
        account = realm.account("A")
        with Raw(server.port) as client:
            assert client.login(user) == []
            events = told.of(client, account, "CONNECT", "CONNS")
        who = {"acc": account, "name_tag": "A", "user": user.pair.public_key}
        shown = client_of(events["CONNECT"], "jwt", "issuer_key", "tags")
        assert shown == {**who, "jwt": user.token, "issuer_key": account, "tags": ["site:north"]}
        assert (events["CONNS"]["acc"], events["CONNS"]["name"]) == (account, "A")
        told.raw.close()


def test_a_token_that_is_all_it_takes_is_not_told() -> None:
    """nats-server tells it to whoever may listen, who can come in with it then."""
    realm = Realm()
    bearer = realm.user("A", bearer_token=True)
    with Server(recipe("headwater", realm.config())) as server:
        told = Told(server.port, realm.user("S"))
        with Raw(server.port) as client:
            assert client.login(jwt=bearer.token) == []
            events = told.of(client, realm.account("A"), "CONNECT", "CONNS")
            assert bearer.token not in json.dumps(events)
        told.raw.close()
