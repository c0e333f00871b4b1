"""The decision whether a connection may come in, and as whom. Pure: no clock, no sockets.

Methods are tried in the order of NATS: operator JWT, NKey users, named users (or the user of
a mapped certificate), token, single user and password.
"""

import base64
import binascii
import time
from collections.abc import Callable, Iterable

import msgspec

from headwater.security import jwt, nkeys, passwords
from headwater.security.auth_options import (
    CALLOUT_SUBJECT,
    DEFAULT_RESPONSE_EXPIRES,
    DEFAULT_RESPONSE_MESSAGES,
    GLOBAL_ACCOUNT,
    AuthOptions,
    OperatorOptions,
    PermissionOptions,
    ResponseRules,
    SubjectRules,
    UserOptions,
)
from headwater.security.claim_checks import user_problem
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    ResponsePermission,
    SubjectPermission,
    UserClaims,
    UserLimits,
)
from headwater.security.errors import (
    AccountNeeded,
    AuthError,
    AuthExpiredError,
    AuthRevokedError,
    CalloutRequired,
    CalloutTarget,
    JWTError,
    PermissionRuleError,
    ProxyNotTrustedError,
    ProxyRequiredError,
)
from headwater.security.identity import (
    CONNECTION_TYPES,
    UNLIMITED,
    AuthConfig,
    AuthRequest,
    Identity,
    IdentityLimits,
    lowest,
)
from headwater.security.permissions import Permissions
from headwater.security.resolvers.memory import MemoryResolver
from headwater.security.scope import apply_template
from headwater.security.tls.certificate_users import named_by
from headwater.security.windows import open_until, source_allowed

NANOSECONDS = 1_000_000_000


class Authenticator:
    """Compiled form of an `AuthConfig`. Make a new one when the configuration changes."""

    def __init__(
        self, config: AuthConfig, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Compile `config`; `wall_ns` tells a resolver the time, in ns since the epoch. Raises
        JWTError when an operator or preloaded token is bad."""
        self.config = config
        self.resolver = _resolver(config.operator, wall_ns)
        self.operator_mode = config.operator.enabled()
        """On because it is configured, even when no key is left that could sign an account."""
        self.trusted_keys, self.strict_keys = _operator_keys(config)
        self._users: dict[str, UserOptions] = {}
        self._nkeys: dict[str, UserOptions] = {}
        for user in (*config.auth.users, *config.account_users):
            (self._nkeys if user.nkey else self._users)[user.nkey or user.user] = user
        self._decoy = _decoy(self._users.values())

    def auth_required(self) -> bool:
        """Whether clients must present something (INFO's `auth_required`)."""
        return bool(
            self.operator_mode or self._users or self._nkeys or self.config.auth.is_set()
        )

    def nonce_required(self) -> bool:
        """Whether INFO must carry a nonce for clients to sign."""
        return bool(self.operator_mode or self._nkeys or self.config.proxies)

    def authenticate(self, request: AuthRequest) -> Identity:
        """Identity of a client, or of a leaf whose listener has no rules of its own.

        Raises AuthError, or CalloutRequired when the callout service has to decide.
        """
        self._check_proxy(request)
        return _proxied(self._by_configuration(request), request)

    def _by_configuration(self, request: AuthRequest) -> Identity:
        callout = self.config.auth.callout
        if callout is None or self.operator_mode:
            return self._decide(request)
        target = CalloutTarget(callout.account, issuer=callout.issuer, xkey=callout.xkey)
        name = request.text("nkey") or request.text("user")
        if name in callout.auth_users:
            return guarded(self._decide(request), target.account)
        try:
            identity = self._decide(request)
        except AuthError as error:
            raise CalloutRequired(error.reason, target) from error
        exempt = callout.allowed_accounts and identity.account not in callout.allowed_accounts
        if identity.account != GLOBAL_ACCOUNT and exempt and not request.is_leaf:
            return guarded(identity, target.account)
        raise CalloutRequired("decided by the callout service", target)

    def identity_of(self, user: UserClaims, request: AuthRequest, account: str) -> Identity:
        """Identity of a user whose token a callout service has made. Raises AuthError."""
        _check_user(user, request)
        if self.operator_mode:
            claims = self._account_of(user, request)
            limits = self._scoped(user, claims)
        else:
            body = AccountBody(limits=AccountLimits.unlimited())
            claims, limits = AccountClaims(sub=account, name=account, nats=body), user.nats
        return _proxied(self._admitted(request, user, claims, limits), request)

    def authenticate_leaf(self, request: AuthRequest, listener: AuthOptions) -> Identity:
        """Identity of a leaf connection. `listener` is the `leafnodes.authorization` block.

        Raises AuthError.
        """
        if listener.user or listener.nkey or listener.users:
            self._check_proxy(request)
            if listener.proxy_required:
                _need_proxy(request)
            return _proxied(self._vouched(self._leaf_user(request, listener), request), request)
        if not self.auth_required():
            return Identity(account=_or_global(listener.account))
        return self.authenticate(request)

    def account_claims(self, key: str) -> AccountClaims | None:
        """Claims of an account that a trusted operator has signed and that can be in force,
        expired or not; else None."""
        claims = self.resolver.claims(key)
        return claims if claims is not None and claims.iss in self.trusted_keys else None

    def update_account(self, token: str, claims: AccountClaims) -> None:
        """Take an account's new token, which says `claims`. Raises JWTError unless a trusted
        operator signed it."""
        self._check_issuer(claims)
        self.resolver.update(token, claims)

    def learn_account(self, token: str, claims: AccountClaims) -> None:
        """The same for a token that another server has; it brings nothing back that was deleted."""
        self._check_issuer(claims)
        self.resolver.learn(token, claims)

    def _check_issuer(self, claims: AccountClaims) -> None:
        if claims.iss not in self.trusted_keys:
            raise JWTError("the account is not signed by a trusted operator")

    def _check_proxy(self, request: AuthRequest) -> None:
        """Remember which trusted proxy has signed the nonce. Raises ProxyNotTrustedError."""
        text = request.text("proxy_sig")
        request.proxy = ""
        if not text or not self.config.proxies:
            return
        signature = _decode_signature(text)
        for key in self.config.proxies:
            if nkeys.verify(key, request.nonce, signature):
                request.proxy = key
                return
        raise ProxyNotTrustedError("the proxy is not trusted")

    def _vouched(self, identity: Identity, request: AuthRequest) -> Identity:
        """`identity`, whose account a listener names. Raises AuthError when it has no token."""
        if self.operator_mode:
            account = self._sought(identity.account, request)
            if account is None or jwt.expired(account, request.now):
                raise AuthError("the listener's account has no valid token")
        return identity

    def _leaf_user(self, request: AuthRequest, listener: AuthOptions) -> Identity:
        account = _or_global(listener.account)
        if listener.user:
            return check_single(listener, request)
        if listener.nkey:
            if request.text("nkey") != listener.nkey:
                raise AuthError("not the NKey of this leaf listener")
            _check_signature(listener.nkey, request)
            return Identity(account=account, user=listener.nkey, kind="nkey")
        users = {user.user: user for user in listener.users}
        if request.map_certificate:
            user = _mapped_user(request, users)
        else:
            found = users.get(request.text("user"))
            decoy = _decoy(listener.users)
            if not _has_password(request, self._password_of(found), decoy):
                raise AuthError("unknown leaf user or wrong password")
            assert found is not None
            user = found
        if user.proxy_required:
            _need_proxy(request)
        return _identity(user, "user")

    def _decide(self, request: AuthRequest) -> Identity:
        single = self.config.auth
        override = request.override
        if override is not None and override.is_set():
            single = override
        elif not self.auth_required():
            return Identity()
        if self.operator_mode:
            return self._by_jwt(request)
        no_auth_user = self.config.no_auth_user
        if request.no_auth_user is not None:
            no_auth_user = request.no_auth_user
        if single is self.config.auth:
            identity = self._by_user(request, no_auth_user)
            if identity is not None:
                return identity
        if single.token:
            if not request.matches(single.token, request.text("auth_token")):
                raise AuthError("wrong token")
            return Identity(kind="token")
        if single.user:
            return check_single(single, request)
        raise AuthError("no credentials that this node knows")

    def _by_user(self, request: AuthRequest, no_auth_user: str) -> Identity | None:
        """Identity of a configured user, or None when none is named."""
        key = request.text("nkey")
        if not key and no_auth_user in self._nkeys and not request.has_credentials():
            return _identity(_usable(self._nkeys[no_auth_user], request), "no_auth_user")
        if key and self._nkeys:
            user = _usable(self._nkeys.get(key), request)
            _check_signature(key, request)
            return _identity(user, "nkey")
        if not self._users:
            return None
        if request.map_certificate:
            return _identity(_usable(_mapped_user(request, self._users), request), "certificate")
        if no_auth_user in self._users and not request.has_credentials():
            return _identity(_usable(self._users[no_auth_user], request), "no_auth_user")
        name = request.text("user")
        if not name:
            return None
        found = self._users.get(name)
        if not _has_password(request, self._password_of(found), self._decoy):
            raise AuthError("unknown user or wrong password")
        return _identity(_usable(found, request), "user")

    def _password_of(self, user: UserOptions | None) -> str | None:
        """What a user is known by beside the name; None when no password lets it in."""
        if user is None or (self.config.maps_certificates and not user.password):
            return None
        return user.password

    def _by_jwt(self, request: AuthRequest) -> Identity:
        token, user = self._user_claims(request)
        account = self._account_of(user, request)
        limits = self._scoped(user, account)
        if not limits.bearer_token:
            _check_signature(user.sub, request)
        identity = self._admitted(request, user, account, limits)
        external = account.nats.authorization
        if not external.auth_users:
            return identity
        if user.sub in external.auth_users:
            return guarded(identity, account.sub)
        target = CalloutTarget(
            account.sub,
            xkey=external.xkey,
            allowed_accounts=external.allowed_accounts,
            token=token,
            user=user.sub,
            name=user.name,
        )
        raise CalloutRequired("decided by the callout service", target)

    def _scoped(self, user: UserClaims, account: AccountClaims) -> UserLimits:
        """What a user may do, by its token or by the scope of the key that signed it.

        Raises AuthError when that key is none of the account.
        """
        known, scope = account.scope_of(user.iss)
        if not known or (user.iss == account.sub and account.iss in self.strict_keys):
            raise AuthError("the user's token is signed by no key of its account")
        if scope is None:
            return user.nats
        if user.nats.has_own_limits():
            raise AuthError("a scoped user must not carry limits of its own")
        try:
            return apply_template(scope.template, user, account)
        except JWTError as error:
            raise AuthError(str(error)) from error

    def _admitted(
        self, request: AuthRequest, user: UserClaims, account: AccountClaims, limits: UserLimits
    ) -> Identity:
        if jwt.expired(account, request.now):
            raise AuthError(f"the account's token {jwt.why_expired(account, request.now)}")
        self._check_claimed(request, user, account, limits)
        window = open_until(limits.times, limits.times_location, request.now)
        if window is None:
            raise AuthError("outside the times at which the user may connect")
        return Identity(
            account=account.sub,
            account_name=account.name,
            user=user.sub,
            kind="jwt",
            permissions=_permissions(limits, account),
            limits=_limits(limits, account),
            expires=min((end for end in (float(user.exp), window) if end), default=0.0),
            name=user.name,
            tags=list(user.nats.tags),
            issued_at=user.iat,
            issuer=user.iss,
            bearer=limits.bearer_token,
        )

    def _user_claims(self, request: AuthRequest) -> tuple[str, UserClaims]:
        """The user's token, or the sentinel in its place, and what it says. Raises AuthError."""
        token = request.text("jwt")
        try:
            user = jwt.decode_user(token)
        except JWTError as error:
            if not self.config.default_sentinel:
                raise AuthError(f"no valid user token: {error}") from error
            token = self.config.default_sentinel
            try:
                user = jwt.decode_user(token)
            except JWTError as sentinel_error:
                raise AuthError("the default sentinel is not valid") from sentinel_error
        if user.nats.proxy_required:
            _need_proxy(request)
        _check_user(user, request)
        return token, user

    def _account_of(self, user: UserClaims, request: AuthRequest) -> AccountClaims:
        key = user.account()
        pinned = self.config.operator.pinned_accounts
        if pinned and key not in (*pinned, self.config.system_account):
            raise AuthError("the account is not among the pinned ones")
        account = self._sought(key, request)
        if account is None:
            raise AuthError("the account is unknown, or not signed by a trusted operator")
        return account

    def _sought(self, key: str, request: AuthRequest) -> AccountClaims | None:
        """As `account_claims`. Raises AccountNeeded when a token has to be looked up first."""
        looked_up = request.sought is None or key in request.sought
        if not looked_up and self.resolver.seeks(key, request.now):
            raise AccountNeeded(key)
        return self.account_claims(key)

    def _check_claimed(
        self, request: AuthRequest, user: UserClaims, account: AccountClaims, limits: UserLimits
    ) -> None:
        """Everything that may still refuse a user whose chain of trust is whole."""
        if limits.bearer_token and account.nats.limits.disallow_bearer:
            raise AuthError("the account does not allow bearer tokens")
        if limits.proxy_required:
            _need_proxy(request)
        wanted = {name.upper() for name in limits.allowed_connection_types}
        if wanted and request.connection_type not in wanted & CONNECTION_TYPES:
            raise AuthError("connection type not allowed")
        if account.is_revoked(user.sub, user.iat):
            raise AuthRevokedError("the user's token has been revoked")
        if not source_allowed(limits.src, request.host):
            raise AuthError("the user may not connect from this address")


def _check_user(user: UserClaims, request: AuthRequest) -> None:
    """Raises AuthError unless a user's token can be in force now."""
    if jwt.expired(user, request.now):
        raise AuthExpiredError(f"the user's token {jwt.why_expired(user, request.now)}")
    problem = user_problem(user)
    if problem:
        raise AuthError(f"the user's token cannot be in force: {problem}")


def _need_proxy(request: AuthRequest) -> None:
    """Raises ProxyRequiredError unless a trusted proxy vouches for the connection."""
    if not request.proxy:
        raise ProxyRequiredError("the user must connect through a trusted proxy")


def _proxied(identity: Identity, request: AuthRequest) -> Identity:
    """`identity`, with the proxy that vouches for it."""
    identity.proxy = request.proxy
    return identity


def guarded(identity: Identity, callout_account: str) -> Identity:
    """`identity`, which may not ask the callout service itself if it is in that one's account."""
    if identity.account == callout_account:
        own = identity.permissions or PermissionOptions()
        rules = own.publish or SubjectRules()
        publish = SubjectRules(allow=rules.allow, deny=[*rules.deny, CALLOUT_SUBJECT])
        identity.permissions = msgspec.structs.replace(own, publish=publish)
    return identity


def _resolver(operator: OperatorOptions, wall_ns: Callable[[], int]) -> MemoryResolver:
    kind = operator.resolver.kind
    if kind == "full":
        from headwater.security.resolvers.directory import DirectoryResolver

        return DirectoryResolver(operator.resolver, operator.preload)
    if kind in ("cache", "url"):
        from headwater.security.resolvers.lookup import CacheResolver, UrlResolver

        if kind == "url":
            return UrlResolver(operator.preload)
        return CacheResolver(operator.resolver, operator.preload, wall_ns)
    return MemoryResolver(operator.preload)


def _operator_keys(config: AuthConfig) -> tuple[frozenset[str], frozenset[str]]:
    """Keys that may sign accounts, and those of them whose accounts sign by signing keys only."""
    keys = set(config.operator.trusted_keys)
    strict: set[str] = set()
    for token in config.operator.operators:
        claims = jwt.decode_operator(token)
        keys.update(claims.trusted_keys())
        if claims.nats.strict_signing_key_usage:
            strict.update(claims.trusted_keys())
    return frozenset(keys), frozenset(strict)


def _or_global(account: str) -> str:
    return account or GLOBAL_ACCOUNT


def _usable(user: UserOptions | None, request: AuthRequest) -> UserOptions:
    """`user` if it exists and may use this kind of connection. Raises AuthError."""
    if user is None:
        raise AuthError("unknown user")
    if not _is_allowed(user, request):
        raise AuthError("connection type not allowed")
    if user.proxy_required:
        _need_proxy(request)
    return user


def _is_allowed(user: UserOptions, request: AuthRequest) -> bool:
    """Whether a user may use this kind of connection."""
    allowed = user.allowed_connection_types
    return not allowed or request.connection_type in allowed


def _identity(user: UserOptions, kind: str) -> Identity:
    return Identity(
        account=_or_global(user.account),
        user=user.nkey or user.user,
        kind=kind,
        permissions=user.permissions,
    )


def _decoy(users: Iterable[UserOptions]) -> str:
    """A hash to compute in vain, so that names which do not exist take as long as others."""
    return next((user.password for user in users if passwords.is_bcrypt(user.password)), "")


def _has_password(request: AuthRequest, configured: str | None, decoy: str) -> bool:
    """Whether the presented password is right; None is that of a user who does not exist.

    Where any password is kept as a hash, being wrong takes a hash for everybody.
    """
    presented = request.text("pass")
    right = configured is not None and request.matches(configured, presented)
    if not right and decoy and not (configured and passwords.is_bcrypt(configured)):
        request.matches(decoy, presented)
    return right


def check_single(single: AuthOptions, request: AuthRequest) -> Identity:
    """Identity of the one user of a listener; anybody where it names none. Raises AuthError."""
    if not single.user:
        return Identity()
    right = request.matches(single.password, request.text("pass"))
    if request.text("user") != single.user or not right:
        raise AuthError("unknown user or wrong password")
    if single.proxy_required:
        _need_proxy(request)
    return Identity(
        account=_or_global(single.account),
        user=single.user,
        kind="user",
        permissions=single.default_permissions,
    )


def _check_signature(public_key: str, request: AuthRequest) -> None:
    """Raises AuthError unless the nonce was signed by `public_key`."""
    if not request.nonce:
        raise AuthError("no nonce was offered to sign")
    text = request.text("sig")
    signature = _decode_signature(text)
    if not nkeys.verify(public_key, request.nonce, signature):
        raise AuthError("the nonce's signature is missing or wrong")


def _decode_signature(text: str) -> bytes:
    padded = text + "=" * (-len(text) % 4)
    decoders: tuple[Callable[[str], bytes], ...] = (
        lambda value: base64.b64decode(value, altchars=b"-_", validate=True),
        lambda value: base64.b64decode(value, validate=True),
    )
    for decode in decoders:
        try:
            return decode(padded)
        except (binascii.Error, ValueError):
            continue
    return b""


def _mapped_user(request: AuthRequest, users: dict[str, UserOptions]) -> UserOptions:
    """User named by the peer's certificate, whose password counts as well: one without a password
    presents none. Raises AuthError."""
    if not request.certificate:
        raise AuthError("a client certificate is required to name the user")
    possible = [name for name, user in users.items() if _is_allowed(user, request)]
    name = named_by(request.certificate, possible)
    if name is None:
        raise AuthError("the client certificate names no user")
    user = users[name]
    if not request.matches(user.password or "", request.text("pass")):
        raise AuthError("wrong password of the user that the client certificate names")
    return user


def _permissions(limits: UserLimits, account: AccountClaims) -> PermissionOptions | None:
    own = _compile(limits.pub, limits.sub, limits.resp)
    if own is not None:
        return own
    default = account.nats.default_permissions
    return _compile(default.pub, default.sub, default.resp)


def _compile(
    pub: SubjectPermission, sub: SubjectPermission, resp: ResponsePermission | None
) -> PermissionOptions | None:
    if not (pub.allow or pub.deny or sub.allow or sub.deny or resp):
        return None
    responses = None
    if resp is not None:
        responses = ResponseRules(
            max_messages=resp.max or DEFAULT_RESPONSE_MESSAGES,
            expires=resp.ttl / NANOSECONDS or DEFAULT_RESPONSE_EXPIRES,
        )
    made = PermissionOptions(
        publish=_rules(pub), subscribe=_rules(sub), allow_responses=responses
    )
    try:
        Permissions(made)
    except PermissionRuleError as error:
        raise AuthError(f"the user's permissions are not valid: {error}") from error
    return made


def _rules(rules: SubjectPermission) -> SubjectRules | None:
    if not rules.allow and not rules.deny:
        return None
    return SubjectRules(allow=list(rules.allow) or None, deny=list(rules.deny))


def _limits(limits: UserLimits, account: AccountClaims) -> IdentityLimits:
    bounds = account.nats.limits
    return IdentityLimits(
        max_payload=lowest(limits.payload, bounds.payload),
        max_subscriptions=lowest(limits.subs, bounds.subs),
        max_data=lowest(limits.data or UNLIMITED, bounds.data or UNLIMITED),
    )
