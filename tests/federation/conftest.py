"""Fixtures of the federation tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from tests.federation.lab import Lab, lab_for


@pytest_asyncio.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Servers that end with the test."""
    async for each in lab_for(tmp_path):
        yield each
