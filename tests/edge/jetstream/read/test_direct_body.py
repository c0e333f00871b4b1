"""The time in answers of direct reads, whose second is kept from message to message."""

import random

from headwater.edge.jetstream.model.times import SECOND, format_time
from headwater.edge.jetstream.read.direct_body import time_text


def test_times_are_as_everywhere_else() -> None:
    chance = random.Random(7)
    ends = [0, 1, SECOND - 1, SECOND, -1, -SECOND, 1_700_000_000_123_000_000, (1 << 63) - 1]
    ends += [
        chance.randrange(1 << 61) // (step := 10 ** chance.randrange(10)) * step for _ in range(300)
    ]
    for ns in [each for end in ends for each in (end, end, min(end + 1000, (1 << 63) - 1))]:
        assert time_text(ns) == format_time(ns).encode()
