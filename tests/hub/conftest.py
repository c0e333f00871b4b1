"""Clusters for tests."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hub.lab import Lab


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    yield found
    await found.stop()
    # Three nodes take a gigabyte, and pytest keeps it to the end of the run.
    shutil.rmtree(tmp_path)
