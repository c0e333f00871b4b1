"""Every bit of every file of small stores, flipped one at a time.

Of long runs of zeros, which are padding, one bit of each byte. The suite takes a share; `make
damage` takes them all.
"""

import logging
import os
from collections.abc import Iterator

import pytest
from small_stores import Harm, Truth, examine, stopped

WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
# Every how many-th bit the suite takes: no multiple of eight, so that all bits of bytes are met.
STRIDE = int(os.environ.get("HEADWATER_DAMAGE_STRIDE", "1" if WHOLE else "769"))
# Bytes around that are zero, too, where one bit stands for eight.
PADDING = 32


def bits(data: bytes) -> Iterator[tuple[int, int]]:
    for at in range(len(data)):
        if any(data[max(at - PADDING, 0) : at + PADDING + 1]):
            for bit in range(8):
                yield at, bit
        else:
            yield at, at % 8


def places(truth: Truth) -> Iterator[tuple[tuple[str, ...], int, int]]:
    count = 0
    for parts, file in truth.disk.walk():
        for at, bit in bits(bytes(file.content)):
            count += 1
            if count % STRIDE == 0:
                yield parts, at, bit


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_every_bit(clean: bool, packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped(clean, packed)
    harms: list[Harm] = []
    for parts, at, bit in places(truth):
        disk = truth.disk.copy()
        disk.flip(parts, at, bit)
        harms.append(examine(truth, disk, ("/".join(parts), at, bit)))
    told = sum(harm.told for harm in harms)
    missing = sum(harm.missing for harm in harms)
    print(f"{len(harms)} bits, {told} told, {missing} of them cost a message")
    assert told > len(harms) // 10
    assert missing
