"""No key is accepted and ignored: a row says who enforces it, or why it is refused."""

import importlib
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

import headwater.edge.conf as conf
from bench.servers import program
from headwater.edge.conf.enforcement import UNSUPPORTED, By, Hint, Inside, Refused, fate_of, rows
from headwater.edge.conf.load import load_text
from headwater.edge.conf.problems import ConfigError
from headwater.edge.conf.reader import Section

ROOT = Path(__file__).parents[3]


def sections() -> list[Section]:
    """Every table by which a block is read."""
    modules = [
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(conf.__path__, f"{conf.__name__}.")
    ]
    return [
        value for module in modules for value in vars(module).values() if isinstance(value, Section)
    ]


def test_every_key_has_a_row_and_every_row_a_key() -> None:
    read = {(section.name, key) for section in sections() for key in section}
    assert len(read) > 350
    assert read == rows()


def test_who_enforces_a_key_is_there() -> None:
    modules = {fate.module for row in rows() if isinstance(fate := fate_of(*row), By)}
    missing = [name for name in modules if not (ROOT / f"{name.replace('.', '/')}.py").is_file()]
    assert not missing


def test_what_stands_below_a_refused_key_is_judged_with_it() -> None:
    for row in rows():
        fate = fate_of(*row)
        if isinstance(fate, Inside):
            section, _, key = fate.parent.rpartition(" ")
            assert not isinstance(fate_of(section, key), By), row


WITH_ANOTHER = {"cert_match_by", "cert_match", "ca_certs_match", "cert_match_skip_invalid"}
"""Refused keys that say something only beside another one."""


def test_the_readme_names_what_is_refused() -> None:
    """Nobody finds out by trying, and nobody is told to do without what is there."""
    refused = {key for section, key in rows() if isinstance(fate_of(section, key), Refused)}
    table = (ROOT / "README.md").read_text().partition("## What is not there yet")[2]
    named = set()
    for row in re.findall(r"^\|.*\|$", table.partition("\n## ")[0], re.MULTILINE):
        what = row.split("|")[2].strip()
        told = re.match(r"((?:`[a-z_]+`(?:, | and )?)+) (?:is|are) refused", what)
        named |= set(re.findall(r"`(\w+)`", told[1])) if told else set()
    assert named == refused - WITH_ANOTHER


SECURITY = (
    "pinned_certs connection_rate_limit permissions ocsp ocsp_peer proxy_protocol proxies verify "
    "verify_and_map verify_cert_and_check_known_urls tls authorization users deny_imports "
    "deny_exports resolver resolver_tls tpm key cipher max_connections max_payload limits accounts "
    "allowed_origins same_origin no_auth_user default_permissions auth_callout allowed_accounts"
)


def test_no_security_setting_is_a_mere_hint() -> None:
    hints = {key for section, key in rows() if isinstance(fate_of(section, key), Hint)}
    # `accounts` of a cluster says which accounts have a connection of their own.
    assert hints & set(SECURITY.split()) <= {"accounts"}


REFUSED = {
    "gateway { name: a, port: 7222 }": "1:1",
    "port: 4222\nmqtt { port: 1883 }": "2:1",
    "jetstream {\n  tpm { keys_file: a, encryption_password: b }\n}": "2:3",
    "cluster { tls {\n verify_cert_and_check_known_urls: true } }": "2:2",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_nobody_enforces_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    said = [problem for problem in caught.value.problems if UNSUPPORTED in problem]
    assert len(said) == 1
    assert said[0].startswith(f"(text):{REFUSED[text]}: ")


@pytest.mark.parametrize(
    "text",
    ["ocsp: false", "proxy_protocol: false", "gateway {}", "write_timeout: default",
     "cluster { compression: off, pool_size: 0 }", "no_fast_producer_stall: false"],
)
def test_what_is_off_is_no_matter(text: str) -> None:
    assert load_text(text).warnings == []


def test_a_hint_is_a_warning_with_its_place() -> None:
    loaded = load_text("websocket {\n  ping_interval: \"5s\"\n}")
    assert loaded.warnings == [
        '(text):2:3: "ping_interval" has no effect: the node\'s ping_interval holds for all'
    ]


def test_check_and_start_say_so(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text("port: -1\nmqtt { port: -1 }\n")
    for flags in ([], ["-t"]):
        command = [program("headwater"), "serve", "-c", str(path), *flags]
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert run.returncode == 1
        assert f'{path}:2:1: "mqtt": {UNSUPPORTED}' in run.stderr
    path.write_text("port: -1\nno_fast_producer_stall: true\n")
    command = [program("headwater"), "serve", "-c", str(path), "-t"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert run.returncode == 0
    assert f'{path}:2:1: "no_fast_producer_stall" has no effect' in run.stderr
