"""Decides on requests to be enrolled; no input or output.

A gateway makes its own key, and asks with a token that the operator gave it for its name. Both keys
sign the request: the token's shows that whoever asks holds the token, the gateway's own that it
holds the key that is to be its identity. The answer is a user token bound to key and name, by a
scoped signing key of the account (see `headwater.security.gateway_roles`).
"""

import base64
import binascii
import time

import msgspec

from headwater.security import jwt, nkeys
from headwater.security.claims import AccountClaims, SigningScope, UserBody, UserClaims
from headwater.security.errors import JWTError
from headwater.security.gateway_roles import ENROL, gateway_name

REQUEST_BYTES_MAX = 16 * 1024


class EnrolmentRequest(msgspec.Struct, kw_only=True):
    """What a gateway sends."""

    token: str
    """User token of the operator's enrolment key."""
    key: str
    """Public user key that the gateway made."""
    token_proof: str
    """Base64 of the signature over `statement(key)` by the token's key."""
    key_proof: str
    """The same by the gateway's own key."""


class Enrolment(msgspec.Struct, kw_only=True):
    """What the hub keeps of a gateway that it let in."""

    name: str
    key: str
    token_id: str
    """`jti` of the token, which is used up."""
    at: int
    """Unix seconds."""


def statement(key: str) -> bytes:
    """What is signed to ask for the enrolment of a key."""
    return b"headwater enrolment of " + key.encode("ascii", "replace")


def request(token: str, token_pair: nkeys.KeyPair, own_pair: nkeys.KeyPair) -> bytes:
    """The request of a gateway."""
    said = statement(own_pair.public_key)
    proofs = [base64.b64encode(pair.sign(said)).decode() for pair in (token_pair, own_pair)]
    asked = EnrolmentRequest(
        token=token, key=own_pair.public_key, token_proof=proofs[0], key_proof=proofs[1]
    )
    return msgspec.json.encode(asked)


def judge(payload: bytes, name: str, account: AccountClaims, now: float) -> Enrolment:
    """Whom to enrol under `name`, which is the subject's. Raises JWTError, which says why not."""
    if len(payload) > REQUEST_BYTES_MAX:
        raise JWTError("the request is too long")
    try:
        asked = msgspec.json.decode(payload, type=EnrolmentRequest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JWTError("the request is malformed") from error
    claims = jwt.decode_user(asked.token)
    allowed, scope = account.scope_of(claims.iss)
    if not allowed or not isinstance(scope, SigningScope) or scope.role != ENROL:
        raise JWTError("the token is no enrolment token of this account")
    if not claims.exp or jwt.expired(claims, now):
        raise JWTError("the enrolment token has expired: make another one")
    if account.is_revoked(claims.sub, claims.iat):
        raise JWTError("the enrolment token was revoked")
    if gateway_name(claims.name) != name:
        raise JWTError("the enrolment token is for another gateway")
    if not nkeys.is_public_key(asked.key, "U"):
        raise JWTError("the key is no user's public key")
    # Not only what was issued until then: a token made now would open everything to it again.
    if asked.key in account.nats.revocations or account.is_revoked(asked.key, int(now)):
        raise JWTError("this key was revoked: the gateway has to make another one")
    for key, proof in ((claims.sub, asked.token_proof), (asked.key, asked.key_proof)):
        if not nkeys.verify(key, statement(asked.key), _bytes(proof)):
            raise JWTError("the request is not signed by its keys")
    return Enrolment(name=name, key=asked.key, token_id=claims.jti, at=int(now))


def grant(enrolment: Enrolment, account: AccountClaims, signer: nkeys.KeyPair) -> str:
    """The token that a gateway logs in with from now on."""
    body = UserBody(issuer_account=account.sub)
    user = UserClaims(sub=enrolment.key, name=enrolment.name, nats=body)
    return jwt.encode(user, signer, int(time.time()))


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
