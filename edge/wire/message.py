"""What a NATS server says to a client: messages and control lines, cut out of a stream of bytes.

Sans-IO: the reader takes bytes as they come and never waits.
"""

from dataclasses import dataclass

LINE_MAX = 1 << 20
"""Bytes of a control line; INFO of a large cluster is the longest."""
MESSAGE_MAX = 64 << 20
"""Bytes of one message with its headers; no server may be configured to take more."""


class WireError(Exception):
    """A server broke the protocol. Every error of the client is one of these."""


@dataclass(slots=True)
class Message:
    """One received message."""

    subject: str
    sid: str
    """The subscription that it came for."""
    reply: str
    block: bytes
    """The header block with its first line; b"" without headers."""
    payload: bytes

    @property
    def status(self) -> int:
        """The number in the header block's first line (404, 503, ...); 0 without one."""
        number = self.block[8:12]
        return int(number) if number[:1] == b" " and number[1:].isdigit() else 0

    @property
    def text(self) -> str:
        """What follows the status."""
        return self.block.partition(b"\r\n")[0][13:].decode("utf-8", "replace")

    @property
    def headers(self) -> dict[str, str]:
        """Every header; of one that is repeated, the first value. Bytes that are no UTF-8 come
        back as they were with `encode("utf-8", "surrogateescape")`."""
        found: dict[str, str] = {}
        for line in self.block.decode("utf-8", "surrogateescape").split("\r\n")[1:]:
            name, colon, value = line.partition(":")
            if colon:
                found.setdefault(name, value.strip())
        return found


def header_block(headers: dict[str, str]) -> bytes:
    """A header block for HPUB; b"" for no headers. Raises WireError when one would break it."""
    for name, value in headers.items():
        if not name or any(char in name for char in ":\r\n ") or "\r" in value or "\n" in value:
            raise WireError(f"the header {name!r} cannot be sent: a name or value breaks the line")
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    block = f"NATS/1.0\r\n{lines}\r\n" if lines else ""
    return block.encode("utf-8", "surrogateescape")


class MessageReader:
    """Holds what has arrived and is not used yet: at most one message or line, and one read."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0
        self._later: list[bytes] = []
        """What came after `_data`; joined when the message is whole."""
        self._lacks = 0
        """Bytes that the message is short of."""

    def feed(self, data: bytes) -> None:
        """More bytes of the server."""
        self._later.append(data)
        self._lacks -= len(data)
        if self._lacks <= 0:
            self._join()

    def _join(self) -> None:
        self._data = b"".join([self._data[self._at :], *self._later])
        self._at = self._lacks = 0
        self._later.clear()

    def rest(self) -> bytes:
        """What has arrived and is not used; the reader is empty afterwards."""
        self._join()
        rest, self._data = self._data, b""
        return rest

    def next(self) -> Message | bytes | None:
        """A message, or a control line without its end; None until more bytes are fed. Raises
        WireError."""
        if self._lacks > 0:
            return None
        end = self._data.find(b"\r\n", self._at, self._at + LINE_MAX + 2)
        if end < 0:
            if len(self._data) - self._at > LINE_MAX:
                raise WireError(f"the server sent a line of more than {LINE_MAX} bytes")
            return None
        line = self._data[self._at : end]
        if not line.startswith((b"MSG ", b"HMSG ")):
            self._at = end + 2
            return line
        return self._message(line, end + 2)

    def _message(self, line: bytes, begin: int) -> Message | None:
        words = line.decode("utf-8", "surrogateescape").split()
        plain = 2 if words[0] == "HMSG" else 1
        sizes = words[-plain:]
        if len(words) - plain not in (3, 4) or not all(_is_size(size) for size in sizes):
            raise WireError(f"the server sent a line that is no message: {line[:80]!r}")
        head, total = int(sizes[0]) if plain == 2 else 0, int(sizes[-1])
        if head > total:
            raise WireError(f"the server sent headers longer than their message: {line[:80]!r}")
        if len(self._data) < begin + total + 2:
            self._lacks = begin + total + 2 - len(self._data)
            return None
        self._at = begin + total + 2
        if self._data[begin + total : self._at] != b"\r\n":
            raise WireError("the server sent a message that is not as long as it says")
        reply = words[3] if len(words) - plain == 4 else ""
        block = self._data[begin : begin + head]
        payload = self._data[begin + head : begin + total]
        return Message(words[1], words[2], reply, block, payload)


def _is_size(word: str) -> bool:
    """Whether it is a number of bytes that a message may have."""
    return word.isascii() and word.isdigit() and len(word) < 10 and int(word) <= MESSAGE_MAX
