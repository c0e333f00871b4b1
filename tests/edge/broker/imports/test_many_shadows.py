"""A wildcard beside many imported streams is a subscription for each of them: others are served
meanwhile, and there is an end to it."""

import json
from collections.abc import Iterator

import pytest

from headwater.edge.broker import account as accounts
from tests.operator_realm import Raw
from tests.turns import CountedNode, piece
from tests.waiting import until_seen

IMPORTS = 5000
WILDCARDS = 40
TRIES = 10
BOUND_S = 0.05
"""Of a turn; one wildcard takes some 7 ms, and all of them 0.3 s."""
PIECE_S = 0.025
"""What `piece` costs on an idle machine of the kind that the bound is meant for."""


def configuration() -> str:
    streams = [{"stream": f"s.{number}"} for number in range(IMPORTS)]
    wanted = [{"stream": {"account": "A", "subject": f"s.{n}"}} for n in range(IMPORTS)]
    made = {
        "A": {"exports": streams, "users": [{"user": "a", "password": "p"}]},
        "B": {"imports": wanted, "users": [{"user": "b", "password": "p"}]},
    }
    return f'listen: "127.0.0.1:-1"\naccounts: {json.dumps(made)}\n'


@pytest.fixture(scope="module")
def node() -> Iterator[CountedNode]:
    with CountedNode(configuration()) as started:
        yield started


def raw(node: CountedNode, user: str) -> Raw:
    """A connection of a user."""
    made = Raw(node.port("nats"))
    assert made.login(user=user, **{"pass": "p"}) == []
    return made


def wildcards(first: int, count: int) -> str:
    """Subscriptions to everything, and one to a subject that nobody imports."""
    lines = "".join(f"SUB > {first + number}\r\n" for number in range(count))
    return f"{lines}SUB own.x last\r\n"


@pytest.mark.alone
def test_nobody_waits_for_them(node: CountedNode) -> None:
    held, cost = [], [piece()]
    account = node.node.accounts["B"]
    for _ in range(TRIES):
        with raw(node, "b") as wire:
            held.append(node.longest(lambda wire=wire: wire.send(wildcards(0, WILDCARDS))))
        held[-1] = max(held[-1], node.longest(lambda: until_seen(lambda: not account.shadows)))
        cost.append(piece())
        if min(held) < BOUND_S * max(1.0, min(cost) / PIECE_S):
            return
    pytest.fail(f"{held} {cost}")


def test_frames_behind_them_keep_their_order(node: CountedNode) -> None:
    """What follows upon subscriptions that take many turns is done after them."""
    with raw(node, "b") as wire, raw(node, "a") as owner:
        said = wire.send(wildcards(0, WILDCARDS) + "PUB own.x 2\r\nhi\r\n")
        assert [line for line in said if line.startswith("MSG own.x last")] == ["MSG own.x last 2"]
        assert len([line for line in said if line.startswith("MSG own.x")]) == WILDCARDS + 1
        assert owner.send("PUB s.77 1\r\nx\r\n") == []
        assert len([line for line in wire.send("") if line.startswith("MSG s.77")]) == WILDCARDS


def test_there_is_an_end_to_them(node: CountedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    account = node.node.accounts["B"]
    until_seen(lambda: account.shadows == 0)
    assert accounts.SHADOWS_MAX == 1 << 20
    monkeypatch.setattr(accounts, "SHADOWS_MAX", 2 * IMPORTS)
    with raw(node, "b") as wire:
        said = wire.send(wildcards(0, 4))
        assert said == ["-ERR 'maximum subscriptions exceeded'"] * 3
        assert account.shadows == 2 * IMPORTS
        wire.send("UNSUB 0\r\n")
        assert account.shadows == IMPORTS
        assert wire.send("SUB > again\r\n") == []
    until_seen(lambda: account.shadows == 0)


def test_a_client_that_leaves_hears_no_more(node: CountedNode) -> None:
    account = node.node.accounts["B"]
    until_seen(lambda: account.shadows == 0)
    wire = raw(node, "b")
    wire.send(wildcards(0, WILDCARDS))
    assert account.shadows == WILDCARDS * IMPORTS
    wire.close()
    until_seen(lambda: account.shadows == 0)
    assert account.connections == 0
