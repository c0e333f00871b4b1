"""Wheels of what Headwater needs, for machines of another kind, from the package registry."""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.deploy.fleet.bundling.bundler import CannotBundle, Target

MANYLINUX = ("manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_17",
             "manylinux2014", "manylinux_2_5", "linux")  # fmt: skip


def wheel_for(folder: Path, target: Target) -> Path:
    """The newest wheel of Headwater for a target. Raises CannotBundle."""
    tag = f"cp{target.python.replace('.', '')}"
    fitting = re.compile(rf"headwater-.*-{tag}-.*_{target.machine}\.whl")
    found = [path for path in folder.glob("headwater-*.whl") if fitting.fullmatch(path.name)]
    if not found:
        raise CannotBundle(
            f"{folder} has no wheel of headwater for {target.text()}; run make wheels "
            f'TARGETS="{target.machine}" PYTHONS="{target.python}"'
        )
    return max(found, key=lambda path: path.stat().st_mtime)


def fetch(names: Sequence[str], target: Target, folder: Path) -> list[Path]:
    """Download wheels of requirements, with all that they need. Raises CannotBundle."""
    words = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
             "--only-binary", ":all:", "--dest", str(folder), "--implementation", "cp",
             "--python-version", target.python, "--abi",
             f"cp{target.python.replace('.', '')}", "--abi", "abi3", "--abi", "none"]  # fmt: skip
    for platform in MANYLINUX:
        words += ["--platform", f"{platform}_{target.machine}"]
    constraints = Path(__file__).resolve().parents[3] / "constraints.txt"
    words += ["-c", str(constraints)] if constraints.exists() else []
    done = subprocess.run([*words, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        raise CannotBundle(f"not everything has a wheel for {target.text()}: {last}")
    return sorted(folder.glob("*.whl"))
