"""Patterns of streams with many keys or many consumers: buckets, and shares of a stream."""

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench import build
from bench.crowds import together
from bench.patterns import (
    FRESH_TRIES,
    INBOX,
    JS_PER_WRITE,
    STREAM,
    WINDOW,
    Figure,
    Load,
    Mismatch,
    Pattern,
    fresh_stream,
    publish_frames,
    rate,
    whole,
)
from bench.servers import Server
from bench.wire import Link
from headwater.edge.wire.message import WireError

BUCKET = "KV_BENCH"
GETS = 50
"""Reads of values that are under way at once."""

CLIENTS = 10
BATCH = 100
SUBJECTS = 10_000
REPLAYS = 20
CONSUMERS = 1_000


@contextlib.contextmanager
def fresh_bucket(server: Server, load: Load) -> Iterator[Link]:
    """An empty bucket as clients make it (history 1, file), and a connection to administer it."""
    with Link(server.port, load.timeout) as control:
        for _ in range(FRESH_TRIES):
            with contextlib.suppress(WireError):
                control.api(f"STREAM.DELETE.{BUCKET}")
            made = control.api(
                f"STREAM.CREATE.{BUCKET}",
                name=BUCKET,
                subjects=["$KV.BENCH.>"],
                storage="file",
                discard="new",
                max_msgs_per_subject=1,
                allow_rollup_hdrs=True,
                deny_delete=True,
                allow_direct=True,
                num_replicas=1,
            )
            if made["state"]["last_seq"] == 0:
                break
        yield control
        control.api(f"STREAM.DELETE.{BUCKET}")


def put_all(server: Server, load: Load) -> tuple[int, int]:
    """Put `load.messages` keys of 16 bytes each, `WINDOW` at once; how many, and nanoseconds."""
    count = whole(load.messages, JS_PER_WRITE)
    frames = [
        f"PUB $KV.BENCH.key-{each:08d} {INBOX} 16\r\n0123456789abcdef\r\n".encode()
        for each in range(count)
    ]
    with Link(server.port, load.timeout) as link:
        link.subscribe(INBOX, "3")
        acked, last, total = build.generator().publish_window(
            link.fd,
            b"".join(frames),
            len(frames[0]),
            JS_PER_WRITE,
            count,
            WINDOW,
            60_000_000_000,
        )
    if acked != count or last != count:
        raise Mismatch(f"{acked} of {count} keys, last sequence {last}")
    return count, total


def kv_put(server: Server, load: Load) -> Figure:
    """Put keys, none of which is there."""
    with fresh_bucket(server, load):
        return rate(*put_all(server, load))


def kv_get(server: Server, load: Load) -> Figure:
    """Read every key once, `GETS` at a time, directly."""
    with fresh_bucket(server, load), Link(server.port, load.timeout) as link:
        count, _ = put_all(server, load)
        count = whole(count, GETS) if count >= GETS else count
        frames = [
            f"PUB $JS.API.DIRECT.GET.{BUCKET}.$KV.BENCH.key-{each:08d} {INBOX} 0\r\n\r\n".encode()
            for each in range(count)
        ]
        link.subscribe(INBOX, "4")
        found: tuple[int, int] = build.generator().ask_window(
            link.fd, b"".join(frames), len(frames[0]), min(GETS, count), load.cap_ns
        )
    return rate(*found)


def kv_watch(server: Server, load: Load) -> Figure:
    """Watch all keys: an ordered consumer of the last value of each."""
    with fresh_bucket(server, load), Link(server.port, load.timeout) as link:
        count, _ = put_all(server, load)
        found = _push(link, BUCKET, "last_per_subject", "$KV.BENCH.>", count, load)
    if found[0] != count:
        raise Mismatch(f"{found[0]} of {count} keys")
    return rate(*found)


def _push(
    link: Link, stream: str, policy: str, subject: str, count: int, load: Load
) -> tuple[int, int]:
    """Make an ordered consumer and take so many messages of it; messages and nanoseconds."""
    link.subscribe(INBOX, "3")
    link.subscribe("bench.deliver", "4")
    config = (
        f'{{"stream_name":"{stream}","config":{{"deliver_subject":"bench.deliver",'
        f'"deliver_policy":"{policy}","filter_subject":"{subject}","ack_policy":"none",'
        '"replay_policy":"instant","max_deliver":1,"flow_control":true,'
        '"idle_heartbeat":5000000000,"inactive_threshold":300000000000,'
        '"mem_storage":true,"num_replicas":1}}'
    )
    command = f"PUB $JS.API.CONSUMER.CREATE.{stream} {INBOX} {len(config)}\r\n{config}\r\n"
    found: tuple[int, int] = build.generator().drain_push(
        link.fd, command.encode(), count, load.cap_ns
    )
    return found


def _fill(server: Server, load: Load, subjects: int) -> int:
    """Publish `load.messages` of 128 bytes to so many subjects in turn; how many of each."""
    count = whole(load.messages, subjects)
    frames = [
        f"PUB bench.js.{each:06d} {INBOX} 128\r\n".encode() + b"x" * 128 + b"\r\n"
        for each in range(subjects)
    ]
    per_write = 50 if subjects % 50 == 0 else 1
    with Link(server.port, load.timeout) as link:
        link.subscribe(INBOX, "3")
        build.generator().publish_window(
            link.fd,
            b"".join(frames),
            len(frames[0]),
            per_write,
            count,
            WINDOW,
            60_000_000_000,
        )
    return count // subjects


def filtered(server: Server, load: Load) -> Figure:
    """Replay one subject of many, `REPLAYS` of them one after the other, each by a new consumer."""
    subjects = min(SUBJECTS, max(50, load.messages // 50 * 50))
    with fresh_stream(server, load, "file"):
        each = _fill(server, load, subjects)
        taken = total = 0
        for number in range(REPLAYS):
            subject = f"bench.js.{number * (subjects // REPLAYS):06d}"
            with Link(server.port, load.timeout) as link:
                count, passed = _push(link, STREAM, "all", subject, each, load)
            taken, total = taken + count, total + passed
    if taken != each * REPLAYS:
        raise Mismatch(f"{taken} of {each * REPLAYS} messages")
    return rate(taken, total)


def shared_pull(server: Server, load: Load) -> Figure:
    """`CLIENTS` clients pull `BATCH` at a time from one durable consumer and acknowledge each."""
    share = whole(load.messages // CLIENTS, BATCH)
    with fresh_stream(server, load, "file") as control, contextlib.ExitStack() as stack:
        publish_frames(server, Load(share * CLIENTS, 60.0, load.timeout), 128, BATCH, BATCH)
        control.api(
            f"CONSUMER.DURABLE.CREATE.{STREAM}.SHARED",
            stream_name=STREAM,
            config={"durable_name": "SHARED", "ack_policy": "explicit", "max_ack_pending": 20_000},
        )
        links = [stack.enter_context(Link(server.port, load.timeout)) for _ in range(CLIENTS)]
        found: list[tuple[int, int]] = []
        works: list[Callable[[], None]] = []
        for number, link in enumerate(links):
            link.subscribe(f"bench.fetch.{number}", "4")
            body = f'{{"batch":{BATCH},"expires":30000000000}}'
            request = (
                f"PUB $JS.API.CONSUMER.MSG.NEXT.{STREAM}.SHARED bench.fetch.{number} "
                f"{len(body)}\r\n{body}\r\n"
            ).encode()

            def take(fd: int = link.fd, request: bytes = request) -> None:
                found.append(
                    build.generator().drain_pull(fd, request, BATCH, 0, True, share, load.cap_ns)
                )

            works.append(take)
        together(works)
    return rate(sum(count for count, _ in found), max(passed for _, passed in found))


def many_consumers(server: Server, load: Load) -> Figure:
    """`CONSUMERS` push consumers of one stream, each of which gets every message; deliveries."""
    consumers = min(CONSUMERS, max(10, load.messages // 10))
    each = max(1, load.messages // consumers)
    with fresh_stream(server, load, "file") as control, Link(server.port, load.timeout) as taker:
        # Literal ones: nats-server does not see interest in a wildcard that covers a subject.
        taker.send(b"".join(b"SUB bench.many.%d 1%d\r\n" % (n, n) for n in range(consumers)))
        taker.flush()
        for number in range(consumers):
            control.api(
                f"CONSUMER.CREATE.{STREAM}.C{number}",
                stream_name=STREAM,
                config={
                    "name": f"C{number}",
                    "deliver_subject": f"bench.many.{number}",
                    "ack_policy": "none",
                    "inactive_threshold": 60_000_000_000,
                    "mem_storage": True,
                },
            )
        found: list[tuple[int, int]] = []
        publish = Load(each, load.seconds, load.timeout)
        began = time.monotonic_ns()
        together(
            [
                lambda: found.append(build.generator().receive_count(taker.fd, consumers * each)),
                lambda: _check_publish(publish_frames(server, publish, 128, 1, 1), each),
            ]
        )
    return rate(found[0][0], found[0][1] - began)


def _check_publish(found: tuple[int, int, int], count: int) -> None:
    if found[0] != count:
        raise Mismatch(f"{found[0]} of {count} acknowledged")


def _keys() -> Iterator[Pattern]:
    kv = partial(Pattern, messages=100_000)
    yield kv("kv-put", "KV put, 100,000 keys", run=kv_put, required=2.0)
    yield kv("kv-get", "KV get, 100,000 keys", run=kv_get, required=1.2)
    yield kv("kv-watch", "KV watch, 100,000 keys", run=kv_watch, required=2.0)
    yield Pattern("replay-one", "replay one subject of 10,000", 400_000, filtered, required=3.0)
    yield Pattern("pull-10", "10 clients, one pull consumer", 200_000, shared_pull, required=3.0)
    yield Pattern(
        "consumers", "1,000 consumers of one stream", 400_000, many_consumers, required=1.5
    )


KEYS: tuple[Pattern, ...] = tuple(_keys())
