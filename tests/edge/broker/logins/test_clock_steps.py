"""Tokens that begin and end, at a server whose machine's clock is set."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.faults.set_clock import SetClock
from bench.servers import Server
from tests.measuring import slowness
from tests.operator_realm import Raw, Realm, User, recipe
from tests.waiting import until_seen

DAY = 24 * 3600
ENDED = ["-ERR 'User Authentication Expired'"]


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SetClock]:
    made = SetClock(tmp_path)
    for name, value in made.environment:
        monkeypatch.setenv(name, value)
    yield made


def entered(server: Server, user: User) -> Raw:
    """A connection of a user who is admitted."""
    raw = Raw(server.port)
    assert raw.login(user) == []
    return raw


def refused(server: Server, user: User) -> bool:
    """Whether a login is refused."""
    with Raw(server.port) as raw:
        return bool(raw.login(user))


def test_a_session_ends_when_its_token_does_by_a_clock_that_was_set(clock: SetClock) -> None:
    """It lasted by the seconds that were left at its login: half a century where that was in
    1970."""
    realm = Realm()
    now = int(time.time())
    clock.set(-now + 100)
    short, long = realm.user(exp=now - DAY), realm.user(exp=now + 365 * DAY)
    with Server(recipe("headwater", realm.config())) as server:
        one, other = entered(server, short), entered(server, long)
        clock.set(0)
        assert one.rest() == ENDED
        assert other.send() == [] and refused(server, short)
        clock.set(400 * DAY)
        assert other.rest() == ENDED
        assert refused(server, long)


def test_a_clock_that_is_set_back_ends_no_session_early(clock: SetClock) -> None:
    realm = Realm()
    # A server is started, and has admitted, before the end of the first.
    lasts = int(2 * slowness(time.monotonic)) + 1
    now = int(time.time())
    kept = realm.user(exp=now + lasts)
    with Server(recipe("headwater", realm.config())) as server:
        one = entered(server, kept)
        clock.set(-DAY)
        # By the clock that counts now, this one ends, and behind where the first one would have.
        last = entered(server, realm.user(exp=now + 2 * lasts - DAY))
        last.socket.settimeout(60 + 2 * lasts)
        assert last.rest() == ENDED
        assert one.send() == []
        clock.set(0)
        assert one.rest() == ENDED


def test_a_token_that_is_not_valid_yet(clock: SetClock) -> None:
    realm = Realm()
    now = int(time.time())
    user = realm.user(nbf=now - 60, exp=now + 3600)
    with Server(recipe("headwater", realm.config())) as server:
        assert not refused(server, user)
        for offset in (-DAY, DAY, 0):
            clock.set(offset)
            assert refused(server, user) is bool(offset)
        clock.set(-DAY)
        assert refused(server, user)
        until_seen(lambda: "not valid yet by this machine's clock" in server.log)


def test_an_account_ends_by_a_clock_that_was_set(clock: SetClock) -> None:
    realm = Realm()
    now = int(time.time())
    realm.expires["A"] = now + 3600
    user = realm.user()
    with Server(recipe("headwater", realm.config())) as server:
        one = entered(server, user)
        clock.set(DAY)
        assert one.rest() == ["-ERR 'Account Authentication Expired'"]
        assert refused(server, user)
        clock.set(0)
        assert not refused(server, user)
