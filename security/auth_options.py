"""Plain data that says who may connect and what they may do, as configured by an operator.

Nothing here is evaluated: `headwater.security.authenticator` compiles these records, and
`headwater.edge.conf` fills them from a configuration file or the command line.
"""

import msgspec

GLOBAL_ACCOUNT = "$G"
"""Account of every client when no account is configured."""

SYSTEM_ACCOUNT = "$SYS"
"""Default system account."""

CALLOUT_SUBJECT = "$SYS.REQ.USER.AUTH"
"""Where an auth callout service listens, in the callout's account."""

DEFAULT_AUTH_TIMEOUT = 2.0
"""Seconds that a new connection has to send a valid CONNECT."""

DEFAULT_RESPONSE_MESSAGES = 1
"""Replies that `allow_responses` permits per received request."""

DEFAULT_RESPONSE_EXPIRES = 120.0
"""Seconds that `allow_responses` keeps a reply subject open."""


class SubjectRules(msgspec.Struct, kw_only=True):
    """Allow and deny lists of subjects; wildcards permitted.

    `allow` is None when everything that is not denied is allowed. An empty list allows
    nothing. Subscribe rules may carry a queue pattern after a space: "orders.> workers.*".
    """

    allow: list[str] | None = None
    deny: list[str] = []


class ResponseRules(msgspec.Struct, kw_only=True):
    """Temporary right to publish to the reply subject of a delivered message.

    `max_messages` replies (negative: unlimited) within `expires` seconds (negative: for ever).
    """

    max_messages: int = DEFAULT_RESPONSE_MESSAGES
    expires: float = DEFAULT_RESPONSE_EXPIRES


class PermissionOptions(msgspec.Struct, kw_only=True):
    """What a user may publish and subscribe to. None means no restriction of that kind."""

    publish: SubjectRules | None = None
    subscribe: SubjectRules | None = None
    allow_responses: ResponseRules | None = None


class UserOptions(msgspec.Struct, kw_only=True):
    """One configured user: name and password (plain or bcrypt), or a public user NKey."""

    user: str = ""
    password: str = ""
    nkey: str = ""
    account: str = ""
    """Account name; empty means the global account `$G`."""
    permissions: PermissionOptions | None = None
    allowed_connection_types: list[str] = []
    """Upper-case names such as STANDARD or WEBSOCKET; empty allows every type."""
    proxy_required: bool = False


class AuthCalloutOptions(msgspec.Struct, kw_only=True):
    """Delegation of authentication to a service that listens on the bus."""

    issuer: str = ""
    """Public account NKey that signs the service's answers."""
    account: str = GLOBAL_ACCOUNT
    auth_users: list[str] = []
    """Users (names or NKeys) that are checked locally instead."""
    xkey: str = ""
    allowed_accounts: list[str] = []


class AuthOptions(msgspec.Struct, kw_only=True):
    """An `authorization` block. Single user, token and user list exclude one another."""

    user: str = ""
    password: str = ""
    token: str = ""
    nkey: str = ""
    """Leaf listeners only: single NKey that may connect."""
    account: str = ""
    """Leaf listeners only: account that the single user binds to."""
    timeout: float = 0.0
    """Seconds; 0 means not configured (see `DEFAULT_AUTH_TIMEOUT`)."""
    users: list[UserOptions] = []
    default_permissions: PermissionOptions | None = None
    callout: AuthCalloutOptions | None = None
    proxy_required: bool = False

    def is_set(self) -> bool:
        """Whether this block demands any credential."""
        return bool(
            self.user or self.password or self.token or self.nkey or self.users or self.callout
        )


class ResolverOptions(msgspec.Struct, kw_only=True):
    """Where account JWTs come from in operator mode.

    `kind` is one of "", "memory", "url", "full", "cache". Durations are seconds.
    """

    kind: str = ""
    url: str = ""
    directory: str = ""
    limit: int = 0
    ttl: float = 0.0
    interval: float = 0.0
    timeout: float = 1.9
    allow_delete: bool = False
    hard_delete: bool = False


class OperatorOptions(msgspec.Struct, kw_only=True):
    """Operator mode: trust anchors and the source of account JWTs."""

    operators: list[str] = []
    """Operator JWTs (their text, already read from file when a file was named)."""
    trusted_keys: list[str] = []
    """Public operator NKeys trusted in addition to those of `operators`."""
    resolver: ResolverOptions = msgspec.field(default_factory=ResolverOptions)
    preload: dict[str, str] = {}
    """Account public key to account JWT."""
    pinned_accounts: list[str] = []
    """When not empty, the only accounts (beside the system account) that may connect."""

    def enabled(self) -> bool:
        """Whether clients must present JWTs."""
        return bool(self.operators or self.trusted_keys)
