"""What is left of a pull request that waits for a stream's next leader."""

import json

import pytest

from headwater.edge.jetstream.consumer.pull import PullRequest
from headwater.hub.streams.held_pulls import pull_body, waited

SECOND = 10**9


def left(seconds: float, **body: object) -> dict[str, object]:
    text = json.dumps(body).encode()
    found: dict[str, object] = json.loads(waited(text, int(seconds * SECOND)))
    return found


def test_a_wait_counts() -> None:
    assert left(2, batch=5, expires=5 * SECOND) == {"batch": 5, "expires": 3 * SECOND}


def test_heartbeats_need_time_for_two() -> None:
    whole = {"batch": 5, "expires": 5 * SECOND, "idle_heartbeat": SECOND}
    assert left(3, **whole)["idle_heartbeat"] == SECOND
    assert left(3.5, **whole) == {"batch": 5, "expires": 1.5 * SECOND}


def test_what_is_over_ends_at_once() -> None:
    assert left(6, batch=5, expires=5 * SECOND, no_wait=True) == {
        "batch": 5,
        "expires": 1,
        "no_wait": True,
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b'{"batch":3}',
        b'{"batch":3,"expires":0}',
        b'{"batch":3,"expires":null}',
        b'{"batch":3,"expires":"2s"}',
        b'{"expires":true}',
        b"[1]",
        b"{",
        b'{"expires":5',
        b'{"a":"\xff","expires":5}',
    ],
)
def test_what_has_no_time_stays_as_it_is(body: bytes) -> None:
    assert waited(body, SECOND) == body


@pytest.mark.parametrize("heartbeat", [0, SECOND])
def test_a_request_that_a_leader_passes_on(heartbeat: int) -> None:
    """It ends when it would have ended."""
    request = PullRequest(4)
    request.grouped = request.no_wait = True
    request.expires, request.max_bytes = 105 * SECOND, 900
    request.heartbeat = heartbeat
    later = json.loads(pull_body(request, 104 * SECOND))
    assert later == {"batch": 4, "expires": SECOND, "no_wait": True, "max_bytes": 900}
    assert json.loads(pull_body(request, 106 * SECOND))["expires"] == 1
    assert ("idle_heartbeat" in json.loads(pull_body(request, 101 * SECOND))) == bool(heartbeat)
    request.delivered = 1
    assert json.loads(pull_body(request, 101 * SECOND)) == {
        "batch": 4,
        "no_wait": True,
        "max_bytes": 900,
    }
