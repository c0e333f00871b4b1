"""What accounts share by their tokens; a token that changes costs what it touches, not all.

Account tokens are somebody else's: an import there that is not authorized or would lead in a
circle is left out and reported; the rest of the account works.
"""

import logging
from collections.abc import Iterator

from headwater.edge.broker.imports.claimed_shares import activation_of, import_of, offers_of
from headwater.edge.broker.imports.import_circles import (
    SECOND,
    Candidates,
    ImportCircles,
    Refusals,
)
from headwater.edge.broker.imports.imports_plan import AccountShares, Plan
from headwater.edge.conf.options import ImportOptions
from headwater.edge.conf.shares.import_subjects import check_subjects
from headwater.edge.kernel.wall_window import FOR_EVER
from headwater.edge.subjects.transform import TransformError
from headwater.security import jwt
from headwater.security.authenticator import Authenticator
from headwater.security.claims import AccountClaims, Import

log = logging.getLogger("headwater.broker")

KINDS = ("service", "stream")


class ClaimsPlan:
    """Plans the shares of all accounts, and keeps the parts that stay as they are."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._circles = {kind: ImportCircles() for kind in KINDS}

    def plan(self, authenticator: Authenticator, now_s: float) -> Plan:
        """Shares of all accounts whose tokens a trusted operator has signed, as they are at a
        time of day in Unix seconds. An account that nothing has changed for has the same object."""
        parts = {}
        for name in authenticator.resolver.accounts():
            claims = authenticator.account_claims(name)
            if claims is not None:
                part = self._parts.get(name)
                same = part is not None and part.claims is claims
                parts[name] = part if part is not None and same else _Part(name, claims, part)
        self._parts = parts
        changed = False
        for part in parts.values():
            if part.concerned(parts, now_s):
                part.judge(parts, now_s)
                changed = True
        if changed:
            self._leave_out_circles()
        return {name: part.shares for name, part in parts.items()}

    def window(self) -> tuple[float, float]:
        """The times of day between which the last plan is right, in Unix seconds."""
        parts = self._parts.values()
        since = max((part.since_s for part in parts), default=0.0)
        return since, min((part.until_s for part in parts), default=FOR_EVER)

    def _leave_out_circles(self) -> None:
        """Leave out what leads in circles."""
        refused: list[Refusals] = []
        for kind in KINDS:
            named = {name: part.candidates[kind] for name, part in self._parts.items()}
            refused.append(self._circles[kind].refusals(named))
        for name, part in self._parts.items():
            problems: dict[int, str] = {}
            for each in refused:
                problems.update(each.get(name, {}))
            part.grant(problems)


class _Part:
    """What one account shares, and what that was concluded from."""

    def __init__(self, name: str, claims: AccountClaims, before: "_Part | None") -> None:
        self.name = name
        self.claims = claims
        self.shares = offers_of(claims)
        self.offers = {(e.subject, e.type): e for e in reversed(claims.nats.exports)}
        self.candidates: dict[str, Candidates] = dict.fromkeys(KINDS, ())
        self._exporters: dict[str, _Part | None] | None = None
        """Those that the last judgement was based on, by name; None before it."""
        self.until_s = FOR_EVER
        self.since_s = 0.0
        """The times between which activations say the same as at the last judgement."""
        self._entries: list[ImportOptions] = []
        self._problems: dict[int, str] = {}
        self._refused: dict[int, str] | None = None
        self._reported: set[tuple[str, str, str]] = set()
        if before is not None:
            self._reported = before._reported
        if before is not None and before.shares.exports == self.shares.exports:
            self.shares.exports = before.shares.exports

    def concerned(self, parts: dict[str, "_Part"], now_s: float) -> bool:
        """Whether what this account imports has to be judged, the first time or again."""
        known = self._exporters
        return (
            known is None
            or not self.since_s <= now_s < self.until_s
            or any(parts.get(name) is not part for name, part in known.items())
        )

    def judge(self, parts: dict[str, "_Part"], now_s: float) -> None:
        """Find the imports that are authorized and whose subjects can be."""
        if self._exporters is None:
            self._entries = [import_of(item) for item in self.claims.nats.imports]
        self._exporters = {entry.account: parts.get(entry.account) for entry in self._entries}
        self.since_s, self.until_s = 0.0, FOR_EVER
        self._refused = None
        candidates: dict[str, list[tuple[int, ImportOptions]]] = {kind: [] for kind in KINDS}
        problems: dict[int, str] = {}
        for place, (item, entry) in enumerate(self._items()):
            problem = self._problem(item, entry, now_s) or _unfit(entry)
            if problem:
                problems[place] = problem
            else:
                candidates[entry.kind].append((place, entry))
        self.candidates = dict(candidates)
        self._problems = problems

    def grant(self, refused: dict[int, str]) -> None:
        """Import what is left without `refused`, by place."""
        if refused == self._refused:
            return
        self._refused = refused
        left, told = [], set()
        standing: set[tuple[str, str]] = set()
        for place, (item, entry) in enumerate(self._items()):
            problem = self._problems.get(place) or refused.get(place, "")
            if not problem and entry.kind == "stream":
                if (entry.account, entry.subject) in standing:
                    problem = SECOND
                standing.add((entry.account, entry.subject))
            if problem:
                told.add((item.type, item.subject, problem))
            else:
                left.append(entry)
        self._report(told)
        if left != self.shares.imports:
            shares = self.shares
            self.shares = AccountShares(
                exports=shares.exports, imports=left, mappings=shares.mappings
            )

    def _items(self) -> Iterator[tuple[Import, ImportOptions]]:
        return zip(self.claims.nats.imports, self._entries, strict=True)

    def _report(self, problems: set[tuple[str, str, str]]) -> None:
        """Log what was not said of this account before."""
        for kind, subject, problem in sorted(problems - self._reported):
            log.error(
                'import of %s "%s" by account %s: %s; it is left out: mend the account\'s token',
                kind,
                subject,
                self.name,
                problem,
            )
        self._reported = problems

    def _problem(self, item: Import, entry: ImportOptions, now_s: float) -> str:
        """Why an import is not authorized; empty when it is."""
        assert self._exporters is not None
        exporter = self._exporters[entry.account]
        if exporter is None:
            return "the exporting account is not known"
        export = exporter.shares.export_for(entry)
        if export is None:
            return "not exported"
        position = export.account_token_position
        if position:
            tokens = entry.subject.split(".")
            if position > len(tokens) or tokens[position - 1] != self.name:
                return "not authorized"
            return ""
        offered = exporter.offers[export.subject, export.kind]
        if not offered.token_req:
            return ""
        token = activation_of(exporter.claims, offered, self.name, item, entry)
        if token is None:
            return "not authorized"
        for turn in (token.nbf, token.exp):
            if turn > now_s:
                self.until_s = min(self.until_s, turn)
            else:
                self.since_s = max(self.since_s, turn)
        return "not authorized" if jwt.expired(token, now_s) else ""


def _unfit(entry: ImportOptions) -> str:
    """Why the subjects of an import cannot become each other; empty when they can."""
    try:
        check_subjects(entry)
    except TransformError as error:
        return str(error)
    return ""
