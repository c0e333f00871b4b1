"""Every claim of the tokens that are read, and who acts on it.

A claim that says what somebody may do or how much has one of these duties; so none is accepted and
ignored. Claims are named as in the token, by kind and path; a `*` stands for the members of a map.
"""

import enum

import msgspec


class Duty(enum.Enum):
    """What becomes of a claim."""

    ENFORCED = "enforced"
    """`by` names the code that goes by it, as "module:name"."""
    REFUSED = "refused"
    """`by` names the code that refuses a token with it, and `why` says so."""
    HINTED = "hinted"
    """It limits nobody and is not done; `by` names the code that has the log say so."""
    DESCRIBES = "describes"
    """It says something of its holder and grants nothing; `why` says what."""


class ClaimDuty(msgspec.Struct, frozen=True):
    """Duty of one claim."""

    duty: Duty
    by: str = ""
    why: str = ""


def _by(code: str) -> ClaimDuty:
    return ClaimDuty(Duty.ENFORCED, by=f"headwater.{code}")


def _refused(code: str, why: str) -> ClaimDuty:
    return ClaimDuty(Duty.REFUSED, by=f"headwater.{code}", why=why)


def _says(why: str) -> ClaimDuty:
    return ClaimDuty(Duty.DESCRIBES, why=why)


_LOGIN = "security.authenticator:Authenticator"
_TERMS = "edge.node.account_terms:terms_of"
_JETSTREAM = "edge.jetstream.account.account_js:AccountJetStream"
_SHARES = "edge.broker.imports.claims_plan:ClaimsPlan.plan"
_PROBLEM = "security.claim_checks:account_problem"
_RULES = _by("security.permissions:Permissions")

_TOKEN = {
    "jti": _says("a digest of the token; its signature is what counts"),
    "iat": _by("security.claims:AccountClaims.is_revoked"),
    "iss": _by("security.jwt:decode_generic"),
    "name": _says("a name for people"),
    "sub": _by(f"{_LOGIN}.account_claims"),
    "aud": _says("whom it is for; who presents it has proven its key"),
    "exp": _by("security.jwt:expired"),
    "nbf": _by("security.jwt:expired"),
}
_KIND = {
    "tags": _by("security.scope:apply_template"),
    "type": _by("security.jwt:decode_generic"),
    "version": _by("security.jwt:decode_generic"),
}
_PERMISSIONS = {
    "pub.allow": _RULES,
    "pub.deny": _RULES,
    "sub.allow": _RULES,
    "sub.deny": _RULES,
    "resp.max": _by("edge.broker.rights.grants:Rights"),
    "resp.ttl": _by("edge.broker.rights.grants:Rights"),
}
_USER_LIMITS = {
    **_PERMISSIONS,
    "src": _by("security.windows:source_allowed"),
    "times.start": _by("security.windows:open_until"),
    "times.end": _by("security.windows:open_until"),
    "times_location": _by("security.windows:open_until"),
    "subs": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
    "data": _by("edge.broker.logins.registry:Session.data_limit"),
    "payload": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
    "bearer_token": _by(f"{_LOGIN}.authenticate"),
    "proxy_required": _by(f"{_LOGIN}.authenticate"),
    "allowed_connection_types": _by(f"{_LOGIN}.authenticate"),
}
_TIER = {
    "mem_storage": _by(f"{_JETSTREAM}.check_reservation"),
    "disk_storage": _by(f"{_JETSTREAM}.check_reservation"),
    "streams": _by("edge.jetstream.account.tiers:Tiers.check_streams"),
    "consumer": _by("edge.jetstream.account.tiers:Tiers.check_consumers"),
    "max_ack_pending": _by("edge.jetstream.api.api_consumer:limits"),
    "mem_max_stream_bytes": _by(f"{_JETSTREAM}.scope"),
    "disk_max_stream_bytes": _by(f"{_JETSTREAM}.scope"),
    "max_bytes_required": _by(f"{_JETSTREAM}.scope"),
}


def _under(prefix: str, duties: dict[str, ClaimDuty]) -> dict[str, ClaimDuty]:
    return {f"{prefix}.{name}": duty for name, duty in duties.items()}


USER: dict[str, ClaimDuty] = {
    **_TOKEN,
    **_under("nats", {**_KIND, **_USER_LIMITS}),
    "nats.issuer_account": _by("security.claims:UserClaims.account"),
}

ACCOUNT: dict[str, ClaimDuty] = {
    **_TOKEN,
    **_under("nats", _KIND),
    **_under("nats.limits", _TIER),
    **_under("nats.limits.tiered_limits.*", _TIER),
    **_under(
        "nats.limits",
        {
            "subs": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
            "data": _by("edge.broker.logins.registry:Session.data_limit"),
            "payload": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
            "imports": _by(_PROBLEM),
            "exports": _by(_PROBLEM),
            "wildcards": _by(_PROBLEM),
            "disallow_bearer": _by(f"{_LOGIN}.authenticate"),
            "conn": _by("edge.broker.logins.registry:Registry.has_room"),
            "leaf": _by("edge.broker.logins.registry:Registry.has_room"),
        },
    ),
    **_under(
        "nats.imports",
        {
            "name": _says("a name for people"),
            "subject": _by(_SHARES),
            "account": _by(_SHARES),
            "token": _by(_SHARES),
            "to": _by(_SHARES),
            "local_subject": _by(_SHARES),
            "type": _by(_SHARES),
            "share": _by("edge.sharing.imports_info:RequestInfo"),
            "allow_trace": _by("edge.sharing.account_setup:AccountSetup"),
        },
    ),
    **_under(
        "nats.exports",
        {
            "name": _says("a name for people"),
            "subject": _by(_SHARES),
            "type": _by(_SHARES),
            "token_req": _by(_SHARES),
            "revocations.*": _by(_SHARES),
            "response_type": _by("edge.sharing.account_setup:AccountSetup"),
            "response_threshold": _by("edge.sharing.account_setup:AccountSetup"),
            "service_latency.sampling": _by("edge.broker.imports.service_latency:ServiceLatency"),
            "service_latency.results": _by("edge.broker.imports.service_latency:ServiceLatency"),
            "account_token_position": _by(_SHARES),
            "advertise": _says("whether directories show the export"),
            "allow_trace": _by("edge.sharing.account_setup:AccountSetup"),
            "description": _says("a text for people"),
            "info_url": _says("a text for people"),
        },
    ),
    **_under("nats.signing_keys.template", _USER_LIMITS),
    **_under(
        "nats.signing_keys",
        {
            "kind": _by(_PROBLEM),
            "key": _by("security.claims:AccountClaims.scope_of"),
            "role": _says("a name for people"),
            "description": _says("a text for people"),
        },
    ),
    "nats.revocations.*": _by("security.claims:AccountClaims.is_revoked"),
    **_under("nats.default_permissions", _PERMISSIONS),
    **_under(
        "nats.mappings.*",
        {name: _by("edge.broker.mappings:Mappings") for name in ("subject", "weight", "cluster")},
    ),
    "nats.authorization.auth_users": _by(f"{_LOGIN}.authenticate"),
    "nats.authorization.allowed_accounts": _by("security.callout:Callout.identity"),
    "nats.authorization.xkey": _by("security.callout:Callout.request"),
    "nats.trace.dest": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
    "nats.trace.sampling": _by("edge.broker.logins.sessions:Sessions.apply_limits"),
    "nats.cluster_traffic": _by(_PROBLEM),
    "nats.description": _says("a text for people"),
    "nats.info_url": _says("a text for people"),
}

OPERATOR: dict[str, ClaimDuty] = {
    **_TOKEN,
    **_under("nats", _KIND),
    "nats.signing_keys": _by("security.claims:OperatorClaims.trusted_keys"),
    "nats.account_server_url": _by("edge.conf.validate:complete"),
    "nats.operator_service_urls": _says("where clients find the operator's servers"),
    "nats.system_account": _by("edge.conf.validate:complete"),
    "nats.assert_server_version": _by("edge.conf.validate:validate"),
    "nats.strict_signing_key_usage": _by(f"{_LOGIN}.authenticate"),
}

ACTIVATION: dict[str, ClaimDuty] = {
    **_TOKEN,
    **_under("nats", _KIND),
    "nats.subject": _by(_SHARES),
    "nats.kind": _by(_SHARES),
    "nats.issuer_account": _by(_SHARES),
}

DUTIES = {"user": USER, "account": ACCOUNT, "operator": OPERATOR, "activation": ACTIVATION}
"""By the kind of token."""
