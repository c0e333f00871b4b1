"""A whole cluster under faults from seeds, and planted bugs that the same stories find."""

import random

import pytest

from tests.hub.meta.meta_bugs import BUGS
from tests.hub.meta.meta_story import MetaStory
from tests.hub.streams.stream_bugs import find
from tests.slow import one_in

SEEDS_FOR_A_BUG = 40
FOUND_FROM = {"an_incarnation_is_used_again": 29, "members_stay_as_they_were": 15}
"""Seeds from which bugs are found soon that are not when the search begins with 1."""


FOUND = (806925927553, 489853524909)
"""Seeds of faults that were found: replicas began with different configurations; one that fell
before it had anything stayed in a group that did not want it any more."""


@pytest.mark.parametrize("seed", [*range(1, 7), *FOUND])
def test_a_story_holds(seed: int) -> None:
    MetaStory(seed).run()


@pytest.mark.fresh
def test_a_fresh_story_holds() -> None:
    seed = random.randrange(1 << 40)
    print(f"MetaStory({seed}).run()")
    MetaStory(seed).run()


@pytest.mark.parametrize("name", one_in(2, BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    first = FOUND_FROM.get(name, 1)
    find(BUGS[name], lambda seed: MetaStory(seed).run(), SEEDS_FOR_A_BUG, first)
