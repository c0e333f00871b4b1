"""A home of Spark whose Python workers start quickly.

Spark puts `python/lib/pyspark.zip` of its home in front of the path of each Python process that it
starts. Python compiles what it imports from a zip file at each start, which takes almost a second
of processor time. The package that pip installed is the same, and compiled.
"""

import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headwater.spark.java import cache_dir

_LEFT_OUT = {"python", "__pycache__", "work"}


@contextmanager
def quick_workers(master: str) -> Iterator[None]:
    """A JVM that starts in the block has workers that import the installed package.

    That is so with workers of the driver's own Python, in the driver's JVM. Whoever has set
    SPARK_HOME keeps it.
    """
    inside = master == "local" or master.startswith("local[")
    ours = inside and os.environ.get("PYSPARK_PYTHON") == sys.executable
    if not ours or os.environ.get("SPARK_HOME"):
        yield
        return
    os.environ["SPARK_HOME"] = str(quick_home(cache_dir()))
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def quick_home(cache: Path) -> Path:
    """A home below `cache` that is the installed one without its zip files. Raises OSError."""
    import pyspark

    package = Path(pyspark.__file__).parent
    links = {
        each.name: each
        for each in package.iterdir()
        if each.is_dir() and each.name not in _LEFT_OUT and not (each / "__init__.py").exists()
    }
    name = hashlib.sha256(repr(sorted(links.items())).encode()).hexdigest()[:16]
    home = cache / f"spark-{pyspark.__version__}-{name}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as made:
            whole = Path(made, "home")
            whole.mkdir()
            for link, target in links.items():
                (whole / link).symlink_to(target)
            # Another process may have made it meanwhile, and the same.
            try:
                whole.rename(home)
            except OSError:
                if not home.exists():
                    raise
    return home
