"""Who a registry says is there, beside a plain list of who came and went."""

import random
from types import SimpleNamespace
from typing import Any

from headwater.edge.broker.logins.registry import Registry, Session
from headwater.edge.kernel.kernel import Kernel
from headwater.edge.ports.twins.loop import TwinLoop
from headwater.security.identity import Identity

STEPS = 2000
OTHERS = 1000


class Looked(Session):
    """A session that counts who asks for its account."""

    looks = 0

    @property
    def account(self) -> Any:
        Looked.looks += 1
        return self.apply_limits()

    @account.setter
    def account(self, account: Any) -> None:
        self.apply_limits = lambda: account


def account(name: str) -> Any:
    return SimpleNamespace(name=name, limits={})


def session(cid: int, of: Any, kind: type[Session] = Session, *, leaf: bool = False) -> Session:
    def end(text: str, reason: str) -> None:
        raise AssertionError(reason)

    conn = SimpleNamespace(cid=cid, closed=False)
    made = kind(
        conn, of, Identity(account=of.name), end=end, apply_limits=lambda: None, is_leaf=leaf
    )
    if kind is Looked:
        made.account = of
    return made


def registry() -> Registry:
    loop = TwinLoop()
    return Registry(Kernel(loop, loop.clock))


def test_sessions_are_those_of_their_accounts() -> None:
    """They come, go, and change the account."""
    chance, found = random.Random(1), registry()
    accounts = [account(name) for name in "ABC"]
    there: dict[int, Session] = {}
    for _ in range(STEPS):
        cid = chance.randrange(1, 40)
        if chance.random() < 0.4:
            found.leave(cid)
            there.pop(cid, None)
        else:
            one = session(cid, chance.choice(accounts), leaf=chance.random() < 0.3)
            found.enter(one)
            there[cid] = one
        for each in accounts:
            own = [one for one in there.values() if one.account is each]
            assert set(map(id, found.of_account(each))) == set(map(id, own))
            assert found.has_sessions(each.name) == bool(own)
        assert set(found.busy()) == {one.account.name for one in there.values()}


def test_sessions_of_other_accounts_are_not_looked_at() -> None:
    """A reload asks for those of each account: with many accounts a node would stand still."""
    found, others, own = registry(), account("OTHERS"), account("OWN")
    for cid in range(1, OTHERS + 1):
        found.enter(session(cid, others, Looked))
    one = session(OTHERS + 1, own, Looked)
    found.enter(one)
    Looked.looks = 0
    assert found.of_account(own) == [one]
    assert Looked.looks == 1
