"""A1 to A20: what anybody may send to a port before and after a login, and in which wrapping."""

import concurrent.futures
import contextlib
import socket
import ssl
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from bench.servers import Server, free_port
from tests.abuse.attacked import UPGRADE, Attacked
from tests.certificates import certificate
from tests.measuring import within
from tests.operator_realm import recipe

LISTENERS = ("client", "ws", "leaf", "route")
CONNECT = b'CONNECT {"verbose":false,"user":"a","pass":"pa","headers":true}\r\n'
HELLO = {
    "client": CONNECT,
    "leaf": b'CONNECT {"user":"a","pass":"pa","name":"edge","headers":true}\r\n',
    "route": b'CONNECT {"user":"r","pass":"pr","name":"PX","cluster":"C","headers":true}\r\n'
    b'INFO {"server_id":"PX","server_name":"px","cluster":"C","headers":true}\r\n',
}

def frame(payload: bytes, first: int = 0x82) -> bytes:
    """A finished frame of a WebSocket client, with an empty mask."""
    size = len(payload)
    if size < 126:
        return bytes([first, 128 | size]) + bytes(4) + payload
    if size < 65536:
        return struct.pack("!BBH", first, 254, size) + bytes(4) + payload
    return struct.pack("!BBQ", first, 255, size) + bytes(4) + payload


def deflated(payload: bytes) -> bytes:
    """A compressed frame."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = (squeezer.compress(payload) + squeezer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return frame(data, 0xC2)


@pytest.mark.parametrize("listener", LISTENERS)
def test_a01_silence(node: Attacked, listener: str) -> None:
    """connect and say nothing | cut when the time for a login is over"""
    begin = time.monotonic()
    node.ends(b"", listener)
    assert within(time.monotonic() - begin, 4)


def drip(node: Attacked, listener: str, data: bytes) -> float:
    """Seconds until the listener cuts somebody who sends a byte now and then."""
    begin = time.monotonic()
    with node.open(listener) as link, contextlib.suppress(OSError):
        link.settimeout(0.1)
        for at in range(100):
            link.sendall(data[at % len(data) :][:1])
            with contextlib.suppress(TimeoutError):
                while link.recv(4096):
                    pass
                break
    return time.monotonic() - begin


def test_a02_slow_senders(node: Attacked) -> None:
    """one byte at a time in CONNECT, in an upgrade, in a page's request | the deadline is for \
the whole login, not for each byte"""
    attacks = [
        ("client", CONNECT), ("leaf", HELLO["leaf"]), ("route", HELLO["route"]), ("ws", UPGRADE),
    ]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        took = list(pool.map(lambda attack: drip(node, *attack), attacks))
    assert within(max(took), 5), took


@pytest.mark.parametrize("listener", ("client", "leaf", "route"))
def test_a03_a_line_without_an_end(node: Attacked, listener: str) -> None:
    """a control line beyond its limit without CR LF | an error, and the connection ends"""
    assert b"PONG" not in node.ends(b"x" * 200_000, listener)
    if listener == "client":
        assert b"maximum control line exceeded" in node.ends(CONNECT + b"PUB " + b"x" * 5000)


SIZES = ("99999999999999999999", "9" * 3000, "18446744073709551616", "4294967296", "2147483648")


@pytest.mark.parametrize("size", SIZES)
def test_a04_sizes_of_many_digits(node: Attacked, size: str) -> None:
    """a payload of 10^20 bytes announced | the connection ends, nothing is allocated"""
    before = node.server.rss()
    node.ends(CONNECT + f"PUB a {size}\r\n".encode())
    node.ends(HELLO["leaf"] + f"LMSG a {size}\r\n".encode(), "leaf")
    node.ends(HELLO["route"] + f"RMSG A a {size}\r\n".encode(), "route")
    assert node.server.rss() - before < 8


@pytest.mark.parametrize("size", ["-1", "0x10", "+1", "1e3", "1_0", "", "1.5", "٣", "1\x00"])
def test_a05_sizes_that_are_none(node: Attacked, size: str) -> None:
    """a size with a sign, in hex, empty, of other digits | the connection ends"""
    assert b"PONG" not in node.ends(CONNECT + f"PUB a {size}\r\nabc\r\nPING\r\n".encode())
    heads = f"HPUB a {size} 20\r\nabc\r\nPING\r\n".encode()
    assert b"PONG" not in node.ends(CONNECT + heads)


@pytest.mark.parametrize(
    "frames",
    [b"HPUB a 20 10\r\nNATS/1.0\r\n\r\n\r\n", b"HPUB a 12\r\nNATS/1.0\r\n\r\n\r\n"],
)
def test_a06_headers_longer_than_the_message(node: Attacked, frames: bytes) -> None:
    """headers beyond the message's end | the connection ends"""
    assert b"PONG" not in node.ends(CONNECT + frames + b"PING\r\n")


@pytest.mark.parametrize(
    "block",
    [b"NATS/1.0", b"", b"x", b"NATS/1.0\r\n", b"HTTP/1.1\r\n\r\n", b"NATS/1.0\r\nA: b",
     b"NATS/1.0\r\n" + b"a:\r\n" * 100_000 + b"\r\n"],
    ids=lambda block: repr(block[:16]),
)
def test_a06_headers_of_any_form(node: Attacked, block: bytes) -> None:
    """header blocks without a version, without an end, with 100,000 lines | passed on as they \
are; JetStream, which reads them, refuses or stores them, in no time"""
    with node.login() as raw:
        raw.request("$JS.API.STREAM.CREATE.H", {"name": "H", "subjects": ["h"]})
        began = time.monotonic()
        head = b"HPUB h answer %d %d\r\n" % (len(block), len(block))
        raw.socket.sendall(b"SUB answer 3\r\n" + head + block + b"\r\n")
        assert not any("-ERR" in line for line in raw.send())
        assert within(time.monotonic() - began, 1)


def test_a07_a_payload_without_its_end(node: Attacked) -> None:
    """a payload that no CR LF follows | an error, and the connection ends"""
    assert b"Unknown Protocol Operation" in node.ends(CONNECT + b"PUB a 3\r\nabcdPING\r\nPING\r\n")


def test_a08_pings_whose_answers_nobody_reads(node: Attacked) -> None:
    """400,000 PINGs without reading | what is owed is bounded: the sender is not read any more"""
    before = node.server.rss()
    with node.open() as link:
        link.sendall(CONNECT)
        link.settimeout(1)
        with contextlib.suppress(TimeoutError, ConnectionError):
            for _ in range(400):
                link.sendall(b"PING\r\n" * 1000)
        node.check()
        assert node.server.rss() - before < 80


def test_a09_floods_of_subscriptions(node: Attacked) -> None:
    """100,000 SUBs, and UNSUB after 10^30 messages | refused from the limit on; the number is \
taken as the largest there is"""
    with node.login() as raw:
        lines = b"".join(b"SUB f.%d %d\r\n" % (n, n) for n in range(20_000))
        raw.socket.sendall(lines)
        refused = [line for line in raw.send() if "-ERR" in line]
        assert len(refused) == 20_000 - 5000
        assert set(refused) == {"-ERR 'maximum subscriptions exceeded'"}
        assert raw.send(f"UNSUB 1 {'9' * 30}\r\nUNSUB 2 -1\r\nUNSUB 3 x\r\n") == []


ODD_SUBJECTS = [
    "a..b", ".a", "a.", "a.>.b", ">.a", "a\tb", "a\x00b", "a\x7fb", "a\x0bb", "a\rb", "",
    "." * 4000,
]


@pytest.mark.parametrize("subject", ODD_SUBJECTS, ids=lambda subject: repr(subject[:8]))
def test_a10_odd_subjects(node: Attacked, subject: str) -> None:
    """empty tokens, control bytes, `>` in the middle, 4,000 tokens | no interest is made, and no \
frame that reaches anybody has a control byte"""
    with node.login() as ear:
        ear.send("SUB > 1\r\n")
        for line in (f"SUB {subject} 7\r\n", f"PUB {subject} 0\r\n\r\n"):
            node.say(CONNECT + line.encode() + b"PING\r\n")
        for line in ear.send():
            assert line.startswith("MSG ") and line.isprintable() or not line, line


def test_a10_subjects_of_any_bytes(node: Attacked) -> None:
    """subjects that are no UTF-8, of 64 KB, of 10,000 tokens, the node's own | passed on as \
bytes, refused as too long, or answered as for anybody"""
    assert b"PONG" in node.say(CONNECT + b"SUB \xff\xfe 1\r\nPUB \xff\xfe 0\r\n\r\nPING\r\n")
    assert b"maximum control line" in node.ends(CONNECT + b"PUB " + b"a." * 32_000 + b"a 0\r\n\r\n")
    assert b"PONG" in node.say(CONNECT + b"PUB $SYS.REQ.SERVER.PING x 0\r\n\r\nPING\r\n")


CONNECTS = [
    b'{"a":' * 1500, b"[" * 4000, b"{}x", b"null", b"[]", b"1", b'"x"', b"NaN", b'{"user":NaN}',
    b'{"user":"\\ud800"}', b'{"user":"a","user":"b"}', b'{"protocol":1e400}',
    b'{"protocol":99999999999999999999999999}', b'{"verbose":[],"user":{},"pass":1.5,"jwt":[1]}',
    b'{"user":"\x00\\u0000"}', b'{"\xff":1}', b"", b"\xff" * 100, b'{"account":"SYS"}',
    b'{"user":"b","pass":"pa"}', b'{"user":null,"pass":null}', b'{"sig":"x","nkey":"UX"}',
    b'{"auth_token":{"x":1}}', b'{"nkey":1,"sig":2}', b'{"jwt":"a.b.c","sig":""}',
]


@pytest.mark.parametrize("fields", CONNECTS, ids=lambda fields: repr(fields[:20]))
def test_a11_what_is_in_connect(node: Attacked, fields: bytes) -> None:
    """CONNECT of 10 MB, nested, with doubled, unknown and wrong fields | refused in one line, \
without a traceback, and nobody is another one by it"""
    for listener in ("client", "leaf", "route"):
        said = node.ends(b"CONNECT " + fields + b"\r\nPING\r\n", listener)
        assert b"PONG" not in said, (listener, said)
    huge = b"CONNECT {" + b'"x":"y",' * 1_300_000
    assert b"PONG" not in node.ends(huge)


def test_a11_a_field_chooses_no_account(node: Attacked) -> None:
    """`account` and `new_account` in CONNECT | refused: the login says who it is"""
    for fields in (b'"account":"SYS"', b'"new_account":true'):
        said = node.ends(b'CONNECT {"user":"b","pass":"pb",' + fields + b"}\r\nPING\r\n")
        assert b"Authorization Violation" in said and b"PONG" not in said


OTHERS = [
    b"LS+ a\r\n", b"RS+ A a\r\n", b"LMSG a 0\r\n\r\n", b"RMSG A a 0\r\n\r\n", b"A+ A\r\n",
    b"GO\r\n",
    b"A- A\r\n", b"LS- a\r\n", b"RS- A a\r\n", b"HMSG a 0 0\r\n\r\n", b"MSG a 1 0\r\n\r\n",
]


@pytest.mark.parametrize("verb", OTHERS, ids=lambda verb: verb.split()[0].decode())
def test_a12_verbs_of_others(node: Attacked, verb: bytes) -> None:
    """verbs of leafs and routes from a client, and before a login on any listener | an error, \
and the connection ends"""
    assert b"PONG" not in node.ends(CONNECT + verb + b"PING\r\n")
    for listener in ("client", "leaf", "route"):
        assert b"PONG" not in node.ends(verb + b"PING\r\n", listener), listener


def test_a12_handshakes_in_another_order(node: Attacked) -> None:
    """a second CONNECT, INFO from a client, INFO twice before a leaf's CONNECT, a verb first | \
nobody is admitted, and nothing fails"""
    with node.login("b") as raw:
        raw.socket.sendall(CONNECT)
        with contextlib.suppress(ConnectionError):
            raw.send()
    assert b"PONG" in node.say(CONNECT + b"INFO {}\r\nPING\r\n")
    info = b'INFO {"compression":"s2_fast","server_id":"x"}\r\n'
    for first in (info * 2, info * 50, b"LS+ a\r\n" + info, b"-ERR 'Loop detected'\r\n"):
        assert b"LS+" not in node.ends(first + b"LS+ a\r\n", "leaf")
    for first in (b"PING\r\n", b"SUB a 1\r\n", b"PUB a 0\r\n\r\n", b"UNSUB 1\r\n", b"PONG\r\n"):
        assert b"Authorization Violation" in node.ends(first)
    route = HELLO["route"].split(b"\r\n")
    for first in (route[1] + b"\r\n", route[0] + b"\r\n" + route[0] + b"\r\n"):
        assert b"RS+" not in node.ends(first, "route")


def test_a13_verbs_in_pieces(node: Attacked) -> None:
    """mixed case, byte by byte | understood; what is no verb ends the connection"""
    with node.open() as link:
        link.settimeout(5)
        for byte in CONNECT + b"sUb a.b 1\r\npUb a.b 2\r\nhi\r\npInG\r\n":
            link.sendall(bytes([byte]))
        got = b""
        while b"PONG" not in got:
            got += link.recv(4096)
        assert b"MSG a.b 1 2\r\nhi\r\n" in got
    for verb in (b"PIN", b"PUBX a 0\r\n", b"SUBa 1", b"CONNEC {}", b"\x00PING", b"PUB\r\n", b"SUB"):
        assert b"PONG" not in node.ends(CONNECT + verb + b"\r\nPING\r\n"), verb


def client_context(**pair: Any) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if pair:
        context.load_cert_chain(pair["certfile"], pair["keyfile"])
    return context


def test_a14_tls_where_it_does_not_belong(tmp_path: Path) -> None:
    """plain text on a TLS port, TLS on a plain one, a certificate of another listener's \
authority, old versions | the connection ends; nobody is admitted"""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = certificate(tmp_path / "one"), certificate(tmp_path / "two")
    leaf = free_port()
    config = f"""
    tls {{ cert_file: "{one.cert_file}", key_file: "{one.key_file}", ca_file: "{one.cert_file}",
        verify: true, timeout: 1 }}
    leafnodes {{ listen: "127.0.0.1:{leaf}", tls {{ cert_file: "{two.cert_file}",
        key_file: "{two.key_file}", ca_file: "{two.cert_file}", verify: true, timeout: 1 }} }}
    """
    one_pair = {"certfile": one.cert_file, "keyfile": one.key_file}
    two_pair = {"certfile": two.cert_file, "keyfile": two.key_file}

    def said(port: int, context: ssl.SSLContext | None) -> bytes:
        with socket.create_connection(("127.0.0.1", port), 5) as plain:
            plain.recv(4096)
            link: socket.socket = plain
            got = b""
            with contextlib.suppress(OSError):
                if context is not None:
                    link = context.wrap_socket(plain)
                link.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                while part := link.recv(4096):
                    got += part
                    if b"PONG" in got:
                        break
            return got

    old = client_context(**one_pair)
    with contextlib.suppress(ValueError):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with Server(recipe("headwater", config)) as server:
        assert b"PONG" in said(server.port, client_context(**one_pair))
        for context in (None, client_context(), client_context(**two_pair), old):
            assert b"PONG" not in said(server.port, context)
        for context in (None, client_context(), client_context(**one_pair)):
            assert b"INFO" not in said(leaf, context)
        assert b"Traceback" not in server.log_path.read_bytes()


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1, 1 << 62, 1 << 31])
def test_a15_lengths_of_websocket_frames(node: Attacked, length: int) -> None:
    """a frame of 2^63 bytes | the connection ends at its header"""
    before = node.server.rss()
    said = node.websocket(struct.pack("!BBQ", 0x82, 255, length) + bytes(100))
    assert b"PONG" not in said
    assert node.server.rss() - before < 8


CLOSE = b"\x88\x82" + bytes(4) + struct.pack("!H", 1000)
FRAMES = {
    "fragmented ping": b"\x09\x80" + bytes(4),
    "long ping": b"\x89\xfe\x00\x7e" + bytes(4 + 126),
    "unmasked": b"\x82\x06PING\r\n",
    "reserved bits": b"\xb2\x80" + bytes(4),
    "unknown opcode": b"\x83\x80" + bytes(4),
    "unknown control": b"\x8b\x80" + bytes(4),
    "close 1005": b"\x88\x82" + bytes(4) + struct.pack("!H", 1005),
    "close of one byte": b"\x88\x81" + bytes(5),
    "close with garbage": b"\x88\x84" + bytes(4) + b"\xff\xff\xff\xff",
    "continuation of nothing": b"\x80\x80" + bytes(4),
    "text inside text": b"\x02\x80" + bytes(4) + b"\x82\x80" + bytes(4),
    "compressed control": b"\xc9\x80" + bytes(4),
    "not deflate": b"\xc2\x84" + bytes(4) + b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a16_frames_against_the_rules(node: Attacked, kind: str) -> None:
    """control frames in parts or too long, no mask, reserved bits, unknown opcodes, close codes \
| a close frame, and the connection ends"""
    said = node.websocket(FRAMES[kind] + frame(CONNECT + b"PING\r\n"))
    assert b"INFO" in said and b"PONG" not in said


def test_a17_what_inflates(node: Attacked) -> None:
    """12 MB in 12 KB of deflate, before and after a login | inflated in steps: 16 KiB before a \
login, one payload after"""
    before, began = node.server.rss(), time.monotonic()
    node.websocket(deflated(b"PING\r\n" * 2_000_000), squeezed=True)
    node.websocket(deflated(CONNECT) + deflated(b"\r\n" * 6_000_000), squeezed=True)
    assert within(time.monotonic() - began, 5)
    assert node.server.rss() - before < 30


def s2(block: bytes, kind: int = 0) -> bytes:
    """A chunk of an S2 stream with a wrong checksum before its block."""
    body = bytes(4) + block
    return b"\xff\x06\x00\x00S2sTwO" + bytes([kind]) + struct.pack("<I", len(body))[:3] + body


BLOCKS = {
    "declares 4 GB": b"\xff\xff\xff\xff\x0f\x00a",
    "declares 2^70": b"\xff" * 10 + b"\x0f",
    "copy from before": b"\x08\x00a\x09\xff",
    "copy of offset 0": b"\x08\x00a\x01\x00",
    "literal beyond": b"\x04\xfc\xff\xff\xff\xff",
    "empty": b"",
    "zero length": b"\x00",
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_a18_blocks_that_inflate(node: Attacked, kind: str) -> None:
    """S2 on a leaf link: 4 GB declared, copies from before the start, reserved chunks | the \
link ends before anything is allocated"""
    before = node.server.rss()
    info = b'INFO {"compression":"s2_fast","server_id":"x"}\r\n'
    for chunk in (0, 1, 2, 0x7F):
        assert b"LS+" not in node.ends(info + s2(BLOCKS[kind], chunk), "leaf")
    assert node.server.rss() - before < 8


def test_a19_frames_of_nothing(node: Attacked) -> None:
    """10,000 empty frames, compressed or not | they cost little, and bring nothing in"""
    began = time.monotonic()
    said = node.websocket(frame(CONNECT) + frame(b"") * 10_000 + frame(b"PING\r\nX\r\n"))
    assert b"PONG" in said
    for empty in (frame(b"\x00", 0xC2), frame(b"", 0xC2)):
        node.websocket(frame(CONNECT) + empty * 10_000 + CLOSE, squeezed=True)
    assert within(time.monotonic() - began, 6)


def test_a20_plain_text_after_compression(node: Attacked) -> None:
    """compression agreed on, then plain text | the link ends"""
    info = b'INFO {"compression":"s2_fast","server_id":"x"}\r\n'
    assert b"LS+" not in node.ends(info + HELLO["leaf"] + b"PING\r\n", "leaf")
    assert b"PONG" not in node.websocket(CONNECT + b"PING\r\n")
