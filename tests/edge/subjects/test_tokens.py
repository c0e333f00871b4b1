"""Subject matching against a naive reading of the rules."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.subjects.tokens import (
    clean_word,
    covers,
    literal_subject,
    matches,
    overlap,
    valid_subject,
)

TOKEN = st.sampled_from([b"a", b"b", b"foo", b"*", b">", b"a*", b">b"])
SUBJECT = st.lists(TOKEN, min_size=1, max_size=5).map(b".".join)
WORD = st.sampled_from([b"a", b"b", b"foo", b"a*", b">b"])
LITERAL = st.lists(WORD, min_size=1, max_size=5).map(b".".join)


def naive(pattern: bytes, subject: bytes) -> bool:
    want, have = pattern.split(b"."), subject.split(b".")
    for i, token in enumerate(want):
        if token == b">" and i == len(want) - 1:
            return len(have) > i
        if i >= len(have) or (token != b"*" and token != have[i]):
            return False
    return len(want) == len(have)


@given(SUBJECT.filter(valid_subject), LITERAL)
def test_matches_agrees_with_a_naive_reading(pattern: bytes, subject: bytes) -> None:
    assert matches(pattern, subject) == naive(pattern, subject)


@given(SUBJECT.filter(valid_subject), SUBJECT.filter(valid_subject), LITERAL)
def test_overlap_and_covers_follow_from_matching(a: bytes, b: bytes, subject: bytes) -> None:
    if matches(a, subject) and matches(b, subject):
        assert overlap(a, b)
    if covers(a, b) and matches(b, subject):
        assert matches(a, subject)


def test_what_a_valid_subject_is() -> None:
    good = [b"a", b"a.b", b"*", b">", b"a.*.c", b"a.>", b"foo*", b"$JS.API", "ä.ö".encode()]
    bad = [b"", b".", b"a.", b".a", b"a..b", b"a b", b"a\tb", b"a.>.b", b"a\r", b">.a"]
    assert all(valid_subject(subject) for subject in good)
    assert not any(valid_subject(subject) for subject in bad)
    assert literal_subject(b"foo*.bar") and not literal_subject(b"foo.*")


def test_one_byte_anywhere_makes_a_word_unclean() -> None:
    for size in range(1, 34):
        for at in range(size):
            for byte in range(256):
                word = b"\xe4" * at + bytes([byte]) + b"~" * (size - at - 1)
                assert clean_word(word) == (byte > 32 and byte != 127), (size, at, byte)
