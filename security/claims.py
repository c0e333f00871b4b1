"""Claims of NATS JWTs, version 2: what operators, accounts and users are told about.

Field names follow the token's JSON. Limits of -1 mean "no limit"; times are Unix seconds
unless a field says otherwise. Source: ADR-14 and the JWT documents of NATS.
"""

from typing import Annotated, Any, Self

import msgspec

NO_LIMIT = -1
Unsigned = Annotated[int, msgspec.Meta(ge=0)]


class Token(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The registered claims, common to every kind."""

    jti: str = ""
    iat: int = 0
    iss: str = ""
    name: str = ""
    sub: str = ""
    aud: str = ""
    exp: int = 0
    """Not valid from this second on; 0 never expires."""
    nbf: int = 0
    """Not valid before this second."""


class SubjectPermission(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Allow and deny lists; empty lists restrict nothing."""

    allow: list[str] = []
    deny: list[str] = []


class ResponsePermission(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Right to answer: `max` messages within `ttl` nanoseconds; 0 means the default."""

    max: int = 0
    ttl: int = 0


class TimeRange(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A daily window, "HH:MM:SS" to "HH:MM:SS"."""

    start: str = ""
    end: str = ""


class UserLimits(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Permissions and limits of a user, or the template of a scoped signing key."""

    pub: SubjectPermission = msgspec.field(default_factory=SubjectPermission)
    sub: SubjectPermission = msgspec.field(default_factory=SubjectPermission)
    resp: ResponsePermission | None = None
    src: list[str] = []
    """CIDR blocks that the client's address must be in."""
    times: list[TimeRange] = []
    times_location: str = ""
    subs: int = 0
    data: int = 0
    payload: int = 0
    bearer_token: bool = False
    proxy_required: bool = False
    allowed_connection_types: list[str] = []

    @classmethod
    def unlimited(cls) -> Self:
        """No permissions and no limits, which is what most tokens want."""
        return cls(subs=NO_LIMIT, data=NO_LIMIT, payload=NO_LIMIT)


class UserBody(UserLimits, kw_only=True, omit_defaults=True):
    """The `nats` object of a user token."""

    issuer_account: str = ""
    """Account's public key when `iss` is one of its signing keys."""
    tags: list[str] = []
    type: str = "user"
    version: int = 2

    def has_own_limits(self) -> bool:
        """Whether the token itself sets permissions or limits (a scoped user must not)."""
        return any(
            getattr(self, name) != getattr(_NO_LIMITS, name)
            for name in UserLimits.__struct_fields__
        )


class UserClaims(Token, kw_only=True, omit_defaults=True):
    """A user token: `sub` is the user's public key."""

    nats: UserBody = msgspec.field(default_factory=UserBody)

    def account(self) -> str:
        """Public key of the account that the user belongs to."""
        return self.nats.issuer_account or self.iss


class JetStreamTier(msgspec.Struct, kw_only=True, omit_defaults=True):
    """JetStream limits of an account, overall or for one replication tier."""

    mem_storage: int = 0
    disk_storage: int = 0
    streams: int = 0
    consumer: int = 0
    max_ack_pending: int = 0
    mem_max_stream_bytes: int = 0
    disk_max_stream_bytes: int = 0
    max_bytes_required: bool = False


class AccountLimits(JetStreamTier, kw_only=True, omit_defaults=True):
    """Limits of an account."""

    subs: int = 0
    data: int = 0
    payload: int = 0
    imports: int = 0
    exports: int = 0
    wildcards: bool = False
    disallow_bearer: bool = False
    conn: int = 0
    leaf: int = 0
    tiered_limits: dict[str, JetStreamTier] = {}

    @classmethod
    def unlimited(cls) -> Self:
        """No limits, except that JetStream stays off (its storage limits are 0)."""
        return cls(
            subs=NO_LIMIT,
            data=NO_LIMIT,
            payload=NO_LIMIT,
            imports=NO_LIMIT,
            exports=NO_LIMIT,
            wildcards=True,
            conn=NO_LIMIT,
            leaf=NO_LIMIT,
        )


class Import(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A stream or service taken from another account."""

    name: str = ""
    subject: str = ""
    account: str = ""
    token: str = ""
    to: str = ""
    local_subject: str = ""
    type: str = ""
    share: bool = False
    allow_trace: bool = False


class ServiceLatency(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Latency reports of an exported service; `sampling` is 1 to 100 or "headers"."""

    sampling: int | str = 100
    results: str = ""


class Export(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A stream or service offered to other accounts."""

    name: str = ""
    subject: str = ""
    type: str = ""
    token_req: bool = False
    revocations: dict[str, int] = {}
    response_type: str = ""
    response_threshold: int = 0
    """Nanoseconds."""
    service_latency: ServiceLatency | None = None
    account_token_position: Unsigned = 0
    advertise: bool = False
    allow_trace: bool = False
    description: str = ""
    info_url: str = ""


class SigningScope(msgspec.Struct, kw_only=True):
    """A signing key whose users get their permissions from `template`."""

    kind: str = "user_scope"
    key: str = ""
    role: str = ""
    template: UserLimits = msgspec.field(default_factory=UserLimits)
    description: str = ""


class WeightedMapping(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A share (percent) of the messages of a mapped subject; 0 means 100."""

    subject: str = ""
    weight: int = 0
    cluster: str = ""


class ExternalAuthorization(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Auth callout of an account."""

    auth_users: list[str] = []
    allowed_accounts: list[str] = []
    xkey: str = ""


class MessageTrace(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Where traces of sampled messages go; `sampling` is a percentage, 0 means 100."""

    dest: str = ""
    sampling: int = 0


class DefaultPermissions(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Permissions of users that have none of their own."""

    pub: SubjectPermission = msgspec.field(default_factory=SubjectPermission)
    sub: SubjectPermission = msgspec.field(default_factory=SubjectPermission)
    resp: ResponsePermission | None = None


class AccountBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The `nats` object of an account token."""

    imports: list[Import] = []
    exports: list[Export] = []
    limits: AccountLimits = msgspec.field(default_factory=AccountLimits)
    signing_keys: list[str | SigningScope] = []
    revocations: dict[str, int] = {}
    """User key, or "*", to the time up to which its tokens are revoked."""
    default_permissions: DefaultPermissions = msgspec.field(default_factory=DefaultPermissions)
    mappings: dict[str, list[WeightedMapping]] = {}
    authorization: ExternalAuthorization = msgspec.field(default_factory=ExternalAuthorization)
    trace: MessageTrace | None = None
    cluster_traffic: str = ""
    description: str = ""
    info_url: str = ""
    tags: list[str] = []
    type: str = "account"
    version: int = 2


class AccountClaims(Token, kw_only=True, omit_defaults=True):
    """An account token: `sub` is the account's public key, `iss` the operator's."""

    nats: AccountBody = msgspec.field(default_factory=AccountBody)

    def scope_of(self, issuer: str) -> tuple[bool, SigningScope | None]:
        """Whether `issuer` may sign users of this account, and its scope if it has one."""
        if issuer == self.sub:
            return True, None
        for key in self.nats.signing_keys:
            if isinstance(key, SigningScope):
                if key.key == issuer:
                    return True, key
            elif key == issuer:
                return True, None
        return False, None

    def is_revoked(self, user_key: str, issued_at: int) -> bool:
        """Whether a user token issued at `issued_at` has been revoked."""
        revoked = self.nats.revocations
        return any(revoked.get(key, -1) >= issued_at for key in (user_key, "*"))


class OperatorBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The `nats` object of an operator token."""

    signing_keys: list[str] = []
    account_server_url: str = ""
    operator_service_urls: list[str] = []
    system_account: str = ""
    assert_server_version: str = ""
    strict_signing_key_usage: bool = False
    tags: list[str] = []
    type: str = "operator"
    version: int = 2


class OperatorClaims(Token, kw_only=True, omit_defaults=True):
    """An operator token, signed by itself."""

    nats: OperatorBody = msgspec.field(default_factory=OperatorBody)

    def trusted_keys(self) -> list[str]:
        """Keys that may sign accounts."""
        own = [] if self.nats.strict_signing_key_usage else [self.sub]
        return own + self.nats.signing_keys


class ActivationBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The `nats` object of an activation token."""

    subject: str = ""
    kind: str = ""
    """"stream" or "service"."""
    issuer_account: str = ""
    tags: list[str] = []
    type: str = "activation"
    version: int = 2


class ActivationClaims(Token, kw_only=True, omit_defaults=True):
    """Permission for account `sub` to import a private export of account `iss`."""

    nats: ActivationBody = msgspec.field(default_factory=ActivationBody)


class GenericClaims(Token, kw_only=True, omit_defaults=True):
    """Any other token, such as an auth callout request or response."""

    nats: dict[str, Any] = {}


_NO_LIMITS = UserLimits()
