"""Reads `authorization` blocks, users, permissions and auth callout."""

from typing import Any

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import (
    AuthCalloutOptions,
    AuthOptions,
    PermissionOptions,
    ResponseRules,
    SubjectRules,
    UserOptions,
)
from headwater.edge.conf.reader import ConfigReader, Field, Section, boolean, keys, text
from headwater.security.identity import CONNECTION_TYPES
from headwater.security.nkeys import is_public_key
from headwater.security.subjects import is_valid_subject

LONG_TIMEOUT = 60.0
"""Seconds of an authorization timeout above which a unit was probably forgotten."""


def authorization(attribute: str = "auth") -> Field:
    """Field of a full `authorization` block."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        auth = read_authorization(reader, key, value)
        if auth is not None:
            setattr(target, attribute, auth)

    return field


def read_authorization(reader: ConfigReader, key: str, value: Value) -> AuthOptions | None:
    """An `authorization` block with default permissions applied to its users."""
    auth = AuthOptions()
    if not reader.section(key, value, _FIELDS, auth):
        return None
    if (auth.user or auth.password) and auth.token:
        reader.error(value, "Cannot have a user/pass and token: remove one of them")
    apply_default_permissions(auth.users, auth.default_permissions)
    return auth


def simple_authorization(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    """Field of the single-user block of WebSocket and MQTT listeners."""
    auth = AuthOptions()
    if reader.section(key, value, _SIMPLE_FIELDS, auth):
        target.authorization = auth


def link_authorization(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    """Field of the block of routes and gateways: a single user and nothing else."""
    auth = read_authorization(reader, key, value)
    if auth is None:
        return
    named = isinstance(value.data, dict) and any(name.lower() == "users" for name in value.data)
    if auth.users or named:
        reader.error(
            value,
            "authorization does not allow multiple users here: "
            "use user and password",
        )
    if auth.token:
        reader.error(value, "authorization does not support tokens here: use user and password")
    if auth.callout is not None:
        reader.error(value, "authorization does not support callouts here: remove auth_callout")
    if auth.default_permissions is not None and hasattr(target, "permissions"):
        reader.warning(value, '"permissions" within cluster authorization block is deprecated')
        if target.permissions is None:
            target.permissions = auth.default_permissions
    target.authorization = auth


def leaf_authorization(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    """Field of the block of leaf listeners."""
    auth = AuthOptions()
    if not reader.section(key, value, _LEAF_FIELDS, auth):
        return
    if auth.users and auth.user:
        reader.error(value, "can not have a single user/pass and a users array: remove one of them")
    if auth.users and auth.nkey:
        reader.error(value, "can not have a single nkey and a users array: remove one of them")
    seen: set[str] = set()
    for user in auth.users:
        if user.user in seen:
            reader.error(
                value,
                f'duplicate user "{user.user}" detected in leafnode authorization: '
                'remove one',
            )
        seen.add(user.user)
    target.authorization = auth


def apply_default_permissions(
    users: list[UserOptions], permissions: PermissionOptions | None
) -> None:
    """Give `permissions` to every user that has none."""
    if permissions is not None:
        for user in users:
            if user.permissions is None:
                user.permissions = permissions


def read_users(
    reader: ConfigReader, key: str, value: Value, account: str = ""
) -> list[UserOptions]:
    """An array of users of `account`."""
    users = []
    for item in reader.array(key, value) or []:
        user = UserOptions(account=account)
        if not reader.section(key, item, _USER_FIELDS, user):
            continue
        if user.nkey:
            if not is_public_key(user.nkey, "U"):
                reader.error(item, "Not a valid public nkey for a user: it must begin with U")
            if user.user or user.password:
                reader.error(item, "Nkey users do not take usernames or passwords: remove them")
        elif not user.user:
            reader.error(item, "User entry requires a user: add user or nkey")
        users.append(user)
    return users


def permissions(attribute: str) -> Field:
    """Field of a permissions map."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = PermissionOptions()
        if reader.section(key, value, _PERMISSION_FIELDS, found):
            setattr(target, attribute, found)

    return field


def read_subjects(
    reader: ConfigReader, key: str, value: Value, with_queue: bool = False
) -> list[str] | None:
    """A subject, or an array of them, each optionally followed by a queue pattern."""
    found = reader.strings(key, value)
    for subject in found or []:
        words = subject.split()
        queued = with_queue and len(words) == 2 and all(map(is_valid_subject, words))
        if not queued and not is_valid_subject(subject):
            reader.error(value, f'subject "{subject}" is not a valid subject: correct it')
    return found


def subjects(attribute: str) -> Field:
    """Field of a subject or an array of subjects."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = read_subjects(reader, key, value)
        if found is not None:
            setattr(target, attribute, found)

    return field


def _rules(attribute: str, with_queue: bool) -> Field:
    """Field of subject rules: a list of allowed subjects, or a map of allow and deny."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        rules = SubjectRules()
        if not isinstance(value.data, dict):
            rules.allow = read_subjects(reader, key, value, with_queue) or None
        elif not value.data:
            return
        for name, item in value.data.items() if isinstance(value.data, dict) else ():
            if name.lower() == "allow":
                rules.allow = read_subjects(reader, name, item, with_queue) or None
            elif name.lower() == "deny":
                rules.deny = read_subjects(reader, name, item, with_queue) or []
            elif not item.used:
                reader.unknown(name, item, ("allow", "deny"))
        setattr(target, attribute, rules)

    return field


def _responses(reader: ConfigReader, key: str, value: Value, target: PermissionOptions) -> None:
    if isinstance(value.data, bool):
        target.allow_responses = ResponseRules() if value.data else None
        return
    if not isinstance(value.data, dict):
        reader.wrong_type(key, value, "a boolean or a map")
        return
    rules = ResponseRules()
    reader.members(value.data, _RESPONSE_FIELDS, rules)
    target.allow_responses = rules


def _response_count(reader: ConfigReader, key: str, value: Value, target: ResponseRules) -> None:
    count = reader.integer(key, value)
    target.max_messages = count or target.max_messages


def _response_time(reader: ConfigReader, key: str, value: Value, target: ResponseRules) -> None:
    expires = reader.duration(key, value)
    target.expires = expires or target.expires


def _connection_types(reader: ConfigReader, key: str, value: Value, target: UserOptions) -> None:
    types = []
    for name in reader.strings(key, value) or []:
        if name.upper() in CONNECTION_TYPES:
            types.append(name.upper())
        else:
            listed = ", ".join(sorted(CONNECTION_TYPES))
            reader.error(value, f'"{key}": unknown type "{name}": use {listed}')
    target.allowed_connection_types = types


def _users(reader: ConfigReader, key: str, value: Value, target: AuthOptions) -> None:
    target.users = read_users(reader, key, value)


def _leaf_users(reader: ConfigReader, key: str, value: Value, target: AuthOptions) -> None:
    users = []
    for item in reader.array(key, value) or []:
        user = UserOptions()
        if reader.section(key, item, _LEAF_USER_FIELDS, user):
            users.append(user)
    target.users = users


def _leaf_nkey(reader: ConfigReader, key: str, value: Value, target: AuthOptions) -> None:
    found = reader.string(key, value)
    if found is None:
        return
    if not is_public_key(found, "U"):
        reader.error(
            value,
            "Not a valid public nkey for leafnode authorization: "
            "it must begin with U",
        )
    target.nkey = found


def _timeout(reader: ConfigReader, key: str, value: Value, target: AuthOptions) -> None:
    found = reader.seconds(key, value)
    if found is None:
        return
    if found > LONG_TIMEOUT:
        reader.warning(
            value,
            f"timeout of {found:g} seconds is high, consider keeping it under 60 seconds; "
            "write '1m' in quotes for a minute, as 1m alone is a million",
        )
    target.timeout = found


def _callout(reader: ConfigReader, key: str, value: Value, target: AuthOptions) -> None:
    callout = AuthCalloutOptions()
    if not reader.section(key, value, _CALLOUT_FIELDS, callout):
        return
    if not callout.issuer:
        reader.error(value, "Authorization callouts require an issuer to be specified")
    elif not is_public_key(callout.issuer, "A"):
        reader.error(value, "the issuer of a callout must be a public account nkey")
    if callout.xkey and not is_public_key(callout.xkey, "X"):
        reader.error(value, "the xkey of a callout must be a public curve key")
    if not callout.auth_users:
        reader.error(value, "Authorization callouts require authorized users to be specified")
    target.callout = callout


def _string_array(attribute: str) -> Field:
    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        if reader.array(key, value) is not None:
            setattr(target, attribute, reader.strings(key, value))

    return field


_USER = keys("user username", text("user"))
_PASSWORD = keys("pass password", text("password"))
_PROXY = {"proxy_required": boolean("proxy_required")}

_FIELDS = Section(
    "authorization",
    {
        **_USER,
        **_PASSWORD,
        **_PROXY,
        "token": text("token"),
        "timeout": _timeout,
        "users": _users,
        **keys(
            "default_permission default_permissions permissions", permissions("default_permissions")
        ),
        **keys("auth_callout auth_hook", _callout),
    },
)
_SIMPLE_FIELDS = Section(
    "listener.authorization",
    {
        **_USER,
        **_PASSWORD,
        "token": text("token"),
        "timeout": _timeout,
    },
)
_LEAF_FIELDS = Section(
    "leafnodes.authorization",
    {
        **_USER,
        **_PASSWORD,
        **_PROXY,
        "nkey": _leaf_nkey,
        "timeout": _timeout,
        "users": _leaf_users,
        "account": text("account"),
    },
)
_LEAF_USER_FIELDS = Section(
    "leafnodes.authorization.users",
    {**_USER, **_PASSWORD, **_PROXY, "account": text("account")},
)
_USER_FIELDS = Section(
    "users",
    {
        **_USER,
        **_PASSWORD,
        **_PROXY,
        "nkey": text("nkey"),
        **keys("permission permissions authorization", permissions("permissions")),
        **keys("allowed_connection_types connection_types clients", _connection_types),
    },
)
_CALLOUT_FIELDS = Section(
    "auth_callout",
    {
        "issuer": text("issuer"),
        **keys("account acc", text("account")),
        **keys("auth_users users", _string_array("auth_users")),
        **keys("xkey key", text("xkey")),
        "allowed_accounts": _string_array("allowed_accounts"),
    },
)
_PERMISSION_FIELDS = Section(
    "permissions",
    {
        **keys("pub publish import", _rules("publish", with_queue=False)),
        **keys("sub subscribe export", _rules("subscribe", with_queue=True)),
        **keys("publish_allow_responses allow_responses", _responses),
    },
)
_RESPONSE_FIELDS = Section(
    "allow_responses",
    {
        **keys("max max_msgs max_messages max_responses", _response_count),
        **keys("expires expiration ttl", _response_time),
    },
)
