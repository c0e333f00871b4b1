"""A create request that finds its consumer there is answered when the consumer is durable."""

import json
from collections.abc import Callable
from typing import Any


async def test_who_asks_second_waits_for_the_disk_too(disk_worlds: Callable[[], Any]) -> None:
    world = disk_worlds()
    await world.stream(storage="file")
    answers = world.listen("answer.*")
    body = json.dumps(
        {"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}}
    )
    for number in range(3):
        world.send("$JS.API.CONSUMER.CREATE.S.C", body, f"answer.{number}")
    assert not answers
    await world.until(lambda: len(answers) == 3)
    assert [answer.subject for answer in answers] == ["answer.0", "answer.1", "answer.2"]
    assert all("error" not in json.loads(answer.payload) for answer in answers)
