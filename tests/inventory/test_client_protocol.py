"""Section 1, the client protocol: what both servers say to the same bytes, word for word."""

import json
from collections.abc import Callable, Iterator

import pytest

from tests.inventory.both import Both, Line

FREE = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
LIMITS = """
max_payload: 1000, max_control_line: 512, max_subscriptions: 3, max_subscription_tokens: 4
max_pending: 100000
"""
USERS = """
authorization { timeout: 0.2, users: [
  {user: free, password: p}
  {user: bound, password: p, permissions: {
    publish: {allow: ["a.>", "_INBOX.>"], deny: "a.no"}, subscribe: {allow: ["a.>"], deny: "a.no"}}}
] }
"""
NKEYS = """
authorization { users: [ {nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4} ] }
"""


def login(user: str, **more: object) -> bytes:
    """A CONNECT of that user."""
    fields = {"user": user, "pass": "p", "verbose": False, "pedantic": False, **more}
    return b"CONNECT " + json.dumps(fields).encode() + b"\r\n"


REPLIES = [
    b"r.a.b r.a.*", b"r.a.* r.a.b", b"r.> r.a.b r.*.b", b"r.a.b r.*.b r.a.>", b"> r.*.* r.a.b",
]  # fmt: skip
"""Subscriptions that all take the word that nobody listens; one of them gets it."""


def subscribed(patterns: bytes) -> bytes:
    """A request for nobody, when these are listened on."""
    lines = [b"SUB %b %d\r\n" % each for each in zip(patterns.split(), range(9), strict=False)]
    return b"".join(lines) + b"PUB nobody r.a.b 0\r\n\r\n"


CASES: dict[str, tuple[str, bytes]] = {
    **{f"nobody told by {each.decode()}": ("", FREE + subscribed(each)) for each in REPLIES},
    "unknown operation": ("", b"NOPE\r\n"),
    "an operation of servers": ("", FREE + b"RS+ A b\r\n"),
    "one of leaf nodes": ("", FREE + b"LS+ b\r\n"),
    "one of accounts": ("", FREE + b"A+ b\r\n"),
    "verbs in any case, blanks and tabs": (
        "",
        b'connect {"verbose":true}\r\nsUb \t a.b \t 1\r\npub\ta.b  2\r\nok\r\nunsub 1\r\npiNg\r\n',
    ),
    "ping with more": ("", FREE + b"PING xyz\r\n"),
    "no connect at all": ("", b"SUB a 1\r\nPUB a 2\r\nhi\r\n"),
    "connect again": ("", FREE + FREE + b"SUB a 1\r\nPUB a 2\r\nhi\r\n"),
    "protocol 1": ("", b'CONNECT {"protocol":1,"verbose":true}\r\n'),
    "protocol 2": ("", b'CONNECT {"protocol":2}\r\n'),
    "protocol -1": ("", b'CONNECT {"protocol":-1}\r\n'),
    "account in connect": ("", b'CONNECT {"account":"A"}\r\n'),
    "new account in connect": ("", b'CONNECT {"account":"A","new_account":true}\r\n'),
    "no responders without headers": ("", b'CONNECT {"no_responders":true}\r\n'),
    "unknown keys of connect": ("", b'CONNECT {"verbose":false,"jwt":"x","foo":[1]}\r\n'),
    "connect that is no json": ("", b"CONNECT {\r\n"),
    "publish to a wildcard": ("", FREE + b"SUB a.* 1\r\nPUB a.* 0\r\n\r\n"),
    "pedantic": (
        "",
        b'CONNECT {"pedantic":true,"verbose":false}\r\nPUB a..b 0\r\n\r\nPUB * 0\r\n\r\n',
    ),
    "subscription to no subject": (
        "",
        FREE + b"SUB a..b 1\r\nSUB .a 2\r\nSUB a.>.b 3\r\nSUB foo* 4\r\n",
    ),
    "duplicate sid": ("", FREE + b"SUB a 1\r\nSUB b 1\r\nPUB b 0\r\n\r\nPUB a 0\r\n\r\n"),
    "unsub of nothing, and with a bound": (
        "",
        FREE + b"UNSUB 9\r\nSUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 0\r\n\r\n" * 3,
    ),
    "unsub with a bound that is reached": (
        "",
        FREE + b"SUB a 1\r\n" + b"PUB a 0\r\n\r\n" * 2 + b"UNSUB 1 1\r\n" + b"PUB a 0\r\n\r\n",
    ),
    "no echo": (
        "",
        b'CONNECT {"echo":false,"verbose":false}\r\nSUB a 1\r\nSUB a q 2\r\nPUB a 0\r\n\r\n',
    ),
    "no responders": ("", FREE + b"SUB _INBOX.> 1\r\nPUB nobody _INBOX.x 0\r\n\r\n"),
    "no responders, and no interest": ("", FREE + b"SUB i 1\r\nPUB nobody _INBOX.x 0\r\n\r\n"),
    "headers": ("", FREE + b"SUB a 1\r\nHPUB a 22 24\r\nNATS/1.0\r\nA:  b\r\n\r\n\r\nhi\r\n"),
    "headers for who takes none": (
        "",
        b'CONNECT {"headers":false,"verbose":false}\r\nSUB a 1\r\n'
        b'HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n',
    ),
    "headers are off": (
        "no_header_support: true",
        FREE + b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    ),
    "replies of servers": (
        "",
        FREE
        + b"".join(
            b"PUB a %s 0\r\n\r\n" % reply
            for reply in (b"$JS.ACK.S.C.1.1.1.1.1", b"_GR_.a.b", b"$GNR.a", b"_R_.a.b", b"$JS.FC.a")
        ),
    ),
    "subjects of servers": (
        "",
        FREE
        + b"".join(
            b"PUB %s 0\r\n\r\n" % one for one in (b"_GR_.a.b", b"$GNR.a", b"$NRG.a", b"_R_.a")
        ),
    ),
    "payload too large": (LIMITS, FREE + b"PUB a 1001\r\n"),
    "control line too long": (LIMITS, FREE + b"PUB " + b"a" * 600 + b" 0\r\n"),
    "too many subscriptions": (
        LIMITS,
        FREE + b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\nSUB a 4\r\nUNSUB 1\r\nSUB a 5\r\n",
    ),
    "too many tokens": (
        LIMITS,
        FREE + b"SUB a.b.c.d 1\r\nSUB a.b.c.d.e 2\r\nSUB a.b.c.d.> q 3\r\n",
    ),
    "wrong password": (USERS, b'CONNECT {"user":"free","pass":"x"}\r\n'),
    "not connect first": (USERS, b"PING\r\n"),
    "a publication first": (USERS, b"PUB a 0\r\n\r\n"),
    "too late": (USERS, b"CONNECT"),
    "permissions": (
        USERS,
        login("bound", headers=True)
        + b"SUB b 1\r\nSUB a.no 2\r\nSUB b q 3\r\nSUB a.> 4\r\nPUB b 0\r\n\r\nPUB a.no 0\r\n\r\n"
        + b'PUB a.x b 0\r\n\r\nPUB a."q" 0\r\n\r\nPUB x"\\y 0\r\n\r\n',
    ),
    "a wildcard over what is denied": (USERS, login("bound") + b"SUB a.* 1\r\nPUB a.x 0\r\n\r\n"),
    "an nkey that is none": (NKEYS, b'CONNECT {"nkey":"UABC","sig":"x"}\r\n'),
    "no nkey": (NKEYS, FREE),
    "a user for who has not said": (
        USERS.replace("authorization", "no_auth_user: free\nauthorization"),
        b"SUB a 1\r\nPUB a 0\r\n\r\n",
    ),
    "no CONNECT field of a user": (
        USERS.replace("authorization", "no_auth_user: free\nauthorization"),
        FREE + b"SUB a 1\r\nPUB a 0\r\n\r\n",
    ),
}


Pairs = Callable[[str], Both]


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    """A pair of servers for each configuration, made when it is first wanted."""
    made: dict[str, Both] = {}

    def pair(config: str) -> Both:
        if config not in made:
            made[config] = Both("debug: false\n" + config).__enter__()
        return made[config]

    yield pair
    for both in made.values():
        both.stack.close()


@pytest.mark.parametrize("name", CASES)
def test_the_same_is_said(name: str, pairs: Pairs) -> None:
    config, text = CASES[name]
    said = []
    for server in pairs(config).servers:
        line = Line(server.port)
        if name == "too late":
            line.send(text)
            said.append(line.heard())
        else:
            said.append(line.asked(text))
        line.close()
    assert said[0] == said[1]


INFOS = {
    "plain": "",
    "users": USERS,
    "nkeys": NKEYS,
    "jetstream": 'server_name: N\njetstream { store_dir: "{dir}", domain: hub }',
    "cluster": 'server_name: N\ncluster { name: C, listen: "127.0.0.1:-1" }',
    "another address": 'client_advertise: "x:1"',
    "another host": "client_advertise: x",
    "no headers": "no_header_support: true",
}
OWN = {
    "server_id",
    "server_name",
    "version",
    "go",
    "port",
    "nonce",
    "client_id",
    "api_lvl",
    "xkey",
}
LEFT_OUT = {"git_commit"}
"""What only a build of a checkout knows."""


@pytest.mark.parametrize("name", INFOS)
def test_info_has_the_same_fields(name: str) -> None:
    with Both(INFOS[name]) as both:
        infos = [Line(server.port).info for server in both.servers]
    ours, theirs = infos
    # Clients in PHP refuse fields that they do not know, so there is none of Headwater's own.
    assert set(ours) <= set(theirs) <= set(ours) | LEFT_OUT
    own = OWN - {"port"} if "another address" in name else OWN
    own = own | LEFT_OUT
    assert {key: ours[key] for key in ours if key not in own} == {
        key: theirs[key] for key in theirs if key not in own
    }
    for key in ("nonce", "xkey"):
        assert len(ours.get(key, "")) == len(theirs.get(key, ""))
    order = [[key for key in each if key not in LEFT_OUT] for each in infos]
    assert order[0] == order[1]


def test_info_after_the_first_ping() -> None:
    seen = []
    with Both("") as both:
        for server in both.servers:
            line = Line(server.port)
            line.send(b'CONNECT {"verbose":false,"protocol":1}\r\nPING\r\n')
            first, second = line.reader.readline(), line.reader.readline()
            info = json.loads(second[5:])
            names = [key for key in info if key not in LEFT_OUT]
            seen.append((first, names, info["remote_account"]))
    assert seen[0] == seen[1]


def test_more_connections_than_there_may_be() -> None:
    seen = []
    with Both("max_connections: 1") as both:
        for server in both.servers:
            first = Line(server.port)
            assert first.asked(FREE) == ["PONG"]
            second = Line(server.port)
            seen.append((second.refused, second.heard()))
    assert seen[0] == seen[1]


def test_who_answers_no_ping_is_stale() -> None:
    seen = []
    with Both('ping_interval: "100ms"\nping_max: 1') as both:
        for server in both.servers:
            line = Line(server.port)
            line.send(FREE)
            seen.append(line.heard())
    assert seen[0] == seen[1] == ["-ERR 'Stale Connection'", "<closed>"]
