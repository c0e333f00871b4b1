"""An account's remembered matches against a list of subscriptions, while interest changes."""

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from headwater.edge.broker.account import Account
from headwater.edge.kernel.kernel import Kernel, Sink
from headwater.edge.subjects.tokens import matches

WORD = st.sampled_from(["a", "b"])
BRANCH = st.sampled_from(["_INBOX", "_INBOX.a", "_INBOX.b.a", "$JS.ACK.a", "$JS.ACK.a.b", "a", "b"])


def subjects(last: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """A branch and up to three tokens below it."""
    return st.tuples(BRANCH, st.lists(WORD, max_size=2), last).map(
        lambda parts: ".".join([parts[0], *parts[1], parts[2]]).encode()
    )


LITERAL = subjects(WORD)
PATTERN = st.one_of(
    subjects(st.sampled_from(["a", "*", ">"])),
    st.sampled_from([b">", b"*.a", b"_INBOX.*.a", b"_INBOX.>", b"$JS.>", b"$JS.ACK.*.b.>"]),
    st.just(b"$JS.ACK.a.b.*.*"),
)


class AccountMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.account = Account("A", Kernel(self.loop))
        self.model: list[Sink] = []

    def teardown(self) -> None:
        self.loop.close()

    sinks = Bundle("sinks")

    @rule(target=sinks, pattern=PATTERN, queue=st.sampled_from([None, None, b"q"]))
    def insert(self, pattern: bytes, queue: bytes | None) -> Sink:
        sink = Sink(pattern, queue)
        self.account.insert(sink)
        self.model.append(sink)
        return sink

    @rule(sink=consumes(sinks))
    def remove(self, sink: Sink) -> None:
        self.account.remove(sink)
        self.model.remove(sink)

    @rule(subject=LITERAL, times=st.integers(1, 3))
    def match(self, subject: bytes, times: int) -> None:
        wanted = sorted(id(sink) for sink in self.model if matches(sink.subject, subject))
        for _ in range(times):
            assert sorted(map(id, self.account.sinks(subject))) == wanted


TestAccount = AccountMachine.TestCase


def test_acknowledgements_of_other_lengths_are_not_mixed_up() -> None:
    loop = asyncio.new_event_loop()
    account = Account("A", Kernel(loop))
    sink = Sink(b"$JS.ACK.a.b.*.*", None)
    account.insert(sink)
    for _ in range(2):
        assert account.sinks(b"$JS.ACK.a.b.1") == []
        assert account.sinks(b"$JS.ACK.a.b.1.2") == [sink]
    loop.close()


def test_more_subjects_than_are_remembered() -> None:
    loop = asyncio.new_event_loop()
    account = Account("A", Kernel(loop))
    subjects = [b"many.%d" % number for number in range(20_000)]
    every, one = Sink(b"many.*", None), Sink(b"many.777", None)
    account.insert(every)
    for subject in subjects * 2:
        assert account.sinks(subject) == [every]
    account.insert(one)
    assert sum(len(account.sinks(subject)) for subject in subjects) == 20_001
    account.remove(every)
    assert sum(len(account.sinks(subject)) for subject in subjects) == 1
    loop.close()
