"""Who a connection turned out to be, and what that entitles it to."""

from collections.abc import Mapping
from typing import Any

import msgspec

from headwater.security import passwords
from headwater.security.auth_options import (
    GLOBAL_ACCOUNT,
    AuthOptions,
    OperatorOptions,
    PermissionOptions,
    UserOptions,
)
from headwater.security.errors import HashNeeded

CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)

UNLIMITED = -1


def lowest(*limits: int) -> int:
    """The strictest of some limits, of which -1 is none; -1 when all are."""
    return min((limit for limit in limits if limit >= 0), default=UNLIMITED)


def claimed_user(connect: Mapping[str, Any]) -> str:
    """Who a connection says it is in CONNECT: a key or a name. A token is a secret, not shown."""
    for field in ("nkey", "user"):
        told = connect.get(field)
        if told and isinstance(told, str):
            return told
    return "[REDACTED]" if connect.get("auth_token") else ""


class IdentityLimits(msgspec.Struct, kw_only=True, frozen=True):
    """Limits of one connection that come with its identity; -1 leaves the node's limit."""

    max_payload: int = UNLIMITED
    max_subscriptions: int = UNLIMITED
    max_data: int = UNLIMITED
    """Bytes of messages in both directions; 0 is no limit, too."""


class Identity(msgspec.Struct, kw_only=True):
    """Result of a successful authentication."""

    account: str = GLOBAL_ACCOUNT
    """Account name; in operator mode the account's public key."""
    user: str = ""
    """User name or public user key; empty when nothing was asked for. Never a secret."""
    kind: str = "none"
    """How it was proven: none, user, token, nkey, jwt, certificate or no_auth_user."""
    permissions: PermissionOptions | None = None
    limits: IdentityLimits = IdentityLimits()
    expires: float = 0.0
    """Unix seconds at which the connection must be closed; 0 is never."""
    name: str = ""
    """Name in the user's token, for display."""
    tags: list[str] = []
    issued_at: int = 0
    """Issue time of the user's token, for later revocations."""
    issuer: str = ""
    """Key that signed the user's token."""
    bearer: bool = False
    """Whether the token alone admits: it is a secret, and not shown to others."""
    account_name: str = ""
    """Display name of the account, from its token."""
    proxy: str = ""
    """Key of the trusted proxy that vouches for the connection; empty without."""


class AuthConfig(msgspec.Struct, kw_only=True):
    """Everything that authentication depends on, as plain data."""

    auth: AuthOptions = msgspec.field(default_factory=AuthOptions)
    account_users: list[UserOptions] = []
    """Users of the `accounts` block, each with its account's name."""
    no_auth_user: str = ""
    operator: OperatorOptions = msgspec.field(default_factory=OperatorOptions)
    system_account: str = ""
    default_sentinel: str = ""
    proxies: list[str] = []
    """Public keys of trusted proxies."""
    maps_certificates: bool = False
    """Whether any listener takes users by their certificates (`verify_and_map`). Then a user
    without a password is known by a certificate only, on every listener."""


class AuthRequest(msgspec.Struct, kw_only=True):
    """What a connection presents. Nothing in it is trusted."""

    connect: Mapping[str, Any]
    """Fields of CONNECT; wrong types count as absent."""
    nonce: bytes = b""
    """Nonce of this connection's INFO, as sent; empty when none was sent."""
    connection_type: str = "STANDARD"
    is_leaf: bool = False
    host: str = ""
    """Peer's IP address, for source restrictions."""
    certificate: Mapping[str, Any] | None = None
    """Peer's verified certificate as of `SSLObject.getpeercert()`."""
    map_certificate: bool = False
    """Whether the listener takes the user from the certificate (`verify_and_map`)."""
    override: AuthOptions | None = None
    """Listener's own single user or token (WebSocket, MQTT), instead of the node's."""
    no_auth_user: str | None = None
    """Listener's own `no_auth_user`, instead of the node's."""
    now: float = 0.0
    """Unix seconds."""
    proxy: str = ""
    """Key of the trusted proxy that signed the nonce, as far as was decided; empty without."""
    verdicts: dict[tuple[str, str], bool] | None = None
    """Known answers to (bcrypt hash, presented secret); None computes them where they arise."""

    sought: set[str] | None = None
    """Accounts whose tokens were looked up for this; None when nothing can be looked up."""

    def matches(self, configured: str, presented: str) -> bool:
        """Whether the `presented` secret is the `configured` one.

        Raises HashNeeded when that takes a hash whose verdict is not known yet.
        """
        if self.verdicts is None or not passwords.is_slow(configured, presented):
            return passwords.matches(configured, presented)
        verdict = self.verdicts.get((configured, presented))
        if verdict is None:
            raise HashNeeded(configured, presented)
        return verdict

    def text(self, field: str) -> str:
        """A text field of CONNECT, or empty."""
        value = self.connect.get(field)
        return value if isinstance(value, str) else ""

    def has_credentials(self) -> bool:
        """Whether a name, a password or a token was presented. An nkey counts only where nkeys are
        configured."""
        return any(map(self.text, ("user", "pass", "auth_token")))


