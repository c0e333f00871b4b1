"""How old a cached token is, by the clock that the node has."""

from pathlib import Path

import pytest

from headwater.security import jwt
from headwater.security.auth_options import ResolverOptions
from headwater.security.resolvers.lookup import CacheResolver
from tests.operator_realm import Realm

TTL_S = 60
BEGIN_S = 1_000_000


class Watch:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = BEGIN_S

    def __call__(self) -> int:
        return self.seconds * 1_000_000_000


@pytest.mark.parametrize("age", [TTL_S - 1, TTL_S + 1])
def test_a_cached_token_is_as_old_as_the_nodes_clock_says(age: int, tmp_path: Path) -> None:
    watch, realm = Watch(), Realm()
    options = ResolverOptions(kind="cache", directory=str(tmp_path), ttl=TTL_S)
    resolver = CacheResolver(options, None, watch)
    resolver.update(realm.token("A"), jwt.decode_account(realm.token("A")))
    watch.seconds += age
    old = age > TTL_S
    assert resolver.seeks(realm.account("A"), watch.seconds) is old
    again = CacheResolver(options, None, watch)
    assert (again.token(realm.account("A")) is None) is old
