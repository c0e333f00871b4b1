"""Bugs planted into replicated streams, one at a time; the story must find each of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from headwater.edge.jetstream.account import stream_lifecycle
from headwater.edge.jetstream.consumer import consumer_recovery
from headwater.edge.jetstream.publish import replay
from headwater.hub.cluster.leadership import Leadership
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.ready import bootstrap
from headwater.hub.raft.raft import Raft
from headwater.hub.stored import arrival, state_end
from headwater.hub.stored.replica import Replica
from headwater.hub.streams import stream_machine
from headwater.hub.streams.stream_group import StreamGroup
from headwater.hub.streams.stream_groups import StreamGroups
from headwater.hub.streams.stream_machine import StreamMachine

Put = Callable[[Any, str, Any], None]
"""Puts something in another's place: where, attribute, value."""
Plant = Callable[[Put], None]
BUGS: dict[str, Plant] = {}


def bug(entered: Plant) -> Plant:
    """Enter a bug under its name."""
    BUGS[entered.__name__] = entered
    return entered


@contextmanager
def plant(entered: Plant) -> Iterator[None]:
    """With a bug in place."""
    before: list[tuple[Any, str, Any]] = []

    def put(where: Any, attribute: str, value: Any) -> None:
        before.append((where, attribute, getattr(where, attribute)))
        setattr(where, attribute, value)

    entered(put)
    try:
        yield
    finally:
        for where, attribute, value in reversed(before):
            setattr(where, attribute, value)


def find(entered: Plant, tell: Callable[[int], object], seeds: int, first: int = 1) -> None:
    """Tell stories of so many seeds with a bug in place; AssertionError when none notices it."""
    for seed in range(first, first + seeds):
        with plant(entered):
            try:
                tell(seed)
            except Exception as error:  # whatever it is noticed by
                print(f"seed {seed}: {type(error).__name__}: {error}")
                return
    raise AssertionError(f"{entered.__name__} was not found in {seeds} seeds")


@bug
def a_leader_applies_and_acknowledges_before_a_quorum_has_it(put: Put) -> None:
    true = StreamMachine.apply

    def propose(self: StreamGroup, entry: bytes) -> bool:
        stream = self.stream
        if not proposed(self, entry):
            return False
        log = self.machine.jetstream.store().log
        replay.apply(stream, entry, log, lambda meta: None)
        self.machine.early = getattr(self.machine, "early", 0) + 1
        return True

    proposed = StreamGroup.propose

    def apply(self: StreamMachine, store: Any, entry: Any) -> None:
        if getattr(self, "early", 0) and self.lives:
            self.early -= 1
            self.stream.replicator.entry_applied()
            return
        true(self, store, entry)

    put(StreamGroup, "propose", propose)
    put(StreamMachine, "apply", apply)


@bug
def a_leader_lives_before_everything_committed_is_applied(put: Put) -> None:
    def changed(self: StreamGroup, raft: Raft) -> None:
        true(self, raft)
        if raft.is_leader and not self.machine.lives and self.replica.store is not None:
            self.machine.live(self.replica.store, self.proposals, self.propose)

    true = StreamGroup.changed
    put(StreamGroup, "changed", changed)


@bug
def a_deposed_leader_lives_on(put: Put) -> None:
    put(StreamMachine, "quiet", lambda self: None)


@bug
def a_snapshot_has_no_consumers(put: Put) -> None:
    put(state_end, "states_of", lambda log, store: b"")


@bug
def a_snapshot_has_consumers_as_they_were_once(put: Put) -> None:
    def states(log: Any, store: Any) -> bytes:
        found = log.states(store.incarnation.encode())
        parts = []
        for key, (value, _) in sorted(found.items()):
            if key not in state_end.OWN_KEYS and value is not None:
                parts += [state_end.KEPT.pack(len(key), len(value), 0), key, value]
        return b"".join(parts)

    put(state_end, "states_of", states)


@bug
def limits_are_kept_by_the_leader_alone(put: Put) -> None:
    def follow(js: Any, meta: bytes, store: Any) -> Any:
        stream = true(js, meta, store)
        config = stream.config
        stream.configure(stream_without_limits(config))
        stream.config = config
        stream.mute()
        return stream

    true = stream_lifecycle.follow
    put(stream_lifecycle, "follow", follow)


def stream_without_limits(config: Any) -> Any:
    """The same configuration, for ever."""
    return msgspec.structs.replace(config, max_msgs=-1)


@bug
def a_new_leader_forgets_message_ids(put: Put) -> None:
    def live(self: StreamMachine, *arguments: Any) -> Any:
        stream = true(self, *arguments)
        stream.dedupe.cut(0)
        stream.dedupe.loaded = True
        return stream

    true = StreamMachine.live
    put(StreamMachine, "live", live)


@bug
def a_new_leader_gives_the_last_sequence_again(put: Put) -> None:
    def live(self: StreamMachine, *arguments: Any) -> Any:
        stream = true(self, *arguments)
        stream.replicator.last_seq = max(stream.store.last_seq - 1, 0)
        return stream

    true = StreamMachine.live
    put(StreamMachine, "live", live)


@bug
def a_wiped_node_founds_the_group_alone(put: Put) -> None:
    def run(self: StreamGroups, group: Any, restored: Any) -> None:
        if not restored.entries and restored.snapshot.index == 0:
            number, boot = self.driver.number, self.driver.store.boot
            restored = bootstrap(Config({number: boot}), number)
            store = self.driver.store
            store.create(group.wanted.group, restored, lambda: true(self, group, restored))
            return
        true(self, group, restored)

    true = StreamGroups._run
    put(StreamGroups, "_run", run)


@bug
def a_mark_is_never_written(put: Put) -> None:
    def write_mark(self: Replica) -> None:
        if self.marked:
            self.marked = self.mark.index
            return
        true(self)

    true = Replica.write_mark
    put(Replica, "write_mark", write_mark)


@bug
def a_mark_is_ahead_of_what_is_applied(put: Put) -> None:
    def apply(self: Replica, entries: list[Any]) -> Any:
        if len(entries) > 1 and entries[-1].kind == 0:
            self.mark = type(self.mark)(entries[-1].index, entries[-1].term, self.mark.config)
        return true(self, entries)

    true = Replica.apply
    put(Replica, "apply", apply)


@bug
def followers_leave_out_the_progress_of_consumers(put: Put) -> None:
    class Deaf:
        def __init__(self, log: Any) -> None:
            self.log = log

        def __getattr__(self, name: str) -> Any:
            return getattr(self.log, name)

        def add_delta(self, *arguments: Any) -> int:
            return 1

    class Replay:
        @staticmethod
        def apply(stream: Any, data: bytes, log: Any, configure: Any) -> None:
            deaf = log if stream.replicator is not None else Deaf(log)
            replay.apply(stream, data, deaf, configure)

    put(stream_machine, "replay", Replay)


@bug
def an_entry_is_applied_twice_by_followers(put: Put) -> None:
    def apply(self: StreamMachine, store: Any, entry: Any) -> None:
        true(self, store, entry)
        if not self.lives and entry.index % 7 == 0:
            log = self.jetstream.store().log
            at = entry.data.find(b"consumer/C")
            if at > 0:
                log.add_delta(store.incarnation.encode(), b"consumer/C", b"\1" * 9)

    true = StreamMachine.apply
    put(StreamMachine, "apply", apply)


@bug
def an_entry_that_waited_is_left_out(put: Put) -> None:
    def apply(self: StreamMachine, store: Any, entry: Any) -> None:
        if not self.lives and entry.index % 31 == 0:
            return
        true(self, store, entry)

    true = StreamMachine.apply
    put(StreamMachine, "apply", apply)


@bug
def what_a_handover_interrupts_is_said_to_be_proposed(put: Put) -> None:
    def propose(self: StreamGroup, entry: bytes) -> bool:
        true(self, entry)
        return True

    true = StreamGroup.propose
    put(StreamGroup, "propose", propose)


@bug
def answers_leave_when_leadership_ends(put: Put) -> None:
    def quiet(self: StreamMachine) -> None:
        if self.lives:
            stream = self.stream
            for _ in range(1000):
                stream.replicator.entry_applied()
            stream.store.committed = stream.newest()
            stream.kernel.turn()
            stream.kernel.post(stream)
            stream.kernel.turn()
        true(self)

    true = StreamMachine.quiet
    put(StreamMachine, "quiet", quiet)


@bug
def consumers_come_back_as_they_were_once(put: Put) -> None:
    def revive(stream: Any, meta: Any, parts: list[bytes]) -> None:
        true(stream, meta, parts[:1])

    true = consumer_recovery._revive
    put(consumer_recovery, "_revive", revive)


@bug
def a_stream_lives_wherever_there_is_a_replica(put: Put) -> None:
    def lead(self: StreamGroup, raft: Raft) -> None:
        if self.replica.store is not None and not self.machine.lives and not self.replica.waiting:
            self.machine.live(self.replica.store, self.proposals, self.propose)

    put(StreamGroup, "_lead_if_due", lead)


@bug
def a_leader_that_was_stopped_hands_out_before_it_asks(put: Put) -> None:
    put(Leadership, "left", lambda self, raft: 10**18 if raft.is_leader else 0)


@bug
def a_confirmation_is_taken_for_granted(put: Put) -> None:
    def confirm(self: Leadership, raft: Raft, told: Callable[[bool], None], *_: Any) -> None:
        self._sure_until = self.clock() + 10**9
        told(True)

    put(Leadership, "confirm", confirm)


@bug
def expiry_is_decided_by_each_replica(put: Put) -> None:
    def apply(self: StreamMachine, store: Any, entry: Any) -> None:
        true(self, store, entry)
        oldest = store.get(store.first_seq) if store.messages else None
        wall = self.jetstream.kernel.wall_ns()
        if not self.lives and oldest is not None and wall - oldest.timestamp > 2 * 10**9:
            store.purge(None, oldest.sequence + 1)

    true = StreamMachine.apply
    put(StreamMachine, "apply", apply)


@bug
def a_consumer_is_ahead_of_its_stream(put: Put) -> None:
    def apply(self: StreamMachine, store: Any, entry: Any) -> None:
        late = getattr(self, "late", None)
        if self.lives:
            true(self, store, entry)
        elif late is None and b"consumer/C" not in entry.data:
            self.late = entry
        else:
            self.late = None
            true(self, store, entry)
            if late is not None:
                true(self, store, late)

    true = StreamMachine.apply
    put(StreamMachine, "apply", apply)


@bug
def what_died_while_a_state_travelled_stays(put: Put) -> None:
    def bring_to(log: Any, store: Any, end: Any) -> None:
        store.skip(end.last_seq)
        state_end.keep_states(log, store, end.states)

    put(arrival, "bring_to", bring_to)


@bug
def a_state_ends_with_its_last_message(put: Put) -> None:
    def bring_to(log: Any, store: Any, end: Any) -> None:
        state_end.keep_runs(store, end.alive)
        state_end.keep_states(log, store, end.states)

    put(arrival, "bring_to", bring_to)
