"""Memory of what is stored: per message, per subject, per stream and per consumer.

    python -m bench.bounds [--messages N] [--subjects N] [--streams N] [--json]

Each case runs in a process of its own, through the storage's own calls, so that nothing but the
store is measured: resident memory before and after, and the time to open it again. `bench.beside`
measures whole servers.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PAYLOAD = 128
BATCH = 20_000
FULL = {"messages": 10_000_000, "subjects": 1_000_000, "streams": 3_000}


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Open files of this process."""
    return len(os.listdir("/proc/self/fd"))


async def case(kind: str, count: int, folder: Path) -> dict[str, float]:
    """One case in this process; see `main` for the names."""
    from headwater.edge.kernel.kernel import Kernel
    from headwater.edge.storage.directory.store_options import StoreOptions
    from headwater.edge.storage.node.node_store import NodeStore

    def opened() -> NodeStore:
        node = NodeStore(
            Kernel(asyncio.get_running_loop()), StoreOptions(folder, sync_interval=120.0)
        )
        node.open()
        return node

    node = opened()
    before = resident()
    if kind == "streams":
        for number in range(count):
            store = node.create_stream("A", f"S{number}", b"{}")
            store.add_message(b"s.%d" % number, bytes(PAYLOAD))
            if number % 100 == 0:
                await node.log.wait_durable(node.log.hand_over())
    else:
        store = node.create_stream("A", "S", b"{}", "memory" if kind == "memory" else "file")
        for number in range(count):
            subject = b"sensor.%08d" % number if kind == "subjects" else b"sensor"
            store.add_message(subject, bytes(PAYLOAD))
            if number % BATCH == BATCH - 1:
                await node.keep_up()
    await node.log.wait_durable(node.log.hand_over())
    held = (resident() - before) / count
    files = descriptors()
    result = {"count": count, "bytes_each": round(held, 1), "open_files": files}
    await node.close()
    if kind != "memory":
        result |= await asyncio.to_thread(reopened, kind, count, folder)
    return result


def reopened(kind: str, count: int, folder: Path) -> dict[str, float]:
    """What a fresh process takes for the same store."""
    words = [sys.executable, "-m", "bench.bounds", "--reopen", kind, "--folder", str(folder)]
    done = subprocess.run([*words, "--count", str(count)], capture_output=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def reopen(count: int, folder: Path) -> dict[str, float]:
    """Open a store that was stopped cleanly."""
    from headwater.edge.kernel.kernel import Kernel
    from headwater.edge.storage.directory.store_options import StoreOptions
    from headwater.edge.storage.node.node_store import NodeStore

    node = NodeStore(Kernel(asyncio.get_running_loop()), StoreOptions(folder, sync_interval=120.0))
    before = resident()
    began = time.perf_counter()
    node.open()
    seconds = time.perf_counter() - began
    held = (resident() - before) / count
    files = descriptors()
    node.stop_now()
    return {
        "ready_seconds": round(seconds, 3),
        "bytes_each_after_start": round(held, 1),
        "open_files_after_start": files,
    }


def measure(kind: str, count: int) -> dict[str, float]:
    """One case in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="headwater-bounds-") as folder:
        words = [sys.executable, "-m", "bench.bounds", "--case", kind, "--folder", folder]
        done = subprocess.run([*words, "--count", str(count)], capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr.decode())
        found: dict[str, float] = json.loads(done.stdout)
        return found


def main(arguments: list[str] | None = None) -> int:
    """Run all cases: `messages` on one subject in files, `memory` the same in memory, `subjects`
    with a message each, `streams` with a message each."""
    parser = argparse.ArgumentParser(prog="python -m bench.bounds")
    for name, count in FULL.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--json", action="store_true")
    for name in ("case", "reopen", "folder"):
        parser.add_argument(f"--{name}", default="", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        print(json.dumps(asyncio.run(case(given.case, given.count, Path(given.folder)))))
        return 0
    if given.reopen:
        print(json.dumps(asyncio.run(reopen(given.count, Path(given.folder)))))
        return 0
    counts = {
        "messages": given.messages,
        "memory": given.messages,
        "subjects": given.subjects,
        "streams": given.streams,
    }
    rows = {kind: measure(kind, count) for kind, count in counts.items() if count}
    if given.json:
        print(json.dumps(rows))
        return 0
    for kind, row in rows.items():
        print(f"{kind:<10}" + "  ".join(f"{name} {value:g}" for name, value in row.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
