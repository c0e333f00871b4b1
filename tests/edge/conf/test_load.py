"""Documents to options: every block, all problems at once, and checks of the whole."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.edge.conf import load
from headwater.edge.conf.load import load_file, load_text
from headwater.edge.conf.options import Options
from headwater.edge.conf.problems import ConfigError
from headwater.edge.conf.validate import complete, validate
from headwater.security import jwt
from headwater.security.claims import AccountClaims, OperatorBody, OperatorClaims, UserClaims
from headwater.security.nkeys import KeyPair


def options(text: str) -> Options:
    return load_text(text).options


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    return caught.value.problems


def whole(text: str) -> list[str]:
    """Problems that only the check of complete options finds."""
    found = options(text)
    complete(found)
    return validate(found)


def test_all_problems_are_reported_at_once_with_their_places() -> None:
    found = problems(
        "prot: 4222\n"
        'debug: "yes"\n'
        "cluster { nam: x, pool_size: many }\n"
        "jetstream {\n  max_men: 1G\n}\n"
        "authorization { users: [ {user: a, permissions: {publish: 'a..b'}} ] }\n"
    )
    assert [problem.split(": ", 1)[0] for problem in found] == [
        "(text):1:1",
        "(text):2:1",
        "(text):3:11",
        "(text):3:19",
        "(text):5:3",
        "(text):7:50",
    ]
    assert found[0].endswith('unknown field "prot", did you mean "port"?')
    assert found[1].endswith('"debug" must be a boolean, not a string')
    assert 'did you mean "max_mem' in found[4]


def test_top_level() -> None:
    found = options(
        "listen: '127.0.0.1:-1'\nserver_name: n\nhttp: 'h:8222'\nmax_connections: 0\n"
        "ping_interval: '20s'\nserver_tags: [a, b]\nserver_metadata { k: v }\n"
        "write_deadline: '3s'\nlame_duck_duration: '40s'\nfeature_flags { x: true }\n"
        "trace_verbose: true\nmax_payload: 2MB\nsystem: S\nLOGFILE: l"
    )
    assert (found.host, found.port, found.http_host, found.http_port) == (
        "127.0.0.1", -1, "h", 8222,
    )
    assert (found.max_connections, found.ping_interval, found.write_deadline) == (-1, 20, 3)
    assert (found.server_tags, found.server_metadata) == (["a", "b"], {"k": "v"})
    assert found.trace and found.trace_verbose and found.max_payload == 2 << 20
    assert (found.system_account, found.log_file, found.lame_duck_duration) == ("S", "l", 40)


def test_authorization_and_accounts() -> None:
    found = options(
        """
        authorization {
          timeout: "3s"
          default_permissions { publish: x }
          users = [ {user: a, password: b}, {user: c, password: d,
             permissions: {subscribe: {allow: ["s", "q.> grp"], deny: "t"},
                           allow_responses: {max: 3, expires: "5s"}}} ]
        }
        accounts {
          A {
            users: [ {user: ua, pass: p, connection_types: [websocket]} ]
            jetstream: { max_mem: 1k, max_streams: 3 }
            limits { max_conn: 5, max_payload: 10 }
            exports: [ {service: "svc.*", response_type: singleton, threshold: "1s",
                        latency: {sampling: "20%", subject: lat}}, {stream: st, accounts: [B]},
                       {service: many, response_type: chunked} ]
            mappings { in: [ {dest: out.a, weight: 20%}, {dest: out.b, weight: 30} ] }
            msg_trace: tr
          }
          B {
            imports: [ {service: {account: A, subject: svc.x}, to: mine, share: true},
                       {stream: {account: A, subject: st}, prefix: p} ]
          }
        }
        """
    )
    assert found.auth_timeout() == 3
    first, second = found.auth.users
    assert first.permissions is not None and first.permissions.publish is not None
    assert first.permissions.publish.allow == ["x"]
    rules = second.permissions
    assert rules is not None and rules.subscribe is not None and rules.publish is None
    assert rules.subscribe.allow == ["s", "q.> grp"] and rules.subscribe.deny == ["t"]
    assert rules.allow_responses is not None
    assert (rules.allow_responses.max_messages, rules.allow_responses.expires) == (3, 5)
    account = found.accounts["A"]
    assert account.users[0].account == "A"
    assert account.users[0].allowed_connection_types == ["WEBSOCKET"]
    assert account.jetstream is not None and account.jetstream.max_memory == 1000
    assert (account.max_connections, account.max_payload) == (5, 10)
    service, stream, many = account.exports
    assert (service.kind, service.response_type, service.threshold) == ("service", "single", 1)
    assert (many.kind, many.response_type) == ("service", "chunked")
    assert service.latency is not None and service.latency.sampling == 20
    assert (stream.kind, stream.accounts) == ("stream", ["B"])
    assert [d.weight for d in account.mappings[0].destinations] == [20, 30]
    assert (account.trace_destination, account.trace_sampling) == ("tr", 100)
    imported = found.accounts["B"].imports
    assert [(i.kind, i.to, i.prefix, i.share) for i in imported] == [
        ("service", "mine", "", True),
        ("stream", "", "p", False),
    ]
    assert [user.user for user in found.all_users()] == ["a", "c", "ua"]


def test_links_and_listeners() -> None:
    found = options(
        """
        cluster { name: c, listen: "0.0.0.0:6222", routes: ["nats://a:1", "nats://b:2"],
                  authorization { user: r, password: s }, pool_size: 5 }
        leafnodes {
          port: -1
          authorization { user: l, password: m, account: A }
          remotes: [ {urls: ["nats://u:p@h:7422", "ws://h2"], account: A, hub: true,
                      deny_imports: [x], credentials: "/c", compression: s2_best} ]
          reconnect: "2s"
        }
        websocket { port: 8080, no_tls: true, compression: true, authorization {token: t} }
        accounts { A {} }
        """
    )
    assert (found.cluster.port, found.cluster.pool_size) == (6222, 5)
    assert found.cluster.authorization.user == "r" and len(found.cluster.routes) == 2
    remote = found.leaf.remotes[0]
    assert (remote.account, remote.hub, remote.deny_imports) == ("A", True, ["x"])
    assert (remote.compression.mode, found.leaf.reconnect) == ("s2_best", 2)
    assert found.leaf.authorization.account == "A"
    assert found.websocket.authorization is not None
    assert found.websocket.authorization.token == "t"


def test_jetstream_sizes_and_sync() -> None:
    found = options('jetstream { max_mem: 1G, max_file: "1G", sync: always, domain: d }').jetstream
    assert (found.max_memory_store, found.max_file_store) == (10**9, 1 << 30)
    assert found.enabled and found.sync_always and found.sync_is_set and found.domain == "d"
    assert options("jetstream: enabled").jetstream.enabled
    assert not options("jetstream { enabled: false }").jetstream.enabled
    assert not options("jetstream { max_mem: 0 }").jetstream.sync_is_set


def test_headwater_block() -> None:
    found = options(
        'headwater { durability: interval, commit_segment_bytes: "8M", '
        "discovery { name: gw, cluster: fleet } }"
    ).headwater
    assert (found.durability, found.commit_segment_bytes) == ("interval", 8 << 20)
    assert (found.discovery, found.discovery_name, found.cluster_label) == (True, "gw", "fleet")
    assert problems("headwater { durability: never }")
    assert options("headwater { commit_max_delay: 250ms }").headwater.commit_max_delay == 0.25
    assert problems("headwater { commit_max_delay: 2s }")
    found = options('headwater { scrub { rate: "1M", pause: 1h } }').headwater
    assert (found.scrub_rate, found.scrub_pause) == (1 << 20, 3600.0)
    assert options("headwater { scrub: false }").headwater.scrub_rate == 0
    assert options("headwater { scrub: true }").headwater.scrub_rate == 4 << 20
    assert problems("headwater { scrub { rate: -1 } }")


def test_operator_mode(tmp_path: Path) -> None:
    operator, account, user = (KeyPair.create(kind) for kind in "OAU")
    system = KeyPair.create("A").public_key
    token = jwt.encode(
        OperatorClaims(sub=operator.public_key, nats=OperatorBody(system_account=system)), operator
    )
    file = tmp_path / "op.jwt"
    label = "NATS OPERATOR JWT"
    file.write_text(f"-----BEGIN {label}-----\n{token}\n------END {label}------")
    claims = jwt.encode(AccountClaims(sub=account.public_key), operator)
    preload = f"resolver_preload {{ {account.public_key}: {claims} }}"
    text = f"operator: '{file}'\nresolver: MEMORY\n{preload}"
    found = options(text)
    assert found.operator.operators == [token] and found.operator.resolver.kind == "memory"
    assert found.operator.preload == {account.public_key: claims}
    (missing,) = whole(text)
    assert "system account" in missing and "not in `resolver_preload`" in missing
    of_system = jwt.encode(AccountClaims(sub=system), operator)
    assert whole(text.replace(preload, f"{preload[:-1]}\n{system}: {of_system} }}")) == []
    complete(found)
    assert found.system_account == system
    assert whole(text + "\nsystem_account: other") != []
    (told,) = whole(f"operator: {token}")
    assert "operators require an account resolver: add" in told
    sentinel = jwt.encode(UserClaims(sub=user.public_key), account)
    assert whole(text + f"\ndefault_sentinel: {sentinel}")
    assert problems(f"operator: {claims}")
    assert problems(f"resolver_preload {{ {account.public_key}: {token} }}")


@pytest.mark.parametrize(
    "text",
    [
        "lame_duck_duration: '31s'\nlame_duck_grace_period: '31s'",
        "max_pending: 10",
        "no_auth_user: u",
        "authorization { users: [{user: a, pass: b}] }\nno_auth_user: u",
        "leafnodes { remotes: [{url: 'nats://h', account: A}] }",
        "leafnodes { remotes: [{urls: ['nats://h', 'ws://h']}] }",
        "websocket { port: 1 }",
        "websocket { port: 1, no_tls: true, jwt_cookie: c }",
        "websocket { port: 1, no_tls: true, allowed_origins: [x] }",
        "websocket { port: 1, no_tls: true, headers { Host: x } }",
        "jetstream { domain: 'a.b' }",
        "jetstream: true\ncluster { port: 1, name: c }",
        "jetstream: true\nserver_name: s\ncluster { port: 1 }",
        "cluster { port: 1, compression: nonsense }",
        "default_js_domain { A: d }",
        "default_sentinel: x",
    ],
)
def test_what_does_not_fit_together(text: str) -> None:
    assert len(whole(text)) == 1


def test_zero_means_default() -> None:
    found = options("port: 0\nmax_payload: 0\nping_interval: '0s'\nleafnodes { port: -1 }")
    complete(found)
    assert (found.port, found.max_payload, found.ping_interval) == (4222, 1 << 20, 120)
    assert found.leaf.host == "0.0.0.0"
    assert validate(found) == []


def test_defaults_are_not_shared() -> None:
    options("server_tags: [a]\ntrusted_keys: []\njetstream: true\ncluster { routes: ['nats://h'] }")
    untouched = options("{}")
    untouched.config_digest = ""
    assert Options() == untouched


def test_digest_ignores_layout_only() -> None:
    first = load_text("port: 1\ndebug: on").options
    assert first.config_digest == load_text("{debug: true; port = 1}").options.config_digest
    assert first.config_digest != load_text("port: 2\ndebug: on").options.config_digest


def test_warnings_are_kept_apart(tmp_path: Path) -> None:
    file = tmp_path / "c.conf"
    file.write_text("ping_interval: 10")
    loaded = load_file(file)
    assert loaded.options.ping_interval == 10
    assert loaded.warnings == [f'{file}:1:1: "ping_interval" should be converted to a duration']


_keys = sorted(load._FIELDS)
_inner = sorted({"users", "listen", "name", "remotes", "tls", "url", "A", "authorization", "allow"})
_values = st.recursive(
    st.sampled_from(["1", "x", "'2s'", "true", "-1", "2.5", "'a b'", "[]", "{}", "$2a$11$x"]),
    lambda deeper: st.lists(deeper, max_size=2).map(lambda items: f"[{', '.join(items)}]")
    | st.dictionaries(st.sampled_from(_inner + _keys), deeper, max_size=2).map(
        lambda members: "{" + ", ".join(f"{k}: {v}" for k, v in members.items()) + "}"
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(_keys), _values, max_size=5))
def test_any_document_loads_or_fails_cleanly(members: dict[str, Any]) -> None:
    members = {key: value for key, value in members.items() if not key.endswith("_tls")}
    try:
        found = load_text("\n".join(f"{key}: {value}" for key, value in members.items())).options
    except ConfigError as error:
        assert error.problems
        return
    complete(found)
    assert isinstance(validate(found), list)


@pytest.mark.parametrize(
    ("wanted", "fits"), [("", True), ("2.10.0", True), ("99.0.0", False), ("soon", False)]
)
def test_the_operator_may_ask_for_a_version(wanted: str, fits: bool) -> None:
    operator = KeyPair.create("O")
    claims = OperatorClaims(
        sub=operator.public_key,
        nats=OperatorBody(assert_server_version=wanted),
    )
    token = jwt.encode(claims, operator)
    found = whole(f'operator: "{token}"\nresolver: MEM')
    assert any("requires server version" in problem for problem in found) is not fits
