"""A34 to A46: what the holder of an account may ask of JetStream."""

import json
import time
from typing import Any

import pytest

from headwater.edge.jetstream.model import archive, s2
from tests.abuse.attacked import CALM_S, Attacked
from tests.measuring import within

HUGE = [2**31, 2**63 - 1, 2**63, 2**64, 10**30, -1, -(2**63), -(2**63) - 1, 0.5, "9", None, True]
NAMES = [
    "..", ".", "/", "a/b", "\\", "a\\b", "x" * 300, "a*", ">", "a b", "a\x00", "a\r\nb", "",
    "../../etc/passwd", "a.b",
]
ALLOWED_NAMES = ["obs", "msgs", "CON", "NUL", "caf\u00e9", "cafe\u0301", "Abc", "aBC", "meta"]


def create(node: Attacked, **config: Any) -> Any:
    """The answer to the creation of a stream S with these fields."""
    body = {"name": "S", "subjects": ["s.>"], "storage": "memory", **config}
    return node.api("STREAM.CREATE.S", body)


@pytest.fixture
def stream(node: Attacked) -> Any:
    """A stream S with ten messages, gone afterwards."""
    with node.login() as raw:
        body = {"name": "S", "subjects": ["s.>"], "storage": "memory", "allow_direct": True}
        made = raw.request("$JS.API.STREAM.CREATE.S", body)
        assert "error" not in made, made
        for n in range(10):
            raw.request(f"s.{n}", b"x")
        yield raw
        raw.request("$JS.API.STREAM.DELETE.S")


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a34_names_that_are_paths(node: Attacked, name: str) -> None:
    """streams and consumers named `..`, `/`, with control bytes, of 300 characters | refused, \
and no file is made of them"""
    subject = "STREAM.CREATE.S"
    answer = node.api(subject, {"name": name, "subjects": ["odd"]})
    assert "error" in answer
    consumer = {"stream_name": "S", "config": {"durable_name": name, "ack_policy": "none"}}
    create(node)
    for call in ("CONSUMER.CREATE.S.c", "CONSUMER.DURABLE.CREATE.S.c"):
        assert "error" in node.api(call, consumer) or not name
    node.api("STREAM.DELETE.S")


def test_a34_names_that_are_alike(node: Attacked) -> None:
    """reserved words, twins by case and by Unicode form | streams of their own, under numbers \
that the node makes"""
    with node.login() as raw:
        for number, name in enumerate(ALLOWED_NAMES):
            body = {"name": name, "subjects": [f"twin.{number}"]}
            made = raw.request(f"$JS.API.STREAM.CREATE.{name}", body)
            assert made["config"]["name"] == name, made
        listed = raw.request("$JS.API.STREAM.NAMES")["streams"]
        assert set(ALLOWED_NAMES) <= set(listed)
        for name in ALLOWED_NAMES:
            assert raw.request(f"$JS.API.STREAM.DELETE.{name}")["success"]


@pytest.mark.parametrize("account", ["../../x", "..", "A/../B", "PINGED", "x" * 3000])
def test_a35_accounts_that_are_paths(node: Attacked, account: str) -> None:
    """account names like paths in requests to the system | no file, and no account is made"""
    for call in ("CLAIMS.LOOKUP", "INFO", "JSZ", "CLAIMS.UPDATE", "CONNS"):
        with node.login("s") as system:
            system.request(f"$SYS.REQ.ACCOUNT.{account}.{call}", {"account": account}, 0.1)
    assert account not in json.loads(node.page("/accountz")[1])["accounts"]


def backup(*entries: archive.ArchiveEntry, end: bool = True) -> bytes:
    """An archive of a stream."""
    state = json.dumps({"messages": 1, "first_seq": 1, "last_seq": 1}).encode()
    content = archive.MAGIC + archive.packed(archive.ArchiveEntry(b"state.json", 1, 0, b"", state))
    for entry in (*entries, *([archive.END] if end else [])):
        content += archive.packed(entry)
    return s2.IDENTIFIER + s2.frames(content)


SOUND = archive.ArchiveEntry(b"r.a", 1, 1, b"", b"payload")
ARCHIVES = {
    "nothing": b"",
    "no archive": b"PK\x03\x04" + bytes(500),
    "tar": b"../../etc/passwd".ljust(512, b"\0"),
    "truncated": backup(SOUND)[:-9],
    "without end": backup(SOUND, end=False),
    "wrong checksum": (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:])(backup(SOUND)),
    "path": backup(archive.ArchiveEntry(b"consumers/../../x", 1, 0, b"", b"{}")),
    "long subject": backup(archive.ArchiveEntry(b"r." + b"x" * 70_000, 1, 1, b"", b"x")),
    "many entries": backup(*[archive.ArchiveEntry(b"", 1, 1, b"", b"")] * 20_000),
    "sequence 2^64-1": backup(archive.ArchiveEntry(b"r.a", 1, 2**64 - 1, b"", b"x")),
    "time of 2^63": backup(archive.ArchiveEntry(b"r.a", 2**63, 1, b"", b"x")),
    "state of 2^64-1": s2.IDENTIFIER + s2.frames(
        archive.MAGIC
        + archive.packed(
            archive.ArchiveEntry(b"state.json", 1, 0, b"", b'{"last_seq":18446744073709551615}')
        )
        + archive.packed(archive.END)
    ),
    "sequences backwards": backup(archive.ArchiveEntry(b"r.a", 1, 5, b"", b"x"), SOUND),
    "nested state": s2.IDENTIFIER + s2.frames(
        archive.MAGIC
        + archive.packed(archive.ArchiveEntry(b"state.json", 1, 0, b"", b"[" * 100_000))
    ),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a36_archives(node: Attacked, kind: str) -> None:
    """archives that are cut, damaged, of other names, of paths, links and extreme numbers | \
refused in words; nothing is left of them, and nothing is written outside the store"""
    with node.login() as raw:
        config = {"name": "R", "subjects": ["r.>"]}
        started = raw.request("$JS.API.STREAM.RESTORE.R", {"config": config, "state": {}})
        to, data = started["deliver_subject"], ARCHIVES[kind]
        answer = None
        for at in range(0, len(data), 500_000):
            answer = raw.request(to, data[at : at + 500_000])
            if answer is not None:
                break
        if answer is None:
            answer = raw.request(to, b"")
        raw.request("$JS.API.STREAM.DELETE.R")
        assert answer is None or "error" in answer, answer
        other = {"config": {"name": "OTHER", "subjects": ["r.>"]}, "state": {}}
        assert "error" in raw.request("$JS.API.STREAM.RESTORE.R", other)



FIELDS = [
    "num_replicas", "max_msgs", "max_bytes", "max_age", "max_msgs_per_subject", "max_msg_size",
    "max_consumers", "duplicate_window", "first_seq", "subject_delete_marker_ttl",
]


@pytest.mark.parametrize("field", FIELDS)
def test_a37_extreme_configurations(node: Attacked, field: str) -> None:
    """replicas, limits and durations of 2^31, 2^63, 10^30, below zero, of other types | refused \
by field, or taken and alive after a start"""
    for value in HUGE:
        answer = create(node, **{field: value})
        assert answer is not None, (field, value)
        if "error" not in answer:
            assert "error" not in node.api("STREAM.UPDATE.S", answer["config"])
            node.api("STREAM.DELETE.S")


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_a37_sequences_at_their_end(node: Attacked, storage: str) -> None:
    """a stream that begins at 2^63-1, or is purged up to 2^64-1 | its last sequence is used, then \
publishes are refused; it can be deleted, and nothing counts up to it"""
    assert "error" in create(node, first_seq=2**64 - 1, storage=storage)
    assert "error" not in create(node, first_seq=2**63 - 1, storage=storage)
    with node.login() as raw:
        assert raw.request("s.a", b"x")["seq"] == 2**63 - 1
        assert "error" in raw.request("s.a", b"x")
        for body in ({"seq": 2**64 - 1}, {"seq": 2**63}, {"keep": 2**64 - 1, "filter": "s.a"}):
            assert raw.request("$JS.API.STREAM.PURGE.S", body) is not None
        config = {"durable_name": "c", "ack_policy": "explicit"}
        body = {"stream_name": "S", "config": config}
        assert "error" not in raw.request("$JS.API.CONSUMER.CREATE.S.c", body)
        assert raw.request("$JS.API.STREAM.DELETE.S")["success"]


@pytest.mark.parametrize(
    "config",
    [
        {"sources": [None]}, {"sources": [{}]}, {"sources": [{"name": "S"}]}, {"mirror": None},
        {"sources": [{"name": f"s{n}"} for n in range(1000)], "subjects": []},
        {"sources": [{"name": "S", "subject_transforms": [{"src": ">", "dest": "s.>"}]}]},
        {"subject_transform": {"src": ">", "dest": "s.s.>"}},
        {"republish": {"src": "s.>", "dest": "s.>"}}, {"republish": {"src": ">", "dest": "s.x.>"}},
        {"mirror": {"name": "S"}, "subjects": []},
        {"metadata": {str(n): "x" * 100 for n in range(5_000)}}, {"description": "x" * 900_000},
        {"subjects": [">"]}, {"subjects": ["$JS.>"]}, {"subjects": ["$SYS.x"]}, {"subjects": [1]},
        {"placement": {"cluster": "x" * 5000, "tags": ["y"] * 5000}},
    ],
    ids=lambda config: str(config)[:40],
)
def test_a37_configurations_that_turn_in_circles(node: Attacked, config: Any) -> None:
    """null and 1,000 sources, a stream that sources or republishes to itself, the node's own \
subjects | refused in words, at once; or bounded"""
    began = time.monotonic()
    answer = create(node, **config)
    assert answer is not None
    assert within(time.monotonic() - began, CALM_S)
    if "error" not in answer:
        assert node.api("STREAM.INFO.S") is not None
        with node.login() as raw:
            raw.request("s.a", b"x")
        assert node.api("STREAM.INFO.S")["state"]["messages"] < 50
    node.api("STREAM.DELETE.S")


@pytest.mark.parametrize("value", [*HUGE, [], {}])
def test_a38_offsets_and_limits(node: Attacked, stream: Any, value: Any) -> None:
    """offset and limit of 2^63 and below zero in every list | an error or a page, \
never a failure"""
    for call in ("STREAM.NAMES", "STREAM.LIST", "CONSUMER.NAMES.S", "CONSUMER.LIST.S"):
        assert stream.request(f"$JS.API.{call}", {"offset": value, "limit": value}) is not None
    body = {"subjects_filter": ">", "offset": value}
    assert stream.request("$JS.API.STREAM.INFO.S", body) is not None
    for subject in ("$SYS.REQ.SERVER.PING.CONNZ", "$SYS.REQ.ACCOUNT.PING.CONNZ"):
        stream.request(subject, {"offset": value, "limit": value}, 0.1)


def test_a39_filters(node: Attacked, stream: Any) -> None:
    """20,000 filters, overlapping ones, patterns of wildcards | refused or made, in no time"""
    for filters in (
        [f"s.{n}" for n in range(20_000)], ["s.*", "s.>"], ["s." + "*." * 200 + ">"],
        ["s.a"] * 5000, ["", ""], [None], [1], ["s.*.*.*.*.*", "s.>.x"],
    ):
        began = time.monotonic()
        config = {"filter_subjects": filters, "ack_policy": "none"}
        answer = stream.request(
            "$JS.API.CONSUMER.CREATE.S", {"stream_name": "S", "config": config}
        )
        assert answer is not None
        assert within(time.monotonic() - began, CALM_S)


def test_a39_subjects_of_a_stream(node: Attacked) -> None:
    """a stream with 10,000 subjects, two of which overlap or not | checked as a whole in no time"""
    began = time.monotonic()
    many = [f"s.{n}.x" for n in range(10_000)]
    assert "error" in create(node, subjects=[*many, "s.*.x"])
    assert "error" not in create(node, subjects=many)
    assert within(time.monotonic() - began, 2 * CALM_S)
    node.api("STREAM.DELETE.S")


PULLS = [
    {"batch": 2**63 - 1}, {"batch": 2**63}, {"batch": -1}, {"expires": 10**9 * 3600 * 10**9},
    {"expires": -1}, {"batch": 1, "idle_heartbeat": 1, "expires": 10**9}, {"max_bytes": 2**63},
    {"batch": 1, "idle_heartbeat": 2**63 - 1}, {"group": "x" * 100}, {"priority": 10**9},
    {"batch": None}, [], "x", {"min_pending": 2**64}, {"batch": 1, "no_wait": "yes"},
]


@pytest.mark.parametrize("pull", PULLS, ids=lambda pull: str(pull)[:40])
def test_a40_requests_without_measure(node: Attacked, stream: Any, pull: Any) -> None:
    """pulls of 2^63 messages, for 10^9 hours, with heartbeats of a nanosecond | a status or \
messages; nothing else of the connection suffers"""
    config = {"durable_name": "d", "ack_policy": "explicit"}
    stream.request("$JS.API.CONSUMER.DURABLE.CREATE.S.d", {"stream_name": "S", "config": config})
    body = json.dumps(pull).encode()
    head = b"SUB got 5\r\nPUB $JS.API.CONSUMER.MSG.NEXT.S.d got %d\r\n" % len(body)
    stream.socket.sendall(head + body + b"\r\n")
    assert not any("-ERR" in line for line in stream.send())
    stream.send("UNSUB 5\r\n")


def test_a40_many_of_everything(node: Attacked, stream: Any) -> None:
    """10,000 waiting pulls, 5,000 message ids, 5,000 consumers | refused from a limit on, or \
kept; others are served meanwhile"""
    config = {"durable_name": "w", "ack_policy": "explicit", "filter_subject": "s.none"}
    stream.request("$JS.API.CONSUMER.DURABLE.CREATE.S.w", {"stream_name": "S", "config": config})
    pull = b'{"batch":1,"expires":60000000000}'
    line = b"PUB $JS.API.CONSUMER.MSG.NEXT.S.w got %d\r\n%s\r\n" % (len(pull), pull)
    stream.socket.sendall(b"SUB got 6\r\n" + line * 10_000)
    stream.send()
    assert stream.request("$JS.API.CONSUMER.INFO.S.w")["num_waiting"] <= 512
    heads = [b"NATS/1.0\r\nNats-Msg-Id: %d\r\n\r\n" % n for n in range(5000)]
    stream.socket.sendall(
        b"".join(b"HPUB s.id %d %d\r\n%s\r\n" % (len(h), len(h), h) for h in heads)
    )
    stream.send()
    node.check()


def test_a41_storms(node: Attacked, stream: Any) -> None:
    """3,000 purges and lists at once | answered one after the other, others are served between"""
    calls = b"PUB $JS.API.STREAM.PURGE.S x 0\r\n\r\nPUB $JS.API.STREAM.LIST x 0\r\n\r\n"
    stream.socket.sendall(calls * 1500)
    node.check()
    stream.send()


ACKS = [
    b"+ACK", b"-NAK", b"+WPI", b"+TERM", b"+NXT", b'-NAK {"delay": 1000000000000000000000}',
    b'-NAK {"delay": -5}', b"-NAK {", b'+NXT {"batch": 9223372036854775808}', b"+NXT 99999999999",
    b"+TERM " + b"x" * 10_000, b"\x00", b"+ACK" * 1000,
]


def test_a42_forged_acks(node: Attacked, stream: Any) -> None:
    """acks for sequences of the future, of others, below zero, with delays of 10^21 | ignored; \
they move no floor, and end no connection"""
    config = {"durable_name": "k", "ack_policy": "explicit"}
    stream.request("$JS.API.CONSUMER.DURABLE.CREATE.S.k", {"stream_name": "S", "config": config})
    for numbers in (
        "1.999.999.0.0", "1.18446744073709551615.1.0.0", "1.-1.-1.0.0", "9" * 30 + ".1.1.1.1",
        "1.1.1.1", "a.b.c.d.e", "1.99999999999999999999999.5.0.0", "1.1.1.0.0.tok.en",
    ):
        for ack in ACKS:
            subject = f"$JS.ACK.S.k.{numbers}".encode()
            stream.socket.sendall(b"PUB %s %d\r\n%s\r\n" % (subject, len(ack), ack))
    assert not any("-ERR" in line for line in stream.send())
    info = stream.request("$JS.API.CONSUMER.INFO.S.k")
    assert info["ack_floor"]["stream_seq"] == 0 and info["num_pending"] == 10


def with_header(raw: Any, subject: str, headers: str) -> Any:
    """What is answered to an empty message with headers."""
    block = f"NATS/1.0\r\n{headers}\r\n\r\n".encode()
    inbox = f"_INBOX.{time.time_ns()}"
    head = f"SUB {inbox} 9\r\nHPUB {subject} {inbox} {len(block)} {len(block)}\r\n".encode()
    raw.socket.sendall(head + block + b"\r\nPING\r\n")
    got = b""
    while b"PONG\r\n" not in got or b"}\r\n" not in got:
        got += raw.socket.recv(65536)
    raw.socket.sendall(b"UNSUB 9\r\n")
    return got


ODD_HEADERS = {
    "A43": [
        "Nats-TTL: -1", "Nats-TTL: 99999999999999999999", "Nats-TTL: x", "Nats-TTL: 1ns",
        "Nats-TTL: 1e9", "Nats-TTL: 290000000000h", "Nats-Schedule: @every 1ns",
        "Nats-Schedule: @at 9999-99-99", "Nats-Schedule: * * * * * *",
        "Nats-Schedule: @every 1s\r\nNats-Schedule-Target: s.1",
        "Nats-Schedule: @at 2999-01-01T00:00:00Z\r\nNats-Schedule-Target: $JS.API.INFO",
    ],
    "A44": ["Nats-Msg-Id: " + "x" * 900_000, "Nats-Msg-Id: ", "Nats-Msg-Id: \x01"],
    "A45": [
        "Nats-Expected-Last-Sequence: 1\r\nNats-Expected-Last-Sequence: 2",
        "Nats-Expected-Last-Sequence: -1", "Nats-Expected-Last-Sequence: 99999999999999999999",
        "Nats-Expected-Stream: OTHER\r\nNats-Expected-Last-Msg-Id: x",
        "Nats-Expected-Last-Subject-Sequence: 1\r\nNats-Expected-Last-Subject-Sequence-Subject: >",
        "Nats-Rollup: everything", "Nats-Rollup: all\r\nNats-Expected-Last-Sequence: 0",
    ],
    "A46": ["Nats-Incr: +99999999999999999999999999999999", "Nats-Incr: x", "Nats-Incr: -0"],
}


def judge(node: Attacked, headers: list[str]) -> None:
    with node.login("a", headers=True) as raw:
        body = {
            "name": "T", "subjects": ["t.>"], "allow_msg_ttl": True, "storage": "memory",
            "allow_msg_schedules": True,
        }
        raw.request("$JS.API.STREAM.CREATE.T", body)
        for text in headers:
            assert b"MSG" in with_header(raw, "t.1", text), text
        info = raw.request("$JS.API.STREAM.INFO.T")
        assert info["state"]["messages"] <= len(headers)
        raw.request("$JS.API.STREAM.DELETE.T")


def test_a43_lives_and_schedules(node: Attacked) -> None:
    """TTL and schedule headers below zero, beyond all bounds, to the node's own subjects, to \
themselves | an error in the PubAck"""
    judge(node, ODD_HEADERS["A43"])


def test_a44_long_ids(node: Attacked) -> None:
    """a message id of 900 KB | within one message's bounds, counted as the stream's memory"""
    before = node.server.rss()
    judge(node, ODD_HEADERS["A44"])
    assert node.server.rss() - before < 30


def test_a45_expectations_that_contradict(node: Attacked) -> None:
    """expected sequences twice, below zero, beyond 2^64, of other subjects | one error, and \
nothing is stored"""
    judge(node, ODD_HEADERS["A45"])


def test_a46_counters(node: Attacked) -> None:
    """increments of 10^32, that are no numbers | an error, or a number of any length"""
    with node.login("a", headers=True) as raw:
        body = {"name": "N", "subjects": ["n.>"], "allow_msg_counter": True, "storage": "memory"}
        made = raw.request("$JS.API.STREAM.CREATE.N", body)
        assert made is not None
        long = ["Nats-Incr: " + "9" * digits for digits in (4000, 100_000)]
        for text in (*ODD_HEADERS["A46"], *long):
            assert b"MSG" in with_header(raw, "n.1", text), text[:40]
        raw.request("$JS.API.STREAM.DELETE.N")
