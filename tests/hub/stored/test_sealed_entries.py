"""Entries of groups are sealed below `log/`, through replacements of the key and crashes."""

import errno
import json

import pytest

from headwater.edge.ports import files
from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.directory.entry_keys import EntryKeys
from headwater.edge.storage.format.errors import KeyMissing, StoreError
from headwater.security.sealing import AES, CHACHA, KeyRing, NodeKey
from tests.hub.stored.stored_harness import StoredNode

FIRST, SECOND = (NodeKey.of(b"the %s key of a node" % word) for word in (b"first", b"second"))
SAID = b"entry "
"""What every entry of the harness begins with."""


def stored(disk: TwinFiles) -> bytes:
    """All bytes of all files; what was freed within them, too."""
    return b"".join(path.read_bytes() for path in disk.root.rglob("*") if not path.is_dir())


def identity(node: StoredNode) -> dict[str, object]:
    """What the file of keys says."""
    content = TwoCopyFile(node.node.directory.root / "log.keys").read()
    assert content is not None
    found: dict[str, object] = json.loads(content)
    return found


def packed(node: StoredNode) -> None:
    """Nothing is to be sealed again any more, and what was there before is wiped."""
    node.loop.run_until(lambda: settled(node))


def settled(node: StoredNode) -> bool:
    """Whether that is so."""
    return not node.node.repacker.waiting and not node.node.eraser._pending


def started(ring: KeyRing | None, count: int = 40) -> StoredNode:
    """A node of one group, with entries."""
    node = StoredNode()
    node.keys = ring
    node.open(first=True).lead()
    node.propose(count)
    node.settle()
    return node


def holds(node: StoredNode, last: int) -> None:
    """All entries became messages, and the group goes on behind them."""
    assert [row[0] for row in node.rows()][-1] == last
    assert node.store.start.problems == []
    node.lead()
    node.propose(1)
    node.settle()
    assert node.rows()[-1][0] == last + 1


def test_no_file_has_an_entry() -> None:
    node = started(None)
    assert SAID in stored(node.disk), "a plain store shows them"
    node = started(KeyRing(FIRST))
    assert SAID not in stored(node.disk)
    node.cut()
    holds(node.open(), 40)
    assert SAID not in stored(node.disk)
    node.stop()
    assert SAID not in stored(node.disk)
    holds(node.open(), 41)


@pytest.mark.parametrize("cipher", [CHACHA, AES])
def test_a_plain_log_is_sealed_when_a_key_is_given(cipher: str) -> None:
    node = started(None)
    node.cut(lose="nothing")
    node.keys = KeyRing(FIRST, cipher=cipher)
    node.open()
    assert identity(node)["repack"]
    packed(node)
    assert "repack" not in identity(node)
    holds(node, 40)
    packed(node)
    assert SAID not in stored(node.disk)
    node.cut()
    holds(node.open(), 41)


def test_a_store_of_sealed_streams_and_plain_entries_is_sealed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As programs before this one left it. No stream has to be packed again."""
    with monkeypatch.context() as patch:
        patch.setattr(EntryKeys, "begin", lambda self, fresh: False)
        node = started(KeyRing(FIRST))
    assert SAID in stored(node.disk)
    node.cut(lose="nothing")
    node.open()
    assert node.node.repacker.waiting == 1
    packed(node)
    assert SAID not in stored(node.disk)
    assert "repack" not in identity(node)
    node.cut()
    holds(node.open(), 40)


def test_a_node_without_the_key_does_not_start_and_changes_nothing() -> None:
    node = started(KeyRing(FIRST))
    node.cut()
    before = stored(node.disk)
    for ring in (None, KeyRing(SECOND)):
        node.keys = ring
        with pytest.raises(KeyMissing, match="the entries of replicated streams"):
            node.open()
        node.loop.drop()
        assert stored(node.disk) == before
    node.keys = KeyRing(FIRST)
    holds(node.open(), 40)


def test_an_earlier_key_is_not_needed_once_the_node_has_started() -> None:
    node = started(KeyRing(FIRST))
    node.cut()
    node.keys = KeyRing(SECOND, (FIRST,), AES)
    node.open()
    node.cut()
    node.keys = KeyRing(SECOND, cipher=AES)
    node.open()
    packed(node)
    holds(node, 40)
    keys = identity(node)["keys"]
    assert isinstance(keys, list)
    assert [(row["by"], row["cipher"]) for row in keys] == [(SECOND.name, AES)]
    node.cut()
    node.keys = KeyRing(FIRST)
    with pytest.raises(KeyMissing):
        node.open()


def test_every_crash_of_a_replacement_leaves_all_entries() -> None:
    """The power is cut before each change of the disk that a replacement makes, from the start
    to the last key that is forgotten."""
    points = 0
    while True:
        node = started(KeyRing(FIRST), 25)
        node.cut(lose="nothing")
        node.keys = KeyRing(SECOND, (FIRST,))
        done = replaced(node, points)
        node.disk.watch = None
        node.cut(points, ("some", "everything", "nothing")[points % 3])
        node.errors.clear()
        node.open()
        packed(node)
        holds(node, 25)
        assert SAID not in stored(node.disk)
        node.cut()
        node.keys = KeyRing(SECOND)
        holds(node.open(), 26)
        if done:
            break
        points += 1
    assert points > 20


def replaced(node: StoredNode, operations: int) -> bool:
    """Whether the replacement was done before so many changes of the disk were: then the device
    takes nothing more."""
    left = operations

    def watch(what: str, path: str) -> None:
        nonlocal left
        if what not in ("read", "list"):
            left -= 1
            if left < 0:
                raise OSError(errno.EIO, "the power goes", path)

    node.disk.watch = watch
    try:
        node.open()
        node.loop.run_until(lambda: left < 0 or settled(node))
    except (OSError, StoreError):
        assert left < 0
    return left >= 0


def test_without_its_keys_a_node_asks_its_group() -> None:
    """Both copies of the file are damaged: what cannot be opened is not guessed."""
    node = started(KeyRing(FIRST))
    node.cut(lose="nothing")
    path = node.node.directory.root / "log.keys"
    files.write_file(path, bytes(len(path.read_bytes())))
    node.open()
    assert not node.store.start.clean
    texts = [problem.text for problem in node.store.start.problems]
    assert any("log.keys is damaged" in text for text in texts)
    assert any("log of group 1 is torn" in text for text in texts)
