"""`headwater serve …`, with notes of Raft entries: `python -m bench.cluster.stage_notes …`.

The methods that stages begin or end with are wrapped, so the node itself knows nothing of it, and a
node that is not watched pays nothing. Notes are kept in memory, and written as JSON to the file
that the environment names when the node stops.
"""

import functools
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

VARIABLE = "HEADWATER_STAGES"
"""Names the file for the notes."""
NOTES_MAX = 1_000_000
APPLY_GROUP = 0
"""Stands for the group where it is not known: when entries are applied."""


class Notes:
    """Rows of stage, group, index of the newest entry that it is about, monotonic nanoseconds."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int, int]] = []
        self.log: Any = None
        """The commit log of the node."""
        self.begun: tuple[float, int] | None = None
        """Processor seconds and page faults at the first entry."""

    def add(self, stage: str, group: int, index: int) -> None:
        """An entry has reached a stage."""
        if len(self.rows) < NOTES_MAX:
            self.rows.append((stage, group, index, time.monotonic_ns()))

    def begin(self) -> None:
        """The first entry is here."""
        if self.begun is None:
            self.begun = self._used()

    @staticmethod
    def _used() -> tuple[float, int]:
        return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def write(self, path: str) -> None:
        """Everything, as JSON."""
        cpu, faults = self._used()
        before = self.begun or (0.0, 0)
        lines = Path("/proc/self/io").read_text().splitlines()
        io = dict(line.split(": ") for line in lines)
        what = {
            "notes": self.rows,
            "cpu": cpu - before[0],
            "faults": faults - before[1],
            "written": int(io["write_bytes"]),
            "syncs": self.log.numbers()["syncs"] if self.log is not None else 0,
        }
        Path(path).write_text(json.dumps(what))

    # -- what is wrapped ---------------------------------------------------------------

    def propose(self, inner: Callable[..., Any], raft: Any, datas: Any) -> Any:
        """`Raft.propose`."""
        self.begin()
        found = inner(raft, datas)
        self.add("proposed", raft.group, raft.log.last)
        return found

    def send(self, inner: Callable[..., Any], driver: Any, packets: Any) -> None:
        """`Driver._send`."""
        said = [m for packet in packets for m in packet.messages]
        inner(driver, packets)
        for m in said:
            if m.kind.name == "APPEND" and m.entries:
                self.add(f"sent to {m.to % 1000:03}", m.group, m.entries[-1].index)
            elif m.kind.name == "APPEND_REPLY":
                self.add("answered", m.group, m.index)

    def step(self, inner: Callable[..., Any], raft: Any, m: Any) -> None:
        """`Raft.step`."""
        before = raft.log.committed
        if m.kind.name == "APPEND" and m.entries:
            self.begin()
            self.add("heard", m.group, m.entries[-1].index)
        elif m.kind.name == "APPEND_REPLY":
            self.add("acked", m.group, m.index)
        inner(raft, m)
        if raft.log.committed > before:
            self.add("committed", raft.group, raft.log.committed)

    def synced(self, inner: Callable[..., Any], raft: Any, number: int) -> Any:
        """`Raft.synced`."""
        durable, committed = raft.log.durable, raft.log.committed
        found = inner(raft, number)
        if raft.log.durable > durable:
            self.add("durable", raft.group, raft.log.durable)
        if raft.log.committed > committed:
            self.add("committed", raft.group, raft.log.committed)
        return found

    def store(self, inner: Callable[..., Any], store: Any, raft: Any, ready: Any) -> None:
        """`GroupStore._write_ready`."""
        self.log = store.log
        inner(store, raft, ready)
        if ready.entries:
            self.add("written", raft.group, ready.entries[-1].index)

    def apply(self, inner: Callable[..., Any], replica: Any, entries: Any) -> Any:
        """`Replica.apply`."""
        if not entries:
            return inner(replica, entries)
        index = entries[-1].index
        self.add("applying", APPLY_GROUP, index)
        found = inner(replica, entries)
        self.add("applied", APPLY_GROUP, index)
        return found


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Have `around` called in the place of a method, with the method first."""
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def outer(*words: Any) -> Any:
        return around(inner, *words)

    setattr(owner, name, outer)


def main() -> None:
    """Serve as the arguments say, and note."""
    from headwater.deploy import main as command
    from headwater.hub.cluster.driver import Driver
    from headwater.hub.raft.raft import Raft
    from headwater.hub.stored.group_store import GroupStore
    from headwater.hub.stored.replica import Replica

    notes = Notes()
    wrap(Raft, "propose", notes.propose)
    wrap(Raft, "step", notes.step)
    wrap(Raft, "synced", notes.synced)
    wrap(Driver, "_send", notes.send)
    wrap(GroupStore, "_write_ready", notes.store)
    wrap(Replica, "apply", notes.apply)

    def leave(inner: Callable[[int], None], status: int) -> None:
        notes.write(os.environ[VARIABLE])
        inner(status)

    wrap(command, "leave", leave)
    sys.argv[1:] = ["serve", *sys.argv[1:]]
    command.main()


if __name__ == "__main__":
    main()
