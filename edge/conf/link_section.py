"""Reads the blocks of links between nodes: `cluster`, `gateway` and `leafnodes`."""

import os
import re
from typing import Any

from headwater.edge.conf.auth_section import (
    leaf_authorization,
    link_authorization,
    permissions,
    subjects,
)
from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import (
    CompressionOptions,
    GatewayOptions,
    LeafOptions,
    LeafRemoteOptions,
    Options,
    RemoteGatewayOptions,
)
from headwater.edge.conf.reader import (
    ConfigReader,
    Field,
    Section,
    boolean,
    choice,
    integer,
    keys,
    lenient_duration,
    listen,
    name_without_spaces,
    port,
    strings,
    text,
    urls,
)
from headwater.edge.conf.tls_section import pins, tls
from headwater.security.errors import NKeyError
from headwater.security.nkeys import decode_seed
from headwater.security.subjects import is_valid_subject

MAX_ROUTE_PING = 30.0
# Bytes a second: with less no heartbeat comes in time, and the system counts to 32 bits.
RATE_LEAST = 1000
RATE_MOST = (1 << 32) - 2
"""Seconds; longer ping intervals of routes are cut to this."""

MIN_LEAF_VERSION = (2, 8, 0)
_NAME = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
SEMVER = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-{_NAME}(?:\.{_NAME})*)?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
"""A version by semver.org, of which the first three numbers are groups."""

WRITE_POLICIES = "default close retry"


def cluster(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `cluster` block."""
    reader.section(key, value, _CLUSTER_FIELDS, options.cluster)
    rules = options.cluster.permissions
    if rules is not None and rules.allow_responses is not None:
        reader.error(value, "Cluster permissions do not support allow_responses: remove it")
    exported = rules.subscribe if rules is not None else None
    for subject in [*(exported.allow or []), *exported.deny] if exported is not None else ():
        if not is_valid_subject(subject):
            reader.error(value, f'cluster export: subject "{subject}" is not a valid subject')
    if options.cluster.ping_interval > MAX_ROUTE_PING:
        reader.warning(value, "cluster 'ping_interval' will reset to 30s, the max for routes")


def gateway(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `gateway` block."""
    reader.section(key, value, _GATEWAY_FIELDS, options.gateway)


def leafnodes(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `leafnodes` block."""
    reader.section(key, value, _LEAF_FIELDS, options.leaf)


def _compression(default: str) -> Field:
    """Field of link compression; plain "on" chooses mode `default`."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = CompressionOptions()
        if isinstance(value.data, bool):
            found.mode = default if value.data else "off"
        elif isinstance(value.data, str):
            found.mode = value.data
        elif not isinstance(value.data, dict):
            reader.wrong_type(key, value, "a boolean, a mode or a map")
            return
        else:
            reader.members(value.data, _COMPRESSION_FIELDS, found)
        target.compression = found

    return field


def _thresholds(reader: ConfigReader, key: str, value: Value, target: CompressionOptions) -> None:
    found = [reader.duration(key, item) for item in reader.array(key, value) or []]
    target.rtt_thresholds = [seconds for seconds in found if seconds is not None]


def _gateways(reader: ConfigReader, key: str, value: Value, target: GatewayOptions) -> None:
    for item in reader.array(key, value) or []:
        remote = RemoteGatewayOptions()
        if reader.section(key, item, _REMOTE_GATEWAY_FIELDS, remote):
            target.gateways = [*target.gateways, remote]


def _single_url(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    found = reader.url(key, value)
    if found is not None:
        target.urls = [*target.urls, found]


def _url_or_urls(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    if isinstance(value.data, str):
        _single_url(reader, key, value, target)
    else:
        target.urls = reader.urls(key, value) or []


def _min_version(reader: ConfigReader, key: str, value: Value, target: LeafOptions) -> None:
    found = reader.string(key, value)
    if found is None:
        return
    numbers = SEMVER.fullmatch(found)
    if numbers is None or max(map(int, numbers.groups())) >= 1 << 63:
        reader.error(value, f"invalid leafnode's minimum version: {found!r}")
    elif tuple(map(int, numbers.groups())) < MIN_LEAF_VERSION:
        reader.error(
            value,
            "min_version: the minimum version should be at least 2.8.0: "
            "raise it, or remove it",
        )
    target.min_version = found


def _remotes(reader: ConfigReader, key: str, value: Value, target: LeafOptions) -> None:
    seen: list[tuple[list[str], str, str, str]] = []
    for item in reader.array(key, value) or []:
        remote = LeafRemoteOptions()
        if not reader.section(key, item, _REMOTE_FIELDS, remote):
            continue
        if remote.credentials and remote.nkey:
            reader.error(
                item,
                "Remote leafnode can not have both credentials and nkey defined: "
                "remove one",
            )
        _check_proxy(reader, item, remote)
        _check_discovery(reader, item, remote)
        identity = (remote.urls, remote.account or "$G", remote.credentials, remote.nkey)
        if identity in seen:
            reader.error(item, "duplicate remote: same urls, account and credentials: remove one")
        seen.append(identity)
        target.remotes = [*target.remotes, remote]


def _check_discovery(reader: ConfigReader, value: Value, remote: LeafRemoteOptions) -> None:
    """Anybody on the network can answer discovery: without proof it would get what is meant for
    the hub."""
    found = not remote.urls or any(url.startswith("discover://") for url in remote.urls)
    by_name = remote.tls is not None and remote.tls.server_name and not remote.tls.insecure
    # A `tls` block or an address that cannot be used was told of already.
    said = {name.lower() for name, content in value.plain().items() if content}
    unusable = (remote.tls is None and "tls" in said) or (
        not remote.urls and not said.isdisjoint(("url", "urls"))
    )
    if found and not (by_name or remote.hub_pins or remote.insecure_discovery or unusable):
        reader.error(
            value,
            "a hub that is found by discovery must prove itself: give the remote tls with a "
            "`server_name` that its certificate is for, or its key in `hub_pins`, or accept "
            "whoever answers with `insecure_discovery: true`",
        )


def _check_proxy(reader: ConfigReader, value: Value, remote: LeafRemoteOptions) -> None:
    if not remote.proxy_url:
        return
    scheme, separator, rest = remote.proxy_url.partition("://")
    if scheme not in ("http", "https") or not separator:
        reader.error(value, f"proxy URL scheme must be http or https, got: {remote.proxy_url}")
    elif not rest.strip("/"):
        reader.error(value, "proxy URL must specify a host: write http://host:port")
    elif scheme == "https":
        reader.error(value, "a proxy is spoken to without TLS: write http://host:port")
    if remote.proxy_timeout < 0:
        reader.error(value, "proxy timeout must be 0s or more")
    if bool(remote.proxy_user) != bool(remote.proxy_password):
        reader.error(value, "proxy username and password must both be specified or both be empty")
    schemes = [url.partition("://")[0] for url in remote.urls]
    if "wss" in schemes and remote.tls is None:
        reader.error(value, "a proxy and a wss URL need a TLS configuration: add `tls`")


def _credentials(reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions) -> None:
    found = reader.string(key, value)
    if found is None:
        return
    path = os.path.expandvars(found)
    if path.startswith("~"):
        path = os.path.join(os.path.expanduser("~"), path[1:].lstrip("/"))
    target.credentials = path


def _seed(reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions) -> None:
    found = reader.string(key, value)
    if found is None:
        return
    try:
        kind, _ = decode_seed(found)
    except NKeyError:
        kind = ""
    if kind != "U":
        reader.error(value, "Remote leafnode nkey is not a valid user seed: it must begin with SU")
        return
    target.nkey = found


def _rate(
    reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions | LeafOptions
) -> None:
    found = reader.storage_size(key, value)
    if found is not None and found != 0 and not RATE_LEAST <= found <= RATE_MOST:
        reader.error(
            value, f'"{key}" must be 0, or {RATE_LEAST} to {RATE_MOST} bytes a second, not {found}'
        )
    elif found is not None:
        target.rate = found


def _hub_pins(reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions) -> None:
    target.hub_pins = pins(reader, key, value)


def _migrate(reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions) -> None:
    if isinstance(value.data, bool):
        target.jetstream_cluster_migrate = value.data
    elif isinstance(value.data, dict):
        target.jetstream_cluster_migrate = True
        reader.members(value.data, _MIGRATE_FIELDS, target)
    else:
        reader.wrong_type(key, value, "a boolean or a map")


def _proxy(reader: ConfigReader, key: str, value: Value, target: LeafRemoteOptions) -> None:
    reader.section(key, value, _PROXY_FIELDS, target)


_LISTENER: dict[str, Field] = {
    "listen": listen(),
    "port": port("port"),
    **keys("host net", text("host")),
    "write_deadline": lenient_duration("write_deadline"),
    "write_timeout": choice("write_timeout", WRITE_POLICIES),
}
_COMPRESSION_FIELDS = Section(
    "compression",
    {
        "mode": text("mode"),
        **keys("rtt_thresholds thresholds rtts rtt", _thresholds),
    },
)
_CLUSTER_FIELDS = Section(
    "cluster",
    {
        **_LISTENER,
        "name": name_without_spaces("name"),
        "authorization": link_authorization,
        "routes": urls("routes"),
        "tls": tls("tls", link=True),
        **keys("cluster_advertise advertise", text("advertise")),
        "no_advertise": boolean("no_advertise"),
        "connect_retries": integer("connect_retries"),
        "connect_backoff": boolean("connect_backoff"),
        "permissions": permissions("permissions"),
        "pool_size": integer("pool_size"),
        "accounts": strings("accounts"),
        "compression": _compression("s2_fast"),
        "ping_interval": lenient_duration("ping_interval"),
        "ping_max": integer("ping_max"),
    },
)
_REMOTE_GATEWAY_FIELDS = Section(
    "gateway.gateways",
    {
        "name": text("name"),
        "tls": tls("tls", link=True),
        "url": _single_url,
        "urls": urls("urls"),
    },
)
_GATEWAY_FIELDS = Section(
    "gateway",
    {
        **_LISTENER,
        "name": name_without_spaces("name"),
        "authorization": link_authorization,
        "tls": tls("tls", link=True),
        "advertise": text("advertise"),
        "connect_retries": integer("connect_retries"),
        "connect_backoff": boolean("connect_backoff"),
        "gateways": _gateways,
        **keys("reject_unknown reject_unknown_cluster", boolean("reject_unknown")),
    },
)
_LEAF_FIELDS = Section(
    "leafnodes",
    {
        **_LISTENER,
        "authorization": leaf_authorization,
        "remotes": _remotes,
        **keys("reconnect reconnect_delay reconnect_interval", lenient_duration("reconnect")),
        "dial_timeout": lenient_duration("dial_timeout"),
        "tls": tls("tls"),
        **keys("leafnode_advertise advertise", text("advertise")),
        "no_advertise": boolean("no_advertise"),
        **keys("min_version minimum_version", _min_version),
        "compression": _compression("s2_auto"),
        **keys("isolate_leafnode_interest isolate", boolean("isolate_interest")),
        "rate": _rate,
    },
)
_MIGRATE_FIELDS = Section(
    "remotes.migrate",
    {
        "leader_migrate_delay": lenient_duration("jetstream_cluster_migrate_delay"),
    },
)
_PROXY_FIELDS = Section(
    "remotes.proxy",
    {
        "url": text("proxy_url"),
        "username": text("proxy_user"),
        "password": text("proxy_password"),
        "timeout": lenient_duration("proxy_timeout"),
    },
)
_REMOTE_FIELDS = Section(
    "remotes",
    {
        **keys("no_randomize dont_randomize", boolean("no_randomize")),
        **keys("url urls", _url_or_urls),
        **keys("account local", text("account")),
        **keys("creds credentials", _credentials),
        **keys("nkey seed", _seed),
        "tls": tls("tls", solicited=True),
        "hub": boolean("hub"),
        **keys("deny_imports deny_import", subjects("deny_imports")),
        **keys("deny_exports deny_export", subjects("deny_exports")),
        **keys(
            "ws_compress ws_compression websocket_compress websocket_compression",
            boolean("websocket_compression"),
        ),
        **keys("ws_no_masking websocket_no_masking", boolean("websocket_no_masking")),
        **keys("jetstream_cluster_migrate js_cluster_migrate", _migrate),
        **keys("isolate_leafnode_interest isolate", boolean("local_isolation")),
        "request_isolation": boolean("request_isolation"),
        "compression": _compression("s2_auto"),
        "first_info_timeout": lenient_duration("first_info_timeout"),
        "dial_timeout": lenient_duration("dial_timeout"),
        "disabled": boolean("disabled"),
        "proxy": _proxy,
        "ignore_discovered_servers": boolean("ignore_discovered_servers"),
        "hub_pins": _hub_pins,
        "rate": _rate,
        "insecure_discovery": boolean("insecure_discovery"),
    },
)
