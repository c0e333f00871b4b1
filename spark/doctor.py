"""`headwater spark doctor`: is everything here that a Spark job needs?"""

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping

from headwater.spark.check import Check
from headwater.spark.cluster.executor_checks import Cluster, check_executors, explain
from headwater.spark.cluster.masters import check_master
from headwater.spark.errors import SourceError
from headwater.spark.options import SourceOptions, parse_options

#: Packages with the versions that are known to work: (at least, below).
PACKAGES = {
    "pyspark": ((4, 2), (4, 4)),
    "pyarrow": ((18,), (1000,)),
    "pandas": ((2, 2), (3,)),
    "protobuf": ((5,), (1000,)),
    "msgspec": ((0, 18), (1000,)),
}


def check_all(
    cluster: Cluster | None = None, source: Mapping[str, str] | None = None
) -> Iterator[Check]:
    """Python, packages, Java, the compiled reader, discovery; then a stream, and each executor.

    `source` are options of `format("headwater")` for a stream to look up, or for its servers
    alone. Executors of `cluster` are looked at when everything before them is well.
    """
    well = True
    for check in _first_checks(source, cluster):
        well &= check.ok
        yield check
    if cluster is not None and well:
        try:
            yield from check_executors(cluster, _options(source) if source else None)
        except Exception as error:
            yield Check("job", False, explain(error))


def _first_checks(
    source: Mapping[str, str] | None, cluster: Cluster | None
) -> Iterator[Check]:
    """All that needs no JVM."""
    yield from _static_checks()
    if source:
        yield _check_stream(source)
    if cluster is not None:
        yield _check_master(cluster.master)


def _check_master(master: str) -> Check:
    try:
        check_master(master)
    except SourceError as error:
        return Check("master", False, str(error))
    return Check("master", True, master)


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
    from headwater.spark.read.planning import plan_streams
    from headwater.spark.wire.connection import Connection
    from headwater.spark.wire.errors import WireError

    name = "stream" if _names_data(source) else "server"
    try:
        options = _options(source)
        if name == "server":
            Connection(options.endpoint).close()
            return Check(name, True, "takes our login")
        plans = plan_streams(options)
    except (SourceError, WireError) as error:
        return Check(name, False, str(error))
    text = ", ".join(f"{plan.stream} {plan.start} to {plan.end}" for plan in plans)
    return Check(name, True, text)


def _names_data(source: Mapping[str, str]) -> bool:
    return bool({name.lower() for name in source} & {"stream", "streams", "kv"})


def _options(source: Mapping[str, str]) -> SourceOptions:
    """The options; where they name no stream, only the servers count."""
    return parse_options(source if _names_data(source) else {**source, "streams": "*"})
