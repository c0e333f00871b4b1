"""What the doctor looks at on each executor of a master, and at the master itself."""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.spark.check import Check
from headwater.spark.cluster.executors import (
    Executor,
    Sight,
    look_at,
    run_on,
    wait_for_executors,
)
from headwater.spark.errors import SourceError
from headwater.spark.java import MIN_JAVA
from headwater.spark.options import Endpoint, SourceOptions
from headwater.spark.wire.errors import WireError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession



@dataclass(frozen=True)
class Cluster:
    """Whose executors to look at: a Spark master, settings of the application, and how many
    seconds an executor may take to appear, as a cluster may start a machine for it."""

    master: str = "local[1]"
    settings: Mapping[str, str] = field(default_factory=dict)
    patience: float = 60.0


def check_executors(cluster: Cluster, options: SourceOptions | None) -> Iterator[Check]:
    """Start an application and look at each of its executors, and from them at the servers of
    `options`. Raises JavaMissing, and what Spark raises."""
    from headwater.spark.session import build_session, spark_log

    # An executor looks for itself: Spark must not move its task to another one that is idle.
    settings = {"spark.locality.wait": "60s", **cluster.settings}
    with spark_log() as log:
        spark = build_session("headwater spark doctor", cluster.master, settings, log)
        try:
            yield from _checks(spark, options, cluster.patience)
        finally:
            spark.stop()


def _checks(
    spark: "SparkSession", options: SourceOptions | None, patience: float
) -> Iterator[Check]:
    context = spark.sparkContext
    executors = wait_for_executors(context, patience)
    if not executors:
        yield Check(
            "executors",
            False,
            f"none within {patience:g} s: the master has no worker with a free core and "
            f"{_memory(spark)} of memory, or its executors end at once. Look at the master's "
            "page and at the logs of its workers",
        )
        return
    hosts = ", ".join(sorted({each.host for each in executors}))
    yield Check("executors", True, f"{len(executors)} on {hosts}")
    endpoint = options.endpoint if options is not None else None
    servers = [(host, port) for host, port, _ in endpoint.servers] if endpoint else []
    timeout = endpoint.connect_timeout if endpoint else 1.0
    well = True
    sights = look_at(context, executors, servers, timeout)
    for check in _of_sights(executors, sights, len(servers)):
        well &= check.ok
        yield check
    if well:
        yield from _with_python(spark, executors, options)


def _memory(spark: "SparkSession") -> str:
    return spark.sparkContext.getConf().get("spark.executor.memory", "1g") or ""


def _of_sights(executors: list[Executor], sights: list[Sight], servers: int) -> Iterator[Check]:
    for sight in sights:
        yield from _of_sight(sight, servers)
    for name in sorted({each.name for each in executors} - {sight.name for sight in sights}):
        host = next(each.host for each in executors if each.name == name)
        yield Check("answer", False, "no task ran there: it was busy or has ended", name, host)


def _of_sight(sight: Sight, servers: int) -> Iterator[Check]:
    """What a probe found, against what the driver has."""
    here = partial(Check, executor=sight.name, host=sight.host)
    found = sight.found
    if found is None:
        yield here(
            "python",
            False,
            f"{sight.text}; set PYSPARK_PYTHON to a Python that is on every executor, as "
            "./environment/bin/python with --archives",
        )
        return
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    theirs = str(found["python"])
    same = theirs.rpartition(".")[0] == ours
    wanted = "" if same else f"; the driver has {ours}: set PYSPARK_PYTHON to the same version"
    yield here("python", same, f"{theirs} ({found['executable']}){wanted}")
    yield _of_java(here, str(found["java"]))
    yield from _of_packages(here, found)
    if servers:
        problems = found["unreachable"]
        detail = "; ".join(problems) or f"{servers} of {servers} take connections"
        if problems:
            detail = f"no connection to {detail}; open the way from this host to the servers"
        yield here("servers", len(problems) < servers, detail)


def _of_java(here: Callable[..., Check], version: str) -> Check:
    major = re.match(r"\d+", version)
    well = major is None or int(major.group()) >= MIN_JAVA
    return here("java", well, version or "unknown version; Spark runs with it")


def _of_packages(here: Callable[..., Check], found: dict[str, Any]) -> Iterator[Check]:
    """headwater and pyarrow, which must be there, and be the driver's."""
    import importlib.metadata

    for name in ("headwater", "pyarrow"):
        version = found["packages"][name]
        ours = importlib.metadata.version(name)
        if version is None:
            detail = (
                f"missing in {found['executable']}; install headwater[spark] there, or ship an "
                "environment with --archives"
            )
            yield here(name, False, detail)
        else:
            wanted = "" if version == ours else f"; the driver has {ours}: install the same"
            well = not wanted or name != "headwater"
            yield here(name, well, f"{version}{wanted}")
    if found["packages"]["headwater"] is not None:
        problem = found["import"]
        yield here("wire reader", not problem, problem or "compiled")


def _with_python(
    spark: "SparkSession", executors: list[Executor], options: SourceOptions | None
) -> Iterator[Check]:
    """Python workers run, log in to the servers, and Spark counts rows with them."""
    endpoint = options.endpoint if options is not None else None
    answers = run_on(spark.sparkContext, executors, partial(_log_in, endpoint))
    for executor, answer in zip(executors, answers, strict=True):
        name = "worker" if endpoint is None else "login"
        detail = answer or ("a Python worker runs" if endpoint is None else "accepted")
        yield Check(name, not answer, detail, executor.name, executor.host)
    rows = spark.range(1000).mapInArrow(_counted, "rows long").collect()
    well = sum(row.rows for row in rows) == 1000
    yield Check("job", well, f"a Spark job ran on {spark.sparkContext.master}")


def _log_in(endpoint: Endpoint | None) -> str:
    """Runs on an executor: why the servers cannot be used from there; "" when they can."""
    from headwater.spark.wire.connection import Connection

    if endpoint is not None:
        try:
            Connection(endpoint).close()
        except (SourceError, WireError, OSError) as error:
            return str(error)
    return ""


def _counted(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on an executor: counts rows."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def explain(error: Exception) -> str:
    """The first line of a Spark error, and its notes."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    with contextlib.suppress(StopIteration):
        lines = [next(line for line in lines if "Exception" in line and ": " in line), *lines]
    return "; ".join([(lines or ["Spark failed"])[0].strip(), *getattr(error, "__notes__", [])])
