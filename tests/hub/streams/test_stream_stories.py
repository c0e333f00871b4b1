"""Replicated streams under faults from seeds, and planted bugs that the same stories find."""

import random

import pytest

from tests.hub.streams.stream_bugs import BUGS, find
from tests.hub.streams.stream_story import StreamStory
from tests.slow import one_in

FRESH = 3
SEEDS_FOR_A_BUG = 100
FOUND_FROM = {
    "what_a_handover_interrupts_is_said_to_be_proposed": 97,
    "what_died_while_a_state_travelled_stays": 37,
    "a_state_ends_with_its_last_message": 23,
}
"""Seeds from which bugs are found soon that are not when the search begins with 1."""


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_story_holds(seed: int) -> None:
    StreamStory(seed).run()


@pytest.mark.fresh
def test_fresh_stories_hold() -> None:
    for _ in range(FRESH):
        seed = random.randrange(1 << 40)
        print(f"StreamStory({seed}).run()")
        StreamStory(seed).run()


@pytest.mark.parametrize("name", one_in(2, BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    first = FOUND_FROM.get(name, 1)
    find(BUGS[name], lambda seed: StreamStory(seed).run(), SEEDS_FOR_A_BUG, first)
