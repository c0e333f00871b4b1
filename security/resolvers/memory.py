"""Account tokens of operator mode, held in memory."""

import contextlib
import logging

from headwater.security import jwt
from headwater.security.claim_checks import account_problem
from headwater.security.claims import AccountClaims
from headwater.security.errors import JWTError

log = logging.getLogger("headwater.security")

MAX_ACCOUNTS = 65536
"""Accounts that a memory resolver holds."""


class MemoryResolver:
    """Account tokens by public key. Owns nothing on disk."""

    __slots__ = ("_claims", "_learned", "_tokens")

    def __init__(self, preload: dict[str, str] | None = None) -> None:
        """Start with `preload`, account key to token. Raises JWTError on a malformed one."""
        self._tokens: dict[str, str] = {}
        self._claims: dict[str, AccountClaims] = {}
        self._learned: set[str] = set()
        for key, token in (preload or {}).items():
            claims = jwt.decode_account(token)
            if claims.sub != key:
                raise JWTError(f"preloaded token of account {key} belongs to {claims.sub}")
            self._keep(claims, token)

    def __len__(self) -> int:
        return len(self._claims)

    def claims(self, account: str) -> AccountClaims | None:
        """Verified claims of an account; None when it is unknown, or its token has a problem."""
        return self._claims.get(account)

    def seeks(self, account: str, now: float) -> bool:
        """Whether a better token than the one that is held may be had elsewhere, at Unix second
        `now`. Those of a configuration are all there are."""
        return False

    def token(self, account: str) -> str | None:
        """Text of an account's token, or None."""
        return self._tokens.get(account)

    def accounts(self) -> list[str]:
        """Public keys of all accounts."""
        return list(self._claims)

    def check(self, claims: AccountClaims) -> None:
        """Refuse a token that may not take the place of the one that is held. Raises JWTError.

        Whether its issuer is trusted is for the caller to judge, before and after.
        """
        known = self._claims.get(claims.sub)
        if known is not None and known.iat > claims.iat:
            raise JWTError("the token is older than the one that is held")
        problem = account_problem(claims)
        if problem:
            raise JWTError(problem)

    def update(self, token: str, claims: AccountClaims) -> None:
        """Replace or add an account's token, which says `claims`, if it is not older. Raises
        JWTError."""
        self.check(claims)
        if claims.sub not in self._claims and len(self._claims) >= MAX_ACCOUNTS:
            raise JWTError("the resolver is full")
        self._put(claims, token)
        self._learned.add(claims.sub)

    def inherit(self, older: "MemoryResolver") -> None:
        """Keep what `older` has learned since it was made, unless what is held is newer."""
        for account in older.learned():
            token = older.token(account) or ""
            with contextlib.suppress(JWTError):
                self.update(token, jwt.decode_account(token))

    def learned(self) -> list[str]:
        """Accounts whose tokens came while the node ran."""
        return sorted(self._learned)

    def learn(self, token: str, claims: AccountClaims) -> None:
        """As `update`, with a token that another server has and nobody has pushed here."""
        self.update(token, claims)

    def delete(self, account: str, request: str = "", issued_at: int = 0) -> None:
        """Forget an account. Raises JWTError: a configuration is not changed from outside."""
        self.check_deletes()

    def check_deletes(self) -> None:
        """Raises JWTError when no account may be deleted."""
        raise JWTError("delete must be enabled in server config")

    def _drop(self, account: str) -> None:
        self._claims.pop(account, None)
        self._tokens.pop(account, None)
        self._learned.discard(account)

    def _keep(self, claims: AccountClaims, token: str) -> None:
        problem = account_problem(claims)
        if problem:
            log.error(
                "account token of %s is not used: %s; logins of that account are refused: push one "
                "that is right",
                claims.sub,
                problem,
            )
            self._claims.pop(claims.sub, None)
            self._tokens[claims.sub] = token
        else:
            self._put(claims, token)

    def _put(self, claims: AccountClaims, token: str) -> None:
        self._claims[claims.sub] = claims
        self._tokens[claims.sub] = token
