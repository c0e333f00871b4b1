"""Configuration documents to `Options`, with everything that is wrong reported at once."""

import hashlib
import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from headwater.edge.conf.account_section import accounts, global_mappings
from headwater.edge.conf.auth_section import authorization
from headwater.edge.conf.grammar import Value, parse_file, parse_text
from headwater.edge.conf.jetstream_section import jetstream, size_at_least_zero, store_dir
from headwater.edge.conf.link_section import WRITE_POLICIES, cluster, gateway, leafnodes
from headwater.edge.conf.listener_section import mqtt, websocket
from headwater.edge.conf.operator_section import (
    operators,
    pinned_accounts,
    preload,
    resolver,
    trusted_keys,
)
from headwater.edge.conf.options import (
    MAX_DELAY_LIMIT,
    SEGMENT_BYTES_RANGE,
    HeadwaterOptions,
    KeySourceOptions,
    OCSPCacheOptions,
    Options,
    ProxyOptions,
    SealingOptions,
)
from headwater.edge.conf.problems import Problems
from headwater.edge.conf.quantities import format_duration
from headwater.edge.conf.reader import (
    MAX_INT32,
    ConfigReader,
    Field,
    Section,
    boolean,
    choice,
    ignored,
    integer,
    keys,
    lenient_duration,
    listen,
    name_without_spaces,
    port,
    seconds,
    text,
    text_map,
)
from headwater.edge.conf.tls_section import tls
from headwater.edge.conf.users import check_users
from headwater.security.nkeys import is_public_key

MIN_LAME_DUCK = 30.0
"""Seconds."""

MAX_SUBSCRIPTION_TOKENS = 255

_OCSP_MODES = ("auto", "always", "must", "never")


class Loaded:
    """Result of a load: the options, and warnings that a person should see."""

    __slots__ = ("options", "warnings")

    def __init__(self, options: Options, warnings: list[str]) -> None:
        self.options = options
        self.warnings = warnings


def load_file(path: str | os.PathLike[str]) -> Loaded:
    """Options of a configuration file. Raises ConfigError with all problems."""
    document = parse_file(path)
    loaded = _load(document, os.fspath(path))
    loaded.options.config_file = os.fspath(path)
    return loaded


def load_text(configuration: str) -> Loaded:
    """Options of a configuration text. Raises ConfigError with all problems."""
    return _load(parse_text(configuration), "")


def digest(document: Value) -> str:
    """ "sha256:<hex>" of a document's values, independent of their order and layout."""
    encoded = msgspec.json.encode(_canonical(document.plain()), order="sorted")
    for char in (b"<", b">", b"&"):
        encoded = encoded.replace(char, b"\\u%04x" % char[0])
    return "sha256:" + hashlib.sha256(encoded + b"\n").hexdigest()


def _load(document: Value, name: str) -> Loaded:
    problems = Problems()
    reader = ConfigReader(problems)
    options = Options()
    members = reader.map(name, document) or {}
    if not members:
        problems.warning(None, f"{name}: config has no values or is empty")
    reader.members(members, _FIELDS, options)
    if not problems.errors:
        check_users(reader, document, options)
    problems.raise_if_any()
    options.config_digest = digest(document)
    options.defined_at = dict(_definitions(document, ""))
    return Loaded(options, problems.warnings)


_BLOCKS = {"leaf": "leafnodes", "ws": "websocket", "operators": "operator"}
"""Other names of keys that are spoken of by one."""


def _definitions(value: Value, outer: str) -> Iterator[tuple[str, str]]:
    """(key with the blocks around it, where it stands) of every key; the first one comes last."""
    if isinstance(value.data, dict):
        for key, member in reversed(value.data.items()):
            name = outer + _BLOCKS.get(key.lower(), key.lower())
            yield from _definitions(member, f"{name}.")
            yield name, str(member.position)
    elif isinstance(value.data, list):
        for item in reversed(value.data):
            yield from _definitions(item, outer)


def _canonical(data: Any) -> Any:
    """Plain data in the form in which it is digested: whole floats as integers, clean text."""
    if isinstance(data, dict):
        return {_clean(key): _canonical(item) for key, item in data.items()}
    if isinstance(data, list):
        return [_canonical(item) for item in data]
    if isinstance(data, float) and data.is_integer() and abs(data) < 1e21:
        return int(data)
    if isinstance(data, str):
        return _clean(data)
    if isinstance(data, datetime):
        return data.strftime("%Y-%m-%dT%H:%M:%SZ")
    return data


def _clean(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _max_connections(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = reader.integer(key, value)
    if found is not None:
        options.max_connections = found or -1


def _server_tags(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Tags in small letters, each once, as nats-server keeps them."""
    found = reader.strings(key, value)
    if found is not None:
        tags = [tag.strip().lower() for tag in found]
        options.server_tags = list(dict.fromkeys(tag for tag in tags if tag))


def _trace(attribute: str) -> Field:
    """Field of a kind of tracing, which turns plain tracing on and off with it."""

    def field(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
        found = reader.boolean(key, value)
        if found is not None:
            setattr(options, attribute, found)
            options.trace = found

    return field


def _lame_duck_duration(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = reader.duration(key, value)
    if found is not None and found < MIN_LAME_DUCK:
        reader.error(
            value,
            f"invalid lame_duck_duration of {format_duration(found)}, minimum is 30 seconds",
        )
    elif found is not None:
        options.lame_duck_duration = found


def _lame_duck_grace(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = reader.duration(key, value)
    if found is not None and found < 0:
        reader.error(value, "invalid lame_duck_grace_period: it needs to be positive")
    elif found is not None:
        options.lame_duck_grace = found


def _max_sub_tokens(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = reader.integer(key, value)
    if found is not None and found > MAX_SUBSCRIPTION_TOKENS:
        reader.error(value, f"{key} value is too big: use {MAX_INT32} at most")
    elif found is not None and found <= 0:
        reader.error(value, f"{key} value can not be negative: use 0 or more")
    elif found is not None:
        options.max_subscription_tokens = found


def _feature_flags(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = {}
    for name, item in (reader.map(key, value) or {}).items():
        flag = reader.boolean(name, item)
        if flag is not None:
            found[name] = flag
    options.feature_flags = found


def _ocsp(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    if isinstance(value.data, bool):
        options.ocsp_mode = "auto" if value.data else "never"
        return
    options.ocsp_mode = "auto"
    reader.section(key, value, _OCSP_FIELDS, options)


def _ocsp_mode(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = reader.string(key, value)
    if found is not None and found.lower() not in _OCSP_MODES:
        reader.error(
            value,
            f'error parsing ocsp config: unsupported ocsp mode "{found}": '
            f'use one of {", ".join(_OCSP_MODES)}',
        )
    elif found is not None:
        options.ocsp_mode = found.lower()


def _ocsp_urls(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    items = [value] if isinstance(value.data, str) else reader.array(key, value) or []
    found = []
    for item in items:
        url = reader.string(key, item)
        if url is not None and not url.startswith(("http://", "https://")):
            reader.error(
                item,
                f"error parsing ocsp config: {url!r} is no URL of HTTP: "
                "write http://host/path",
            )
        elif url is not None:
            found.append(url)
    options.ocsp_urls = found


def _ocsp_cache(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    cache = options.ocsp_cache = OCSPCacheOptions()
    if isinstance(value.data, bool):
        cache.kind = "local" if value.data else "none"
        return
    reader.section(key, value, _OCSP_CACHE_FIELDS, cache)
    if cache.kind not in ("local", "none"):
        reader.error(value, f"unsupported OCSP cache type {cache.kind!r}, use local or none")


def _proxies(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    options.proxies = ProxyOptions()
    reader.section(key, value, _PROXIES_FIELDS, options.proxies)


def _trusted_proxies(reader: ConfigReader, key: str, value: Value, target: ProxyOptions) -> None:
    for item in reader.array(key, value) or []:
        reader.section(key, item, _PROXY_FIELDS, target)


def _proxy_key(reader: ConfigReader, key: str, value: Value, target: ProxyOptions) -> None:
    found = reader.string(key, value)
    if found is not None and not is_public_key(found):
        reader.error(value, f'invalid proxy key "{found}": it must be a public nkey of a user')
    elif found is not None:
        target.trusted = [*target.trusted, found]


def _headwater(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    reader.section(key, value, _HEADWATER_FIELDS, options.headwater)


def _discovery(reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions) -> None:
    if isinstance(value.data, bool):
        target.discovery = value.data
        return
    target.discovery = True
    reader.section(key, value, _DISCOVERY_FIELDS, target)


def _fleet(reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions) -> None:
    reader.section(key, value, _FLEET_FIELDS, target)
    if not target.fleet_account or not target.fleet_signing_key:
        reader.error(value, f'"{key}" needs account and signing_key')


def _scrub(reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions) -> None:
    if value.data is False:
        target.scrub_rate = 0
    elif value.data is not True:
        reader.section(key, value, _SCRUB_FIELDS, target)


def _sealing(reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions) -> None:
    target.sealing = SealingOptions()
    reader.section(key, value, _SEALING_FIELDS, target.sealing)


def _previous_keys(reader: ConfigReader, key: str, value: Value, target: SealingOptions) -> None:
    for item in reader.array(key, value) or []:
        source = KeySourceOptions()
        reader.section(key, item, _KEY_SOURCE_FIELDS, source)
        target.previous = [*target.previous, source]


_PROXIES_FIELDS = Section("proxies", {"trusted": _trusted_proxies})
_PROXY_FIELDS = Section("proxies.trusted", keys("key public_key", _proxy_key))
_OCSP_FIELDS = Section("ocsp", {"mode": _ocsp_mode, **keys("url urls", _ocsp_urls)})
_OCSP_CACHE_FIELDS = Section(
    "ocsp_cache",
    {
        "type": text("kind"),
        "local_store": text("local_store"),
        "preserve_revoked": boolean("preserve_revoked"),
        "save_interval": ignored,
    },
)
_DISCOVERY_FIELDS = Section(
    "headwater.discovery",
    {
        "enabled": boolean("discovery"),
        "service": text("discovery_service"),
        "name": text("discovery_name"),
        "cluster": text("cluster_label"),
    },
)
_FLEET_FIELDS = Section(
    "headwater.fleet",
    {
        "account": text("fleet_account"),
        "signing_key": text("fleet_signing_key"),
    },
)


def _segment_bytes(
    reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions
) -> None:
    found = reader.storage_size(key, value)
    if found is None:
        return
    least, most = SEGMENT_BYTES_RANGE
    if found and not least <= found <= most:
        span = f"{least >> 10}K to {most >> 30}G"
        reader.error(value, f'"{key}" must be {span}, or 0 for the default')
        return
    target.commit_segment_bytes = found


def _max_delay(reader: ConfigReader, key: str, value: Value, target: HeadwaterOptions) -> None:
    found = reader.duration(key, value)
    if found is None:
        return
    if not 0 <= found <= MAX_DELAY_LIMIT:
        reader.error(value, f'"{key}" must be 0s to {MAX_DELAY_LIMIT:g}s')
        return
    target.commit_max_delay = found


_SCRUB_FIELDS = Section(
    "headwater.scrub",
    {
        "rate": size_at_least_zero("scrub_rate"),
        "pause": seconds("scrub_pause"),
    },
)
_KEY_SOURCE_FIELDS = Section(
    "headwater.sealing.previous",
    {
        "key_file": text("key_file"),
        "key_env": text("key_env"),
        "key_command": text("key_command"),
    },
)
_SEALING_FIELDS = Section(
    "headwater.sealing",
    {
        **_KEY_SOURCE_FIELDS,
        "cipher": choice("cipher", "chacha aes"),
        "previous": _previous_keys,
    },
)
_HEADWATER_FIELDS = Section(
    "headwater",
    {
        "durability": choice("durability", "fsync interval"),
        "profile": choice("profile", "edge"),
        "commit_segment_bytes": _segment_bytes,
        "commit_max_delay": _max_delay,
        "disk_budget": size_at_least_zero("disk_budget"),
        "max_streams": integer("max_streams", low=0),
        "max_consumers": integer("max_consumers", low=0),
        "discovery": _discovery,
        "fleet": _fleet,
        "scrub": _scrub,
        "sealing": _sealing,
    },
)
_FIELDS = Section(
    "",
    {
        "listen": listen(),
        "client_advertise": text("client_advertise"),
        "port": port("port"),
        "server_name": name_without_spaces("server_name"),
        **keys("host net", text("host")),
        "debug": boolean("debug"),
        "trace": boolean("trace"),
        "trace_verbose": _trace("trace_verbose"),
        "trace_headers": _trace("trace_headers"),
        "logtime": boolean("logtime"),
        "logtime_utc": boolean("logtime_utc"),
        **keys("mappings maps", global_mappings),
        **keys("disable_sublist_cache no_sublist_cache", boolean("no_sublist_cache")),
        "accounts": accounts,
        "default_sentinel": text("default_sentinel"),
        "authorization": authorization(),
        "http": listen("http_host", "http_port"),
        "https": listen("http_host", "https_port"),
        **keys("http_port monitor_port", port("http_port")),
        "https_port": port("https_port"),
        "http_base_path": text("http_base_path"),
        "cluster": cluster,
        "gateway": gateway,
        **keys("leaf leafnodes", leafnodes),
        **keys("store_dir storedir", store_dir),
        "jetstream": jetstream,
        **keys("logfile log_file", text("log_file")),
        **keys("logfile_size_limit log_size_limit", integer("log_size_limit")),
        **keys("logfile_max_num log_max_num", integer("log_max_files")),
        "syslog": boolean("syslog"),
        "remote_syslog": text("remote_syslog"),
        **keys("pidfile pid_file", text("pid_file")),
        "ports_file_dir": text("ports_file_dir"),
        "prof_port": integer("profile_port"),
        "prof_block_rate": integer("profile_block_rate"),
        "max_control_line": integer("max_control_line", high=MAX_INT32),
        "max_payload": integer("max_payload", high=MAX_INT32),
        "max_pending": integer("max_pending"),
        "proxy_protocol": boolean("proxy_protocol"),
        **keys("max_connections max_conn", _max_connections),
        "max_traced_msg_len": integer("max_traced_message"),
        **keys("max_subscriptions max_subs", integer("max_subscriptions")),
        **keys("max_sub_tokens max_subscription_tokens", _max_sub_tokens),
        "ping_interval": lenient_duration("ping_interval"),
        "ping_max": integer("ping_max"),
        "tls": tls("tls"),
        "ocsp": _ocsp,
        "allow_non_tls": boolean("allow_non_tls"),
        "write_deadline": lenient_duration("write_deadline"),
        "write_timeout": choice("write_timeout", WRITE_POLICIES),
        "lame_duck_duration": _lame_duck_duration,
        "lame_duck_grace_period": _lame_duck_grace,
        **keys("operator operators roots root root_operators root_operator", operators),
        **keys("resolver account_resolver accounts_resolver", resolver),
        "resolver_tls": tls("resolver_tls"),
        "resolver_preload": preload,
        "resolver_pinned_accounts": pinned_accounts,
        "no_auth_user": text("no_auth_user"),
        **keys("system_account system", text("system_account")),
        **keys("no_system_account no_system no_sys_acc", boolean("no_system_account")),
        "no_header_support": boolean("no_header_support"),
        **keys("trusted trusted_keys", trusted_keys),
        "connect_error_reports": integer("connect_error_reports"),
        "reconnect_error_reports": integer("reconnect_error_reports"),
        **keys("websocket ws", websocket),
        "mqtt": mqtt,
        "server_tags": _server_tags,
        "server_metadata": text_map("server_metadata"),
        "feature_flags": _feature_flags,
        "default_js_domain": text_map("default_js_domain"),
        "ocsp_cache": _ocsp_cache,
        "no_fast_producer_stall": boolean("no_fast_producer_stall"),
        "max_closed_clients": integer("max_closed_clients"),
        "proxies": _proxies,
        "headwater": _headwater,
    },
)
