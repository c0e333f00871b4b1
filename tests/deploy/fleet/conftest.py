"""A hub, a bundle and a lab, made once for the folder's tests."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.lab import Lab, make_bundle
from tests.deploy.keys.hub_of_keys import Hub, running_hub


@pytest.fixture(scope="session")
def open_folder() -> Iterator[Path]:
    """A folder that the node's own user can pass through, which pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="headwater-fleet-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def bundle(open_folder: Path) -> tuple[Path, KeyPair]:
    """A signed bundle and its key."""
    key = KeyPair.create("O")
    return make_bundle(open_folder, key), key


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub that enrols gateways."""
    with running_hub(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture
def lab(open_folder: Path, bundle: tuple[Path, KeyPair], monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path) -> Iterator[Lab]:  # fmt: skip
    """A lab without gateways yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = Path(tempfile.mkdtemp(dir=open_folder))
    folder.chmod(0o755)
    made = Lab(folder, *bundle)
    yield made
    made.close()
