"""Durations, sizes and addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.edge.conf.quantities import (
    Address,
    format_duration,
    parse_address,
    parse_duration,
    parse_storage_size,
    redact_url,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2s", 2),
        ("1m30s", 90),
        ("1h", 3600),
        ("300ms", 0.3),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("-2s", -2),
        ("+2s", 2),
        ("0", 0),
        ("1us", 1e-6),
        ("1µs", 1e-6),
        ("10ns", 1e-8),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "2", "s", "2x", "2 s", "-", "1d", "999999999h", "1s2"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


def test_storage_sizes() -> None:
    assert parse_storage_size("") == 0
    assert parse_storage_size("1K") == 1024
    assert parse_storage_size("10G") == 10 << 30
    assert parse_storage_size("-1T") == -(1 << 40)
    for text in ("1", "10k", "G", "1.5G", "1GB", "x", "1" * 30 + "G"):
        with pytest.raises(ValueError):
            parse_storage_size(text)


def test_addresses() -> None:
    assert parse_address("localhost:4222") == Address("localhost", 4222)
    assert parse_address(":-1") == Address("", -1)
    assert parse_address("[::1]:80") == Address("::1", 80)
    for text in ("localhost", "::1:80", "h:port", "h:", "[::1]", ""):
        with pytest.raises(ValueError, match="could not parse"):
            parse_address(text)


def test_texts_for_people() -> None:
    assert format_duration(10) == "10s"
    assert format_duration(120) == "2m0s"
    assert format_duration(3725) == "1h2m5s"
    assert redact_url("nats://u:secret@h:1") == "nats://u:xxxxx@h:1"
    assert redact_url("nats://h:1") == "nats://h:1"


@given(st.text(max_size=20))
def test_any_text_is_taken_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_storage_size, parse_address):
        try:
            parse(text)
        except ValueError:
            continue
    assert "secret" not in redact_url(f"nats://u:secret@{text}") or "secret" in text


@given(st.integers(0, 10**6), st.sampled_from(["ms", "s", "m", "h"]))
def test_durations_add_up(number: int, unit: str) -> None:
    twice = parse_duration(f"{number}{unit}{number}{unit}")
    assert twice == pytest.approx(2 * parse_duration(f"{number}{unit}"))
