"""What a person is told of a wrong configuration: what is wrong, where, and what to do."""

import re
from pathlib import Path

import pytest

from headwater.edge.conf.enforcement import By, fate_of
from headwater.edge.conf.load import load_file, load_text
from headwater.edge.conf.options import LEAST_SEGMENT_BYTES
from headwater.edge.conf.problems import ConfigError
from headwater.edge.conf.reader import Section
from headwater.edge.conf.validate import complete, validate
from headwater.edge.jetstream.node.node import segment_bytes
from headwater.edge.storage.directory.disk_budget import least_budget
from headwater.security import jwt
from headwater.security.claims import OperatorClaims
from headwater.security.nkeys import KeyPair
from tests.edge.conf.test_conf_enforcement import sections

BLOCKS = {
    "": "@",
    "accounts": "accounts { A { @ } }",
    "accounts.jetstream": "accounts { A { jetstream { @ } } }",
    "accounts.limits": "accounts { A { limits { @ } } }",
    "accounts.trace": "accounts { A { msg_trace { @ } } }",
    "allow_responses": "authorization { default_permissions { allow_responses { @ } } }",
    "auth_callout": "authorization { auth_callout { @ } }",
    "authorization": "authorization { @ }",
    "cluster": "cluster { @ }",
    "compression": "leafnodes { compression { @ } }",
    "exports": "accounts { A { exports [ { @ } ] } }",
    "headwater": "headwater { @ }",
    "headwater.discovery": "headwater { discovery { @ } }",
    "headwater.fleet": "headwater { fleet { @ } }",
    "headwater.scrub": "headwater { scrub { @ } }",
    "headwater.sealing": "headwater { sealing { @ } }",
    "headwater.sealing.previous": "headwater { sealing { previous [ { @ } ] } }",
    "imports": "accounts { A { imports [ { @ } ] } }",
    "jetstream": "jetstream { @ }",
    "jetstream.limits": "jetstream { limits { @ } }",
    "jetstream.limits.batch": "jetstream { limits { batch { @ } } }",
    "latency": "accounts { A { exports [ { service: s, latency { @ } } ] } }",
    "leafnodes": "leafnodes { @ }",
    "leafnodes.authorization": "leafnodes { authorization { @ } }",
    "leafnodes.authorization.users": "leafnodes { authorization { users [ { @ } ] } }",
    "listener.authorization": "websocket { authorization { @ } }",
    "mappings": "mappings { a [ { @ } ] }",
    "ocsp": "ocsp { @ }",
    "ocsp_cache": "ocsp_cache { @ }",
    "permissions": "authorization { default_permissions { @ } }",
    "proxies": "proxies { @ }",
    "proxies.trusted": "proxies { trusted [ { @ } ] }",
    "remotes": "leafnodes { remotes [ { @ } ] }",
    "remotes.migrate": "leafnodes { remotes [ { jetstream_cluster_migrate { @ } } ] }",
    "remotes.proxy": "leafnodes { remotes [ { proxy { @ } } ] }",
    "resolver": "resolver { @ }",
    "shares.source": "accounts { A { imports [ { service { @ } } ] } }",
    "tls": "tls { @ }",
    "tls.certs": "tls { certs [ { @ } ] }",
    "tls.ocsp_peer": "tls { ocsp_peer { @ } }",
    "users": "authorization { users [ { @ } ] }",
    "websocket": "websocket { @ }",
}
"""Text of a block of each kind; `@` is where a key stands in it."""

REFUSED = {"gateway", "gateway.gateways", "mqtt", "jetstream.tpm"}
"""Blocks that are refused whole, and tables that no block is read by."""

REMEDY = re.compile(
    r"must (?:be|not|have)|did you mean|expected|needs? |requires?|: .*\b(?:add|remove|correct|use|"
    r"choose|write|set|lower|shorten|give|make|put|name)\b"
)
"""Words with which a text says what to do."""

ANY_DATE = "2020-01-01T00:00:00Z"
"""Of a type that no key takes."""


def told(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    return caught.value.problems


def in_block(section: Section, line: str) -> str:
    """A document in which `line` stands on line 3, in a block of this kind."""
    return "# one\n" + BLOCKS[section.name].replace("@", f"\n{line}\n")


def readable() -> list[Section]:
    return [section for section in sections() if section.name not in REFUSED]


def test_every_block_is_looked_at() -> None:
    assert {section.name for section in sections()} == BLOCKS.keys() | REFUSED


@pytest.mark.parametrize("section", readable(), ids=lambda section: section.name or "top")
def test_an_unknown_key_is_told_by_name_with_its_place_and_a_remedy(section: Section) -> None:
    known = max(section, key=len)
    for key, remedy in (("zzqqxx", "remove it"), (f"{known}z", f'did you mean "{known}"?')):
        found = [each for each in told(in_block(section, f"  {key}: 1")) if f'"{key}"' in each]
        assert len(found) == 1
        assert found[0].startswith("(text):3:3: ")
        assert remedy in found[0]


@pytest.mark.parametrize("section", readable(), ids=lambda section: section.name or "top")
def test_a_wrong_type_is_told_by_name_with_its_place_and_what_it_must_be(section: Section) -> None:
    for key in section:
        if isinstance(fate_of(section.name, key), By):
            said = told(in_block(section, f"  {key}: {ANY_DATE}"))
            found = [each for each in said if key in each]
            assert found, f"{key}: nothing names it"
            assert found[0].startswith("(text):3:3: "), found
            assert REMEDY.search(found[0]), found


OUT_OF_RANGE = {
    "\nport: 70000": ('2:1: "port": port 70000', "use 0 to 65535"),
    "\nmax_control_line: 9999999999": ('2:1: "max_control_line"', "at most"),
    "\nlame_duck_grace_period: '-1s'": ("2:1: invalid lame_duck_grace_period", "positive"),
    "\nwrite_deadline: '10 parsecs'": ("2:1: error parsing write_deadline", "such as 10s"),
    "\nwrite_deadline: '10'": ("2:1: error parsing write_deadline", "such as 10s"),
    "jetstream {\n max_mem: 10Q }": ("2:2: max_mem", "K, M, G, T"),
    "headwater {\n commit_max_delay: 9s }": ('2:2: "commit_max_delay" must be 0s', "to 1s"),
    "headwater {\n commit_segment_bytes: 1K }": ('2:2: "commit_segment_bytes"', "be 64K to"),
    "headwater {\n commit_segment_bytes: 2G }": ('2:2: "commit_segment_bytes" must be', "to 1G"),
    "mappings {\n a: [ {dest: b, weight: 300} ] }": ("2:17: Invalid weight 300", "0 to 100"),
    "accounts { A {\n msg_trace { dest: a, sampling: 300 } } }": ("2:23: trace", "[1..100]"),
    "tls {\n min_version: '1.1' }": ("2:2: unsupported TLS version '1.1'", "use 1.2 or 1.3"),
    "leafnodes { remotes [ {\n url: 'a b' } ] }": ('2:2: "url"', "nats://host:port"),
    "server_name: 'a b'": ('1:1: "server_name"', "choose"),
}


@pytest.mark.parametrize("text", OUT_OF_RANGE)
def test_what_is_out_of_range_is_told_with_what_would_do(text: str) -> None:
    begin, remedy = OUT_OF_RANGE[text]
    found = told(text)[0]
    assert found.startswith(f"(text):{begin}")
    assert remedy in found


def contradictions() -> dict[str, str]:
    """Lines behind a comment, each with the place and the key with which its problem begins."""
    operator = KeyPair("O", bytes(32))
    token = jwt.encode(OperatorClaims(sub=operator.public_key), operator)
    return {
        "lame_duck_duration: '31s'\nlame_duck_grace_period: '31s'": "3:1: lame_duck_grace_period",
        "max_pending: 10": "2:1: max_payload",
        "no_auth_user: u": "2:1: no_auth_user",
        "authorization { users: [{user: a, pass: b}] }\nno_auth_user: u": "3:1: no_auth_user",
        "leaf { remotes: [{url: 'nats://h',\n account: A}] }": "3:2: leafnodes.remotes.account",
        "leafnodes {\nremotes: [{urls: ['nats://h', 'ws://h']}] }": "3:12: leafnodes",
        "leafnodes { port: 1\ncompression: x }": "3:1: leafnodes.compression",
        "ws { port: 1 }": "2:1: websocket requires `tls`",
        "websocket { port: 1, no_tls: true\njwt_cookie: c }": "3:1: websocket.jwt_cookie",
        "websocket { port: 1, no_tls: true\nno_auth_user: c }": "3:1: websocket.no_auth_user",
        "websocket { port: 1, no_tls: true\nallowed_origins: [x] }": "3:1: websocket.allowed_or",
        "websocket { port: 1, no_tls: true\nheaders { Host: x } }": "3:1: websocket.headers",
        "jetstream {\n  domain: 'a.b' }": "3:3: jetstream.domain",
        "jetstream: true\ncluster { port: 1, name: c }": "3:1: jetstream in a cluster requires",
        "jetstream: true\nserver_name: s\ncluster { port: 1 }": "4:1: jetstream in a cluster",
        "cluster { port: 1\n compression: nonsense }": "3:2: cluster.compression",
        "cluster { port: 1\n accounts: [A, A] }": "3:2: cluster.accounts",
        "cluster { \n routes: ['nats://h:1'] }": "3:2: cluster.routes",
        "default_js_domain { A: d }": "2:1: default_js_domain",
        "default_sentinel: x": "2:1: default_sentinel",
        f"operator: {token}": "2:1: operators require an account resolver",
        f"operator: {token}\nresolver: MEM\naccounts {{ A {{}} }}": "4:1: `accounts` cannot",
        f"operator: {token}\nresolver: MEM\nno_auth_user: u": "4:1: no_auth_user",
        f"operator: {token}\nresolver: MEM\nresolver_pinned_accounts: [x]": "4:1: resolver_pinned",
    }


CONTRADICTIONS = contradictions()


@pytest.mark.parametrize("text", CONTRADICTIONS, ids=lambda text: re.sub(r"\s+", " ", text)[:40])
def test_a_contradiction_is_told_with_the_place_of_a_key_and_a_remedy(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "node.conf"
    path.write_text(f"# A comment.\n{text}\n")
    options = load_file(path).options
    complete(options)
    (found,) = validate(options)
    assert found.startswith(f"{path}:{CONTRADICTIONS[text]}")
    assert REMEDY.search(found.partition(CONTRADICTIONS[text])[2]), found


def test_what_contradicts_itself_on_the_command_line_has_no_place() -> None:
    options = load_text("port: 4222").options
    complete(options)
    options.max_pending = 10
    (found,) = validate(options)
    assert found.startswith("max_payload (")


INCLUDES = {
    "include 'none.conf'": ("1:9: error parsing include file 'none.conf'", "No such file"),
    "\n include 'main.conf'": ("2:10: include file 'main.conf' includes itself", "remove one"),
    "include 12.conf": ("1:9: Parse error: expected the name of a file", "in quotes"),
    "F: 'bad.conf'\ninclude $F": ("2:9: error parsing include file '$F'", "write the name"),
    "jetstream {\n include 'bad.conf' }": ("2:10: error parsing include file", "bad.conf:2:8: "),
    "include 'unknown.conf'": ("unknown.conf:2:1: unknown field", "remove it"),
    "include 'typed.conf'": ('typed.conf:1:1: "port" must be an integer', "not a string"),
}
"""By a document: the place and beginning of what is said, and what it also has."""


@pytest.mark.parametrize("text", INCLUDES)
def test_what_is_wrong_with_an_include_is_told_with_file_and_line(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "bad.conf").write_text("a: 1\nb:     {\n")
    (tmp_path / "unknown.conf").write_text("\nnonsense: 1\n")
    (tmp_path / "typed.conf").write_text("port: many\n")
    (tmp_path / "main.conf").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_file(tmp_path / "main.conf")
    begin, remedy = INCLUDES[text]
    (said,) = caught.value.problems
    place = begin if begin[0].isalpha() else f"main.conf:{begin}"
    assert said.startswith(f"{tmp_path}/{place}")
    assert remedy in said


VARIABLES = {
    "port: $NOWHERE": ("'NOWHERE' on line 1 can not be found", "define it above, or in the env"),
    "port: $LATER\nLATER: 1": ("'LATER' on line 1 can not be found", "define it above"),
    "port: $MANY": ('"port" must be an integer', "correct the value of variable 'MANY'"),
    "port: $OPEN": ("'OPEN' could not be parsed", "the array is not closed"),
    "port: $ITSELF": ("variable reference cycle for 'ITSELF'", "give it a value that does not"),
    "authorization { token: $DIGITS }": (
        "must be a string, not an integer", "put the value of variable 'DIGITS' in quotes",
    ),
    "authorization { token: 12345 }": ("must be a string, not an integer", "put it in quotes"),
    "P: { a: 1 }\nport: $P": ("must be an integer, not a map", "correct the value of variable 'P'"),
}  # fmt: skip


@pytest.mark.parametrize("text", VARIABLES)
def test_what_is_wrong_with_a_variable_is_told_by_its_name(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"MANY": "many", "OPEN": "[1,", "ITSELF": "$ITSELF", "DIGITS": "12345"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    line = text.count("\n", 0, text.index("$") if "$" in text else 0) + 1
    (said,) = told(text)
    assert said.startswith(f"(text):{line}:")
    for part in VARIABLES[text]:
        assert part in said


def test_a_tls_block_that_cannot_be_used_is_told_of_once(tmp_path: Path) -> None:
    """A remote that has to prove itself by it is not said to lack it."""
    remote = "url: 'discover://hub', tls { ca_file: '%s', server_name: hub }"
    (tmp_path / "ca.pem").write_text("no certificate")
    for name, reason in (("none.pem", "No such file"), ("ca.pem", "it must be PEM")):
        (said,) = told("leafnodes { remotes [ { " + remote % (tmp_path / name) + " } ] }")
        assert said.startswith("(text):1:")
        assert f"cannot use CA file {tmp_path / name}: " in said
        assert reason in said
        assert "Errno" not in said


@pytest.mark.parametrize("segment", [0, 64 << 10, 1 << 20])
def test_a_disk_budget_that_the_store_would_refuse_is_told_with_its_place(segment: int) -> None:
    """The bound is the store's own."""
    least = least_budget(segment or LEAST_SEGMENT_BYTES)
    for budget, fits in ((least - 1, False), (least, True)):
        text = f"headwater {{\n disk_budget: {budget}, commit_segment_bytes: {segment} }}"
        options = load_text(text).options
        complete(options)
        if not segment:
            assert least_budget(segment_bytes(options, Path("/"))) == least
        said = validate(options)
        assert not said if fits else said[0].startswith("(text):2:2: headwater.disk_budget")
        assert fits or f"give it {least} or more" in said[0]
