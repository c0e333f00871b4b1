"""A filter that learns of subjects in slices knows in the end what one knows that looks at once."""

import random

import pytest

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.index.memory import MemoryStore
from headwater.edge.subjects.tokens import matches
from tests.edge.storage.index.test_contract import QuietLoop

PATTERNS = (b"s.*.1", b"s.2.>", b"t.1.*", b"*.3.3", b"s.4.4")


def subject(chance: random.Random) -> bytes:
    return b"%b.%d.%d" % (chance.choice([b"s", b"t"]), chance.randrange(40), chance.randrange(40))


@pytest.mark.parametrize(
    "patterns", [PATTERNS, PATTERNS[:1], tuple(b"s.%d.%d" % (i, i) for i in range(40))]
)
@pytest.mark.parametrize("seed", range(5))
def test_what_comes_and_goes_meanwhile(seed: int, patterns: tuple[bytes, ...]) -> None:
    chance = random.Random(seed)
    store = MemoryStore(Kernel(QuietLoop()))
    stored = {}
    for _ in range(3000):
        text = subject(chance)
        stored[store.add_message(text, b"x")] = text
    chosen = store.filter(patterns)
    slices = 0
    while not chosen.sweep(50):
        slices += 1
        for sequence in chance.sample(sorted(stored), 20):
            store.delete(sequence)
            del stored[sequence]
        for _ in range(15):
            text = subject(chance)
            stored[store.add_message(text, b"x")] = text
    assert slices > 3 or len(patterns) == 40
    wanted = [s for s in sorted(stored) if any(matches(p, stored[s]) for p in patterns)]
    found = []
    at = store.next_matching(chosen, 0)
    while at:
        found.append(at)
        at = store.next_matching(chosen, at + 1)
    assert found == wanted
    assert store.count_matching(chosen, 0) == len(wanted)
    last = {stored[s]: s for s in wanted}
    assert chosen.last_ones(store.last_seq, 0) == sorted(last.values())
    middle = sorted(stored)[len(stored) // 2]
    earlier = {stored[s]: s for s in wanted if s <= middle}
    assert chosen.last_ones(middle, 0) == sorted(earlier.values())
    assert chosen.newest() == max(wanted, default=0)
