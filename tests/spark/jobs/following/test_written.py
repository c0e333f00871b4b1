"""What is read of Parquet files without Spark is what Spark reads there."""

from pathlib import Path
from typing import Any

import pytest

from headwater.spark.jobs.following.written import add_up, count_rows, read_back

pytestmark = pytest.mark.usefixtures("one_server")


def test_files_say_what_spark_reads(spark: Any, tmp_path: Path) -> None:
    rows = [(number, number % 3 == 0, {"x": number * 0.5}) for number in range(100)]
    frame = spark.createDataFrame(rows, "n long, third boolean, nested struct<x double>")
    frame = frame.unionAll(frame.sparkSession.createDataFrame([(None, None, None)], frame.schema))
    for name, written in (("some", frame), ("none", frame.where("n < 0"))):
        folder = tmp_path / name
        written.repartition(3).write.parquet(str(folder))
        (folder / "_half.parquet").write_bytes(b"a file that Spark passes over")
        back = read_back(spark, folder)
        assert back.schema == written.schema
        assert count_rows(folder) == back.count() == written.count()
        assert add_up(folder, "n") == sum(row.n or 0 for row in back.collect())
        assert add_up(folder, "third") == back.where("third").count()
