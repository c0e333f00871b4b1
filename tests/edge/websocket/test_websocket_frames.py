"""WebSocket without sockets: the opening request, and frames both ways."""

import base64
import os
import zlib
from http import HTTPStatus

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import generate_accept_token

from headwater.edge.conf.options import WebSocketOptions
from headwater.edge.websocket import websocket_filter
from headwater.edge.websocket.websocket_filter import FRAME_BYTES_MAX, WebSocketFilter
from headwater.edge.websocket.websocket_request import RefusedError, UpgradeReader
from headwater.edge.wire.http_heads import HEAD_MAX

KEY = base64.b64encode(b"0123456789abcdef").decode()
HEADERS = {
    "Host": "node.example:8080",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


def request(method: str = "GET", path: str = "/", **changes: str | None) -> bytes:
    headers: dict[str, str | None] = dict(HEADERS)
    headers.update({name.replace("_", "-"): value for name, value in changes.items()})
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()


def reader(secure: bool = False, **options: object) -> UpgradeReader:
    return UpgradeReader(WebSocketOptions(**options), secure=secure)  # type: ignore[arg-type]


def test_a_good_request_in_pieces_is_answered() -> None:
    whole = request(path="/some/where?x=1", Cookie='token=s3cret; other="a b"')
    subject = reader()
    for byte in whole[:-1]:
        assert subject.feed(bytes([byte])) is None
    upgrade = subject.feed(whole[-1:])
    assert upgrade is not None
    assert upgrade.path == "/some/where"
    assert upgrade.cookies() == {"token": "s3cret", "other": "a b"}
    answer = upgrade.answer({"X-Extra": "1"}).decode()
    assert answer.startswith("HTTP/1.1 101 Switching Protocols\r\n")
    assert generate_accept_token(KEY.encode()).decode() in answer
    assert "X-Extra: 1\r\n" in answer
    assert "Extensions" not in answer


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (request("POST"), HTTPStatus.METHOD_NOT_ALLOWED),
        (request(Host=None), HTTPStatus.BAD_REQUEST),
        (request(Host=""), HTTPStatus.BAD_REQUEST),
        (request(Upgrade="h2c"), HTTPStatus.BAD_REQUEST),
        (request(Connection="close"), HTTPStatus.BAD_REQUEST),
        (request(Sec_WebSocket_Key=None), HTTPStatus.BAD_REQUEST),
        (request(Sec_WebSocket_Key="c2hvcnQ="), HTTPStatus.BAD_REQUEST),
        (request(Sec_WebSocket_Key="no base64 !"), HTTPStatus.BAD_REQUEST),
        (request(Sec_WebSocket_Version="8"), HTTPStatus.BAD_REQUEST),
        (request() + b"PING\r\n", HTTPStatus.BAD_REQUEST),
        (b"INFO {}\r\n\r\n", HTTPStatus.BAD_REQUEST),
        (
            b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_MAX,
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        ),
    ],
)
def test_bad_requests_are_refused(raw: bytes, status: HTTPStatus) -> None:
    with pytest.raises(RefusedError) as caught:
        reader().feed(raw)
    assert caught.value.status is status
    assert caught.value.answer().startswith(f"HTTP/1.1 {status.value} ".encode())


@pytest.mark.parametrize(
    ("origin", "options", "secure", "welcome"),
    [
        ("http://evil.example", {}, False, True),
        (None, {"same_origin": True}, False, True),
        ("http://node.example:8080", {"same_origin": True}, False, True),
        ("https://node.example:8080", {"same_origin": True}, False, False),
        ("https://node.example:8080", {"same_origin": True}, True, True),
        ("http://node.example", {"same_origin": True}, False, False),
        ("http://a.example", {"allowed_origins": ["http://a.example:80"]}, False, True),
        ("http://b.example", {"allowed_origins": ["http://a.example:80"]}, False, False),
        ("nonsense", {"allowed_origins": ["http://a.example:80"]}, False, False),
        ("http://a.example:port", {"same_origin": True}, False, False),
    ],
)
def test_origins(
    origin: str | None, options: dict[str, object], secure: bool, welcome: bool
) -> None:
    subject = reader(secure, **options)
    if welcome:
        assert subject.feed(request(Origin=origin)) is not None
    else:
        with pytest.raises(RefusedError) as caught:
            subject.feed(request(Origin=origin))
        assert caught.value.status is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(("value", "address"), [("10.1.2.3", "10.1.2.3"), ("me", ""), (None, "")])
def test_forwarded_addresses_must_be_addresses(value: str | None, address: str) -> None:
    upgrade = reader().feed(request(X_Forwarded_For=value))
    assert upgrade is not None
    assert upgrade.forwarded_for() == address


@pytest.mark.parametrize(
    ("offered", "enabled", "agreed"),
    [
        ("permessage-deflate; client_max_window_bits", True, True),
        ("x-webkit-deflate-frame, permessage-deflate", True, True),
        ("permessage-deflate", False, False),
        ("bbf-usp-protocol", True, False),
    ],
)
def test_compression_is_agreed_on(offered: str, enabled: bool, agreed: bool) -> None:
    upgrade = reader(compression=enabled).feed(request(Sec_WebSocket_Extensions=offered))
    assert upgrade is not None
    assert upgrade.compression is agreed
    assert (b"Sec-WebSocket-Extensions" in upgrade.answer({})) is agreed


def peer() -> Connection:
    return Connection(ConnectionType.CLIENT)


def test_frames_give_bytes_however_they_are_cut() -> None:
    client, subject = peer(), WebSocketFilter()
    wire = client.send(BytesMessage(data=b"PUB a 5\r\nhel", message_finished=False))
    wire += client.send(BytesMessage(data=b"lo\r\n"))
    wire += client.send(TextMessage(data="PING\r\n"))
    got = b"".join(subject.receive(wire[i : i + 3]) for i in range(0, len(wire), 3))
    assert got == b"PUB a 5\r\nhello\r\nPING\r\n"


def test_what_is_sent_comes_in_messages_of_bounded_size() -> None:
    client, subject = peer(), WebSocketFilter()
    payload = os.urandom(FRAME_BYTES_MAX * 2 + 10)
    client.receive_data(subject.send(payload))
    events = list(client.events())
    assert b"".join(event.data for event in events) == payload
    assert [event.message_finished for event in events if event.message_finished] == [True] * 3


def test_pings_are_answered_before_data() -> None:
    client, subject = peer(), WebSocketFilter()
    assert subject.receive(client.send(Ping(payload=b"are you there"))) == b""
    client.receive_data(subject.send(b"data"))
    assert list(client.events()) == [Pong(payload=b"are you there"), BytesMessage(data=b"data")]


def test_a_close_is_answered_and_ends_the_connection() -> None:
    client, subject = peer(), WebSocketFilter()
    with pytest.raises(ConnectionError, match="Client Closed"):
        subject.receive(client.send(CloseConnection(code=1000)))
    client.receive_data(subject.send(b"too late"))
    assert [event.code for event in client.events()] == [1000]


@pytest.mark.parametrize("wire", [b"\x82\x03abc", b"\x83\x80\0\0\0\0", b"\xc2\x80\0\0\0\0"])
def test_broken_frames_are_a_protocol_violation(wire: bytes) -> None:
    """Unmasked, reserved opcode, reserved bit."""
    client, subject = peer(), WebSocketFilter()
    with pytest.raises(ConnectionError, match="Protocol Violation"):
        subject.receive(wire)
    client.receive_data(subject.send(b""))
    assert [event.code for event in client.events()] == [1002]
    assert subject.receive(b"more") == b""


@pytest.mark.parametrize(
    ("reason", "code"),
    [("Server Shutdown", 1001), ("Authentication Failure", 1008), ("Kicked", 1011)],
)
def test_the_last_frame_tells_the_reason(reason: str, code: int) -> None:
    client, subject = peer(), WebSocketFilter()
    subject.finish(reason)
    client.receive_data(subject.send(b"-ERR 'bye'\r\n"))
    message, close = client.events()
    assert message == BytesMessage(data=b"-ERR 'bye'\r\n")
    assert (close.code, close.reason) == (code, reason)


def test_compression_leaves_short_messages_alone() -> None:
    subject = WebSocketFilter(compression=True)
    short, long = subject.send(b"x" * 20), subject.send(b"x" * 2000)
    assert not short[0] & 0x40
    assert long[0] & 0x40
    assert len(long) < 100


def test_a_message_that_inflates_too_far_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket_filter, "INFLATED_BYTES_MAX", 10_000)
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(b"\0" * 1_000_000) + packer.flush(zlib.Z_SYNC_FLUSH)
    packed = packed[:-4]
    frame = b"\xc2" + bytes([0x80 | 126]) + len(packed).to_bytes(2, "big") + b"\0" * 4 + packed
    subject = WebSocketFilter(compression=True)
    with pytest.raises(ConnectionError):
        subject.receive(frame)
    assert subject.send(b"")[2:4] == (1009).to_bytes(2, "big")


@pytest.mark.parametrize("head", [b"\x82\xfe\0\x06", b"\x82\xff" + bytes(7) + b"\x06"])
def test_lengths_may_use_more_bytes_than_they_need(head: bytes) -> None:
    wire = head + bytes(4) + b"PING\r\n"
    subject = WebSocketFilter()
    got = b"".join(subject.receive(wire[i : i + 1]) for i in range(len(wire)))
    assert got == b"PING\r\n"


def test_text_need_not_be_text() -> None:
    assert WebSocketFilter().receive(b"\x81\x82" + bytes(4) + b"\xff\xfe") == b"\xff\xfe"


@pytest.mark.parametrize("compressed", [False, True])
def test_a_ping_within_a_message_leaves_the_message_alone(compressed: bool) -> None:
    packer = zlib.compressobj(wbits=-15)
    data = b"PING\r\n" * 3
    if compressed:
        data = (packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    first = b"\x42" if compressed else b"\x02"
    wire = first + b"\x83" + bytes(4) + data[:3]
    wire += b"\x89\x81" + bytes(4) + b"p"
    wire += b"\x80" + bytes([0x80 | len(data[3:])]) + bytes(4) + data[3:]
    subject = WebSocketFilter(compression=compressed)
    assert subject.receive(wire) == b"PING\r\n" * 3
    assert subject.send(b"") == b"\x8a\x01p"


def test_pings_do_not_lift_the_bound_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_filter, "INFLATED_BYTES_MAX", 10_000)
    packer = zlib.compressobj(wbits=-15)
    subject = WebSocketFilter(compression=True)
    subject.bound(10_000, -1)
    first = packer.compress(b"\0" * 6000) + packer.flush(zlib.Z_SYNC_FLUSH)
    second = packer.compress(b"\0" * 6000) + packer.flush(zlib.Z_SYNC_FLUSH)
    head = b"\x42" + bytes([0x80 | len(first)]) + bytes(4)
    assert len(subject.receive(head + first)) == 6000
    assert subject.receive(b"\x89\x80" + bytes(4)) == b""
    with pytest.raises(ConnectionError):
        subject.receive(b"\0" + bytes([0x80 | len(second)]) + bytes(4) + second)


def test_what_came_before_a_close_is_answered_before_it() -> None:
    client, subject = peer(), WebSocketFilter()
    wire = client.send(BytesMessage(data=b"PING\r\n")) + client.send(CloseConnection(code=1000))
    assert subject.receive(wire) == b"PING\r\n"
    answer = subject.send(b"PONG\r\n")
    with pytest.raises(ConnectionError, match="Client Closed"):
        subject.receive(b"")
    client.receive_data(answer + subject.send(b"too late"))
    message, close = client.events()
    assert (message.data, close.code) == (b"PONG\r\n", 1000)


def test_masks_are_left_out_by_agreement() -> None:
    upgrade = reader().feed(request(Nats_No_Masking="true"))
    assert upgrade is not None
    assert b"\r\nNats-No-Masking: true\r\n" in upgrade.answer({})
    subject = WebSocketFilter(masked=upgrade.masked)
    assert subject.receive(b"\x82\x06PING\r\n") == b"PING\r\n"
    with pytest.raises(ConnectionError, match="Protocol Violation"):
        subject.receive(b"\x82\x86" + bytes(4) + b"PING\r\n")
    for asked in (None, "yes", "True"):
        upgrade = reader().feed(request(Nats_No_Masking=asked))
        assert upgrade is not None
        assert upgrade.masked
        assert b"No-Masking" not in upgrade.answer({})
