"""Patterns that are asked together give the answers that each of them gives alone."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.subjects.pattern_set import PatternSet
from headwater.edge.subjects.tokens import matches

TOKENS = st.sampled_from(["a", "b", "ab", "", "c"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERN_TOKENS = st.sampled_from(["a", "b", "ab", "*", ">", "a*", "c"])
PATTERNS = st.lists(PATTERN_TOKENS, min_size=1, max_size=4).map(".".join)


@given(patterns=st.lists(PATTERNS, max_size=8), subjects=st.lists(SUBJECTS, min_size=1))
def test_as_one_after_the_other(patterns: list[str], subjects: list[str]) -> None:
    encoded = tuple(pattern.encode() for pattern in patterns)
    together = PatternSet(encoded, 7)
    for subject in subjects:
        wanted = any(matches(pattern, subject.encode()) for pattern in encoded)
        assert together.match(subject.encode()) is wanted, (subject, patterns)


def test_wildcards_on_every_way() -> None:
    """Each place has a wildcard and a literal: every way is tried, and none of them twice."""
    tokens = 12
    patterns = [b""]
    for _ in range(tokens):
        patterns = [p + b"." + t if p else t for p in patterns for t in (b"a", b"*")]
    together = PatternSet(tuple(p + b".b" for p in patterns), 1)
    assert together.match(b"a." * tokens + b"b")
    assert not together.match(b"a." * tokens + b"c")
