"""What accounts share, as checked plain data: from the configuration, or from account tokens.

Account tokens are somebody else's: an import there that is not authorized or would lead in a
circle is left out and reported; the rest of the account works.
"""

import functools
import logging
from collections.abc import Mapping

import msgspec

from headwater.edge.broker.imports.export_index import ExportIndex
from headwater.edge.conf.options import (
    ExportOptions,
    ImportOptions,
    LatencyOptions,
    MappingDestination,
    MappingOptions,
    Options,
)
from headwater.edge.conf.shares.import_cycles import ImportWays
from headwater.edge.conf.shares.import_subjects import check_subjects
from headwater.edge.subjects.transform import TransformError, transform
from headwater.security import jwt
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.authenticator import Authenticator
from headwater.security.claims import AccountClaims, Export, Import
from headwater.security.errors import JWTError, StepsExceeded
from headwater.security.subjects import covers

log = logging.getLogger("headwater.broker")

_RESPONSES = {"Stream": "stream", "Chunked": "chunked"}
_NANOSECONDS = 1e9


class AccountShares(msgspec.Struct, kw_only=True, dict=True):
    """Mappings, exports and imports of one account."""

    exports: list[ExportOptions] = []
    imports: list[ImportOptions] = []
    mappings: list[MappingOptions] = []

    def export_for(self, entry: ImportOptions) -> ExportOptions | None:
        """The export that an import of this account uses: the same subject, or one that covers."""
        return self._index.find(entry.kind, entry.subject)

    @functools.cached_property
    def _index(self) -> ExportIndex:
        return ExportIndex(self.exports)


Plan = dict[str, AccountShares]


def plan_of_options(options: Options) -> Plan:
    """Shares of all accounts of a configuration, which has been checked."""
    plan = {
        name: AccountShares(
            exports=account.exports, imports=account.imports, mappings=account.mappings
        )
        for name, account in options.accounts.items()
    }
    if options.mappings:
        plan.setdefault(GLOBAL_ACCOUNT, AccountShares()).mappings = options.mappings
    return plan


def plan_of_claims(authenticator: Authenticator, now_s: float) -> Plan:
    """Shares of all accounts whose tokens a trusted operator has signed, as they are at a time of
    day in Unix seconds."""
    claims: dict[str, AccountClaims] = {}
    for name in authenticator.resolver.accounts():
        found = authenticator.account_claims(name)
        if found is not None:
            claims[name] = found
    plan = {name: _offers(account) for name, account in claims.items()}
    offers = {
        name: {(e.subject, e.type): e for e in reversed(account.nats.exports)}
        for name, account in claims.items()
    }
    ways = ImportWays()
    for name, account in claims.items():
        taken: set[tuple[str, str]] = set()
        for item in account.nats.imports:
            entry = _import(item)
            problem = _problem(plan, claims, offers, name, item, entry, now_s) or _circle(
                ways, name, entry
            )
            if not problem and entry.kind == "stream":
                if (entry.account, entry.subject) in taken:
                    problem = "stream import already exists"
                taken.add((entry.account, entry.subject))
            if problem:
                log.error(
                    'import of %s "%s" by account %s: %s; it is left out: mend the account\'s '
                    'token',
                    item.type,
                    item.subject,
                    name,
                    problem,
                )
            else:
                plan[name].imports.append(entry)
                ways.add(name, entry)
    return plan


def _offers(account: AccountClaims) -> AccountShares:
    return AccountShares(
        exports=[_export(export) for export in account.nats.exports],
        mappings=[
            MappingOptions(
                source=source,
                destinations=[
                    MappingDestination(
                        subject=item.subject, weight=item.weight or 100, cluster=item.cluster
                    )
                    for item in items
                ],
            )
            for source, items in account.nats.mappings.items()
            if _fits(account, source, [item.subject for item in items])
        ],
    )


def _fits(account: AccountClaims, source: str, destinations: list[str]) -> bool:
    """Whether a mapping of a token can be; one that cannot is told and left out."""
    try:
        for destination in destinations:
            transform(source, destination)
    except TransformError as error:
        log.error(
            'mapping of "%s" by account %s: %s; it is left out: mend the account\'s token',
            source,
            account.sub,
            error,
        )
        return False
    return True


def _export(export: Export) -> ExportOptions:
    return ExportOptions(
        kind=export.type,
        subject=export.subject,
        response_type=_RESPONSES.get(export.response_type, "single"),
        threshold=export.response_threshold / _NANOSECONDS,
        account_token_position=export.account_token_position,
        allow_trace=export.allow_trace,
        latency=_latency(export),
    )


def _latency(export: Export) -> LatencyOptions | None:
    """How the latency of a service is told; 0 percent is what headers ask for."""
    asked = export.service_latency
    if asked is None or export.type != "service" or not asked.results:
        return None
    sampling = asked.sampling if isinstance(asked.sampling, int) else 0
    return LatencyOptions(sampling=min(max(sampling, 0), 100), subject=asked.results)


def _import(item: Import) -> ImportOptions:
    """An import of a token; `to` is the old way to name the other side of it."""
    entry = ImportOptions(
        kind=item.type,
        account=item.account,
        subject=item.subject,
        share=item.share,
        allow_trace=item.allow_trace,
    )
    if item.type == "stream":
        if item.local_subject:
            entry.to = item.local_subject
        else:
            entry.prefix = item.to
    elif item.local_subject:
        entry.to = item.local_subject
    else:
        entry.subject = item.to or item.subject
        entry.to = item.subject
    return entry


def _problem(
    plan: Plan,
    claims: Mapping[str, AccountClaims],
    offers: Mapping[str, Mapping[tuple[str, str], Export]],
    name: str,
    item: Import,
    entry: ImportOptions,
    now_s: float,
) -> str:
    """Why an import cannot be; empty when it can."""
    source = plan.get(entry.account)
    if source is None:
        return "the exporting account is not known"
    export = source.export_for(entry)
    if export is None:
        return "not exported"
    position = export.account_token_position
    tokens = entry.subject.split(".")
    if position:
        if position > len(tokens) or tokens[position - 1] != name:
            return "not authorized"
    else:
        offered = offers[entry.account][export.subject, export.kind]
        exporter = claims[entry.account]
        if offered.token_req and not _activated(exporter, offered, name, item, entry, now_s):
            return "not authorized"
    return ""


def _circle(ways: ImportWays, name: str, entry: ImportOptions) -> str:
    """Why an authorized import cannot be: it leads in a circle, or its subjects do not fit."""
    try:
        if ways.leads_back(name, entry):
            return "import forms a cycle"
        check_subjects(entry)
    except StepsExceeded:
        return "it leads over too many other imports"
    except TransformError as error:
        return str(error)
    return ""


def _activated(
    exporter: AccountClaims,
    offered: Export,
    name: str,
    item: Import,
    entry: ImportOptions,
    now_s: float,
) -> bool:
    """Whether the import's activation token comes from the exporter and still holds."""
    try:
        token = jwt.decode_activation(item.token)
    except JWTError:
        return False
    body = token.nats
    trusted = token.iss == exporter.sub
    if body.issuer_account:
        trusted = body.issuer_account == exporter.sub and exporter.scope_of(token.iss)[0]
    if not trusted or token.sub != name or jwt.expired(token, now_s):
        return False
    if body.kind != entry.kind or not covers(body.subject.split("."), entry.subject.split(".")):
        return False
    revoked = offered.revocations
    return all(revoked.get(key, -1) < token.iat for key in (name, "*"))
