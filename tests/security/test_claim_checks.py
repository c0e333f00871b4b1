"""Tokens whose contents cannot be: both servers refuse the users of each, and admit the rest."""

from collections.abc import Callable
from typing import Any

import pytest

from bench.servers import Server
from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountLimits,
    ActivationBody,
    ActivationClaims,
    Export,
    ExternalAuthorization,
    Import,
    JetStreamTier,
    MessageTrace,
    ServiceLatency,
    SigningScope,
    SubjectPermission,
    TimeRange,
    WeightedMapping,
)
from headwater.security.nkeys import KeyPair
from tests.operator_realm import SERVERS, Raw, Realm, recipe

REFUSED = ["-ERR 'Authorization Violation'"]
Change = Callable[[Realm, AccountBody], None]
OTHER = KeyPair.create("A")
EXPORTER = "E"


def holder_of(realm: Realm, body: AccountBody) -> str:
    return next(realm.account(name) for name, each in realm.bodies.items() if each is body)


def exports(*items: Export) -> Change:
    return lambda realm, body: body.exports.extend(items)


def imports(*items: dict[str, Any]) -> Change:
    """Imports from account E unless they name another."""

    def change(realm: Realm, body: AccountBody) -> None:
        for item in items:
            body.imports.append(Import(**{"account": realm.account(EXPORTER), **item}))

    return change


def activated(signer: str = EXPORTER, **fields: str) -> Change:
    """An import with an activation token that says `fields`."""

    def change(realm: Realm, body: AccountBody) -> None:
        told = {"subject": "p.>", "kind": "stream", **fields}
        claims = ActivationClaims(
            sub=told.pop("holder", holder_of(realm, body)), nats=ActivationBody(**told)
        )
        token = jwt.encode(claims, realm.keys[signer])
        item = Import(account=realm.account(EXPORTER), subject="p.a", type="stream", token=token)
        body.imports.append(item)

    return change


def limits(**fields: Any) -> Change:
    return lambda realm, body: [setattr(body.limits, *item) for item in fields.items()] and None


def has(**fields: Any) -> Change:
    return lambda realm, body: [setattr(body, *item) for item in fields.items()] and None


def service(subject: str, **more: Any) -> Export:
    return Export(subject=subject, type="service", **more)


def stream(subject: str, **more: Any) -> Export:
    return Export(subject=subject, type="stream", **more)


HALF = [WeightedMapping(subject="x", weight=60), WeightedMapping(subject="y", weight=60)]
REFUSALS: dict[str, Change] = {
    "an export without a subject": exports(stream("")),
    "an export with a space": exports(stream("a b")),
    "an export with an empty token": exports(stream("a..b")),
    "an export within another": exports(stream("a.*"), stream("a.b")),
    "an export twice": exports(service("a"), service("a")),
    "an unknown response type": exports(service("a", response_type="Many")),
    "a response type of a stream": exports(stream("a", response_type="Stream")),
    "a trace of a stream's export": exports(stream("a", allow_trace=True)),
    "a negative threshold": exports(service("a", response_threshold=-1)),
    "a threshold of a stream": exports(stream("a", response_threshold=1)),
    "latency of a stream": exports(stream("a", service_latency=ServiceLatency(results="r"))),
    "latency of 101 percent": exports(
        service("a", service_latency=ServiceLatency(sampling=101, results="r"))
    ),
    "latency to nowhere": exports(service("a", service_latency=ServiceLatency())),
    "latency to a wildcard": exports(service("a", service_latency=ServiceLatency(results="r.*"))),
    "a position without wildcards": exports(service("a.b", account_token_position=1)),
    "a position beyond the end": exports(service("a.*", account_token_position=3)),
    "a position of a word": exports(service("a.*", account_token_position=1)),
    "a page that is none": exports(service("a", info_url="nowhere")),
    "a description that is too long": exports(service("a", description="x" * 8193)),
    "an import without a subject": imports({"type": "stream"}),
    "an import of nobody": imports({"subject": "a", "type": "stream", "account": ""}),
    "a shared stream": imports({"subject": "s.a", "type": "stream", "share": True}),
    "a trace of a service's import": imports(
        {"subject": "q.a", "type": "service", "allow_trace": True}
    ),
    "two local names": imports(
        {"subject": "s.a", "type": "stream", "local_subject": "x", "to": "y"}
    ),
    "a local name that loses a wildcard": imports(
        {"subject": "s.*", "type": "stream", "local_subject": "x"}
    ),
    "a local name with a wildcard that is none": imports(
        {"subject": "s.*", "type": "stream", "local_subject": "x.$2"}
    ),
    "a local name with another end": imports(
        {"subject": "s.>", "type": "stream", "local_subject": "x"}
    ),
    "services that overlap": imports(
        {"subject": "q.*", "type": "service"}, {"subject": "q.a", "type": "service"}
    ),
    "a token that is none": imports({"subject": "p.a", "type": "stream", "token": "eyJ"}),
    "a token of another account": activated(signer="B"),
    "a token for another account": activated(holder=OTHER.public_key),
    "a token for other subjects": activated(subject="z.>"),
    "a token for a service": activated(kind="service"),
    "a token without a subject": activated(subject=""),
    "a tier without a name": limits(tiered_limits={"": JetStreamTier(streams=1)}),
    "a limit of imports below -1": limits(imports=-2),
    "a limit of exports below -1": limits(exports=-2),
    "a mapping beyond 100 percent": has(mappings={"m": HALF}),
    "a mapping to nowhere": has(mappings={"m": [WeightedMapping(subject="")]}),
    "a mapping of 101": has(mappings={"m": [WeightedMapping(subject="x", weight=101)]}),
    "accounts without users": has(authorization=ExternalAuthorization(allowed_accounts=["*"])),
    "an auth user that is none": has(authorization=ExternalAuthorization(auth_users=["me"])),
    "a trace to a wildcard": has(trace=MessageTrace(dest="t.>")),
    "a trace to nowhere": has(trace=MessageTrace(sampling=5)),
    "a trace of 101 percent": has(trace=MessageTrace(dest="t", sampling=101)),
    "a signing key that is none": has(signing_keys=["AAA"]),
    "a scope of no key": has(signing_keys=[SigningScope(key="AAA")]),
    "unknown cluster traffic": has(cluster_traffic="somebody"),
    "a page about it that is none": has(info_url="http://"),
}
"""Contents that are refused."""

FINE: dict[str, Change] = {
    "nothing": has(),
    "exports side by side": exports(stream("a.b"), stream("a.c"), service("a.b")),
    "a whole position": exports(service("*.a.*", account_token_position=3)),
    "latency by headers": exports(
        service("a", service_latency=ServiceLatency(sampling="headers", results="r"))
    ),
    "a local name in another order": imports(
        {"subject": "s.*.*", "type": "stream", "local_subject": "x.$2.$1"}
    ),
    "the same service of two accounts": imports(
        {"subject": "q.a", "type": "service"},
        {"subject": "q.a", "type": "service", "account": OTHER.public_key},
    ),
    "a mapping by cluster": has(
        mappings={"m": [WeightedMapping(subject="x"), WeightedMapping(subject="y", cluster="c")]}
    ),
    "a page": has(info_url="https://example.com/a", description="x" * 8192),
    "a trace": has(trace=MessageTrace(dest="t")),
    "an activation token": activated(),
    "limits beside tiers": limits(disk_storage=1, tiered_limits={"R1": JetStreamTier(streams=1)}),
    "tiers alone": limits(tiered_limits={"R1": JetStreamTier(streams=1)}),
}
"""Contents that are taken."""

USERS: dict[str, tuple[dict[str, Any], bool]] = {
    "no rules": ({}, True),
    "a source": ({"src": ["127.0.0.0/8"]}, True),
    "a source with host bits": ({"src": ["127.0.0.9/8"]}, True),
    "another source": ({"src": ["10.0.0.0/8"]}, False),
    "a source without its length": ({"src": ["127.0.0.1"]}, False),
    "a source with a mask": ({"src": ["127.0.0.0/255.0.0.0"]}, False),
    "a source that is none beside one": ({"src": ["127.0.0.0/8", "here"]}, False),
    "all day": ({"times": [TimeRange(start="00:00:00", end="23:59:59")]}, True),
    "all day, in short": ({"times": [TimeRange(start="0:00:00", end="23:59:59.9")]}, True),
    "no seconds": ({"times": [TimeRange(start="00:00", end="23:59:59")]}, False),
    "no end": ({"times": [TimeRange(start="00:00:00")]}, False),
    "an hour 24": ({"times": [TimeRange(start="00:00:00", end="24:00:00")]}, False),
    "a zone": ({"times_location": "Europe/Berlin"}, True),
    "no zone": ({"times_location": "Nowhere/Town"}, False),
    "a rule with an empty token": ({"pub": SubjectPermission(allow=["a..b"])}, False),
    "a queue to publish to": ({"pub": SubjectPermission(deny=["a q"])}, False),
    "a queue": ({"sub": SubjectPermission(allow=["a q"])}, True),
    "three words": ({"sub": SubjectPermission(allow=["a q r"])}, False),
    "a deny of nothing": ({"sub": SubjectPermission(deny=[""])}, False),
}
"""Fields of a user's token, and whether it is admitted."""


def realm_of(cases: dict[str, Change]) -> Realm:
    """A realm with an account for each case."""
    realm = Realm(more=EXPORTER)
    realm.bodies[EXPORTER].exports = [stream("s.>"), service("q.>"), stream("p.>", token_req=True)]
    for name in cases:
        realm.keys[name] = KeyPair.create("A")
        realm.bodies[name] = AccountBody(limits=AccountLimits.unlimited())
    for name, change in cases.items():
        change(realm, realm.bodies[name])
    return realm


@pytest.mark.parametrize("server", SERVERS)
def test_accounts(server: str) -> None:
    cases = {**REFUSALS, **FINE}
    realm = realm_of(cases)
    found = {}
    with Server(recipe(server, realm.config())) as running:
        for name in cases:
            with Raw(running.port) as client:
                found[name] = client.login(realm.user(name))
    assert found == {name: REFUSED if name in REFUSALS else [] for name in cases}


@pytest.mark.parametrize("server", SERVERS)
def test_users(server: str) -> None:
    realm = Realm()
    found = {}
    with Server(recipe(server, realm.config())) as running:
        for name, (fields, _) in USERS.items():
            with Raw(running.port) as client:
                found[name] = client.login(realm.user(**fields))
    assert found == {name: [] if fine else REFUSED for name, (_, fine) in USERS.items()}
