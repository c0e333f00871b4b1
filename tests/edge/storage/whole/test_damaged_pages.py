"""Every page of 4 KiB of every file of small stores: zeroed, filled with garbage, or as it was
before.

No stream and no state vanishes, no wrong byte is served, and the messages that are missing stood in
that page and are named. Messages that were erased do not come back. The suite takes a share; `make
damage` takes them all.
"""

import logging
import os
import random
import struct
from collections.abc import Iterator

import pytest

from tests.edge.storage.whole.small_stores import WIDE_SEGMENT, Harm, Truth, examine, stopped

WHOLE = os.environ.get("HEADWATER_DAMAGE") == "all"
STRIDE = 1 if WHOLE else 5
PAGE = 4096
HEADER = struct.Struct("<IBBHIIIIQqQ")
MAGIC = 0x31525748
MESSAGE = 1


def damages(truth: Truth) -> Iterator[tuple[tuple[str, ...], int, str, bytes]]:
    """Path, offset, what is done, and what stands there then."""
    chance = random.Random(1)
    for parts, file in truth.disk.walk():
        content = bytes(file.content)
        for at in range(0, len(content), PAGE):
            page = content[at : at + PAGE]
            found = {bytes(len(page)): "zeros", chance.randbytes(len(page)): "garbage"}
            for n, disk in enumerate(truth.before):
                if disk.node(parts) is not None:
                    found.setdefault(bytes(disk.file(parts).content)[at : at + PAGE], f"older {n}")
            found.pop(page, None)
            yield from ((parts, at, what, data) for data, what in found.items() if data)


def messages_in(content: bytes, at: int) -> set[tuple[int, int]]:
    """Stream id and sequence of messages of which a part stands in the page at `at`."""
    found = set()
    for place in range(512, min(len(content) - HEADER.size, at + PAGE), 8):
        magic, _, kind, _, length, _, _, _, sequence, _, stream = HEADER.unpack_from(content, place)
        if magic == MAGIC and kind == MESSAGE and place + 64 + length > at:
            found.add((stream, sequence))
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["clean", "killed", "idle"])
def test_every_page(end: str, packed: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped(end, packed, WIDE_SEGMENT)
    harms: list[Harm] = []
    for n, (parts, at, what, data) in enumerate(damages(truth)):
        if n % STRIDE:
            continue
        disk = truth.disk.copy()
        content = bytes(disk.file(parts).content)
        disk.spoil(parts, at, data)
        hurt = len(messages_in(content, at))
        harms.append(examine(truth, disk, ("/".join(parts), at, what), hurt))
    told = sum(harm.told for harm in harms)
    print(f"{len(harms)} pages, {told} told")
    assert told > len(harms) // 5
