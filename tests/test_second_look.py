"""What `make test` makes of tests that failed beside others."""

from pathlib import Path

import pytest

from tests import second_look
from tests.slow import one_in

ONCE = """
import pathlib, pytest

def test_fails_once():
    seen = pathlib.Path(__file__).with_suffix(".seen")
    if not seen.exists():
        seen.touch()
        pytest.fail("the first time")
"""
ALWAYS = "def test_fails():\n    assert False\n"
WELL = "def test_passes():\n    pass\n"
FRESH = "import pytest\n" + ONCE.replace("def test", "@pytest.mark.fresh\ndef test")
CRASH = "def test_crashes():\n    import os\n    os._exit(3)\n"


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for tests that has this suite's rules."""
    settings = ["[pytest]", "addopts = -q -p tests.conftest -n 2", "timeout = 60"]
    settings.append("asyncio_default_fixture_loop_scope = function")
    (tmp_path / "pytest.ini").write_text("\n".join(settings) + "\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "")
    monkeypatch.setenv("PYTHONPATH", str(second_look.ROOT))
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(second_look.VARIABLE, raising=False)
    return tmp_path


def test_an_error_of_pytest_is_no_success(suite: Path) -> None:
    (suite / "pytest.ini").write_text("[pytest]\naddopts = -q -p tests.conftest -n 2\ntimeout =\n")
    for number in range(2):
        (suite / f"test_{number}.py").write_text(WELL)
    arguments = ["--rootdir", str(suite), "-c", str(suite / "pytest.ini"), str(suite)]
    assert second_look.main(arguments, suite / "cache") == pytest.ExitCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("tests", "status", "told"),
    one_in(
        6,
        [
            ([WELL, ONCE, ALWAYS], 1, ["test_1.py::test_fails_once"]),
            ([WELL, ONCE], 0, ["test_1.py::test_fails_once"]),
            ([WELL], 0, []),
            ([WELL, FRESH], 1, []),
            ([WELL] + [ALWAYS] * (second_look.FAILURES_MAX + 1), 1, []),
            ([WELL, ONCE, CRASH, *[WELL] * 6], 1, []),
        ],
    ),
    ids=["again", "once", "well", "fresh", "many", "crash"],
)
def test_a_second_look(
    suite: Path, capfd: pytest.CaptureFixture[str], tests: list[str], status: int, told: list[str]
) -> None:
    for number, text in enumerate(tests):
        (suite / f"test_{number}.py").write_text(text)
    arguments = ["--rootdir", str(suite), "-c", str(suite / "pytest.ini"), str(suite)]
    assert second_look.main(arguments, suite / "cache") == status
    printed = capfd.readouterr().out
    _, heading, names = printed.partition("a cause is wanted for each:")
    assert bool(heading) == bool(told)
    assert names.split() == told
    looked = CRASH not in tests and (ONCE in tests or FRESH in tests)
    assert ("A second look at" in printed) == looked
