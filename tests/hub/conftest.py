"""Clusters for tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hub.lab import Lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    yield found
    await found.stop()
