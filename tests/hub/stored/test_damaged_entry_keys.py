"""`log.keys` flipped, cut, missing or older: what the damage table of STORAGE.md says of it."""

from collections.abc import Iterator

import pytest

from headwater.edge.ports import files
from headwater.edge.storage.device.durable_file import COPY_ALIGN
from headwater.edge.storage.format.problem import ProblemKind
from headwater.security.sealing import KeyRing
from tests.hub.stored.stored_harness import StoredNode
from tests.hub.stored.test_sealed_entries import (
    FIRST,
    SAID,
    SECOND,
    packed,
    started,
    stored,
)

COUNT = 40
"""Entries of the group, all of them committed."""
STRIDE = 29
"""From one flipped byte to the next; every byte takes minutes."""
HEAD = 24
"""Bytes before what a copy holds."""


def stopped(end: str) -> StoredNode:
    """A node with sealed entries, that was stopped or lost its power."""
    node = started(KeyRing(FIRST), COUNT)
    if end == "clean":
        node.stop()
    else:
        node.cut(lose="nothing")
    return node


def content(node: StoredNode) -> bytes:
    """All of the file."""
    return bytes((node.node.directory.root / "log.keys").read_bytes())


def put(node: StoredNode, data: bytes | None) -> None:
    """Have the file hold this; None: it is not there."""
    path = node.node.directory.root / "log.keys"
    if data is None:
        files.remove(path)
    else:
        files.write_file(path, data)


def flipped(data: bytes, *places: int) -> bytes:
    """With one bit turned at each place."""
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 1
    return bytes(changed)


def of_one_copy(data: bytes) -> Iterator[bytes]:
    """Damage that leaves one copy whole."""
    used = len(data[:COPY_ALIGN].rstrip(b"\0"))
    for copy in (0, COPY_ALIGN):
        for place in [*range(HEAD), *range(HEAD, used, STRIDE)]:
            yield flipped(data, copy + place)
        yield data[:copy] + bytes(COPY_ALIGN) + data[copy + COPY_ALIGN :]
    yield from (data[:size] for size in (COPY_ALIGN, COPY_ALIGN + 1, COPY_ALIGN + used - 1))


def of_both(data: bytes) -> Iterator[bytes | None]:
    """Damage that leaves none."""
    used = len(data[:COPY_ALIGN].rstrip(b"\0"))
    yield from (None, b"", data[:1], data[:HEAD], data[: used - 1], bytes(len(data)))
    for place in (0, HEAD - 1, HEAD, used - 1):
        yield flipped(data, place, COPY_ALIGN + place)


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_one_copy_is_written_again_from_the_other(end: str) -> None:
    whole = content(stopped(end))
    assert len(whole) == 2 * COPY_ALIGN
    for data in of_one_copy(whole):
        node = stopped(end)
        put(node, data)
        node.open()
        assert [each.kind for each in node.node.problems] == [ProblemKind.REPAIRED]
        assert "log.keys: a copy was damaged" in node.node.problems[0].text
        mended = content(node)
        assert mended[:COPY_ALIGN] == mended[COPY_ALIGN:]
        assert len(node.rows()) == COUNT
        node.cut(lose="nothing")
        node.open()
        assert node.node.problems == node.store.start.problems == []


@pytest.mark.parametrize("end", ["clean", "killed"])
def test_without_a_whole_copy_only_entries_are_gone(end: str) -> None:
    """The node starts, tells it, serves what is in the stream, and seals with a new key."""
    whole = content(stopped(end))
    for data in of_both(whole):
        node = stopped(end)
        put(node, data)
        node.open()
        is_told(node)
        texts = [problem.text for problem in node.node.problems]
        assert any("log.keys is damaged" in text for text in texts) == (data is not None)
        assert content(node)[:4] == whole[:4] and content(node) != whole
        assert SAID not in stored(node.disk)
        node.cut(lose="nothing")
        node.open()
        assert not any("log.keys" in problem.text for problem in node.node.problems)


def is_told(node: StoredNode) -> None:
    """What the log had of the group does not open, which is told; its stream has every message."""
    assert not node.store.start.clean
    assert any("log of group 1 is torn" in each.text for each in node.store.start.problems)
    assert [row[0] for row in node.rows()] == list(range(1, COUNT + 1))
    assert all(row[2].startswith(SAID) for row in node.rows())


def test_an_older_file_has_no_key_for_newer_entries() -> None:
    """It was put back after the node's key was replaced."""
    node = stopped("killed")
    older = content(node)
    node.keys = KeyRing(SECOND, (FIRST,))
    node.open()
    packed(node)
    node.cut(lose="nothing")
    assert content(node) != older
    put(node, older)
    node.open()
    is_told(node)
