"""A stream's meta file that is gone, cut, spoiled or an older one, and a directory that is gone:
the log still knows what the stream is."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from tests.edge.storage.store_harness import Harness, contents


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(path.stat().st_size))


def older(path: Path) -> None:
    path.write_bytes((path.parent.parent / "older").read_bytes())


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:size])


def flipped(path: Path) -> None:
    """Both copies."""
    data = bytearray(path.read_bytes())
    for at in (60, 4156):
        data[at] ^= 1
    path.write_bytes(data)


HARMS = {
    "gone": Path.unlink,
    "empty": cut(0),
    "short": cut(40),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": garbage,
    "flipped": flipped,
    "older": older,
}


def made(tmp_path: Path, clean: bool, sealed: bool = False) -> tuple[Harness, Path, dict, bytes]:
    """A stopped store with one stream: its directory, its messages and its meta."""
    harness = Harness(tmp_path, sealed=sealed)
    harness.open()
    store = harness.create()
    meta = store.directory / "meta"
    (meta.parent.parent / "older").write_bytes(meta.read_bytes())
    for n in range(1500):
        store.add_message(b"s", b"%d" % n * 30)
    harness.commit()
    harness.settle()
    harness.node.update_meta(store, b'{"name":"S","changed":true}')
    harness.node.metas.flush()
    harness.until(lambda: harness.node.metas.idle)
    harness.commit()
    want = contents(store)
    if clean:
        harness.close()
    else:
        harness.crash()
    return harness, store.directory, want, b'{"name":"S","changed":true}'


def check_told_once(harness: Harness, text: str, path: Path, want: dict, meta: bytes) -> None:
    """The stream is whole, what was wrong is told, and a later start finds nothing wrong."""
    (path.parent / "older").unlink(missing_ok=True)
    (store,) = harness.open()
    assert contents(store) == want
    assert harness.node.meta_of(store) == meta
    assert any(text in str(told) for told in harness.node.problems), harness.node.problems
    harness.until(lambda: harness.node.metas.idle)
    file = TwoCopyFile(path / "meta")
    assert meta in (file.read() or b"") or harness.options.keys
    assert not file.damaged
    for _ in range(2):
        harness.crash()
        (store,) = harness.open()
        assert (contents(store), harness.node.problems) == (want, [])
        assert harness.node.meta_of(store) == meta
    harness.end()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("harm", HARMS)
def test_a_meta_is_in_the_log_as_well(tmp_path: Path, harm: str, clean: bool) -> None:
    harness, path, want, meta = made(tmp_path, clean)
    HARMS[harm](path / "meta")
    check_told_once(harness, f"{path / 'meta'} is ", path, want, meta)


def test_a_sealed_meta_as_well(tmp_path: Path) -> None:
    harness, path, want, meta = made(tmp_path, True, sealed=True)
    garbage(path / "meta")
    check_told_once(harness, "is damaged in both copies", path, want, meta)


def test_a_file_that_is_newer_than_the_log_counts(tmp_path: Path) -> None:
    """Stores of a version that kept metas in files only, and a crash between the two."""
    harness, path, want, _ = made(tmp_path, True)
    (path.parent / "older").unlink()
    file = TwoCopyFile(path / "meta")
    newer = (file.read() or b"").replace(b"true", b"null")
    file.write(newer)
    meta = b'{"name":"S","changed":null}'
    (store,) = harness.open()
    assert (harness.node.meta_of(store), harness.node.problems) == (meta, [])
    harness.commit()
    harness.crash()
    file.path.unlink()
    check_told_once(harness, "is missing; the log has it", path, want, meta)


@pytest.mark.parametrize("clean", [False, True])
def test_the_directory_of_a_stream_is_gone(tmp_path: Path, clean: bool) -> None:
    """The stream is there, without its messages, and these are named."""
    harness, path, want, meta = made(tmp_path, clean)
    (path.parent / "older").unlink()
    shutil.rmtree(path)
    (store,) = harness.open()
    assert harness.node.meta_of(store) == meta
    assert any("is missing; the log has it" in str(told) for told in harness.node.problems)
    rows = contents(store)
    assert rows.items() <= want.items()
    assert set(want) <= set(rows) | set(store.lost)
    assert store.last_seq == max(want)
    assert store.add_message(b"s", b"next") == max(want) + 1
    harness.commit()
    harness.end()


def test_a_removed_stream_stays_removed(tmp_path: Path) -> None:
    harness, path, _, _ = made(tmp_path, False)
    (path.parent / "older").unlink()
    (store,) = harness.open()
    harness.node.delete_stream(store)
    harness.commit()
    harness.until(lambda: not path.exists())
    for clean in (False, True, False):
        if clean:
            harness.close()
        else:
            harness.crash()
        assert (harness.open(), harness.node.problems) == ([], [])
    harness.end()
