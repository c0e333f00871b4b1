"""Reads what accounts share: `exports` and `imports`, and whether they fit together."""

from collections.abc import Callable, Iterator, Mapping, Set
from typing import TypeVar

from headwater.edge.conf.grammar import Value
from headwater.edge.conf.options import (
    AccountOptions,
    ExportOptions,
    ImportOptions,
    LatencyOptions,
)
from headwater.edge.conf.reader import (
    ConfigReader,
    Section,
    boolean,
    duration,
    integer,
    keys,
    strings,
    text,
)
from headwater.security.subjects import is_valid_publish_subject, is_valid_subject

T = TypeVar("T")
_RESPONSE_TYPES = {
    "single": "single",
    "singleton": "single",
    "stream": "stream",
    "chunk": "chunked",
    "chunked": "chunked",
}
_SERVICE_ONLY = (
    "response",
    "response_type",
    "threshold",
    "response_threshold",
    "response_max_time",
    "response_time",
    "latency",
    "allow_trace",
)


def _each(
    reader: ConfigReader, key: str, value: Value, fields: Section, make: Callable[[], T]
) -> Iterator[tuple[Value, T, dict[str, Value]]]:
    """Each entry of a list of exports or imports: where it stands, its options, and its members by
    their names in lower case."""
    for item in reader.array(key, value) or []:
        members = reader.map(key, item)
        if members is not None:
            options = make()
            reader.members(members, fields, options)
            yield item, options, {name.lower(): member for name, member in members.items()}


def exports(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    """Field of an account's exports."""
    found = []
    for item, export, lower in _each(reader, key, value, _EXPORT_FIELDS, ExportOptions):
        if "stream" in lower and "service" in lower:
            reader.error(item, "an export must be either a stream or a service: remove one")
        export.kind = "service" if "service" in lower else "stream"
        for name in _SERVICE_ONLY:
            if export.kind == "stream" and name in lower:
                reader.error(lower[name], f"Detected {name} directive on non-service: remove it")
        if "stream" in lower or "service" in lower:
            _check_export(reader, item, export)
            found.append(export)
    target.exports = _merged(found)


def _merged(exports: list[ExportOptions]) -> list[ExportOptions]:
    """Exports of one subject as one, as nats-server: what one of them keeps private is private, to
    the accounts of all; otherwise the last one counts."""
    found: dict[tuple[str, str], ExportOptions] = {}
    for export in exports:
        first = found.setdefault((export.kind, export.subject), export)
        if first is export:
            continue
        if export.accounts or export.account_token_position:
            first.account_token_position = export.account_token_position
            first.accounts += [one for one in export.accounts if one not in first.accounts]
        if export.response_type != "single":
            first.response_type = export.response_type
        first.threshold = export.threshold
        first.latency = export.latency or first.latency
        first.allow_trace = first.allow_trace or export.allow_trace
    return list(found.values())


def _check_latency(reader: ConfigReader, value: Value, export: ExportOptions) -> None:
    assert export.latency is not None
    wrong = ""
    if not is_valid_publish_subject(export.latency.subject):
        wrong = "invalid publish subject"
    elif export.response_type != "single":
        wrong = "bad service response type"
    if wrong:
        reader.error(
            value,
            f'Error adding service latency sampling for "{export.subject}" on subject '
            f'"{export.latency.subject}": {wrong}',
        )


def _check_export(reader: ConfigReader, value: Value, export: ExportOptions) -> None:
    if export.latency is not None:
        _check_latency(reader, value, export)
    if not is_valid_subject(export.subject):
        reader.error(
            value, f'Error adding {export.kind} export "{export.subject}": invalid subject'
        )
    position = export.account_token_position
    tokens = export.subject.split(".")
    if position and not (0 < position <= len(tokens) and tokens[position - 1] == "*"):
        reader.error(
            value,
            f'Error adding {export.kind} export "{export.subject}": account_token_position '
            f"{position} must be the position of a *",
        )


def imports(reader: ConfigReader, key: str, value: Value, target: AccountOptions) -> None:
    """Field of an account's imports."""
    found: list[ImportOptions] = []
    services: set[tuple[str, str]] = set()
    for item, entry, lower in _each(reader, key, value, _IMPORT_FIELDS, ImportOptions):
        if not lower.keys() & {"stream", "service"}:
            continue
        _check_import(reader, item, entry, lower.keys())
        entry.kind = "service" if "service" in lower else "stream"
        if entry.kind == "service":
            entry.to = entry.to or entry.subject
            if (entry.account, entry.to) in services:
                reader.error(item, f'Duplicate service import subject "{entry.to}": remove one')
            services.add((entry.account, entry.to))
        found.append(entry)
    target.imports = found


def _check_import(reader: ConfigReader, value: Value, entry: ImportOptions, keys: Set[str]) -> None:
    if {"stream", "service"} <= keys:
        reader.error(value, "an import must be either a stream or a service: remove one")
    if entry.prefix and entry.to and "stream" in keys:
        reader.error(value, "Stream import can not have a 'prefix' and a 'to' property: remove one")
    if "service" in keys and "allow_trace" in keys:
        reader.error(value, "Detected allow_trace directive on a non-stream: remove it")


def check_shares(
    reader: ConfigReader, value: Value, accounts: Mapping[str, AccountOptions]
) -> None:
    """Report exports and imports that name unknown accounts, and imports of nothing offered."""
    if reader.problems.errors:
        return
    offers = _finder(accounts)
    seen: set[tuple[str, str, str]] = set()
    for account in accounts.values():
        for export in account.exports:
            for name in export.accounts:
                if name not in accounts:
                    reader.error(value, f'"{name}" account not defined for {export.kind} export')
        for entry in account.imports:
            source = accounts.get(entry.account)
            if source is None:
                reader.error(
                    value, f'"{entry.account}" account not defined for {entry.kind} import'
                )
            elif not any(_offers(export, entry, account.name) for export in offers(entry)):
                reader.error(
                    value,
                    f'Error adding {entry.kind} import "{entry.subject}": '
                    f"{entry.kind} import not authorized",
                )
            elif (account.name, entry.account, entry.subject) in seen and entry.kind == "stream":
                reader.error(
                    value,
                    f'Error adding stream import "{entry.subject}": stream import already exists',
                )
            elif entry.kind == "stream":
                seen.add((account.name, entry.account, entry.subject))
    if not reader.problems.errors:
        _check_cycles(reader, value, accounts)
        _check_subjects(reader, value, accounts)


def _finder(
    accounts: Mapping[str, AccountOptions],
) -> Callable[[ImportOptions], list[ExportOptions]]:
    """Finds the exports that cover the subject of an import."""
    if not any(account.imports for account in accounts.values()):
        return lambda entry: []
    # Compiled code that a node without imports need not load to read its configuration.
    from headwater.edge.subjects.subject_tree import EVERY_STEP, Steps, SubjectTree

    trees: dict[tuple[str, str], SubjectTree] = {}
    for name, account in accounts.items():
        for place, export in enumerate(account.exports):
            tree = trees.setdefault((name, export.kind), SubjectTree())
            tree.put(export.subject, place, export)

    def found(entry: ImportOptions) -> list[ExportOptions]:
        tree = trees.get((entry.account, entry.kind))
        return list(tree.covering(entry.subject, Steps(EVERY_STEP)).values()) if tree else []

    return found


def _offers(export: ExportOptions, entry: ImportOptions, importer: str) -> bool:
    """Whether an export that covers an import is for its account."""
    if export.accounts and importer not in export.accounts:
        return False
    wanted = entry.subject.split(".")
    position = export.account_token_position
    return not position or (position <= len(wanted) and wanted[position - 1] == importer)


def _check_cycles(
    reader: ConfigReader, value: Value, accounts: Mapping[str, AccountOptions]
) -> None:
    """Report a chain of imports that leads back to where it began."""
    if not any(account.imports for account in accounts.values()):
        return
    from headwater.edge.conf.shares.import_cycles import ImportWays
    from headwater.security.errors import StepsExceeded

    ways = ImportWays()
    for name, account in accounts.items():
        for entry in account.imports:
            ways.add(name, entry)
    for name, account in accounts.items():
        for entry in account.imports:
            try:
                problem = "import forms a cycle" if ways.leads_back(name, entry) else ""
            except StepsExceeded:
                problem = "it leads over too many other imports: import fewer subjects"
            if problem:
                reader.error(
                    value, f'Error adding {entry.kind} import "{entry.subject}": {problem}'
                )


def _check_subjects(
    reader: ConfigReader, value: Value, accounts: Mapping[str, AccountOptions]
) -> None:
    """Report imports whose subjects can not become each other."""
    if not any(account.imports for account in accounts.values()):
        return
    # Compiled code that a node without imports need not load to read its configuration.
    from headwater.edge.conf.shares.import_subjects import check_subjects
    from headwater.edge.subjects.transform import TransformError

    for account in accounts.values():
        for entry in account.imports:
            try:
                check_subjects(entry)
            except TransformError as error:
                reader.error(value, f'Error adding {entry.kind} import "{entry.subject}": {error}')


def _import_source(reader: ConfigReader, key: str, value: Value, target: ImportOptions) -> None:
    if not reader.section(key, value, _SOURCE_FIELDS, target):
        return
    if not target.account or not target.subject:
        reader.error(value, "Expect an account name and a subject: add `account` and `subject`")


def _response_type(reader: ConfigReader, key: str, value: Value, target: ExportOptions) -> None:
    found = reader.string(key, value)
    if found is not None and found.lower() not in _RESPONSE_TYPES:
        reader.error(value, f'Unknown response type: "{found}": use single, stream or chunked')
    elif found is not None:
        target.response_type = _RESPONSE_TYPES[found.lower()]


def _latency(reader: ConfigReader, key: str, value: Value, target: ExportOptions) -> None:
    latency = LatencyOptions()
    if isinstance(value.data, str):
        latency.subject = value.data
    elif reader.section(key, value, _LATENCY_FIELDS, latency) and not latency.subject:
        reader.error(value, "Latency subject required, but missing: add `subject`")
    target.latency = latency


def _sampling(reader: ConfigReader, key: str, value: Value, target: LatencyOptions) -> None:
    data = value.data
    if isinstance(data, str):
        if data.strip().lower() == "headers":
            target.sampling = 0
            return
        digits = data.removesuffix("%")
        sample = int(digits) if digits.isdigit() and len(digits) < 9 else -1
    else:
        sample = reader.integer(key, value) or 0
    if not 1 <= sample <= 100:
        reader.error(value, "sampling percentage needs to be between 1 and 100")
        return
    target.sampling = sample


_SOURCE_FIELDS = Section("shares.source", {"account": text("account"), "subject": text("subject")})
_LATENCY_FIELDS = Section("latency", {"sampling": _sampling, "subject": text("subject")})
_EXPORT_FIELDS = Section(
    "exports",
    {
        **keys("stream service", text("subject")),
        **keys("response response_type", _response_type),
        **keys(
            "threshold response_threshold response_max_time response_time", duration("threshold")
        ),
        "accounts": strings("accounts"),
        "latency": _latency,
        "account_token_position": integer("account_token_position"),
        "allow_trace": boolean("allow_trace"),
    },
)
_IMPORT_FIELDS = Section(
    "imports",
    {
        **keys("stream service", _import_source),
        "prefix": text("prefix"),
        "to": text("to"),
        "share": boolean("share"),
        "allow_trace": boolean("allow_trace"),
    },
)
