"""What a server sends, cut into messages: whole, in pieces, and wrong."""

import pytest

from headwater.edge.wire.message import (
    LINE_MAX,
    MESSAGE_MAX,
    Message,
    MessageReader,
    WireError,
    header_block,
)

TEXT = (
    b"+OK\r\nMSG a.b 1 5\r\nhello\r\n"
    b"HMSG a.b 2 in.box 35 38\r\nNATS/1.0 404 No Messages\r\nA: 1\r\n\r\n\r\nabc\r\n"
    b"MSG a 1 0\r\n\r\nPONG\r\n"
)
FOUND = [
    b"+OK",
    Message("a.b", "1", "", b"", b"hello"),
    Message("a.b", "2", "in.box", b"NATS/1.0 404 No Messages\r\nA: 1\r\n\r\n\r\n", b"abc"),
    Message("a", "1", "", b"", b""),
    b"PONG",
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(TEXT)])
def test_messages_come_whole_however_the_bytes_come(step: int) -> None:
    text = TEXT.replace(b" 35 38\r\n", b" 36 39\r\n")
    reader, found = MessageReader(), []
    for at in range(0, len(text), step):
        reader.feed(text[at : at + step])
        while (taken := reader.next()) is not None:
            found.append(taken)
    assert found == FOUND
    assert reader.rest() == b""


def test_headers_and_status() -> None:
    plain = Message("a", "1", "", header_block({"Key": "v: 1", "Other": "\udcff"}), b"")
    assert (plain.status, plain.text) == (0, "")
    assert plain.headers == {"Key": "v: 1", "Other": "\udcff"}
    told = Message("a", "1", "", b"NATS/1.0 503\r\n\r\n", b"")
    assert (told.status, told.text, told.headers) == (503, "", {})
    assert FOUND[2].status == 404 and FOUND[2].text == "No Messages"
    assert Message("a", "1", "", b"", b"").status == 0
    assert header_block({}) == b""


@pytest.mark.parametrize("headers", [{"a:b": "c"}, {"": "c"}, {"a": "b\r\nc: d"}, {"a b": "c"}])
def test_headers_that_would_be_something_else_are_not_sent(headers: dict[str, str]) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        header_block(headers)


@pytest.mark.parametrize(
    "text",
    [
        b"MSG a 1 x\r\n", b"MSG a 1 -5\r\n", b"MSG a 5\r\n", b"MSG a 1 r e 5\r\n",
        b"MSG a 1 %d\r\n" % (MESSAGE_MAX + 1), b"HMSG a 1 9 5\r\n", b"MSG a 1 2\r\nabcd",
        b"x" * (LINE_MAX + 3), "MSG a 1 \u0663\r\n".encode(),
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(text: bytes) -> None:
    reader = MessageReader()
    reader.feed(text)
    with pytest.raises(WireError):
        reader.next()


def test_a_large_message_in_many_pieces_is_joined_once() -> None:
    reader = MessageReader()
    reader.feed(b"MSG a 1 8388608\r\n")
    for _ in range(2048):
        assert reader.next() is None
        reader.feed(bytes(4096))
        assert len(reader._data) < 100 or not reader._later
    reader.feed(b"\r\nPING\r\n")
    assert len(reader.next().payload) == 8 << 20
    assert reader.next() == b"PING"
