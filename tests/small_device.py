"""File systems of a given size for tests, with and without root."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bench.faults import device


@contextmanager
def small_device(path: Path, mebibytes: int) -> Iterator[Path]:
    """A tmpfs on the directory `path`; yields how to reach it. Skips where the system allows
    nothing to be mounted; test_full_disk.py does without."""
    with ExitStack() as stack:
        try:
            inside = stack.enter_context(device.tmpfs(path, mebibytes))
        except device.NoDevice as error:
            pytest.skip(str(error))
        yield inside
