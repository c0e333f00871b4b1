"""Every kind of file of a stopped store, and what can become of a file: what STORAGE.md promises.

Streams and consumers are there, no wrong byte is served, no sequence is given out again, and what
is missing is named. Where the table says nothing, not even that: all is as before. The suite takes
a share; `make damage` takes all.
"""

import logging
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.ports.twins.inode import resize
from tests.edge.storage.whole.small_stores import SEGMENT, WIDE_SEGMENT, Truth, examine, stopped

STRIDE = 1 if os.environ.get("HEADWATER_DAMAGE") == "all" else 13
PAGE = 4096
EVERYTHING = 1000


@dataclass
class May:
    """What damage to a file may do."""

    lose: bool = False
    """Messages go, and are named."""
    bring_back: bool = False
    """Removed messages are there again, or states older; told."""


NOTHING = May()
TABLE = {
    "HEADWATER": NOTHING,
    "ballast": NOTHING,
    "clean": NOTHING,
    "consumers": NOTHING,
    "lock": NOTHING,
    "log.keys": NOTHING,  # to streams; of entries, see hub/stored/test_damaged_entry_keys.py
    "slots": NOTHING,
    "tidemarks": NOTHING,
    "meta": NOTHING,
    ".idx": NOTHING,
    ".dict": May(lose=True),
    ".seg": May(lose=True, bring_back=True),
    ".log": May(lose=True, bring_back=True),
}
Parts = tuple[str, ...]


def may(parts: Parts) -> May:
    name = parts[-1]
    return TABLE[name if name in TABLE else "." + name.rpartition(".")[2]]


def damages(truth: Truth, parts: Parts, content: bytes) -> Iterator[tuple[str, bytes | None]]:
    """What is done, and what the file holds then; None: it is not there."""
    chance = random.Random("/".join(parts))
    yield "deleted", None
    if not content:
        return
    page = chance.randrange((len(content) + PAGE - 1) // PAGE) * PAGE
    behind = content[page + PAGE :]
    blank = bytes(len(content[page : page + PAGE]))
    found = {
        b"": "emptied",
        content[: len(content) // 2]: "cut in the middle",
        content[:page] + blank + behind: "a page of zeros",
        bytes(len(content)): "zeros",
        chance.randbytes(len(content)): "garbage",
    }
    for n, disk in enumerate(truth.before):
        if disk.node(parts) is not None:
            found.setdefault(bytes(disk.file(parts).content), f"older {n}")
    found.pop(content, None)
    yield from ((what, data) for data, what in found.items())


def spoiled(truth: Truth, parts: Parts, data: bytes | None) -> TwinFiles:
    disk = truth.disk.copy()
    if data is None:
        folder = disk.directory(parts[:-1])
        folder.names.pop(parts[-1])
        folder.durable.pop(parts[-1], None)
        return disk
    file = disk.file(parts)
    for image in (file.content, file.durable):
        resize(image, 0)
        image.extend(data)
    return disk


def check(truth: Truth, parts: Parts, what: str, data: bytes | None) -> bool:
    """Whether damage to one file does no more than it may, and is told."""
    where, allowed = ("/".join(parts), what), may(parts)
    stale = what.startswith("older") and parts[-1].endswith((".log", ".seg"))
    harm = examine(
        truth, spoiled(truth, parts, data), where, EVERYTHING if allowed.lose else 0, stale
    )
    assert allowed.bring_back or not (harm.back or harm.older_states), (where, harm)
    return harm.told


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("segment", [SEGMENT, WIDE_SEGMENT])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", ["clean", "killed", "idle"])
def test_every_kind_of_file(
    end: str, packed: bool, segment: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped(end, packed, segment)
    # Each of these stores is met with other damage.
    count = random.Random(f"{end} {packed} {segment}").randrange(STRIDE)
    done = told = 0
    for parts, file in truth.disk.walk():
        for what, data in damages(truth, parts, bytes(file.content)):
            count += 1
            if count % STRIDE == 0:
                done += 1
                told += check(truth, parts, what, data)
    print(f"{done} cases, {told} told")
    assert told > done // 4


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_a_directory_of_a_stream(end: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    truth = stopped(end, False, WIDE_SEGMENT)
    streams = ("data", "jetstream", "streams")
    for name in sorted(truth.disk.directory(streams).names):
        disk = truth.disk.copy()
        disk.directory(streams).names.pop(name)
        disk.directory(streams).durable.pop(name, None)
        assert examine(truth, disk, name, EVERYTHING).told
