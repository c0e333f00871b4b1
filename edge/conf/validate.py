"""Checks of complete options, after the command line has had its say."""

from headwater.edge.conf.options import LEAST_SEGMENT_BYTES, LeafRemoteOptions, Options
from headwater.edge.conf.quantities import MAX_PORT, format_duration, redact_url
from headwater.edge.facts.version import NATS_LEVEL
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

    They must be complete. Each text begins with the place of a key that it is about, if one of
    them stands in a file, names the keys, and ends with what to do.
    """
    return [
        *_check_limits(options),
        *_check_addresses(options),
        *_check_operator(options),
        *_check_system_account(options),
        *_check_leaf(options),
        *_check_no_auth_user(options, options.no_auth_user, "no_auth_user"),
        *_check_cluster(options),
        *_check_jetstream(options),
        *_check_disk_budget(options),
        *_check_websocket(options),
        *_check_ocsp_peers(options),
    ]


def _cited(options: Options, names: str, text: str) -> str:
    """`text` behind the place of the first of these keys that stands in a file. What follows from
    the command line alone has none."""
    for name in names.split():
        if name in options.defined_at:
            return f"{options.defined_at[name]}: {text}"
    return text


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
    options.no_system_account = options.no_system_account and not options.system_account
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
            text = f"{name}: ocsp_peer needs certificates of the peers: set verify"
            problems.append(_cited(options, f"{name}.ocsp_peer {name}", text))
    tls = options.cluster.tls
    if tls is not None and tls.ocsp_peer is not None:
        text = "cluster.tls: ocsp_peer is not supported for routes: remove it"
        problems.append(_cited(options, "cluster.tls.ocsp_peer", text))
    for remote in options.leaf.remotes:
        tls = remote.tls
        if tls is not None and tls.ocsp_peer is not None and tls.insecure:
            text = "leafnodes.remotes: ocsp_peer and insecure exclude one another: remove one"
            problems.append(_cited(options, "leafnodes.remotes.tls.ocsp_peer", text))
    return problems


def _check_limits(options: Options) -> list[str]:
    problems = []
    if options.lame_duck_grace >= options.lame_duck_duration:
        text = (
            f"lame_duck_grace_period ({format_duration(options.lame_duck_grace)}) must be lower "
            f"than lame_duck_duration ({format_duration(options.lame_duck_duration)}): shorten "
            "the one or lengthen the other"
        )
        problems.append(_cited(options, "lame_duck_grace_period lame_duck_duration", text))
    if options.max_payload > options.max_pending:
        text = (
            f"max_payload ({options.max_payload}) cannot be higher than "
            f"max_pending ({options.max_pending}): lower the one or raise the other"
        )
        problems.append(_cited(options, "max_payload max_pending", text))
    if " " in options.server_name:
        text = "server_name cannot contain spaces: choose a name without"
        problems.append(_cited(options, "server_name", text))
    return problems


def _check_addresses(options: Options) -> list[str]:
    """Addresses to tell to others, and a listener that could not listen."""
    problems = []
    told = (
        ("client_advertise", options.client_advertise),
        ("cluster.advertise", options.cluster.advertise),
        ("leafnodes.advertise", options.leaf.advertise),
        ("websocket.advertise", options.websocket.advertise),
    )
    for name, text in told:
        if text and not _is_advertised(text):
            problem = f"{name}: {text!r} is no address: use host:port"
            problems.append(_cited(options, name, problem))
    if options.https_port and options.tls is None:
        text = (
            "https_port: TLS cert and key required for HTTPS: add a `tls` block, or use http_port"
        )
        problems.append(_cited(options, "https_port https", text))
    return problems


def _is_advertised(text: str) -> bool:
    """Whether text is a host, maybe with a port behind it."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "0"
    if host[:1] + host[-1:] == "[]":
        host = host[1:-1].replace(":", "")
    right_port = port == "-1" or (port.isdecimal() and int(port) <= MAX_PORT)
    return right_port and ":" not in host and "[" not in host


def _check_operator(options: Options) -> list[str]:
    operator = options.operator
    if not operator.operators:
        if options.default_sentinel:
            text = "default_sentinel requires `operator`: add it, or remove this"
            return [_cited(options, "default_sentinel", text)]
        return []
    from headwater.security import jwt

    claims = [jwt.decode_operator(token) for token in operator.operators]
    named = [each.nats.system_account for each in claims if each.nats.system_account]
    found = [
        (
            "operator",
            f"the operator's token requires server version {wanted} or later, this is "
            f"{NATS_LEVEL}: have the operator lower it, or update",
        )
        for wanted in (each.nats.assert_server_version for each in claims)
        if wanted and not _is_at_least(NATS_LEVEL, wanted)
    ]
    if not operator.resolver.kind:
        found.append(("operator", "operators require an account resolver: add `resolver: MEM`, or "
                      "another one"))
    found += _check_resolver_url(options)
    if options.accounts:
        found.append(("accounts", "`accounts` cannot stand beside `operator`, whose accounts come "
                      "by tokens: remove one of them"))
    if options.all_users():
        found.append(("authorization.users authorization accounts", "users cannot stand beside "
                      "`operator`, whose users come by tokens: remove one of them"))
    if operator.trusted_keys:
        found.append(("trusted_keys trusted", "`trusted_keys` and `operator` exclude one another: "
                      "remove one of them"))
    if named and options.system_account and options.system_account not in named:
        found.append(("system_account", "`system_account` is not the one in the operator's token: "
                      "remove it, or name that one"))
    if operator.resolver.kind in ("full", "cache") and not options.system_account:
        found.append(("resolver", "a resolver of type full or cache needs `system_account`: set "
                      "it, or have it in the operator's token"))
    system = options.system_account or (named[0] if named else "")
    if operator.resolver.kind == "memory" and system and system not in operator.preload:
        found.append(("system_account", f"the token of the system account {system} is not in "
                      "`resolver_preload`: add it"))
    if options.auth.callout is not None:
        found.append(("authorization.auth_callout", "`auth_callout` cannot stand beside "
                      "`operator`: remove it, and let the account's token name the callout"))
    found += [
        (
            "resolver_pinned_accounts",
            f'resolver_pinned_accounts: "{key}" is not a public account nkey: it must begin with '
            "A and have 56 characters",
        )
        for key in operator.pinned_accounts
        if not is_public_key(key, "A")
    ]
    return [_cited(options, *each) for each in found] + _check_sentinel(options)


def _check_resolver_url(options: Options) -> list[tuple[str, str]]:
    operator, found = options.operator, []
    if operator.resolver.kind == "url" and not _is_http(operator.resolver.url):
        found.append(("resolver operator", f"the resolver's URL "
                      f"'{redact_url(operator.resolver.url)}' is none of HTTP: write "
                      "http://host/path/ or https://host/path/"))
    if operator.resolver.kind == "url" and operator.preload:
        found.append(("resolver_preload", "resolver_preload goes with the resolvers MEM, full and "
                      "cache, not with a URL: remove it, or change `resolver`"))
    return found


def _is_http(url: str) -> bool:
    return url.startswith(("http://", "https://"))


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
        text = "default_sentinel is no valid token of a user: make it with `nsc add user`"
        return [_cited(options, "default_sentinel", text)]
    scoped = bool(claims.nats.issuer_account) and not claims.nats.has_own_limits()
    if not claims.nats.bearer_token and not scoped:
        text = "default_sentinel must be a bearer token: make it with `--bearer`"
        return [_cited(options, "default_sentinel", text)]
    return []


def _known_accounts(options: Options) -> set[str]:
    known = {GLOBAL_ACCOUNT, "", *options.accounts}
    if not options.system_account and not options.without_system():
        known.add(SYSTEM_ACCOUNT)
    return known


def _check_leaf(options: Options) -> list[str]:
    leaf = options.leaf
    found: list[tuple[str, str]] = []
    for remote in leaf.remotes:
        found.extend(_check_remote(remote))
    if options.operator.operators:
        if leaf.authorization.users:
            found.append(("leafnodes.authorization.users", "leafnodes.authorization.users cannot "
                          "stand beside `operator`: remove it, users come by tokens"))
        for remote in leaf.remotes:
            if not is_public_key(remote.account, "A"):
                found.append(("leafnodes.remotes.account leafnodes.remotes", "operator mode "
                              "requires account nkeys in remotes: add an `account` key, a 56 "
                              "character public key starting with the letter 'A', to each remote"))
        if leaf.port and leaf.authorization.account and not is_public_key(
            leaf.authorization.account, "A"
        ):
            found.append(("leafnodes.authorization.account", "leafnodes.authorization.account must "
                          "be a public account nkey beside `operator`: put that of the account"))
    else:
        known = _known_accounts(options)
        wanted = [(leaf.authorization.account, "authorization.account")]
        users = leaf.authorization.users
        wanted += [(user.account, "authorization.users.account") for user in users]
        wanted += [(remote.account, "remotes.account") for remote in leaf.remotes]
        found += [
            (
                f"leafnodes.{key}",
                f'leafnodes.{key}: there is no account "{name}": add it to `accounts`, or name '
                "another one",
            )
            for name, key in wanted
            if name not in known
        ]
    found += _check_compression("leafnodes.compression", leaf.compression.mode)
    return [_cited(options, *each) for each in found]


def _check_compression(key: str, mode: str) -> list[tuple[str, str]]:
    if mode.lower() in COMPRESSION_MODES:
        return []
    modes = "off, accept, s2_auto, s2_fast, s2_better, s2_best or s2_uncompressed"
    return [(f"{key} {key}.mode", f'{key}: unsupported compression mode "{mode}": use {modes}')]


def _check_remote(remote: LeafRemoteOptions) -> list[tuple[str, str]]:
    found = []
    kinds = {url.partition("://")[0] in ("ws", "wss") for url in remote.urls}
    if len(kinds) > 1:
        shown = [redact_url(url) for url in remote.urls]
        found.append(("leafnodes.remotes.urls leafnodes.remotes", "leafnodes.remotes: urls cannot "
                      f"be of WebSocket and others: make two remotes of {shown}"))
    return found + _check_compression("leafnodes.remotes.compression", remote.compression.mode)


def _check_no_auth_user(options: Options, name: str, key: str) -> list[str]:
    if not name:
        return []
    users = options.all_users()
    if options.operator.operators:
        text = f"{key} cannot stand beside `operator`: remove it, or use `default_sentinel`"
    elif not users:
        text = f'{key}: "{name}" is set, but there are no users: add it to `authorization.users`'
    elif any(name == (user.nkey or user.user) for user in users):
        return []
    else:
        text = (
            f'{key}: there is no user "{name}": add it to `authorization.users` or to an account, '
            "or name another one"
        )
    return [_cited(options, key, text)]


def _check_cluster(options: Options) -> list[str]:
    cluster = options.cluster
    found = []
    if " " in cluster.name:
        found.append(("cluster.name", "cluster.name cannot contain spaces: choose a name without"))
    found += _check_compression("cluster.compression", cluster.compression.mode)
    if options.gateway.name and cluster.name and options.gateway.name != cluster.name:
        found.append(("cluster.name gateway.name", "cluster.name and gateway.name differ: give "
                      "both the same"))
    if cluster.accounts and cluster.pool_size < 0:
        found.append(("cluster.pool_size", "cluster.pool_size cannot be negative beside "
                      "cluster.accounts: set it to 1 or more, or remove one of them"))
    if len(set(cluster.accounts)) < len(cluster.accounts):
        found.append(("cluster.accounts", "cluster.accounts names an account twice: remove one"))
    if cluster.routes and not cluster.port:
        found.append(("cluster.routes", "cluster.routes need a listener of routes: set "
                      "cluster.port, or --cluster"))
    return [_cited(options, *each) for each in found]


def _check_jetstream(options: Options) -> list[str]:
    jetstream = options.jetstream
    found = []
    if jetstream.domain:
        derived = f"$JS.{jetstream.domain}.API.>"
        if not is_valid_subject(derived) or any(char in jetstream.domain for char in ".*>"):
            found.append(("jetstream.domain", f'jetstream.domain: "{jetstream.domain}" cannot be '
                          "one token of a subject: remove spaces and . * >"))
    if jetstream.enabled and options.cluster.port:
        if not options.server_name:
            found.append(("cluster", "jetstream in a cluster requires `server_name`: set it"))
        if not options.cluster.name:
            found.append(("cluster", "jetstream in a cluster requires `cluster.name`: set it"))
        if jetstream.extension_hint.lower() not in ("", "will_extend", "no_extend"):
            found.append(("jetstream.extension_hint", "jetstream.extension_hint must be "
                          f"will_extend or no_extend, not '{jetstream.extension_hint}'"))
        if jetstream.max_outstanding_catchup < 0:
            found.append(("jetstream.max_outstanding_catchup", "jetstream.max_outstanding_catchup "
                          "cannot be negative: set bytes, or 0 for the default"))
    found += _check_sealing_keys(options)
    return [_cited(options, *each) for each in found] + _check_default_domains(options)


def _check_sealing_keys(options: Options) -> list[tuple[str, str]]:
    """Keys that stand in the file; those elsewhere are seen to by the start, and by `-t`."""
    settings = options.jetstream
    given = {"key": settings.key, "prev_key": settings.previous_key}
    if not settings.enabled or not any(given.values()):
        return []
    from headwater.security.errors import SealingError
    from headwater.security.sealing import NodeKey

    found = []
    for name, key in given.items():
        try:
            if key:
                NodeKey.of(key.encode())
        except SealingError as error:
            names = f"jetstream.{name} jetstream.{name.replace('key', 'ek')} " \
                f"jetstream.{name.replace('key', 'encryption_key')} jetstream"
            found.append((names, f"jetstream.{name}: {error}: make it longer"))
    return found


def least_disk_budget(options: Options) -> int:
    """The least bytes that a node's store works with, by the size of its log segments: what
    `least_budget` of `edge/storage/directory/disk_budget.py` demands at the start."""
    return 8 * (options.headwater.commit_segment_bytes or LEAST_SEGMENT_BYTES) + (128 << 10)


def _check_disk_budget(options: Options) -> list[str]:
    budget, least = options.headwater.disk_budget, least_disk_budget(options)
    if not 0 < budget < least:
        return []
    text = f"headwater.disk_budget of {budget} bytes is too small: give it {least} or more"
    if options.headwater.commit_segment_bytes:
        text += ", or lower headwater.commit_segment_bytes"
    return [_cited(options, "headwater.disk_budget", text)]


def _check_system_account(options: Options) -> list[str]:
    """What nats-server finds at its start, not with `-t`."""
    if options.operator.operators:
        return []
    wanted = options.system_account
    if wanted and wanted not in options.accounts and wanted != GLOBAL_ACCOUNT:
        text = f'system_account: there is no account "{wanted}": add it to `accounts`'
        return [_cited(options, "system_account", text)]
    account = options.accounts.get(wanted or SYSTEM_ACCOUNT)
    if options.jetstream.enabled and account is not None and account.jetstream is not None:
        text = f'accounts: "{account.name}" is the system account, without JetStream: remove it'
        return [_cited(options, "system_account accounts", text)]
    return []


def _check_default_domains(options: Options) -> list[str]:
    found = []
    system = options.system_account or SYSTEM_ACCOUNT
    key = "default_js_domain"
    for name, domain in options.default_js_domain.items():
        account = options.accounts.get(name)
        if options.operator.operators:
            if not is_public_key(name, "A"):
                found.append(f'{key}: "{name}" is no public account nkey: put that of the account')
        elif account is None and name != GLOBAL_ACCOUNT:
            found.append(f'{key}: there is no account "{name}": add it to `accounts`, or remove it')
        elif account is not None and account.jetstream is not None and domain:
            found.append(f'{key}: account "{name}" has JetStream of its own: remove one of them')
        if name == system:
            found.append(f'{key}: "{name}" is the system account, without JetStream: remove it')
    return [_cited(options, key, text) for text in found]


def _check_websocket(options: Options) -> list[str]:
    websocket = options.websocket
    if not websocket.port:
        return []
    found = []
    if websocket.tls is None and not websocket.no_tls:
        found.append(("websocket", "websocket requires `tls`: add it, or set `no_tls: true`"))
    for origin in websocket.allowed_origins:
        scheme, separator, host = origin.partition("://")
        if scheme not in ("http", "https") or not separator or not host.strip("/"):
            found.append(("websocket.allowed_origins", "websocket.allowed_origins: "
                          f'"{origin}" is no origin: write https://host or https://host:port'))
    auth = websocket.authorization
    if auth is not None and options.all_users():
        for kind, secret in (("username", auth.user), ("token", auth.token)):
            if secret:
                found.append(("websocket.authorization", f"websocket.authorization: a {kind} "
                              "cannot stand beside users: remove it, and add it to the users"))
    if websocket.jwt_cookie and not options.operator.enabled():
        found.append(("websocket.jwt_cookie", f'websocket.jwt_cookie "{websocket.jwt_cookie}" '
                      "requires tokens: add `operator` or `trusted_keys`, or remove it"))
    for name in websocket.headers:
        if name.lower() in _FORBIDDEN_HEADERS or name.lower().startswith("sec-websocket-"):
            found.append(("websocket.headers", f'websocket.headers: "{name}" is of the protocol '
                          "itself: remove it"))
    problems = [_cited(options, *each) for each in found]
    return problems + _check_no_auth_user(options, websocket.no_auth_user, "websocket.no_auth_user")
