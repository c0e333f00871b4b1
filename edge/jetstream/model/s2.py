"""The framed S2 and Snappy stream format, in which backups travel.

Backups are written as they are, in frames (the format allows it, every reader takes it); reading
decodes compressed blocks as well, since real servers compress. Sizes are checked before memory is
taken: a frame holds at most FRAME_MAX bytes.
"""

from collections.abc import Callable, Iterator

from headwater.edge.jetstream.model import plain_frames
from headwater.edge.jetstream.model.plain_frames import BLOCK_BYTES
from headwater.edge.storage.format.crc import checksum_parts
from headwater.edge.wire import s2_blocks

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
FRAME_MAX = 4 << 20
_MAGICS = (b"sNaPpY", b"S2sTwO")
_COMPRESSED = 0x00
_PLAIN = 0x01
_LAST_REQUIRED = 0x7F
_IDENTIFIES = 0xFF
_MASK = 0xFFFFFFFF

Buffer = bytes | memoryview
Encoder = Callable[[bytes], bytes | None]


class FormatError(ValueError):
    """Bytes that are no S2 stream, or that were damaged."""


def masked(data: Buffer) -> bytes:
    """The checksum of a block, as frames carry it."""
    crc: int = checksum_parts([data])
    value: int = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & _MASK
    return value.to_bytes(4, "little")


def frames(data: bytes, encode: Encoder | None = None, lead: bytes = b"") -> bytes:
    """`data` in frames behind `lead`, which is IDENTIFIER in front of the first ones. `encode`
    makes a block of at most BLOCK_BYTES, or None of what does not get shorter."""
    if encode is None:
        return plain_frames.wrapped(data, lead)
    pieces: list[Buffer] = [lead]
    view = memoryview(data)
    for at in range(0, len(data), BLOCK_BYTES):
        plain = view[at : at + BLOCK_BYTES]
        block = encode(bytes(plain))
        kind = _PLAIN if block is None else _COMPRESSED
        body = plain if block is None else block
        pieces += (kind | (len(body) + 4) << 8).to_bytes(4, "little"), masked(plain), body
    return b"".join(pieces)


class FrameReader:
    """Takes a stream in pieces of any size. Raises FormatError."""

    def __init__(self) -> None:
        self.held = bytearray()
        """The beginning of a frame."""
        self.identified = False
        self.room: int | None = None
        """Bytes of content that are still accepted; None for any number."""
        self._needed = 0
        """Bytes of the frame in `held`, as far as it says."""

    def content(self, kind: int, block: memoryview) -> Buffer:
        """What a frame's block holds. Raises FormatError."""
        try:
            size = uvarint(block, 0)[0] if kind == _COMPRESSED else len(block)
        except IndexError:
            raise FormatError("block ends early") from None
        if self.room is not None:
            self.room -= size
            if self.room < 0:
                raise FormatError("more content than is accepted")
        return decode_block(bytes(block)) if kind == _COMPRESSED else block

    def feed(self, piece: bytes) -> bytes:
        """The content that has become complete with `piece`."""
        return b"".join(self.blocks(piece))

    def contents(self, piece: bytes) -> Iterator[bytes]:
        """`feed`, frame by frame, so that no more than one is inflated at a time."""
        for block in self.blocks(piece):
            yield bytes(block)

    def blocks(self, piece: bytes) -> Iterator[Buffer]:
        """The content of the frames that are complete; plain ones that follow each other come as
        one."""
        view = memoryview(piece)
        at = self._complete(view) if self.held else 0
        if self.held:
            if len(self.held) < self._needed:
                return
            whole, self.held = memoryview(self.held), bytearray()
            first = self.frame(whole[0], whole[4:])
            if whole[0] == _PLAIN:
                first, at = self._run(piece, at, first)
            yield first
        self._needed = 4
        while len(view) - at >= 4:
            if self.identified and view[at] == _PLAIN:
                run, at = self._run(piece, at)
                if run:
                    yield run
                    continue
            self._needed = _frame_bytes(view[at : at + 4])
            if len(view) - at < self._needed:
                break
            begin, at, self._needed = at, at + self._needed, 4
            yield self.frame(view[begin], view[begin + 4 : at])
        self.held += view[at:]

    def _run(self, piece: bytes, at: int, first: Buffer = b"") -> tuple[bytes, int]:
        """`first` with the content of the plain frames from `at`, and where the next one begins.
        Raises FormatError."""
        run, at = plain_frames.contents(piece, at, first)
        if self.room is not None:
            self.room -= len(run) - len(first)
            if self.room < 0:
                raise FormatError("more content than is accepted")
        return run, at

    def plain_room(self, n: int, first: int) -> int:
        """The most content that `n` bytes complete of which `first` is one; 0 unless a plain frame
        is next."""
        held = self.held
        if not self.identified or (held[0] if held else first) != _PLAIN:
            return 0
        return len(held) + n

    def plain_onto(self, to: memoryview, piece: memoryview) -> tuple[int, int]:
        """Copy what plain frames hold to `to`, which has the room of `plain_room`, as far as
        `piece` goes on with them: the bytes of content, and of `piece` that are done with. Nothing
        of it is kept but a copy of an incomplete frame. Raises FormatError."""
        kept = at = 0
        if self.held:
            at = self._complete(piece)
            if len(self.held) < self._needed:
                return 0, at
            whole, self.held = self.held, bytearray()
            kept, end = plain_frames.contents_onto(to, whole, 0)
            if end < len(whole):
                # It is empty, or damaged.
                kept = len(self.frame(whole[0], memoryview(whole)[4:]))
        size, at = plain_frames.contents_onto(to[kept:], piece, at)
        self._needed = 4
        if at < len(piece) and piece[at] == _PLAIN:
            left = len(piece) - at
            self._needed = _frame_bytes(piece[at : at + 4]) if left >= 4 else 4
            if left < self._needed:
                self.held += piece[at:]
                at = len(piece)
        return kept + size, at

    def _complete(self, view: memoryview) -> int:
        """Add what it lacks to the frame in `held`; the bytes of `view` that this took."""
        at = 0
        while at < len(view) and len(self.held) < self._needed:
            end = min(len(view), at + self._needed - len(self.held))
            self.held += view[at:end]
            at = end
            if len(self.held) == 4:
                self._needed = _frame_bytes(self.held)
        return at

    def frame(self, kind: int, body: memoryview) -> Buffer:
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
            block = self.content(kind, body[4:])
            if masked(block) != body[:4]:
                raise FormatError("checksum does not match")
            return block
        if kind <= _LAST_REQUIRED:
            raise FormatError(f"unknown frame {kind}")
        return b""


def _frame_bytes(head: Buffer | bytearray) -> int:
    """The length of the frame that begins with these four bytes. Raises FormatError."""
    size = int.from_bytes(head[1:4], "little")
    if size > FRAME_MAX + BLOCK_BYTES:
        raise FormatError("frame is too large")
    return 4 + size


def decode_block(block: bytes) -> bytes:
    """What a compressed block holds. Raises FormatError."""
    try:
        found: bytes = s2_blocks.decode_block(block)
        return found
    except ValueError as error:
        raise FormatError(str(error)) from None


def uvarint(data: Buffer, at: int) -> tuple[int, int]:
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
