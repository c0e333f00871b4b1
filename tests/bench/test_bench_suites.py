"""Reading and judging the results of client suites."""

import os
import subprocess
from pathlib import Path

from bench import suites

JUNIT = """<testsuites><testsuite>
<testcase classname="a.B" name="one" time="0.1"/>
<testcase classname="a.B" name="two" time="0.1"><failure message="Boom: x&#10;more">t</failure>
</testcase>
<testcase classname="a.B" name="three" time="0"><skipped message="no"/></testcase>
<testcase classname="a.B" name="four" time="0"><error message="">
E  late</error></testcase>
</testsuite></testsuites>"""


def test_score(tmp_path: Path):
    (tmp_path / "r.xml").write_text(JUNIT)
    names = ("one", "two", "three", "gone")
    lines = [f"stable\ta.B::{name}" for name in names] + ["flaky\ta.B::four"]
    (tmp_path / "b.tsv").write_text("\n".join(lines))
    results = suites.read_junit(tmp_path / "r.xml")
    baseline = suites.read_baseline(tmp_path / "b.tsv")
    made = suites.score(results, baseline, partial=False)
    assert (made.passed, made.failed) == (["a.B::one"], ["a.B::two"])
    assert (made.skipped, made.missing) == (["a.B::three"], ["a.B::gone"])
    assert made.other == ["a.B::four"]
    assert suites.by_error(made.failed, results) == [("Boom: x", ["a.B::two"])]
    assert results["a.B::four"].error == "E  late"
    assert suites.score(results, baseline, partial=True).missing == []


def test_node_of():
    nodes = ["x/test_a.py::C::t[1-2]", "x/test_a.py::u"]
    assert suites.node_of("x.test_a.C::t[1-2]", nodes) == nodes[0]
    assert suites.node_of("x.test_a::u", nodes) == nodes[1]
    assert suites.node_of("x.test_b::u", nodes) is None


def test_shim_execs_with_all_arguments(tmp_path: Path):
    suites.shim(tmp_path, "headwater", "echo serve")
    done = subprocess.run(
        ["nats-server", "-p", "1", "-sd=a b"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "serve -p 1 -sd=a b\n"
