"""How many cores a session has for tasks, told to the source, which plans reads by it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Environment variable of the workers that plan reads.
VARIABLE = "HEADWATER_SPARK_CORES"


def session_cores(spark: "SparkSession") -> int | None:
    """Cores for tasks, by the master and the settings; None when only a running cluster knows."""
    context = spark.sparkContext
    if (context.master or "").startswith("local"):
        return context.defaultParallelism
    return configured_cores(dict(context.getConf().getAll()))


def configured_cores(settings: Mapping[str, str]) -> int | None:
    """Cores of all executors together, as Spark's settings have them; None when they do not say,
    or when executors come and go."""
    if settings.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return None
    if "spark.cores.max" in settings:
        return int(settings["spark.cores.max"])
    executors = settings.get("spark.executor.instances")
    if executors is None:
        return None
    return int(executors) * int(settings.get("spark.executor.cores", "1"))


def tell_cores(spark: "SparkSession") -> None:
    """Let sources that are registered from now on know the cores of their session."""
    cores = session_cores(spark)
    if cores is not None:
        spark.sparkContext.environment[VARIABLE] = str(cores)


def told_cores() -> int | None:
    """In a worker: the cores of the session; None when nobody told them."""
    text = os.environ.get(VARIABLE, "")
    return int(text) if text.isdigit() and int(text) else None
