"""A loop looks before it sleeps while that pays, and what it spends in vain is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.kernel.busy_poll import BusyPoll

US = 1_000
SECOND = 1_000_000 * US
LOOK_US = 60
EAGER = 8


class Reads:
    """Reads of a loop, at made-up times."""

    def __init__(self) -> None:
        self.poll = BusyPoll()
        self.now = SECOND
        self.count = 0

    def come(self, after_us: int) -> bool:
        """One comes so long after the last was served; whether a look for the next may pay."""
        self.now += after_us * US
        self.count += 1
        self.poll.arrived(self.now)
        return bool(self.poll.wanted(self.now))

    def until_wanted(self) -> int:
        """Reads come close behind one another; how many until looks may pay."""
        before = self.count
        while not self.come(after_us=30):
            assert self.count - before < 100
        return self.count - before

    def judged(self, after_us: int, ready: bool = True, held_up: bool = False) -> None:
        """A look ends so long after it began."""
        self.now += after_us * US
        self.poll.judge(ready, after_us > 0, held_up, self.now)


def test_looks_begin_when_reads_come_close_behind_one_another() -> None:
    reads = Reads()
    assert not any(reads.come(after_us=1_000) for _ in range(100))
    assert reads.until_wanted() == EAGER
    for _ in range(100):
        reads.judged(after_us=20)
        assert reads.come(after_us=0)
    assert reads.poll.looks == reads.poll.found == 100


def test_a_look_in_vain_or_one_that_finds_work_at_once_is_the_last_for_a_while() -> None:
    reads = Reads()
    reads.until_wanted()
    reads.judged(after_us=LOOK_US, ready=False)
    assert reads.until_wanted() >= EAGER
    reads.judged(after_us=0)
    assert reads.until_wanted() >= EAGER
    assert (reads.poll.looks, reads.poll.found) == (2, 1)


def test_nobody_looks_for_longer_and_longer_where_others_want_the_processor() -> None:
    reads = Reads()
    rests = []
    for _ in range(10):
        reads.until_wanted()
        reads.judged(after_us=4_000, held_up=True)
        begin = reads.now
        while not reads.come(after_us=100):
            pass
        rests.append((reads.now - begin) / SECOND)
    assert [round(rest, 2) for rest in rests] == [
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1
    ]  # fmt: skip
    for _ in range(1_000):
        reads.judged(after_us=20)
        reads.come(after_us=0)
    reads.judged(after_us=4_000, held_up=True)
    begin = reads.now
    while not reads.come(after_us=100):
        pass
    assert round((reads.now - begin) / SECOND, 2) == 0.01


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=60))
def test_of_eight_reads_one_look_at_most_is_in_vain(pace: list[tuple[int, int]]) -> None:
    """`pace`: so many microseconds between reads, and for how many of them."""
    reads = Reads()
    vain = 0
    for gap, times in pace:
        ahead = 0
        for _ in range(times):
            if not reads.come(after_us=gap - ahead):
                ahead = 0
            elif gap < LOOK_US:
                reads.judged(after_us=gap)
                ahead = gap
            else:
                reads.judged(after_us=LOOK_US, ready=False)
                ahead = LOOK_US
                vain += 1
    assert vain <= reads.count // EAGER
