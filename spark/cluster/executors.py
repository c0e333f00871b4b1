"""The executors of a running application, and work that is done once on each of them."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.spark.cluster import probe

if TYPE_CHECKING:
    from pyspark import SparkContext

#: Most executors that are looked at.
MAX_EXECUTORS = 500
#: Seconds without a further executor after which the list counts as whole.
SETTLED = 3.0
#: The same as a share of the time that the first one took: they are started together, and what
#: makes one slow puts more time between them.
SHARE = 0.5
_POLL = 0.1
#: Starts the probe without Spark's Python worker, which may be what is wrong. The first line of
#: its output says which executor this is.
_SCRIPT = """
id=$(tr '\\0' '\\n' < /proc/$PPID/cmdline | grep -A1 -x -e --executor-id | tail -n 1)
echo "${id:-driver} $(hostname)"
if command -v "$1" > /dev/null; then "$1" -c "$2" $PPID "$3" 2>&1
else echo "there is no $1 on this host"; fi
exit 0
"""


@dataclass(frozen=True)
class Executor:
    """One executor as the driver knows it; in local mode it is the driver itself."""

    name: str
    host: str


@dataclass(frozen=True)
class Sight:
    """What was seen on an executor. `found` is None when its Python did not run: see `text`."""

    name: str
    host: str
    found: dict[str, Any] | None
    text: str = ""


def wait_for_executors(context: "SparkContext", patience: float) -> list[Executor]:
    """The executors, once no more of them come; empty when none came for `patience` seconds."""
    began = first = changed = time.monotonic()
    known: list[Executor] = []
    while True:
        seen = _executors(context)
        now = time.monotonic()
        if seen != known:
            first = first if known else now
            known, changed = seen, now
        if _is_local(context) and known:
            return known
        if known and now - changed >= patience_for_more(first - began):
            return known[:MAX_EXECUTORS]
        if not known and now - began >= patience:
            return []
        time.sleep(_POLL)


def patience_for_more(first: float) -> float:
    """Seconds without a further executor that end the wait, if the first took so many."""
    return max(SETTLED, SHARE * first)


def _executors(context: "SparkContext") -> list[Executor]:
    listed = context._jsc.sc().statusStore().executorList(True)
    found = []
    for index in range(listed.size()):
        one = listed.apply(index)
        name = one.id()
        if name != "driver" or _is_local(context):
            found.append(Executor(name, one.hostPort().rpartition(":")[0]))
    return sorted(found, key=lambda each: (len(each.name), each.name))


def _is_local(context: "SparkContext") -> bool:
    """Whether the driver is the only executor; `local-cluster` has others."""
    return str(context.master).partition("[")[0] == "local"


def look_at(
    context: "SparkContext",
    executors: list[Executor],
    servers: Iterable[tuple[str, int]],
    timeout: float,
) -> list[Sight]:
    """Run the probe on each executor. `timeout` is the seconds for one connection."""
    wanted = json.dumps({"servers": [list(one) for one in servers], "timeout": timeout})
    text = Path(probe.__file__).read_text(encoding="utf-8")
    command = ["sh", "-c", _SCRIPT, "sh", context.pythonExec, text, wanted]
    answers = _placed(context, executors).pipe(command).glom().collect()
    return [_sight(list(lines)) for lines in answers]


def _sight(lines: list[str]) -> Sight:
    name, _, host = lines[0].partition(" ")
    text = lines[-1] if len(lines) > 1 else "nothing came back"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return Sight(name, host, found if isinstance(found, dict) else None, text)


def run_on(
    context: "SparkContext", executors: list[Executor], work: Callable[[], str]
) -> list[str]:
    """What `work` returns in a Python worker of each executor."""
    from pyspark import RDD
    from pyspark.serializers import UTF8Deserializer

    def each(_: Iterable[Any]) -> Iterator[str]:
        yield work()

    rows: RDD[Any] = RDD(_placed(context, executors), context, UTF8Deserializer())  # type: ignore[no-untyped-call]
    return rows.mapPartitions(each).collect()


def _placed(context: "SparkContext", executors: list[Executor]) -> Any:
    """A Java RDD of one partition for each executor, which Spark runs there."""
    jvm: Any = context._jvm
    pairs = [
        jvm.scala.Tuple2(one.name, _scala(jvm, [f"executor_{one.host}_{one.name}"]))
        for one in executors
    ]
    tag = context._jsc.emptyRDD().classTag()
    return context._jsc.sc().makeRDD(_scala(jvm, pairs), tag).toJavaRDD()


def _scala(jvm: Any, items: list[Any]) -> Any:
    """A Scala sequence."""
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)
