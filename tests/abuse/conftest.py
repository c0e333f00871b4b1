"""One node for a whole module of attacks; every attack ends with the question how it is."""

from collections.abc import Iterator

import pytest

from tests.abuse.attacked import Attacked, attacked


@pytest.fixture(scope="module")
def node_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    with attacked(tmp_path_factory.mktemp("attacked")) as node:
        yield node


@pytest.fixture
def node(node_of_module: Attacked) -> Iterator[Attacked]:
    yield node_of_module
    node_of_module.check()
