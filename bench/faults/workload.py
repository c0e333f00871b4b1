"""Streams of every retention with durable consumers, and what their server promised about them."""

import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from bench.faults.promise_book import PromiseBook, make_payload
from bench.faults.stream_reader import read_stream
from bench.faults.tally import Tally
from bench.wire import Link
from headwater.edge.wire.client import ApiError
from headwater.edge.wire.message import Message

LIMITS, QUEUE, VALUES = "FLIMITS", "FQUEUE", "KV_FVALUES"
KEYS = 12
CONFIGS: tuple[dict[str, Any], ...] = (
    {"name": LIMITS, "subjects": ["fl.>"]},
    {"name": QUEUE, "subjects": ["fq.>"], "retention": "workqueue"},
    {
        "name": VALUES,
        "subjects": ["$KV.FVALUES.>"],
        "max_msgs_per_subject": 1,
        "discard": "new",
        "allow_rollup_hdrs": True,
        "deny_delete": True,
    },
)
DURABLES = {LIMITS: "reader", QUEUE: "worker"}
AT_ONCE = 4
"""Puts that wait for their answers together."""

NO_STREAM, NO_CONSUMER = 10059, 10014
"""The API's `err_code` for what does not exist."""
ACK_WAIT_NS = 3600 * 10**9


def durable_of(stream: str) -> str:
    """API subject part of a stream's durable consumer."""
    return f"{stream}.{DURABLES[stream]}"


@dataclass
class Progress:
    """Acknowledgements of a durable consumer."""

    confirmed: set[int] = field(default_factory=set)
    """Stream sequences whose acknowledgement was answered."""
    maybe: set[int] = field(default_factory=set)
    """Those whose acknowledgement was not."""


class Workload:
    """Drives one server through `Link`s and keeps the book of what it promised.

    Calls raise WireError or OSError when the connection breaks; the book is right even so.
    """

    def __init__(self, tally: Tally, chance: random.Random, size: int = 100) -> None:
        self.tally = tally
        self.chance = chance
        self.size = size
        self.books = {
            str(config["name"]): PromiseBook(
                str(config["name"]), tally, "max_msgs_per_subject" in config
            )
            for config in CONFIGS
        }
        self.progress = {name: Progress() for name in DURABLES}
        self.gone: set[str] = set()
        """Streams and consumers that are not there any more; they were counted, and rest."""
        self.hurt = False
        """Whether the server complained of what these streams rely on; what comes back then was
        told."""
        self.errors: list[str] = []
        """Errors that publishes were answered with."""
        self._count = 0

    def fork(self, tally: Tally) -> "Workload":
        """The same promises for a copy of the store; what they come to is counted in `tally`."""
        other = Workload(tally, self.chance, self.size)
        other._count = self._count
        other.gone = set(self.gone)
        other.progress = copy.deepcopy(self.progress)
        for name, book in self.books.items():
            other.books[name] = replace(
                book,
                tally=tally,
                acked=dict(book.acked),
                maybe_removed=set(book.maybe_removed),
                removed=set(book.removed),
                refused=set(book.refused),
                counted=set(book.counted),
            )
        return other

    def create(self, link: Link) -> None:
        """Make the streams and consumers."""
        for config in CONFIGS:
            fields = {"storage": "file", "num_replicas": 1, "allow_direct": True, **config}
            link.api(f"STREAM.CREATE.{config['name']}", **fields)
        for stream, durable in DURABLES.items():
            config = {
                "durable_name": durable,
                "ack_policy": "explicit",
                "ack_wait": ACK_WAIT_NS,
                "max_ack_pending": 100_000,
            }
            link.api(
                f"CONSUMER.DURABLE.CREATE.{durable_of(stream)}", stream_name=stream, config=config
            )

    def work(self, link: Link, count: int) -> None:
        """Publish `count` messages to every stream, consume, acknowledge and delete."""
        self.publish(link, LIMITS, [f"fl.{self.chance.randrange(5)}" for _ in range(count)])
        self.publish(link, QUEUE, [f"fq.{self.chance.randrange(3)}" for _ in range(count)])
        keys = [f"$KV.FVALUES.k{self.chance.randrange(KEYS)}" for _ in range(count)]
        for start in range(0, count, AT_ONCE):
            self.publish(link, VALUES, keys[start : start + AT_ONCE])
        for stream in DURABLES:
            self.consume(link, stream, count // 2)
        for sequence in self.some_of(LIMITS, count // 10):
            self.delete(link, sequence)

    def some_of(self, stream: str, count: int) -> list[int]:
        """A few of the messages that are due."""
        due = sorted(self.books[stream].due())
        return self.chance.sample(due, min(count, len(due)))

    def publish(self, link: Link, stream: str, subjects: list[str]) -> int:
        """Publish to these subjects at once; returns how many were acknowledged."""
        questions, idents = [], []
        for subject in subjects:
            self._count += 1
            idents.append(f"{stream}-{self._count}")
            questions.append((subject, make_payload(subject, idents[-1], self.size)))
        done = 0
        if stream in self.gone:
            return done
        for number, frame in link.requests(questions):
            answer: dict[str, Any] = json.loads(frame.payload or b'{"error": "no responders"}')
            book = self.books[stream]
            if "error" in answer:
                self.errors.append(str(answer["error"]))
                book.refused.add(idents[number])
            else:
                book.ack(subjects[number], idents[number], int(answer["seq"]))
                done += 1
        return done

    def fetch(self, link: Link, stream: str, count: int) -> list[Message]:
        """What the durable consumer of a stream delivers now, `count` messages at most."""
        body = json.dumps({"batch": count, "no_wait": True}).encode()
        got: list[Message] = []
        if count < 1:
            return got
        for frame in link.answers(f"$JS.API.CONSUMER.MSG.NEXT.{durable_of(stream)}", body):
            if frame.status >= 400:
                break
            got.append(frame)
            if len(got) == count:
                break
        return got

    def consume(self, link: Link, stream: str, count: int) -> int:
        """Fetch, and acknowledge with an answer; returns how many were acknowledged."""
        progress = self.progress[stream]
        if DURABLES[stream] in self.gone:
            return 0
        frames = self.fetch(link, stream, count)
        sequences = [int(frame.reply.split(".")[-4]) for frame in frames]
        for sequence in sequences:
            if sequence in progress.confirmed:
                what = f"{stream} {sequence} was delivered after its ack"
                count = self.tally.lose_and_tell if self.hurt else self.tally.come_back
                count(what)
                progress.confirmed.discard(sequence)
        progress.maybe.update(sequences)
        book = self.books[stream]
        if stream == QUEUE:
            book.maybe_removed.update(sequences)
        for number, _ in link.requests([(frame.reply, b"+ACK") for frame in frames]):
            progress.maybe.discard(sequences[number])
            progress.confirmed.add(sequences[number])
            if stream == QUEUE:
                book.remove({sequences[number]})
        return len(frames)

    def delete(self, link: Link, sequence: int) -> None:
        """Delete one message of the stream with limits."""
        book = self.books[LIMITS]
        if LIMITS in self.gone:
            return
        book.maybe_removed.add(sequence)
        link.api(f"STREAM.MSG.DELETE.{LIMITS}", seq=sequence)
        book.remove({sequence})

    def purge(self, link: Link, stream: str, keep: int = 0) -> None:
        """Purge a stream but for its newest messages, as far as the book knows them."""
        book = self.books[stream]
        due = sorted(book.due())
        if len(due) <= keep:
            return
        first = due[-keep] if keep else due[-1] + 1
        gone = {sequence for sequence in book.acked if sequence < first} - book.removed
        book.maybe_removed |= gone
        link.api(f"STREAM.PURGE.{stream}", seq=first)
        book.remove(gone)

    def check(self, link: Link, named: Callable[[str], bool]) -> None:
        """Compare everything with what was promised. `named` tells whether the server complained
        of a stream."""
        for stream, book in self.books.items():
            try:
                reading = read_stream(link, stream)
            except ApiError as error:
                if error.err_code != NO_STREAM:
                    raise
                self.gone |= {stream, DURABLES.get(stream, "")}
                book.check({}, set(), named(stream))
                continue
            self.hurt = self.hurt or named(stream)
            book.check(reading.found, reading.told, named(stream))
            if stream in self.progress and DURABLES[stream] not in self.gone:
                self._check_consumer(link, stream, set(reading.found), named(stream))

    def _check_consumer(self, link: Link, stream: str, found: set[int], named: bool) -> None:
        """A consumer must still have to deliver whatever it did not acknowledge."""
        try:
            info = link.api(f"CONSUMER.INFO.{durable_of(stream)}")
        except ApiError as error:
            if error.err_code != NO_CONSUMER:
                raise
            count = self.tally.lose_and_tell if named else self.tally.lose
            count(f"consumer of {stream}")
            self.gone.add(DURABLES[stream])
            return
        progress = self.progress[stream]
        due = len(found - progress.confirmed - progress.maybe)
        left = info["num_pending"] + info["num_ack_pending"]
        if left < due and not named:
            self.tally.lose(f"consumer of {stream} has {left} left of {due}")
