"""The demo where its packages are not installed, as from a wheel without extras."""

import sys

import pytest
from click.testing import CliRunner

from headwater.deploy.cli import cli


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("headwater.deploy.demo.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nats", None)
    done = CliRunner().invoke(cli, ["demo"])
    assert done.exit_code == 1
    assert done.output == "Error: nats is missing here; install headwater[demo,spark]\n"
