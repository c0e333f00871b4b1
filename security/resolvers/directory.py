"""Account tokens of operator mode in a directory, one file for each (resolver `full`).

The files are named `<account key>.jwt`, as nats-server names them; a deleted one is kept as
`<account key>.jwt.deleted` unless it is to be removed for good. All tokens are in memory, too.

What was deleted does not come back from a server that has not heard of it (`deletions.py`).
"""

import contextlib
import hashlib
import logging
from pathlib import Path

from headwater.security import jwt
from headwater.security.auth_options import ResolverOptions
from headwater.security.claims import AccountClaims
from headwater.security.errors import JWTError
from headwater.security.nkeys import is_public_key
from headwater.security.resolvers.deletions import Deletions, write_durably
from headwater.security.resolvers.memory import MAX_ACCOUNTS, MemoryResolver
from headwater.security.whole_file import sync_directory

log = logging.getLogger("headwater.security")

SUFFIX = ".jwt"
DELETED_SUFFIX = ".jwt.deleted"
DIRECTORY_MODE = 0o700
DIGEST_BYTES = 32


class DirectoryResolver(MemoryResolver):
    """Account tokens by public key, kept in a directory that is this node's alone."""

    __slots__ = ("_directory", "_limit", "_options", "deletions")

    def __init__(self, options: ResolverOptions, preload: dict[str, str] | None = None) -> None:
        """Read the directory, made if it is not there; `preload` counts where it is newer.

        Raises JWTError when the directory cannot be used.
        """
        super().__init__()
        self._options = options
        self._directory = Path(options.directory).expanduser()
        self._limit = min(options.limit, MAX_ACCOUNTS) if options.limit > 0 else MAX_ACCOUNTS
        try:
            self._directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            files = sorted(self._directory.glob(f"*{SUFFIX}"))
            self.deletions = Deletions(self._directory)
        except OSError as error:
            raise JWTError(f"resolver directory {options.directory}: {error}") from error
        for path in files:
            self._load(path)
        for key, token in (preload or {}).items():
            claims = jwt.decode_account(token)
            held = self.claims(key)
            if self.deletions.covers(key, claims.iat):
                log.warning(
                    "account %s was deleted: its preloaded token does not count, push it to have "
                    "it back",
                    key,
                )
            elif held is None or held.iat < claims.iat:
                self.update(token, claims)

    def seeks(self, account: str, now: float) -> bool:
        """Other servers may hold what is not held here, or has expired."""
        held = self.claims(account)
        return held is None or jwt.expired(held, now)

    def _load(self, path: Path) -> None:
        """Take one file; what cannot be read or is not this account's is told and left."""
        try:
            with path.open("rb") as file:
                token = file.read(jwt.MAX_TOKEN_BYTES + 1).decode("ascii").strip()
            claims = jwt.decode_account(token)
            if f"{claims.sub}{SUFFIX}" != path.name:
                raise JWTError(f"it is the token of {claims.sub}")
            self._check_room(claims.sub)
        except (OSError, UnicodeDecodeError, JWTError) as error:
            log.error(
                "account token %s is not used: %s; logins of that account are refused: push it "
                "again",
                path,
                error,
            )
            return
        self._keep(claims, token)

    def _check_room(self, key: str) -> None:
        if self.token(key) is None and len(self) >= self._limit:
            raise JWTError(f"the resolver is full, its limit is {self._limit} accounts")

    def update(self, token: str, claims: AccountClaims) -> None:
        """As of MemoryResolver; durable when it returns."""
        self.check(claims)
        if self.token(claims.sub) != token:
            self._check_room(claims.sub)
            self.deletions.revive(claims.sub)
            write_durably(self._directory, f"{claims.sub}{SUFFIX}", token.encode("ascii"))
            self._put(claims, token)

    def learn(self, token: str, claims: AccountClaims) -> None:
        """As of MemoryResolver; what was deleted here does not come back."""
        if self.deletions.covers(claims.sub, claims.iat):
            raise JWTError("the account was deleted")
        self.update(token, claims)

    def check_deletes(self) -> None:
        """Raises JWTError when the configuration lets no account be deleted."""
        if not self._options.allow_delete:
            raise JWTError("delete must be enabled in server config")

    def delete(self, account: str, request: str = "", issued_at: int = 0) -> None:
        """Forget an account, by a signed request of that Unix second. Raises JWTError."""
        self.check_deletes()
        if not is_public_key(account, "A"):
            raise JWTError("not the key of an account")
        if self.deletions.is_spent(account, request):
            raise JWTError(f"{account} was pushed again since this request")
        held = self.claims(account)
        self.deletions.remember(account, request, max(issued_at, held.iat if held else 0))
        path = self._directory / f"{account}{SUFFIX}"
        try:
            with contextlib.suppress(FileNotFoundError):
                if self._options.hard_delete:
                    path.unlink()
                else:
                    path.rename(self._directory / f"{account}{DELETED_SUFFIX}")
                sync_directory(self._directory)
        except OSError as error:
            raise JWTError(f"cannot delete the token of {account}: {error}") from error
        self._drop(account)

    def digest(self) -> bytes:
        """Equal for two resolvers that hold the same tokens."""
        found = 0
        for account in self.accounts():
            token = self.token(account) or ""
            found ^= int.from_bytes(hashlib.sha256(token.encode()).digest(), "big")
        return found.to_bytes(DIGEST_BYTES, "big")
