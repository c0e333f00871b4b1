"""Makes the project's virtual environment from pinned versions and compiles the hot modules.

Called by the Makefile as `python3 bootstrap.py VENV EXTRAS`. Runs on any Python 3, so that one
too old ends in a sentence and not in a syntax error; a newer one on PATH is used instead.
"""

import os
import shutil
import subprocess
import sys
import sysconfig

OLDEST = (3, 11)
NEWEST_TRIED = 14
ROOT = os.path.dirname(os.path.abspath(__file__))


def stop(text):
    """End with one line."""
    sys.stderr.write("headwater: " + text + "\n")
    raise SystemExit(1)


def newer_python():
    """Path of a Python on PATH that is new enough, or None."""
    for minor in range(NEWEST_TRIED, OLDEST[1] - 1, -1):
        path = shutil.which("python3.%d" % minor)
        if path is None:
            continue
        probe = "import sys, ensurepip; raise SystemExit(sys.version_info < (3, 11))"
        if subprocess.call([path, "-c", probe], stderr=subprocess.DEVNULL) == 0:
            return path
    return None


def check_python():
    """Make sure that this is Python 3.11 or later, or go on with one that is."""
    if sys.version_info[:2] >= OLDEST:
        return
    path = newer_python()
    if path is None:
        stop(
            "Python 3.11 or later is needed, this is %d.%d; install python3.11 (or later) with "
            "its venv and dev packages" % sys.version_info[:2]
        )
    os.execv(path, [path] + sys.argv)


def check_tools():
    """Make sure that extensions can be compiled and a virtual environment can be made."""
    compiler = (os.environ.get("CC") or "cc").split()[0]
    if not any(shutil.which(name) for name in (compiler, "gcc", "clang")):
        stop("no C compiler found; install gcc (Debian: apt-get install gcc)")
    include = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(include, "Python.h")):
        stop("Python.h is missing; install Python's headers (Debian: apt-get install python3-dev)")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        stop("the venv module is missing; install it (Debian: apt-get install python3-venv)")


def install(folder, extras):
    """Make `folder` and install the project into it, editable, with `extras`."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        subprocess.check_call([sys.executable, "-m", "venv", folder])
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    pinned = ["-c", os.path.join(ROOT, "constraints.txt")]
    subprocess.check_call(pip + pinned + ["pip", "setuptools", "wheel", "Cython"])
    target = ROOT + ("[%s]" % extras if extras else "")
    quiet = dict(os.environ, PYTHONWARNINGS="ignore")
    subprocess.check_call(pip + pinned + ["--no-build-isolation", "-e", target], env=quiet)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.check_output([python, "-c", where], universal_newlines=True).strip()
    show_to_spark(folder, site)


def show_to_spark(folder, site):
    """Put `pyspark_headwater` where Spark looks for data sources, by a link and a `.pth` in `site`.

    Spark lists the folders of `sys.path`; what an editable install maps it does not see.
    """
    links = os.path.join(folder, "lib", "headwater-autoload")
    link = os.path.join(links, "pyspark_headwater")
    os.makedirs(links, exist_ok=True)
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(os.path.join(ROOT, "spark", "autoload"), link)
    with open(os.path.join(site, "pyspark_headwater.pth"), "w") as file:
        file.write(links + "\n")


def main():
    """Check, then install."""
    check_python()
    folder, extras = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    check_tools()
    print("headwater: installing pinned packages and compiling (a few minutes the first time)")
    sys.stdout.flush()
    try:
        install(os.path.abspath(folder), extras)
    except subprocess.CalledProcessError as error:
        stop("this step failed: %s" % " ".join(error.cmd))


if __name__ == "__main__":
    main()
