"""Build of the compiled modules; everything declarative is in pyproject.toml."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).resolve().parent
COMMIT_DIGITS = 7


def write_commit() -> None:
    """Tell the program from which commit it is built; what is no checkout keeps what it says."""
    if not (ROOT / ".git").exists():
        return
    command = ["git", "-C", str(ROOT), "rev-parse", f"--short={COMMIT_DIGITS}", "HEAD"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return
    path = ROOT / "edge" / "facts" / "git_commit.txt"
    if not path.exists() or path.read_text() != asked.stdout:
        path.write_text(asked.stdout)


sys.path.insert(0, str(ROOT))

import build_accel  # noqa: E402

os.chdir(ROOT)
write_commit()
# Cython's processes do not need this file read again, which they do by default from Python 3.14 on.
multiprocessing.set_start_method("fork", force=True)
# `make ext` makes errors of what a compiler warns of. Whoever installs Headwater, perhaps with a
# newer compiler, gets warnings.
WRONG = ("sign-compare", "return-type", "incompatible-pointer-types", "int-conversion", "format")
STRICT = [f"-Werror={kind}" for kind in WRONG] if os.environ.get("HEADWATER_STRICT") else []
tree = build_accel.link_tree(ROOT)
# A developer may compile a few modules only: `make ext ONLY="edge/wire/numbers.py ..."`.
wanted = os.environ.get("HEADWATER_EXT", "").split() or build_accel.COMPILED
present = [path for path in wanted if (ROOT / path).exists()]
if wanted is build_accel.COMPILED:
    build_accel.remove_strays(ROOT)
# `make sanitize` compiles a copy of the tree with the compiler's own checks.
checks = os.environ.get("HEADWATER_SANITIZE", "").split()
extensions = [
    Extension(
        build_accel.module_name(path),
        [f"build/tree/headwater/{path}"],
        extra_compile_args=[*(checks or ["-O3", "-g0"]), "-Wno-unused-function", *STRICT],
        extra_link_args=checks,
    )
    for path in present
]
packages = [
    f"headwater.{package}{suffix}"
    for package in build_accel.PACKAGES
    if (ROOT / package / "__init__.py").exists()
    for suffix in ["", *(f".{sub}" for sub in find_packages(package, exclude=["autoload*"]))]
]
package_dir = {f"headwater.{package}": package for package in build_accel.PACKAGES}
if (ROOT / "spark" / "autoload").exists():
    packages.append("pyspark_headwater")
    package_dir["pyspark_headwater"] = "spark/autoload"

setup(
    packages=packages,
    package_dir=package_dir,
    package_data={"headwater.edge.facts": ["git_commit.txt"]},
    ext_modules=cythonize(
        extensions,
        include_path=[str(tree)],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
        quiet=True,
        nthreads=os.cpu_count() or 1,
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
