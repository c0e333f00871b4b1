"""`make test`: the whole suite, and a second look, alone, at what failed beside other tests.

Most tests run real servers and clients against real time limits. A machine that stands still for
some seconds fails a few of them, and no others the next time. So what failed is run once more, one
test after the other. What fails again has failed. What passes is listed at the end, since its cause
is still wanted: a race that load brings to light looks the same.

A test marked `fresh` draws a new seed in each run. Its failure is a finding and gets no second
look; nor does a run in which much failed, or a worker crashed.

Usage: python -m tests.second_look PYTEST_ARGUMENTS
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAILURES_MAX = 20
"""Failures of one run, above which something is broken and a second look would tell nothing."""
SOME_FAILED = 1
"""Exit status of pytest when tests failed, and nothing else went wrong."""
CRASHED = "headwater/crashed"
"""Key of the test that a worker crashed in, in pytest's cache."""
VARIABLE = "HEADWATER_SECOND_LOOK"
"""Set while the second look runs; `tests/conftest.py` fails what is `fresh` then."""


def run(arguments: list[str], cache: Path, **environment: str) -> int:
    """Run pytest with its memory of failures in `cache`; returns its exit status."""
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, check=False).returncode


def failures(cache: Path) -> list[str]:
    """Names of the tests that failed in the last run."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def deserves_a_second_look(status: int, failed: list[str], cache: Path) -> bool:
    """Whether some tests failed, each by itself."""
    crashed = (cache / "v" / CRASHED).exists()
    return status == SOME_FAILED and 0 < len(failed) <= FAILURES_MAX and not crashed


def main(arguments: list[str], cache: Path = ROOT / "build" / "second_look") -> int:
    """The suite's exit status after the second look."""
    shutil.rmtree(cache, ignore_errors=True)
    status = run(arguments, cache)
    failed = failures(cache)
    if not deserves_a_second_look(status, failed, cache):
        return status
    print(f"\nA second look at {len(failed)} failed tests, one after the other:", flush=True)
    status = run(["--last-failed", *arguments, "-n", "0"], cache, **{VARIABLE: "1"})
    passed = sorted(set(failed) - set(failures(cache)))
    if passed:
        print("\nFailed beside other tests and passed alone; a cause is wanted for each:")
        print("\n".join(f"  {name}" for name in passed), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
