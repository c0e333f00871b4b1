"""What /accountz tells of imports, exports and mappings is what nats-server tells."""

import json
import urllib.request
from typing import Any

from bench.servers import Recipe, Server, anchor, free_port, headwater

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
NOT_SERVED = "$SYS.DEBUG.SUBSCRIBERS"


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
                shares = [one for one in detail.get(kind, ()) if one["subject"] != NOT_SERVED]
                found.append((account, kind, sorted(shares, key=by_text)))
            found.append((account, detail.get("mappings")))
    return found


def test_shares_are_told_as_by_nats_server() -> None:
    ours = told(headwater(), JETSTREAM)
    assert ours == told(anchor(), JETSTREAM)
    assert len(ours[0][2]) == 5


def test_without_streams_the_same_is_told() -> None:
    assert told(headwater(), "") == told(anchor(), "")
