"""`python -m bench.suites`: the Python client's own tests, unmodified, against this server.

The tests launch `nats-server` from PATH; a shim of that name makes it Headwater. A baseline (tab
separated: `stable`, `flaky`, `fail` or `skip`, then the test's id) says which tests pass with the
real server; only the stable ones count. The checkout of the client lies outside this project.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import click

from bench.servers import (
    HOST,
    Recipe,
    Server,
    ServerFailed,
    end_on_sigterm,
    free_port,
    program,
)

REPORTED_VERSION = "v2.15.1"
"""What NATS_SERVER_VERSION tells the tests; several are skipped below some version."""

VARZ_TIMEOUT = 5.0
"""Seconds that the monitoring port has to answer after the first INFO."""

RETRY_LIMIT = 20
"""Failures that get a second try, one after the other, with uvloop visible to the tests."""

FINISHED = re.compile(rb" (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
SECOND_ADDRESS = "192.0.2.10/32"
"""An address that is not loopback, for tests that look for one inside the namespace."""

ISOLATE = """
ip link set lo up && ip addr add "$0" dev lo || exit 97
printf '127.0.0.1 localhost\\n::1 localhost\\n' > "$TMPDIR/hosts"
mount --bind "$TMPDIR/hosts" /etc/hosts || exit 97
exec "$@"
"""


class SuiteFailed(Exception):
    """The tests could not be run at all; carries the end of the output."""


@dataclass(frozen=True)
class Suite:
    """Where a suite lies in the checkout: folder to run in, tests below it, import paths."""

    folder: str
    tests: str
    paths: tuple[str, ...]


CORE = ("nats-core/src", "nats-server/src")
SUITES = {
    "legacy": Suite(".", "nats/tests", ("nats/src",)),
    "core": Suite("nats-core", "tests", CORE),
    "jetstream": Suite("nats-jetstream", "tests", ("nats-jetstream/src", *CORE)),
    "kv": Suite("nats-key-value", "tests", ("nats-key-value/src", "nats-jetstream/src", *CORE)),
    "server": Suite("nats-server", "tests", ("nats-server/src",)),
}


@dataclass(frozen=True)
class Options:
    """How to run. `timeout` is in seconds per test; `expression` is pytest's -k."""

    repo: Path
    suite: Suite
    server: str
    python: str
    command: str | None = None
    expression: str | None = None
    timeout: float = 60.0
    jobs: int = 1
    isolated: bool = False
    maxfail: int = 0
    version: str = REPORTED_VERSION


@dataclass
class Result:
    """What happened to one test: status, first line of its error, whether it took two tries."""

    status: str
    error: str = ""
    seconds: float = 0.0
    second_try: bool = False


@dataclass
class Score:
    """Results against a baseline."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    second_try: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


def hide_uvloop(folder: Path) -> None:
    """Make `import uvloop` fail in the tests.

    The suite uses uvloop when it is there. A few tests depend on the loop and not on the server:
    uvloop's clock of whole milliseconds measures round trips as 0; asyncio's streams raise when
    a client is closed while it reconnects. So failures get a second try with the other loop.
    """
    (folder / "uvloop.py").write_text("raise ImportError('hidden from the suite')\n")


def shim(folder: Path, server: str, command: str | None) -> None:
    """Write `nats-server` into `folder`; it execs the server, so process id and signals match."""
    if command is None:
        command = program("nats-server") if server == "real" else f"{program('headwater')} serve"
    script = folder / "nats-server"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {command} "$@"\n')
    script.chmod(0o755)


class Runner:
    """Runs pytest in the checkout, in one or several processes, with the shim first in PATH."""

    def __init__(self, options: Options, work: Path, told: Callable[[], None]) -> None:
        self._options = options
        self._work = work
        self._told = told
        (work / "bin").mkdir()
        (work / "home").mkdir()
        (work / "hidden").mkdir()
        hide_uvloop(work / "hidden")
        shim(work / "bin", options.server, options.command)

    def collect(self) -> list[str]:
        """Node ids that the options select."""
        argv = self._pytest("--collect-only", "-q", "-p", "no:warnings", self._options.suite.tests)
        if self._options.expression:
            argv += ["-k", self._options.expression]
        done = subprocess.run(
            argv,
            cwd=self._folder,
            env=self._environment(self._work),
            capture_output=True,
            text=True,
        )
        nodes = [line for line in done.stdout.splitlines() if "::" in line]
        if not nodes:
            raise SuiteFailed((done.stdout + done.stderr)[-2000:])
        return nodes

    def run(self, nodes: list[str], jobs: int, uvloop: bool) -> dict[str, Result]:
        """Run these tests, dealt out over `jobs` processes; results by baseline id."""
        label = "again" if uvloop else "run"
        shards = [nodes[index::jobs] for index in range(min(jobs, len(nodes)))]
        results: dict[str, Result] = {}
        errors: list[str] = []

        def work(index: int, shard: list[str]) -> None:
            try:
                results.update(self._shard(f"{label}{index}", shard, uvloop))
            except SuiteFailed as error:
                errors.append(str(error))

        threads = [
            threading.Thread(target=work, args=(index, shard)) for index, shard in enumerate(shards)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise SuiteFailed("\n".join(errors))
        return results

    @property
    def _folder(self) -> Path:
        return self._options.repo / self._options.suite.folder

    def _pytest(self, *arguments: str) -> list[str]:
        return [self._options.python, "-m", "pytest", *arguments]

    def _environment(self, temporary: Path, uvloop: bool = False) -> dict[str, str]:
        paths = [str(self._options.repo / path) for path in self._options.suite.paths]
        if not uvloop:
            paths.insert(0, str(self._work / "hidden"))
        return {
            **os.environ,
            "PATH": f"{self._work / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NATS_SERVER_VERSION": self._options.version,
            "HOME": str(self._work / "home"),
            "TMPDIR": str(temporary),
        }

    def _shard(self, name: str, nodes: list[str], uvloop: bool) -> dict[str, Result]:
        temporary = self._work / name
        temporary.mkdir()
        junit = self._work / f"{name}.xml"
        (self._work / f"{name}.args").write_text("\n".join(nodes))
        argv = self._pytest(
            "-v",
            "-p",
            "no:cacheprovider",
            f"--maxfail={self._options.maxfail}",
            f"--timeout={self._options.timeout}",
            "--timeout-method=signal",
            f"--junit-xml={junit}",
            f"@{self._work / name}.args",
        )
        if self._options.isolated:
            argv = self._namespace() + argv
        environment = self._environment(temporary, uvloop)
        log = self._execute(argv, environment, self._work / f"{name}.log")
        if not junit.exists():
            raise SuiteFailed(f"{name}: no results\n{log}")
        return read_junit(junit)

    def _namespace(self) -> list[str]:
        """Own network (fixed ports are free) and own process ids (leftovers end with it)."""
        kinds = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if os.getuid() != 0:
            kinds.append("--map-root-user")
        return ["unshare", *kinds, "sh", "-c", ISOLATE, SECOND_ADDRESS]

    def _execute(self, argv: list[str], environment: dict[str, str], log: Path) -> str:
        """Run to the end in an own process group, which is ended with it; the end of the log."""
        with open(log, "wb", buffering=0) as kept:
            process = subprocess.Popen(
                argv,
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    kept.write(line)
                    if FINISHED.search(line):
                        self._told()
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return log.read_text(errors="replace")[-2000:]


def first_line(text: str) -> str:
    """The first line that says something, shortened."""
    for line in text.splitlines():
        if line.strip():
            return line.strip()[:160]
    return ""


def read_junit(path: Path) -> dict[str, Result]:
    """Results by `classname::name`, as the baselines name tests."""
    results: dict[str, Result] = {}
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        result = Result("pass", seconds=float(case.get("time", 0)))
        for kind, status in (("skipped", "skip"), ("failure", "fail"), ("error", "fail")):
            found = case.find(kind)
            if found is not None:
                text = first_line(found.get("message", "")) or first_line(found.text or "")
                result = Result(status, text, result.seconds)
        if name not in results or results[name].status == "pass":
            results[name] = result
    return results


def read_baseline(path: Path) -> dict[str, str]:
    """Test id to `stable`, `flaky`, `fail` or `skip`."""
    rows = (line.split("\t", 1) for line in path.read_text().splitlines() if "\t" in line)
    return {name.strip(): status for status, name in rows}


def score(results: dict[str, Result], baseline: dict[str, str], partial: bool) -> Score:
    """Sort results by what the baseline says; a partial run misses nothing."""
    made = Score()
    for name, status in baseline.items():
        if status != "stable":
            continue
        if name not in results:
            if not partial:
                made.missing.append(name)
        else:
            kind = results[name].status
            {"pass": made.passed, "fail": made.failed, "skip": made.skipped}[kind].append(name)
    made.second_try = [name for name, result in results.items() if result.second_try]
    made.other = [
        name
        for name, result in results.items()
        if result.status == "fail" and baseline.get(name) != "stable"
    ]
    return made


def by_error(names: Iterable[str], results: dict[str, Result]) -> list[tuple[str, list[str]]]:
    """Failed tests grouped by the first line of the error, largest group first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        groups[results[name].error].append(name)
    return sorted(groups.items(), key=lambda group: -len(group[1]))


def node_of(name: str, nodes: list[str]) -> str | None:
    """The pytest node id of a baseline id."""
    for node in nodes:
        path, _, rest = node.partition("::")
        *classes, test = rest.split("::")
        dotted = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
        if f"{dotted}::{test}" == name:
            return node
    return None


def watcher(total: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """(tell that a test ended, stop): a bar on a terminal, else a line for every 25 tests."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    begin = time.monotonic()
    if console.is_terminal:
        progress = Progress(console=console, transient=True)
        task = progress.add_task("tests", total=total)
        progress.start()
        return lambda: progress.advance(task), progress.stop
    done = [0]

    def tell() -> None:
        done[0] += 1
        if done[0] % 25 == 0:
            left = (time.monotonic() - begin) / done[0] * max(0, total - done[0])
            click.echo(f"{done[0]}/{total} tests, ETA {left:.0f} s", err=True)

    return tell, lambda: None


def preflight(launcher: Path) -> None:
    """Fail at once when the server does not start or has no /varz.

    The suite waits 10 s for /varz before every test and then tries the test anyway.
    """
    port = free_port()
    flags = ("-a", HOST, "-p", "{port}", "-m", str(port), "-js", "-sd", "{dir}")
    waiter = threading.Event()
    with Server(Recipe("server under test", (str(launcher), *flags))) as server:
        deadline = time.monotonic() + VARZ_TIMEOUT
        while True:
            link = http.client.HTTPConnection(HOST, port, timeout=VARZ_TIMEOUT)
            try:
                link.request("GET", "/varz")
                if link.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                waiter.wait(0.05)
            finally:
                link.close()
            if time.monotonic() > deadline:
                raise SuiteFailed(f"no /varz within {VARZ_TIMEOUT:.0f} s\n{server.log}")


def run(options: Options, work: Path) -> dict[str, Result]:
    """Collect, run, and try up to `RETRY_LIMIT` failures a second time."""
    told: list[Callable[[], None]] = []
    runner = Runner(options, work, lambda: told[0]())
    preflight(work / "bin" / "nats-server")
    nodes = runner.collect()
    tell, stop = watcher(len(nodes))
    told.append(tell)
    try:
        results = runner.run(nodes, options.jobs, uvloop=False)
        failed = [name for name, result in results.items() if result.status == "fail"]
        again = [node for name in failed if (node := node_of(name, nodes))]
        if 0 < len(again) <= RETRY_LIMIT:
            for name, result in runner.run(again, 1, uvloop=True).items():
                result.second_try = result.status == "pass"
                results[name] = result
    finally:
        stop()
    return results


def show(made: Score, results: dict[str, Result], seconds: float) -> None:
    """The verdict, then failures by error."""
    stable = len(made.passed) + len(made.failed) + len(made.skipped) + len(made.missing)
    click.echo(
        f"stable: {len(made.passed)}/{stable} passed, {len(made.failed)} failed, "
        f"{len(made.skipped)} skipped, {len(made.missing)} missing; "
        f"{len(made.other)} failures outside the stable list; {seconds:.0f} s"
    )
    for error, names in by_error(made.failed, results):
        click.echo(f"\n{len(names)} x {error}")
        for name in names:
            click.echo(f"    {name}")
    for title in ("skipped", "missing", "second_try", "other"):
        for name in getattr(made, title):
            click.echo(f"{title.replace('_', ' ')}: {name}")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--repo",
    required=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Checkout of github.com/nats-io/nats.py, outside this project.",
)
@click.option(
    "--baseline",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Tab separated list of stable tests.",
)
@click.option("--suite", default="legacy", show_default=True, type=click.Choice(list(SUITES)))
@click.option("--server", default="headwater", type=click.Choice(["headwater", "real"]))
@click.option("--command", help="Shell words that launch the server instead; flags are appended.")
@click.option("--only", "expression", metavar="EXPR", help="pytest's -k.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds per test.")
@click.option("--netns", is_flag=True, help="Own network namespace (root, or user namespaces).")
@click.option("--jobs", default=1, show_default=True, help="Processes; more than 1 needs --netns.")
@click.option("--maxfail", default=0, help="Stop a process after so many failures; 0: never.")
@click.option("--python", default=sys.executable, help="Interpreter with the suite's needs.")
@click.option("--version", default=REPORTED_VERSION, show_default=True)
@click.option("--keep", type=click.Path(path_type=Path), help="Keep junit files and logs here.")
@click.option("--json", "as_json", is_flag=True)
def main(
    repo: Path,
    baseline: Path,
    suite: str,
    server: str,
    command: str | None,
    expression: str | None,
    timeout: float,
    netns: bool,
    jobs: int,
    maxfail: int,
    python: str,
    version: str,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Run a nats.py test suite against a server and compare with the stable list.

    Exit codes: 0 all stable tests pass, 1 some do not, 2 the suite could not be run.
    """
    if jobs > 1 and not netns:
        raise click.UsageError("--jobs needs --netns: the tests use fixed ports")
    end_on_sigterm()
    options = Options(
        repo=repo,
        suite=SUITES[suite],
        server=server,
        python=python,
        command=command,
        expression=expression,
        timeout=timeout,
        jobs=jobs,
        isolated=netns,
        maxfail=maxfail,
        version=version,
    )
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headwater-suite-") as folder:
        work = Path(folder)
        try:
            results = run(options, work)
        except (SuiteFailed, ServerFailed) as error:
            click.echo(str(error), err=True)
            sys.exit(2)
        finally:
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                for path in (*work.glob("*.xml"), *work.glob("*.log")):
                    shutil.copy(path, keep)
    made = score(results, read_baseline(baseline), expression is not None)
    if as_json:
        click.echo(json.dumps(made.__dict__ | {"errors": dict(by_error(made.failed, results))}))
    else:
        show(made, results, time.monotonic() - begin)
    sys.exit(1 if made.failed or made.missing or made.skipped else 0)


if __name__ == "__main__":
    main(prog_name="python -m bench.suites")
