"""What the times of an origin's messages tell of a line that keeps some on their way."""

import asyncio

from headwater.federation.origins.health import Health
from headwater.federation.origins.origin_delay import PROMPT_S, SAMPLES, OriginDelay
from tests.federation.lab import Lab, client_port
from tests.federation.origins.test_slow_links import line
from tests.waiting import until

SECOND = 10**9
RATE = 100


def delayed(late_s: float, seconds: int = 10) -> tuple[OriginDelay, float]:
    """A hundred messages a second that come at once, and then a second's later than they should;
    and the time of that."""
    delay = OriginDelay()
    for now in range(1, seconds + 1):
        delay.came(float(now), RATE * now, now * SECOND)
    now_s = seconds + 1 + late_s
    delay.came(now_s, RATE * (seconds + 1), (seconds + 1) * SECOND)
    return delay, now_s


def test_as_many_are_on_their_way_as_came_in_the_same_time_before() -> None:
    delay, now_s = delayed(5.0)
    delay.asked(now_s)
    assert delay.late_s == 5.0
    assert not delay.unseen(now_s)
    assert delay.unseen(now_s + PROMPT_S + 0.1) == 5 * RATE


def test_however_long_it_lasts_few_moments_are_kept() -> None:
    delay, now_s = delayed(300.0, 1000)
    delay.asked(now_s)
    assert len(delay._samples) <= SAMPLES
    assert abs(delay.unseen(now_s + 3.0) - 300 * RATE) < 10 * RATE


def test_a_prompt_answer_ends_the_doubt() -> None:
    """As when the origin's clock is set back: messages seem late, and are not."""
    delay, now_s = delayed(3600.0)
    delay.asked(now_s)
    delay.answered(now_s + 0.1)
    delay.came(now_s + 1, RATE * 12, 12 * SECOND)
    assert not delay.unseen(now_s + 9)


def test_a_burst_is_not_taken_for_a_rate() -> None:
    """Ten messages that were stored within a moment may take minutes, one by one."""
    delay = OriginDelay()
    for number in range(1, 11):
        delay.came(60.0 * number, number, number)
    delay.asked(600.0)
    assert delay.unseen(700.0) <= 10


async def test_a_line_that_keeps_messages_is_no_live_one(lab: Lab) -> None:
    """The wire takes all at once, and lets it out slowly: what is told of how many there are is as
    old as the messages that tell it."""
    made = await line(lab)
    await made.publish("BULK", 100, 200)
    await made.mirror("COPY", "BULK")
    health: Health = made.follower("COPY").health
    await until(lambda: made.store("COPY").messages == 100 and health.state == "live", "it is live")
    made.wire.bytes_per_s = 16 * 1024
    client = (await lab.client(client_port(made.hub))).jetstream()

    def honest() -> bool:
        known = int(made.follower("COPY").sink.pending)  # type: ignore[union-attr]
        return health.state == "catching_up" and (health.lag() or 0) > max(100, known)

    async def feed() -> None:
        while True:
            await client.publish("bulk", bytes(200))

    feeding = asyncio.create_task(feed())
    try:
        await until(honest, "messages are known to be on their way", 10)
    finally:
        feeding.cancel()
    made.wire.bytes_per_s = 0.0
    await until(lambda: health.state == "live" and health.lag() == 0, "it is live again", 30)
