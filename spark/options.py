"""Options of `format("headwater")`: names, types, ranges, and the error for each mistake."""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from headwater.spark.credentials import Credentials, read_credentials
from headwater.spark.errors import OptionError

DEFAULT_SERVER = "nats://127.0.0.1:4222"
DEFAULT_PORT = 4222
#: Seconds; long enough for a server to restart or a leader to be found.
DEFAULT_RETRY = 120.0
#: Seconds that `minMsgsPerTrigger` may hold messages back.
DEFAULT_DELAY = 900.0
META_COLUMNS = (
    "stream",
    "subject",
    "sequence",
    "timestamp",
    "timestamp_ns",
    "headers",
    "payload",
)
#: Columns of a key/value bucket, with what they are of a message.
KV_COLUMNS = {
    "key": "key",
    "value": "value",
    "operation": "operation",
    "revision": "sequence",
    "timestamp": "timestamp",
    "headers": "headers",
}

#: Option names as they are written in documentation, with what they mean.
OPTIONS = {
    "servers": "comma-separated nats:// or tls:// addresses, tried in order",
    "stream": "stream to read; several, separated by commas, make one DataFrame",
    "streams": (
        "in place of stream: comma-separated patterns of names of streams to read, * is any text, "
        "as edge-*; readStream also reads streams that appear later"
    ),
    "kv": "in place of stream: the key/value bucket to read or write",
    "keys": "with kv: comma-separated filters of keys, as plant.*.limit; default every key",
    "changes": (
        "with kv: true reads every change that the bucket holds, deletes too, false the latest "
        "value of each key; readStream always reads changes"
    ),
    "domain": "JetStream domain: the API is reached as $JS.<domain>.API",
    "subjects": "comma-separated subject filters; default everything",
    "starting": (
        "earliest, or the first sequence to read; for readStream also latest; of several streams "
        'also JSON, as {"A": 17, "B": "earliest"}: one without a name begins at earliest'
    ),
    "ending": (
        "latest (fixed at load; at each action with .schema()), or the last sequence; of several "
        'streams also JSON, as {"A": 99}: one without a name ends at latest'
    ),
    "startingTimestamp": "in place of starting: read messages stored at or after it (RFC 3339)",
    "endingTimestamp": "in place of ending: read messages stored before it (RFC 3339)",
    "partitions": "into how many ranges one stream is cut, 1 to 10000; default by size",
    "maxPartitions": (
        "most tasks of a read or microbatch, which share ranges; default by cores, without these "
        "64, or one for each million rows or 128 MiB"
    ),
    "cores": (
        "cores that Spark has: a read makes at most 32 tasks for each, of small ranges 4; sessions "
        "of build_session know it, of a cluster by its settings"
    ),
    "columns": "comma-separated metadata columns: " + ", ".join(META_COLUMNS),
    "headers": "off, map (string to string) or raw (bytes)",
    "valueFormat": "raw, or json, msgpack or cbor to decode payloads into columns",
    "valueSchema": (
        "columns to decode as DDL, for example 'device string, at struct<lat: double>', or infer "
        "to learn them from the first 1000 messages of the read"
    ),
    "metadataPrefix": "put before the names of metadata columns",
    "mode": (
        "for decoded values: permissive makes bad fields null and keeps the payload's text in "
        "_corrupt_record, failfast stops"
    ),
    "failOnDataLoss": "true stops when planned rows are lost, false reads what is left",
    "allowExpired": (
        "true reads what is left when the stream's limits removed planned rows, false stops; "
        "default true for starting=earliest, false for a sequence or a checkpoint"
    ),
    "maxMsgsPerTrigger": "for readStream: most sequences of one microbatch; default all",
    "maxBytesPerTrigger": (
        "for readStream: about so many bytes of one microbatch, by the mean size of the "
        "stream's messages; at least one message of each stream"
    ),
    "minMsgsPerTrigger": (
        "for readStream: wait until so many sequences are there, or maxTriggerDelay has passed"
    ),
    "maxTriggerDelay": "for readStream: longest wait for minMsgsPerTrigger, as 30s or 15m (15m)",
    "onRecreated": (
        "for readStream, when a stream was deleted and created again: fail, or restart to read "
        "the new stream from its start; what the old one still had is lost then. One that lost its "
        "end is read on behind it"
    ),
    "writeId": (
        "for a batch write with ids: a name of your choice; under one name each id is written "
        "once, whatever is killed and however late the write is run again"
    ),
    "readPath": "auto, block (fail unless the server answers block reads) or wire",
    "account": "set by headwater.spark.read.account.ReadAccount, which counts rows",
    "batchBytes": "size of one Arrow batch, 65536 to 67108864",
    "connectTimeout": "seconds, 0.1 to 600",
    "requestTimeout": "seconds for one API answer, 0.1 to 600",
    "retryTimeout": (
        "seconds that a task tries again while no row comes, 0 to 86400; default "
        f"{DEFAULT_RETRY:.0f}"
    ),
    "user": "user name",
    "password": "password; prefer passwordFile or passwordEnv",
    "passwordFile": "file that holds the password",
    "passwordEnv": "environment variable that holds the password",
    "token": "token; prefer tokenFile or tokenEnv",
    "tokenFile": "file that holds the token",
    "tokenEnv": "environment variable that holds the token",
    "credentialsFile": "creds file with a user JWT and its seed",
    "credentialsEnv": "environment variable that holds the text of a creds file",
    "nkeySeedFile": "file that holds a user NKey seed",
    "nkeySeedEnv": "environment variable that holds a user NKey seed",
    "inboxPrefix": "subject prefix of our inboxes; default _INBOX",
    "tls": "true to require TLS",
    "tlsCaFile": "CA certificates, PEM",
    "tlsCertFile": "client certificate, PEM; must exist on every executor",
    "tlsKeyFile": "key of the client certificate, PEM; must exist on every executor",
    "tlsHandshakeFirst": "true when the server expects TLS before INFO",
}
#: Options of Spark's own that it hands to sources too.
_SPARKS = ("checkpointlocation", "path", "queryname")
_BY_LOWER = {name.lower(): name for name in OPTIONS}
_LOGIN = "credentialsFile, nkeySeedFile, user or token, and tls"
#: What users of Spark's Kafka source write, or how it begins, with what does it here.
_KAFKAS = {
    "kafka.bootstrap.servers": "servers",
    "subscribepattern": "streams, with * for any text",
    "subscribe": "stream",
    "assign": "subjects, which are a part of a stream",
    "startingoffsetsbytimestampstrategy": "nothing: behind the last message is what comes next",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "startingoffsets": "starting, the first sequence",
    "endingoffsets": "ending, the last sequence, which is read too",
    "maxoffsetspertrigger": "maxMsgsPerTrigger",
    "minoffsetspertrigger": "minMsgsPerTrigger",
    "minpartitions": "partitions",
    "maxrecordsperpartition": "partitions; without it about a million rows each",
    "includeheaders": "headers=map",
    "topic": "stream",
    "kafka.group.id": "nothing: what was read is in the checkpoint",
    "groupidprefix": "nothing: what was read is in the checkpoint",
    "kafka.security.": _LOGIN,
    "kafka.sasl.": _LOGIN,
    "kafka.ssl.": "tlsCaFile, tlsCertFile and tlsKeyFile, PEM",
    "kafkaconsumer.": "requestTimeout and retryTimeout, seconds",
    "fetchoffset.": "requestTimeout and retryTimeout, seconds",
    "bootstrap.servers": "servers",
    "group.id": "nothing: what was read is in the checkpoint",
    "isolationlevel": "nothing: a message is there for all who read, or not at all",
    "usedeprecatedoffsetfetching": "nothing: leave it away",
    "kafka.": "nothing, as it is one of Kafka's client: leave it away",
}
#: Positions in the JSON of Kafka's options.
_KAFKAS_ENDS = {"-2": "earliest", "-1": "latest", "0": "earliest"}
#: Units of spans: a letter, or a word as Spark's own options take it.
_SPAN = re.compile(
    r"(\d{1,8})\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?|)"
)
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: For who knows patterns from elsewhere.
NO_EXPRESSIONS = "Patterns are no regular expressions: * is any text, as in edge-*"
#: For who made a table of SQL otherwise: Spark gives no options then.
TABLES = (
    "In SQL write CREATE TABLE t USING headwater OPTIONS (servers '...', stream '...'), without "
    "columns and without a query: Spark keeps no options of tables that are made otherwise. Drop "
    "such a table, or take CREATE TEMPORARY VIEW"
)
_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,252}")
_T = TypeVar("_T", int, float)


@dataclass(frozen=True)
class Endpoint:
    """How to reach and convince a server. Its text never shows a secret."""

    servers: tuple[tuple[str, int, bool], ...]
    credentials: Credentials = field(repr=False)
    tls: bool = False
    tls_ca: str = field(default="", repr=False)
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_first: bool = False
    connect_timeout: float = 5.0
    request_timeout: float = 10.0
    inbox_prefix: str = "_INBOX"


@dataclass(frozen=True)
class SourceOptions:
    """Checked options. `ending` is None for latest; `partitions` is None for "by size".

    `account` is the number of the accumulator that takes reports, None for no reports.
    `retry_timeout` is in seconds. `starting_time` and `ending_time` are ns since 1970. `bucket`
    is the key/value bucket whose stream this is, "" for none; `changes` says whether all that
    it holds is read, or the latest value of each key. With `patterns`, `streams` is empty: the
    streams that match at the time of the read are read. `starts` and `ends` are positions of single
    streams, as they were given. `write_id` names a batch write in the ledger.
    """

    endpoint: Endpoint
    streams: tuple[str, ...]
    api_prefix: str
    filters: tuple[str, ...]
    starting: int
    ending: int | None
    partitions: int | None
    columns: tuple[str, ...]
    headers: str
    value_format: str
    value_schema: str
    metadata_prefix: str
    fail_fast: bool
    fail_on_data_loss: bool
    batch_bytes: int
    allow_expired: bool | None
    max_per_trigger: int | None
    retry_timeout: float
    account: int | None
    read_path: str = "auto"
    starting_time: int | None = None
    ending_time: int | None = None
    max_bytes_per_trigger: int | None = None
    bucket: str = ""
    changes: bool = False
    patterns: tuple[str, ...] = ()
    min_per_trigger: int = 0
    trigger_delay: float = DEFAULT_DELAY
    restart_recreated: bool = False
    max_partitions: int | None = None
    cores: int | None = None
    from_latest: bool = False
    starts: tuple[tuple[str, str], ...] = ()
    ends: tuple[tuple[str, str], ...] = ()
    write_id: str = ""

    def of(self, stream: str) -> "SourceOptions":
        """The options of one stream, which may start and end elsewhere than the others."""
        start, end = dict(self.starts).get(stream), dict(self.ends).get(stream)
        found = replace(self, starts=(), ends=())
        if start is not None:
            latest = start.lower() == "latest"
            found = replace(found, starting=_start(start), from_latest=latest)
        return found if end is None else replace(found, ending=_end(end))

    @property
    def column_kinds(self) -> dict[str, str]:
        """Names of metadata columns, with what they are of a message."""
        return KV_COLUMNS if self.bucket else {kind: kind for kind in META_COLUMNS}

    @property
    def may_expire(self) -> bool:
        """May limits remove planned rows? Earliest is what is there, a sequence is a promise."""
        earliest = self.starting == 0 and not self.from_latest
        return earliest if self.allow_expired is None else self.allow_expired


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of one load. Names are case-insensitive.

    Raises OptionError for an unknown name, a missing stream, or a value out of range.
    """
    options = _known(given)
    bucket, streams = options.get("kv", ""), _streams(options)
    domain = options.get("domain", "")
    if set(domain) & set(" \t\r\n.*>"):
        raise OptionError(f"{domain!r} is no domain name: one token, no blank . * or >")
    value_format = _choice(options, "valueFormat", ("raw", "json", "msgpack", "cbor"))
    if value_format == "raw" and options.get("valueSchema"):
        raise OptionError("option 'valueSchema' needs valueFormat=json, msgpack or cbor")
    headers = _choice(options, "headers", ("off", "map", "raw"))
    for name, time in (("starting", "startingTimestamp"), ("ending", "endingTimestamp")):
        if name in options and time in options:
            raise OptionError(f"options '{name}' and '{time}' exclude each other: give one")
    starts = _positions(options, "starting", streams)
    ends = _positions(options, "ending", streams)
    starting = _start(options.get("starting", "earliest"))
    from_latest = options.get("starting", "").lower() == "latest"
    retry = _number(options, "retryTimeout", float, 0, 86_400)
    most = _number(options, "maxMsgsPerTrigger", int, 1, 1 << 53)
    least = _number(options, "minMsgsPerTrigger", int, 1, 1 << 53) or 0
    if most is not None and least > most:
        raise OptionError("option 'minMsgsPerTrigger' is above 'maxMsgsPerTrigger'")
    return SourceOptions(
        endpoint=_endpoint(options),
        streams=streams,
        patterns=_list(options.get("streams", "")),
        bucket=bucket,
        changes=_flag(options, "changes", False),
        api_prefix=f"$JS.{domain}.API" if domain else "$JS.API",
        filters=_filters(options, bucket),
        starting=starting,
        from_latest=from_latest,
        ending=_end(options.get("ending", "latest")),
        partitions=_number(options, "partitions", int, 1, 10_000),
        columns=_columns(options, headers),
        headers=headers,
        value_format=value_format,
        value_schema=options.get("valueSchema", ""),
        metadata_prefix=options.get("metadataPrefix", ""),
        fail_fast=_choice(options, "mode", ("permissive", "failfast")) == "failfast",
        fail_on_data_loss=_flag(options, "failOnDataLoss", True),
        batch_bytes=_number(options, "batchBytes", int, 1 << 16, 1 << 26) or 2 << 20,
        allow_expired=_flag(options, "allowExpired", True) if "allowExpired" in options else None,
        max_per_trigger=most,
        min_per_trigger=least,
        trigger_delay=_delay(options),
        restart_recreated=_choice(options, "onRecreated", ("fail", "restart")) == "restart",
        max_partitions=_number(options, "maxPartitions", int, 1, 10_000),
        cores=_number(options, "cores", int, 1, 1 << 20),
        retry_timeout=DEFAULT_RETRY if retry is None else retry,
        account=_number(options, "account", int, 0, 1 << 62),
        max_bytes_per_trigger=_number(options, "maxBytesPerTrigger", int, 1, 1 << 53),
        read_path=_choice(options, "readPath", ("auto", "block", "wire")),
        starting_time=_time(options, "startingTimestamp"),
        ending_time=_time(options, "endingTimestamp"),
        starts=starts,
        ends=ends,
        write_id=_write_id(options),
    )


def _streams(options: Mapping[str, str]) -> tuple[str, ...]:
    """The streams to read or write; of a bucket, the one that it is kept in.

    There is none where the option `streams` has patterns.
    """
    bucket = options.get("kv", "")
    if bucket:
        return _bucket_stream(options, bucket)
    for name in ("keys", "changes"):
        if name in options:
            raise OptionError(f"option '{name}' needs option 'kv', the name of a bucket")
    streams, patterns = _list(options.get("stream", "")), _list(options.get("streams", ""))
    if streams and patterns:
        raise OptionError("options 'stream' and 'streams' exclude each other: give one")
    if not streams and not patterns:
        hint = "" if "servers" in options else f". {TABLES}"
        raise OptionError(f"option 'stream' is required: the name of the stream{hint}")
    for stream in streams:
        if "*" in stream:
            raise OptionError(
                f"{stream!r} is no stream name: patterns are in option 'streams' of a DataFrame; "
                "a command takes names, with commas (--stream A,B)"
            )
        dots = ". A subject? Name its stream here, and the subject in option 'subjects'"
        _check_stream_name(stream, "stream name", dots if "." in stream else "")
    for pattern in patterns:
        _check_stream_name(pattern, "pattern of stream names", f". {NO_EXPRESSIONS}")
    return streams


def _check_stream_name(name: str, what: str, hint: str = "") -> None:
    if set(name) & set(" \t\r\n.>/\\") or len(name) > 255:
        raise OptionError(f"{name!r} is no {what}: no blank . > / or \\ in it{hint}")


def _bucket_stream(options: Mapping[str, str], bucket: str) -> tuple[str, ...]:
    if not _BUCKET.fullmatch(bucket):
        raise OptionError(f"option 'kv': {bucket!r} is no bucket name: letters, digits, _ and -")
    for name in ("stream", "streams", "subjects"):
        if options.get(name):
            raise OptionError(f"options 'kv' and '{name}' exclude each other: keys are in 'keys'")
    if options.get("headers", "off").lower() == "raw":
        raise OptionError("with option 'kv', headers are off or map")
    if not _flag(options, "changes", False):
        for name in ("starting", "ending", "startingTimestamp", "endingTimestamp", "partitions"):
            if name in options:
                raise OptionError(
                    f"the latest values of a bucket are read as a whole: option '{name}' needs "
                    "changes=true"
                )
    return (f"KV_{bucket}",)


def option_table() -> str:
    """All options as a Markdown table, for the documentation."""
    rows = [f"| `{name}` | {text} |\n" for name, text in OPTIONS.items()]
    return "| option | meaning |\n|---|---|\n" + "".join(rows)


def _known(given: Mapping[str, str]) -> dict[str, str]:
    """Options by their proper names. Raises OptionError for all unknown ones at once."""
    known: dict[str, str] = {}
    kafkas: list[str] = []
    others: list[str] = []
    for name, value in given.items():
        if name.lower() in _SPARKS:
            continue
        proper = _BY_LOWER.get(name.lower())
        if proper is not None:
            known[proper] = value.strip() if proper != "password" else value
        elif here := _of_kafka(name.lower()):
            kafkas.append(f"'{name}' by {here}")
        else:
            others.append(f"'{name}'{_guess(name.lower())}")
    problems = []
    if kafkas:
        those = "; ".join(kafkas)
        problems.append(f"options of Kafka's source; what they do there is done here: {those}")
    if others:
        problems.append(f"unknown options: {', '.join(others)}. Known are {', '.join(OPTIONS)}")
    if problems:
        raise OptionError(". ".join(problems))
    return known


def _of_kafka(name: str) -> str:
    """What does here what that option does in Kafka's source; empty if it is none of its."""
    return next((here for begin, here in _KAFKAS.items() if name.startswith(begin)), "")


def _guess(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_LOWER, 1)
    return f" (did you mean '{_BY_LOWER[near[0]]}'?)" if near else ""


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _filters(options: Mapping[str, str], bucket: str) -> tuple[str, ...]:
    name = "keys" if bucket else "subjects"
    filters = _list(options.get(name, ""))
    for subject in filters:
        tokens = subject.split(".")
        if set(subject) & set(" \t\r\n") or "" in tokens or ">" in tokens[:-1]:
            raise OptionError(f"option '{name}': {subject!r} is no subject filter")
    return tuple(f"$KV.{bucket}.{key}" for key in filters) if bucket else filters


def _inbox_prefix(text: str) -> str:
    tokens = text.split(".")
    if "" in tokens or set(text) & set(" \t\r\n*>"):
        raise OptionError(f"option 'inboxPrefix': {text!r} is no subject without wildcards")
    return text


def _columns(options: Mapping[str, str], headers: str) -> tuple[str, ...]:
    columns = _list(options.get("columns", ""))
    known = KV_COLUMNS if options.get("kv") else META_COLUMNS
    for name in columns:
        if name not in known:
            raise OptionError(f"option 'columns': {name!r} is none of {', '.join(known)}")
    if "headers" in columns and headers == "off":
        raise OptionError("column 'headers' needs option headers=map or headers=raw")
    return columns


def _choice(options: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    value = options.get(name, choices[0]).lower()
    if value not in choices:
        raise OptionError(f"option '{name}' is {value!r}; it takes {' or '.join(choices)}")
    return value


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    value = options.get(name, str(default)).lower()
    if value not in ("true", "false"):
        raise OptionError(f"option '{name}' is {value!r}; it takes true or false")
    return value == "true"


def _number(
    options: Mapping[str, str], name: str, kind: Callable[[Any], _T], low: float, high: float
) -> _T | None:
    text = options.get(name)
    if not text:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not low <= value <= high:
        raise OptionError(f"option '{name}' is {text!r}; it takes a number from {low} to {high}")
    return value


def _delay(options: Mapping[str, str]) -> float:
    """Seconds of `maxTriggerDelay`, which may have a unit as Spark's own options have."""
    text = options.get("maxTriggerDelay", "15m")
    match = _SPAN.fullmatch(text.strip().lower())
    if match is None:
        raise OptionError(f"option 'maxTriggerDelay' is {text!r}; it takes a span as 30s or 15m")
    unit = match.group(2)
    factor = 0.001 if unit.startswith(("ms", "mil")) else _UNITS[unit[:1]]
    return float(match.group(1)) * factor


def _write_id(options: Mapping[str, str]) -> str:
    name = options.get("writeId", "")
    if name and not re.fullmatch(r"[A-Za-z0-9_-]{1,128}", name):
        raise OptionError(f"option 'writeId' is {name!r}; it takes letters, digits, - and _")
    return name


def _positions(
    options: dict[str, str], name: str, streams: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Positions by stream, which option `name` holds as JSON; they are taken out of `options`."""
    text = options.get(name, "")
    if not text.startswith("{"):
        return ()
    example = f'{{"{streams[0] if streams else "A"}": 17}}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option '{name}' is no JSON ({error}); write {example}") from error
    for stream, position in found.items():
        if streams and stream not in streams:
            raise OptionError(f"option '{name}': stream {stream!r} is not read")
        if isinstance(position, dict):
            raise OptionError(
                f"option '{name}': a stream has one sequence and no partitions; write {example}"
            )
        (_start if name == "starting" else _end)(str(position))
    del options[name]
    return tuple((stream, str(position)) for stream, position in found.items())


def _start(text: str) -> int:
    if text.lower() in ("earliest", "latest"):
        return 0
    if not text.isdigit() or int(text) < 1:
        raise OptionError(
            f"option 'starting' is {text!r}; it takes earliest, latest or a sequence from 1"
            + _as_kafka(text)
        )
    return int(text)


def _time(options: Mapping[str, str], name: str) -> int | None:
    """Nanoseconds since 1970; digits below microseconds are dropped."""
    text = options.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise OptionError(
            f"option '{name}' is {text!r}; it takes a time with its zone, as 2026-11-22T08:00:00Z"
            + _of_milliseconds(text)
        )
    if moment.year < 1970:
        raise OptionError(f"option '{name}' is {text!r}, before 1970: no message is that old")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


def _of_milliseconds(text: str) -> str:
    """What Kafka's option of the same name, which takes milliseconds, is here."""
    if not re.fullmatch(r"\d{11,14}", text):
        return ""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(text))
    here = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f". Milliseconds since 1970, as Kafka's source takes, would be {here}"


def _end(text: str) -> int | None:
    if text.lower() == "latest":
        return None
    if not text.isdigit():
        raise OptionError(
            f"option 'ending' is {text!r}; it takes latest or a sequence{_as_kafka(text)}"
        )
    return int(text)


def _as_kafka(text: str) -> str:
    """What a position of Kafka's JSON is here, at the end of a sentence."""
    here = _KAFKAS_ENDS.get(text)
    return f". What Kafka's source writes as {text} is {here} here" if here else ""


def _server(address: str) -> tuple[str, int, bool]:
    url = urlsplit(address if "://" in address else f"nats://{address}")
    if url.scheme not in ("nats", "tls"):
        raise OptionError("option 'servers' takes nats://host:port and tls://host:port addresses")
    if url.username is not None or url.password is not None:
        raise OptionError(
            "option 'servers' must hold no credentials, because Spark shows it in plans: "
            "use user with passwordFile, token, credentialsFile or nkeySeedFile"
        )
    try:
        port = url.port or DEFAULT_PORT
    except ValueError as error:
        raise OptionError(f"option 'servers': {address!r} has no usable port") from error
    if not url.hostname:
        raise OptionError(f"option 'servers': {address!r} has no host")
    return url.hostname, port, url.scheme == "tls"


def _endpoint(options: Mapping[str, str]) -> Endpoint:
    servers = tuple(_server(part) for part in _list(options.get("servers", DEFAULT_SERVER)))
    if not servers:
        raise OptionError("option 'servers' is empty")
    authority = ""
    if options.get("tlsCaFile"):
        try:
            with open(options["tlsCaFile"], encoding="utf-8") as file:
                authority = file.read()
        except (OSError, UnicodeDecodeError) as error:
            raise OptionError(f"option 'tlsCaFile' cannot be read: {error}") from error
    return Endpoint(
        servers=servers,
        credentials=read_credentials(options),
        tls=_flag(options, "tls", False),
        tls_ca=authority,
        tls_cert_file=options.get("tlsCertFile", ""),
        tls_key_file=options.get("tlsKeyFile", ""),
        tls_first=_flag(options, "tlsHandshakeFirst", False),
        connect_timeout=_number(options, "connectTimeout", float, 0.1, 600) or 5.0,
        request_timeout=_number(options, "requestTimeout", float, 0.1, 600) or 10.0,
        inbox_prefix=_inbox_prefix(options.get("inboxPrefix", "_INBOX")),
    )
