"""One program installs at a time; another one waits for its end, as long as it may."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

ASKS = """
import sys
from pathlib import Path
from headwater.deploy.fleet.device.places import DeviceError, Places

print("asks", flush=True)
try:
    with Places(Path(sys.argv[1])).lock(float(sys.argv[2])):
        print("has it")
except DeviceError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("seconds", "ends", "said"),
    [("60", True, "has it"), ("0.1", False, "another flash of this gateway is under way")],
)
def test_who_comes_second_waits(tmp_path: Path, seconds: str, ends: bool, said: str) -> None:
    words = [sys.executable, "-c", ASKS, str(tmp_path), seconds]
    with (tmp_path / ".lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "asks\n"
        if ends:
            fcntl.flock(first, fcntl.LOCK_UN)
        assert second.communicate(timeout=60)[0].startswith(said)
