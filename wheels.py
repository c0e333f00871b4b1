"""`make wheels`: wheels of Headwater for this machine and, by a cross compiler, for others.

A compiler of Debian's cross toolchain compiles what Cython made, which takes as long as a native
build; in an emulated root the same takes some ten times as long. Python's headers of this machine
serve every 64-bit target, since all of them have the same C types; a 32-bit one needs headers of
its own (`PYTHON_INCLUDE`).

    python wheels.py "x86_64 aarch64" "3.11 3.12" dist
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COMPILERS = {
    "x86_64": "x86_64-linux-gnu-gcc",
    "aarch64": "aarch64-linux-gnu-gcc",
    "armv7l": "arm-linux-gnueabihf-gcc",
}
TRIPLETS = {
    "x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu", "armv7l": "arm-linux-gnueabihf",
}  # fmt: skip
PACKAGES = {
    "aarch64": "gcc-aarch64-linux-gnu", "armv7l": "gcc-arm-linux-gnueabihf",
    "x86_64": "gcc-x86-64-linux-gnu",
}  # fmt: skip
SIXTY_FOUR = ("x86_64", "aarch64")
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
OLDEST_GLIBC = 17


def stop(text: str) -> None:
    """End with one line."""
    raise SystemExit(f"headwater: {text}")


def interpreter(version: str) -> str:
    """An interpreter of that version. Ends the program without one."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    found = shutil.which(f"python{version}")
    minor = version.split(".")[1]
    check = f"import sys; raise SystemExit(sys.version_info[:2] != (3, {minor}))"
    probe = [found or "", "-c", check]
    if found is None or subprocess.call(probe, stderr=subprocess.DEVNULL):
        stop(f"there is no python{version} here; install it with its headers and venv")
    return str(found)


def build_python(version: str) -> str:
    """An environment of that version with what the build needs."""
    python = interpreter(version)
    if python == sys.executable:
        return python
    folder = ROOT / "build" / f"wheels-{version}"
    inside = folder / "bin/python"
    if not inside.exists():
        subprocess.check_call([python, "-m", "venv", str(folder)])
        pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        pins = ["-c", str(ROOT / "constraints.txt")]
        subprocess.check_call([*pip, *pins, "setuptools", "wheel", "Cython"])
    return str(inside)


def environment(machine: str, version: str) -> dict[str, str]:
    """Variables by which setuptools compiles for a machine."""
    if machine == platform.machine():
        return dict(os.environ)
    compiler = COMPILERS.get(machine)
    if compiler is None:
        stop(f"no compiler is known for {machine}; these are: {' '.join(COMPILERS)}")
    if shutil.which(str(compiler)) is None:
        stop(f"{compiler} is missing; install it (Debian: apt-get install {PACKAGES[machine]})")
    include = os.environ.get("PYTHON_INCLUDE", "")
    if machine not in SIXTY_FOUR and not include:
        stop(f"{machine} is no 64-bit machine: name the folder of its Python.h in PYTHON_INCLUDE")
    own = {
        "CC": f"{compiler}", "LDSHARED": f"{compiler} -shared",
        "CFLAGS": f"-I{include}" if include else "",
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": f".cpython-{version.replace('.', '')}-{TRIPLETS[machine]}.so",
    }  # fmt: skip
    return {**os.environ, **own}


def build(machine: str, version: str, output: Path) -> Path:
    """One wheel; returns its path."""
    python = build_python(version)
    work = ROOT / "build" / f"wheel-{machine}-{version}"
    shutil.rmtree(work, ignore_errors=True)
    tag = f"linux_{machine}"
    command = [python, "setup.py", "-q", "build", "--build-base", str(work), "bdist_wheel",
               "--plat-name", tag, "--dist-dir", str(work / "dist")]  # fmt: skip
    subprocess.check_call(command, cwd=ROOT, env=environment(machine, version))
    (made,) = (work / "dist").glob("*.whl")
    wheel = named_after_glibc(made, tag, output)
    shutil.rmtree(work)
    return wheel


def named_after_glibc(made: Path, tag: str, output: Path) -> Path:
    """Move a wheel to `output`, named after the oldest glibc that has all it calls (PEP 600)."""
    newest = OLDEST_GLIBC
    with zipfile.ZipFile(made) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                found = map(int, GLIBC.findall(archive.read(name)))
                newest = max([newest, *found])
    machine = tag.removeprefix("linux_")
    output.mkdir(parents=True, exist_ok=True)
    wanted = f"manylinux_2_{newest}_{machine}"
    done = subprocess.run(
        [sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", wanted, str(made)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    renamed = made.with_name(done.stdout.strip().splitlines()[-1])
    return Path(shutil.move(renamed, output / renamed.name))


def main() -> None:
    """Build every asked wheel, and say where it is."""
    targets = (sys.argv[1] if len(sys.argv) > 1 else "").split() or [platform.machine()]
    here = sysconfig.get_python_version()
    versions = (sys.argv[2] if len(sys.argv) > 2 else "").split() or [here]
    output = Path(sys.argv[3] if len(sys.argv) > 3 else "dist")
    for version in versions:
        for machine in targets:
            print(build(machine, version, output), flush=True)


if __name__ == "__main__":
    main()
