"""The interest trie against a list of subscriptions, under random insertions and removals."""

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from headwater.edge.kernel.kernel import Sink
from headwater.edge.subjects.tokens import matches
from headwater.edge.subjects.trie import Trie

PATTERN = st.lists(
    st.sampled_from([b"a", b"b", b"c", b"*"]), min_size=1, max_size=4
).flatmap(lambda tokens: st.sampled_from([b".".join(tokens), b".".join([*tokens[:-1], b">"])]))
LITERAL = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=4).map(b".".join)
QUEUE = st.sampled_from([None, None, b"q1", b"q2"])


class TrieMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.trie = Trie()
        self.model: list[Sink] = []

    sinks = Bundle("sinks")

    @rule(target=sinks, pattern=PATTERN, queue=QUEUE)
    def insert(self, pattern: bytes, queue: bytes | None) -> Sink:
        sink = Sink(pattern, queue)
        self.trie.insert(sink)
        self.model.append(sink)
        return sink

    @rule(sink=consumes(sinks))
    def remove(self, sink: Sink) -> None:
        assert self.trie.remove(sink)
        assert not self.trie.remove(sink)
        self.model.remove(sink)

    @rule(subject=LITERAL)
    def match(self, subject: bytes) -> None:
        plain, queues = self.trie.find(subject)
        wanted = [s for s in self.model if matches(s.subject, subject)]
        assert sorted(map(id, plain)) == sorted(id(s) for s in wanted if s.queue is None)
        groups = {s.queue: [] for s in wanted if s.queue is not None}
        for sink in wanted:
            if sink.queue is not None:
                groups[sink.queue].append(id(sink))
        assert sorted(sorted(map(id, g)) for g in queues) == sorted(map(sorted, groups.values()))

    @invariant()
    def size_is_true(self) -> None:
        assert self.trie.size == len(self.model)
        if not self.model:
            assert self.trie.find(b"a.b") == ((), ())


TestTrie = TrieMachine.TestCase
