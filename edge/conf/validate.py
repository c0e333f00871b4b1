"""Checks of complete options, after the command line has had its say."""

from headwater.edge.conf.options import LeafRemoteOptions, Options
from headwater.edge.conf.quantities import format_duration, redact_url
from headwater.edge.view.version import NATS_LEVEL
from headwater.security.auth_options import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from headwater.security.nkeys import is_public_key
from headwater.security.subjects import is_valid_subject

COMPRESSION_MODES = frozenset(
    (
        "",
        "on",
        "enabled",
        "true",
        "off",
        "disabled",
        "false",
        "accept",
        "auto",
        "s2_auto",
        "fast",
        "s2_fast",
        "better",
        "s2_better",
        "best",
        "s2_best",
        "s2_uncompressed",
        "not supported",
    )
)

_ZERO_IS_DEFAULT = (
    "host",
    "port",
    "max_payload",
    "max_pending",
    "max_connections",
    "max_control_line",
    "max_closed_clients",
    "ping_interval",
    "ping_max",
    "write_deadline",
    "lame_duck_duration",
    "lame_duck_grace",
    "connect_error_reports",
    "reconnect_error_reports",
)
_FORBIDDEN_HEADERS = ("host", "content-length", "connection", "upgrade", "nats-no-masking")


def validate(options: Options) -> list[str]:
    """Everything about `options` that does not fit together; empty when all is well.

    They must be complete.
    """
    return [
        *_check_limits(options),
        *_check_operator(options),
        *_check_leaf(options),
        *_check_no_auth_user(options, options.no_auth_user),
        *_check_cluster(options),
        *_check_jetstream(options),
        *_check_websocket(options),
        *_check_ocsp_peers(options),
    ]


def complete(options: Options) -> None:
    """Put defaults where a zero or an empty text means "not configured"."""
    defaults = Options()
    for name in _ZERO_IS_DEFAULT:
        if not getattr(options, name):
            setattr(options, name, getattr(defaults, name))
    for listener in (options.websocket, options.leaf, options.cluster):
        if listener.port and not listener.host:
            listener.host = defaults.host
    options.http_host = options.http_host or options.host
    if len(options.operator.operators) == 1:
        _complete_operator(options)


def _complete_operator(options: Options) -> None:
    """Take system account and resolver from the only operator's token when not configured."""
    from headwater.security import jwt

    told = jwt.decode_operator(options.operator.operators[0]).nats
    options.system_account = options.system_account or told.system_account
    resolver = options.operator.resolver
    if not resolver.kind and told.account_server_url:
        resolver.kind = "url"
        resolver.url = told.account_server_url + "/accounts"


def _check_ocsp_peers(options: Options) -> list[str]:
    """Where `ocsp_peer` would check nobody it is refused."""
    problems = []
    listeners = (
        ("tls", options.tls),
        ("leafnodes.tls", options.leaf.tls),
        ("websocket.tls", options.websocket.tls),
    )
    for name, tls in listeners:
        if tls is not None and tls.ocsp_peer is not None and not tls.verify:
            problems.append(f"{name}: ocsp_peer needs certificates of the peers: set verify")
    tls = options.cluster.tls
    if tls is not None and tls.ocsp_peer is not None:
        problems.append("cluster.tls: ocsp_peer is not supported here, and was refused")
    for remote in options.leaf.remotes:
        tls = remote.tls
        if tls is not None and tls.ocsp_peer is not None and tls.insecure:
            problems.append("leafnodes.remotes: ocsp_peer and insecure exclude one another")
    return problems


def _check_limits(options: Options) -> list[str]:
    problems = []
    if options.lame_duck_grace >= options.lame_duck_duration:
        problems.append(
            f"lame duck grace period ({format_duration(options.lame_duck_grace)}) should be "
            "strictly lower than lame duck duration "
            f"({format_duration(options.lame_duck_duration)})"
        )
    if options.max_payload > options.max_pending:
        problems.append(
            f"max_payload ({options.max_payload}) cannot be higher than "
            f"max_pending ({options.max_pending})"
        )
    if " " in options.server_name:
        problems.append("server name cannot contain spaces")
    return problems


def _check_operator(options: Options) -> list[str]:
    operator = options.operator
    if not operator.operators:
        if options.default_sentinel:
            return ["default sentinel requires operators and accounts"]
        return []
    from headwater.security import jwt

    claims = [jwt.decode_operator(token) for token in operator.operators]
    named = [each.nats.system_account for each in claims if each.nats.system_account]
    problems = [
        f"operator JWT requires server version {wanted} or later, this is {NATS_LEVEL}"
        for wanted in (each.nats.assert_server_version for each in claims)
        if wanted and not _is_at_least(NATS_LEVEL, wanted)
    ]
    if not operator.resolver.kind:
        problems.append("operators require an account resolver to be configured")
    if operator.resolver.kind == "url" and operator.preload:
        problems.append(
            "resolver preloads only available for writeable resolver types MEM/DIR/CACHE_DIR"
        )
    if options.accounts:
        problems.append("operators do not allow Accounts to be configured directly")
    if options.all_users():
        problems.append("operators do not allow users to be configured directly")
    if operator.trusted_keys:
        problems.append("conflicting options for 'TrustedKeys' and 'TrustedOperators'")
    if named and options.system_account and options.system_account not in named:
        problems.append("system_account in config and operator JWT must be identical")
    if operator.resolver.kind in ("full", "cache") and not options.system_account:
        problems.append(
            "using nats based account resolver - the system account needs to be specified in "
            "configuration or the operator jwt"
        )
    if options.auth.callout is not None:
        problems.append("operators do not allow authorization callouts to be configured directly")
    for key in operator.pinned_accounts:
        if not is_public_key(key, "A"):
            problems.append(f'pinned account key "{key}" is not a valid public account nkey')
    return [*problems, *_check_sentinel(options)]


def _is_at_least(version: str, wanted: str) -> bool:
    """Whether a version such as 2.11.4 is another one or a later one; False for what is none."""
    try:
        first, second = ([int(part) for part in text.split(".")] for text in (version, wanted))
    except ValueError:
        return False
    return first >= second


def _check_sentinel(options: Options) -> list[str]:
    if not options.default_sentinel:
        return []
    from headwater.security import jwt
    from headwater.security.errors import JWTError

    try:
        claims = jwt.decode_user(options.default_sentinel)
    except JWTError:
        return ["default sentinel JWT not valid"]
    scoped = bool(claims.nats.issuer_account) and not claims.nats.has_own_limits()
    if not claims.nats.bearer_token and not scoped:
        return ["default sentinel must be a bearer token"]
    return []


def _known_accounts(options: Options) -> set[str]:
    known = {GLOBAL_ACCOUNT, "", *options.accounts}
    if not options.system_account and not options.no_system_account:
        known.add(SYSTEM_ACCOUNT)
    return known


def _check_leaf(options: Options) -> list[str]:
    leaf = options.leaf
    problems = []
    for remote in leaf.remotes:
        problems.extend(_check_remote(remote))
    if options.operator.operators:
        if leaf.authorization.users:
            problems.append("operator mode does not allow specifying users in leafnode config")
        for remote in leaf.remotes:
            if not is_public_key(remote.account, "A"):
                problems.append(
                    "operator mode requires account nkeys in remotes: add an `account` key, a 56 "
                    "character public key starting with the letter 'A', to each remote"
                )
        if leaf.port and leaf.authorization.account and not is_public_key(
            leaf.authorization.account, "A"
        ):
            problems.append("operator mode and non account nkeys are incompatible")
    else:
        known = _known_accounts(options)
        wanted = [(leaf.authorization.account, "authorization")]
        wanted += [(user.account, "authorization") for user in leaf.authorization.users]
        wanted += [(remote.account, "remote") for remote in leaf.remotes]
        problems += [
            f'cannot find local account "{name}" specified in leafnode {kind}'
            for name, kind in wanted
            if name not in known
        ]
    if leaf.compression.mode.lower() not in COMPRESSION_MODES:
        problems.append(f'unsupported compression mode "{leaf.compression.mode}"')
    return problems


def _check_remote(remote: LeafRemoteOptions) -> list[str]:
    problems = []
    kinds = {url.partition("://")[0] in ("ws", "wss") for url in remote.urls}
    if len(kinds) > 1:
        shown = [redact_url(url) for url in remote.urls]
        problems.append(
            "remote leaf node configuration cannot have a mix of websocket and non-websocket "
            f"urls: {shown}"
        )
    if remote.compression.mode.lower() not in COMPRESSION_MODES:
        problems.append(f'unsupported compression mode "{remote.compression.mode}"')
    return problems


def _check_no_auth_user(options: Options, name: str) -> list[str]:
    if not name:
        return []
    if options.operator.operators:
        return ["no_auth_user not compatible with Trusted Operator"]
    users = options.all_users()
    if not users:
        return [f'no_auth_user: "{name}" present, but users/nkeys are not defined']
    if any(name == (user.nkey or user.user) for user in users):
        return []
    return [
        f'no_auth_user: "{name}" not present as user or nkey in authorization block or account '
        "configuration"
    ]


def _check_cluster(options: Options) -> list[str]:
    cluster, problems = options.cluster, []
    if " " in cluster.name:
        problems.append("cluster name cannot contain spaces")
    if cluster.compression.mode.lower() not in COMPRESSION_MODES:
        problems.append(f'unsupported compression mode "{cluster.compression.mode}"')
    if options.gateway.name and cluster.name and options.gateway.name != cluster.name:
        problems.append("cluster name conflicts between cluster and gateway definitions")
    if cluster.accounts and cluster.pool_size < 0:
        problems.append("pool_size cannot be negative if pinned accounts are specified")
    if len(set(cluster.accounts)) < len(cluster.accounts):
        problems.append("found duplicate account name in pinned accounts list")
    if cluster.routes and not cluster.port:
        problems.append("solicited routes require cluster capabilities, e.g. --cluster")
    return problems


def _check_jetstream(options: Options) -> list[str]:
    jetstream, problems = options.jetstream, []
    if jetstream.domain:
        derived = f"$JS.{jetstream.domain}.API.>"
        if not is_valid_subject(derived):
            problems.append(f'invalid domain name: derived "{derived}" is not a valid subject')
        elif any(char in jetstream.domain for char in ".*>"):
            problems.append("invalid domain name: may not contain ., * or >")
    problems += _check_default_domains(options)
    if jetstream.enabled and options.cluster.port:
        if not options.server_name:
            problems.append("jetstream cluster requires `server_name` to be set")
        if not options.cluster.name:
            problems.append("jetstream cluster requires `cluster.name` to be set")
        if jetstream.extension_hint.lower() not in ("", "will_extend", "no_extend"):
            problems.append(
                f"expected 'no_extend' for string value, got '{jetstream.extension_hint}'"
            )
        if jetstream.max_outstanding_catchup < 0:
            problems.append("jetstream max catchup cannot be negative")
    return problems


def _check_default_domains(options: Options) -> list[str]:
    problems = []
    system = options.system_account or SYSTEM_ACCOUNT
    for name, domain in options.default_js_domain.items():
        account = options.accounts.get(name)
        if options.operator.operators:
            if not is_public_key(name, "A"):
                problems.append(
                    f'default_js_domain contains account name "{name}", which is not a valid '
                    "public account nkey"
                )
        elif account is None and name != GLOBAL_ACCOUNT:
            problems.append(
                "in non operator mode, `default_js_domain` references non existing account "
                f'"{name}"'
            )
        elif account is not None and account.jetstream is not None and domain:
            problems.append(
                f'default_js_domain contains account name "{name}" with enabled JetStream'
            )
        if name == system:
            problems.append(f'system account "{name}" can not be in default_js_domain')
    return problems


def _check_websocket(options: Options) -> list[str]:
    websocket = options.websocket
    if not websocket.port:
        return []
    problems = []
    if websocket.tls is None and not websocket.no_tls:
        problems.append("websocket requires TLS configuration")
    for origin in websocket.allowed_origins:
        scheme, separator, host = origin.partition("://")
        if scheme not in ("http", "https") or not separator or not host.strip("/"):
            problems.append(f'unable to parse allowed origin "{origin}"')
    problems += _check_no_auth_user(options, websocket.no_auth_user)
    auth = websocket.authorization
    if auth is not None and options.all_users():
        for kind, secret in (("username", auth.user), ("token", auth.token)):
            if secret:
                problems.append(
                    f"websocket authentication {kind} not compatible with presence of users/nkeys"
                )
    if websocket.jwt_cookie and not options.operator.enabled():
        problems.append(
            "trusted operators or trusted keys configuration is required for JWT authentication "
            f'via cookie "{websocket.jwt_cookie}"'
        )
    for name in websocket.headers:
        if name.lower() in _FORBIDDEN_HEADERS or name.lower().startswith("sec-websocket-"):
            problems.append(f'websocket: invalid header "{name}" not allowed')
    return problems
