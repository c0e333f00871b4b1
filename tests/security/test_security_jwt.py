"""JWTs: round trips, hostile input, and tokens of other makers."""

import base64
import hashlib
import json
import time
from typing import Any

import nkeys as reference
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security import jwt
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorBody,
    OperatorClaims,
    SigningScope,
    SubjectPermission,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.errors import JWTError
from headwater.security.nkeys import KeyPair

OPERATOR, ACCOUNT, USER = (KeyPair.create(prefix) for prefix in "OAU")


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def foreign_token(claims: dict[str, Any], signer: KeyPair, alg: str = "ed25519-nkey") -> str:
    """A token put together with the `nkeys` package and the standard library only."""
    pair = reference.from_seed(bytearray(signer.seed.encode()))
    body = {"iat": int(time.time()), "iss": pair.public_key.decode(), **claims}
    digest = hashlib.new("sha512_256", json.dumps(body).encode()).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    header = _b64(json.dumps({"typ": "JWT", "alg": alg}).encode())
    signed = f"{header}.{_b64(json.dumps(body).encode())}"
    return f"{signed}.{_b64(bytes(pair.sign(signed.encode())))}"


def test_foreign_user_token_is_read() -> None:
    token = foreign_token(
        {
            "name": "sensor",
            "sub": USER.public_key,
            "nats": {
                "pub": {"allow": ["a.>"], "deny": None},
                "sub": {},
                "src": "10.0.0.0/8,192.168.0.0/16",
                "resp": {"max": 3, "ttl": 1000000000},
                "subs": -1,
                "data": -1,
                "payload": -1,
                "issuer_account": OPERATOR.public_key,
                "something_new": [1, 2],
                "type": "user",
                "version": 2,
            },
        },
        ACCOUNT,
    )
    claims = jwt.decode_user(token)
    assert claims.name == "sensor"
    assert claims.iss == ACCOUNT.public_key
    assert claims.nats.pub.allow == ["a.>"]
    assert claims.nats.src == ["10.0.0.0/8", "192.168.0.0/16"]
    assert claims.nats.resp is not None and claims.nats.resp.max == 3


def test_own_token_has_the_standard_form() -> None:
    claims = UserClaims(sub=USER.public_key, name="u", nats=UserBody(subs=-1))
    header, body, signature = jwt.encode(claims, ACCOUNT).split(".")
    decoded = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert json.loads(base64.urlsafe_b64decode(header + "=="))["alg"] == "ed25519-nkey"
    assert decoded["nats"]["type"] == "user" and decoded["nats"]["version"] == 2
    assert len(decoded["jti"]) == 52
    pair = reference.from_seed(bytearray(ACCOUNT.seed.encode()))
    assert pair.verify(f"{header}.{body}".encode(), base64.urlsafe_b64decode(signature + "=="))


def test_account_round_trip_keeps_scopes() -> None:
    scoped, plain = KeyPair.create("A"), KeyPair.create("A")
    template = UserLimits(pub=SubjectPermission(allow=["x.{{name()}}"]), subs=-1)
    claims = AccountClaims(
        sub=ACCOUNT.public_key,
        nats=AccountBody(
            limits=AccountLimits(conn=-1),
            signing_keys=[plain.public_key, SigningScope(key=scoped.public_key, template=template)],
            revocations={"*": 5},
        ),
    )
    found = jwt.decode_account(jwt.encode(claims, OPERATOR))
    assert found.scope_of(ACCOUNT.public_key) == (True, None)
    assert found.scope_of(plain.public_key) == (True, None)
    known, scope = found.scope_of(scoped.public_key)
    assert known and scope is not None and scope.template.pub.allow == ["x.{{name()}}"]
    assert found.scope_of(USER.public_key) == (False, None)
    assert found.is_revoked("U", 5) and not found.is_revoked("U", 6)


def test_operator_trusts_signing_keys() -> None:
    signer = KeyPair.create("O").public_key
    body = OperatorBody(signing_keys=[signer])
    claims = OperatorClaims(sub=OPERATOR.public_key, nats=body)
    found = jwt.decode_operator(jwt.encode(claims, OPERATOR))
    assert found.trusted_keys() == [OPERATOR.public_key, signer]
    body.strict_signing_key_usage = True
    assert jwt.decode_operator(jwt.encode(claims, OPERATOR)).trusted_keys() == [signer]


@pytest.mark.parametrize(
    ("claims", "signer", "alg"),
    [
        ({"sub": USER.public_key, "nats": {"type": "user", "version": 2}}, USER, "ed25519-nkey"),
        ({"sub": ACCOUNT.public_key, "nats": {"type": "user", "version": 2}}, ACCOUNT, None),
        ({"sub": USER.public_key, "nats": {"type": "account", "version": 2}}, ACCOUNT, None),
        ({"sub": USER.public_key, "nats": {"type": "user", "version": 1}}, ACCOUNT, None),
        ({"sub": USER.public_key, "nats": {"type": "user", "version": 2}}, ACCOUNT, "none"),
        ({"sub": USER.public_key, "nats": {"type": "user", "version": 2, "subs": "x"}}, ACCOUNT, 0),
        ({"sub": 5, "nats": {"type": "user", "version": 2}}, ACCOUNT, None),
        ({"sub": USER.public_key}, ACCOUNT, None),
    ],
)
def test_wrong_user_tokens_are_refused(claims: Any, signer: KeyPair, alg: Any) -> None:
    with pytest.raises(JWTError):
        jwt.decode_user(foreign_token(claims, signer, alg or "ed25519-nkey"))


def old_token(claims: dict[str, Any], signer: KeyPair) -> str:
    """A version 1 token: another algorithm name, and a signature over the claims only."""
    pair = reference.from_seed(bytearray(signer.seed.encode()))
    header = _b64(b'{"typ":"jwt","alg":"ed25519"}')
    body = _b64(json.dumps({"iss": signer.public_key, "iat": 1, **claims}).encode())
    return f"{header}.{body}.{_b64(bytes(pair.sign(body.encode())))}"


def test_version_1_tokens_are_migrated() -> None:
    claims = {"type": "user", "sub": USER.public_key, "tags": ["a:b"], "nats": {"pub": {}}}
    user = jwt.decode_user(old_token(claims, ACCOUNT))
    assert (user.nats.subs, user.nats.payload, user.nats.tags) == (-1, -1, ["a:b"])
    operator = {"type": "operator", "sub": OPERATOR.public_key}
    found = jwt.decode_operator(old_token(operator, OPERATOR))
    assert found.trusted_keys() == [OPERATOR.public_key]
    limits = {"limits": {"conn": -1}}
    account = {"type": "account", "sub": ACCOUNT.public_key, "nats": limits}
    assert jwt.decode_account(old_token(account, OPERATOR)).nats.limits.conn == -1
    for bad in ({**claims, "nats": {"max": 5}}, {**claims, "nats": 5}, {**claims, "type": 5}):
        with pytest.raises(JWTError):
            jwt.decode_user(old_token(bad, ACCOUNT))
    header, body, _ = old_token(claims, ACCOUNT).split(".")
    with pytest.raises(JWTError):
        jwt.decode_user(f"{header}.{body}.{old_token(claims, OPERATOR).split('.')[2]}")


def test_a_changed_token_is_refused() -> None:
    token = jwt.encode(UserClaims(sub=USER.public_key), ACCOUNT)
    header, body, signature = token.split(".")
    other = jwt.encode(UserClaims(sub=USER.public_key, name="x"), ACCOUNT).split(".")
    with pytest.raises(JWTError):
        jwt.decode_user(f"{header}.{other[1]}.{signature}")
    with pytest.raises(JWTError):
        jwt.decode_user(f"{header}.{body}")


def test_expiry() -> None:
    claims = UserClaims(exp=100, nbf=50)
    assert jwt.expired(claims, 49) and jwt.expired(claims, 100)
    assert not jwt.expired(claims, 50) and not jwt.expired(UserClaims(), 1e12)
    assert jwt.why_expired(claims, 100) == "has expired"
    assert jwt.why_expired(claims, 49).endswith("by this machine's clock, which says 1970-01-01")


def test_token_is_found_in_a_decorated_text() -> None:
    token = jwt.encode(UserClaims(sub=USER.public_key), ACCOUNT)
    text = f"-----BEGIN NATS ACCOUNT JWT-----\n{token}\n------END NATS ACCOUNT JWT------\n"
    assert jwt.token_in(text) == token
    with pytest.raises(JWTError):
        jwt.token_in("nothing here")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@given(st.text(max_size=200) | st.from_regex(r"[\w-]{0,20}\.[\w-]{0,40}\.[\w-]{0,40}"))
def test_any_text_fails_cleanly(text: str) -> None:
    for decode in (jwt.decode_user, jwt.decode_account, jwt.decode_operator, jwt.decode_generic):
        with pytest.raises(JWTError):
            decode(text)


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(["sub", "nats", "exp", "aud", "name"]), _json),
    st.dictionaries(st.sampled_from(list(AccountBody.__struct_fields__)), _json),
)
def test_any_signed_claims_decode_or_fail_cleanly(claims: Any, nats: Any) -> None:
    base = {"sub": ACCOUNT.public_key, "nats": {**nats, "type": "account", "version": 2}}
    for body in (claims, {**claims, **base}):
        token = foreign_token(body, OPERATOR)
        try:
            assert isinstance(jwt.decode_account(token), AccountClaims)
        except JWTError:
            continue
