"""The command line: nats-server's flags, their precedence, and mistakes."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.conf.flags import USAGE, FlagError, Signal, parse_args
from headwater.edge.conf.options import Options
from headwater.edge.conf.problems import ConfigError


def options(*argv: str) -> Options:
    invocation = parse_args(list(argv))
    assert invocation.action == "serve"
    return invocation.options


def test_no_flags_are_all_defaults() -> None:
    found = options()
    assert (found.host, found.port, found.max_payload) == ("0.0.0.0", 4222, 1 << 20)
    assert not found.jetstream.enabled and not found.auth_required()


@pytest.mark.parametrize(
    ("argv", "path", "value"),
    [
        (["-p", "4333"], "port", 4333),
        (["-p", "-1"], "port", -1),
        (["--port=0x10"], "port", 16),
        (["-a", "::1"], "host", "::1"),
        (["--addr", "h"], "host", "h"),
        (["--net=h"], "host", "h"),
        (["-n", "x"], "server_name", "x"),
        (["-name", "x"], "server_name", "x"),
        (["--server_name=x"], "server_name", "x"),
        (["-m", "8222"], "http_port", 8222),
        (["--http_port", "-1"], "http_port", -1),
        (["-js"], "jetstream.enabled", True),
        (["--jetstream"], "jetstream.enabled", True),
        (["-js", "-js=false"], "jetstream.enabled", False),
        (["-sd=/x"], "jetstream.store_dir", "/x"),
        (["-sd", "/x"], "jetstream.store_dir", "/x"),
        (["--store_dir", "/x"], "jetstream.store_dir", "/x"),
        (["-l", "f"], "log_file", "f"),
        (["-P", "f"], "pid_file", "f"),
        (["-D"], "debug", True),
        (["--debug"], "debug", True),
        (["-DV"], "debug", True),
        (["-DV"], "trace", True),
        (["-VV"], "trace_verbose", True),
        (["-DVV=false"], "debug", False),
        (["-T=f"], "logtime", False),
        (["--user", "u"], "auth.user", "u"),
        (["-pass", "p"], "auth.password", "p"),
        (["--auth", "t"], "auth.token", "t"),
        (["-cluster", "nats://127.0.0.1:-1"], "cluster.port", -1),
        (["--cluster_listen", "nats://h:6222"], "cluster.host", "h"),
        (["--cluster", "nats://u:p%40@h:6222"], "cluster.authorization.password", "p@"),
        (["--cluster_name", "c"], "cluster.name", "c"),
        (["--no_advertise"], "cluster.no_advertise", True),
        (
            ["--cluster", "nats://h:1", "--routes", "nats://a:1, nats://b:2"],
            "cluster.routes",
            ["nats://a:1", "nats://b:2"],
        ),
        (["--ports_file_dir", "d"], "ports_file_dir", "d"),
        (["--durability", "interval"], "headwater.durability", "interval"),
        (["--discovery"], "headwater.discovery", True),
        (["-p", "1", "--"], "port", 1),
    ],
)
def test_flags(argv: list[str], path: str, value: object) -> None:
    found: object = options(*argv)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    assert found == value


@pytest.mark.parametrize(
    ("argv", "action"),
    [
        (["-v"], "version"),
        (["--version"], "version"),
        (["version"], "version"),
        (["-h"], "help"),
        (["-p", "1", "help"], "help"),
        (["--help_tls"], "help_tls"),
    ],
)
def test_actions(argv: list[str], action: str) -> None:
    assert parse_args(argv).action == action


REMEDIES = {
    ("-p", "x"): "use a whole number",
    ("-p", "70000"): "use 0 to 65535, or -1",
    ("-D=maybe",): "use true or false",
    ("-p",): "run 'headwater serve --help'",
    ("---p",): "run 'headwater serve --help'",
    ("again",): "run 'headwater serve --help'",
    ("--tls",): "name it by --tlscert",
    ("--tlscert", "x"): "name it by --tlskey",
    ("--cluster", "nats://u@h:1"): "use nats://user:password@host:port",
    ("-sl", "nonsense"): "use one of stop, quit",
    ("-sl", "ldm=1=2"): "use --signal <signal>=<pid>",
}


@pytest.mark.parametrize("argv", REMEDIES)
def test_a_mistake_is_told_with_a_remedy(argv: tuple[str, ...]) -> None:
    with pytest.raises(FlagError) as caught:
        parse_args([*argv])
    assert REMEDIES[argv] in str(caught.value)


def test_signals() -> None:
    assert parse_args(["--signal", "ldm=42"]).signal == Signal("ldm", "42")
    assert parse_args(["-sl=reload"]).signal == Signal("reload", "")
    for text in ("nonsense", "ldm=1=2"):
        with pytest.raises(FlagError):
            parse_args(["-sl", text])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-xyz"], "flag provided but not defined: -xyz"),
        (["--prot", "1"], "did you mean -port"),
        (["-p"], "flag needs an argument: -p"),
        (["-p", "x"], 'invalid value "x" for flag -port'),
        (["-p", "70000"], "out of range"),
        (["-D=maybe"], "invalid boolean value"),
        (["---p"], "bad flag syntax"),
        (["serve"], 'unrecognized command: "serve"'),
        (["-t"], "must specify"),
        (["--tls"], "TLS Server certificate must be present"),
        (["--tlscert", "x"], "TLS Server private key must be present"),
        (["--tlscert", "x", "--tlskey", "y"], "no such certificate"),
        (["--cluster", "h:1"], "invalid cluster url"),
        (["--cluster", "nats://u@h:1"], "expected cluster password"),
        (["--durability", "never"], "use fsync"),
    ],
)
def test_mistakes(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse_args(argv)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text("port: 1\nhost: a\nserver_name: n\njetstream { store_dir: x }\ndebug: true")
    found = options("-c", str(config), "-p", "-1", "-sd", "y", "-D=false")
    assert (found.port, found.host, found.server_name) == (-1, "a", "n")
    assert found.jetstream.enabled and found.jetstream.store_dir == "y"
    assert not found.debug
    assert found.config_file == str(config) and found.config_digest.startswith("sha256:")
    assert parse_args(["-t", "--config", str(config)]).action == "test"
    assert options("-config", str(config)).port == 1


def test_problems_of_the_whole_are_reported_together(tmp_path: Path) -> None:
    config = tmp_path / "node.conf"
    config.write_text("max_pending: 10\nno_auth_user: x\nwebsocket { port: -1 }")
    with pytest.raises(ConfigError) as caught:
        parse_args(["-c", str(config), "--routes", "nats://a:1"])
    assert len(caught.value.problems) == 4


def test_a_start_without_a_file_imports_little() -> None:
    heavy = ("nacl", "cryptography", "bcrypt", "aiohttp", "click", "headwater.edge.conf.grammar")
    script = (
        "import sys; from headwater.edge.conf.flags import parse_args; "
        "parse_args(['-p', '-1', '-js', '-sd=x']); "
        f"sys.exit(', '.join(name for name in {heavy!r} if name in sys.modules) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, check=False)
    assert run.returncode == 0, run.stderr


def test_every_flag_is_in_the_usage() -> None:
    from headwater.edge.conf.flags import _FLAGS

    for canonical, (names, _, _) in _FLAGS.items():
        assert canonical == "profile" or any(f"-{name}" in USAGE for name in names.split())


@given(st.lists(st.text(max_size=10) | st.sampled_from(["-p", "-js", "--auth", "-D=", "-m", "1"])))
def test_any_arguments_are_understood_or_refused(argv: list[str]) -> None:
    try:
        parse_args([word for word in argv if word.lstrip("-").partition("=")[0] not in _PATHS])
    except (FlagError, ConfigError):
        return


_PATHS = ("c", "config", "tlscert", "tlskey", "tlscacert")
