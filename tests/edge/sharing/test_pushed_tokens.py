"""A token that is pushed changes what its account imports, and costs others nothing."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.security.claims import Export, Import
from tests.operator_realm import Raw, Realm
from tests.turns import CountedNode

MANY = 2000


class Place:
    """A node with a directory of tokens: A imports much of B, C imports nothing yet."""

    def __init__(self, directory: Path) -> None:
        self.realm = Realm(more="C")
        self.second = int(time.time())
        bodies = self.realm.bodies
        bodies["B"].exports = [Export(subject=f"x.{n}", type="service") for n in range(MANY)]
        bodies["A"].imports = [self.import_of(n) for n in range(MANY)]
        resolver = f'{{ type: full, dir: "{directory}" }}'
        text = f'listen: "127.0.0.1:-1"\n{self.realm.config(resolver=resolver)}'
        self.node = CountedNode(text)

    def import_of(self, number: int) -> Import:
        offered = f"x.{number}"
        return Import(subject=offered, account=self.realm.account("B"), type="service")

    def push(self, name: str) -> float:
        """Push the token of an account; the longest turn that it takes, in seconds."""
        self.second += 1
        token = self.realm.token(name, self.second)
        with Raw(self.node.port("nats")) as raw:
            raw.login(self.realm.user("S"))
            raw.send("SUB in 1\r\n")
            request = f"PUB $SYS.REQ.CLAIMS.UPDATE in {len(token)}\r\n{token}\r\n"

            def work() -> None:
                answer = raw.send(request)
                while not any("jwt updated" in line for line in answer):
                    answer = raw.send()

            return self.node.longest(work)

    def crosses(self, name: str, number: int) -> bool:
        """Whether a request of an account reaches B."""
        port = self.node.port("nats")
        with Raw(port) as served, Raw(port) as asking:
            served.login(self.realm.user("B"))
            served.send(f"SUB x.{number} 1\r\n")
            asking.login(self.realm.user(name))
            asking.send(f"PUB x.{number} 2\r\nhi\r\n")
            return any(line.startswith("HMSG") for line in served.send())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    logging.getLogger("headwater").setLevel(logging.CRITICAL)
    found = Place(tmp_path / "tokens")
    with found.node:
        yield found
    logging.getLogger("headwater").setLevel(logging.NOTSET)


def test_a_push_costs_others_nothing(place: Place) -> None:
    bodies = place.realm.bodies
    own, others = [], []
    for limit in (1000, 2000, 3000):
        for name, turns in (("A", own), ("C", others)):
            bodies[name].limits.payload = limit
            turns.append(place.push(name))
    assert min(others) < min(own) / 5
    assert place.crosses("A", MANY - 1)


def test_imports_and_exports_change_with_their_token(place: Place) -> None:
    bodies = place.realm.bodies
    assert place.crosses("A", 0) and not place.crosses("C", 0)
    bodies["C"].imports = [place.import_of(0)]
    place.push("C")
    assert place.crosses("A", 0) and place.crosses("C", 0)
    bodies["B"].exports = bodies["B"].exports[1:]
    place.push("B")
    assert not place.crosses("A", 0) and not place.crosses("C", 0)
    assert place.crosses("A", 1)
    bodies["B"].exports = [Export(subject="x.0", type="service")]
    place.push("B")
    assert place.crosses("A", 0) and place.crosses("C", 0) and not place.crosses("A", 1)
    bodies["A"].imports = []
    place.push("A")
    assert not place.crosses("A", 0) and place.crosses("C", 0)
