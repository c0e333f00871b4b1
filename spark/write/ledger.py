"""What a streaming query has written: one entry per query and target stream, in a bucket.

The entry says which batch was written last, and where the target ended then. A batch that is
run again finds itself in the entry and writes nothing; one that was cut off in the middle finds
its first half in the target, behind that end. This holds however long after, unlike the window in
which a stream remembers message ids. Entries change by compare-and-set, so of two drivers on one
checkpoint the slower one stops. Each task of a batch has a key of its own, which says what attempt
at it is the newest one: Spark may run several.
"""

import base64
import json
from dataclasses import dataclass, replace
from typing import Any

from headwater.spark.errors import ApiError, FencedError, SourceError
from headwater.spark.options import SourceOptions
from headwater.spark.wire.connection import Connection
from headwater.spark.write.kv_rows import put_subject

BUCKET = "headwater-spark"
STREAM = f"KV_{BUCKET}"

_NO_MESSAGE = 10037
_IN_USE = 10058
_WRONG_LAST = (10071, 10164)


@dataclass(frozen=True)
class LedgerEntry:
    """`batch` is the last one written, -1 for none; `last` is where the target ended then.

    `run` is the run of the query that wrote it. `revision` is that of the entry, 0 before it
    is stored. `created` is when the target was made, "" in entries that do not say. `begun` says
    that the run has begun the next batch, `taken` that another run had begun it before. `ousted`
    are the last runs that others took over from. `start` is where the target ended before the
    last batch, -1 in entries that do not say.
    """

    batch: int
    last: int
    run: str
    revision: int = 0
    created: str = ""
    begun: bool = False
    taken: bool = False
    ousted: tuple[str, ...] = ()
    start: int = -1


@dataclass(frozen=True)
class NewestAttempt:
    """The `number` of an attempt at a task, -1 for none; whether it goes on with the task `again`,
    behind another one; and the `revision` of what is in the ledger, 0 for nothing."""

    number: int = -1
    again: bool = False
    revision: int = 0


class Ledger:
    """The entry of one query for the stream in `options`. Raises ConnectError and ApiError.

    A bucket that is not there yet is made with as many `replicas` as the target has.
    """

    def __init__(
        self, connection: Connection, options: SourceOptions, query: str, replicas: int = 1
    ) -> None:
        self._connection = connection
        self._replicas = replicas
        self._prefix = options.api_prefix
        self._subject = f"$KV.{BUCKET}.{query}.{options.streams[0]}"
        self._target = put_subject(options, self._subject)

    def read(self) -> LedgerEntry | None:
        """The entry, None when there is none yet."""
        try:
            answer = self._connection.api(
                f"{self._prefix}.STREAM.MSG.GET.{STREAM}", {"last_by_subj": self._subject}
            )
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        message = answer["message"]
        stored = json.loads(base64.b64decode(message["data"]))
        return LedgerEntry(
            stored["batch"],
            stored["last"],
            stored["run"],
            message["seq"],
            stored.get("created", ""),
            stored.get("begun", False),
            stored.get("taken", False),
            tuple(stored.get("ousted", ())),
            stored.get("start", -1),
        )

    def read_attempt(self, entry: LedgerEntry, task: int) -> NewestAttempt:
        """The newest attempt that was entered at a task of the batch that `entry` begins."""
        try:
            answer = self._connection.api(
                f"{self._prefix}.STREAM.MSG.GET.{STREAM}",
                {"last_by_subj": f"{self._subject}.{task}"},
            )
        except ApiError as error:
            if error.code == 404:
                return NewestAttempt()
            raise
        message = answer["message"]
        stored = json.loads(base64.b64decode(message["data"]))
        if stored["entry"] != entry.revision:
            return NewestAttempt(revision=message["seq"])
        return NewestAttempt(stored["attempt"], stored.get("again", True), message["seq"])

    def enter_attempt(self, entry: LedgerEntry, task: int, attempt: int) -> bool:
        """Store that an `attempt` has begun a task, or goes on with it. Returns whether another one
        has begun it before. Raises FencedError for a newer one."""
        while True:
            newest = self.read_attempt(entry, task)
            if newest.number > attempt:
                raise attempt_fenced(task)
            if newest.number == attempt:
                return newest.again
            again = newest.number >= 0
            body = {"entry": entry.revision, "attempt": attempt, "again": again}
            answer = self._connection.store(
                f"{self._target}.{task}",
                json.dumps(body).encode(),
                {"Nats-Expected-Last-Subject-Sequence": str(newest.revision)},
            )
            problem = answer.get("error")
            if not problem:
                return again
            if problem.get("err_code") not in _WRONG_LAST:
                raise ApiError(problem["code"], problem.get("err_code", 0), problem["description"])

    def begin(self, entry: LedgerEntry) -> LedgerEntry:
        """Store the first entry, or one in place of `entry.revision`; or find the one that another
        task stored before us."""
        if not entry.revision:
            self._make_bucket()
        try:
            return self.write(entry)
        except FencedError:
            found = self.read()
            if found is None:
                raise
            return found

    def write(self, entry: LedgerEntry) -> LedgerEntry:
        """Store `entry` in place of `entry.revision`. Raises FencedError when it has changed, and
        SourceError when it is gone."""
        body: dict[str, Any] = {
            "batch": entry.batch,
            "last": entry.last,
            "run": entry.run,
            "created": entry.created,
        }
        more = {"begun": entry.begun, "taken": entry.taken, "ousted": entry.ousted}
        body |= {name: value for name, value in more.items() if value}
        if entry.start >= 0:
            body["start"] = entry.start
        try:
            answer = self._connection.store(
                self._target,
                json.dumps(body).encode(),
                {"Nats-Expected-Last-Subject-Sequence": str(entry.revision)},
            )
        except ApiError as error:
            if error.code == 503 and entry.revision and self.read() is None:
                raise self.lost() from error
            raise
        problem = answer.get("error")
        if problem and problem.get("err_code") in _WRONG_LAST:
            if entry.revision and self.read() is None:
                raise self.lost()
            raise self.fenced()
        if problem:
            raise ApiError(problem["code"], problem.get("err_code", 0), problem["description"])
        return replace(entry, revision=int(answer["seq"]))

    def fenced(self) -> FencedError:
        """The error for a driver that another one was faster than."""
        return FencedError(
            f"another driver has written for the same query and stream ({self._subject}): "
            "two queries must not use one checkpoint; this one stops"
        )

    def lost(self) -> SourceError:
        """The error for an entry that somebody deleted while a batch was written."""
        return SourceError(
            f"the ledger's entry {self._subject} was deleted while the query wrote a batch: start "
            "the query again, and it looks for the batch in the whole target. Entries must stay as "
            "long as the query's checkpoint"
        )

    def _make_bucket(self) -> None:
        config: dict[str, Any] = {
            "name": STREAM,
            "description": "what streaming queries of Spark have written",
            "subjects": [f"$KV.{BUCKET}.>"],
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
            "num_replicas": self._replicas,
        }
        try:
            self._connection.api(f"{self._prefix}.STREAM.CREATE.{STREAM}", config)
        except ApiError as error:
            # There already, perhaps with settings of its owner's.
            if error.err_code != _IN_USE:
                raise self._not_made(error) from error

    def _not_made(self, error: ApiError) -> ApiError:
        """The server's error for a bucket that cannot be made, with what that is and what to do."""
        copies = f"{self._replicas} replicas" if self._replicas > 1 else "one replica"
        words = (
            f"{error.description}. That is the bucket {BUCKET}, in which queries enter what they "
            f"have written: it gets {copies}, as the target has. Start the nodes that are away, "
            "give the account and the nodes room, or make the bucket yourself: nats kv add "
            f"{BUCKET}, with the settings that this server needs"
        )
        return ApiError(error.code, error.err_code, words)


def attempt_fenced(task: int) -> FencedError:
    """The error for an attempt at a task that Spark has begun again elsewhere."""
    return FencedError(f"Spark has begun task {task} again elsewhere: this attempt stops")
