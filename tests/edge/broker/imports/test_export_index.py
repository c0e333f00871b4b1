"""Exports found by an index: those that a search one by one finds, and no slower for many."""

import time
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.broker.imports.claims_plan import ClaimsPlan
from headwater.edge.broker.imports.export_index import ExportIndex
from headwater.edge.conf.options import ExportOptions
from headwater.security.claims import AccountBody, AccountClaims, Export, Import
from headwater.security.subjects import covers
from tests.measuring import no_garbage

_subject = st.tuples(
    st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
).map(lambda parts: ".".join(parts[0] + parts[1]))
_kind = st.sampled_from(["stream", "service"])


@given(st.lists(st.tuples(_kind, _subject), max_size=8), _kind, _subject)
def test_what_is_found(offers: list[tuple[str, str]], kind: str, wanted: str) -> None:
    exports = [ExportOptions(kind=each, subject=subject) for each, subject in offers]
    same = [export for export in exports if export.kind == kind]
    exact = [export for export in same if export.subject == wanted]
    wide = [e for e in same if covers(e.subject.split("."), wanted.split("."))]
    assert ExportIndex(exports).find(kind, wanted) is next(iter(exact + wide), None)


def seconds(count: int) -> float:
    """Processor time for the plan of so many exports, and imports of them."""
    exports = [Export(subject=f"x.{i}.>", type="stream") for i in range(count)]
    imports = [
        Import(account="B", subject=f"x.{i}.a", type="stream", local_subject=f"l.{i}")
        for i in range(count)
    ]
    claims = {
        "A": AccountClaims(sub="A", nats=AccountBody(imports=imports)),
        "B": AccountClaims(sub="B", nats=AccountBody(exports=exports)),
    }
    authenticator: Any = SimpleNamespace(
        resolver=SimpleNamespace(accounts=lambda: list(claims)), account_claims=claims.get
    )
    with no_garbage():
        began = time.process_time()
        plan = ClaimsPlan().plan(authenticator, time.time())
        took = time.process_time() - began
    assert len(plan["A"].imports) == count
    return took


def test_many_exports_and_imports_cost_no_more_than_their_number() -> None:
    few = min(seconds(500) for _ in range(3))
    many = min(seconds(4000) for _ in range(2))
    assert many < 30 * few
