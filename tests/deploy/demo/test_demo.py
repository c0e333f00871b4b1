"""The demo at a small size, as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.servers import program
from tests.jvms import quick_jvms

LAST = r"published=(\d+) mirrored=(\d+) aggregated=(\d+) lost=(\d+) duplicated=(\d+)"


@pytest.mark.timeout(240)
def test_nothing_is_lost_or_duplicated(tmp_path: Path) -> None:
    flags = ["--messages", "1500", "--edges", "2", "--seconds", "5", "--output", str(tmp_path)]
    done = subprocess.run(
        [program("headwater"), "demo", *flags],
        env=quick_jvms(), capture_output=True, text=True, check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    found = re.fullmatch(LAST, done.stdout.splitlines()[-1])
    assert found is not None
    assert list(map(int, found.groups())) == [3000, 3000, 3000, 0, 0]
    assert "uplink cut" in done.stderr
    assert re.search(r"edge-\d killed with SIGKILL", done.stderr)
    assert re.search(r"hub-\d, which led the fleet's stream, killed with SIGKILL", done.stderr)
    assert (tmp_path / "rollup.png").read_bytes().startswith(b"\x89PNG")
    assert list((tmp_path / "rollup").glob("*.parquet"))


def test_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from headwater.deploy.cli import cli\n"
        "from headwater.deploy.serve import serve\n"
        "heavy = {'aiohttp', 'pyspark', 'zeroconf', 'cryptography', 'nacl', 'bcrypt', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numbers_that_make_no_sense() -> None:
    done = subprocess.run(
        [program("headwater"), "demo", "--messages", "0"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 2 and "must be positive" in done.stderr


def test_an_output_that_cannot_be_made_is_told() -> None:
    done = subprocess.run(
        [program("headwater"), "demo", "--output", "/proc/nope"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "headwater demo: /proc/nope: No such file or directory: name another folder with --output\n"
    )
