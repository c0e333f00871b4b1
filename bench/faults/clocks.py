"""`python -m bench.faults clocks`: the machine's clock is set while the server runs, or is killed.

Streams whose messages end by age, by a TTL of their own, and with markers that say so; message ids
that are remembered; messages that a consumer has not acknowledged. None of them may end, come back
or be forgotten because of a clock: in real time all of it happens within a minute, and the shortest
of these periods is two. What has a short life must end in real time, whatever the clock says.
"""

import json
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from bench.faults.promise_book import PromiseBook, make_payload
from bench.faults.set_clock import SetClock
from bench.faults.stream_reader import read_stream
from bench.faults.tally import Tally
from bench.faults.trial import LINK_SECONDS, Script, patiently
from bench.servers import Server, ServerFailed
from bench.wire import Link
from headwater.edge.wire.message import WireError

HOUR = 3600
DAY = 24 * HOUR
YEAR = 365 * DAY
NS = 10**9
EPOCH = "1970"
"""A step to a minute after the Unix epoch."""

SETTLE_SECONDS = 0.3
"""How long a step is left alone before its effect is looked for."""

CLOCK_SECONDS = 30.0
END_SECONDS = 15.0
MESSAGES = 5
AGES, LIVES, MARKS, SHORT = "CAGES", "CLIVES", "KV_CMARKS", "CSHORT"
CONFIGS: tuple[dict[str, object], ...] = (
    {"name": AGES, "subjects": ["ca.>"], "max_age": HOUR * NS, "duplicate_window": 120 * NS},
    {"name": LIVES, "subjects": ["cl.>"], "allow_msg_ttl": True},
    {
        "name": MARKS,
        "subjects": ["$KV.CMARKS.>"],
        "max_msgs_per_subject": 1,
        "max_age": HOUR * NS,
        "allow_msg_ttl": True,
        "subject_delete_marker_ttl": HOUR * NS,
        "allow_rollup_hdrs": True,
    },
    {"name": SHORT, "subjects": ["cs.>"], "max_age": NS, "duplicate_window": NS},
)
DURABLE = "waiting"
SCENARIOS: dict[str, tuple[int | str, ...]] = {
    "1970, then the right time": (EPOCH, 0),
    "ten years ahead and back": (0, 10 * YEAR, 0),
    "an hour back": (0, -HOUR, 0),
    "a day back": (0, -DAY, 0),
    "an hour ahead and a day back": (0, HOUR, -DAY, 0),
}


@dataclass(frozen=True)
class Course:
    """One scenario: its steps, and whether the server is killed around each of them."""

    name: str
    steps: tuple[int | str, ...]
    killed: bool


COURSES = tuple(
    Course(f"{name}, {'killed' if killed else 'running'}", steps, killed)
    for name, steps in SCENARIOS.items()
    for killed in (False, True)
)


def offset_of(step: int | str) -> int:
    """Seconds off the real time."""
    return 60 - int(time.time()) if isinstance(step, str) else step


class ClockTrial:
    """One server on one store whose clock is set."""

    def __init__(self, server: Server, clock: SetClock, tally: Tally) -> None:
        self.server = server
        self.clock = clock
        self.tally = tally
        self.books = {name: PromiseBook(name, tally) for name in (AGES, LIVES, MARKS)}
        self._count = 0

    def run(self, course: Course) -> None:
        """All steps, with a look after each."""
        for number, step in enumerate(course.steps):
            if number and course.killed:
                self.server.kill()
            self.clock.set(offset_of(step))
            if number == 0 or course.killed:
                self.tally.ready.append(self.server.start())
            with Link(self.server.port, LINK_SECONDS) as link:
                if number == 0:
                    patiently(lambda: self._create(link))
                self._see(link, offset_of(step))
                self._publish(link)
                threading.Event().wait(SETTLE_SECONDS)
                self._look(link)
        with Link(self.server.port, LINK_SECONDS) as link:
            self._ends(link)

    def _create(self, link: Link) -> None:
        for config in CONFIGS:
            fields = {"storage": "file", "num_replicas": 1, "allow_direct": True, **config}
            link.api(f"STREAM.CREATE.{config['name']}", **fields)
        durable = {"durable_name": DURABLE, "ack_policy": "explicit", "ack_wait": 120 * NS}
        link.api(f"CONSUMER.DURABLE.CREATE.{AGES}.{DURABLE}", stream_name=AGES, config=durable)

    def _see(self, link: Link, offset: int) -> None:
        """The server must live by the clock that was set."""
        shown = str(link.api(f"STREAM.INFO.{AGES}")["ts"])
        there = datetime.fromisoformat(shown[:19] + "+00:00").timestamp()
        if abs(there - time.time() - offset) > CLOCK_SECONDS:
            raise WireError(f"the server's clock shows {shown}")

    def _publish(self, link: Link) -> None:
        """A few messages everywhere, ids that were there before, messages left unacknowledged."""
        for _ in range(MESSAGES):
            self._count += 1
            n = self._count
            self._put(link, AGES, "ca.x", {"Nats-Msg-Id": f"id-{n}"})
            self._put(link, LIVES, "cl.x", {"Nats-TTL": "1h"})
            self._put(link, MARKS, f"$KV.CMARKS.k{n}", {"Nats-TTL": "1h"})
        for n in range(1, self._count + 1):
            frame = link.request("ca.x", b"again", {"Nats-Msg-Id": f"id-{n}"})
            if not json.loads(frame.payload).get("duplicate"):
                self.tally.come_back(f"message id {n} was forgotten")
        body = json.dumps({"batch": 2 * self._count, "no_wait": True}).encode()
        for frame in link.answers(f"$JS.API.CONSUMER.MSG.NEXT.{AGES}.{DURABLE}", body):
            if frame.status >= 400:
                break
            if int(frame.reply.split(".")[-5]) > 1:
                self.tally.come_back("a message was delivered again before its time")

    def _put(self, link: Link, stream: str, subject: str, headers: dict[str, str]) -> None:
        ident = f"{stream}-{self._count}"
        frame = link.request(subject, make_payload(subject, ident, 60), headers)
        answer = json.loads(frame.payload)
        if "error" in answer:
            raise WireError(f"{subject}: {answer['error']}")
        self.books[stream].ack(subject, ident, int(answer["seq"]))

    def _look(self, link: Link) -> None:
        """Everything must be there, and nothing else."""
        for stream, book in self.books.items():
            book.check(read_stream(link, stream).found, set(), False)

    def _ends(self, link: Link) -> None:
        """What lives for a second must be gone soon, by the last clock."""
        for n in range(MESSAGES):
            link.request(f"cs.{n}", b"short")
        deadline = time.monotonic() + END_SECONDS
        waiter = threading.Event()
        while link.api(f"STREAM.INFO.{SHORT}")["state"]["messages"]:
            if time.monotonic() > deadline:
                self.tally.stick(f"messages that live for 1 s are there after {END_SECONDS:.0f} s")
                return
            waiter.wait(0.05)


def run_course(script: Script, course: Course, every: bool) -> Tally:
    """One course with a server of its own."""
    tally = Tally("clocks", script.recipe.name, occasion=course.name)
    with tempfile.TemporaryDirectory(prefix="headwater-clock-", dir=script.parent) as place:
        clock = SetClock(Path(place), every)
        recipe = replace(script.recipe, environment=clock.environment)
        server = Server(recipe, parent=script.parent)
        try:
            ClockTrial(server, clock, tally).run(course)
        except (ServerFailed, WireError, OSError) as error:
            tally.stick(f"{error!r}")
        finally:
            server.close()
    return tally


def run(script: Script) -> Tally:
    """Every course, as often as the script has rounds. For servers that see the set clock only."""
    tally = Tally("clocks", script.recipe.name)
    for number in range(script.rounds):
        for course in COURSES:
            tally.add(run_course(script, course, bool(number % 2)))
            script.tell(f"{course.name}: {tally.broken} faults")
        tally.rounds += 1
    return tally
