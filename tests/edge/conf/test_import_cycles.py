"""Imports that lead in a circle are found whichever way leads back, and only those."""

import time

import pytest

from headwater.edge.conf.load import load_text
from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_cycles import ImportWays
from headwater.security.errors import StepsExceeded

IMPORTS = {
    "B": [("C", "x", ""), ("C", "y", "")],
    "C": [("A", "w", "y")],
    "D": [("E", ">", "")],
    "E": [("A", "help", "")],
    "F": [("A", "w.*", "$1.w")],
}


def found(account: str, subject: str, kind: str = "service") -> bool:
    """Whether A's import of a subject of an account leads back to A."""

    ways = ImportWays()
    for name, entries in IMPORTS.items():
        for each, remote, local in entries:
            further = ImportOptions(kind="service", account=each, subject=remote, to=local)
            ways.add(name, further)
    return ways.leads_back("A", ImportOptions(kind=kind, account=account, subject=subject))


def test_a_second_way_through_an_account_is_followed() -> None:
    assert found("B", "*")
    assert found("B", "y")
    assert not found("B", "x")


def test_a_narrow_subject_stays_narrow() -> None:
    assert found("D", "help")
    assert found("D", ">")
    assert not found("D", "other")


def test_places_of_a_local_subject_are_wildcards() -> None:
    assert found("F", "any.w")
    assert not found("F", "any.x")


def test_kinds_are_apart() -> None:
    assert not found("B", "y", "stream")


def test_ways_that_share_too_much_are_not_followed_to_their_end() -> None:
    """Every import of A leads over every import of B."""
    ways = ImportWays()
    for number in range(2000):
        ways.add("B", ImportOptions(kind="service", account="C", subject=f"x.{number}"))
    entry = ImportOptions(kind="service", account="B", subject="x.>", to="y.>")
    with pytest.raises(StepsExceeded):
        for _ in range(2000):
            assert not ways.leads_back("A", entry)


def configured(count: int) -> float:
    """Processor time to read a configuration of so many exports, and imports of them."""
    imports = "\n".join(
        f"{{ service: {{ account: B, subject: x.{n}.a }}, to: y.{n} }}" for n in range(count)
    )
    exports = "\n".join(f"{{ service: x.{n}.> }}" for n in range(count))
    accounts = f"A {{ imports: [\n{imports}\n] }}\nB {{ exports: [\n{exports}\n] }}"
    text = f"accounts {{\n{accounts}\n}}\n"
    began = time.process_time()
    assert len(load_text(text).options.accounts["A"].imports) == count
    return time.process_time() - began


def test_many_imports_and_exports_cost_no_more_than_their_number() -> None:
    few = min(configured(150) for _ in range(3))
    assert min(configured(2400) for _ in range(2)) < 48 * few
