"""The command line of a node: the flags of nats-server, and a few more.

One dash or two, `-flag value` or `-flag=value`; a boolean flag takes a value only after `=`.
Flags win over the configuration file.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.edge.conf.options import Options
from headwater.edge.conf.problems import ConfigError
from headwater.edge.conf.quantities import MAX_PORT

USAGE = """\
Usage: headwater serve [options]

Node:
    -a, --addr, --net <host>         Address to listen on (default: 0.0.0.0)
    -p, --port <port>                Port for clients, -1 for any free one (default: 4222)
    -n, --name, --server_name <name> Name of this node (default: its public key)
    -c, --config <file>              Configuration file
    -t                               Check the configuration file and exit
    -P, --pid <file>                 Write the process id to a file
        --ports_file_dir <dir>       Write <program>_<pid>.ports with all open ports to a directory
    -m, --http_port <port>           Port for monitoring over HTTP
    -ms, --https_port <port>         Port for monitoring over HTTPS
        --client_advertise <addr>    Address to tell to clients instead of the own one
    -sl, --signal <name>[=<pid>]     Signal a running node: stop, quit, term, reopen, reload, ldm;
                                     <pid> is a process id or the path of a pid file

Logging:
    -l, --log <file>                 Log to a file
        --log_size_limit <bytes>     Rotate the log file at this size
    -T, --logtime                    Put times into the log (default: true)
        --logtime_utc                Put them there in UTC
    -s, --syslog                     Log to syslog
    -r, --remote_syslog <addr>       Log to a syslog server (udp://host:514)
    -D, --debug                      Log debugging output
    -V, --trace                      Log the protocol
    -VV                              Log the protocol, the system account's too
    -DV, -DVV                        Both of -D and -V, or of -D and -VV
        --max_traced_msg_len <len>   Longest message shown in a trace

JetStream:
    -js, --jetstream                 Enable JetStream
    -sd, --store_dir <dir>           Directory for stored data
        --durability <mode>          When file storage acknowledges: fsync, interval

Authorization:
        --user <user>                User that clients must name
        --pass <password>            Their password
        --auth <token>               Token that clients must present

TLS:
        --tls                        Offer TLS and demand it
        --tlscert <file>             Certificate chain
        --tlskey <file>              Its private key
        --tlsverify                  Demand client certificates, too
        --tlscacert <file>           Authorities that vouch for client certificates

Cluster:
        --cluster <url>              Listen for routes here (also --cluster_listen)
        --cluster_name <name>        Name of the cluster
        --routes <url,url>           Nodes to connect to
        --cluster_advertise <addr>   Address to tell to other nodes
        --no_advertise               Do not tell clients about other nodes
        --connect_retries <n>        Attempts to connect to a route that was learnt of
        --discovery                  Find nodes on the local network, and be found

    -v, --version                    Show the version
    -h, --help                       Show this text
        --help_tls                   Show help about TLS
"""

USAGE_HINT = "run 'headwater serve --help' for all flags"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
SIGNALS = ("stop", "quit", "term", "reopen", "reload", "ldm")

Given = list[tuple[str, str]]
"""Flags as given: canonical name and text of the value, in order."""


class FlagError(Exception):
    """The command line makes no sense. The text is for the person who typed it."""


class Signal(NamedTuple):
    """A signal for a running node; `target` is a process id, a pid file, or empty."""

    name: str
    target: str


class Invocation(msgspec.Struct, kw_only=True):
    """What a command line asks for."""

    action: str = "serve"
    """"serve", "version", "help", "help_tls", "test" or "signal"."""
    options: Options = msgspec.field(default_factory=Options)
    warnings: list[str] = []
    signal: Signal | None = None


def parse_args(argv: list[str]) -> Invocation:
    """Understand the arguments after the program's name, and read the configuration file.

    Raises FlagError, or ConfigError with all problems of the file.
    """
    given, words = _split(argv)
    _check_values(given)
    action = _action(given, words)
    if action in ("version", "help", "help_tls"):
        return Invocation(action=action)
    last = dict(given)
    if "signal" in last:
        return Invocation(action="signal", signal=_signal(last["signal"]))
    if action == "test" and not last.get("config"):
        raise FlagError(
            "must specify [-c, --config] option to check configuration file syntax"
        )
    return _configure(action, given, last.get("config", ""))


def _configure(action: str, given: Given, path: str) -> Invocation:
    options, warnings = Options(), []
    if path:
        # The grammar and the sections are needed only by nodes that have a file.
        from headwater.edge.conf.load import load_file

        loaded = load_file(path)
        options, warnings = loaded.options, loaded.warnings
    _apply(options, given)
    from headwater.edge.conf.validate import complete, validate

    complete(options)
    problems = validate(options)
    if problems:
        raise ConfigError(problems)
    return Invocation(action=action, options=options, warnings=warnings)


def _split(argv: list[str]) -> tuple[Given, list[str]]:
    """Flags, and the words behind them. Raises FlagError."""
    given: Given = []
    index = 0
    while index < len(argv):
        argument = argv[index]
        index += 1
        if argument == "--":
            return given, argv[index:]
        if len(argument) < 2 or argument[0] != "-":
            return given, argv[index - 1 :]
        name, equals, text = argument[2 if argument[1] == "-" else 1 :].partition("=")
        if not name or name[0] in "-=":
            raise FlagError(f"bad flag syntax: {argument} ({USAGE_HINT})")
        canonical = _NAMES.get(name)
        if canonical is None:
            raise FlagError(_unknown(name))
        if canonical in _BOOLEANS:
            text = text if equals else "true"
        elif not equals:
            if index >= len(argv):
                raise FlagError(f"flag needs an argument: -{name} ({USAGE_HINT})")
            text = argv[index]
            index += 1
        given.append((canonical, text))
    return given, []


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, list(_NAMES), n=1, cutoff=0.7)
    hint = f"did you mean -{close[0]}? " if close else ""
    return f"flag provided but not defined: -{name} ({hint}{USAGE_HINT})"


def _check_values(given: Given) -> None:
    """Raises FlagError unless every value is of its flag's type."""
    for name, text in given:
        if name in _BOOLEANS:
            if text not in _TRUE and text not in _FALSE:
                raise FlagError(
                    f'invalid boolean value "{text}" for -{name}: parse error: use true or false'
                )
        elif name in _INTEGERS:
            number = _integer(name, text)
            if name in _PORTS and not -1 <= number <= MAX_PORT:
                raise FlagError(
                    f'invalid value "{text}" for flag -{name}: value out of range: use 0 to '
                    f"{MAX_PORT}, or -1 for any free port"
                )
        elif name == "durability" and text not in ("fsync", "interval"):
            raise FlagError(
                f'invalid value "{text}" for flag -durability: use fsync or interval'
            )


def _integer(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise FlagError(
            f'invalid value "{text}" for flag -{name}: parse error: use a whole number'
        ) from error


def _action(given: Given, words: list[str]) -> str:
    """What to do, by flags and by the words that may stand in their place."""
    on = {name for name, text in given if name in _BOOLEANS and text in _TRUE}
    for name in ("version", "help", "help_tls"):
        if name in on:
            return name
    for word in words:
        if word.lower() in ("version", "help"):
            return word.lower()
        raise FlagError(f'unrecognized command: "{word}" ({USAGE_HINT})')
    return "test" if "t" in on else "serve"


def _signal(text: str) -> Signal:
    name, _, target = text.partition("=")
    if "=" in target:
        raise FlagError(
            f"invalid signal parameters: {target.partition('=')[2]}: use --signal <signal>=<pid>"
        )
    if name not in SIGNALS:
        raise FlagError(f'unknown signal "{name}": use one of {", ".join(SIGNALS)}')
    return Signal(name, target)


def _apply(options: Options, given: Given) -> None:
    """Let flags override what the file said. Raises FlagError."""
    for name, text in given:
        setter = _SETTERS.get(name)
        if setter is None:
            continue
        if name in _BOOLEANS:
            setter(options, text in _TRUE)
        elif name in _INTEGERS:
            setter(options, _integer(name, text))
        else:
            setter(options, text)
    _apply_tls(options, given)


def _apply_tls(options: Options, given: Given) -> None:
    chosen = {name: text for name, text in given if name.startswith("tls")}
    if not chosen:
        return
    if chosen.get("tls") in _FALSE:
        options.tls = None
        return
    if not chosen.get("tlscert"):
        raise FlagError("TLS Server certificate must be present and valid: name it by --tlscert")
    if not chosen.get("tlskey"):
        raise FlagError("TLS Server private key must be present and valid: name it by --tlskey")
    from headwater.edge.conf.options import TLSOptions
    from headwater.security.errors import TLSConfigError
    from headwater.security.tls.contexts import server_context

    options.tls = TLSOptions(
        cert_file=chosen["tlscert"],
        key_file=chosen["tlskey"],
        ca_file=chosen.get("tlscacert", ""),
        verify=chosen.get("tlsverify") in _TRUE,
    )
    try:
        server_context([(chosen["tlscert"], chosen["tlskey"])], ca_file=options.tls.ca_file)
    except TLSConfigError as error:
        raise FlagError(str(error)) from error


def _set(path: str) -> Callable[[Options, object], None]:
    """Setter of an attribute named by a dotted path."""
    *parents, attribute = path.split(".")

    def setter(options: Options, value: object) -> None:
        target: object = options
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, attribute, value)

    return setter


def _set_all(*attributes: str) -> Callable[[Options, object], None]:
    """Setter of one value to several attributes."""

    def setter(options: Options, value: object) -> None:
        for attribute in attributes:
            setattr(options, attribute, value)

    return setter


def _set_routes(options: Options, text: object) -> None:
    options.cluster.routes = [url.strip() for url in str(text).split(",") if url.strip()]


def _set_cluster(options: Options, text: object) -> None:
    """Listen for routes at a URL; an empty one turns clustering off."""
    url = str(text)
    if not url:
        options.cluster.port = 0
        return
    _, separator, rest = url.partition("://")
    user, at, address = rest.partition("/")[0].rpartition("@")
    host, colon, port = address.rpartition(":")
    try:
        number = int(port)
    except ValueError:
        colon = ""
        number = 0
    if not separator or not colon or not -1 <= number <= MAX_PORT:
        raise FlagError(f'invalid cluster url "{address or url}": use nats://host:port')
    options.cluster.host, options.cluster.port = host.strip("[]"), number
    name, has_password, password = user.partition(":")
    if at and not has_password:
        raise FlagError("expected cluster password to be set: use nats://user:password@host:port")
    from urllib.parse import unquote

    options.cluster.authorization.user = unquote(name)
    options.cluster.authorization.password = unquote(password)


_Setter = Callable[[Options, object], None]
# Canonical name: (all names, type, setter). Types: s text, i integer, p port, b boolean.
_FLAGS: dict[str, tuple[str, str, _Setter | None]] = {
    "help": ("h help", "b", None),
    "help_tls": ("help_tls", "b", None),
    "version": ("v version", "b", None),
    "t": ("t", "b", None),
    "config": ("c config", "s", None),
    "signal": ("sl signal", "s", None),
    "port": ("p port", "p", _set("port")),
    "server_name": ("n name server_name", "s", _set("server_name")),
    "addr": ("a addr net", "s", _set("host")),
    "client_advertise": ("client_advertise", "s", _set("client_advertise")),
    "debug": ("D debug", "b", _set("debug")),
    "trace": ("V trace", "b", _set("trace")),
    "VV": ("VV", "b", _set_all("trace", "trace_verbose")),
    "DV": ("DV", "b", _set_all("debug", "trace")),
    "DVV": ("DVV", "b", _set_all("debug", "trace", "trace_verbose")),
    "logtime": ("T logtime", "b", _set("logtime")),
    "logtime_utc": ("logtime_utc", "b", _set("logtime_utc")),
    "user": ("user", "s", _set("auth.user")),
    "pass": ("pass", "s", _set("auth.password")),
    "auth": ("auth", "s", _set("auth.token")),
    "http_port": ("m http_port", "p", _set("http_port")),
    "https_port": ("ms https_port", "p", _set("https_port")),
    "pid": ("P pid", "s", _set("pid_file")),
    "ports_file_dir": ("ports_file_dir", "s", _set("ports_file_dir")),
    "log": ("l log", "s", _set("log_file")),
    "log_size_limit": ("log_size_limit", "i", _set("log_size_limit")),
    "syslog": ("s syslog", "b", _set("syslog")),
    "remote_syslog": ("r remote_syslog", "s", _set("remote_syslog")),
    "profile": ("profile", "p", _set("profile_port")),
    "routes": ("routes", "s", _set_routes),
    "cluster": ("cluster cluster_listen", "s", _set_cluster),
    "cluster_advertise": ("cluster_advertise", "s", _set("cluster.advertise")),
    "no_advertise": ("no_advertise", "b", _set("cluster.no_advertise")),
    "connect_retries": ("connect_retries", "i", _set("cluster.connect_retries")),
    "cluster_name": ("cluster_name", "s", _set("cluster.name")),
    "tls": ("tls", "b", None),
    "tlsverify": ("tlsverify", "b", None),
    "tlscert": ("tlscert", "s", None),
    "tlskey": ("tlskey", "s", None),
    "tlscacert": ("tlscacert", "s", None),
    "max_traced_msg_len": ("max_traced_msg_len", "i", _set("max_traced_message")),
    "jetstream": ("js jetstream", "b", _set("jetstream.enabled")),
    "store_dir": ("sd store_dir", "s", _set("jetstream.store_dir")),
    "durability": ("durability", "s", _set("headwater.durability")),
    "discovery": ("discovery", "b", _set("headwater.discovery")),
}
_NAMES = {name: canonical for canonical, entry in _FLAGS.items() for name in entry[0].split()}
_BOOLEANS = frozenset(name for name, entry in _FLAGS.items() if entry[1] == "b")
_INTEGERS = frozenset(name for name, entry in _FLAGS.items() if entry[1] in "ip")
_PORTS = frozenset(name for name, entry in _FLAGS.items() if entry[1] == "p")
_SETTERS = {name: entry[2] for name, entry in _FLAGS.items() if entry[2] is not None}
