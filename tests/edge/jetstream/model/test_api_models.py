"""Decoding of request bodies, times and durations, and schedules."""

from datetime import UTC

import msgspec
import pytest

from headwater.edge.jetstream.model import cron
from headwater.edge.jetstream.model.bodies import decode
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.jetstream.model.models import (
    ConsumerConfig,
    ConsumerRequest,
    StreamInfo,
    StreamRequest,
)
from headwater.edge.jetstream.model.times import (
    SECOND,
    ZERO_NS,
    ZERO_TIME,
    exact_time,
    format_duration,
    format_time,
    parse_duration,
    parse_time,
)

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


def test_keys_match_without_regard_to_case() -> None:
    found = decode(b'{"NAME":"x","Max_Msgs":5,"metadata":{"Key":"V"}}', StreamRequest)
    assert (found.name, found.max_msgs, found.metadata) == ("x", 5, {"Key": "V"})


def test_null_is_absent() -> None:
    found = decode(b'{"name":"x","max_msgs":null,"sources":null,"mirror":null}', StreamRequest)
    assert (found.max_msgs, found.sources, found.mirror) == (0, [], None)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"nam":"x"}', 'json: unknown field "nam"'),
        (b'{"sources":[{"nane":"x"}]}', 'json: unknown field "nane"'),
        (b'{"retention":"q"}', 'can not unmarshal "\\"q\\""'),
        (b"{", "unexpected EOF"),
    ],
)
def test_refused_bodies(body: bytes, text: str) -> None:
    with pytest.raises(JetStreamError) as caught:
        decode(body, StreamRequest)
    assert caught.value.err_code == 10025
    assert caught.value.description == f"invalid JSON: {text}"


def test_lenient_decoding_drops_what_is_unknown() -> None:
    body = b'{"nam":"x","config":{"durable_name":"d","later":{"a":1}},"stream_name":"S"}'
    found = decode(body, ConsumerRequest, strict=False)
    assert (found.stream_name, found.config.durable_name) == ("S", "d")


def test_fields_that_are_always_written() -> None:
    info = msgspec.json.decode(msgspec.json.encode(StreamInfo()))
    assert info["config"]["max_age"] == 0
    assert info["config"]["sealed"] is False
    assert info["config"]["consumer_limits"] == {}
    assert "description" not in info["config"]
    consumer = msgspec.json.decode(msgspec.json.encode(ConsumerConfig()))
    assert set(consumer) == {"deliver_policy", "ack_policy", "replay_policy", "num_replicas"}


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("2024-02-03T04:05:06.123456789Z", "2024-02-03T04:05:06.123456789Z"),
        ("2024-02-03T04:05:06.100+02:00", "2024-02-03T02:05:06.1Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        (ZERO_TIME, ZERO_TIME),
        ("0000-02-29T23:00:00-01:00", "0000-03-01T00:00:00Z"),
        ("9999-12-31T23:59:59.9Z", "9999-12-31T23:59:59.9Z"),
    ],
)
def test_times(text: str, again: str) -> None:
    assert format_time(exact_time(text)) == again


def test_zero_time() -> None:
    assert exact_time(ZERO_TIME) == ZERO_NS
    assert parse_time(ZERO_TIME) == -(1 << 63)
    with pytest.raises(ValueError, match="cannot parse"):
        parse_time("yesterday")


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500_000, "1.5ms"),
        (90 * SECOND, "1m30s"),
        (HOUR, "1h0m0s"),
        (-2 * SECOND, "-2s"),
    ],
)
def test_durations(ns: int, text: str) -> None:
    assert format_duration(ns) == text
    assert parse_duration(text) == ns


@pytest.mark.parametrize("text", ["", "5", "1x", "1h 2m", "s"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="invalid duration"):
        parse_duration(text)


NOON = parse_time("2024-03-15T12:00:00Z")  # a Friday


@pytest.mark.parametrize(
    ("pattern", "due"),
    [
        ("@at 2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z"),
        ("@every 90s", "2024-03-15T12:01:30Z"),
        ("@hourly", "2024-03-15T13:00:00Z"),
        ("@daily", "2024-03-16T00:00:00Z"),
        ("@weekly", "2024-03-17T00:00:00Z"),
        ("@monthly", "2024-04-01T00:00:00Z"),
        ("@yearly", "2025-01-01T00:00:00Z"),
        ("*/10 * * * * *", "2024-03-15T12:00:10Z"),
        ("0 30 9-17 * * mon-fri", "2024-03-15T12:30:00Z"),
        ("0 0 9 * * MON", "2024-03-18T09:00:00Z"),
        ("0 0 0 29 feb *", "2028-02-29T00:00:00Z"),
        ("0 0 0 1,15 * sun", "2024-03-17T00:00:00Z"),
        ("30 5 12/6 ? * *", "2024-03-15T12:05:30Z"),
    ],
)
def test_schedules(pattern: str, due: str) -> None:
    found, _ = cron.next_time(pattern, None, NOON, NOON)
    assert format_time(found) == due


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "@at noon",
        "@every 10ms",
        "@every soon",
        "* * * * *",
        "60 * * * * *",
        "* * 24 * * *",
        "* * * 0 * *",
        "* * * * 13 *",
        "* * * * * 7",
        "*/0 * * * * *",
        "5-1 * * * * *",
        "a * * * * *",
        "0 0 0 30 feb *",
    ],
)
def test_bad_schedules(pattern: str) -> None:
    with pytest.raises(cron.ScheduleError):
        cron.next_time(pattern, None, NOON, NOON)


def test_what_was_missed_is_made_up_for_once() -> None:
    late = NOON + 5 * HOUR
    assert cron.next_time("@every 1m", None, NOON, late) == (late + MINUTE, True)
    assert cron.next_time("@hourly", UTC, NOON, late) == (late + HOUR, True)


def test_time_zones() -> None:
    berlin = cron.zone_named("Europe/Berlin", 0)
    due, repeats = cron.next_time("0 0 9 * * *", berlin, NOON, NOON)
    assert (format_time(due), repeats) == ("2024-03-16T08:00:00Z", True)
    # 02:30 does not exist on the day that summer time begins.
    spring = parse_time("2024-03-31T00:00:00Z")
    due, _ = cron.next_time("0 30 2 * * *", berlin, spring, spring)
    assert format_time(due) == "2024-04-01T00:30:00Z"
    for pattern in ("@at 2030-01-01T00:00:00Z", "@every 1h"):
        with pytest.raises(cron.ScheduleError):
            cron.next_time(pattern, berlin, NOON, NOON)
    with pytest.raises(cron.ScheduleError):
        cron.zone_named("Nowhere/None", 0)
