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
    """A named measurement. `messages` is its size at scale 1; `latency` says what is compared.

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
) -> Figure:
    """One publisher to `receivers` subscribers; ends when all of them have everything. `user` is
    who all of them are, as in a URL: `name:password@`."""
    generator = build.generator()
    payload = b"x" * size
    frame = f"PUB {subject} {size}\r\n".encode() + payload + b"\r\n"
    header = f"MSG {subject} 1 {size}\r\n".encode()
    end = f"PUB {subject}.end 0\r\n\r\nPING\r\n".encode()
    links = [Link(server.port, load.timeout, user=user) for _ in range(receivers + 1)]
    results: list[tuple[int, int]] = []
    errors: list[Exception] = []

    def receive(link: Link) -> None:
        try:
            results.append(generator.receive(link.fd, header, size))
        except generator.LoadError as error:
            errors.append(error)

    threads = [threading.Thread(target=receive, args=(link,)) for link in links[1:]]
    try:
        for link in links[1:]:
            link.subscribe(subject, "1")
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
    for count, at in results:
        if count != sent:
            raise Mismatch(f"a subscriber got {count} of {sent} messages")
        finish = max(finish, at)
    return rate(sent, finish - begin)


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
    for size, publish, one in ((16, 8e6, 4e6), (128, 5e6, 2.5e6), (1024, 1.5e6, 8e5)):
        run = partial(core_publish, size=size, receivers=0)
        made.append(Pattern(f"pub-{size}", f"publish {size} B", int(publish), run, size=size))
        run = partial(core_publish, size=size, receivers=1)
        made.append(Pattern(f"one-{size}", f"1 -> 1, {size} B", int(one), run, size=size))
    run = partial(core_publish, size=128, receivers=4)
    made.append(Pattern("fan-128", "1 -> 4, 128 B", 1_000_000, run))
    ask = partial(request_reply, size=128)
    made.append(Pattern("request", "request/reply 128 B", 20_000, ask, latency=True))
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
        made.append(Pattern(f"js-{storage}-sync", title, waits, run, latency=True, unequal=lax))
        if lax:
            title += ", both synced"
            made.append(Pattern("js-safe-sync", title, waits, run, latency=True, synced=True))
    takes: tuple[tuple[str, str, Callable[[Link, Load, int], tuple[int, int]]], ...] = (
        ("replay-push", "replay, ordered push consumer", take_push),
        ("replay-fetch", f"replay, pull by {FETCH}", partial(take_pull, low=0, ack=False)),
        ("consume", "pull ahead, ack each", partial(take_pull, low=FETCH // 2, ack=True)),
    )
    for name, title, take in takes:
        made.append(Pattern(name, title, 400_000, partial(replay, take=take)))
    return made


PATTERNS: tuple[Pattern, ...] = (*_core(), *_stream())
