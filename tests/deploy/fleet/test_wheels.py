"""Wheels for other machines, and what the base takes on a gateway."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headwater.deploy.fleet.device.bundle_file import Bundle
from headwater.security.nkeys import KeyPair
from tests.deploy.fleet.lab import thorough

ROOT = Path(__file__).resolve().parents[3]
AARCH64 = b"\xb7\x00"
"""`e_machine` of an ELF file, at offset 18."""
BUNDLE_MB_MAX = 40
UNPACKED_MB_MAX = 130


@thorough
@pytest.mark.skipif(
    shutil.which("aarch64-linux-gnu-gcc") is None, reason="gcc-aarch64-linux-gnu is not installed"
)
@pytest.mark.timeout(300)
def test_a_module_is_compiled_for_another_machine(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "wheels.py"), "aarch64", "", str(tmp_path)]
    environment = {**os.environ, "HEADWATER_EXT": "edge/wire/numbers.py"}
    subprocess.run(words, check=True, env=environment, capture_output=True, cwd=ROOT)
    (wheel,) = tmp_path.glob("headwater-*-manylinux_2_*_aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        assert name.endswith("-aarch64-linux-gnu.so")
        assert archive.read(name)[18:20] == AARCH64


def test_the_base_stays_small(bundle: tuple[Path, KeyPair]) -> None:
    path, key = bundle
    assert path.stat().st_size < BUNDLE_MB_MAX << 20
    whole = Bundle(path, [key.public_key])
    unpacked = 0
    for name, content in whole.files():
        if name.endswith((".whl", ".zip")):
            with zipfile.ZipFile(content) as archive:
                unpacked += sum(entry.file_size for entry in archive.infolist())
    whole.close()
    assert unpacked < UNPACKED_MB_MAX << 20
