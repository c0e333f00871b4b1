"""Pulls that do not wait, of a consumer whose acks are awaited, on both servers."""

import json

from bench.servers import Server
from bench.wire import Link
from headwater.edge.wire.message import Message
from tests.inventory.both import Both

CONFIG = 'jetstream { store_dir: "{dir}" }\n'
CASES = (
    # The first heartbeat is when a request ends that was served in part.
    [{"batch": 20, "expires": 2_000_000_000, "idle_heartbeat": 200_000_000, "no_wait": True}],
    # So is the end of another one, whose own end has another status.
    [
        {"batch": 20, "expires": 2_000_000_000, "no_wait": True},
        {"batch": 1, "expires": 300_000_000},
    ],
    # One that was not served waits; so does one that may.
    [
        {"batch": 5, "expires": 900_000_000, "no_wait": True},
        {"batch": 1, "expires": 600_000_000, "no_wait": True},
        {"batch": 1, "expires": 300_000_000},
    ],
)


def next_of(link: Link, count: int) -> list[Message]:
    """So many messages."""
    return [link.next() for _ in range(count)]


def heard(server: Server, pulls: list[dict[str, object]]) -> list[tuple[str, int]]:
    """What comes for these pulls of five messages that may be on their way, of nine."""
    with Link(server.port) as link:
        link.api("STREAM.CREATE.S", name="S", subjects=["s"])
        config = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 5}
        link.api("CONSUMER.CREATE.S.C", stream_name="S", config=config)
        for _ in range(9):
            link.request("s", b"x")
        link.subscribe("to.*")
        found = []
        # A request that got all that it asked for has no end of its own.
        waiting = sum(pull["batch"] != 5 for pull in pulls)
        for number, pull in enumerate(pulls):
            body = json.dumps(pull).encode()
            link.publish("$JS.API.CONSUMER.MSG.NEXT.S.C", body, f"to.{number}")
            if not number:
                found = [(message.subject, message.status) for message in next_of(link, 5)]
        while waiting:
            message = link.next()
            found.append((message.subject, message.status))
            waiting -= message.status in (404, 408)
        link.api("STREAM.DELETE.S")
        return found


def test_they_end_with_the_next_deadline() -> None:
    with Both(CONFIG) as both:
        for pulls in CASES:
            ours, theirs = [heard(server, pulls) for server in both.servers]
            assert ours == theirs
            assert ("to.0", 404) in ours or pulls[0]["batch"] == 5
