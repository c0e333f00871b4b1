"""`df.write.format("headwater")` and `writeStream`: rows become messages of a stream.

Columns are `subject` (string), `payload` (binary or string), and perhaps `headers` (map of
strings) and `id` (string). The id becomes Nats-Msg-Id, and must be the same whenever a row is
computed again, as `concat(stream, ':', sequence)` is. A streaming query writes each id once,
whatever is killed and however late it is started again: see the ledger. So does a batch write with
a `writeId`. Without one its ids hold within the time in which the stream remembers ids.

Into a key/value bucket, columns are `key` (string), `value` (binary or string, null deletes the
key), and perhaps `headers`. Query, batch and key are the id there.
"""

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

from headwater.spark.errors import (
    ApiError,
    AuthError,
    ConnectError,
    FencedError,
    InterruptedRead,
    OptionError,
    SourceError,
    StreamRecreatedError,
    UnknownStreamError,
    UnsupportedStreamError,
)
from headwater.spark.options import SourceOptions
from headwater.spark.read.consumer_fetch import ConsumerFetch
from headwater.spark.read.kv_columns import header_texts
from headwater.spark.read.planning import SequenceRange
from headwater.spark.read.range_reader import RangeReader
from headwater.spark.read.stream_names import stream_info
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.wire_reader import HEADERS_MAP, PAYLOAD_OFF, Columns, WireReader
from headwater.spark.write.claim import TAKEOVER_S, Attempt, Claim, attempt_of, claimed
from headwater.spark.write.kv_rows import kv_message, last_of_each_key
from headwater.spark.write.ledger import BUCKET, Ledger, LedgerEntry
from headwater.spark.write.patience import patiently
from headwater.spark.write.publisher import ID_HEADER, Publisher, Stored, lost_acknowledged

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

_TYPES: dict[str, tuple[Any, ...]] = {
    "subject": (StringType(),),
    "payload": (BinaryType(), StringType()),
    "headers": tuple(MapType(StringType(), StringType(), nulls) for nulls in (True, False)),
    "id": (StringType(),),
}
#: Columns of Kafka's sink, with what they are here.
_KAFKAS = {"value": "'payload'", "key": "'subject'", "topic": "the option 'stream'"}
_KAFKAS_HEADERS = (
    "Those of Kafka's sink are: map_from_entries(transform(headers, h -> (h.key, string(h.value))))"
)
#: What a message to these would do: delete a stream, or acknowledge for somebody else.
_REQUESTS = ("$JS.", "$SYS.")
_KV_TYPES = {"key": (StringType(),), "value": _TYPES["payload"], "headers": _TYPES["headers"]}


@dataclass
class Written(WriterCommitMessage):
    """What one task did. `revision` is that of the ledger's entry when it began, `created` the
    time at which the target was made, `last` the highest sequence that it acknowledged to us,
    `start` where it ended before the batch, `searched` whether the whole target was looked
    through, `ousted` the runs that others took over from."""

    rows: int
    skipped: int
    query: str = ""
    run: str = ""
    revision: int = 0
    replayed: bool = False
    created: str = ""
    last: int = 0
    start: int = -1
    searched: bool = False
    ousted: tuple[str, ...] = ()


def check_columns(
    schema: StructType, overwrite: bool, with_id: bool, bucket: bool = False
) -> None:
    """Raises OptionError for what cannot be written, into a stream or a `bucket`."""
    known = _KV_TYPES if bucket else _TYPES
    if overwrite:
        raise OptionError(
            "mode overwrite would delete the messages of the stream: use mode append, and purge "
            "the stream yourself if that is meant"
        )
    _check_names(schema.fieldNames(), known, bucket)
    for field in schema.fields:
        types = known[field.name]
        if field.dataType not in types:
            names = dict.fromkeys(kind.simpleString() for kind in types)
            kafkas = field.name == "headers" and isinstance(field.dataType, ArrayType)
            raise OptionError(
                f"column {field.name!r} has type {field.dataType.simpleString()}, not "
                + " or ".join(names)
                + (f". {_KAFKAS_HEADERS}" if kafkas else "")
            )
    needed: tuple[str, ...] = ("subject", "payload", "id") if with_id else ("subject", "payload")
    if bucket:
        needed = ("key", "value")
    missing = [name for name in needed if name not in schema.fieldNames()]
    if missing:
        hint = ""
        if "id" in missing:
            hint = (
                ". A streaming query writes each id once; take one that is the same whenever the "
                "row is computed again, as concat('NAME:', sequence) with the name of the stream "
                "that is read; of several streams concat(stream, ':', sequence)"
            )
        raise OptionError(f"column {missing[0]!r} is missing{hint}")


def _check_names(names: list[str], known: dict[str, tuple[Any, ...]], bucket: bool) -> None:
    """Raises OptionError for all columns that nothing is made of."""
    unknown = [name for name in names if name not in known]
    if not unknown:
        return
    listed = ", ".join(map(repr, unknown))
    kafkas = {} if bucket else {name: _KAFKAS[name] for name in unknown if name in _KAFKAS}
    hints = "".join(
        f". What is {name!r} for Kafka's sink is {here} here" for name, here in kafkas.items()
    )
    what = f"column {listed} is" if len(unknown) == 1 else f"columns {listed} are"
    raise OptionError(f"{what} unknown{hints}. There are {', '.join(known)}: select those")


class HeadwaterWriter(DataSourceArrowWriter):
    """Appends a DataFrame to a stream; with the option `writeId` as the one batch of a query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._query = f"write-{options.write_id}" if options.write_id else ""
        self._run = uuid.uuid4().hex

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Publish the rows of one partition; all are acknowledged when it returns."""
        if self._query:
            from pyspark import TaskContext

            attempt = attempt_of(TaskContext.get())
            return write_batch(self._options, iterator, self._query, self._run, 0, attempt)
        _check_acks(self._options)
        return _publish(self._options, iterator, set())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Enter a write with a `writeId` in the ledger. Raises FencedError."""
        if self._query:
            commit_batch(self._options, [m for m in messages if isinstance(m, Written)], 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A stream takes nothing back: what was acknowledged stays, and ids make it known."""


class HeadwaterStreamWriter(DataSourceStreamArrowWriter):
    """Appends the microbatches of a query to a stream, each id once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Publish those rows of one partition that an earlier attempt has not published."""
        from pyspark import TaskContext

        context = TaskContext.get()
        of = context.getLocalProperty if context is not None else lambda name: None
        query, batch = of("sql.streaming.queryId"), of("streaming.sql.batchId")
        if query is None or batch is None:
            raise SourceError("Spark does not say which query and batch this is: use PySpark 4.2+")
        run = of("spark.jobGroup.id") or ""
        attempt = attempt_of(context)
        return write_batch(self._options, iterator, query, run, int(batch), attempt)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        commit_batch(self._options, [m for m in messages if isinstance(m, Written)], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch is run again; its ids are in the stream by then."""


def write_batch(
    options: SourceOptions,
    iterator: "Iterator[pa.RecordBatch]",
    query: str,
    run: str,
    batch: int,
    attempt: Attempt | None = None,
) -> Written:
    """Write one partition of a batch of a query, once."""
    since = time.monotonic()
    begun = partial(_begin_task, options, query, run, batch, attempt)
    entry, again = patiently(options, begun)
    if entry.batch >= batch:
        if not options.write_id:
            _check_replayed(options, entry, batch, iterator)
        return Written(0, 0, query, run, entry.revision, True, entry.created)
    if entry.taken or again:
        time.sleep(TAKEOVER_S)
    # Looked up after the entry: what is in the stream before it was not ours.
    info = patiently(options, partial(_info, options), known=True)
    created = info["created"]
    if created != entry.created:
        raise _made_anew(options, query, entry)
    if options.bucket:
        iterator = last_of_each_key(iterator)
    ending = info["state"]["last_seq"]
    searched = bool(batch) and not entry.last and bool(ending)
    batch_id = f"{query}:{batch}" if options.bucket else ""
    wanted = None
    if searched or (options.write_id and ending > entry.last):
        # The ids of a whole target may be too many to hold, as may be those of a batch write.
        rows = list(iterator)
        wanted = {name for each in rows for name in _own_ids(each, batch_id)}
        iterator = iter(rows)
    known = _ids(options, info, entry.last, wanted)
    stored = _stored(options, created)
    claim = Claim(options, query, entry, since, attempt)
    written = _publish(options, iterator, known, batch_id, stored, ending, claim)
    return Written(
        rows=written.rows,
        skipped=written.skipped,
        query=query,
        run=run,
        revision=entry.revision,
        created=created,
        last=written.last,
        start=entry.last,
        searched=searched,
        ousted=entry.ousted,
    )


def _info(options: SourceOptions, connection: Connection) -> dict[str, Any]:
    return stream_info(connection, options, options.streams[0])


def _begin_task(
    options: SourceOptions,
    query: str,
    run: str,
    batch: int,
    attempt: Attempt | None,
    connection: Connection,
) -> tuple[LedgerEntry, bool]:
    """The entry as `_begin` has it, and whether an attempt before this one began the task."""
    entry = _begin(options, query, run, batch, connection)
    if attempt is None or entry.batch >= batch:
        return entry, False
    ledger = Ledger(connection, options, query)
    return entry, ledger.enter_attempt(entry, attempt.task, attempt.number)


def _begin(
    options: SourceOptions, query: str, run: str, batch: int, connection: Connection
) -> LedgerEntry:
    """The query's entry, made if there is none, in which `run` has begun the batch; that of an
    ended batch as it is."""
    info = _info(options, connection)
    check_target(info["config"], options.bucket)
    ledger = Ledger(connection, options, query, info["config"].get("num_replicas", 1))
    last, created = info["state"]["last_seq"], info["created"]
    entry = ledger.read()
    if entry is None:
        # A later batch without an entry: the ledger was lost, or the target is new for the
        # query. The whole target may have what an earlier attempt has written.
        start = 0 if batch else last
        entry = ledger.begin(LedgerEntry(batch - 1, start, run, 0, created, begun=True))
    if run in entry.ousted:
        raise ledger.fenced()
    other = entry.created not in ("", created)
    if other or last < entry.last:
        if not options.restart_recreated:
            raise _made_anew(options, query, entry) if other else _went_back(options, last, entry)
        # A copy of the old stream has what an attempt before has written of this batch.
        end = min(last, entry.last)
        anew = replace(entry, batch=batch - 1, last=end, run=run, created=created, begun=True)
        entry = ledger.begin(replace(anew, start=-1))
    if entry.batch >= batch:
        return entry
    return claimed(ledger, replace(entry, created=entry.created or created), run)


def _check_replayed(
    options: SourceOptions, entry: LedgerEntry, batch: int, iterator: "Iterator[pa.RecordBatch]"
) -> None:
    """Raises SourceError when a batch that counts as written has other rows now: to pass over it
    would lose them. Where the target may have forgotten rows since then, nobody can tell."""
    advice = (
        "Another copy of its checkpoint has been used, or this is one of an earlier time. Go on "
        "with the newest one, or begin with a new checkpoint"
    )
    if entry.batch > batch:
        raise SourceError(
            f"batch {batch} comes again, but this query has written up to batch {entry.batch}. "
            + advice
        )
    if options.bucket or entry.start < 0:
        return
    info = patiently(options, partial(_info, options), known=True)
    state = info["state"]
    if state["first_seq"] > entry.start + 1 or state.get("num_deleted"):
        return
    wanted = {name for rows in iterator for name in _own_ids(rows, "")}
    missing = wanted - _ids(options, info, entry.start, wanted) if wanted else wanted
    if missing:
        raise SourceError(
            f"batch {batch} of this query was written with other rows: {len(missing)} ids are not "
            f"in stream {options.streams[0]!r}, as {min(missing)[:200]!r}. {advice}"
        )


def _made_anew(options: SourceOptions, query: str, entry: LedgerEntry) -> StreamRecreatedError:
    """The error for a target that is not the one that the query has written into."""
    name = options.streams[0]
    return StreamRecreatedError(
        f"stream {name!r} was deleted and created again, or is a restored copy: this query has "
        f"written its batches up to {entry.batch} into the older one. Set onRecreated=restart to "
        "write what comes from now on into the new stream, or begin with a new checkpoint to "
        f"write everything again (ledger: key {query}.{name} of bucket {BUCKET})"
    )


def _went_back(options: SourceOptions, last: int, entry: LedgerEntry) -> StreamRecreatedError:
    """The error for a target that ends below what the query has written into it."""
    name = options.streams[0]
    return StreamRecreatedError(
        f"stream {name!r} ends at sequence {last}, but this query has written its batches up to "
        f"{entry.batch} until {entry.last}: what was there is lost. A server that syncs later "
        "than it acknowledges may lose its newest messages, and an older copy lacks them. Set "
        "onRecreated=restart to go on with the next batch, or begin with a new checkpoint and an "
        "empty stream to write everything again"
    )


def check_target(config: dict[str, Any], bucket: str) -> None:
    """What was written must be found again, in a bucket the last value of each key. Raises
    UnsupportedStreamError."""
    check_acks(config)
    compacted = not bucket and config.get("max_msgs_per_subject", -1) > 0
    if config.get("retention", "limits") != "limits" or compacted:
        raise UnsupportedStreamError(
            f"stream {config['name']!r} forgets messages that were acknowledged or replaced, so a "
            "streaming query could not tell what it has written already: write to a stream with "
            "retention limits and without max_msgs_per_subject, and let this one source it"
        )


def check_acks(config: dict[str, Any]) -> None:
    """Raises UnsupportedStreamError for a stream that does not say what it has stored."""
    if config.get("no_ack"):
        raise UnsupportedStreamError(
            f"stream {config['name']!r} acknowledges nothing, so nobody can tell what it has "
            "stored: set no_ack of the stream to false"
        )


def _check_acks(options: SourceOptions) -> None:
    """As `check_acks`, where we may ask for the stream: some may publish and ask nothing."""
    with contextlib.suppress(ApiError, AuthError, ConnectError, UnknownStreamError):
        with Connection(options.endpoint) as connection:
            config = stream_info(connection, options, options.streams[0])["config"]
        check_acks(config)


def commit_batch(options: SourceOptions, messages: list[Written], batch: int) -> None:
    """Enter the batch in the ledger. Raises FencedError when another driver was faster."""
    fresh = [message for message in messages if not message.replayed]
    if not fresh:
        return
    first = fresh[0]
    if {message.revision for message in messages} != {first.revision}:
        raise FencedError(f"batch {batch} was written by another driver meanwhile: this one stops")
    if any(message.searched for message in fresh):
        _log.warning(
            "batch %d: the ledger %s has no entry of query %s: each id was looked for in all of "
            "stream %s. Keep entries as long as checkpoints",
            batch, BUCKET, first.query, options.streams[0],
        )  # fmt: skip
    if {message.created for message in messages} != {first.created}:
        raise _made_anew(options, first.query, LedgerEntry(batch, 0, first.run))
    acknowledged = max(message.last for message in messages)
    patiently(options, partial(_enter, options, first, batch, acknowledged), known=True)


def _enter(
    options: SourceOptions, first: Written, batch: int, acknowledged: int, connection: Connection
) -> None:
    """Enter the batch that `first` is of, unless an attempt without an answer did so. Raises
    PublishError when the target ends below what it has `acknowledged`."""
    info = stream_info(connection, options, options.streams[0])
    if info["created"] != first.created:
        raise _made_anew(options, first.query, LedgerEntry(batch, 0, first.run))
    ledger = Ledger(connection, options, first.query)
    last = info["state"]["last_seq"]
    if last < acknowledged:
        raise lost_acknowledged(options, last, acknowledged)
    ended = LedgerEntry(batch, last, first.run, first.revision, first.created)
    try:
        ledger.write(replace(ended, ousted=first.ousted, start=first.start))
    except FencedError:
        found = ledger.read()
        if found is None or (found.batch, found.run) != (batch, first.run or None):
            raise


def _publish(
    options: SourceOptions,
    iterator: "Iterator[pa.RecordBatch]",
    known: set[str],
    batch_id: str = "",
    stored: Stored | None = None,
    last: int = 0,
    claim: Claim | None = None,
) -> Written:
    """Publish the rows whose id is not `known`; `batch_id` with the key is that of a bucket's.
    `stored` and the target's `last` sequence are for connections that break, `claim` is the right
    to write."""
    skipped = 0
    check = claim.check if claim is not None else None
    with Publisher(options, stored, last, check) as publisher:
        for batch in iterator:
            for row in batch.to_pylist():
                subject, payload, headers = (
                    kv_message(options, row) if options.bucket else _message(row)
                )
                if batch_id:
                    headers[ID_HEADER] = f"{batch_id}:{row['key']}"
                if headers.get(ID_HEADER) in known:
                    skipped += 1
                else:
                    publisher.publish(subject, payload, headers)
        publisher.flush()
    return Written(publisher.published, skipped + publisher.duplicates, last=publisher.last)


def _message(row: dict[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """Subject, payload and headers of a row. Raises OptionError for a null."""
    subject, payload = row["subject"], row["payload"]
    if subject is None or payload is None:
        raise OptionError("subject and payload must not be null: filter such rows out")
    if subject.startswith(_REQUESTS):
        raise OptionError(
            f"{subject[:200]!r} is a request to the server, and no subject of a stream: filter "
            "such rows out, or put a prefix before the subject"
        )
    headers = {name: value or "" for name, value in row.get("headers") or ()}
    if "id" in row:
        if not row["id"]:
            raise OptionError("id must not be null or empty: filter such rows out")
        headers[ID_HEADER] = row["id"]
    return subject, payload.encode() if isinstance(payload, str) else payload, headers


def _stored(options: SourceOptions, created: str) -> Stored:
    """For a publisher whose connection broke: which ids are in the target, behind a sequence.
    Raises PublishError when the target ends below what it has `acknowledged`."""

    def stored(last: int, wanted: set[str], acknowledged: int) -> set[str]:
        try:
            with Connection(options.endpoint) as connection:
                info = stream_info(connection, options, options.streams[0])
            # What is written into another stream than before, `commit_batch` refuses.
            if info["created"] != created:
                return set()
            if info["state"]["last_seq"] < acknowledged:
                raise lost_acknowledged(options, info["state"]["last_seq"], acknowledged)
            return _ids(options, info, last, wanted)
        except (ApiError, InterruptedRead, UnknownStreamError) as error:
            raise ConnectError(str(error)) from error

    return stored


def _own_ids(rows: "pa.RecordBatch", batch_id: str) -> Iterator[str]:
    """The ids under which `_publish` writes rows."""
    column = rows["key" if batch_id else "id"].to_pylist()
    yield from (f"{batch_id}:{key}" for key in column) if batch_id else column


def _ids(
    options: SourceOptions, info: dict[str, Any], last: int, wanted: set[str] | None = None
) -> set[str]:
    """Ids of the messages behind `last`, those of earlier attempts of a batch among them; of
    them the `wanted` ones, if these are known."""
    end = info["state"]["last_seq"]
    if end <= last:
        return set()
    work = SequenceRange(options.streams[0], info["created"], last + 1, end)
    wire = WireReader(last + 1, end, options.batch_bytes, False, PAYLOAD_OFF, HEADERS_MAP)
    fetch = ConsumerFetch(options, work, wire, headers_only=True)
    ids: set[str] = set()
    for columns in RangeReader(options, work, fetch).batches():
        found = _id_column(columns)
        ids.update(found if wanted is None else wanted.intersection(found))
    return ids


def _id_column(columns: Columns) -> Iterator[str]:
    import pyarrow.compute as pc

    keys = header_texts(columns.key_offsets, columns.key_data, columns.pairs)
    values = header_texts(columns.value_offsets, columns.value_data, columns.pairs)
    chosen = values.filter(pc.equal(keys, ID_HEADER))
    yield from chosen.to_pylist()
