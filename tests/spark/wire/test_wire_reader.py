"""The compiled reader against a plain model, with every way to cut the bytes."""

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.spark.wire import wire_reader as w

SID = 2


def ack(sequence: int, delivered: int, stamp: int = 1_000_000_000, pending: int = 9) -> bytes:
    return f"$JS.ACK.S.c.1.{sequence}.{delivered}.{stamp}.{pending}".encode()


def msg(subject: bytes, reply: bytes, payload: bytes, headers: bytes = b"") -> bytes:
    if headers:
        total = len(headers) + len(payload)
        line = b"HMSG %s %d %s %d %d\r\n" % (subject, SID, reply, len(headers), total)
        return line + headers + payload + b"\r\n"
    return b"MSG %s %d %s %d\r\n%s\r\n" % (subject, SID, reply, len(payload), payload)


def offsets(part: tuple[bytearray, int]) -> list[int]:
    return list(struct.unpack(f"<{part[1] // 4}i", part[0][: part[1]]))


def longs(part: tuple[bytearray, int]) -> list[int]:
    return list(struct.unpack(f"<{part[1] // 8}q", part[0][: part[1]]))


def cells(at: tuple[bytearray, int], data: tuple[bytearray, int]) -> list[bytes]:
    positions = offsets(at)
    raw = bytes(data[0][: data[1]])
    return [raw[a:b] for a, b in zip(positions, positions[1:], strict=False)]


def drain(reader: w.WireReader, chunks: list[bytes]) -> tuple[list[w.Columns], list, int]:
    """Feed all chunks; returns batches, control frames and the last answer that ended it."""
    batches, frames = [], []
    pending = list(chunks)
    while True:
        answer = reader.advance()
        if answer == w.FULL:
            batches.append(reader.drain())
        elif answer == w.FRAME:
            frames.append(reader.frame)
        elif answer == w.NEED and pending:
            reader.feed(pending.pop(0))
        else:
            batches.append(reader.drain())
            return batches, frames, answer


def reader(end: int = 10**9, **columns) -> w.WireReader:
    made = w.WireReader(1, end, **columns)
    made.expect(SID)
    return made


def test_every_split_of_a_mixed_stream_gives_the_same_rows() -> None:
    block = b"NATS/1.0\r\nA: 1\r\nB:  two \r\n\r\n"
    data = (
        b'INFO {"server_id":"x"}\r\n'
        + msg(b"a.b", ack(1, 1, 1_500), b"one\r\nMSG x 1 3\r\n")
        + b"PING\r\n"
        + msg(b"a.c", ack(2, 2, -1), b"", block)
        + msg(b"_INBOX.z", b"", b"{}").replace(b"  ", b" ")
        + b"-ERR 'Slow Consumer'\r\n"
        + msg(b"a.d", ack(7, 3, 2_999), b"\x00\xff" * 20, block)
    )
    for cut in range(len(data) + 1):
        batches, frames, answer = drain(reader(headers=w.HEADERS_MAP), [data[:cut], data[cut:]])
        assert answer == w.NEED
        (rows,) = batches
        assert longs(rows.sequence) == [1, 2, 7]
        assert longs(rows.timestamp) == [1500, -1, 2999]
        assert cells(rows.subject_offsets, rows.subject_data) == [b"a.b", b"a.c", b"a.d"]
        assert cells(rows.payload_offsets, rows.payload_data) == [
            b"one\r\nMSG x 1 3\r\n",
            b"",
            b"\x00\xff" * 20,
        ]
        assert offsets(rows.header_offsets) == [0, 0, 2, 4]
        assert cells(rows.key_offsets, rows.key_data) == [b"A", b"B"] * 2
        assert cells(rows.value_offsets, rows.value_data) == [b"1", b"two"] * 2
        assert [frame.verb for frame in frames] == ["INFO", "PING", "MSG", "ERR"]
        assert frames[2].subject == "_INBOX.z" and frames[2].payload == b"{}"
        assert frames[3].payload == b"Slow Consumer"


HEADER = st.tuples(
    st.sampled_from([b"Nats-Msg-Id", b"X", b"x", b"\xc3\xa9", b"Empty"]),
    st.sampled_from([b"", b"v", b"a b", b"\xe2\x82\xac", b"\xff"]),
)
MESSAGE = st.tuples(
    st.sampled_from([b"t", b"t.a.b", "t.é".encode(), b"t.\xff"]),
    st.binary(max_size=60),
    st.lists(HEADER, max_size=4),
    st.integers(1, 5),
    st.integers(-(10**10), 8 * 10**18),
)


def text(raw: bytes) -> bytes:
    return raw.decode("utf-8", "replace").encode()


def joined(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    folded: dict[bytes, bytes] = {}
    for name, value in headers:
        name, value = text(name), text(value)
        folded[name] = folded[name] + b", " + value if name in folded else value
    return list(folded.items())


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(MESSAGE, max_size=30), st.integers(1, 97), st.integers(1, 400))
def test_model(messages: list, step: int, target: int) -> None:
    data, model, sequence = b"", [], 0
    for delivered, (subject, payload, headers, skip, stamp) in enumerate(messages, 1):
        sequence += skip
        block = b""
        if headers:
            lines = b"".join(b"%s: %s\r\n" % pair for pair in headers)
            block = b"NATS/1.0\r\n" + lines + b"\r\n"
        data += msg(subject, ack(sequence, delivered, stamp), payload, block)
        model.append((sequence, stamp, text(subject), payload, joined(headers)))
    chunks = [data[at : at + step] for at in range(0, len(data), step)]
    batches, frames, _ = drain(reader(target_bytes=target, headers=w.HEADERS_MAP), chunks)
    assert not frames
    got = []
    for part in batches:
        subjects = cells(part.subject_offsets, part.subject_data)
        payloads = cells(part.payload_offsets, part.payload_data)
        pairs = list(
            zip(
                cells(part.key_offsets, part.key_data),
                cells(part.value_offsets, part.value_data),
                strict=True,
            )
        )
        positions = offsets(part.header_offsets)
        assert part.pairs == len(pairs) == positions[-1]
        for row in range(part.rows):
            got.append(
                (
                    longs(part.sequence)[row],
                    longs(part.timestamp)[row],
                    subjects[row],
                    payloads[row],
                    pairs[positions[row] : positions[row + 1]],
                )
            )
    assert got == model


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=80), max_size=6), st.randoms(use_true_random=False))
def test_damaged_bytes_never_do_more_than_raise(parts: list[bytes], random) -> None:
    good = msg(b"a", ack(1, 1), b"payload", b"NATS/1.0\r\nA:b\r\n\r\n") + msg(b"b", ack(2, 2), b"x")
    damaged = bytearray(good)
    for _ in range(3):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    try:
        drain(reader(headers=w.HEADERS_MAP), [bytes(damaged), *parts])
    except w.WireError:
        return


def test_the_domain_form_of_the_ack_subject() -> None:
    reply = b"$JS.ACK.hub.acchash.S.c.1.5.1.1000.3"
    for tail in (b"", b".random"):
        batches, _, _ = drain(reader(), [msg(b"a", reply + tail, b"p")])
        assert longs(batches[0].sequence) == [5]


def test_the_end_sequence_ends_the_range() -> None:
    data = b"".join(msg(b"a", ack(n, n), b"p") for n in range(1, 5))
    batches, _, answer = drain(reader(end=3), [data])
    assert answer == w.END
    assert longs(batches[0].sequence) == [1, 2, 3]


def test_a_sequence_above_the_end_ends_the_range_and_is_left_out() -> None:
    data = msg(b"a", ack(1, 1), b"p") + msg(b"a", ack(9, 2), b"p")
    made = reader(end=5)
    batches, _, answer = drain(made, [data])
    assert answer == w.END
    assert longs(batches[0].sequence) == [1]
    assert made.last_sequence == 1


def test_nothing_pending_is_reported() -> None:
    _, _, answer = drain(reader(), [msg(b"a", ack(4, 1, pending=0), b"p")])
    assert answer == w.DRAINED


@pytest.mark.parametrize("second", [ack(2, 3), ack(1, 2)])
def test_missing_and_repeated_deliveries_are_seen(second: bytes) -> None:
    data = msg(b"a", ack(1, 1), b"p") + msg(b"a", second, b"q")
    batches, _, answer = drain(reader(), [data])
    assert answer == w.DISORDER
    assert longs(batches[0].sequence) == [1]


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a 2\r\n",
        b"MSG a 2 r 99999999999\r\nx\r\n",
        b"MSG a 2 r -1\r\nx\r\n",
        b"HMSG a 2 r 9 3\r\nabc\r\n",
        b"MSG a 2 r 1\r\nxyz\r\n",
        b"MSG a 2 $JS.ACK.S.c.1.x.1.1.1 1\r\nx\r\n",
        b"MSG a 2 $JS.ACK.S.c.1 1\r\nx\r\n",
        b"WHAT\r\n",
        b"\r\n",
    ],
)
def test_what_is_not_the_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(w.WireError):
        drain(reader(), [line])


def test_a_control_line_without_end_is_refused() -> None:
    with pytest.raises(w.WireError):
        drain(reader(), [b"INFO " + b"x" * (w.MAX_LINE + 1)])


def test_a_message_larger_than_the_buffer() -> None:
    payload = bytes(range(256)) * 12_000
    data = msg(b"a", ack(1, 1), payload)
    chunks = [data[at : at + 100_000] for at in range(0, len(data), 100_000)]
    batches, _, _ = drain(reader(), chunks)
    assert cells(batches[0].payload_offsets, batches[0].payload_data) == [payload]


def test_columns_that_are_off_are_none() -> None:
    made = reader(subject=False, payload=w.PAYLOAD_OFF)
    batches, _, _ = drain(made, [msg(b"a", ack(1, 1), b"p")])
    assert batches[0].subject_offsets is None and batches[0].payload_offsets is None
    listed = reader(payload=w.PAYLOAD_LIST, headers=w.HEADERS_RAW)
    block = b"NATS/1.0\r\nA:b\r\n\r\n"
    batches, _, _ = drain(listed, [msg(b"a", ack(1, 1), b"p", block) + msg(b"a", ack(2, 2), b"q")])
    assert batches[0].payloads == [b"p", b"q"]
    assert cells(batches[0].header_offsets, batches[0].header_data) == [block, b""]


def test_receive_reads_into_the_buffer() -> None:
    data = msg(b"a", ack(1, 1), b"p")

    def recv_into(room: memoryview) -> int:
        room[: len(data)] = data
        return len(data)

    made = reader()
    assert made.receive(recv_into) == len(data)
    assert made.advance() == w.NEED
    assert made.rows == 1


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """`data` cut at the sizes, which come again and again."""
    cut, at = [], 0
    while at < len(data):
        size = sizes[len(cut) % len(sizes)]
        cut.append(data[at : at + size])
        at += size
    return cut


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([0, 5, 131_071, 131_072, 131_073, 400_000]), min_size=1, max_size=5),
    st.lists(st.integers(1, 200_000), min_size=1, max_size=5).filter(lambda s: sum(s) > 2000),
)
def test_large_messages_between_small_ones(sizes: list[int], cuts: list[int]) -> None:
    """Large messages are read to where they stay; they come whole and in order, as others do."""
    block = b"NATS/1.0\r\nA:b\r\n\r\n"
    sent = [(f"a.{n}", n % 3 == 2, bytes([n]) * size) for n, size in enumerate(sizes)]
    lines = [
        msg(name.encode(), b"back.%d" % n, body, block if headed else b"")
        for n, (name, headed, body) in enumerate(sent)
    ]
    _, frames, answer = drain(reader(), pieces(b"PING\r\n" + b"".join(lines), cuts))
    assert [frame.verb for frame in frames] == ["PING"] + ["MSG"] * len(sizes)
    assert [(f.subject, bool(f.headers), f.payload) for f in frames[1:]] == sent
    assert [f.reply for f in frames[1:]] == [f"back.{n}" for n in range(len(sizes))]
    assert answer == w.NEED


def test_a_large_message_is_received_in_place() -> None:
    """No read goes beyond its end, and a reset forgets it."""
    body = bytes(range(256)) * 1000
    data = b"MSG a %d %d\r\n%s\r\n" % (9, len(body), body)
    at = 0

    def recv_into(room: memoryview) -> int:
        nonlocal at
        count = min(len(room), len(data) - at, 70_000)
        room[:count] = data[at : at + count]
        at += count
        return count

    made = w.WireReader()
    made.feed(b"MSG a 9 200000\r\nxx")
    assert made.advance() == w.NEED
    made.reset()
    while made.advance() == w.NEED:
        assert made.receive(recv_into)
    assert made.frame.payload == body and made.frame.sid == 9
    assert at == len(data)


def test_a_large_message_that_does_not_end_is_refused() -> None:
    with pytest.raises(w.WireError, match="does not end"):
        drain(reader(), [b"MSG a 9 200000\r\n", b"x" * 200_002])


def test_ascii_is_told_within_bounds() -> None:
    text = b"abc\xc3\xa9abc"
    assert w.is_ascii(text, 0, 3) and w.is_ascii(text, 5, 8) and w.is_ascii(text, 8, 8)
    assert not w.is_ascii(text, 0, 4) and not w.is_ascii(text, 4, 8)
    for start, end in ((-1, 2), (3, 2), (0, 9)):
        with pytest.raises(w.WireError):
            w.is_ascii(text, start, end)
