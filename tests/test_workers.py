"""A worker that ends in the middle of its tests costs one of them, and the run goes on."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.slow import one_in, shared

ROOT = Path(__file__).parents[1]
FILES = 12


@pytest.mark.parametrize(["crashing"], one_in(2, [((2, 3, 9),), ((0,),)]))
@pytest.mark.parametrize("tests", shared([1, 2, 7], lambda tests: tests == 2))
def test_a_crash_costs_one_test(tmp_path: Path, crashing: tuple[int, ...], tests: int) -> None:
    for number in range(FILES):
        lines = [f"def test_{test}(): pass" for test in range(tests)]
        if number in crashing:
            lines[tests // 2] = f"def test_{tests // 2}():\n    import os\n    os._exit(3)"
        (tmp_path / f"test_{number:02}.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-q", "-n", "2"]
    command += ["-p", "no:cacheprovider", "--timeout", "60", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "PYTHONPATH": str(ROOT)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST"):
        environment.pop(name, None)
    done = subprocess.run(
        [*command, str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    failed = len(crashing)
    passed = FILES * tests - failed
    assert re.search(rf"{failed} failed, {passed} passed", done.stdout), done.stdout
    assert done.stdout.count("node down") == failed
