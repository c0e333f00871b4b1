"""The script that measures memory runs, and what it measures stays within bounds."""

import json

import pytest
from click.testing import CliRunner

from bench import beside, bounds


def test_a_tiny_run(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--messages", "40000", "--subjects", "20000", "--streams", "20"]
    assert bounds.main([*sizes, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert 30 < rows["messages"]["bytes_each_after_start"] < 120
    # A large page of the log's memory is a hundred bytes for each of so few subjects.
    assert 0 < rows["subjects"]["bytes_each_after_start"] < 500
    assert rows["streams"]["open_files_after_start"] < 64
    assert rows["memory"]["bytes_each"] > 128


def test_a_tiny_run_beside_the_real_server() -> None:
    found = CliRunner().invoke(beside.main, ["--scale", "0.001"])
    assert found.exit_code == 0, found.output
    rows = [line.split()[0] for line in found.output.splitlines()]
    assert rows == [name for name in beside.CASES for _ in range(2)]
