"""What /accountz tells of imports, exports and mappings is what nats-server tells."""

import json
import urllib.request
from typing import Any

from bench.servers import Recipe, Server, anchor, free_port, headwater
from headwater.security.claims import Export, Import, WeightedMapping
from tests.operator_realm import Raw, Realm, recipe

CONFIG = """
http: 127.0.0.1:%d
accounts {
    SYS: { users: [ { user: sys, password: pw } ] }
    A: {
        %s users: [ { user: a, password: pw } ]
        mappings: { x: [ { destination: y, weight: 100 } ] }
        exports: [
            { service: s.one }
            { service: s.two, response_type: stream, accounts: [ B ] }
            { service: s.three, response_type: chunked }
            { stream: e.>, accounts: [ B ] }
            { stream: pub }
        ]
    }
    B: {
        users: [ { user: b, password: pw } ]
        imports: [
            { service: { account: A, subject: s.one } }
            { service: { account: A, subject: s.two }, to: two, share: true }
            { stream: { account: A, subject: e.> }, prefix: p }
            { stream: { account: A, subject: pub } }
            { stream: { account: A, subject: e.x }, to: ex }
        ]
    }
}
system_account: SYS
"""
JETSTREAM = 'jetstream { store_dir: "{dir}" }'


def by_text(share: Any) -> str:
    """An order for shares."""
    return json.dumps(share, sort_keys=True)


def told(recipe: Recipe, more: str) -> list[Any]:
    """What each account shares, in no order."""
    port = free_port()
    text = CONFIG % (port, "jetstream: enabled," if more else "") + more
    found = []
    with Server(Recipe(recipe.name, recipe.command, text)):
        for account in ("A", "B", "SYS"):
            url = f"http://127.0.0.1:{port}/accountz?acc={account}"
            with urllib.request.urlopen(url) as page:
                detail = json.load(page)["account_detail"]
            for kind in ("imports", "exports"):
                found.append((account, kind, sorted(detail.get(kind, ()), key=by_text)))
            found.append((account, detail.get("mappings")))
    return found


def test_shares_are_told_as_by_nats_server() -> None:
    ours = told(headwater(), JETSTREAM)
    assert ours == told(anchor(), JETSTREAM)
    assert len(ours[0][2]) == 5


def of_tokens(name: str, realm: Realm) -> list[Any]:
    """What is told of accounts that are tokens."""
    port = free_port()
    found = []
    with Server(recipe(name, realm.config(f"http: 127.0.0.1:{port}"))) as server:
        for account in ("A", "B"):
            url = f"http://127.0.0.1:{port}/accountz?acc={realm.account(account)}"
            with Raw(server.port) as raw:
                assert raw.login(realm.user(account)) == []
                page = urllib.request.urlopen(url)
            with page:
                detail = json.load(page)["account_detail"]
            for kind in ("imports", "exports"):
                detail[kind] = sorted(detail.get(kind, ()), key=by_text)
            claims = detail.pop("decoded_jwt")
            found.append([claims["sub"], claims["nats"]["limits"]["conn"]])
            times = (detail.pop("update_time"), detail.pop("sublist_stats"))
            found.append((len(times), detail.pop("jwt") != "", detail))
    return found


def test_accounts_of_tokens_are_told_as_by_nats_server() -> None:
    realm = Realm()
    realm.bodies["A"].tags = ["one"]
    realm.bodies["A"].mappings = {"x": [WeightedMapping(subject="y", weight=100)]}
    realm.bodies["A"].exports = [
        Export(name="s", subject="s", type="service"),
        Export(name="own", subject="own", type="service", token_req=True),
        Export(name="e", subject="e.>", type="stream"),
    ]
    owner = realm.account("A")
    realm.bodies["B"].imports = [
        Import(name="s", subject="s", account=owner, type="service", local_subject="t"),
        Import(name="e", subject="e.>", account=owner, type="stream"),
    ]
    assert of_tokens("headwater", realm) == of_tokens("nats-server", realm)


def test_without_streams_the_same_is_told() -> None:
    assert told(headwater(), "") == told(anchor(), "")
