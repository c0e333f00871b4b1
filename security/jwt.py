"""NATS JWTs: decode with verification, and encode. Expiry is a separate question.

A token is `base64url(header).base64url(claims).base64url(signature)` without padding; the
signature is Ed25519 by the key named in `iss`, over the first two parts. Tokens of version 1
are read, and look like version 2 afterwards.
"""

import base64
import binascii
import hashlib
import time
from datetime import date
from typing import Any, TypeVar

import msgspec

from headwater.security import nkeys
from headwater.security.claims import (
    AccountClaims,
    ActivationClaims,
    GenericClaims,
    OperatorClaims,
    Token,
    UserClaims,
)
from headwater.security.errors import JWTError

ALGORITHM = "ed25519-nkey"
OLD_ALGORITHM = "ed25519"
"""Of version 1 tokens, whose signature covers the claims only."""

MAX_TOKEN_BYTES = 1024 * 1024
"""Longest token that is looked at; an account with very many exports stays far below."""

TOKEN_PREFIX = "eyJ"
"""How the text of every token begins: the base64 of `{"`."""

_HEADER = {"typ": "JWT", "alg": ALGORITHM}
# Kind of claims: (claims type, kinds of key that may sign, kinds of key that may be the subject).
_RULES: dict[str, tuple[type[Token], str, str]] = {
    "operator": (OperatorClaims, "O", "O"),
    "account": (AccountClaims, "OA", "A"),
    "user": (UserClaims, "A", "U"),
    "activation": (ActivationClaims, "A", "A"),
}

_Claims = TypeVar("_Claims", bound=Token)


def decode_operator(token: str) -> OperatorClaims:
    """Verified claims of an operator token. Raises JWTError."""
    return _decode(token, "operator", OperatorClaims)


def decode_account(token: str) -> AccountClaims:
    """Verified claims of an account token. Raises JWTError."""
    return _decode(token, "account", AccountClaims)


def decode_user(token: str) -> UserClaims:
    """Verified claims of a user token. Raises JWTError."""
    return _decode(token, "user", UserClaims)


def decode_activation(token: str) -> ActivationClaims:
    """Verified claims of an activation token. Raises JWTError."""
    return _decode(token, "activation", ActivationClaims)


def decode_generic(token: str) -> GenericClaims:
    """Verified claims of a token of any kind, with `nats` as a plain dict. Raises JWTError."""
    return _convert(_verified(token), GenericClaims)


def encode(claims: Token, signer: nkeys.KeyPair, issued_at: int | None = None) -> str:
    """Sign `claims`; fills `iss`, `iat` and `jti`. Raises NKeyError for a curve key."""
    claims.iss = signer.public_key
    claims.iat = int(time.time()) if issued_at is None else issued_at
    claims.jti = ""
    digest = hashlib.new("sha512_256", msgspec.json.encode(_plain(claims))).digest()
    claims.jti = base64.b32encode(digest).decode("ascii").rstrip("=")
    signed = f"{_pack(msgspec.json.encode(_HEADER))}.{_pack(msgspec.json.encode(_plain(claims)))}"
    return f"{signed}.{_pack(signer.sign(signed.encode('ascii')))}"


def expired(claims: Token, now: float) -> bool:
    """Whether `claims` are not valid at `now` (Unix seconds): past `exp` or before `nbf`."""
    return (claims.exp > 0 and claims.exp <= now) or claims.nbf > now


def why_expired(claims: Token, now: float) -> str:
    """What is said of `claims` that are `expired` at `now` (Unix seconds). A machine without a
    clock battery believes that it is 1970, so the date is named."""
    if claims.nbf <= now:
        return "has expired"
    return f"is not valid yet by this machine's clock, which says {date.fromtimestamp(now)}"


def shown(token: str) -> dict[str, Any]:
    """The claims of a token as they stand in it, for a person; nothing is verified. Raises
    JWTError."""
    return _json_object(token.split(".")[1])


def token_in(text: str) -> str:
    """The token in a bare text or in a decorated (PEM-like) one. Raises JWTError."""
    for line in text.splitlines():
        if line.strip().startswith(TOKEN_PREFIX):
            return line.strip()
    raise JWTError("no token found")


def _decode(token: str, kind: str, wanted: type[_Claims]) -> _Claims:
    _, signers, subjects = _RULES[kind]
    body = _verified(token)
    nats = body.get("nats")
    if not isinstance(nats, dict) or nats.get("type") != kind:
        raise JWTError(f"not a token of kind {kind!r}")
    if nats.get("version") != 2:
        raise JWTError("unsupported version of the token")
    claims = _convert(body, wanted)
    if claims.iss[:1] not in signers:
        raise JWTError(f"a key of this kind cannot sign tokens of kind {kind!r}")
    if not nkeys.is_public_key(claims.sub, subjects):
        raise JWTError(f"the subject of a token of kind {kind!r} must be such a key")
    return claims


def _verified(token: str) -> dict[str, Any]:
    """Claims object of a token whose signature is right, without its nulls."""
    if len(token) > MAX_TOKEN_BYTES or not token.isascii():
        raise JWTError("not a token")
    parts = token.split(".")
    if len(parts) != 3:
        raise JWTError("a token has three parts")
    header = _json_object(parts[0])
    algorithm = header.get("alg")
    if str(header.get("typ", "")).upper() != "JWT" or algorithm not in (ALGORITHM, OLD_ALGORITHM):
        raise JWTError("unsupported token type or algorithm")
    body = _json_object(parts[1])
    issuer = body.get("iss")
    signed = parts[1] if "type" in body else f"{parts[0]}.{parts[1]}"
    signature = _unpack(parts[2])
    if not isinstance(issuer, str) or not nkeys.verify(issuer, signed.encode("ascii"), signature):
        raise JWTError("the signature does not match the issuer")
    return _migrated(body) if "type" in body else body


def _migrated(body: dict[str, Any]) -> dict[str, Any]:
    """Claims of a version 1 token, which has its type beside `nats`, in version 2's form."""
    nats = body.get("nats", {})
    if not isinstance(nats, dict):
        raise JWTError("malformed claims")
    moved = {name: body[name] for name in ("type", "tags", "issuer_account") if name in body}
    if moved["type"] == "user":
        # Zero was "no limit" then.
        if nats.get("max", -1) != -1:
            raise JWTError("a message limit is no longer supported")
        nats = {**nats, **{name: nats.get(name) or -1 for name in ("subs", "data", "payload")}}
    return {**body, "nats": {**nats, **moved, "version": 2}}


def _json_object(part: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(_unpack(part))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JWTError("a part of the token is not JSON") from error
    if not isinstance(value, dict):
        raise JWTError("a part of the token is not an object")
    return {key: _without_nulls(item) for key, item in value.items() if item is not None}


def _without_nulls(value: Any) -> Any:
    """`value` where a null member is as good as an absent one, as other encoders write them."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def _convert(body: dict[str, Any], wanted: type[_Claims]) -> _Claims:
    nats = body.get("nats")
    if isinstance(nats, dict) and isinstance(nats.get("src"), str):
        nats["src"] = [block.strip() for block in nats["src"].split(",") if block.strip()]
    if isinstance(nats, dict) and isinstance(nats.get("signing_keys"), list):
        # A limit that a template does not name is none, other than in a user's own token.
        for key in nats["signing_keys"]:
            if isinstance(key, dict) and isinstance(key.get("template"), dict):
                key["template"] = {"subs": -1, "data": -1, "payload": -1, **key["template"]}
    try:
        return msgspec.convert(body, wanted)
    except msgspec.ValidationError as error:
        raise JWTError(f"malformed claims: {error}") from error


def _plain(claims: Token) -> Any:
    """Claims as a dict in which `nats.type` and `nats.version` are always present."""
    body = msgspec.to_builtins(claims)
    nats = getattr(claims, "nats", None)
    if isinstance(nats, msgspec.Struct):
        body["nats"] = {
            **body.get("nats", {}),
            "type": getattr(nats, "type", ""),
            "version": getattr(nats, "version", 2),
        }
    return body


def _pack(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def _unpack(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise JWTError("a part of the token is not base64url") from error
