"""Account tokens that are looked up when they are needed first (resolvers `cache` and `URL`).

Both hold what was looked up in memory. `cache` keeps the newest of it in a directory, too, so that
a start needs nobody else. Who looks up is the node; see `headwater.edge.system.account_lookups`.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from headwater.security import jwt
from headwater.security.auth_options import ResolverOptions
from headwater.security.claims import AccountClaims
from headwater.security.errors import JWTError
from headwater.security.resolvers.directory import SUFFIX, DirectoryResolver
from headwater.security.resolvers.memory import MAX_ACCOUNTS, MemoryResolver

NANOSECONDS = 1_000_000_000
CACHED = 1000
"""Files that a cache keeps unless its `limit` says otherwise; as nats-server."""


class UrlResolver(MemoryResolver):
    """Tokens that an HTTP server has; nothing is written anywhere."""

    __slots__ = ()

    def seeks(self, account: str, now: float) -> bool:
        """What is not held, or has expired, is asked for."""
        held = self.claims(account)
        return held is None or jwt.expired(held, now)


class CacheResolver(DirectoryResolver):
    """Tokens that other servers have. The oldest files go when there are too many; what a file
    said stays known until the end."""

    __slots__ = ("_fresh", "_kept", "_wall_ns")

    def __init__(
        self,
        options: ResolverOptions,
        preload: dict[str, str] | None,
        wall_ns: Callable[[], int],
    ) -> None:
        """Read the directory but for what is older than `ttl`; `wall_ns` tells the time, in ns
        since the epoch. Raises JWTError."""
        self._wall_ns = wall_ns
        self._kept = options.limit or CACHED
        self._fresh: dict[str, float] = {}
        """Unix seconds at which a token was had."""
        self._expire(Path(options.directory).expanduser(), options.ttl)
        super().__init__(options, preload)
        self._limit = MAX_ACCOUNTS

    def seeks(self, account: str, now: float) -> bool:
        """As of DirectoryResolver, and what is older than `ttl`."""
        if super().seeks(account, now):
            return True
        since = self._fresh.get(account, now)
        return bool(self._options.ttl) and now - since > self._options.ttl

    def update(self, token: str, claims: AccountClaims) -> None:
        """As of DirectoryResolver; an older file may go for it."""
        super().update(token, claims)
        now = self._wall_ns()
        self._fresh[claims.sub] = now / NANOSECONDS
        with contextlib.suppress(OSError):
            # The age of a file is by the node's clock, as everything else.
            os.utime(self._directory / f"{claims.sub}{SUFFIX}", ns=(now, now))
        files = self._by_age(self._directory)
        for path in files[: max(0, len(files) - self._kept)]:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def check_deletes(self) -> None:
        """What is cached may always be deleted."""

    def delete(self, account: str, request: str = "", issued_at: int = 0) -> None:
        """Forget an account. Raises JWTError."""
        try:
            (self._directory / f"{account}{SUFFIX}").unlink(missing_ok=True)
        except OSError as error:
            raise JWTError(f"cannot delete the token of {account}: {error}") from error
        self._drop(account)

    def _expire(self, directory: Path, ttl: float) -> None:
        """Remove files that are too old, and learn the age of the others."""
        for path in self._by_age(directory):
            with contextlib.suppress(FileNotFoundError):
                since = path.stat().st_mtime
                if ttl and self._wall_ns() / NANOSECONDS - since > ttl:
                    path.unlink()
                else:
                    self._fresh[path.name.removesuffix(SUFFIX)] = since

    @staticmethod
    def _by_age(directory: Path) -> list[Path]:
        """The files, the oldest first."""
        found = []
        for path in directory.glob(f"*{SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):
                found.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(found)]
