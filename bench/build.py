"""Compiles the load generator into this folder, and knows when that is needed.

`python -m bench.build` builds; `generator()` builds if needed and imports the result. The list
is apart from the product's: nothing of `bench` goes into the wheel.
"""

import fcntl
import importlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
COMPILED = ("bench/loadgen.py",)
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}


def artifact(source: str) -> Path:
    """Where the compiled form of a listed source lies."""
    suffix: str = sysconfig.get_config_var("EXT_SUFFIX")
    return ROOT / (source.removesuffix(".py") + suffix)


def stale(source: str) -> bool:
    """True when the compiled form is missing or older than its source."""
    built = artifact(source)
    return not built.exists() or built.stat().st_mtime < (ROOT / source).stat().st_mtime


def build() -> None:
    """Compile what is stale; raises what Cython or the C compiler raise."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]

    os.chdir(ROOT)
    names = [source for source in COMPILED if stale(source)]
    extensions = [
        Extension(
            source.removesuffix(".py").replace("/", "."),
            [source],
            extra_compile_args=["-O3", "-g0", "-Wno-unused-function"],
        )
        for source in names
    ]
    if not extensions:
        return
    modules = cythonize(  # type: ignore[no-untyped-call]
        extensions, build_dir="build/cython", compiler_directives=DIRECTIVES, quiet=True
    )
    command = Distribution({"name": "bench", "ext_modules": modules}).get_command_obj("build_ext")
    command.inplace = True
    command.build_temp = "build/bench"
    command.ensure_finalized()
    command.run()
    for source in names:
        artifact(source).touch()


def generator() -> ModuleType:
    """The compiled `bench.loadgen`, built first when stale.

    The build runs in a process of its own, under a lock, so that parallel callers build once.
    """
    if any(map(stale, COMPILED)):
        (ROOT / "build").mkdir(exist_ok=True)
        with open(ROOT / "build" / "bench.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run([sys.executable, "-m", "bench.build"], cwd=ROOT, check=True)
    return importlib.import_module("bench.loadgen")


if __name__ == "__main__":
    build()
