"""The end of a group's state on its way to a member: everything but the messages.

Messages travel first, as they are when they are read, while the group goes on. The end is of one
moment, and says of which index the whole is: the machine's state, consumers and other states of the
stream, and which of the messages that were sent are still there. Removals since then are in the
log. So nothing has to be pinned, and what was sent by one leader can be ended by another.

    u64 first sequence   u64 last sequence   u64 messages   u32 bytes of the machine's state
    u32 bytes of states   u32 bytes of the stream's description   then these three, and the alive
    runs (`edge.storage.index.message_rows`)
"""

import struct
from dataclasses import dataclass

from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.index.message_rows import alive_runs, keep_runs
from headwater.edge.storage.log.commit_log import CommitLog
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.stored.mark import KEY

HEAD = struct.Struct("<QQQIII")
KEPT = struct.Struct("<HIH")
SIZE = struct.Struct("<I")
OWN_KEYS = (KEY, b"stream/ceiling")
"""States of a stream that tell of this node alone."""


class Gaps(StoreError):
    """What has arrived of a state is not what its end says."""


@dataclass(frozen=True, slots=True)
class StateEnd:
    """See the module. `states` and `alive` are as they travel."""

    first_seq: int
    last_seq: int
    messages: int
    machine: bytes
    states: bytes
    meta: bytes
    """The stream's description, as of the same moment."""
    alive: bytes

    def encode(self) -> bytes:
        numbers = (self.first_seq, self.last_seq, self.messages)
        head = HEAD.pack(*numbers, len(self.machine), len(self.states), len(self.meta))
        return b"".join((head, self.machine, self.states, self.meta, self.alive))


def decode_end(data: bytes) -> StateEnd:
    """What `encode` made. Raises StoreError when it is something else."""
    try:
        first, last, messages, machine, states, meta = HEAD.unpack_from(data)
    except struct.error as error:
        raise StoreError(f"the end of a state cannot be read: {error}") from error
    a = HEAD.size + machine
    b = a + states
    c = b + meta
    if c > len(data):
        raise StoreError("the end of a state is cut off")
    parts = (data[HEAD.size : a], data[a:b], data[b:c], data[c:])
    return StateEnd(first, last, messages, *parts)


def end_of(log: CommitLog, store: FileStore, machine: bytes, meta: bytes) -> StateEnd:
    """The end as it is now. Raises StoreError when messages are lost: then this replica cannot
    give a state."""
    if store.lost:
        raise StoreError(f"{len(store.lost)} messages of the replica are lost")
    numbers = (store.first_seq, store.last_seq, store.messages)
    return StateEnd(*numbers, machine, states_of(log, store), meta, alive_runs(store))


def bring_to(log: CommitLog, store: FileStore, end: StateEnd) -> None:
    """Make the messages of a store, which came before, and its states those of `end`. Raises
    StoreError, and then may be called again with that end or a later one; Gaps when messages are
    missing."""
    keep_runs(store, end.alive)
    store.skip(end.last_seq)
    if end.first_seq > store.first_seq:
        store.purge(None, end.first_seq)
    found = (store.first_seq, store.last_seq, store.messages)
    if found != (end.first_seq, end.last_seq, end.messages):
        wanted = f"{end.first_seq}-{end.last_seq} with {end.messages} messages"
        raise Gaps(f"a state has arrived as {found}, not as {wanted}")
    keep_states(log, store, end.states)


def states_of(log: CommitLog, store: FileStore) -> bytes:
    """What the log keeps of a stream besides its messages: its consumers above all."""
    parts = []
    for key, (value, deltas) in sorted(log.states(store.incarnation.encode()).items()):
        if key not in OWN_KEYS and value is not None:
            parts += [KEPT.pack(len(key), len(value), len(deltas)), key, value]
            for delta in deltas:
                parts += [SIZE.pack(len(delta)), delta]
    return b"".join(parts)


def keep_states(log: CommitLog, store: FileStore, data: bytes) -> None:
    """Put what `states_of` made into the log, for the stream in `store`."""
    owner = store.incarnation.encode()
    for key in log.states(owner):
        if key not in OWN_KEYS:
            log.delete_state(owner, key)
    at = 0
    while at < len(data):
        key_size, size, count = KEPT.unpack_from(data, at)
        at += KEPT.size
        key = data[at : at + key_size]
        at += key_size
        log.put_state(owner, key, data[at : at + size])
        at += size
        for _ in range(count):
            (size,) = SIZE.unpack_from(data, at)
            at += SIZE.size
            log.add_delta(owner, key, data[at : at + size])
            at += size
