"""The measured patterns: each takes a running server and gives one figure.

A figure is a rate (messages per second, more is better) or a latency (microseconds, less is
better). Both sides of a comparison send the same bytes in the same order.
"""

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from bench import build
from bench.servers import Server
from bench.wire import Link
from headwater.edge.wire.message import WireError

SUBJECT = "bench.test.subject"
STREAM = "BENCH"
PER_WRITE = 256
"""Messages per write of a core publisher."""

JS_PER_WRITE = 64
WINDOW = 1000
"""Unacknowledged messages of an asynchronous JetStream publisher."""

FRESH_TRIES = 50
"""nats-server answers that a stream is deleted before its files are gone; on a slow device a new
stream of that name finds them."""

FETCH = 500
"""Messages per pull request; below the default of 1,000 outstanding acknowledgements."""

JS_FRAMES = 1600
"""Prebuilt JetStream frames: a multiple of 64 per write and of 100 subjects."""

INBOX = "_INBOX.bench"
HEAD = b"NATS/1.0\r\nTrace: 0123456789abcdef\r\nKind: reading\r\n\r\n"


class Listening(Protocol):
    """A server, for those who only connect to it."""

    @property
    def port(self) -> int:
        """Of its clients, on the loopback interface."""


class Mismatch(Exception):
    """Counts that differ from what was sent."""


@dataclass(frozen=True)
class Load:
    """How much one measurement may do."""

    messages: int
    seconds: float
    timeout: float = 15.0

    @property
    def cap_ns(self) -> int:
        """The cap on time in nanoseconds."""
        return int(self.seconds * 1e9)


@dataclass(frozen=True)
class Figure:
    """What one run of a pattern gave. Latencies are in microseconds, seconds are of the run."""

    rate: float
    messages: int
    seconds: float
    latency: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pattern:
    """A named measurement. `messages` is its size at scale 1; `latency` says that less is better,
    and then `part` which of the percentiles is compared, and `unit` what it is in.

    `required` is what the ratio has to be, 0 where nothing is asked.

    `synced` patterns are compared with a nats-server that syncs before it acknowledges.
    `unequal` ones promise less on the other side, and so no general floor holds for them.
    """

    name: str
    title: str
    messages: int
    run: Callable[[Server, Load], Figure]
    latency: bool = False
    synced: bool = False
    unequal: bool = False
    size: int = 128
    required: float = 0.0
    part: str = "p50"
    unit: str = "us"


def percentiles(samples: "list[int]", total_ns: int) -> Figure:
    """A latency figure from nanoseconds per operation."""
    if not samples:
        raise Mismatch("no operation finished")
    ordered = sorted(samples)
    last = len(ordered) - 1
    latency = {
        name: ordered[round(last * part)] / 1000
        for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1))
    }
    latency["mean"] = statistics.fmean(ordered) / 1000
    return Figure(len(ordered) / total_ns * 1e9, len(ordered), total_ns / 1e9, latency)


def rate(messages: int, nanoseconds: int) -> Figure:
    """A throughput figure."""
    return Figure(messages / nanoseconds * 1e9, messages, nanoseconds / 1e9)


def whole(messages: int, per_write: int) -> int:
    """The number of messages in whole writes, at least one write."""
    return max(1, messages // per_write) * per_write


def core_publish(
    server: Listening,
    load: Load,
    *,
    size: int,
    receivers: int,
    user: str = "",
    subject: str = SUBJECT,
    head: bytes = b"",
    queue: str = "",
) -> Figure:
    """One publisher to `receivers` subscribers; ends when all of them have everything. `user` is
    who all of them are, as in a URL: `name:password@`. `head` is a block of headers. Those of a
    `queue` share the messages."""
    generator = build.generator()
    verb, lengths = ("H", f"{len(head)} {len(head) + size}") if head else ("", f"{size}")
    frame = f"{verb}PUB {subject} {lengths}\r\n".encode() + head + b"x" * size + b"\r\n"
    header = f"{verb}MSG {subject} 1 {lengths}\r\n".encode()
    end = f"PUB {subject}.end 0\r\n\r\nPING\r\n".encode()
    links = [Link(server.port, load.timeout, user=user) for _ in range(receivers + 1)]
    results: list[tuple[int, int]] = []
    errors: list[Exception] = []

    def receive(link: Link) -> None:
        try:
            results.append(generator.receive(link.fd, header, len(head) + size))
        except generator.LoadError as error:
            errors.append(error)

    threads = [threading.Thread(target=receive, args=(link,)) for link in links[1:]]
    try:
        for link in links[1:]:
            link.subscribe(f"{subject} {queue}".strip(), "1")
            link.subscribe(f"{subject}.end", "2")
        for thread in threads:
            thread.start()
        sent, begin, finish = generator.publish(
            links[0].fd,
            frame * PER_WRITE,
            len(frame),
            PER_WRITE,
            whole(load.messages, PER_WRITE),
            end,
            load.cap_ns,
        )
    finally:
        for thread in threads:
            if thread.ident is not None:
                thread.join()
        for link in links:
            link.close()
    if errors:
        raise errors[0]
    counts = [sum(count for count, _ in results)] if queue else [count for count, _ in results]
    for count in counts:
        if count != sent:
            raise Mismatch(f"a subscriber got {count} of {sent} messages")
    return rate(sent, max(finish, *(at for _, at in results), 0) - begin)


def request_reply(server: Server, load: Load, *, size: int) -> Figure:
    """One requester, one responder, one request in flight."""
    payload = b"x" * size
    with Link(server.port, load.timeout) as asker, Link(server.port, load.timeout) as service:
        asker.subscribe(INBOX, "1")
        service.subscribe("bench.service", "1")
        samples, total = build.generator().roundtrips(
            asker.fd,
            service.fd,
            f"PUB bench.service {INBOX} {size}\r\n".encode() + payload + b"\r\n",
            f"PUB {INBOX} {size}\r\n".encode() + payload + b"\r\n",
            load.messages,
            load.cap_ns,
        )
    return percentiles(list(samples), total)


@contextlib.contextmanager
def fresh_stream(server: Server, load: Load, storage: str) -> Iterator[Link]:
    """The stream of the JetStream patterns, empty, and a connection to administer it.

    One left behind by a server that died is removed before, this one after.
    """
    with Link(server.port, load.timeout) as control:
        with contextlib.suppress(WireError):
            control.api(f"STREAM.DELETE.{STREAM}")
        for _ in range(FRESH_TRIES):
            if create_stream(control, storage) == 0:
                break
            control.api(f"STREAM.DELETE.{STREAM}")
        else:
            raise Mismatch(f"a new stream has old messages, {FRESH_TRIES} times")
        yield control
        control.api(f"STREAM.DELETE.{STREAM}")


def create_stream(control: Link, storage: str) -> int:
    """One replica, no limits, all subjects that `js_frame` uses; returns the last sequence, which
    should be 0."""
    made = control.api(
        f"STREAM.CREATE.{STREAM}",
        name=STREAM,
        subjects=["bench.js.>"],
        storage=storage,
        retention="limits",
        discard="old",
        num_replicas=1,
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=-1,
    )
    return int(made["state"]["last_seq"])


def js_frame(number: int, size: int) -> bytes:
    """A publish to one of 100 subjects of the stream, with a reply; equal length for all."""
    head = f"PUB bench.js.{number % 100:02d} {INBOX} {size}\r\n".encode()
    return head + b"x" * size + b"\r\n"


def publish_frames(
    server: Listening, load: Load, size: int, frames: int, per_write: int
) -> tuple[int, int, int]:
    """Publish `load.messages` within the window, `frames` different ones in turn; returns how many
    were acknowledged, the last sequence, and nanoseconds."""
    row = b"".join(js_frame(number, size) for number in range(frames))
    with Link(server.port, load.timeout) as publisher:
        publisher.subscribe(INBOX, "3")
        found: tuple[int, int, int] = build.generator().publish_window(
            publisher.fd,
            row,
            len(row) // frames,
            per_write,
            whole(load.messages, per_write),
            WINDOW,
            load.cap_ns,
        )
    return found


def fill(server: Listening, load: Load, size: int) -> Figure:
    """Publish `load.messages` to the stream within the window, and check the count."""
    acked, last, total = publish_frames(server, load, size, JS_FRAMES, JS_PER_WRITE)
    if last != acked:
        raise Mismatch(f"{acked} acknowledgements, last sequence {last}")
    return rate(acked, total)


def stream_publish(server: Server, load: Load, *, size: int, storage: str) -> Figure:
    """Asynchronous JetStream publish with `WINDOW` messages unacknowledged."""
    with fresh_stream(server, load, storage) as control:
        figure = fill(server, load, size)
        state = control.api(f"STREAM.INFO.{STREAM}")["state"]
        if state["messages"] != figure.messages:
            raise Mismatch(f"{state['messages']} stored, {figure.messages} acknowledged")
    return figure


def stream_sync(server: Server, load: Load, *, size: int, storage: str) -> Figure:
    """Synchronous JetStream publish: each waits for its acknowledgement."""
    with fresh_stream(server, load, storage), Link(server.port, load.timeout) as publisher:
        publisher.subscribe(INBOX, "3")
        samples, total = build.generator().publish_sync(
            publisher.fd, js_frame(0, size), load.messages, load.cap_ns
        )
    return percentiles(list(samples), total)


def replay(
    server: Server, load: Load, *, take: Callable[[Link, Load, int], tuple[int, int]]
) -> Figure:
    """Fill a file stream with 128 byte messages, then take it all; only the taking counts."""
    with fresh_stream(server, load, "file"):
        stored = fill(server, Load(load.messages, 60.0, load.timeout), 128).messages
        with Link(server.port, load.timeout) as consumer:
            count, total = take(consumer, load, stored)
    if count < stored and total < load.cap_ns:
        raise Mismatch(f"{count} of {stored} messages replayed")
    return rate(count, total)


def take_push(consumer: Link, load: Load, stored: int) -> tuple[int, int]:
    """An ordered push consumer as clients make it: no acks, flow control, memory."""
    consumer.send(f"SUB {INBOX} 3\r\nSUB bench.deliver 4\r\n".encode())
    consumer.flush()
    config = (
        f'{{"stream_name":"{STREAM}","config":{{"deliver_subject":"bench.deliver",'
        '"deliver_policy":"all","ack_policy":"none","replay_policy":"instant",'
        '"max_deliver":1,"flow_control":true,"idle_heartbeat":5000000000,'
        '"inactive_threshold":300000000000,"mem_storage":true,"num_replicas":1}}'
    )
    command = f"PUB $JS.API.CONSUMER.CREATE.{STREAM} {INBOX} {len(config)}\r\n{config}\r\n"
    result: tuple[int, int] = build.generator().drain_push(
        consumer.fd, command.encode(), stored, load.cap_ns
    )
    return result


def take_pull(consumer: Link, load: Load, stored: int, *, low: int, ack: bool) -> tuple[int, int]:
    """A durable pull consumer; with `ack` every message is acknowledged."""
    consumer.api(
        f"CONSUMER.DURABLE.CREATE.{STREAM}.PULL",
        stream_name=STREAM,
        config={
            "durable_name": "PULL",
            "deliver_policy": "all",
            "ack_policy": "explicit" if ack else "none",
            "replay_policy": "instant",
        },
    )
    consumer.subscribe("bench.fetch", "4")
    body = f'{{"batch":{FETCH},"expires":30000000000}}'
    request = f"PUB $JS.API.CONSUMER.MSG.NEXT.{STREAM}.PULL bench.fetch {len(body)}\r\n{body}\r\n"
    result: tuple[int, int] = build.generator().drain_pull(
        consumer.fd, request.encode(), FETCH, low, ack, stored, load.cap_ns
    )
    return result


def _core() -> list[Pattern]:
    made = []
    sizes = ((16, 8e6, 0.0, 4e6, 5.0), (128, 5e6, 0.0, 2.5e6, 4.0), (1024, 1.5e6, 1.3, 8e5, 1.8))
    for size, publish, least, one, asked in sizes:
        run = partial(core_publish, size=size, receivers=0)
        title = f"publish {size} B"
        made.append(Pattern(f"pub-{size}", title, int(publish), run, size=size, required=least))
        run = partial(core_publish, size=size, receivers=1)
        title = f"1 -> 1, {size} B"
        made.append(Pattern(f"one-{size}", title, int(one), run, size=size, required=asked))
    run = partial(core_publish, size=128, receivers=1, head=HEAD)
    made.append(Pattern("head-128", "1 -> 1, headers, 128 B", 1_500_000, run, required=3.0))
    run = partial(core_publish, size=128, receivers=4)
    made.append(Pattern("fan-128", "1 -> 4, 128 B", 1_000_000, run, required=3.5))
    run = partial(core_publish, size=128, receivers=4, queue="workers")
    made.append(Pattern("queue-128", "1 -> queue group of 4, 128 B", 1_500_000, run, required=2.5))
    ask = partial(request_reply, size=128)
    for name, part in (("request", "p50"), ("request-p99", "p99")):
        title = f"request/reply 128 B, {part}"
        made.append(Pattern(name, title, 20_000, ask, latency=True, required=1.3, part=part))
    return made


def _stream() -> list[Pattern]:
    made = []
    for storage, messages, waits in (("file", 400_000, 4_000), ("memory", 400_000, 15_000)):
        run = partial(stream_publish, size=128, storage=storage)
        title = f"JetStream {storage}, window {WINDOW}, 128 B"
        made.append(Pattern(f"js-{storage}", title, messages, run))
        if storage == "file":
            made.append(Pattern("js-safe", title + ", both synced", 60_000, run, synced=True))
        run = partial(stream_sync, size=128, storage=storage)
        title = f"JetStream {storage}, synchronous, 128 B"
        lax = storage == "file"
        waiting = partial(Pattern, messages=waits, run=run, latency=True)
        least = 0.6 if lax else 0.0
        made.append(waiting(f"js-{storage}-sync", title, unequal=lax, required=least))
        if lax:
            title += ", both synced"
            made.append(waiting("js-safe-sync", title, synced=True, required=1.5))
    takes: tuple[tuple[str, str, Callable[[Link, Load, int], tuple[int, int]]], ...] = (
        ("replay-push", "replay, ordered push consumer", take_push),
        ("replay-fetch", f"replay, pull by {FETCH}", partial(take_pull, low=0, ack=False)),
        ("fetch-ack", f"fetch {FETCH}, ack each", partial(take_pull, low=0, ack=True)),
        ("consume", "pull ahead, ack each", partial(take_pull, low=FETCH // 2, ack=True)),
    )
    for name, title, take in takes:
        asked = 4.0 if name in ("replay-push", "fetch-ack") else 0.0
        made.append(Pattern(name, title, 400_000, partial(replay, take=take), required=asked))
    return made


COMMON: tuple[Pattern, ...] = (*_core(), *_stream())
"""One or a few connections."""
