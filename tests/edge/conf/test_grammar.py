"""The configuration grammar: values, places, variables, includes and hostile input."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge.conf.grammar import MAX_NESTING, Value, parse_file, parse_text
from headwater.edge.conf.problems import ConfigError


def plain(text: str) -> Any:
    return parse_text(text).plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", 1),
        ("a = -7", -7),
        ("a 2.5", 2.5),
        ("a: 1k", 1000),
        ("a: 1KiB", 1024),
        ("a: 2mb", 2 << 20),
        ("a: 3G", 3_000_000_000),
        ("a: true", True),
        ("a: Yes", True),
        ("a: off", False),
        ("a: word", "word"),
        ("a: 12h", "12h"),
        ("a: 1m30s", "1m30s"),
        ("a: 2m", 2_000_000),
        ("a: 127.0.0.1:4222", "127.0.0.1:4222"),
        ("a: 'single \\n'", "single \\n"),
        ('a: "x\\t\\n\\r\\"\\\\\\x41"', 'x\t\n\r"\\A'),
        ('a: "\\xc3\\xa9"', "é"),
        ("a: b\\tc", "b\tc"),
        ("a: $2a$11$hash", "$2a$11$hash"),
        ("a: (\n block\n)", "\n block\n"),
        ("a: 2016-05-04T18:53:41Z", datetime(2016, 5, 4, 18, 53, 41, tzinfo=UTC)),
        ("a: [1, 'x'\n true]", [1, "x", True]),
        ("a: { b: 1, c { d 2 } }", {"b": 1, "c": {"d": 2}}),
        ("a {}", {}),
        ("a []", []),
        ("a =", ""),
        ("a\n 5", 5),
        ("a: b # c", "b"),
        ("a: b // c", "b"),
        ("a: 1;", 1),
    ],
)
def test_values(text: str, value: object) -> None:
    assert plain(text) == {"a": value}


def test_documents() -> None:
    assert plain('{"a": 1, "b": [true]}') == {"a": 1, "b": [True]}
    assert plain("a: 1, b: 2; c: 3\nd 4 # x\n// y\n'e f': 5") == {
        "a": 1,
        "b": 2,
        "c": 3,
        "d": 4,
        "e f": 5,
    }
    assert plain("a.b: 1\r\nA: 2\r\n") == {"a.b": 1, "A": 2}
    assert plain("") == plain(" \n# only a comment") == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a", "1:1"),
        ("a:\n1", "1:3"),
        ("x: 1\n= 2", "2:1"),
        ("a: 1 2", "1:6"),
        ('a: "x', "1:4"),
        ("a: 'x", "1:4"),
        ("a: (\nx", "1:4"),
        ("a: {\n b: 1", "1:4"),
        ("a: [1", "1:4"),
        ("a: { b }", "1:6"),
        ("a: [,1]", "1:5"),
        ('a: "\\q"', "1:5"),
        ('a: "\\x4"', "1:5"),
        ("a: -x", "1:5"),
        ("a: 1.", "1:6"),
        ("a: .5", "1:4"),
        ("a: 1kbb", "1:4"),
        ("a: 99999999999999999999", "1:4"),
        ("a: 10e", "1:4"),
        ("a: 2016-05-99T00:00:00Z", "1:4"),
        ("a: 12-05", "1:4"),
        ("a: $NOT_THERE_AT_ALL", "1:4"),
        ("a: \0", "1:4"),
    ],
)
def test_errors_tell_their_place(text: str, place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_text(text, "name")
    assert caught.value.problems[0].startswith(f"name:{place}: ")


def test_values_know_their_place() -> None:
    data = parse_text("a: 1\n b { c: [x,\n   y] }", "f").data
    assert isinstance(data, dict)
    assert str(data["a"].position) == "f:1:1"
    inner = data["b"].data
    assert isinstance(inner, dict)
    items = inner["c"].data
    assert isinstance(items, list)
    assert [str(item.position) for item in items] == ["f:2:10", "f:3:4"]


def test_variables_are_found_from_the_inside_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HW_TEST_PORT", "4333")
    monkeypatch.setenv("HW_TEST_LIST", "[1, $HW_TEST_PORT]")
    text = "x: 1\nm { x: 2, y: $x, z { y: $x } }\na: [$x]\np: $HW_TEST_PORT\nl: $HW_TEST_LIST"
    assert plain(text) == {
        "x": 1,
        "m": {"x": 2, "y": 2, "z": {"y": 2}},
        "a": [1],
        "p": 4333,
        "l": [1, 4333],
    }
    data = parse_text("x: 1\ny: $x").data
    assert isinstance(data, dict)
    assert data["x"].used and not data["y"].used


def test_variable_cycles_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HW_TEST_A", "$HW_TEST_B")
    monkeypatch.setenv("HW_TEST_B", "$HW_TEST_A")
    with pytest.raises(ConfigError, match="variable reference cycle"):
        parse_text("a: $HW_TEST_A")


def test_includes_merge_where_they_stand(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.conf").write_text("x: 2\ny: 3")
    (tmp_path / "outer.conf").write_text(
        "x: 1\nm { include 'sub/inner.conf'\n z: $y }\ninclude sub/inner.conf; w: $x"
    )
    document = parse_file(tmp_path / "outer.conf")
    assert document.plain() == {"x": 2, "y": 3, "w": 2, "m": {"x": 2, "y": 3, "z": 3}}
    assert isinstance(document.data, dict)
    assert document.data["y"].position.file.endswith("inner.conf")


def test_bad_includes(tmp_path: Path) -> None:
    loop = tmp_path / "loop.conf"
    loop.write_text("include loop.conf")
    with pytest.raises(ConfigError, match="includes itself"):
        parse_file(loop)
    for text in ("include absent.conf", "include", "include [x]", "include 5", "include -x"):
        loop.write_text(text)
        with pytest.raises(ConfigError):
            parse_file(loop)
    with pytest.raises(ConfigError, match="open .*: No such file"):
        parse_file(tmp_path / "nowhere.conf")
    with pytest.raises(ConfigError):
        parse_file(tmp_path)


def test_nesting_is_bounded() -> None:
    assert plain("a: " + "[" * 10 + "]" * 10)
    for opening in ("[", "{a:"):
        with pytest.raises(ConfigError, match="nested too deeply"):
            parse_text("a: " + opening * (MAX_NESTING + 5))
    assert plain("{" * 5000 + "}" * 5000) == {}


_soup = st.lists(
    st.sampled_from(
        [
            "a",
            "b",
            ":",
            "=",
            "{",
            "}",
            "[",
            "]",
            ",",
            ";",
            "\n",
            " ",
            '"',
            "'",
            "(",
            ")",
            "#",
            "//",
            "$",
            "$a",
            "1",
            "-",
            ".",
            "k",
            "mb",
            "\\",
            "\\x41",
            "include",
            "true",
            "é",
            "\t",
            "\r",
        ]
    ),
    max_size=30,
).map("".join)


@settings(max_examples=300)
@given(_soup | st.text(max_size=60))
def test_any_text_parses_or_fails_cleanly(text: str) -> None:
    try:
        document = parse_text(text)
    except ConfigError as error:
        assert error.problems and all(problem for problem in error.problems)
        return
    assert isinstance(document, Value) and isinstance(document.data, dict)


_scalars = (
    st.integers(-(2**63), 2**63 - 1)
    | st.booleans()
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), _scalars, max_size=4))
def test_json_is_understood(members: dict[str, Any]) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = [
        f"{quoted(key)}: {quoted(item) if isinstance(item, str) else str(item).lower()}"
        for key, item in members.items()
    ]
    assert plain("{\n" + ",\n".join(lines) + "\n}") == members
