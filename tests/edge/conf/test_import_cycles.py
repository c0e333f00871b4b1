"""Imports that lead in a circle are found whichever way leads back, and only those."""

from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_cycles import leads_back

IMPORTS = {
    "B": [("C", "x", ""), ("C", "y", "")],
    "C": [("A", "w", "y")],
    "D": [("E", ">", "")],
    "E": [("A", "help", "")],
    "F": [("A", "w.*", "$1.w")],
}


def found(account: str, subject: str, kind: str = "service") -> bool:
    """Whether A's import of a subject of an account leads back to A."""

    def imports_of(name: str) -> list[ImportOptions]:
        return [
            ImportOptions(kind="service", account=each, subject=remote, to=local)
            for each, remote, local in IMPORTS.get(name, ())
        ]

    return leads_back(imports_of, "A", ImportOptions(kind=kind, account=account, subject=subject))


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
