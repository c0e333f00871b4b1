"""Blocks of S2 and Snappy."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.wire.s2_blocks import BLOCK_MAX, WRITTEN_MAX, decode_block, encode_block

SAMPLES = [
    b"a" * WRITTEN_MAX,
    b'{"device":"gateway-1","temperature":20.5,"state":"running"}' * 40,
    bytes(range(256)) * 200,
    b"x" * 31 + b"y" + b"x" * 31,
    random.Random(1).randbytes(300) + b"long enough to be found again, " * 50,
]


@pytest.mark.parametrize("thorough", [False, True])
@pytest.mark.parametrize("data", SAMPLES)
def test_what_is_written_is_read(data: bytes, thorough: bool) -> None:
    block = encode_block(data, thorough)
    assert block is not None
    assert len(block) <= len(data) - len(data) // 8
    assert decode_block(block) == data


@given(st.lists(st.sampled_from([b"a", b"bc", b"def\0", b"0123456789abcdef"]), max_size=600))
def test_any_content_comes_back(parts: list[bytes]) -> None:
    data = b"".join(parts)
    block = encode_block(data)
    assert block is None or decode_block(block) == data


def test_what_does_not_get_shorter_stays_plain() -> None:
    assert encode_block(random.Random(2).randbytes(5000)) is None
    assert encode_block(b"short") is None
    assert encode_block(b"a" * (WRITTEN_MAX + 1)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_a_block_or_refused(data: bytes) -> None:
    try:
        assert len(decode_block(data)) <= BLOCK_MAX
    except ValueError as error:
        assert "block" in str(error)


@given(st.integers(0, 100), st.integers(0, 255))
def test_a_damaged_block_is_read_or_refused(at: int, value: int) -> None:
    block = bytearray(encode_block(SAMPLES[1]) or b"")
    block[at % len(block)] = value
    try:
        decode_block(bytes(block))
    except ValueError as error:
        assert "block" in str(error)
