"""A simple model of a stream's store, and a hypothesis machine that compares stores with it."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headwater.edge.subjects.tokens import matches

SUBJECTS = [b"a", b"a.b", b"a.c", b"a.b.c", b"b", b"orders.1", b"orders.2", b"x.y.z"]
PATTERNS = [b">", b"a", b"a.*", b"a.>", b"*.b", b"orders.*", b"none", b"b", b"*"]
HEADERS = b"NATS/1.0\r\nK: v\r\n\r\n"


class Model:
    """What a store must hold, the obvious way."""

    def __init__(self) -> None:
        self.messages: dict[int, tuple[bytes, bytes, bytes]] = {}
        self.first = 1
        self.last = 0

    def append(self, subject: bytes, headers: bytes, payload: bytes, sequence: int = 0) -> int:
        self.last = sequence or self.last + 1
        if not self.messages:
            self.first = self.last
        self.messages[self.last] = (subject, headers, payload)
        return self.last

    def settle(self) -> None:
        self.first = min(self.messages, default=self.last + 1)

    def remove(self, sequence: int) -> bool:
        if sequence not in self.messages:
            return False
        del self.messages[sequence]
        if sequence == self.first:
            self.settle()
        return True

    def matching(self, patterns: tuple[bytes, ...], start: int = 0) -> list[int]:
        return sorted(
            seq
            for seq, row in self.messages.items()
            if seq >= start and (not patterns or any(matches(p, row[0]) for p in patterns))
        )

    def purge(self, pattern: bytes | None, sequence: int | None, keep: int | None) -> int:
        if sequence == 1:
            return 0
        if pattern is None and not keep:
            return self.purge_head(sequence or self.last + 1)
        found = self.matching((pattern,) if pattern else ())
        left = max(len(found) - keep, 0) if keep else len(found)
        gone = [seq for seq in found if not sequence or seq < sequence][:left]
        for seq in gone:
            self.remove(seq)
        return len(gone)

    def purge_head(self, first: int) -> int:
        gone = [seq for seq in self.messages if seq < first]
        for seq in gone:
            del self.messages[seq]
        if first > self.last and first > self.first:
            self.first, self.last = first, first - 1
        elif gone:
            self.settle()
        return len(gone)

    def skip(self, sequence: int) -> None:
        if sequence > self.last:
            self.last = sequence
            if not self.messages:
                self.first = sequence + 1


class StoreMachine(RuleBasedStateMachine):
    """Random operations on a store and on the model; every answer must be the same."""

    def make_store(self) -> Any:
        raise NotImplementedError

    def settle_store(self) -> None:
        """Let the store finish its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.store = self.make_store()
        self.filters: list[tuple[Any, tuple[bytes, ...]]] = []
        self.clock = 1_000

    @rule(
        subject=st.sampled_from(SUBJECTS),
        headed=st.booleans(),
        size=st.sampled_from([0, 1, 7, 100, 3000]),
        count=st.integers(1, 30),
        gap=st.sampled_from([0, 0, 0, 1, 5, 3000]),
    )
    def append(self, subject: bytes, headed: bool, size: int, count: int, gap: int) -> None:
        for i in range(count):
            self.clock += 10
            sequence = self.model.last + 1 + gap if gap and not i else 0
            headers = HEADERS if headed else b""
            payload = bytes([i & 255]) * size
            want = self.model.append(subject, headers, payload, sequence)
            got = self.store.add_message(
                subject, payload, headers, timestamp=self.clock, sequence=sequence
            )
            assert got == want

    @rule(index=st.integers(0, 1 << 20))
    def delete(self, index: int) -> None:
        sequence = self.pick(index)
        assert self.store.delete(sequence) == self.model.remove(sequence)

    @rule(start=st.integers(0, 1 << 20), count=st.integers(1, 20), step=st.integers(1, 3))
    def delete_run(self, start: int, count: int, step: int) -> None:
        for i in range(count):
            sequence = self.pick(start) + i * step
            assert self.store.delete(sequence) == self.model.remove(sequence)

    def pick(self, index: int) -> int:
        return self.model.first + index % (self.model.last - self.model.first + 3)

    @rule(
        pattern=st.sampled_from([None, *PATTERNS[1:]]),
        sequence=st.none() | st.integers(0, 1 << 20),
        keep=st.sampled_from([None, None, 1, 5]),
    )
    def purge(self, pattern: bytes | None, sequence: int | None, keep: int | None) -> None:
        at = None if sequence is None else self.pick(sequence)
        assert self.store.purge(pattern, at, keep) == self.model.purge(pattern, at, keep)

    @rule(gap=st.sampled_from([1, 2, 100, 5000]))
    def skip(self, gap: int) -> None:
        self.store.skip(self.model.last + gap)
        self.model.skip(self.model.last + gap)

    @precondition(lambda self: len(self.filters) < 6)
    @rule(patterns=st.lists(st.sampled_from(PATTERNS), max_size=3))
    def add_filter(self, patterns: list[bytes]) -> None:
        self.filters.append((self.store.filter(tuple(patterns)), tuple(patterns)))

    @rule(start=st.integers(0, 1 << 20), count=st.integers(1, 5))
    def follow_filters(self, start: int, count: int) -> None:
        for chosen, patterns in self.filters:
            at = self.pick(start)
            for _ in range(count):
                want = self.model.matching(patterns, at)
                assert self.store.next_matching(chosen, at) == (want[0] if want else 0)
                assert self.store.count_matching(chosen, at) == len(want)
                if not want:
                    break
                at = want[0] + 1

    @rule(pattern=st.sampled_from(PATTERNS), at=st.integers(0, 1 << 20))
    def by_subject(self, pattern: bytes, at: int) -> None:
        found = self.model.matching((pattern,))
        last = self.store.last_by_subject(pattern)
        assert (last.sequence if last else 0) == (found[-1] if found else 0)
        later = self.model.matching((pattern,), self.pick(at))
        following = self.store.next_by_subject(pattern, self.pick(at))
        assert (following.sequence if following else 0) == (later[0] if later else 0)
        totals: dict[str, int] = {}
        lasts: dict[bytes, int] = {}
        for seq in found:
            name = self.model.messages[seq][0]
            totals[name.decode()] = totals.get(name.decode(), 0) + 1
            if seq <= self.pick(at):
                lasts[name] = seq
        assert self.store.subjects(pattern) == totals
        assert self.store.last_sequences([pattern], self.pick(at)) == sorted(lasts.values())

    @rule(index=st.integers(0, 1 << 20))
    def read(self, index: int) -> None:
        sequence = self.pick(index)
        got = self.store.get(sequence)
        want = self.model.messages.get(sequence)
        assert (got and (got.subject, got.headers, got.payload)) == want

    @invariant()
    def same_state(self) -> None:
        self.settle_store()
        model = self.model
        assert self.store.first_seq == model.first
        assert self.store.last_seq == model.last
        assert self.store.messages == len(model.messages)
        size = sum(self.size_of(row) for row in model.messages.values())
        assert self.store.bytes == size
        assert self.store.num_subjects == len({row[0] for row in model.messages.values()})
        if model.messages:
            assert self.store.num_deleted == model.last - model.first + 1 - len(model.messages)

    def size_of(self, row: tuple[bytes, bytes, bytes]) -> int:
        return sum(map(len, row)) + 16

    def check_everything(self) -> None:
        for sequence, (subject, headers, payload) in self.model.messages.items():
            got = self.store.get(sequence)
            assert (got.subject, got.headers, got.payload) == (subject, headers, payload)

    def teardown(self) -> None:
        self.check_everything()
