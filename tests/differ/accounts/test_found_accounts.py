"""What generated accounts have found, as fixed worlds on both servers."""

import pytest

from tests.differ.accounts.compared import differs
from tests.differ.accounts.intended import ACCOUNTS, intended
from tests.differ.accounts.steps import Step
from tests.differ.accounts.worlds import Part

API = ("A", "exports", '{"service": "$JS.API.>"}')
OWNER = ("A", "users", '{"user": "owner", "password": "p"}')
GUEST = ("B", "users", '{"user": "guest", "password": "p"}')


def login(conn: int, user: str) -> Step:
    text = (
        f'CONNECT {{"verbose": false, "headers": true, "user": "{user}", "pass": "p"}}\r\n'
        f"SUB _INBOX.{conn}.> inbox\r\n"
    )
    return Step(conn, text.encode())


def from_api(share: bool) -> Part:
    more = ', "share": true' if share else ""
    source = '{"account": "A", "subject": "$JS.API.>"}'
    return ("B", "imports", f'{{"service": {source}, "to": "JS.A.API.>"{more}}}')


@pytest.mark.parametrize("share", [False, True])
def test_who_asked_by_way_of_another_account(share: bool) -> None:
    """The advisory of a request tells the account by which it came to JetStream."""
    parts = [OWNER, GUEST, API, from_api(share)]
    steps = [
        login(0, "owner"),
        Step(0, b"SUB $JS.EVENT.ADVISORY.API 1\r\n"),
        login(1, "guest"),
        Step(1, b"PUB JS.A.API.STREAM.INFO.S _INBOX.1.a 0\r\n\r\n", slow=True),
    ]
    assert differs(parts, steps) is None


ASKED = (
    "$SYS.REQ.USER.INFO", "$JS.API.INFO", "$JS.API.STREAM.INFO.NONE", "JS.A.API.INFO", "service",
    "$JS.API.DIRECT.GET.S", "x.stored",
)  # fmt: skip


@pytest.mark.parametrize("asked", ASKED)
def test_answers_go_where_the_own_mappings_lead(asked: str) -> None:
    """What comes from another account, or from a service of the servers, is mapped; what a stream
    or a consumer answers is not."""
    service = ("B", "imports", '{"service": {"account": "A", "subject": "service"}}')
    parts = [
        OWNER, GUEST, API, from_api(False), service,
        ("A", "exports", '{"service": "service"}'),
        ("B", "mappings", '"_INBOX.1.*": "mapped.$1"'),
    ]  # fmt: skip
    body = '{"name":"S","subjects":["x.>"],"storage":"memory","allow_direct":true}'
    steps = [
        login(0, "owner"),
        Step(0, b"SUB service 1\r\n"),
        login(1, "guest"),
        Step(1, b"SUB mapped.* 1\r\n"),
        Step(1, f"PUB $JS.API.STREAM.CREATE.S made {len(body)}\r\n{body}\r\n".encode(), slow=True),
        Step(1, f"PUB {asked} _INBOX.1.a 14\r\n{{\"last_seq\":1}}\r\n".encode(), slow=True),
        Step(0, b"PUB @ 2\r\nhi\r\n", which=1),
    ]
    assert differs(parts, steps) is None


def test_an_answer_asks_nothing_of_its_service() -> None:
    """Who imports all of another account's subjects imports the subject of the answer, too."""
    parts = [
        OWNER, GUEST, ("A", "exports", '{"service": "*.>", "response_type": "stream"}'),
        ("B", "imports", '{"service": {"account": "A", "subject": "*.>"}}'),
    ]  # fmt: skip
    steps = [
        login(0, "owner"), Step(0, b"SUB *.*.> 1\r\n"), login(1, "guest"),
        Step(1, b"PUB l.a.b _INBOX.1.a 2\r\nhi\r\n"), Step(0, b"PUB @ 2\r\nno\r\n", which=1),
    ]  # fmt: skip
    assert differs(parts, steps) is None


def test_what_is_intended_is_named() -> None:
    rules = '{"user": "owner", "password": "p", "permissions": {"subscribe": ["*"]}}'
    steps = [login(0, "owner"), Step(0, b"SUB > q 1\r\n"), Step(1, b"PUB a.b 1\r\nx\r\n")]
    found = intended([("A", "users", rules)], steps, 2, {}, {"0 1": ["MSG a.b"]})
    assert found == "end for a token" and found in ACCOUNTS
    nobody = {"1 inbox": ["HMSG b'NATS/1.0 503' b''"]}
    assert intended([("A", "users", rules)], steps, 2, nobody, {"0 1": ["MSG a.b"]}) == found
    there = {"0 1": ["HMSG b'NATS/1.0 503' b''"]}
    assert intended([("A", "users", rules)], steps, 2, there, {"0 1": ["MSG a.b"]}) == found
    assert not intended([("A", "users", rules)], steps, 2, nobody, {})
    assert not intended([OWNER], steps, 2, {}, {"0 1": ["MSG a.b"]})
    assert not intended([("A", "users", rules)], steps, 2, {"0 1": ["MSG a.b"]}, {})


@pytest.mark.parametrize("share", ["false", "true"])
def test_who_asks_for_itself_by_way_of_another_account(share: str) -> None:
    """An import that does not share who asks keeps the name of the user from the answer, too."""
    source = '{"account": "B", "subject": "$SYS.REQ.USER.INFO"}'
    parts = [
        OWNER,
        GUEST,
        ("B", "exports", '{"service": "$SYS.REQ.USER.INFO"}'),
        ("A", "imports", f'{{"service": {source}, "to": "me", "share": {share}}}'),
    ]
    steps = [login(0, "owner"), Step(0, b"PUB me _INBOX.0.a 0\r\n\r\n", slow=True)]
    assert differs(parts, steps) is None
