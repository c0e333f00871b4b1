"""No claim of a token is accepted and ignored: the table of duties is walked."""

import importlib
import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from headwater.security import jwt
from headwater.security.claim_checks import account_problem
from headwater.security.claim_duties import DUTIES, Duty
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    ActivationClaims,
    Export,
    ExternalAuthorization,
    JetStreamTier,
    OperatorClaims,
    SigningScope,
    UserClaims,
)
from headwater.security.nkeys import KeyPair

KINDS = {
    "user": UserClaims,
    "account": AccountClaims,
    "operator": OperatorClaims,
    "activation": ActivationClaims,
}
ENTRIES = [(kind, claim) for kind, table in DUTIES.items() for claim in table]


def paths(kind: Any) -> Iterator[str]:
    """Every claim below a type, by its path; empty for what has nothing below."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        found = {path for arg in args for path in paths(arg)}
        yield from sorted(found - {""} or found)
    elif origin is list:
        yield from paths(args[0])
    elif origin is dict:
        for path in paths(args[1]):
            yield f"*.{path}" if path else "*"
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            for path in paths(field.type):
                yield f"{field.encode_name}.{path}" if path else field.encode_name
    else:
        yield ""


@pytest.mark.parametrize("kind", KINDS)
def test_every_claim_has_a_duty_and_every_duty_a_claim(kind: str) -> None:
    assert sorted(paths(KINDS[kind])) == sorted(DUTIES[kind])


@pytest.mark.parametrize(("kind", "claim"), ENTRIES)
def test_who_acts_on_a_claim_is_there(kind: str, claim: str) -> None:
    entry = DUTIES[kind][claim]
    if entry.duty is Duty.DESCRIBES:
        assert entry.why
        return
    module, _, name = entry.by.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)


@pytest.mark.parametrize(
    "body",
    [
        AccountBody(authorization=ExternalAuthorization(allowed_accounts=["*"])),
        AccountBody(exports=[Export(subject="a", type="service")]),
        AccountBody(cluster_traffic="somebody"),
        AccountBody(signing_keys=[SigningScope(kind="other", key="A")]),
        AccountBody(limits=AccountLimits(tiered_limits={"": JetStreamTier()})),
    ],
)
def test_what_is_refused_keeps_the_account_out(body: AccountBody) -> None:
    key = KeyPair.create("A").public_key
    token = jwt.encode(AccountClaims(sub=key, nats=body), KeyPair.create("O"))
    assert account_problem(jwt.decode_account(token))
    body = AccountBody(limits=AccountLimits.unlimited())
    fine = jwt.encode(AccountClaims(sub=key, nats=body), KeyPair.create("O"))
    assert not account_problem(jwt.decode_account(fine))
