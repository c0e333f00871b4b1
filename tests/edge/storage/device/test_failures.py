"""Full devices and failing syncs: nothing is acknowledged that is not safe, and both heal."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.format.errors import StoreFull
from tests.edge.storage.store_harness import Harness, contents
from tests.small_device import small_device

HERE = Path(__file__).parent


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    """A file system of two MiB."""
    path = tmp_path / "device"
    path.mkdir()
    with small_device(path, 2) as inside:
        yield inside


def test_full_device_refuses_publishes_and_heals(device: Path) -> None:
    harness = Harness(device / "data")
    harness.open()
    harness.node.restart.retry_delay = 0.02
    harness.node.checkpointer.retry_delay = 0.02
    store = harness.create()
    n = 0
    with pytest.raises(StoreFull):
        while n < 100_000:
            store.add_message(b"a", b"%06d" % n * 30)
            n += 1
            if n % 50 == 0:
                harness.turn()
                harness.until(
                    lambda: not harness.node.log.congested
                    or harness.node.log.failure is not None
                )
    assert 3000 < n < 12_000
    harness.commit()
    assert store.committed == store.last_seq == n
    assert store.get(1).payload == b"%06d" % 0 * 30
    assert store.get(n).payload == b"%06d" % (n - 1) * 30
    for _ in range(50):
        harness.node.log.add_delta(b"consumer", b"c", b"progress")
    harness.commit()
    store.purge(None, n - 100)
    harness.commit()
    harness.until(lambda: store.failure is None and not harness.node.log.congested)
    store.add_message(b"a", b"again")
    harness.commit()
    harness.settle()
    want = contents(store)
    assert len(want) == 102
    harness.crash()
    (store,) = harness.open()
    assert contents(store) == want
    assert harness.node.problems == []
    harness.end()


@pytest.mark.parametrize("syncs", ["thread", "loop"])
def test_failed_sync_acknowledges_nothing_and_begins_again(tmp_path: Path, syncs: str) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    library = tmp_path / "failing_sync.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", str(library), str(HERE / "failing_sync.c")],
        check=True,
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "FAIL_SYNC": str(tmp_path / "fail"),
    }
    done = subprocess.run(
        [sys.executable, str(HERE / "sync_failure.py"), str(tmp_path / "data"), syncs],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ok\n", done.stderr
