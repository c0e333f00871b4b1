"""The rules of the house share the trees of its code, and leave nothing of them in memory."""

from collections.abc import Iterator

import pytest

from tests.house import syntax


@pytest.fixture(scope="package", autouse=True)
def shared_trees() -> Iterator[None]:
    yield
    syntax.nodes.cache_clear()
