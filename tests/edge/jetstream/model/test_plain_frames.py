"""Plain frames of the S2 format in runs: the same content and the same refusals as frame by frame,
wherever a stream is cut."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.jetstream.model import plain_frames, s2
from headwater.edge.wire.s2_blocks import encode_block

CONTENTS = st.lists(st.binary(max_size=300), max_size=12)


def by_hand(content: bytes) -> bytes:
    """One plain frame."""
    return b"\x01" + (len(content) + 4).to_bytes(3, "little") + s2.masked(content) + content


def taken_onto(reader: s2.FrameReader, piece: bytes) -> bytes:
    """The content that `piece` completes: plain frames straight into a buffer."""
    room = reader.plain_room(len(piece), piece[0])
    to = bytearray(room)
    size, used = reader.plain_onto(memoryview(to), memoryview(piece)) if room else (0, 0)
    return bytes(to[:size]) + (reader.feed(piece[used:]) if used < len(piece) else b"")


@pytest.mark.parametrize("take", [s2.FrameReader.feed, taken_onto], ids=["returned", "onto"])
@given(CONTENTS, st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(0, 2))
def test_frames_cut_anywhere_give_what_was_written(
    take: Callable[[s2.FrameReader, bytes], bytes],
    contents: list[bytes],
    cuts: list[int],
    packed: int,
) -> None:
    """Plain frames, empty ones and compressed ones between them; returned, or put straight into a
    buffer."""
    stream = s2.IDENTIFIER
    for i, content in enumerate(contents):
        if packed and i % 3 == packed:
            stream += s2.frames(content, encode_block)
        else:
            stream += by_hand(content)
    reader, got, at, turn = s2.FrameReader(), b"", 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        got += take(reader, stream[at : at + step])
        at, turn = at + step, turn + 1
    assert got == b"".join(contents)
    assert not reader.held


def test_a_damaged_frame_is_not_put_into_a_buffer() -> None:
    """Whether it comes in one piece or in two, the frames before it alone are content."""
    stream = by_hand(b"one") + by_hand(b"two" * 50) + by_hand(b"three")
    for at in range(len(by_hand(b"one")) + 4, len(stream) - len(by_hand(b"three"))):
        damaged = stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :]
        for cut in (0, at, at + 1):
            reader, got = s2.FrameReader(), b""
            reader.feed(s2.IDENTIFIER)
            with pytest.raises(s2.FormatError, match="checksum"):
                for piece in filter(None, (damaged[:cut], damaged[cut:])):
                    got += taken_onto(reader, piece)
            assert got in (b"", b"one")


@pytest.mark.parametrize("size", [0, 1, 65_536, 200_000])
def test_frames_are_written_behind_what_is_there(size: int) -> None:
    """A buffer that waits for its socket grows by the same frames."""
    wire = bytearray(b"before")
    plain_frames.wrap_onto(wire, memoryview(b"x" * size))
    assert wire == b"before" + plain_frames.wrapped(b"x" * size)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 200_000, 3_000_000])
def test_what_is_written_is_frames_of_64_kib(size: int) -> None:
    """As the format has them, one behind the other, and read in runs of a MiB at most."""
    content = bytes(i % 251 for i in range(min(size, 70_000))) * (size // 70_000 + 1)
    content = content[:size]
    blocks = [content[at : at + 65_536] for at in range(0, size, 65_536)]
    stream = plain_frames.wrapped(content, s2.IDENTIFIER)
    assert stream == s2.IDENTIFIER + b"".join(map(by_hand, blocks))
    found = [bytes(block) for block in s2.FrameReader().blocks(stream)]
    assert b"".join(found) == content
    assert max(map(len, found)) <= plain_frames.RUN_BYTES


def test_a_damaged_frame_is_refused_behind_the_good_ones() -> None:
    """What came before it is content; a frame behind it is not reached."""
    stream = s2.IDENTIFIER + by_hand(b"one") + by_hand(b"two") + by_hand(b"three")
    for at in range(len(s2.IDENTIFIER) + len(by_hand(b"one")) + 4, len(stream)):
        damaged = stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :]
        got = []
        with pytest.raises(s2.FormatError):
            reader = s2.FrameReader()
            for block in reader.blocks(damaged):
                got.append(bytes(block))
            assert reader.held, "a longer frame is waited for"
            raise s2.FormatError
        assert b"".join(got) in (b"", b"one", b"onetwo")


def test_no_more_content_than_there_is_room_for() -> None:
    """Frames in a run are counted as single ones are."""
    reader = s2.FrameReader()
    reader.room = 10
    assert reader.feed(s2.IDENTIFIER + by_hand(b"12345") * 2) == b"1234512345"
    with pytest.raises(s2.FormatError, match="more content"):
        reader.feed(by_hand(b"1"))


def test_frames_need_the_identifier() -> None:
    """A run is not read before the stream has said what it is."""
    with pytest.raises(s2.FormatError, match="identifier"):
        s2.FrameReader().feed(by_hand(b"1"))


def test_a_place_outside_the_piece_is_refused() -> None:
    """Nothing is read from there."""
    for at in (-1, 4):
        with pytest.raises(ValueError, match="no such place"):
            plain_frames.contents(b"123", at)
