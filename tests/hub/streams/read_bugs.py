"""Bugs planted into direct gets of replicas; the stories of streams must find each of them."""

from typing import Any

from headwater.hub.cluster import read_questions
from headwater.hub.raft import reads
from headwater.hub.raft.raft import Raft
from headwater.hub.streams.replica_reads import ReplicaReads
from headwater.hub.streams.stream_group import StreamGroup
from headwater.hub.streams.stream_machine import StreamMachine
from tests.hub.streams.stream_bugs import Plant, Put

READ_BUGS: dict[str, Plant] = {}


def bug(entered: Plant) -> Plant:
    """Enter a bug under its name."""
    READ_BUGS[entered.__name__] = entered
    return entered


@bug
def a_replica_asks_nobody(put: Put) -> None:
    put(ReplicaReads, "ask", lambda self, raft: self.gate.answer(self.gate.drain()))


@bug
def a_replica_answers_before_it_has_applied_what_it_was_told(put: Put) -> None:
    def look_at(self: ReplicaReads, raft: Raft, applied: int) -> None:
        true(self, raft, applied if self._index < 0 else max(applied, self._index))

    true = ReplicaReads.look_at
    put(ReplicaReads, "look_at", look_at)


@bug
def a_question_on_its_way_is_for_those_too_who_ask_later(put: Put) -> None:
    def answer(self: ReplicaReads) -> None:
        self._batch = (self._batch or []) + self.gate.drain()
        true(self)

    true = ReplicaReads._answer
    put(ReplicaReads, "_answer", answer)


@bug
def an_old_answer_is_taken_for_the_new_one(put: Put) -> None:
    def answered(self: ReplicaReads, raft: Raft, applied: int, context: int, *more: int) -> None:
        true(self, raft, applied, self._context, *more)

    true = ReplicaReads.answered
    put(ReplicaReads, "answered", answered)


@bug
def a_leader_tells_its_commit_without_a_lease(put: Put) -> None:
    put(reads, "index_now", lambda r, now_ns: r.log.committed if r.is_leader else 0)


@bug
def whoever_is_asked_tells_its_commit(put: Put) -> None:
    put(reads, "index_now", lambda r, now_ns: r.log.committed)


@bug
def a_leader_counts_its_lease_from_the_last_tick(put: Put) -> None:
    put(read_questions.reads, "index_now", lambda r, now_ns: true(r, r.now_ns))


true = reads.index_now


@bug
def a_leader_shows_less_than_what_is_committed(put: Put) -> None:
    def look(self: StreamGroup, raft: Raft) -> None:
        gone_by(self, raft)
        if self.machine.lives:
            self.machine.reads.sure(reads.lease_left(raft, self.clock()))

    gone_by = StreamGroup._look_at_reads
    put(StreamGroup, "_look_at_reads", look)
    put(StreamGroup, "tells", lambda self, index: None)


@bug
def a_leader_answers_when_its_lease_is_over(put: Put) -> None:
    def look(self: StreamGroup, raft: Raft) -> None:
        looked(self, raft)
        if self.machine.lives and raft.is_leader:
            self.machine.reads.sure(1 << 40)

    looked = StreamGroup._look_at_reads
    put(StreamGroup, "_look_at_reads", look)


@bug
def a_deposed_leader_is_still_sure(put: Put) -> None:
    def changed(self: StreamGroup, raft: Raft) -> None:
        before(self, raft)
        self.machine.reads.sure(300_000_000)

    before = StreamGroup.changed
    put(StreamGroup, "changed", changed)


@bug
def what_waits_is_answered_from_a_store_that_was_replaced(put: Put) -> None:
    def follow(self: StreamMachine, store: Any) -> Any:
        first = self.reads.stream
        stream = followed(self, store)
        self.reads.stream = first or stream
        return stream

    followed = StreamMachine.follow
    put(StreamMachine, "follow", follow)
    put(StreamMachine, "forget", _forget_quietly)


def _forget_quietly(self: StreamMachine) -> None:
    if self.stream is not None:
        self.stream.stop(True)
        self.stream = None


@bug
def reads_that_nobody_can_answer_are_answered(put: Put) -> None:
    def take_back(self: ReplicaReads) -> None:
        batch, self._batch = self._batch, None
        self.gate.answer(batch or [])

    put(ReplicaReads, "_restore", take_back)
