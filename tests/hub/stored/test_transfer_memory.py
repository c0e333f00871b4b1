"""What a state on its way takes of memory does not depend on how much it is."""

import tracemalloc
from pathlib import Path

import pytest

from headwater.edge.storage.log.commit_log import CommitLog
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.entry import Entry
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.stored.arrival import Arrival
from headwater.hub.stored.mark import Mark
from headwater.hub.stored.replica import Replica
from headwater.hub.stored.sending import Sending
from tests.edge.storage.store_harness import Harness

PART_BYTES = 64 << 10
MESSAGES = 150_000


class Nothing:
    """A machine without rules."""

    def apply(self, store: object, entry: Entry) -> None: ...

    def state(self) -> bytes:
        return b""

    def carried(self) -> bytes:
        return self.state()

    def restore(self, state: bytes) -> None: ...


@pytest.mark.alone
def test_a_state_is_never_whole_in_memory(tmp_path: Path) -> None:
    here, there = Harness(tmp_path / "a", 4 << 20), Harness(tmp_path / "b", 4 << 20)
    here.open()
    there.open()
    store = here.create()
    for n in range(MESSAGES):
        store.add_message(b"s.%d" % (n % 10), b"%0100d" % n)
        if n % 1000 == 999:
            here.breathe()
    here.commit()
    assert here.node is not None and there.node is not None
    log: CommitLog = here.node.log
    replica = Replica(log, Nothing(), store, Mark(9, 2, Config({1: 1})))
    sending = Sending((1, 1), replica, 0.0, lambda store: b"{}")
    arrival = Arrival(there.node.log, there.create, 0.0, there.node.update_meta)
    sent = 0
    tracemalloc.start()
    while not arrival.complete:
        part = sending.part(arrival.position, PART_BYTES)
        assert part is not None
        end = part.snapshot
        m = Message(Kind.SNAPSHOT, 1, 2, term=1, context=1, offset=part.position, hint=part.next)
        m.part, m.size, m.digest, m.commit = part.data, part.size, part.digest, part.whole
        m.index, m.config = (end.index, end.config) if end else (0, None)
        arrival.keep(m)
        sent += len(m.part)
        there.breathe()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found = arrival.store
    assert found is not None and found.state()["messages"] == MESSAGES
    assert found.get(77_777).payload == store.get(77_777).payload
    assert sent > 200 * PART_BYTES
    assert peak < sent / 10, f"{peak} bytes for a state of {sent}"
    here.close()
    there.close()
