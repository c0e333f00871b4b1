"""What account tokens say about sharing, as options: their exports, mappings and imports."""

import logging

from headwater.edge.broker.imports.imports_plan import AccountShares
from headwater.edge.conf.options import (
    ExportOptions,
    ImportOptions,
    LatencyOptions,
    MappingDestination,
    MappingOptions,
)
from headwater.edge.subjects.transform import TransformError, transform
from headwater.security import jwt
from headwater.security.claims import AccountClaims, ActivationClaims, Export, Import
from headwater.security.errors import JWTError
from headwater.security.subjects import covers

log = logging.getLogger("headwater.broker")

_RESPONSES = {"Stream": "stream", "Chunked": "chunked"}
_NANOSECONDS = 1e9


def offers_of(account: AccountClaims) -> AccountShares:
    """Exports and mappings of a token; what cannot be is told and left out."""
    return AccountShares(
        exports=[export_of(export) for export in account.nats.exports],
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


def export_of(export: Export) -> ExportOptions:
    """An export of a token."""
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


def import_of(item: Import) -> ImportOptions:
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


def activation_of(
    exporter: AccountClaims, offered: Export, importer: str, item: Import, entry: ImportOptions
) -> ActivationClaims | None:
    """The token that activates an import of a closed export, at whatever time; None without."""
    try:
        token = jwt.decode_activation(item.token)
    except JWTError:
        return None
    body = token.nats
    trusted = token.iss == exporter.sub
    if body.issuer_account:
        trusted = body.issuer_account == exporter.sub and exporter.scope_of(token.iss)[0]
    if not trusted or token.sub != importer:
        return None
    if body.kind != entry.kind or not covers(body.subject.split("."), entry.subject.split(".")):
        return None
    revoked = offered.revocations
    kept = all(revoked.get(key, -1) < token.iat for key in (importer, "*"))
    return token if kept else None
