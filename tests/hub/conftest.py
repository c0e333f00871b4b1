"""Clusters for tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hub.lab import Lab
from tests.hub.spare import SPARE, Spare
from tests.waiting import until


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    yield found
    await found.stop()


@pytest.fixture
async def spare(lab: Lab, tmp_path: Path) -> AsyncIterator[Spare]:
    """A fourth member beside the three of the lab."""
    await lab.formed()
    with Spare(tmp_path, lab.routes) as found:
        await until(lambda: SPARE in lab.places(), "the spare node is a member", 40)
        yield found
