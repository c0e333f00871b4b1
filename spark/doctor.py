"""`headwater spark doctor`: is everything here that a Spark job needs?"""

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.spark.errors import SourceError

#: Packages with the versions that are known to work: (at least, below).
PACKAGES = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((18,), (1000,)),
    "pandas": ((2, 2), (3,)),
    "protobuf": ((5,), (1000,)),
    "msgspec": ((0, 18), (1000,)),
}


@dataclass(frozen=True)
class Check:
    """One finding. `ok` is False when jobs cannot run because of it."""

    name: str
    ok: bool
    detail: str


def check_all(
    smoke: bool = True, source: Mapping[str, str] | None = None, master: str = "local[1]"
) -> Iterator[Check]:
    """Python, packages, Java, the compiled reader, discovery; then a stream and a Spark job.

    `source` are options of `format("headwater")` for a stream to look up; the Spark job runs
    on `master` with `smoke`, and only when everything before it is well.
    """
    well = True
    for check in _static_checks():
        well &= check.ok
        yield check
    if source:
        check = _check_stream(source)
        well &= check.ok
        yield check
    if smoke and well:
        yield _check_job(master)


def _static_checks() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), sys.version.split()[0])
    for package, (low, high) in PACKAGES.items():
        yield _check_package(package, low, high)
    yield _check_java()
    yield _check_reader()
    yield _check_discovery()


def _check_package(name: str, low: tuple[int, ...], high: tuple[int, ...]) -> Check:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, False, "missing; run: pip install 'headwater[spark]'")
    digits = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    fits = low <= digits < high
    wanted = f"{'.'.join(map(str, low))} or later, below {'.'.join(map(str, high))}"
    return Check(name, fits, version if fits else f"{version}; needs {wanted}")


def _check_java() -> Check:
    from headwater.spark.java import find_java

    try:
        java = find_java()
    except (SourceError, OSError) as error:
        return Check("java", False, str(error))
    return Check("java", True, f"{java.version} ({java.origin}, {java.home})")


def _check_reader() -> Check:
    try:
        from headwater.spark.wire import wire_reader
    except ImportError as error:
        return Check("wire reader", False, f"cannot be imported: {error}")
    compiled = not str(wire_reader.__file__).endswith(".py")
    return Check("wire reader", compiled, "compiled" if compiled else "not compiled: reinstall")


def _check_discovery() -> Check:
    """Spark looks for top-level modules by listing folders, which import hooks escape."""
    import pkgutil

    if any(module.name == "pyspark_headwater" for module in pkgutil.iter_modules()):
        return Check("discovery", True, 'Spark finds format("headwater") by itself')
    detail = "editable install: sessions of headwater.spark.session register the format"
    return Check("discovery", True, detail)


def _check_stream(source: Mapping[str, str]) -> Check:
    from headwater.spark.options import parse_options
    from headwater.spark.read.planning import plan_streams
    from headwater.spark.wire.errors import WireError

    try:
        plans = plan_streams(parse_options(source))
    except (SourceError, WireError) as error:
        return Check("stream", False, str(error))
    text = ", ".join(f"{plan.stream} {plan.start} to {plan.end}" for plan in plans)
    return Check("stream", True, text)


def _check_job(master: str) -> Check:
    from headwater.spark.session import build_session, spark_log

    try:
        with spark_log() as log:
            spark = build_session("headwater spark doctor", master, log=log)
            try:
                frame = spark.range(1000).mapInArrow(_look, "rows long, found string")
                answers = frame.collect()
            finally:
                spark.stop()
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        return Check("job", False, "; ".join([str(error).partition("\n")[0], *notes]))
    found = ", ".join(sorted({answer.found for answer in answers}))
    well = sum(answer.rows for answer in answers) == 1000 and "cannot" not in found
    return Check("job", well, f"a Spark job ran on {master}, with {found}")


def _look(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on an executor: counts rows, and says what Python it has."""
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    found = f"{sys.executable} {sys.version.split()[0]}"
    try:
        import headwater.spark.wire.wire_reader  # noqa: F401
    except ImportError as error:
        found += f", which cannot import headwater: {error}"
    yield pa.RecordBatch.from_pydict({"rows": [rows], "found": [found]})
