"""Reads the `accounts` block: users, limits, mappings and JetStream of each account."""

from typing import Any

from headwater.edge.conf.auth_section import apply_default_permissions, permissions, read_users
from headwater.edge.conf.grammar import Value
from headwater.edge.conf.jetstream_section import read_switch
from headwater.edge.conf.options import (
    AccountJetStreamOptions,
    AccountOptions,
    MappingDestination,
    MappingOptions,
    Options,
)
from headwater.edge.conf.reader import (
    MAX_INT32,
    ConfigReader,
    Section,
    boolean,
    choice,
    integer,
    keys,
)
from headwater.edge.conf.shares.share_section import check_shares, exports, imports
from headwater.security.auth_options import GLOBAL_ACCOUNT
from headwater.security.nkeys import is_public_key
from headwater.security.subjects import is_valid_publish_subject, is_valid_subject

FULL_WEIGHT = 100
"""Percent."""

NAME_MAX = 255
"""Characters of an account's name."""


def accounts(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of the `accounts` block: an array of names, or a map of names and accounts."""
    if isinstance(value.data, list):
        _account_names(reader, key, value, options)
        return
    members = reader.map(key, value) or {}
    found = dict(options.accounts)
    for name, item in members.items():
        if item.used:
            continue
        if name == GLOBAL_ACCOUNT:
            reader.error(item, f'"{name}" is a Reserved Account: choose another name')
            continue
        _check_name(reader, item, name)
        account = AccountOptions(name=name)
        if reader.section(name, item, _FIELDS, account):
            apply_default_permissions(account.users, account.default_permissions)
            found[name] = account
    options.accounts = found
    check_shares(reader, value, options.accounts)


def global_mappings(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    """Field of top-level subject mappings, which are the global account's."""
    options.mappings = read_mappings(reader, key, value)


def read_mappings(reader: ConfigReader, key: str, value: Value) -> list[MappingOptions]:
    """Subject mappings: source to a destination, a weighted one, or several of these."""
    found = []
    for source, item in (reader.map(key, value) or {}).items():
        if not is_valid_subject(source):
            reader.error(item, f'Subject "{source}" is not a valid subject: correct it')
            continue
        if isinstance(item.data, str):
            destinations = [MappingDestination(subject=item.data)]
        elif isinstance(item.data, list):
            destinations = _destinations(reader, source, item.data)
        else:
            destinations = _destinations(reader, source, [item])
        _check_destinations(reader, item, source, destinations)
        found.append(MappingOptions(source=source, destinations=destinations))
    return found


def _destinations(reader: ConfigReader, key: str, items: list[Value]) -> list[MappingDestination]:
    found = []
    for item in items:
        destination = MappingDestination(subject="", weight=-1)
        if not reader.section(key, item, _DESTINATION_FIELDS, destination):
            continue
        if destination.weight < 0:
            reader.error(
                item,
                f'Missing weight for mapping destination "{destination.subject}": '
                'add one',
            )
            continue
        found.append(destination)
    return found


def _check_destinations(
    reader: ConfigReader, value: Value, source: str, destinations: list[MappingDestination]
) -> None:
    totals: dict[str, int] = {}
    seen: set[tuple[str, str]] = set()
    for destination in destinations:
        identity = (destination.subject, destination.cluster)
        if identity in seen:
            reader.error(value, f'duplicate entry for "{destination.subject}": remove one')
        seen.add(identity)
        total = totals.get(destination.cluster, 0) + destination.weight
        totals[destination.cluster] = total
        _check_transform(reader, value, source, destination.subject)
    if any(total > FULL_WEIGHT for total in totals.values()):
        reader.error(value, "total weight of the destinations needs to be <= 100: lower one")


def _check_transform(reader: ConfigReader, value: Value, source: str, destination: str) -> None:
    # Compiled code that a node without mappings need not load to read its configuration.
    from headwater.edge.subjects.transform import TransformError, transform

    try:
        transform(source, destination)
    except TransformError as error:
        reader.error(value, f'Error adding mapping for "{source}" to "{destination}": {error}')


def _weight(reader: ConfigReader, key: str, value: Value, target: MappingDestination) -> None:
    weight = read_percent(reader, key, value)
    if weight is not None and 0 <= weight <= FULL_WEIGHT:
        target.weight = weight
    elif weight is not None:
        reader.error(value, f"Invalid weight {weight} for mapping destination: use 0 to 100")


def read_percent(reader: ConfigReader, key: str, value: Value) -> int | None:
    """A percentage as an integer or as a text such as "25%"."""
    if not isinstance(value.data, str):
        return reader.integer(key, value)
    digits = value.data.removesuffix("%")
    if not digits.lstrip("+-").isdigit() or len(digits) > 9:
        reader.error(value, f'Invalid "{key}": {value.data!r} is not a percentage: use 0% to 100%')
        return None
    return int(digits)


def _account_names(reader: ConfigReader, key: str, value: Value, options: Options) -> None:
    found = dict(options.accounts)
    names: set[str] = set()
    for item in reader.array(key, value) or []:
        name = reader.string(key, item)
        if name is None:
            continue
        if name == GLOBAL_ACCOUNT:
            reader.error(item, f'"{name}" is a Reserved Account: choose another name')
        elif name in names:
            reader.error(item, f"Duplicate Account Entry: {name}: remove one")
        _check_name(reader, item, name)
        names.add(name)
        found[name] = AccountOptions(name=name)
    options.accounts = found


def _check_name(reader: ConfigReader, value: Value, name: str) -> None:
    """Refuse a name that would forge or widen the subjects and lines in which it stands."""
    if len(name) > NAME_MAX or not is_valid_publish_subject(name) or not name.isprintable():
        reader.error(
            value,
            f"account name {name!r} must be a subject of at most {NAME_MAX} printable characters, "
            "without spaces and wildcards",
        )


def _nkey(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    found = reader.string(key, value)
    if found is not None and not is_public_key(found, "A"):
        reader.error(value, f'Not a valid public nkey for an account: "{found}"')
    elif found is not None:
        target.nkey = found


def _users(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    target.users = read_users(reader, key, value, target.name)


def _mappings(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    target.mappings = read_mappings(reader, key, value)


def _limits(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    reader.section(key, value, _LIMIT_FIELDS, target)


def _jetstream(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    enabled = read_switch(reader, key, value)
    if enabled is not None:
        target.jetstream = AccountJetStreamOptions() if enabled else None
    elif isinstance(value.data, dict):
        target.jetstream = AccountJetStreamOptions()
        reader.members(value.data, _JETSTREAM_FIELDS, target.jetstream)


def _trace(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    if isinstance(value.data, str):
        _trace_destination(reader, key, value, target)
    else:
        reader.section(key, value, _TRACE_FIELDS, target)
    if target.trace_destination and not target.trace_sampling:
        target.trace_sampling = FULL_WEIGHT
    elif target.trace_sampling and not target.trace_destination:
        reader.warning(value, "Trace destination sampling ignored since no destination was set")
        target.trace_sampling = 0


def _trace_destination(
    reader: ConfigReader, key: str, value: Value, target: AccountOptions
) -> None:
    found = reader.string(key, value)
    if found is not None and not is_valid_publish_subject(found):
        reader.error(
            value,
            f'Trace destination "{found}" is not valid: '
            'name a subject without wildcards',
        )
    elif found is not None:
        target.trace_destination = found


def _trace_sampling(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    found = read_percent(reader, key, value)
    if found is not None and not 1 <= found <= FULL_WEIGHT:
        reader.error(value, f"trace sampling {found} is invalid, needs to be [1..100]")
    elif found is not None:
        target.trace_sampling = found


def _destination(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    target.subject = reader.string(key, value) or ""


def _cluster(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    target.cluster = reader.string(key, value) or ""


_DESTINATION_FIELDS = Section(
    "mappings",
    {
        **keys("dest destination", _destination),
        "weight": _weight,
        "cluster": _cluster,
    },
)
_LIMIT_FIELDS = Section(
    "accounts.limits",
    {
        **keys("max_connections max_conn", integer("max_connections", high=MAX_INT32)),
        **keys("max_subscriptions max_subs", integer("max_subscriptions", high=MAX_INT32)),
        **keys("max_payload max_pay", integer("max_payload", high=MAX_INT32)),
        **keys("max_leafnodes max_leafs", integer("max_leafnodes", high=MAX_INT32)),
    },
)
_JETSTREAM_FIELDS = Section(
    "accounts.jetstream",
    {
        **keys("max_memory max_mem mem memory", integer("max_memory")),
        **keys("max_store max_file max_disk store disk", integer("max_store")),
        **keys("max_streams streams", integer("max_streams")),
        **keys("max_consumers consumers", integer("max_consumers")),
        **keys("max_bytes_required max_stream_bytes max_bytes", boolean("max_bytes_required")),
        **keys("mem_max_stream_bytes memory_max_stream_bytes", integer("memory_max_stream_bytes")),
        **keys("disk_max_stream_bytes store_max_stream_bytes", integer("store_max_stream_bytes")),
        "max_ack_pending": integer("max_ack_pending"),
        "cluster_traffic": choice("cluster_traffic", "system owner"),
    },
)
_TRACE_FIELDS = Section("accounts.trace", {"dest": _trace_destination, "sampling": _trace_sampling})
_FIELDS = Section(
    "accounts",
    {
        "nkey": _nkey,
        "imports": imports,
        "exports": exports,
        "jetstream": _jetstream,
        "users": _users,
        "default_permissions": permissions("default_permissions"),
        **keys("mappings maps", _mappings),
        "limits": _limits,
        **keys("msg_trace trace_dest", _trace),
    },
)
