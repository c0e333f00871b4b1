"""Starting again after truncation at any byte, any flipped bit, and kill -9."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import Damaged
from tests.edge.storage.store_harness import Harness, contents

HERE = Path(__file__).parent
# Hundreds of starts in a row: on a device each costs milliseconds of syncs that prove nothing.
FAST = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())
PREFIX = "headwater-test-"
# Every how many-th byte the suite takes; `make damage` takes each. No divisor of a header's 64, so
# that other bytes of each record are met.
STRIDE = 1 if os.environ.get("HEADWATER_DAMAGE") else 11


def fast_directory() -> Path:
    """A new one. What killed runs left behind goes away."""
    for path in FAST.glob(f"{PREFIX}[0-9]*-*"):
        if not Path("/proc", path.name.removeprefix(PREFIX).split("-")[0]).exists():
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=FAST))


@pytest.fixture
def fast() -> Iterator[Path]:
    path = fast_directory()
    yield path
    shutil.rmtree(path)


def message(n: int) -> tuple[bytes, bytes, bytes]:
    headers = b"NATS/1.0\r\nN: %d\r\n\r\n" % n if n % 3 == 0 else b""
    return b"s.%d" % (n % 4), headers, b"payload %d " % n * (n % 5)


def append(store: object, n: int) -> None:
    subject, headers, payload = message(n)
    assert store.add_message(subject, payload, headers) == n


def small_store(path: Path) -> tuple[Path, list[tuple[int, int]]]:
    """A store stopped hard after a few commits; its log file and (end, committed) per commit."""
    harness = Harness(path)
    harness.open()
    store = harness.create()
    marks = [(512, 0)]
    n = 0
    for size in (1, 3, 2, 4, 1, 2):
        for _ in range(size):
            n += 1
            append(store, n)
        harness.commit()
        marks.append((harness.node.log.progress.position()["end"], store.committed))
    slot = harness.node.log.active.slot.path
    harness.end()
    return slot, marks


def reopen(source: Path, target: Path, slot: Path, data: bytes) -> Harness:
    """Open a copy of a store in which a file has another content; a log slot keeps its size."""
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    if slot.suffix == ".log":
        data = data.ljust(slot.stat().st_size, b"\0")
    (target / slot.relative_to(source)).write_bytes(data)
    return Harness(target)


def is_padding(data: bytes | bytearray, at: int) -> bool:
    """Whether there are nothing but zeros around."""
    return not any(data[max(at - 32, 0) : at + 32])


def forget_acks(directory: Path) -> None:
    """As if the crash had come before what is missing was acknowledged."""
    (directory / "jetstream" / "tidemarks").unlink()


def test_truncation_at_every_byte_of_the_log(fast: Path) -> None:
    slot, marks = small_store(fast / "a")
    data = slot.read_bytes()
    committed = {0, *(mark[1] for mark in marks)}
    for length in range(0, marks[-1][0] + 9, STRIDE):
        if is_padding(data, length):
            continue
        harness = reopen(fast / "a", fast / "b", slot, data[:length])
        forget_acks(fast / "b")
        (store,) = harness.open()
        acked = max((last for end, last in marks if end <= length), default=0)
        assert store.last_seq >= acked, length
        assert store.last_seq in committed
        assert store.lost == {}
        assert harness.node.problems == [], length
        want = {n: message(n) for n in range(1, store.last_seq + 1)}
        assert contents(store) == want, length
        append(store, store.last_seq + 1)
        harness.end()


def check_flip(harness: Harness, last: int, what: str) -> int:
    """Open a store with one flipped bit; returns 1 when the damage was told at once."""
    (store,) = harness.open()
    found = {}
    for n in range(1, last + 1):
        try:
            got = store.get(n)
        except Damaged:
            got = None
        if got is not None:
            found[n] = (got.subject, got.headers, got.payload)
    missing = set(range(1, last + 1)) - found.keys()
    assert len(missing) <= 1, (what, missing)
    assert missing <= store.lost.keys(), what
    assert all(found[n] == message(n) for n in found), what
    assert store.last_seq == last, what
    told = 1 if harness.node.problems or store.lost else 0
    harness.end()
    return told


def test_flipped_bits_in_the_log(fast: Path) -> None:
    slot, marks = small_store(fast / "a")
    data = bytearray(slot.read_bytes())
    end, last = marks[-1]
    pick = random.Random(1)
    told = total = 0
    for at in range(0, end, STRIDE):
        if is_padding(data, at):
            continue
        bit = 1 << pick.randrange(8)
        data[at] ^= bit
        harness = reopen(fast / "a", fast / "b", slot, bytes(data))
        told += check_flip(harness, last, f"bit {bit} of byte {at}")
        total += 1
        data[at] ^= bit
    footer = end - bytes(data).rindex(b"HWR1", 0, end)
    least = footer // STRIDE + 1
    assert total - told <= least, "only the very last footer's copy may pass for a torn tail"


@pytest.mark.parametrize("indexed", [True, False])
def test_flipped_bits_in_a_segment(fast: Path, indexed: bool) -> None:
    slot, marks = small_store(fast / "a")
    harness = Harness(fast / "a")
    (store,) = harness.open()
    harness.close()
    harness.end()
    path = store.segments[0].path
    if not indexed:
        path.with_suffix(".idx").unlink()
    data = bytearray(path.read_bytes())
    pick = random.Random(2)
    for at in range(0, len(data), STRIDE):
        bit = 1 << pick.randrange(8)
        data[at] ^= bit
        harness = reopen(fast / "a", fast / "b", path, bytes(data))
        check_flip(harness, marks[-1][1], f"bit {bit} of byte {at}")
        data[at] ^= bit


def test_flipped_bits_in_an_index(fast: Path) -> None:
    _, marks = small_store(fast / "a")
    harness = Harness(fast / "a")
    (store,) = harness.open()
    harness.close()
    harness.end()
    path = store.segments[0].path.with_suffix(".idx")
    data = bytearray(path.read_bytes())
    for at in range(0, len(data), 5):
        data[at] ^= 16
        harness = reopen(fast / "a", fast / "b", path, bytes(data))
        assert check_flip(harness, marks[-1][1], f"byte {at}") == 1
        data[at] ^= 16


def test_truncated_segment_is_told_and_the_rest_is_kept(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.open()
    store = harness.create()
    for n in range(1, 2001):
        append(store, n)
        if n % 50 == 0:
            harness.breathe()
    harness.commit()
    harness.close()
    segment = store.segments[1]
    os.truncate(segment.path, 40_000)
    (store,) = harness.open()
    found = {}
    for n in range(1, 2001):
        try:
            got = store.get(n)
        except Damaged:
            continue
        if got is not None:
            found[n] = (got.subject, got.headers, got.payload)
    assert all(found[n] == message(n) for n in found)
    missing = set(range(1, 2001)) - found.keys()
    assert missing
    assert missing == store.lost.keys()
    assert all(segment.first <= n <= segment.last for n in missing)
    assert store.last_seq == 2000
    harness.end()


def test_missing_log_segment_is_told(fast: Path) -> None:
    harness = Harness(fast / "a")
    harness.open()
    store = harness.create()
    harness.node.checkpointer.stopped = True
    for n in range(1, 1500):
        append(store, n)
    harness.commit()
    live = harness.node.log.live
    assert len(live) >= 3
    victim = live[1].slot.path
    harness.end()
    victim.unlink()
    harness = Harness(fast / "a")
    (store,) = harness.open()
    assert any("missing" in str(problem) for problem in harness.node.problems)
    got = contents_or_lost(store)
    assert store.last_seq >= 1499
    assert all(got[n] == message(n) for n in got)
    assert set(range(1, 1500)) - got.keys() == store.lost.keys()
    harness.end()


def contents_or_lost(store: object) -> dict[int, tuple[bytes, bytes, bytes]]:
    found = {}
    for n in range(store.first_seq, store.last_seq + 1):
        try:
            got = store.get(n)
        except Damaged:
            continue
        if got is not None:
            found[n] = (got.subject, got.headers, got.payload)
    return found


@pytest.mark.parametrize("after", [40, 700, 4000, 12_000])
def test_kill_9_keeps_everything_committed(tmp_path: Path, after: int) -> None:
    child = subprocess.Popen(
        [sys.executable, str(HERE / "appender.py"), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    committed = 0
    for line in child.stdout:
        committed = int(line)
        if committed >= after:
            break
    child.send_signal(signal.SIGKILL)
    for line in child.stdout:
        if line.endswith("\n"):
            committed = int(line)
    child.wait()
    child.stdout.close()
    harness = Harness(tmp_path)
    (store,) = harness.open()
    assert harness.node.problems == []
    assert not harness.node.clean_start
    assert store.last_seq >= committed
    assert contents(store) == {n: message(n) for n in range(store.first_seq, store.last_seq + 1)}
    assert store.first_seq <= max(store.last_seq - 1999, 1)
    states = harness.node.log.states(b"progress")
    value, deltas = states[b"k"]
    assert int((deltas or [value])[-1]) >= committed
    harness.end()


def test_a_turn_that_crosses_segments_counts_as_a_whole(fast: Path) -> None:
    harness = Harness(fast / "a")
    harness.open()
    store = harness.create()
    for n in range(1, 11):
        append(store, n)
    harness.commit()
    harness.node.log.put_state(b"cursor", b"k", b"before")
    for n in range(11, 1001):
        append(store, n)
    harness.node.log.put_state(b"cursor", b"k", b"after")
    harness.commit()
    first, second = (segment.slot.path for segment in harness.node.log.live[:2])
    assert len(harness.node.log.live) >= 2
    last = harness.node.log.active.slot.path
    harness.end()
    harness = reopen(fast / "a", fast / "b", last, last.read_bytes())
    (store,) = harness.open()
    assert store.last_seq == 1000
    harness.end()
    cut = last.read_bytes()[:600]
    harness = reopen(fast / "a", fast / "b", last, cut)
    forget_acks(fast / "b")
    for stop in (harness.crash, harness.crash, harness.close):
        (store,) = harness.open()
        assert store.last_seq == 10
        assert contents(store) == {n: message(n) for n in range(1, 11)}
        assert harness.node.problems == []
        stop()
    (store,) = harness.open()
    append(store, 11)
    harness.commit()
    harness.crash()
    (store,) = harness.open()
    assert store.last_seq == 11
    harness.end()
    assert first != second
