"""Templates of scoped signing keys: permissions that name the user they are applied to."""

import itertools
import re

import msgspec

from headwater.security.claims import AccountClaims, SubjectPermission, UserClaims, UserLimits
from headwater.security.errors import JWTError
from headwater.security.subjects import is_valid_subject

MAX_EXPANSIONS = 4096
"""Subjects that one list of a template may grow to through tags with several values."""

_OPERATION = re.compile(r"\{{2}.+?\}{2}")
_TAG = re.compile(r"(account-)?tag\((.*)\)", re.IGNORECASE | re.DOTALL)
_WRITTEN = ("tag(", "account-tag(")


def apply_template(
    template: UserLimits, user: UserClaims, account: AccountClaims
) -> UserLimits:
    """Limits of `user` under `template`. Raises JWTError when a deny rule cannot be filled in.

    An allow rule that cannot be filled in is dropped; a list that loses all its rules so
    becomes "deny everything" instead of "no restriction".
    """
    return msgspec.structs.replace(
        template,
        pub=_expand_pair(template.pub, user, account),
        sub=_expand_pair(template.sub, user, account),
    )


def _expand_pair(
    rules: SubjectPermission, user: UserClaims, account: AccountClaims
) -> SubjectPermission:
    allow = _expand(rules.allow, user, account, strict=False)
    deny = _expand(rules.deny, user, account, strict=True)
    if rules.allow and not allow:
        deny = [*deny, ">"]
    return SubjectPermission(allow=allow, deny=deny)


def _expand(
    rules: list[str], user: UserClaims, account: AccountClaims, strict: bool
) -> list[str]:
    if not any(map(_OPERATION.search, rules)):
        return list(rules)
    out: list[str] = []
    for rule in rules:
        operations = _OPERATION.findall(rule)
        values = [_values(operation, user, account) for operation in operations]
        count = 1
        for choices in values:
            count *= len(choices)
        if len(out) + count > MAX_EXPANSIONS:
            raise JWTError(f"a template expands to more than {MAX_EXPANSIONS} subjects")
        if strict and not count:
            raise JWTError(f"template rule {rule!r} needs a tag that is not set")
        for combination in itertools.product(*values):
            subject = rule
            for operation, value in zip(operations, combination, strict=True):
                subject = subject.replace(operation, value)
            if is_valid_subject(subject):
                out.append(subject)
            elif strict:
                raise JWTError(f"template rule {rule!r} yields an invalid subject")
    return out


def _values(operation: str, user: UserClaims, account: AccountClaims) -> list[str]:
    """Values of one `{{...}}`; tags may have several, or none."""
    name = operation[2:-2].strip()
    simple = {
        "name()": user.name,
        "subject()": user.sub,
        "account-name()": account.name,
        "account-subject()": user.nats.issuer_account,
    }.get(name.lower())
    if simple is not None:
        return [simple]
    match = _TAG.fullmatch(name)
    if match is None:
        raise JWTError(f"unknown template operation {name!r}")
    if not name.startswith(_WRITTEN):
        # In other letters nats-server knows the operation, but finds no tag for it.
        return []
    prefix = f"{match.group(2).lower()}:"
    tags = account.nats.tags if match.group(1) else user.nats.tags
    return [tag[len(prefix) :] for tag in tags if tag.startswith(prefix)]
