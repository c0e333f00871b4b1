"""The framed S2 and Snappy stream format, in which backups travel.

Writing puts blocks into frames as they are (the format allows it, every reader takes it); reading
decodes compressed blocks as well, since real servers compress. Sizes are checked before memory is
taken: a frame holds at most FRAME_MAX bytes.
"""

from headwater.edge.storage.format.crc import checksum

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
BLOCK_BYTES = 1 << 16
FRAME_MAX = 4 << 20
_MAGICS = (b"sNaPpY", b"S2sTwO")
_COMPRESSED = 0x00
_PLAIN = 0x01
_LAST_REQUIRED = 0x7F
_IDENTIFIES = 0xFF
_MASK = 0xFFFFFFFF


class FormatError(ValueError):
    """Bytes that are no S2 stream, or that were damaged."""


def masked(data: bytes) -> bytes:
    """The checksum of a block, as frames carry it."""
    crc: int = checksum(data)
    value: int = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _MASK
    return value.to_bytes(4, "little")


def frames(data: bytes) -> bytes:
    """`data` in frames; IDENTIFIER goes in front of the first ones."""
    out = bytearray()
    for at in range(0, len(data), BLOCK_BYTES):
        block = data[at : at + BLOCK_BYTES]
        out += bytes((_PLAIN,)) + (len(block) + 4).to_bytes(3, "little") + masked(block) + block
    return bytes(out)


class Reader:
    """Takes a stream in pieces of any size. Raises FormatError."""

    def __init__(self) -> None:
        self.held = bytearray()
        self.identified = False

    def feed(self, piece: bytes) -> bytes:
        """The content that has become complete with `piece`."""
        self.held += piece
        out = bytearray()
        while len(self.held) >= 4:
            kind = self.held[0]
            size = int.from_bytes(self.held[1:4], "little")
            if size > FRAME_MAX + BLOCK_BYTES:
                raise FormatError("frame is too large")
            if len(self.held) < 4 + size:
                break
            body = bytes(self.held[4 : 4 + size])
            del self.held[: 4 + size]
            out += self.frame(kind, body)
        return bytes(out)

    def frame(self, kind: int, body: bytes) -> bytes:
        """The content of one frame."""
        if kind == _IDENTIFIES:
            if body not in _MAGICS:
                raise FormatError("unknown stream identifier")
            self.identified = True
            return b""
        if not self.identified:
            raise FormatError("stream identifier is missing")
        if kind in (_COMPRESSED, _PLAIN):
            if len(body) < 4:
                raise FormatError("frame is too short")
            block = decode_block(body[4:]) if kind == _COMPRESSED else body[4:]
            if masked(block) != body[:4]:
                raise FormatError("checksum does not match")
            return block
        if kind <= _LAST_REQUIRED:
            raise FormatError(f"unknown frame {kind}")
        return b""


def decode_block(data: bytes) -> bytes:
    """Decode one compressed block. Raises FormatError."""
    try:
        return _decode(data)
    except IndexError:
        raise FormatError("block ends early") from None


def _decode(data: bytes) -> bytes:
    total, at = uvarint(data, 0)
    if total > FRAME_MAX:
        raise FormatError("block is too large")
    out = bytearray()
    offset = 0
    while at < len(data):
        tag = data[at]
        kind = tag & 3
        if kind == 0:
            at, length = _literal(data, at)
            if at + length > len(data):
                raise FormatError("literal ends early")
            out += data[at : at + length]
            at += length
            continue
        if kind == 1:
            at, length, offset = _short_copy(data, at, offset)
        else:
            width = 2 if kind == 2 else 4
            data[at + width]
            length = 1 + (tag >> 2)
            offset = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            at += 1 + width
        if offset < 1 or offset > len(out) or len(out) + length > total:
            raise FormatError("copy is out of range")
        _copy(out, offset, length)
    if len(out) != total:
        raise FormatError("block has another length than it says")
    return bytes(out)


def _literal(data: bytes, at: int) -> tuple[int, int]:
    """Where a literal's bytes are, and how many."""
    count = data[at] >> 2
    if count < 60:
        return at + 1, count + 1
    width = count - 59
    data[at + width]
    return at + 1 + width, int.from_bytes(data[at + 1 : at + 1 + width], "little") + 1


def _short_copy(data: bytes, at: int, last: int) -> tuple[int, int, int]:
    """A copy with a short offset; in S2, offset 0 repeats the last one with a longer length."""
    tag = data[at]
    offset = (tag & 0xE0) << 3 | data[at + 1]
    length = tag >> 2 & 7
    at += 2
    if offset:
        return at, length + 4, offset
    if length >= 5:
        width = length - 4
        data[at + width - 1]
        base = (0, 1 << 8, 1 << 16)[width - 1]
        extra = int.from_bytes(data[at : at + width], "little")
        length = extra + base + (4 if width == 1 else 0)
        at += width
    return at, length + 4, last


def _copy(out: bytearray, offset: int, length: int) -> None:
    """Append `length` bytes from `offset` before the end; they may overlap what is appended."""
    start = len(out) - offset
    if offset >= length:
        out += out[start : start + length]
        return
    pattern = bytes(out[start:])
    times, rest = divmod(length, offset)
    out += pattern * times + pattern[:rest]


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """A variable-length number and where it ends. Raises IndexError when it is not complete."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise FormatError("number is too long")
