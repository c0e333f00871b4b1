"""A cluster of simulated machines that a test drives itself."""

from collections.abc import Iterator

import pytest

from tests.sim.held.story import Story


@pytest.fixture
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    """A cluster with a stream of some messages, led by the first of its members; a test may name
    seeds."""
    made = Story(getattr(request, "param", 2), 0)
    with made.world:
        try:
            made._set_up()
            made.world.sleep(1)
            # A group that has slept asks the others before it hands anything out.
            made._publish(made.members[0], 3)
            made.world.sleep(0.3)
            yield made
        finally:
            made._end()
