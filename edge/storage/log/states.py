"""State records of the log: small values by (owner, key), with deltas since the last whole value.

Consumers keep their progress here. The log itself is their only home: when a segment that holds
the newest value of a state is checkpointed, the state is put again at the tail. It knows no bytes
on disk; the log tells it in which segment something landed. What belongs to a sealed stream is
sealed here and in the log, and opened when somebody asks for it.
"""

import logging
from collections.abc import Callable
from typing import Any

Encoder = Callable[[], bytes]
PURPOSE = b"state\0"

# Bytes of a record besides what it holds, about.
RECORD_BYTES = 72

log = logging.getLogger("headwater.storage")


class State:
    """One value and what was added to it."""

    __slots__ = ("deltas", "key", "oldest", "owner", "size", "encoder", "value")

    def __init__(self, owner: bytes, key: bytes) -> None:
        self.owner = owner
        self.key = key
        self.value: bytes | None = None
        self.deltas: list[bytes] = []
        self.oldest = 0
        self.size = 0
        self.encoder: Encoder | None = None


class StateTable:
    """All states of a node. Bounded by what its owners put.

    `bytes` is what the records of all whole values take in the log, each written twice, about. The
    log is longer by twice that than it would be without states: checkpointing a segment puts its
    states again at the tail, and so at most half of what is written is that.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._rows: dict[bytes, dict[bytes, State]] = {}
        self._by_segment: dict[int, dict[State, None]] = {}
        self.packers: dict[bytes, Any] = {}
        """Owner -> the Packer that seals its states; of those who are not here nothing is."""
        self.unopened: set[tuple[bytes, bytes]] = set()
        """(owner, key) of states of which something did not open. Bounded by the states."""
        self.filed: dict[bytes, bytes] = {}
        """Owner -> what is added to its states once a file has them twice. They are in the log once
        when they are put again."""
        self.on_change: Callable[[bytes, bytes], None] = lambda owner, key: None
        """Called with owner and key of a state that was put or deleted."""

    def sealed(self, owner: bytes, key: bytes, value: bytes) -> bytes:
        """A value or an addition as it is stored."""
        packer = self.packers.get(owner)
        if packer is None:
            return value
        stored: bytes = packer.seal_blob(value, PURPOSE + key)
        return stored

    def opened(self, owner: bytes, key: bytes, stored: bytes | None) -> bytes | None:
        """What `sealed` was given. None, and a warning, when it does not open."""
        packer = self.packers.get(owner)
        if packer is None or stored is None:
            return stored
        value: bytes | None = packer.open_blob(stored, PURPOSE + key)
        if value is None:
            self.unopened.add((owner, key))
            log.warning(
                "state %r of %r does not open with the configured keys; it is left out: add the "
                "key it was sealed with to `previous_keys` and start again",
                key,
                owner,
            )
        return value

    def passes(self, owner: bytes, key: bytes) -> bool:
        """Whether additions to a state are stored as they are, and not kept."""
        if owner in self.packers:
            return False
        state = self._rows.get(owner, {}).get(key)
        return state is not None and state.encoder is not None

    def _row(self, owner: bytes, key: bytes) -> State:
        rows = self._rows.setdefault(owner, {})
        state = rows.get(key)
        if state is None:
            state = rows[key] = State(owner, key)
        return state

    def _pin(self, state: State, segment: int) -> None:
        if state.oldest == segment:
            return
        self._unpin(state)
        state.oldest = segment
        self._by_segment.setdefault(segment, {})[state] = None

    def _unpin(self, state: State) -> None:
        rows = self._by_segment.get(state.oldest)
        if rows is not None:
            rows.pop(state, None)
            if not rows:
                del self._by_segment[state.oldest]
        state.oldest = 0

    def put(self, owner: bytes, key: bytes, value: bytes, segment: int) -> None:
        """A whole value; forgets the deltas before it."""
        state = self._row(owner, key)
        state.deltas = []
        state.value = value if state.encoder is None else None
        self._resize(state, 2 * (RECORD_BYTES + len(owner) + len(key) + len(value)))
        self._pin(state, segment)
        self.on_change(owner, key)

    def _resize(self, state: State, size: int) -> None:
        self.bytes += size - state.size
        state.size = size

    def delta(self, owner: bytes, key: bytes, value: bytes, segment: int) -> None:
        """An addition to the value."""
        state = self._row(owner, key)
        if state.encoder is None:
            state.deltas.append(value)
        if not state.oldest:
            self._pin(state, segment)

    def delete(self, owner: bytes, key: bytes) -> None:
        """Forget a state."""
        rows = self._rows.get(owner)
        state = rows.pop(key, None) if rows is not None else None
        if state is not None:
            self._unpin(state)
            self._resize(state, 0)
            self.on_change(owner, key)
        if rows is not None and not rows:
            del self._rows[owner]

    def encode_with(self, owner: bytes, key: bytes, encoder: Encoder | None) -> None:
        """Ask `encoder` for the whole value from now on, instead of keeping value and deltas."""
        state = self._row(owner, key)
        state.encoder = encoder
        if encoder is not None:
            state.value = None
            state.deltas = []

    def owned(self, owner: bytes) -> dict[bytes, tuple[bytes | None, list[bytes]]]:
        """What is kept of an owner: key -> (value, deltas); states with an encoder keep none."""
        rows = self._rows.get(owner, {})
        return {
            key: self.plain(state)
            for key, state in rows.items()
            if state.value is not None or state.deltas
        }

    def plain(self, state: State) -> tuple[bytes | None, list[bytes]]:
        """(value, deltas since) of a state without an encoder."""
        value = self.opened(state.owner, state.key, state.value)
        deltas = [self.opened(state.owner, state.key, delta) for delta in state.deltas]
        return value, [delta for delta in deltas if delta is not None]

    def stored(self, owner: bytes, key: bytes) -> tuple[bytes, list[bytes]] | None:
        """(value, deltas since) of a state as they are stored; None when it has no value."""
        state = self._rows.get(owner, {}).get(key)
        if state is not None and state.encoder is not None:
            return self.sealed(owner, key, state.encoder()), []
        if state is None or state.value is None:
            return None
        return state.value, state.deltas

    def keys(self, owner: bytes) -> list[bytes]:
        """Keys of an owner's states."""
        return list(self._rows.get(owner, {}))

    def owners(self) -> list[bytes]:
        return list(self._rows)

    def due(self, segment: int) -> list[State]:
        """States that need `segment` or an older one."""
        return [
            state
            for number in sorted(self._by_segment)
            if number <= segment
            for state in self._by_segment[number]
        ]


def put_again(log: Any, segment: int) -> None:
    """Write states that live in `segment` or before at the log's tail: it can be checkpointed
    then."""
    for state in log.table.due(segment):
        if state.encoder is not None:
            log.put_state(state.owner, state.key, state.encoder())
            continue
        value, deltas = log.table.plain(state)
        if value is not None:
            once = log.table.filed.get(state.owner) in deltas
            log.put_state(state.owner, state.key, value, once=once)
        else:
            log.delete_state(state.owner, state.key)
        for delta in deltas:
            log.add_delta(state.owner, state.key, delta)
