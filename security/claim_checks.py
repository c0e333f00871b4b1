"""What the contents of a token must be, so that it can be in force whoever signed it.

A token with a problem is refused as a whole, as nats-server does it: a rule that cannot be
understood is never left out. Source: the `Validate` functions of github.com/nats-io/jwt, v2.
"""

from collections.abc import Iterable, Iterator

from headwater.security import jwt
from headwater.security.claims import (
    NO_LIMIT,
    AccountClaims,
    ActivationClaims,
    DefaultPermissions,
    Export,
    ExternalAuthorization,
    Import,
    SigningScope,
    UserClaims,
    UserLimits,
    WeightedMapping,
)
from headwater.security.contained import contained, is_part
from headwater.security.errors import JWTError, StepsExceeded
from headwater.security.nkeys import is_public_key
from headwater.security.subjects import reference
from headwater.security.windows import clock_time, source_block, zone_of

KINDS = ("stream", "service")
RESPONSES = ("", "Singleton", "Stream", "Chunked")
INFO_CHARS_MAX = 8 * 1024
"""Characters of a description, and of the address of a page about it."""


def account_problem(claims: AccountClaims) -> str:
    """Why an account's token cannot be in force; empty when it can."""
    return next(_of_account(claims), "")


def user_problem(claims: UserClaims) -> str:
    """Why a user's token cannot be in force; empty when it can."""
    return next(_of_user(claims), "")


def activation_problem(claims: ActivationClaims) -> str:
    """Why an activation token cannot be in force; empty when it can."""
    return next(_of_activation(claims), "")


def _of_account(claims: AccountClaims) -> Iterator[str]:
    body, limits = claims.nats, claims.nats.limits
    yield from _counts(claims)
    yield from _imports(claims.sub, body.imports)
    yield from _exports(body.exports)
    if "" in limits.tiered_limits:
        yield 'tiered JetStream limits can not contain a blank ""'
    yield from _permissions(body.default_permissions)
    for source, items in body.mappings.items():
        yield from _mapping(source, items)
    yield from _authorization(body.authorization)
    if body.trace is not None:
        yield from _subject(body.trace.dest, "the destination of traces")
        if _has_wildcard(body.trace.dest):
            yield f"the destination of traces {body.trace.dest!r} has wildcards"
        if not 0 <= body.trace.sampling <= 100:
            yield f"the sampling of traces, {body.trace.sampling}, is not in the range 1 to 100"
    for key in body.signing_keys:
        yield from _signing_key(key)
    yield from _info(body.description, body.info_url)
    if body.cluster_traffic not in ("", "system", "owner"):
        yield f"cluster traffic {body.cluster_traffic!r} is neither system nor owner"


def _counts(claims: AccountClaims) -> Iterator[str]:
    body, limits = claims.nats, claims.nats.limits
    if limits.imports != NO_LIMIT and len(body.imports) > limits.imports:
        yield "the account contains more imports than allowed by the operator"
    if limits.exports == NO_LIMIT:
        return
    if len(body.exports) > limits.exports:
        yield "the account contains more exports than allowed by the operator"
    if not limits.wildcards and any(_has_wildcard(export.subject) for export in body.exports):
        yield "the account contains wildcard exports that are not allowed by the operator"


def _imports(account: str, imports: list[Import]) -> Iterator[str]:
    held: dict[str, list[str]] = {}
    for item in imports:
        if item.type == "service":
            own = item.to or _renamed(item.local_subject) or item.subject
            held.setdefault(item.account, []).append(own)
    for exporter, subjects in held.items():
        try:
            part = contained(subjects)
        except StepsExceeded:
            yield f"service imports of account {exporter} would take too long to compare"
        else:
            if part is not None:
                yield f"imports of account {exporter} overlap at {part!r}"
    for item in imports:
        yield from _import(account, item)


def _import(account: str, item: Import) -> Iterator[str]:
    if item.type not in KINDS:
        yield f"import {item.subject!r} is neither of a stream nor of a service"
    if item.type == "service" and item.allow_trace:
        yield f"import {item.subject!r}: allow_trace is for streams"
    if item.type != "service" and item.share:
        yield f"import {item.subject!r}: share is for services"
    if not item.account:
        yield f"import {item.subject!r} names no account"
    yield from _subject(item.subject, "an import")
    if item.local_subject:
        yield from _renaming(item.local_subject, item.subject)
        if item.to:
            yield f"import {item.subject!r} has both a local subject and the old field for it"
    if item.token:
        yield from _import_token(account, item)


def _import_token(account: str, item: Import) -> Iterator[str]:
    try:
        token = jwt.decode_activation(item.token)
    except JWTError as error:
        yield f"import {item.subject!r} contains an invalid activation token: {error}"
        return
    if item.account not in (token.iss, token.nats.issuer_account):
        yield f"the activation token of import {item.subject!r} is of another account"
    if token.sub != account:
        yield f"the activation token of import {item.subject!r} is for another account"
    if token.nats.kind != item.type:
        yield f"the activation token of import {item.subject!r} is not for a {item.type}"
    yield from _of_activation(token)
    wanted = item.to if item.type == "service" and item.to else item.subject
    if not is_part(wanted, token.nats.subject):
        yield f"the activation token of import {item.subject!r} is for other subjects"


def _of_activation(claims: ActivationClaims) -> Iterator[str]:
    if claims.nats.kind not in KINDS:
        yield "an activation token is neither for a stream nor for a service"
    yield from _subject(claims.nats.subject, "an activation token")
    yield from _issuer_account(claims.nats.issuer_account)


def _exports(exports: list[Export]) -> Iterator[str]:
    for item in exports:
        yield from _export(item)
    for kind in KINDS:
        try:
            part = contained([item.subject for item in exports if item.type == kind])
        except StepsExceeded:
            yield f"{kind} exports would take too long to compare"
        else:
            if part is not None:
                yield f"{kind} export {part!r} is part of another one"


def _export(item: Export) -> Iterator[str]:
    if item.type not in KINDS:
        yield f"export {item.subject!r} is neither of a stream nor of a service"
    if item.response_type not in (RESPONSES if item.type == "service" else ("",)):
        yield f"export {item.subject!r} has an invalid response type {item.response_type!r}"
    if item.type == "stream" and item.allow_trace:
        yield f"export {item.subject!r}: allow_trace is for services"
    if item.service_latency is not None:
        if item.type != "service":
            yield f"export {item.subject!r}: latency is tracked of services only"
        sampling = item.service_latency.sampling
        if isinstance(sampling, str):
            if sampling.lower() != "headers":
                yield f"export {item.subject!r} has an unknown sampling of latency {sampling!r}"
        elif not 0 <= sampling <= 100:
            yield f"export {item.subject!r}: sampling of latency is 1 to 100 percent"
        yield from _subject(item.service_latency.results, "the results of latency")
        if _has_wildcard(item.service_latency.results):
            yield f"export {item.subject!r}: results of latency go to a subject with wildcards"
    if item.response_threshold < 0:
        yield f"export {item.subject!r} has a negative response threshold"
    if item.response_threshold > 0 and item.type != "service":
        yield f"export {item.subject!r}: a response threshold is for services"
    yield from _subject(item.subject, "an export")
    tokens = item.subject.split(".")
    position = item.account_token_position
    if position and not (1 <= position <= len(tokens) and tokens[position - 1] == "*"):
        yield f"export {item.subject!r} has no * at its account token position {position}"
    yield from _info(item.description, item.info_url)


def _mapping(source: str, items: list[WeightedMapping]) -> Iterator[str]:
    yield from _subject(source, "a mapping")
    totals: dict[str, int] = {}
    for item in items:
        yield from _subject(item.subject, f"a mapping of {source!r}")
        if not 0 <= item.weight <= 100:
            yield f"a mapping of {source!r} has a weight of {item.weight}, not 1 to 100"
        totals[item.cluster] = totals.get(item.cluster, 0) + (item.weight or 100)
    if any(total > 100 for total in totals.values()):
        yield f"the mappings of {source!r} exceed 100 percent"


def _authorization(body: ExternalAuthorization) -> Iterator[str]:
    if (body.allowed_accounts or body.xkey) and not body.auth_users:
        yield "external authorization needs auth_users"
    for user in body.auth_users:
        if not is_public_key(user, "U"):
            yield f"auth user {user!r} is not the public key of a user"
    for account in body.allowed_accounts:
        if account == "*":
            if len(body.allowed_accounts) > 1:
                yield "allowed accounts are a list of accounts, or * alone"
        elif not is_public_key(account, "A"):
            yield f"allowed account {account!r} is not the public key of an account"
    if body.xkey and not is_public_key(body.xkey, "X"):
        yield f"xkey {body.xkey!r} is not a public curve key"


def _signing_key(key: str | SigningScope) -> Iterator[str]:
    text = key.key if isinstance(key, SigningScope) else key
    if not is_public_key(text, "A"):
        yield f"signing key {text!r} is not the public key of an account"
    if isinstance(key, SigningScope) and key.kind != "user_scope":
        yield f"the scope of a signing key is of an unknown kind {key.kind!r}"


def _of_user(claims: UserClaims) -> Iterator[str]:
    body = claims.nats
    yield from _permissions(body)
    for block in body.src:
        if source_block(block) is None:
            yield f"source {block!r} is no block of addresses"
    for window in body.times:
        for text in (window.start, window.end):
            if clock_time(text) is None:
                yield f"{text!r} is no time of the day (HH:MM:SS)"
    if body.times_location:
        try:
            zone_of(body.times_location)
        except (LookupError, ValueError, OSError):
            yield f"time zone {body.times_location!r} is not known"
    yield from _issuer_account(body.issuer_account)


def _issuer_account(key: str) -> Iterator[str]:
    if key and not is_public_key(key, "A"):
        yield f"issuer account {key!r} is not the public key of an account"


def _permissions(body: DefaultPermissions | UserLimits) -> Iterator[str]:
    yield from _rules((*body.sub.allow, *body.sub.deny), words=2)
    yield from _rules((*body.pub.allow, *body.pub.deny), words=1)


def _rules(rules: Iterable[str], words: int) -> Iterator[str]:
    for rule in rules:
        parts = rule.split(" ")
        if len(parts) > words:
            yield f"permission {rule!r} has more than {words} words"
        for part in parts:
            yield from _subject(part, "a permission")


def _info(description: str, url: str) -> Iterator[str]:
    if len(description.encode()) > INFO_CHARS_MAX or len(url.encode()) > INFO_CHARS_MAX:
        yield f"a description or its address is longer than {INFO_CHARS_MAX} bytes"
    if url:
        from urllib.parse import urlsplit

        try:
            parts = urlsplit(url)
        except ValueError:
            yield f"{url!r} is no address of a page"
            return
        if not parts.hostname or not parts.scheme:
            yield f"{url!r} is no address of a page"


def _subject(subject: str, what: str) -> Iterator[str]:
    if not subject:
        yield f"{what} has no subject"
    elif " " in subject or not all(subject.split(".")):
        yield f"{what} has a malformed subject {subject!r}"


def _renaming(local: str, subject: str) -> Iterator[str]:
    """What is wrong with the local name of an import, which names wildcards by `*` or `$1`."""
    yield from _subject(local, "the local name of an import")
    tokens, original = local.split("."), subject.split(".")
    if (tokens[-1] == ">") != (original[-1] == ">"):
        yield f"either both or none of {local!r} and {subject!r} end in >"
    wildcards, named = original.count("*"), tokens.count("*")
    for token in tokens:
        number = reference(token)
        if number is not None:
            named += 1
            if number > wildcards:
                yield f"{local!r} names a wildcard that {subject!r} does not have"
    if named != wildcards:
        yield f"{local!r} does not name every wildcard of {subject!r}"


def _renamed(local: str) -> str:
    """The local name of an import as a pattern."""
    return ".".join("*" if reference(token) is not None else token for token in local.split("."))


def _has_wildcard(subject: str) -> bool:
    return any(token in ("*", ">") for token in subject.split("."))
