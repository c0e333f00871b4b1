"""Fixtures of jobs: the command line in the session of the tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run a command in the session of the tests."""
    from headwater.spark import cli, cli_running

    @contextmanager
    def running(master: str, verbose: bool) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(cli_running, "session", running)
    return lambda *words: CliRunner().invoke(cli.spark, ["run", *words])
