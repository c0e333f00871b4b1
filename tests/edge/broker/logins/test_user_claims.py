"""What a user's token says of when, from where and how it connects, asked at every door: clients
and leaf links, each plain, by TLS and by WebSocket, as nats-server does it."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.servers import HOST, Server, free_port
from headwater.security.claims import TimeRange
from tests.certificates import certificate
from tests.doors import DOORS, Through, settings
from tests.operator_realm import SERVERS, Raw, Realm, User, recipe

WAYS = [(kind, door) for kind in ("client", "leaf") for door in DOORS]
PATHS = {"client": "/", "leaf": "/leafnode"}
HOUR = 3600.0
TOKYO = 9 * HOUR


class Place(NamedTuple):
    """One server of each name, and the ports of what it listens on."""

    realm: Realm
    servers: dict[str, Server]
    leafs: dict[str, int]
    websockets: dict[str, int]

    def enter(self, name: str, kind: str, door: str, user: User, *, signed: bool) -> "Entered":
        """Log in as a client or a leaf link."""
        ports = {"client": self.servers[name].port, "leaf": self.leafs[name]}
        port = self.websockets[name] if door == "websocket" else ports[kind]
        wire = Through(door, port, PATHS[kind])
        told = user.fields(wire.info.get("nonce", ""))
        if not signed:
            del told["sig"]
        said = {"name": "spoke", "version": "2.11.0", "verbose": False, "headers": True, **told}
        if kind == "client":
            del said["name"]
        lines = wire.send(f"CONNECT {json.dumps(said)}\r\n")
        return Entered(wire, [line for line in lines if line.startswith("-ERR")])


class Entered(NamedTuple):
    """A connection, and the errors of its login."""

    wire: Raw
    errors: list[str]


@pytest.fixture(scope="module", params=["plain", "tls"])
def places(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[tuple[str, Place]]:
    """Both servers, with listeners that are plain or that are TLS."""
    with ExitStack() as open_now:
        yield request.param, started(request.param, tmp_path_factory.mktemp("keys"), open_now)


def started(kind: str, folder: Path, open_now: ExitStack) -> Place:
    realm = Realm()
    realm.bodies["B"].limits.disallow_bearer = True
    place = Place(realm, {}, {}, {})
    keys = certificate(folder)
    for name in SERVERS:
        leaf, port = free_port(), free_port()
        tls = settings("tls", port, keys) if kind == "tls" else ""
        extra = f"leafnodes {{ listen: '{HOST}:{leaf}'\n{tls} }}\n{tls}"
        if kind == "plain":
            extra += settings("websocket", port, keys)
        place.leafs[name], place.websockets[name] = leaf, port
        place.servers[name] = open_now.enter_context(Server(recipe(name, realm.config(extra))))
    return place


def ways(kind: str) -> list[tuple[str, str]]:
    """Kinds of sessions and doors that a place has."""
    return [(session, door) for session, door in WAYS if (door == "tls") == (kind == "tls")]


def window(start: float, end: float, shift: float = 0.0) -> TimeRange:
    """A daily window around the time of day it is, where clocks are ahead of UTC by `shift`."""
    clock = [time.strftime("%H:%M:%S", time.gmtime(time.time() + shift + s)) for s in (start, end)]
    return TimeRange(start=clock[0], end=clock[1])


def times(zone: str, *windows: TimeRange) -> dict[str, Any]:
    return {"times": list(windows), "times_location": zone}


def here(zone: str, shift: float = 0.0) -> dict[str, Any]:
    """Open now; not across midnight, which nats-server takes for the day that begins."""
    second = (time.time() + shift) % 86_400
    early = -min(HOUR, second - 1)
    return times(zone, window(early, min(HOUR, 86_399 - second), shift))


EVERYONE = {"client", "leaf"}
ROWS: dict[str, tuple[Any, set[str]]] = {
    "no types": ({"allowed_connection_types": []}, EVERYONE),
    "clients": ({"allowed_connection_types": ["STANDARD"]}, {"client/plain"}),
    "clients in small letters": ({"allowed_connection_types": ["standard"]}, {"client/plain"}),
    "browsers": ({"allowed_connection_types": ["WEBSOCKET"]}, {"client/websocket"}),
    "leafs": ({"allowed_connection_types": ["LEAFNODE"]}, {"leaf/plain"}),
    "leafs by WebSocket": ({"allowed_connection_types": ["LEAFNODE_WS"]}, {"leaf/websocket"}),
    "an unknown type": ({"allowed_connection_types": ["FAX"]}, set()),
    "an unknown type beside": (
        {"allowed_connection_types": ["FAX", "STANDARD"]}, {"client/plain"}
    ),
    "from here": ({"src": ["127.0.0.0/8"]}, EVERYONE),
    "from this address": ({"src": ["10.0.0.0/8", "127.0.0.1/32"]}, EVERYONE),
    "from elsewhere": ({"src": ["10.0.0.0/8"]}, set()),
    "from elsewhere, of six": ({"src": ["::1/128"]}, set()),
    "from an address without a width": ({"src": ["127.0.0.1"]}, set()),
    "from here and nonsense": ({"src": ["127.0.0.0/8", "nonsense"]}, set()),
    "now": (lambda: here("UTC"), EVERYONE),
    "now in Tokyo": (lambda: here("Asia/Tokyo", TOKYO), EVERYONE),
    "now, but in Tokyo": (lambda: times("Asia/Tokyo", window(-60, 60)), set()),
    "later": (lambda: times("UTC", window(HOUR, 2 * HOUR)), set()),
    "later, or now": (
        lambda: times("UTC", window(HOUR, 2 * HOUR), *here("UTC")["times"]), EVERYONE
    ),
    "in a zone that is none": (lambda: here("Moon/Base"), set()),
    "not understood": ({"times": [TimeRange(start="00:00", end="23:59")]}, set()),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_when_and_from_where(places: tuple[str, Place], row: str) -> None:
    kind, place = places
    claims, wanted = ROWS[row]
    told = claims() if callable(claims) else claims
    user = place.realm.user(**told)
    for session, door in ways(kind):
        found = {}
        for name in SERVERS:
            wire, found[name] = place.enter(name, session, door, user, signed=True)
            wire.close()
        assert found["headwater"] == found["nats-server"], (session, door)
        way = f"{session}/{'websocket' if door == 'websocket' else 'plain'}"
        assert (found["headwater"] == []) == (session in wanted or way in wanted), way


@pytest.mark.parametrize("bearer", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("account", ["A", "B"])
def test_a_bearer_needs_no_signature(
    places: tuple[str, Place], account: str, bearer: bool, signed: bool
) -> None:
    """Account B allows no bearers."""
    kind, place = places
    user = place.realm.user(account, bearer_token=bearer)
    for session, door in ways(kind):
        found = {}
        for name in SERVERS:
            wire, found[name] = place.enter(name, session, door, user, signed=signed)
            wire.close()
        assert found["headwater"] == found["nats-server"], (session, door)
        admitted = not (bearer and account == "B") and (bearer or signed)
        assert (found["headwater"] == []) == admitted, (session, door)


def test_a_window_that_closes_ends_the_session(places: tuple[str, Place]) -> None:
    kind, place = places
    user = place.realm.user(**times("Asia/Tokyo", window(-2, 3, TOKYO)))
    entered = [
        place.enter(name, session, door, user, signed=True)
        for session, door in ways(kind)
        for name in SERVERS
    ]
    for wire, errors in entered:
        assert errors == []
        assert wire.rest()[-1:] == ["-ERR 'User Authentication Expired'"]
        wire.close()


def test_bytes_are_counted_at_every_door(places: tuple[str, Place]) -> None:
    """nats-server takes the limit and counts nothing; here whoever is beyond it is ended."""
    kind, place = places
    user = place.realm.user(data=100)
    verbs = {"client": "PUB", "leaf": "LMSG"}
    for session, door in ways(kind):
        for name in SERVERS:
            wire, errors = place.enter(name, session, door, user, signed=True)
            assert errors == []
            at = wire.send(f"{verbs[session]} a 100\r\n{'x' * 100}\r\n")
            assert not any(line.startswith("-ERR") for line in at)
            wire.send(f"{verbs[session]} a 1\r\nx\r\n")
            if name == "headwater":
                assert wire.rest()[-1:] in ([], ["-ERR 'maximum data exceeded'"])
            else:
                assert not any(line.startswith("-ERR") for line in wire.send())
            wire.close()
