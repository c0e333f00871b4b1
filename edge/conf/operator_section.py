"""Reads operator mode: operators, trusted keys, the resolver and preloaded account tokens."""

import re

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import Options, ResolverOptions
from headwater.edge.conf.reader import (
    ConfigReader,
    Section,
    boolean,
    duration,
    integer,
    is_url,
    text,
)
from headwater.security.nkeys import is_public_key

_MEMORY = re.compile(r"mem(ory)?", re.IGNORECASE)
_URL = re.compile(r"URL\(\s*\"?([^\s\"]*)\"?\s*\)", re.IGNORECASE)
_RESOLVER_HINT = 'a resolver is MEM, URL("url") or a map with a type of full, cache or mem'


def operators(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of operator tokens: files, or the tokens themselves."""
    for item in reader.strings(key, value) or []:
        token = _operator_token(reader, value, item)
        if token:
            options.operator.operators = [*options.operator.operators, token]


def _operator_token(reader: ConfigReader, value: Value, item: str) -> str:
    """The verified token that `item` is, or is in the file that it names; empty after errors."""
    from headwater.security import jwt
    from headwater.security.errors import JWTError

    content = item
    if not item.startswith(jwt.TOKEN_PREFIX):
        try:
            with open(item, encoding="utf-8") as file:
                content = file.read(jwt.MAX_TOKEN_BYTES)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            reader.error(value, f"error parsing operator JWT: open {item}: {reason}")
            return ""
    try:
        token = jwt.token_in(content)
        jwt.decode_operator(token)
    except JWTError as error:
        reader.error(value, f"error parsing operator JWT: {error}")
        return ""
    return token


def trusted_keys(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of public operator keys."""
    for name in reader.strings(key, value) or []:
        if not is_public_key(name, "O"):
            reader.error(value, f'trust key "{name}" required to be a valid public operator nkey')
        options.operator.trusted_keys = [*options.operator.trusted_keys, name]


def resolver(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the source of account tokens."""
    found = ResolverOptions()
    if isinstance(value.data, dict):
        reader.members(value.data, _RESOLVER_FIELDS, found)
        _check_resolver(reader, value, found)
    elif isinstance(value.data, str):
        url = _URL.search(value.data)
        if _MEMORY.search(value.data):
            found.kind = "memory"
        elif url and is_url(url.group(1)):
            found.kind, found.url = "url", url.group(1)
        else:
            reader.error(value, _RESOLVER_HINT)
    else:
        reader.wrong_type(key, value, "a string or a map")
    options.operator.resolver = found


def preload(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of a map of account keys and their tokens."""
    from headwater.security import jwt
    from headwater.security.errors import JWTError

    members = reader.map(key, value) or {}
    tokens = {}
    for account, item in members.items():
        token = reader.string(account, item)
        if token is None:
            continue
        try:
            owner = jwt.decode_account(token).sub
        except JWTError as error:
            reader.error(item, f"invalid account JWT: {error}")
            continue
        if owner == account:
            tokens[account] = token
        else:
            reader.error(item, f"the token of {account} belongs to {owner}: put it under that key")
    options.operator.preload = tokens


def pinned_accounts(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the accounts that alone may connect."""
    options.operator.pinned_accounts = reader.strings(key, value) or []


def _check_resolver(reader: ConfigReader, value: Value, found: ResolverOptions) -> None:
    kind = {"mem": "memory"}.get(found.kind.lower(), found.kind.lower())
    found.kind = kind
    members = value.data if isinstance(value.data, dict) else {}
    if kind not in ("memory", "full", "cache"):
        reader.error(value, _RESOLVER_HINT)
        return
    if kind in ("full", "cache") and not found.directory:
        reader.error(value, "dir has no value and needs to be the path of a directory")
    if kind == "cache":
        for name in ("interval", "allow_delete", "hard_delete"):
            if name in members:
                reader.error(value, f"CACHE does not accept {name}: remove it")
    if kind == "full" and "ttl" in members:
        reader.error(value, "FULL does not accept ttl: remove it")
    if kind == "full" and found.hard_delete and not found.allow_delete:
        reader.error(
            value,
            "hard_delete has no effect without allow_delete: "
            "set it, or remove this",
        )


_RESOLVER_FIELDS = Section(
    "resolver",
    {
        "type": text("kind"),
        "dir": text("directory"),
        "limit": integer("limit"),
        "ttl": duration("ttl"),
        "interval": duration("interval"),
        "timeout": duration("timeout"),
        "allow_delete": boolean("allow_delete"),
        "hard_delete": boolean("hard_delete"),
    },
)
