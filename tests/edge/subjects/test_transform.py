"""Subject transforms: every function, every refusal, and the way back."""

import pytest

from headwater.edge.subjects.transform import TransformError, reversed_transform, transform

CASES = [
    ("foo.*.*", "bar.$2.$1", "foo.a.b", "bar.b.a"),
    ("foo.*.*", "bar.{{wildcard(2)}}.x", "foo.a.b", "bar.b.x"),
    ("foo.>", "bar.>", "foo.a.b", "bar.a.b"),
    ("foo.*.>", "{{wildcard(1)}}.bar.>", "foo.a.b.c", "a.bar.b.c"),
    (">", ">", "foo.a", "foo.a"),
    ("", "pre.>", "foo.a", "pre.foo.a"),
    ("foo", "bar", "foo", "bar"),
    ("foo", "$SYS.x", "foo", "$SYS.x"),
    ("foo.*", "bar.{{Partition(10, 1)}}.{{wildcard(1)}}", "foo.abc", "bar.1.abc"),
    ("foo.*.*", "p.{{partition(10,1,2)}}", "foo.us.200", "p.5"),
    ("foo", "p.{{partition(5)}}", "foo", "p.3"),
    ("foo.*", "r.{{random(1)}}", "foo.a", "r.0"),
    ("*", "{{splitfromleft(1,3)}}", "12345", "123.45"),
    ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
    ("*", "{{splitfromleft(1,9)}}", "12345", "12345"),
    ("*", "{{slicefromleft(1,3)}}", "1234567890", "123.456.789.0"),
    ("*", "{{slicefromright(1,3)}}", "1234567890", "1.234.567.890"),
    ("*", "{{left(1,2)}}.{{right(1,2)}}", "abcdef", "ab.ef"),
    ("foo.*", "bar.$\u00b2", "foo.a", "bar.$\u00b2"),
    ("foo.*", "bar.$\u0661", "foo.a", "bar.$\u0661"),
    ("foo.*", "bar.$" + "9" * 5000, "foo.a", "bar.$" + "9" * 5000),
    ("foo.*", "bar.$1", "other.a", None),
    ("foo.*", "bar.$1", "foo.a.b", None),
]

REFUSED = [
    ("foo.*", "bar.$2", "wildcard index out of range in $2: [2]"),
    ("foo", "bar.$1", "wildcard index out of range in $1"),
    ("foo.*", "bar.{{nope(1)}}", "unknown function in {{nope(1)}}"),
    ("foo.*", "bar.{{wildcard()}}", "not enough arguments passed to the function"),
    ("foo.*", "bar.{{wildcard(1,2)}}", "too many arguments passed to the function"),
    ("foo.*", "bar.{{wildcard(a)}}", "function argument is invalid or in the wrong format"),
    ("foo.*", "bar.{{wildcard(1_0)}}", "function argument is invalid or in the wrong format"),
    ("foo.*", "bar.{{wildcard(\u0661)}}", "function argument is invalid"),
    ("foo.*", "b.{{left(1," + "9" * 5000 + ")}}", "function argument is invalid"),
    ("foo.*", "bar.{{split(1)}}", "not enough arguments passed to the function"),
    ("foo.*", "bar.{{partition(9999999999,1)}}", "function argument is invalid"),
    ("foo.*", "bar.*", "invalid transform"),
    ("foo.>", "bar", "invalid transform"),
    ("foo", "bar.>", "invalid transform"),
    ("foo..a", "bar", "invalid transform"),
    ("foo", "bar.", "invalid transform"),
]


@pytest.mark.parametrize(("source", "destination", "subject", "wanted"), CASES)
def test_transforms(source: str, destination: str, subject: str, wanted: str | None) -> None:
    found = transform(source, destination).match(subject.encode())
    assert found == (wanted.encode() if wanted is not None else None)


@pytest.mark.parametrize(("source", "destination", "text"), REFUSED)
def test_refusals(source: str, destination: str, text: str) -> None:
    with pytest.raises(TransformError) as caught:
        transform(source, destination)
    assert str(caught.value).startswith(f"invalid mapping destination: {text}")


def test_strict_transforms_use_every_wildcard_and_nothing_else() -> None:
    assert transform("a.*.*", "b.$2.$1", strict=True).match(b"a.x.y") == b"b.y.x"
    with pytest.raises(TransformError, match="not using all of the token wildcard"):
        transform("a.*.*", "b.$1", strict=True)
    with pytest.raises(TransformError, match="only mapping function allowed"):
        transform("a.*", "b.{{partition(3,1)}}", strict=True)


def test_the_way_back() -> None:
    there = transform("foo.*.x.*", "bar.$2.y.{{wildcard(1)}}", strict=True)
    back = reversed_transform("foo.*.x.*", "bar.$2.y.{{wildcard(1)}}")
    subject = b"foo.one.x.two"
    assert back.match(there.match(subject)) == subject
