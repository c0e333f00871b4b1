"""A SparkSession with the settings that Headwater is tested with."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")


def spark_conf(master: str = "local[*]") -> dict[str, str]:
    """The settings, by name. Static ones only work before the JVM starts.

    Unix sockets between JVM and Python workers cut the cost of a small task to a fifth; the
    stack size is what stops foreachBatch queries from overflowing when they end.
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
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_cores(master)),
        }
    return conf


def build_session(
    app: str = "headwater",
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start (or join) a session, with `format("headwater")` registered.

    Works offline, as any user and with loopback only. `settings` win over ours. Raises
    JavaMissing when there is no Java. A session that already runs keeps its static settings.
    """
    if master.startswith("local"):
        _prepare_local()
    from pyspark.sql import SparkSession

    # The warehouse folder would otherwise be made in whatever the current folder is.
    warehouse = Path(tempfile.gettempdir()) / "headwater-spark-warehouse"
    builder = SparkSession.builder.appName(app).master(master)
    conf = spark_conf(master) | {"spark.sql.warehouse.dir": str(warehouse)} | dict(settings or {})
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    from headwater.spark.source import HeadwaterSource

    spark.dataSource.register(HeadwaterSource)
    return spark


@contextlib.contextmanager
def quiet_start() -> Iterator[Path]:
    """Send what the JVM and its workers print to a file, whose path is given.

    The JVM inherits standard error when it starts, so only a start inside is quiet, and it
    stays so. The caller removes the file.
    """
    handle, name = tempfile.mkstemp(prefix="headwater-spark-", suffix=".log")
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(handle, 2)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _prepare_local() -> None:
    """Environment of a JVM on this machine: Java, worker Python, loopback."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(find_java().home)


def _cores(master: str) -> int:
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    if inside.isdigit():
        return max(1, int(inside))
    return (os.cpu_count() or 1) if inside == "*" else 1
