"""Times as text are those of Python's calendar, for all that 64 bits hold."""

import random
from datetime import UTC, datetime, timedelta

from headwater.edge.jetstream.model.times import SECOND, exact_time
from headwater.edge.wire.time_text import time_text

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def expected(ns: int) -> str:
    """The same by other means."""
    seconds, fraction = divmod(ns, SECOND)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def test_times_are_as_everywhere_else() -> None:
    chance = random.Random(7)
    moments = [0, 1, -1, LEAST, LEAST + 1, MOST, SECOND - 1, SECOND, 1_700_000_000_123_000_000]
    moments += [
        chance.randrange(LEAST, MOST) // (step := 10 ** chance.randrange(10)) * step
        for _ in range(2000)
    ]
    for year in range(1678, 2262):
        first = int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * SECOND
        moments += [first, first - 1, first + 59 * 86400 * SECOND - 1, first + 59 * 86400 * SECOND]
    for ns in moments:
        text = time_text(ns).decode()
        assert text == expected(ns)
        assert exact_time(text) == ns
