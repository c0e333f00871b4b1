"""Templates of scoped signing keys, and time and source windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    SubjectPermission,
    TimeRange,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.errors import JWTError
from headwater.security.scope import MAX_EXPANSIONS, apply_template
from headwater.security.subjects import is_valid_subject
from headwater.security.windows import open_until, source_allowed

USER = UserClaims(
    sub="UKEY",
    name="bob",
    nats=UserBody(issuer_account="AKEY", tags=["team:x", "team:y", "zone:1"]),
)
ACCOUNT = AccountClaims(sub="AKEY", name="acme", nats=AccountBody(tags=["tier:gold"]))


def allowed(*rules: str) -> SubjectPermission:
    return apply_template(UserLimits(pub=SubjectPermission(allow=list(rules))), USER, ACCOUNT).pub


def test_every_operation() -> None:
    found = allowed(
        "plain",
        "{{name()}}.{{subject()}}",
        "{{Account-Name()}}.{{ account-subject() }}",
        "{{tag(team)}}.{{tag(Zone)}}",
        "{{account-tag(tier)}}.>",
    )
    assert found.allow == ["plain", "bob.UKEY", "acme.AKEY", "x.1", "y.1", "gold.>"]
    assert found.deny == []


def test_a_rule_that_cannot_be_filled_in() -> None:
    assert allowed("{{tag(none)}}.a", "b").allow == ["b"]
    assert allowed("{{tag(none)}}.a") == SubjectPermission(allow=[], deny=[">"])
    denying = UserLimits(pub=SubjectPermission(deny=["{{tag(none)}}.a"]))
    with pytest.raises(JWTError):
        apply_template(denying, USER, ACCOUNT)
    with pytest.raises(JWTError):
        allowed("{{nonsense()}}")


def test_expansion_is_bounded() -> None:
    many = UserClaims(name="u", nats=UserBody(tags=[f"t:{index}" for index in range(70)]))
    template = UserLimits(sub=SubjectPermission(allow=["{{tag(t)}}.{{tag( t)}}", "{{tag(t)}}.x"]))
    many.nats.tags += [f" t:{index}" for index in range(70)]
    assert MAX_EXPANSIONS < 70 * 70
    with pytest.raises(JWTError):
        apply_template(template, many, ACCOUNT)


@given(st.lists(st.text(max_size=12) | st.from_regex(r"\{\{\w*\(?\w*\)?\}\}"), max_size=3))
def test_any_template_expands_or_fails_cleanly(rules: list[str]) -> None:
    try:
        found = allowed(*rules)
    except JWTError:
        return
    assert found.allow == rules or all(map(is_valid_subject, found.allow))


def test_sources() -> None:
    assert source_allowed([], "anything")
    assert source_allowed(["10.0.0.0/8", "::1/128"], "::1")
    assert source_allowed(["10.0.0.0/8"], "::ffff:10.1.2.3")
    for blocks, host in ((["10.0.0.0/8"], "11.0.0.1"), (["x"], "10.0.0.1"), (["::/0"], "")):
        assert not source_allowed(blocks, host)


NOON = 1_700_000_000.0 - (1_700_000_000 % 86400) + 12 * 3600


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        ("11:00:00", "13:00:00", 3600),
        ("12:00:00", "12:00:01", 1),
        ("13:00:00", "14:00:00", None),
        ("11:00:00", "12:00:00", None),
        ("22:00:00", "13:00:00", 3600),
        ("11:00:00", "01:00:00", 13 * 3600),
        ("nonsense", "13:00:00", None),
    ],
)
def test_windows(start: str, end: str, left: int | None) -> None:
    found = open_until([TimeRange(start=start, end=end)], "UTC", NOON)
    assert found == (None if left is None else NOON + left)


def test_windows_in_other_zones() -> None:
    window = [TimeRange(start="13:00:00", end="14:00:00")]
    assert open_until(window, "Europe/Berlin", NOON) == NOON + 3600
    assert open_until(window, "No/Where", NOON) is None
    assert open_until([], "No/Where", NOON) == 0.0
    wide = [TimeRange(start="00:00:00", end="23:59:59")]
    assert open_until(wide, "", NOON) is not None


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_any_window_gets_an_answer(start: str, end: str, location: str) -> None:
    found = open_until([TimeRange(start=start, end=end)], location, NOON)
    assert found is None or found > NOON
    assert source_allowed([start], end) in (True, False)
