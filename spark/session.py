"""A SparkSession with the settings that Headwater is tested with."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.home import quick_workers
from headwater.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Spark 4.3's PythonStreamingSourceRunner puts into the environment of a source.
PUT_BY_QUERIES = (
    "SPARK_LOCAL_DIRS",
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_PYTHON_RUNTIME",
)

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def spark_conf(master: str = "local[*]") -> dict[str, str]:
    """The settings, by name. Static ones only work before the JVM starts.

    Unix sockets between JVM and Python workers cut the cost of a small task to a fifth; the
    stack size is what stops foreachBatch queries from overflowing when they end. Spark's usual
    writer of checkpoints starts processes for each file of a local folder: 70 ms of a microbatch.
    """
    conf = {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile={LOG_SETTINGS}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        conf |= {
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing."
                "FileSystemBasedCheckpointFileManager"
            ),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_cores(master)),
        }
    return conf


def build_session(
    app: str = "headwater",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> "SparkSession":
    """Start (or join) a session, with `format("headwater")` registered.

    Works offline, as any user and with loopback only. `settings` win over ours. What the JVM
    and its workers print goes to the file `log`, or to standard error. Raises JavaMissing when
    there is no Java. A JVM that already runs keeps its static settings and its log.
    """
    prepare(master)
    from pyspark.sql import SparkSession

    # The warehouse folder would otherwise be made in whatever the current folder is.
    warehouse = Path(tempfile.gettempdir()) / "headwater-spark-warehouse"
    builder = SparkSession.builder.appName(app).master(master)
    conf = spark_conf(master) | {"spark.sql.warehouse.dir": str(warehouse)} | dict(settings or {})
    for name, value in conf.items():
        builder = builder.config(name, value)
    with quick_workers(master):
        if log is not None:
            _launch_quietly(conf | {"spark.master": master, "spark.app.name": app}, log)
        spark = builder.getOrCreate()
    from headwater.spark.read.cores import tell_cores

    tell_cores(spark)
    register(spark)
    return spark


def register(spark: "SparkSession") -> None:
    """Make `format("headwater")` known to a session, with room for what its queries put there.

    The first streaming query of a session adds `PUT_BY_QUERIES` to a map that all tasks of the
    source are sent with. A query that sends a task at that moment fails with
    OptionalDataException: Java notices that the map grew while it was written. So the names are
    there before; each process that Spark starts gets values of its own.
    """
    from headwater.spark.source import HeadwaterSource

    shared = spark.sparkContext.environment
    added = [name for name in PUT_BY_QUERIES if name not in shared]
    shared.update(dict.fromkeys(added, ""))
    try:
        spark.dataSource.register(HeadwaterSource)
    finally:
        for name in added:
            del shared[name]


@contextlib.contextmanager
def spark_log() -> Iterator[Path]:
    """A new file for what Spark prints: removed when the block ends well, else named in a note."""
    handle, name = tempfile.mkstemp(prefix="headwater-spark-", suffix=".log")
    os.close(handle)
    path = Path(name)
    try:
        yield path
    except BaseException as error:
        error.add_note(f"what Spark printed is in {path}")
        raise
    path.unlink(missing_ok=True)


def _launch_quietly(conf: Mapping[str, str], log: Path) -> None:
    """Start the JVM with standard error in a file; its Python workers inherit that."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    with log.open("ab") as file:
        gateway = launch_gateway(settings, {"stderr": file})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway)


def prepare(master: str) -> None:
    """Set the environment in which the JVM of the driver starts, whose master that may be.

    The driver's JVM runs on this machine, with the Java that is found here. Spark runs a
    source that it found by itself with PYSPARK_DRIVER_PYTHON, also on executors, hence that
    is what PYSPARK_PYTHON says. Raises JavaMissing.
    """
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    os.environ["JAVA_HOME"] = str(find_java().home)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return (os.cpu_count() or 1) if inside == "*" else 1
