"""Log lines, as far as their calls tell: a line names what failed and where, and what follows.

What a line may hold of outsiders' text is the business of `edge/logging`, which makes every line
printable: that is tested beside it. Here is what only the calls can get wrong.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.syntax import module, nodes

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("edge", "hub", "federation", "security", "spark", "deploy")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
LOUD = {"warning", "error", "exception", "critical"}
PLACEHOLDER = re.compile(r"%[-0-9.]*[srdxf]")
WORD = re.compile(r"[A-Za-z']{2,}")
CLAUSE = re.compile(r"[:;,(]|\band\b")
REPORT = "report this fault"
"""What to do about what nobody expects: the line ends with it, and a traceback follows."""

WORDS_MAX = 30
"""Words of a line, placeholders not counted."""

WORDS_MIN = 2
"""Words of a clause, placeholders not counted: fewer say nothing by themselves."""

THEIRS = re.compile(
    r"^(edge/broker|edge/websocket|edge/ocsp/(?:staples|peer_checks)|edge/system|"
    r"edge/monitor/visitors|hub/routes/\w+|federation/leaf/\w+|deploy/serve)"
)
"""Modules whose lines are nats-server's, word by word, or pass a sentence on that was made below:
operators' tools look for these. They name their subject like all others."""

WHOLE = {
    "the age clock in the log is unreadable; messages age by the wall clock from now on",
    "the cluster's metadata cannot be read here; start the node again",
    "this node was removed from its cluster: stop it, or start it again to let it join",
    "this node was removed from its cluster; it asks to be taken in again",
    "other nodes know a later start of this node, so they refuse it: start it again",
    "Websocket not configured with TLS. DO NOT USE IN PRODUCTION!",
    "Cluster name was dynamically generated, consider setting one",
}
"""Lines about the whole node: there is nothing to name."""

PASSED_ON = {
    "%s",
    "%s; they are fetched from another node",
    "%s %s: %s",
}
"""Forms that pass a whole sentence on, such as a `Problem`, which says what is to be said."""


def calls(text: str) -> Iterator[ast.Call]:
    """Calls of a module that log."""
    for node in nodes(text):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            if node.func.attr in LEVELS and name in ("log", "logger", "_log", "logging"):
                yield node


def constants(text: str) -> dict[str, str]:
    """Texts that a module names, so that several calls log them."""
    found = {}
    for node in module(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found.update({n.id: node.value.value for n in node.targets if isinstance(n, ast.Name)})
    return {name: value for name, value in found.items() if isinstance(value, str)}


def wrong(text: str, theirs: bool = False) -> list[str]:
    """What is wrong with a module's log calls, as `line: what`."""
    found = []
    named = constants(text)
    for call in calls(text):
        assert isinstance(call.func, ast.Attribute)
        level = call.func.attr
        first = call.args[0] if call.args else None
        form = first.value if isinstance(first, ast.Constant) else None
        if isinstance(first, ast.Name):
            form = named.get(first.id)
            if form is None and any(isinstance(each, ast.Starred) for each in call.args):
                continue  # a function that passes its caller's line on
        found += [f"{call.lineno}: {what}" for what in faults(level, form, call.args[1:], theirs)]
    return found


def faults(level: str, form: object, args: list[ast.expr], theirs: bool) -> Iterator[str]:
    """What is wrong with one line."""
    if not isinstance(form, str):
        yield "give the form as one constant, and the values as arguments"
        return
    if "\n" in form:
        yield "a line is one line"
    count = len(PLACEHOLDER.findall(form.replace("%%", "")))
    if count != len(args) and not any(isinstance(each, ast.Starred) for each in args):
        yield f"{count} values are wanted, {len(args)} given"
    if level not in LOUD:
        return
    if level == "exception" and not form.endswith(REPORT):
        yield f"say what to do about a fault ({REPORT!r}): {form!r}"
    words = len(WORD.findall(PLACEHOLDER.sub(" ", form)))
    if words > WORDS_MAX:
        yield f"say it in {WORDS_MAX} words, not {words}: {form!r}"
    if not count and form not in WHOLE:
        yield f"name what it is about: {form!r}"
    clauses = [len(WORD.findall(PLACEHOLDER.sub(" ", part)))
               for part in CLAUSE.split(form)]  # fmt: skip
    said = sum(words >= WORDS_MIN for words in clauses)
    if said < 2 and not theirs and form not in PASSED_ON:
        yield f"say what follows from it: {form!r}"


PRODUCT = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]


def test_log_calls_say_what_failed_where_and_what_follows() -> None:
    found = {}
    for path in PRODUCT:
        name = path.relative_to(ROOT).as_posix()
        if bad := wrong(path.read_text(), bool(THEIRS.match(name))):
            found[name] = bad
    assert not found, "\n".join(f"{name}:{line}" for name, bad in found.items() for line in bad)


def test_the_exceptions_are_in_use() -> None:
    text = "".join(path.read_text() for path in PRODUCT)
    forms = {
        "".join(each.args[0].value)
        for path in PRODUCT
        for each in calls(path.read_text())
        if each.args and isinstance(each.args[0], ast.Constant)
    }
    assert forms >= WHOLE | (PASSED_ON - {"%s"}), (WHOLE | PASSED_ON) - forms
    assert "log" in text


@pytest.mark.parametrize(
    "line",
    [
        'log.error(f"{path} is gone")', 'log.error("it is gone: " + path)',
        'log.error("it is gone: %s" % path)', 'log.warning(text)', 'log.warning("", exc_info=True)',
        'log.warning("a request failed; it is answered")',
        'log.exception("stream %s failed", name)',
        'log.exception("stream %s failed; it is tried again", name)',
        'log.error("%s failed; ' + "it is tried again " * 8 + '", name)',
        'log.error("%s cannot be written: %s", path, error)', 'log.info("%s and %s", one)',
        'log.error("stream %s\\n failed; it is tried again", name)',
    ],
)  # fmt: skip
def test_a_line_that_says_too_little_is_seen(line: str) -> None:
    assert wrong(line)


@pytest.mark.parametrize(
    "line",
    [
        'log.error("%s cannot be written: %s; it is tried again", path, error)',
        'log.exception("stream %s failed; others go on; report this fault", name)',
        'log.debug("%s: what", path)', 'log.warning("%s", problem)',
        'TEXT = "%s is damaged (%s); it is written again"\nlog.warning(TEXT, path, error)',
    ],
)  # fmt: skip
def test_a_line_that_says_enough_passes(line: str) -> None:
    assert not wrong(line)
