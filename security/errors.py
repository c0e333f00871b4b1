"""Errors of the security package, one small hierarchy."""

from collections.abc import Sequence


class SecurityError(Exception):
    """Base of everything that this package raises on purpose."""


class NKeyError(SecurityError):
    """A text is not a well-formed NKey, or a key cannot do what was asked of it."""


class JWTError(SecurityError):
    """A token is malformed, not signed by its issuer, or of the wrong kind."""


class CredsError(SecurityError):
    """A creds file is malformed or cannot be read or written safely."""


class PermissionRuleError(SecurityError):
    """A permission rule is not a valid subject, or not a valid subject and queue."""


class TLSConfigError(SecurityError):
    """Certificates, keys or TLS settings cannot be used."""


class OCSPError(SecurityError):
    """What an authority says of a certificate cannot be had, or does not count."""


class SealingError(SecurityError):
    """A key for stored data is missing, cannot be read, or is not the right one."""


class AuthError(SecurityError):
    """Authentication failed.

    `reason` is for logs and events only; a client always sees `wire_text`.
    """

    wire_text = "Authorization Violation"
    ended_text = "Authorization Violation"
    """What a session is told that had been admitted and may be no longer."""
    reason_shown = "Authentication Failure"
    """Why it ended, as monitoring shows it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ProxyRequiredError(AuthError):
    """The user may connect through a trusted proxy only."""

    reason_shown = "Proxy Required"


class ProxyNotTrustedError(AuthError):
    """A proxy has signed the connection, but none that is trusted."""

    reason_shown = "Proxy Not Trusted"


class AuthExpiredError(AuthError):
    """The user's JWT is past its expiry."""

    wire_text = "User Authentication Expired"
    ended_text = wire_text
    reason_shown = "Authentication Expired"


class AuthRevokedError(AuthError):
    """The user's JWT was revoked by its account."""

    ended_text = "User Authentication Revoked"
    reason_shown = "Credentials Revoked"


class HashNeeded(Exception):
    """A decision needs to know whether the secret `presented` has the bcrypt hash `configured`.

    No SecurityError: nothing has been decided. Put the verdict into the request and ask again.
    """

    def __init__(self, configured: str, presented: str) -> None:
        super().__init__("a password hash has to be computed")
        self.configured = configured
        self.presented = presented


class AccountNeeded(Exception):
    """A decision needs the token of `account`, which is not held but may be had elsewhere.

    No SecurityError: nothing has been decided. Look for it, say in the request that it was
    sought, and ask again.
    """

    def __init__(self, account: str) -> None:
        super().__init__(f"the token of account {account} has to be looked up")
        self.account = account


class CalloutTarget:
    """Which callout service decides."""

    __slots__ = ("account", "allowed_accounts", "issuer", "name", "token", "user", "xkey")

    def __init__(
        self,
        account: str,
        *,
        issuer: str = "",
        xkey: str = "",
        allowed_accounts: Sequence[str] = (),
        token: str = "",
        user: str = "",
        name: str = "",
    ) -> None:
        """The service listens in `account`, and gets questions encrypted for `xkey` if that is
        given. Its tokens are by `issuer`, or, where that is empty, by accounts of operators:
        `account` itself or one of `allowed_accounts`. `token`, `user` (a key) and `name` are those
        of the user that lets a connection ask; empty where none is needed."""
        self.account = account
        self.issuer = issuer
        self.xkey = xkey
        self.allowed_accounts = list(allowed_accounts)
        self.token = token
        self.user = user
        self.name = name


class CalloutRequired(AuthError):
    """The decision belongs to the configured auth callout service, `target`."""

    def __init__(self, reason: str, target: CalloutTarget) -> None:
        super().__init__(reason)
        self.target = target


class StepsExceeded(Exception):
    """A comparison of subjects with each other would take too long."""
