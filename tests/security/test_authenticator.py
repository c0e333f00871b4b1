"""The login decision, with configured users and in operator mode."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.security import jwt, passwords
from headwater.security.auth_options import (
    AuthCalloutOptions,
    AuthOptions,
    OperatorOptions,
    PermissionOptions,
    SubjectRules,
    UserOptions,
)
from headwater.security.authenticator import Authenticator
from headwater.security.claims import (
    AccountBody,
    AccountClaims,
    AccountLimits,
    OperatorClaims,
    SigningScope,
    SubjectPermission,
    TimeRange,
    UserBody,
    UserClaims,
    UserLimits,
)
from headwater.security.errors import (
    AuthError,
    AuthExpiredError,
    AuthRevokedError,
    CalloutRequired,
)
from headwater.security.identity import AuthConfig, AuthRequest, Identity
from headwater.security.nkeys import KeyPair

NOW = 1_700_000_000.0
NONCE = b"abcdefghijklmno"
OPERATOR, ACCOUNT, SIGNER, SCOPED, USER = (KeyPair.create(kind) for kind in "OAAAU")


def signed(pair: KeyPair, nonce: bytes = NONCE) -> str:
    return base64.urlsafe_b64encode(pair.sign(nonce)).decode().rstrip("=")


def request(**connect: Any) -> AuthRequest:
    return AuthRequest(connect=connect, nonce=NONCE, now=NOW, host="127.0.0.1")


def login(config: AuthConfig, **connect: Any) -> Identity:
    return Authenticator(config).authenticate(request(**connect))


def test_nothing_configured_admits_everybody() -> None:
    identity = login(AuthConfig(), user="whoever")
    assert (identity.account, identity.kind) == ("$G", "none")


def test_token_and_single_user() -> None:
    config = AuthConfig(auth=AuthOptions(token=passwords.hash_password("t", cost=4)))
    assert login(config, auth_token="t").kind == "token"
    for wrong in ({}, {"auth_token": "x"}, {"auth_token": 5}, {"user": "t", "pass": "t"}):
        with pytest.raises(AuthError):
            login(config, **wrong)
    config = AuthConfig(auth=AuthOptions(user="u", password="p"))
    assert login(config, user="u", **{"pass": "p"}).user == "u"
    with pytest.raises(AuthError):
        login(config, user="u", **{"pass": "P"})


def test_users_accounts_and_no_auth_user() -> None:
    rules = PermissionOptions(publish=SubjectRules(allow=["x"]))
    config = AuthConfig(
        auth=AuthOptions(users=[UserOptions(user="u", password="p", permissions=rules)]),
        account_users=[UserOptions(user="a", password="q", account="A")],
        no_auth_user="a",
    )
    assert login(config, user="u", **{"pass": "p"}).permissions is rules
    assert login(config, user="a", **{"pass": "q"}).account == "A"
    anonymous = login(config)
    assert (anonymous.account, anonymous.kind) == ("A", "no_auth_user")
    for wrong in ({"user": "u"}, {"user": "nobody", "pass": "p"}, {"auth_token": "x"}):
        with pytest.raises(AuthError):
            login(config, **wrong)


def test_nkey_user_must_sign_the_nonce() -> None:
    config = AuthConfig(auth=AuthOptions(users=[UserOptions(nkey=USER.public_key)]))
    assert Authenticator(config).nonce_required()
    identity = login(config, nkey=USER.public_key, sig=signed(USER))
    assert (identity.user, identity.kind) == (USER.public_key, "nkey")
    standard = base64.b64encode(USER.sign(NONCE)).decode()
    assert login(config, nkey=USER.public_key, sig=standard).kind == "nkey"
    other = KeyPair.create("U")
    for wrong in (
        {"nkey": USER.public_key},
        {"nkey": USER.public_key, "sig": signed(USER, b"other")},
        {"nkey": other.public_key, "sig": signed(other)},
        {"nkey": USER.public_key, "sig": "%%%"},
    ):
        with pytest.raises(AuthError):
            login(config, **wrong)
    with pytest.raises(AuthError):
        no_nonce = AuthRequest(connect={"nkey": USER.public_key, "sig": signed(USER, b"")})
        Authenticator(config).authenticate(no_nonce)


def test_connection_types() -> None:
    user = UserOptions(user="u", password="p", allowed_connection_types=["WEBSOCKET"])
    config = AuthConfig(auth=AuthOptions(users=[user]))
    with pytest.raises(AuthError):
        login(config, user="u", **{"pass": "p"})
    wanted = AuthRequest(connect={"user": "u", "pass": "p"}, connection_type="WEBSOCKET")
    assert Authenticator(config).authenticate(wanted).user == "u"


def test_listener_override() -> None:
    authenticator = Authenticator(AuthConfig(auth=AuthOptions(user="u", password="p")))
    over = AuthOptions(token="t")
    wanted = AuthRequest(connect={"auth_token": "t"}, override=over)
    assert authenticator.authenticate(wanted).kind == "token"
    with pytest.raises(AuthError):
        authenticator.authenticate(
            AuthRequest(connect={"user": "u", "pass": "p"}, override=over)
        )


CERTIFICATE = {
    "subject": (
        (("countryName", "US"),),
        (("organizationName", "Acme, Inc"),),
        (("commonName", "c"),),
    ),
    "subjectAltName": (("DNS", "host.example"), ("email", "me@example")),
}


@pytest.mark.parametrize(
    "name", ["me@example", "host.example", "CN=c,O=Acme\\, Inc,C=US", "C=US,cn=c,O=Acme\\, Inc"]
)
def test_certificate_names_the_user(name: str) -> None:
    config = AuthConfig(auth=AuthOptions(users=[UserOptions(user=name)]))
    mapped = AuthRequest(connect={}, certificate=CERTIFICATE, map_certificate=True)
    assert Authenticator(config).authenticate(mapped).user == name
    mapped.certificate = None
    with pytest.raises(AuthError):
        Authenticator(config).authenticate(mapped)


def test_foreign_certificate_names_nobody() -> None:
    config = AuthConfig(auth=AuthOptions(users=[UserOptions(user="CN=c,C=US")]))
    mapped = AuthRequest(connect={}, certificate=CERTIFICATE, map_certificate=True)
    with pytest.raises(AuthError):
        Authenticator(config).authenticate(mapped)


def test_callout_decides_unless_the_user_is_exempt() -> None:
    config = AuthConfig(
        auth=AuthOptions(
            users=[UserOptions(user="auth", password="p"), UserOptions(user="u", password="p")],
            callout=AuthCalloutOptions(issuer=ACCOUNT.public_key, auth_users=["auth"]),
        )
    )
    assert login(config, user="auth", **{"pass": "p"}).user == "auth"
    for other in ({"user": "u", "pass": "p"}, {}, {"auth_token": "x"}):
        with pytest.raises(CalloutRequired):
            login(config, **other)


def test_leaf_listener_rules_come_first() -> None:
    authenticator = Authenticator(AuthConfig(auth=AuthOptions(user="u", password="p")))
    single = AuthOptions(user="leaf", password="l", account="A")
    wanted = request(user="leaf", **{"pass": "l"})
    assert authenticator.authenticate_leaf(wanted, single).account == "A"
    with pytest.raises(AuthError):
        authenticator.authenticate_leaf(request(user="u", **{"pass": "p"}), single)
    users = AuthOptions(users=[UserOptions(user="b", password="x", account="B")])
    found = authenticator.authenticate_leaf(request(user="b", **{"pass": "x"}), users)
    assert found.account == "B"
    key = AuthOptions(nkey=USER.public_key)
    found = authenticator.authenticate_leaf(
        request(nkey=USER.public_key, sig=signed(USER)), key
    )
    assert found.kind == "nkey"
    none = authenticator.authenticate_leaf(request(user="u", **{"pass": "p"}), AuthOptions())
    assert none.user == "u"


def operator_mode(
    account: AccountBody | None = None, signer: KeyPair = OPERATOR, **config: Any
) -> AuthConfig:
    body = account or AccountBody(limits=AccountLimits.unlimited())
    claims = AccountClaims(sub=ACCOUNT.public_key, name="acme", nats=body)
    operator = OperatorClaims(sub=OPERATOR.public_key)
    return AuthConfig(
        operator=OperatorOptions(
            operators=[jwt.encode(operator, OPERATOR)],
            preload={ACCOUNT.public_key: jwt.encode(claims, signer)},
        ),
        **config,
    )


def user_token(body: UserBody | None = None, signer: KeyPair = ACCOUNT, **claims: Any) -> str:
    nats = body or UserBody(subs=-1, data=-1, payload=-1)
    if signer is not ACCOUNT:
        nats.issuer_account = ACCOUNT.public_key
    issued = claims.pop("iat", int(NOW) - 10)
    return jwt.encode(UserClaims(sub=USER.public_key, nats=nats, **claims), signer, issued)


def jwt_login(config: AuthConfig, token: str, pair: KeyPair = USER) -> Identity:
    return login(config, jwt=token, sig=signed(pair))


def test_operator_mode_admits_a_signed_user() -> None:
    body = UserBody(subs=5, payload=1000, pub=SubjectPermission(allow=["a"]), tags=["x:y"])
    config = operator_mode(AccountBody(limits=AccountLimits(payload=500, subs=-1)))
    identity = jwt_login(config, user_token(body, name="sensor", exp=int(NOW) + 60))
    assert identity.account == ACCOUNT.public_key
    assert (identity.account_name, identity.name, identity.kind) == ("acme", "sensor", "jwt")
    assert (identity.limits.max_payload, identity.limits.max_subscriptions) == (500, 5)
    assert identity.expires == NOW + 60
    assert identity.permissions is not None and identity.permissions.publish is not None
    assert identity.permissions.publish.allow == ["a"]


def test_operator_mode_refuses_broken_chains() -> None:
    config = operator_mode()
    stranger = KeyPair.create("A")
    for token, pair in (
        ("", USER),
        ("garbage", USER),
        (user_token(signer=stranger), USER),
        (user_token(), KeyPair.create("U")),
    ):
        with pytest.raises(AuthError):
            jwt_login(config, token, pair)
    with pytest.raises(AuthError):
        login(config, jwt=user_token())
    with pytest.raises(AuthError):
        jwt_login(operator_mode(signer=KeyPair.create("O")), user_token())
    with pytest.raises(AuthExpiredError):
        jwt_login(config, user_token(exp=int(NOW)))


def test_pinned_accounts() -> None:
    config = operator_mode()
    config.operator.pinned_accounts = [KeyPair.create("A").public_key]
    with pytest.raises(AuthError):
        jwt_login(config, user_token())
    config.system_account = ACCOUNT.public_key
    assert jwt_login(config, user_token()).account == ACCOUNT.public_key


def test_revocation_counts_from_issue_time() -> None:
    for key in (USER.public_key, "*"):
        config = operator_mode(AccountBody(revocations={key: int(NOW) - 10}))
        with pytest.raises(AuthRevokedError):
            jwt_login(config, user_token())
        assert jwt_login(config, user_token(iat=int(NOW) - 9)).kind == "jwt"


def test_bearer_tokens() -> None:
    token = user_token(UserBody(bearer_token=True))
    assert login(operator_mode(), jwt=token).kind == "jwt"
    refusing = operator_mode(AccountBody(limits=AccountLimits(disallow_bearer=True)))
    with pytest.raises(AuthError):
        login(refusing, jwt=token)
    assert login(operator_mode(default_sentinel=token)).kind == "jwt"


def test_source_and_time_restrictions() -> None:
    config = operator_mode()
    assert jwt_login(config, user_token(UserBody(src=["127.0.0.0/8"]))).kind == "jwt"
    with pytest.raises(AuthError):
        jwt_login(config, user_token(UserBody(src=["10.0.0.0/8"])))
    day = UserBody(times=[TimeRange(start="22:00:00", end="23:00:00")], times_location="UTC")
    # NOW is 22:13:20 UTC.
    assert jwt_login(config, user_token(day)).expires == NOW + 46 * 60 + 40
    night = UserBody(times=[TimeRange(start="01:00:00", end="02:00:00")], times_location="UTC")
    with pytest.raises(AuthError):
        jwt_login(config, user_token(night))


def test_scoped_signing_key_fills_its_template() -> None:
    template = UserLimits(
        subs=7, payload=-1, pub=SubjectPermission(allow=["{{tag(site)}}.{{name()}}.>"])
    )
    body = AccountBody(
        limits=AccountLimits.unlimited(),
        signing_keys=[SIGNER.public_key, SigningScope(key=SCOPED.public_key, template=template)],
    )
    config = operator_mode(body)
    assert jwt_login(config, user_token(signer=SIGNER)).issuer == SIGNER.public_key
    scoped = UserBody(tags=["site:a", "site:b"])
    identity = jwt_login(config, user_token(scoped, SCOPED, name="n"))
    assert identity.permissions is not None and identity.permissions.publish is not None
    assert identity.permissions.publish.allow == ["a.n.>", "b.n.>"]
    assert identity.limits.max_subscriptions == 7
    identity = jwt_login(config, user_token(UserBody(), SCOPED, name="n"))
    assert identity.permissions is not None and identity.permissions.publish is not None
    assert identity.permissions.publish.deny == [">"]
    with pytest.raises(AuthError):
        jwt_login(config, user_token(UserBody(subs=-1), SCOPED))


def test_real_server_accepts_our_tokens(real_server: Callable[[str], Any]) -> None:
    template = UserLimits.unlimited()
    template.sub = SubjectPermission(allow=["in.{{name()}}"])
    body = AccountBody(
        limits=AccountLimits.unlimited(),
        signing_keys=[SigningScope(key=SCOPED.public_key, template=template)],
    )
    config = operator_mode(body)
    operator, preload = config.operator.operators[0], config.operator.preload
    server = real_server(
        f"operator: {operator}\nresolver: MEMORY\n"
        f"resolver_preload {{ {ACCOUNT.public_key}: {preload[ACCOUNT.public_key]} }}\n"
    )
    for token in (user_token(), user_token(UserBody(), SCOPED, name="n")):
        with server.client() as client:
            nonce = client.info["nonce"].encode()
            assert client.connect(jwt=token, sig=signed(USER, nonce)) == []
    with server.client() as client:
        nonce = client.info["nonce"].encode()
        client.connect(jwt=user_token(UserBody(), SCOPED, name="n"), sig=signed(USER, nonce))
        assert client.send("SUB in.n 1\r\n") == []
        assert "Permissions Violation" in client.send("SUB in.m 2\r\n")[0]
    with server.client() as client:
        nonce = client.info["nonce"].encode()
        refused = client.connect(jwt=user_token(UserBody(subs=-1), SCOPED), sig=signed(USER, nonce))
        assert "Authorization Violation" in refused[0]


_field = st.sampled_from(["user", "pass", "auth_token", "nkey", "jwt", "sig"])
_value = st.text(max_size=20) | st.integers() | st.none() | st.lists(st.text(max_size=3))
_configs = [
    AuthConfig(auth=AuthOptions(user="u", password="p")),
    AuthConfig(auth=AuthOptions(users=[UserOptions(nkey=USER.public_key)])),
    operator_mode(),
]


@settings(deadline=None)
@given(st.dictionaries(_field, _value), st.sampled_from(_configs))
def test_any_connect_is_refused_cleanly(connect: dict[str, Any], config: AuthConfig) -> None:
    if (connect.get("user"), connect.get("pass")) == ("u", "p"):
        return
    with pytest.raises(AuthError):
        Authenticator(config).authenticate(request(**connect))
