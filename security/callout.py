"""Auth callout: the question to a service who a connection is, and the judgement of its answer.

Pure: what is sent, how, and for how long an answer is awaited is for `edge`. A question names a
user key made for it alone, and an answer must carry a token for that key; so no answer serves
twice. Source: ADR-26.
"""

from collections.abc import Callable
from typing import Any

from headwater.security import jwt
from headwater.security.authenticator import Authenticator, guarded
from headwater.security.claims import GenericClaims, UserClaims
from headwater.security.errors import AuthError, CalloutTarget, JWTError, NKeyError
from headwater.security.identity import AuthRequest, Identity
from headwater.security.nkeys import KeyPair

AUDIENCE = "nats-authorization-request"
XKEY_HEADER = "Nats-Server-Xkey"
ANY_ACCOUNT = "*"

_CONNECT_FIELDS = {
    "jwt": "jwt",
    "nkey": "nkey",
    "sig": "sig",
    "auth_token": "auth_token",
    "user": "user",
    "pass": "pass",
    "name": "name",
    "lang": "lang",
    "version": "version",
}


class Callout:
    """One question."""

    def __init__(self, target: CalloutTarget, server: KeyPair, curve: KeyPair) -> None:
        """`server` signs the question; with `curve` it is encrypted if the service wants that."""
        self.target = target
        self._server = server
        self._curve = curve
        self.user = KeyPair.create("U").public_key
        """The key that a token in the answer must be for."""

    def request(
        self,
        asked: AuthRequest,
        server: dict[str, Any],
        client: dict[str, Any],
        tls: dict[str, Any] | None,
        expires: int,
    ) -> tuple[bytes, bytes]:
        """Payload and header block of the question; `expires` in Unix seconds."""
        encrypted = bool(self.target.xkey)
        connect: dict[str, Any] = {
            name: asked.text(field) for field, name in _CONNECT_FIELDS.items() if asked.text(field)
        }
        if self.target.token:
            connect["jwt"] = self.target.token
        protocol = asked.connect.get("protocol")
        connect["protocol"] = protocol if isinstance(protocol, int) else 0
        if "sig" in connect:
            client = {**client, "nonce": asked.nonce.decode("ascii", "replace")}
        body: dict[str, Any] = {
            "server_id": {**server, **({"xkey": self._curve.public_key} if encrypted else {})},
            "user_nkey": self.user,
            "client_info": client,
            "connect_opts": connect,
            "type": "authorization_request",
            "version": 2,
        }
        if tls is not None:
            body["client_tls"] = tls
        claims = GenericClaims(
            aud=AUDIENCE, sub=self.target.issuer or self.target.account, exp=expires, nats=body
        )
        payload = jwt.encode(claims, self._server, int(asked.now)).encode()
        if not encrypted:
            return payload, b""
        headers = f"NATS/1.0\r\n{XKEY_HEADER}: {self._curve.public_key}\r\n\r\n".encode()
        return self._curve.seal(payload, self.target.xkey), headers

    def identity(
        self,
        answer: bytes,
        asked: AuthRequest,
        authenticator: Authenticator,
        is_known: Callable[[str], bool],
    ) -> Identity:
        """Who the service says it is. `is_known` tells whether an account exists.

        Raises AuthError.
        """
        try:
            token = self._token(answer, asked, authenticator)
            user = jwt.decode_user(token)
        except (JWTError, NKeyError) as error:
            raise AuthError(f"the callout's answer is not valid: {error}") from error
        if user.sub != self.user:
            raise AuthError("the callout's answer has a token for another user")
        identity = authenticator.identity_of(user, asked, self._account(user, is_known))
        identity.kind = "callout"
        identity = guarded(identity, self.target.account)
        identity.tags = []
        if not authenticator.operator_mode:
            identity.issuer = identity.account
        identity.user = user.name or asked.text("nkey") or asked.text("user")
        return identity

    def _token(self, answer: bytes, asked: AuthRequest, authenticator: Authenticator) -> str:
        """The user's token out of an answer. Raises AuthError, JWTError or NKeyError."""
        if not answer:
            raise AuthError("the callout service refused without a reason")
        encrypted = bool(self.target.xkey) and not answer.startswith(jwt.TOKEN_PREFIX.encode())
        if encrypted:
            answer = self._curve.open(answer, self.target.xkey)
        response = jwt.decode_generic(answer.decode("ascii", "replace"))
        body = response.nats
        if body.get("type") != "authorization_response":
            raise AuthError("the callout's answer is no authorization response")
        if response.sub != self.user or response.aud != self._server.public_key:
            raise AuthError("the callout's answer is to another question")
        if jwt.expired(response, asked.now):
            raise AuthError("the callout's answer has expired")
        if body.get("error"):
            raise AuthError(f"the callout service refused: {body['error']}")
        if not encrypted:
            self._check_signer(response.iss, str(body.get("issuer_account", "")), authenticator)
        token = body.get("jwt")
        if not isinstance(token, str):
            raise AuthError("the callout's answer has no token")
        return token

    def _check_signer(self, signer: str, of: str, authenticator: Authenticator) -> None:
        """Refuse an answer that anybody could have made, who can open no sealed question; `of` is
        the account that it says its signer belongs to. Raises AuthError."""
        account = authenticator.account_claims(self.target.account)
        if authenticator.operator_mode:
            known = account is not None and account.scope_of(of or signer)[0]
        else:
            known = signer == self.target.issuer
        if not known:
            raise AuthError("the callout's answer is signed by a key that is not its account's")

    def _account(self, user: UserClaims, is_known: Callable[[str], bool]) -> str:
        """The account that the service puts the user into. Raises AuthError."""
        target = self.target
        if target.issuer:
            if user.nats.issuer_account:
                raise AuthError("an issuer account is for operator mode only")
            if user.iss != target.issuer:
                raise AuthError("the callout's token is not by the configured issuer")
            if not user.aud or not is_known(user.aud):
                raise AuthError(f"the callout's token is for an unknown account {user.aud!r}")
            return user.aud
        account = user.account()
        allowed = target.allowed_accounts
        if account != target.account and account not in allowed and allowed != [ANY_ACCOUNT]:
            raise AuthError("the callout may not put users into that account")
        return account


def response(
    question: GenericClaims, signer: KeyPair, token: str = "", error: str = ""
) -> bytes:
    """The answer of a service to a decoded question, signed by its account's key."""
    body: dict[str, Any] = {"type": "authorization_response", "version": 2}
    body.update({"jwt": token} if token else {"error": error})
    claims = GenericClaims(
        sub=question.nats["user_nkey"],
        aud=question.nats["server_id"]["id"],
        nats=body,
    )
    return jwt.encode(claims, signer).encode()


def question_of(payload: bytes) -> GenericClaims:
    """A decoded question, as a service reads it. Raises JWTError."""
    claims = jwt.decode_generic(payload.decode("ascii", "replace"))
    if claims.nats.get("type") != "authorization_request" or claims.aud != AUDIENCE:
        raise JWTError("not an authorization request")
    return claims
