"""`format("headwater")` inside Spark: one session, small streams."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.spark.read.account import ReadAccount
from headwater.spark.reasons import spark_reason
from headwater.spark.session import PUT_BY_QUERIES, register

QUERY_S = 250
"""Ample for a streaming query of a few rows, beside other work."""


def load(spark: Any, options: dict[str, str]) -> Any:
    return spark.read.format("headwater").options(**options).load()


def telemetry(name: str, count: int) -> list[tuple[str, bytes, None]]:
    return [
        (f"{name}.{i % 4}", b'{"device":"edge-%d","value":%d.5}' % (i % 4, i), None)
        for i in range(count)
    ]


@pytest.mark.usefixtures("both_servers")
def test_rows_partitions_and_types(spark: Any, server: Any, fill: Callable) -> None:
    fill("SPARK", [(f"SPARK.{i}", b"%d" % i, {"I": str(i)}) for i in range(200)], delete=(7, 8))
    frame = load(spark, server.options("SPARK", partitions="4", headers="map"))
    assert frame.schema.simpleString() == (
        "struct<subject:string,sequence:bigint,timestamp:timestamp,"
        "headers:map<string,string>,payload:binary>"
    )
    rows = frame.selectExpr("*", "spark_partition_id() AS part").collect()
    assert [row.sequence for row in sorted(rows, key=lambda row: row.sequence)] == [
        n for n in range(1, 201) if n not in (7, 8)
    ]
    ranges = [
        sorted(row.sequence for row in rows if row.part == part)
        for part in sorted({row.part for row in rows})
    ]
    assert len(ranges) == 4
    assert all(left[-1] < right[0] for left, right in zip(ranges, ranges[1:], strict=False))
    for row in rows:
        number = row.sequence - 1
        assert row.subject == f"SPARK.{number}"
        assert bytes(row.payload) == str(number).encode()
        assert row.headers == {"I": str(number)}


def test_the_end_is_fixed_at_load(spark: Any, server: Any, fill: Callable) -> None:
    fill("FROZEN", telemetry("FROZEN", 10))
    frame = load(spark, server.options("FROZEN"))
    # With a schema of the user's, Spark makes a new source for each action: the end is given.
    given = spark.read.format("headwater").schema("sequence long, payload binary")
    given = given.options(**server.options("FROZEN", ending="10")).load()
    server.run(lambda connection, js: js.publish("FROZEN.late", b"late"))
    assert frame.count() == 10
    assert frame.alias("a").join(frame.alias("b"), "sequence").count() == 10
    assert given.count() == 10
    assert load(spark, server.options("FROZEN")).count() == 11


def test_json_columns(spark: Any, server: Any, fill: Callable) -> None:
    fill("JSON", [*telemetry("JSON", 8), ("JSON.bad", b"{", None)])
    options = server.options("JSON", valueFormat="json", valueSchema="device string, value double")
    frame = load(spark, options)
    assert frame.columns[-3:] == ["device", "value", "_corrupt_record"]
    assert frame.where("device = 'edge-1'").agg({"value": "sum"}).collect()[0][0] == 1.5 + 5.5
    bad = frame.where("_corrupt_record IS NOT NULL").collect()
    assert [(row.sequence, row.device, row["_corrupt_record"]) for row in bad] == [(9, None, "{")]
    given = spark.read.format("headwater").schema("value double, sequence long")
    rows = given.options(**server.options("JSON", valueFormat="json")).load().collect()
    assert [row.value for row in sorted(rows, key=lambda row: row.sequence)][:2] == [0.5, 1.5]


def test_an_empty_stream(spark: Any, server: Any, fill: Callable) -> None:
    fill("VOID", [])
    assert load(spark, server.options("VOID")).collect() == []


def test_a_temporary_view(spark: Any, server: Any, fill: Callable) -> None:
    fill("SQLV", telemetry("SQLV", 6))
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW v USING headwater OPTIONS "
        f"(servers '{server.url}', stream 'SQLV', subjects 'SQLV.1')"
    )
    assert spark.sql("SELECT count(*) AS n FROM v").collect()[0].n == 2
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW w USING headwater OPTIONS "
        f"(servers '{server.url}', stream 'SQLV', columns 'subject,payload')"
    )
    spark.sql("INSERT INTO w SELECT subject, payload FROM v")
    assert load(spark, server.options("SQLV")).count() == 8


@pytest.fixture
def tables(spark: Any) -> Iterator[None]:
    """Tables go away with the test."""
    yield
    for table in spark.catalog.listTables():
        if not table.isTemporary:
            spark.sql(f"DROP TABLE {table.name}")


def test_a_table_of_sql_is_read_and_written(
    spark: Any, server: Any, fill: Callable, tables: None, tmp_path: Path
) -> None:
    """Spark keeps a table's schema alone: the options are in it."""
    fill("SQLT", telemetry("SQLT", 2))
    spark.sql(
        "CREATE TABLE sqlt USING headwater OPTIONS "
        f"(servers '{server.url}', stream 'SQLT', columns 'subject,payload')"
    )
    spark.sql("INSERT INTO sqlt VALUES ('SQLT.v', CAST('3' AS binary))")
    # Columns that have the table's names and types already.
    rows = spark.sql("SELECT 'SQLT.s' AS subject, CAST('4' AS binary) AS payload")
    rows.createOrReplaceTempView("rows_for_sqlt")
    spark.sql("INSERT INTO sqlt SELECT * FROM rows_for_sqlt")
    rows.write.format("headwater").mode("append").saveAsTable("sqlt")
    rows.writeTo("sqlt").append()
    found = spark.sql("SELECT subject, payload FROM sqlt WHERE subject LIKE 'SQLT.%'").collect()
    assert [row.subject for row in found[2:]] == ["SQLT.v", "SQLT.s", "SQLT.s", "SQLT.s"]
    assert bytes(found[2].payload) == b"3" and len(found) == 6
    assert spark.read.option("starting", "4").table("sqlt").count() == 3
    writer = spark.readStream.table("sqlt").writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    query.awaitTermination()
    assert sum(each.numInputRows for each in query.recentProgress) == 6
    with pytest.raises(Exception, match="mode overwrite would delete"):
        spark.sql("INSERT OVERWRITE sqlt SELECT * FROM rows_for_sqlt")


@pytest.mark.usefixtures("one_server")
def test_a_table_without_options_says_how_to_make_one(
    spark: Any, server: Any, fill: Callable, tables: None
) -> None:
    """Made with columns or from a query, a table has none: Spark does not ask for its schema."""
    fill("SQLN", [])
    using = f"USING headwater OPTIONS (servers '{server.url}', stream 'SQLN')"
    spark.sql(f"CREATE TABLE with_columns (subject string) {using}")
    rows = spark.sql("SELECT 'SQLN.s' AS subject, CAST('4' AS binary) AS payload")
    rows.write.format("headwater").options(**server.options("SQLN")).saveAsTable("from_query")
    for name in ("with_columns", "from_query"):
        with pytest.raises(Exception, match="without columns and without a query"):
            spark.table(name).collect()
    with pytest.raises(Exception, match="without columns and without a query"):
        spark.sql(f"CREATE TABLE selected {using} AS SELECT 'SQLN.s' AS subject, '4' AS payload")
    # Options at the place of use count for any table.
    assert spark.read.options(**server.options("SQLN")).table("from_query").count() == 1
    with pytest.raises(Exception, match="stream 'NOWHERE' does not exist"):
        spark.sql(f"CREATE TABLE nowhere {using.replace('SQLN', 'NOWHERE')}")
    with pytest.raises(Exception, match="use passwordFile or passwordEnv"):
        spark.sql(f"CREATE TABLE shown {using[:-1]}, password 'p')")


@pytest.mark.parametrize(
    ("stream", "more", "words"),
    [
        ("NOWHERE", {}, "stream 'NOWHERE' does not exist"),
        ("NOWHERE", {"streem": "x"}, "did you mean 'stream'"),
    ],
)
def test_mistakes_are_readable(
    spark: Any, server: Any, stream: str, more: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words) as caught:
        load(spark, server.options(stream, **more))
    assert words in spark_reason(str(caught.value))
    assert "\n" not in spark_reason(str(caught.value))


def test_what_spark_refuses_by_itself_says_what_to_do(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("WAYS", telemetry("WAYS", 1))
    frame = load(spark, server.options("WAYS"))
    for column, words in (("value", "are payload and sequence here"), ("headers", "map or raw")):
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN") as caught:
            frame.select(column)
        assert words in spark_reason(str(caught.value))
    with pytest.raises(AttributeError, match="value") as caught:
        frame.select(frame.value)
    assert "are payload and sequence here" in spark_reason(str(caught.value))
    rows = frame.selectExpr("subject", "payload")
    with pytest.raises(Exception, match="ErrorIfExists") as caught:
        rows.write.format("headwater").options(**server.options("WAYS")).save()
    assert "use mode('append')" in spark_reason(str(caught.value))
    stream = spark.readStream.format("headwater").options(**server.options("WAYS")).load()
    with pytest.raises(Exception, match="continuous processing") as caught:
        stream.writeStream.format("noop").trigger(continuous="1 second").start()
    assert "processingTime='0 seconds'" in spark_reason(str(caught.value))
    counts = stream.groupBy("subject").count().selectExpr("subject", "'x' payload", "subject id")
    query = counts.writeStream.format("headwater").options(**server.options("WAYS"))
    query = query.outputMode("update").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="Update mode") as caught:
        query.trigger(availableNow=True).start().awaitTermination()
    assert "foreachBatch" in spark_reason(str(caught.value))


def test_lost_rows_fail_the_job(spark: Any, server: Any, fill: Callable) -> None:
    fill("LOSE", telemetry("LOSE", 10))
    frame = load(spark, server.options("LOSE"))
    server.run(lambda connection, js: js.purge_stream("LOSE", seq=5))
    with pytest.raises(Exception, match="no longer holds all of the sequences 1 to 4"):
        frame.count()
    with pytest.raises(Exception, match="starts at sequence 5, but the read at 2"):
        load(spark, server.options("LOSE", starting="2")).count()


def test_an_account_of_rows(spark: Any, server: Any, fill: Callable) -> None:
    fill("ACCT", [*telemetry("ACCT", 20), ("ACCT.bad", b'{"device":1}', None)], delete=(4,))
    account = ReadAccount(spark)
    json = {"valueFormat": "json", "valueSchema": "device string", "failOnDataLoss": "false"}
    options = server.options("ACCT", partitions="3", **json, **account.options)
    frame = load(spark, options)
    assert account.total == (0, 0, 0, 0, 0)
    assert frame.count() == 20 and account.total == (20, 20, 0, 0, 1)
    server.run(lambda connection, js: js.purge_stream("ACCT", seq=11))
    assert frame.count() == 11 and account.total == (20, 11, 0, 9, 1)


@pytest.mark.usefixtures("both_servers")
def test_a_streaming_query_goes_on_where_it_was(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    """And the environment that tasks are sent with does not grow while queries run."""
    fill("FLOW", telemetry("FLOW", 30), delete=(7,))
    out = str(tmp_path / "out")
    register(spark)
    sent = environment_of_tasks(spark)
    options = server.options("FLOW", maxMsgsPerTrigger="15", starting="1")

    def start() -> Any:
        frame = spark.readStream.format("headwater").options(**options).load()
        write = frame.writeStream.format("parquet").trigger(availableNow=True)
        return write.option("checkpointLocation", str(tmp_path / "checkpoint")).start(out)

    first = start()
    assert first.awaitTermination(QUERY_S)
    assert [part["numInputRows"] for part in first.recentProgress] == [14, 15]
    server.run(lambda connection, js: js.publish("FLOW.late", b"late"))
    # Where the query began does not matter any more.
    server.run(lambda connection, js: js.purge_stream("FLOW", seq=20))
    second = start()
    assert second.awaitTermination(QUERY_S)
    assert second.lastProgress["numInputRows"] == 1
    rows = spark.read.parquet(out).collect()
    assert sorted(row.sequence for row in rows) == [n for n in range(1, 32) if n != 7]
    assert environment_of_tasks(spark) == sent
    assert not set(PUT_BY_QUERIES) & set(spark.sparkContext.environment)


def environment_of_tasks(spark: Any) -> set[str]:
    """Names in the environment of the registered source, which Spark sends with each task."""
    manager = spark._jsparkSession.sessionState().dataSourceManager()
    return set(manager.lookupDataSource("headwater").dataSourceCls().envVars())


@pytest.mark.usefixtures("both_servers")
def test_results_are_written_to_a_stream(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("FROM", telemetry("FROM", 20))
    fill("INTO", [])
    name = "concat('INTO.', split_part(subject, '.', 2)) AS subject"
    columns = [name, "payload", "concat('FROM:', sequence) AS id"]
    stream = spark.readStream.format("headwater").options(**server.options("FROM")).load()
    write = stream.selectExpr(*columns).writeStream.format("headwater")
    write = write.options(**server.options("INTO")).trigger(availableNow=True)
    checkpoint = tmp_path / "checkpoint"
    write = write.option("checkpointLocation", str(checkpoint))
    assert write.start().awaitTermination(QUERY_S)
    # As if the driver had died before it noted the end of the batch.
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    server.run(lambda connection, js: js.publish("FROM.0", b"late"))
    assert write.start().awaitTermination(QUERY_S)
    rows = load(spark, server.options("INTO", headers="map")).collect()
    ids = [row.headers["Nats-Msg-Id"] for row in rows]
    assert sorted(ids) == sorted(f"FROM:{n}" for n in range(1, 22))
    assert {row.subject for row in rows} == {f"INTO.{n}" for n in range(4)}

    batch = load(spark, server.options("FROM")).where("sequence <= 3")
    batch = batch.selectExpr("'INTO.batch' AS subject", "payload")
    batch.write.format("headwater").options(**server.options("INTO")).mode("append").save()
    assert load(spark, server.options("INTO", subjects="INTO.batch")).count() == 3
    with pytest.raises(Exception, match="use mode append"):
        batch.write.format("headwater").options(**server.options("INTO")).mode("overwrite").save()
    server.run(lambda connection, js: js.delete_stream("KV_headwater-spark"))


@pytest.mark.usefixtures("one_server")
def test_a_streaming_write_that_fails_says_why(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    """Spark makes a source anew for the abort, too: if that fails, it tells nothing else."""
    fill("WHY", telemetry("WHY", 3))
    rows = spark.readStream.format("headwater").options(**server.options("WHY")).load()
    rows = rows.selectExpr("subject", "payload", "string(sequence) AS id")
    write = rows.writeStream.format("headwater").options(**server.options("NOT_THERE"))
    query = write.option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match="stream 'NOT_THERE' does not exist"):
        query.awaitTermination(QUERY_S)
    reason = spark_reason(str(query.exception()))
    assert reason.startswith("stream 'NOT_THERE' does not exist")


def test_a_complete_result_is_appended_each_time(
    spark: Any, server: Any, fill: Callable, tmp_path: Path
) -> None:
    fill("MANY", telemetry("MANY", 20))
    fill("SUMS", [])
    stream = spark.readStream.format("headwater")
    stream = stream.options(**server.options("MANY", maxMsgsPerTrigger="10")).load()
    totals = stream.groupBy("subject").count().selectExpr(
        "'SUMS.all' AS subject", "string(count) AS payload", "concat(subject, count) AS id"
    )
    write = totals.writeStream.format("headwater").outputMode("complete")
    write = write.options(**server.options("SUMS", checkpointLocation=str(tmp_path / "c")))
    assert write.trigger(availableNow=True).start().awaitTermination(QUERY_S)
    rows = load(spark, server.options("SUMS")).collect()
    counts = sorted(int(row.payload.decode()) for row in rows)
    assert len(counts) == 8 and sum(counts) == 10 + 20
    server.run(lambda connection, js: js.delete_stream("KV_headwater-spark"))


def test_secrets_are_not_in_plans(spark: Any, make_server: Callable) -> None:
    server = make_server('authorization { user: "u", password: "hunter2" }')

    async def work(connection: Any, js: Any) -> None:
        await js.add_stream(name="S", subjects=["S"])
        await js.publish("S", b"1")

    server.run(work, user="u", password="hunter2")
    frame = load(spark, server.options("S", user="u", password="hunter2"))
    assert frame.count() == 1
    plan = frame._jdf.queryExecution()
    assert "hunter2" not in plan.toString() + plan.logical().toString()
    assert "hunter2" not in frame._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("extended")
    )


def test_spark_finds_the_format_by_itself(tmp_path: Path) -> None:
    """Without our session helper: the module is importable, listed, and names the source."""
    code = f"""if True:
        import pkgutil, site
        import bootstrap
        bootstrap.show_to_spark({str(tmp_path)!r}, {str(tmp_path)!r})
        site.addsitedir({str(tmp_path)!r})
        assert "pyspark_headwater" in {{module.name for module in pkgutil.iter_modules()}}
        import pyspark_headwater
        print(pyspark_headwater.DefaultSource.name())
        """
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "headwater", done.stderr


def test_filters_reach_the_source(spark: Any, server: Any, fill: Callable) -> None:
    """Spark hands its filters to the reader, and the rows are those that pass."""
    fill("WHERE", telemetry("WHERE", 100))
    account = ReadAccount(spark)
    frame = load(spark, server.options("WHERE", partitions="2") | account.options)
    rows = frame.where("sequence > 40 AND sequence <= 50 AND subject = 'WHERE.1'").collect()
    assert sorted(row.sequence for row in rows) == [42, 46, 50]
    assert account.total.delivered == 3
    assert frame.where("timestamp > '2199-01-01'").count() == 0


@pytest.mark.usefixtures("one_server")
@pytest.mark.parametrize("sink", ["headwater", "console"])
def test_real_time_mode_is_refused_by_spark_as_the_page_says(
    spark: Any, server: Any, fill: Callable, tmp_path: Path, sink: str
) -> None:
    """When Spark gives Python sources what it takes, this fails: then it can be offered."""
    fill("NOW", [("NOW.x", b"1", None)])
    rows = spark.readStream.format("headwater").options(**server.options("NOW")).load()
    rows = rows.selectExpr("subject", "payload", "concat(sequence) AS id")
    writer = rows.writeStream.format(sink).options(**server.options("NOW"))
    writer = writer.option("checkpointLocation", str(tmp_path / "at")).outputMode("update")
    reason = {
        "headwater": "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
        "console": "STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",
    }[sink]
    with pytest.raises(Exception, match=reason):
        writer.trigger(realTime="5 seconds").start().awaitTermination(QUERY_S)
    page = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    assert reason in page
