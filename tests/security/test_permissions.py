"""Permission rules: by example, against a naive model, and against a real nats-server."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.auth_options import PermissionOptions, ResponseRules, SubjectRules
from headwater.security.errors import PermissionRuleError
from headwater.security.permissions import CACHE_LIMIT, Permissions
from headwater.security.subjects import covers, is_valid_subject, matches, overlaps

_token = st.sampled_from(["a", "b", "c"])
_literal = st.lists(_token, min_size=1, max_size=4)
_pattern = st.tuples(
    st.lists(st.sampled_from(["a", "b", "c", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
).map(lambda parts: parts[0] + parts[1])


def compiled(
    publish: SubjectRules | None = None,
    subscribe: SubjectRules | None = None,
    responses: ResponseRules | None = None,
) -> Permissions:
    return Permissions(
        PermissionOptions(publish=publish, subscribe=subscribe, allow_responses=responses)
    )


def test_no_rules_allow_everything() -> None:
    rules = compiled()
    assert rules.can_publish(b"a") and rules.can_subscribe(b">", b"q")
    assert not rules.restricts_publish()
    assert not rules.needs_delivery_check(b">")


def test_deny_overrules_allow() -> None:
    rules = compiled(publish=SubjectRules(allow=["a.>"], deny=["a.b.*"]))
    assert rules.can_publish(b"a.x") and not rules.can_publish(b"a.b.c")
    assert not rules.can_publish(b"a") and not rules.can_publish(b"b")


def test_allow_responses_closes_an_open_publish() -> None:
    rules = compiled(responses=ResponseRules())
    assert not rules.can_publish(b"a") and rules.restricts_publish()
    assert rules.responses == ResponseRules(max_messages=1, expires=120.0)


def test_wildcard_over_a_deny_is_filtered_at_delivery() -> None:
    rules = compiled(subscribe=SubjectRules(deny=["a.secret", "b.> q.*"]))
    assert rules.can_subscribe(b"a.*") and not rules.can_subscribe(b"a.secret")
    assert rules.needs_delivery_check(b"a.*") and not rules.needs_delivery_check(b"c.*")
    assert not rules.needs_delivery_check(b"a.secret")
    assert rules.delivery_denied(b"a.secret") and not rules.delivery_denied(b"a.open")
    assert rules.deny_delivery() == [(b"a.secret", None), (b"b.>", b"q.*")]


def test_queue_rules() -> None:
    rules = compiled(subscribe=SubjectRules(allow=["foo v1.>", "bar"], deny=["bar admin"]))
    assert rules.can_subscribe(b"foo", b"v1.x") and not rules.can_subscribe(b"foo", b"v2")
    assert not rules.can_subscribe(b"foo")
    assert rules.can_subscribe(b"bar", b"any") and not rules.can_subscribe(b"bar", b"admin")


@pytest.mark.parametrize("space", ["\x85", "\xa0", "\u2003", "\u3000"])
def test_a_space_beyond_ascii_is_part_of_what_is_published(space: str) -> None:
    """Only rules of subscriptions have a second word."""
    name = f"in.a{space}".encode()
    rules = compiled(publish=SubjectRules(allow=[f"in.a{space}"]))
    assert rules.can_publish(name) and not rules.can_publish(b"in.a")
    rules = compiled(publish=SubjectRules(deny=[f"in.a{space}"]))
    assert rules.can_publish(b"in.a") and not rules.can_publish(name)


def test_an_end_wildcard_where_one_token_is_allowed_is_filtered_at_delivery() -> None:
    """So nats-server admits it; what no rule allows is not delivered all the same."""
    rules = compiled(subscribe=SubjectRules(allow=["_INBOX.*", "q.* g", "ok.>"]))
    for queue in (None, b"any"):
        assert rules.can_subscribe(b"_INBOX.>", queue)
        assert rules.needs_delivery_check(b"_INBOX.>", queue)
        assert not rules.delivery_denied(b"_INBOX.a", queue)
        assert rules.delivery_denied(b"_INBOX.a.b", queue)
    assert not rules.can_subscribe(b"q.>") and not rules.can_subscribe(b"q.>", b"h")
    assert rules.can_subscribe(b"q.>", b"g") and rules.delivery_denied(b"q.a.b", b"g")
    assert not rules.delivery_denied(b"q.a", b"g") and rules.delivery_denied(b"q.a")
    assert not rules.needs_delivery_check(b"ok.*.>") and not rules.can_subscribe(b">")


@given(st.data())
def test_nothing_is_delivered_that_no_rule_allows(data: st.DataObject) -> None:
    patterns = st.lists(_pattern.map(".".join), min_size=1, max_size=3)
    allow, deny = data.draw(patterns), data.draw(patterns)
    rules = compiled(subscribe=SubjectRules(allow=allow, deny=deny))
    wanted, name = data.draw(_pattern), data.draw(_literal)
    subject, literal = ".".join(wanted).encode(), ".".join(name).encode()
    given_out = (
        rules.can_subscribe(subject)
        and matches(wanted, name)
        and not (rules.needs_delivery_check(subject) and rules.delivery_denied(literal))
    )
    if given_out:
        assert any(matches(rule.split("."), name) for rule in allow)
        assert not any(matches(rule.split("."), name) for rule in deny)


def test_caches_are_bounded() -> None:
    rules = compiled(SubjectRules(allow=["a.>"]), SubjectRules(deny=["b.>"]))
    for index in range(3 * CACHE_LIMIT):
        assert rules.can_publish(b"a.%d" % index)
        assert rules.delivery_denied(b"b.%d" % index)
        assert len(rules.publish_cache) <= CACHE_LIMIT
        assert len(rules._delivery_cache) <= CACHE_LIMIT


@pytest.mark.parametrize("rule", ["", " ", "a..b", ">.a", "a b c"])
def test_malformed_rules_are_refused(rule: str) -> None:
    with pytest.raises(PermissionRuleError):
        compiled(subscribe=SubjectRules(deny=[rule]))
    with pytest.raises(PermissionRuleError):
        compiled(publish=SubjectRules(allow=["a b"]))


@given(_pattern, _pattern, _literal)
def test_relations_of_patterns_hold(first: list[str], second: list[str], name: list[str]) -> None:
    if covers(first, second) and matches(second, name):
        assert matches(first, name)
    if matches(first, name) and matches(second, name):
        assert overlaps(first, second)
    assert overlaps(first, second) == overlaps(second, first)
    assert covers(first, name) == matches(first, name)


@given(st.binary(max_size=20), st.binary(max_size=8))
def test_any_bytes_get_an_answer(subject: bytes, queue: bytes) -> None:
    rules = compiled(
        SubjectRules(allow=["a.*"], deny=["a.b"]), SubjectRules(allow=["a.> q"], deny=["*"])
    )
    for verdict in (
        rules.can_publish(subject),
        rules.can_subscribe(subject, queue),
        rules.needs_delivery_check(subject, queue),
        rules.delivery_denied(subject, queue),
    ):
        assert isinstance(verdict, bool)


@given(st.text(max_size=30))
def test_any_text_compiles_or_fails_cleanly(rule: str) -> None:
    try:
        rules = compiled(publish=SubjectRules(allow=[rule]))
    except PermissionRuleError:
        return
    assert is_valid_subject(rule)
    assert rules.restricts_publish()


PUBLISH_RULES = [
    {"allow": ["foo", "bar.*", "x.>"]},
    {"deny": ["foo", "bar.>"]},
    {"allow": ["a.>"], "deny": ["a.b", "a.*.c"]},
]
SUBSCRIBE_RULES = [
    {"allow": ["foo", "bar.*", "x.>"]},
    {"allow": ["foo q1", "foo q2.*", "bar"], "deny": ["bar q3"]},
    {"deny": ["foo", "a.*", "b.> q1", "c.*.d"]},
    {"allow": ["> *.prod"], "deny": ["z"]},
]
SUBJECTS = ["foo", "bar", "bar.a", "bar.a.b", "x", "x.y.z", "a.b", "a.x.c", "c.x.d", "z", "b.c"]
WILDCARDS = ["*", ">", "a.*", "a.>", "x.*", "x.>", "bar.*", "c.*.d", "b.>", "b.*"]
QUEUES = ["", "q1", "q2.x", "q3", "v.prod"]


def test_publish_rules_agree_with_nats_server(real_server: Callable[[str], Any]) -> None:
    users = ", ".join(
        f'{{user: u{i}, password: p, permissions: {{publish: {_conf(rules)}}}}}'
        for i, rules in enumerate(PUBLISH_RULES)
    )
    server = real_server(f"authorization {{ users: [{users}] }}")
    for index, rules in enumerate(PUBLISH_RULES):
        ours = compiled(publish=SubjectRules(**rules))  # type: ignore[arg-type]
        with server.client() as client:
            client.connect(user=f"u{index}", **{"pass": "p"})
            for subject in SUBJECTS:
                refused = client.send(f"PUB {subject} 0\r\n\r\n")
                assert ours.can_publish(subject.encode()) == (not refused), (rules, subject)


def test_subscribe_rules_agree_with_nats_server(real_server: Callable[[str], Any]) -> None:
    users = ", ".join(
        f'{{user: u{i}, password: p, permissions: {{subscribe: {_conf(rules)}}}}}'
        for i, rules in enumerate(SUBSCRIBE_RULES)
    )
    server = real_server(f"authorization {{ users: [{users}] }}")
    for index, rules in enumerate(SUBSCRIBE_RULES):
        ours = compiled(subscribe=SubjectRules(**rules))  # type: ignore[arg-type]
        with server.client() as client:
            client.connect(user=f"u{index}", **{"pass": "p"})
            for number, (subject, queue) in enumerate(
                (subject, queue) for subject in SUBJECTS + WILDCARDS for queue in QUEUES
            ):
                refused = client.send(f"SUB {subject} {queue} {number}\r\n")
                verdict = ours.can_subscribe(subject.encode(), queue.encode())
                assert verdict == (not refused), (rules, subject, queue, refused)


def test_delivery_agrees_with_nats_server(real_server: Callable[[str], Any]) -> None:
    rules = SubjectRules(deny=["foo", "a.*", "x.y.z"])
    server = real_server(
        "authorization { users: [{user: u, password: p, permissions: {subscribe: "
        + _conf({"deny": rules.deny})
        + "}}] }"
    )
    ours = compiled(subscribe=rules)
    with server.client() as client:
        client.connect(user="u", **{"pass": "p"})
        assert client.send("SUB > 1\r\n") == []
        for subject in SUBJECTS:
            got = client.send(f"PUB {subject} 0\r\n\r\n")
            assert ours.delivery_denied(subject.encode()) == (not got), subject


def _conf(rules: dict[str, list[str]]) -> str:
    parts = [f"{kind}: [{', '.join(map(repr, rules[kind]))}]" for kind in rules]
    return "{" + ", ".join(parts) + "}"
