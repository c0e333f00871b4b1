"""The plan of account tokens that is kept: after any changes it is what a plan from the beginning
is, and what a plain reading of all tokens says."""

import time
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge.broker.imports.claimed_shares import activation_of, import_of
from headwater.edge.broker.imports.claims_plan import ClaimsPlan
from headwater.edge.broker.imports.export_index import ExportIndex
from headwater.edge.broker.imports.imports_plan import Plan
from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_cycles import ImportWays
from headwater.edge.conf.shares.import_subjects import check_subjects
from headwater.edge.kernel.wall_window import FOR_EVER
from headwater.edge.subjects.transform import TransformError
from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    ActivationBody,
    ActivationClaims,
    Export,
    Import,
)
from headwater.security.nkeys import KeyPair

KEYS = [KeyPair.create("A") for _ in range(4)]
NAMES = [key.public_key for key in KEYS]
LIMITS = [(0, 0), (15, 0), (25, 0), (0, 15), (0, 25), (12, 18)]
"""Ends and beginnings of activations, in seconds."""
TOKENS = {
    (exporter, importer, subject, kind, limits): jwt.encode(
        ActivationClaims(
            sub=NAMES[importer],
            exp=limits[0],
            nbf=limits[1],
            nats=ActivationBody(subject=subject, kind=kind),
        ),
        KEYS[exporter],
        issued_at=10,
    )
    for exporter in range(4)
    for importer in range(4)
    for subject in ("a.>", "b")
    for kind in ("service", "stream")
    for limits in LIMITS
}

_kind = st.sampled_from(["stream", "service"])
_offers = st.lists(
    st.builds(
        Export,
        subject=st.sampled_from(["a.>", "b", ">", ">", "*.*"]),
        type=_kind,
        token_req=st.sampled_from([False, False, True]),
        account_token_position=st.sampled_from([0, 0, 0, 0, 0, 0, 2]),
        revocations=st.sampled_from([{}, {}, {}, {"*": 20}]),
    ),
    min_size=1,
    max_size=3,
)


def _imports(importer: int) -> st.SearchStrategy[list[Import]]:
    """Imports of one account of others, most of which can be."""
    one = st.sampled_from(
        [
            Import(
                subject=subject,
                account=NAMES[exporter],
                type=kind,
                token=TOKENS[exporter, importer, wide, kind, limits],
                local_subject=local,
                to=to,
            )
            for exporter in range(3)
            for kind in ("stream", "service")
            for subject, wide in (("a.b", "a.>"), ("a.>", "a.>"), ("b", "b"), ("b", "a.>"))
            for limits in LIMITS
            for local, to in (("", ""), ("", ""), ("b", ""), ("a.b", ""), ("", "b"), ("a..", ""))
        ]
    )
    return st.lists(one, min_size=1, max_size=4)


def _bodies(importer: int) -> st.SearchStrategy[AccountBody]:
    """Accounts that offer this or that, or all of it: what is open to all leads in circles."""
    some = st.builds(AccountBody, exports=_offers, imports=_imports(importer))
    every = [Export(subject=">", type=kind) for kind in ("service", "stream")]
    from_others = st.sampled_from(
        [
            [Import(subject=subject, account=NAMES[other], type="service", local_subject=local)]
            for other in ((importer + 1) % 3, (importer + 1) % 3, (importer + 2) % 3)
            for subject in ("b", "c")
            for local in ("b", "b", "c")
        ]
    )
    ring = st.builds(AccountBody, exports=st.just(every), imports=from_others)
    return st.one_of(some, ring, ring)


_changes = st.lists(
    st.tuples(
        st.sampled_from(range(3)).flatmap(
            lambda which: st.tuples(
                st.just(which),
                st.one_of(
                    *[_bodies(which)] * 4,
                    st.just("stay"),
                    st.just("go"),
                ),
            )
        ),
        st.sampled_from([11.0, 13.0, 15.0, 18.0, 20.0, 25.0, 30.0]),
    ),
    min_size=1,
    max_size=14,
)
"""An account, what becomes of its token, and the second at which that is."""


def server(held: dict[str, AccountClaims]) -> Any:
    resolver = SimpleNamespace(accounts=lambda: list(held))
    return SimpleNamespace(resolver=resolver, account_claims=held.get)


def imports(plan: Plan) -> dict[str, list[ImportOptions]]:
    return {name: shares.imports for name, shares in plan.items()}


def plainly(held: dict[str, AccountClaims], now_s: float) -> dict[str, list[ImportOptions]]:
    """All tokens read one after the other, each import against all before it."""
    plan: dict[str, list[ImportOptions]] = {}
    exports = {name: ClaimsPlan().plan(server({name: held[name]}), now_s)[name] for name in held}
    ways = ImportWays()
    for name, claims in held.items():
        standing = set()
        plan[name] = []
        for item in claims.nats.imports:
            entry = import_of(item)
            if not allowed(held, exports, name, item, entry, now_s):
                continue
            key = entry.kind == "stream" and (entry.account, entry.subject)
            if ways.leads_back(name, entry) or key in standing:
                continue
            if key:
                standing.add(key)
            ways.add(name, entry)
            plan[name].append(entry)
    return plan


def allowed(
    held: dict[str, AccountClaims],
    exports: Plan,
    name: str,
    item: Import,
    entry: ImportOptions,
    now_s: float,
) -> bool:
    """Whether an import is authorized and its subjects fit together."""
    if entry.account not in held:
        return False
    export = ExportIndex(exports[entry.account].exports).find(entry.kind, entry.subject)
    if export is None:
        return False
    try:
        check_subjects(entry)
    except TransformError:
        return False
    if export.account_token_position:
        words = entry.subject.split(".")
        return len(words) > 1 and words[export.account_token_position - 1] == name
    exporter = held[entry.account]
    same = (e for e in exporter.nats.exports if (e.subject, e.type) == (export.subject, entry.kind))
    offered = next(same)
    if not offered.token_req:
        return True
    token = activation_of(exporter, offered, name, item, entry)
    return token is not None and not jwt.expired(token, now_s)


@settings(max_examples=100, deadline=None)
@given(_changes)
def test_a_plan_that_is_kept_is_a_plan_from_the_beginning(
    changes: list[tuple[tuple[int, AccountBody | str], float]],
) -> None:
    held: dict[str, AccountClaims] = {}
    kept = ClaimsPlan()
    for (which, body), at in changes:
        name = NAMES[which]
        if isinstance(body, AccountBody):
            held[name] = AccountClaims(sub=name, iss="O", nats=body)
        elif body == "go":
            held.pop(name, None)
        plan = kept.plan(server(held), at)
        assert plan == ClaimsPlan().plan(server(held), at)
        assert imports(plan) == plainly(held, at)


def test_a_plan_follows_the_time_of_day() -> None:
    """Whatever else is as it was; a clock may be set back, too."""
    a, b = NAMES[:2]
    takes = {
        limits: Import(account=b, subject="a.>", type="service", local_subject=f"l.{at}.>")
        for at, limits in enumerate(((15, 0), (0, 15), (25, 0), (0, 25)))
    }
    for limits, item in takes.items():
        item.token = TOKENS[1, 0, "a.>", "service", limits]
    offers = [Export(subject="a.>", type="service", token_req=True)]
    held = {
        a: AccountClaims(sub=a, nats=AccountBody(imports=list(takes.values()))),
        b: AccountClaims(sub=b, nats=AccountBody(exports=offers)),
    }
    kept = ClaimsPlan()
    windows = {11.0: (0, 15), 15.0: (15, 25), 20.0: (15, 25), 30.0: (25, FOR_EVER)}
    for now_s in (11.0, 15.0, 30.0, 20.0, 11.0, 30.0):
        plan = kept.plan(server(held), now_s)
        assert imports(plan) == plainly(held, now_s)
        assert len(plan[a].imports) == 2
        assert kept.window() == windows[now_s]


def test_a_ring_that_opens_and_closes() -> None:
    """The last one of a ring is left out as long as the others close it, though its own token and
    that of its exporter stay."""
    every = [Export(subject=">", type="service")]

    def ring(which: int, local: str) -> AccountClaims:
        item = Import(account=NAMES[(which + 1) % 3], subject="b", type="service")
        item.local_subject = local
        body = AccountBody(exports=every, imports=[item])
        return AccountClaims(sub=NAMES[which], iss="O", nats=body)

    held = {NAMES[which]: ring(which, "b") for which in range(3)}
    kept = ClaimsPlan()
    last = NAMES[2]
    for local, left in (("b", 0), ("c", 1), ("b", 0), ("b", 0)):
        held[NAMES[1]] = ring(1, local)
        plan = kept.plan(server(held), 1.0)
        assert imports(plan) == plainly(held, 1.0)
        assert len(plan[last].imports) == left


def test_a_change_costs_nothing_to_others() -> None:
    """An account of many imports is planned once; what others change does not touch it."""
    many = 3000
    a, b, c, d = NAMES
    exports = [Export(subject=f"x.{n}.>", type="service") for n in range(many)]
    takes = [
        Import(account=b, subject=f"x.{n}.a", type="service", local_subject=f"l.{n}")
        for n in range(many)
    ]
    back = [Import(account=a, subject="out.>", type="stream")]
    offers = [Export(subject="out.>", type="stream")]
    held = {
        a: AccountClaims(sub=a, nats=AccountBody(imports=takes, exports=offers)),
        b: AccountClaims(sub=b, nats=AccountBody(exports=exports, imports=back)),
        c: AccountClaims(sub=c, nats=AccountBody(exports=offers)),
    }
    kept = ClaimsPlan()
    whole = min(cost(ClaimsPlan(), held) for _ in range(2))
    before = kept.plan(server(held), 1.0)
    costs = []
    for _ in range(3):
        held[d] = AccountClaims(sub=d, nats=AccountBody(exports=offers))
        costs.append(cost(kept, held))
    plan = kept.plan(server(held), 1.0)
    assert all(plan[name] is before[name] for name in (a, b, c))
    assert len(plan[a].imports) == many and len(plan[b].imports) == 1
    assert min(costs) < whole / 20


def cost(planner: ClaimsPlan, held: dict[str, AccountClaims]) -> float:
    began = time.process_time()
    planner.plan(server(held), 1.0)
    return time.process_time() - began
