"""What is written for systemd is what systemd takes, and is hardened."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from headwater.deploy.fleet.device.services import GUARD_UNIT, NODE_UNIT

EXPOSURE_MAX = 3.0
"""Of `systemd-analyze security`: 10 is without any protection, below 5 is OK."""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units_and_calls_them_safe(tmp_path: Path) -> None:
    binary = tmp_path / "current/bin/headwater"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    words = {
        "name": "gw-1", "user": "daemon", "python": "/usr/bin/python3", "burst": 10,
        "agent": tmp_path / "agent.pyz", "unit": "headwater.service", "prefix": tmp_path,
        "data": "/var/lib/headwater",
    }  # fmt: skip
    paths = []
    for name, text in (("headwater", NODE_UNIT), ("headwater-guard", GUARD_UNIT)):
        paths.append(tmp_path / f"{name}.service")
        paths[-1].write_text(text.format(**words))
    done = subprocess.run(
        ["systemd-analyze", "verify", *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", str(paths[0])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"exposure level for .*: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found.group(1)) <= EXPOSURE_MAX
