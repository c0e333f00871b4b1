"""Nobody sleeps to wait, but for the few that are listed here, each with its reason."""

import ast
from pathlib import Path

import pytest

from tests.house.syntax import nodes
from tests.house.test_house import PRODUCT, ROOT, sources

PACES = "paces what it does: the time is the point"
RETRIES = "the pause before another try, longer each time and with chance in it"
SHOWS = "shows a person something new from time to time"
ANOTHER = "looks at another process, which tells nobody"

SLEEPS = {
    "tests/waiting.py": (4, "the helpers that every other test uses"),
    "tests/edge/broker/logins/test_before_login.py": (1, "measures how long others wait"),
    "tests/growth/stories.py": (1, "the end of a window of duplicates: the time is the point"),
    "tests/differ/player.py": (3, "steps of a history are that time passes: the time is the point"),
    "tests/differ/clusters/player.py": (3, ANOTHER),
    "tests/edge/storage/store_harness.py": (1, "turns a loop while the commit thread works"),
    "tests/federation/lab.py": (2, "a slow or far link: " + PACES),
    "bench/cluster/faults.py": (11, "how long a fault lasts; " + ANOTHER),
    "bench/cluster/nodes.py": (4, ANOTHER),
    "tests/small_machine.py": (1, ANOTHER),
    "bench/links/lab.py": (2, "a slow line; " + ANOTHER),
    "bench/links/rows.py": (2, "the pace of probes; " + ANOTHER),
    "bench/cluster/rows.py": (7, "how long it is watched, and the pace of probes; " + ANOTHER),
    "tests/hub/cluster/consumer_stories.py": (1, "a reader without a leader tries again"),
    "tests/hub/node/test_healing.py": (1, "a reader without a leader tries again"),
    "tests/hub/cluster/stream_stories.py": (1, PACES),
    "deploy/demo/agent.py": (4, PACES),
    "deploy/demo/fleet.py": (1, RETRIES),
    "deploy/demo/hub.py": (1, RETRIES),
    "deploy/demo/processes.py": (1, ANOTHER),
    "deploy/demo/run.py": (4, SHOWS),
    "deploy/fleet/device/agent.py": (1, "systemd tells nobody how a service goes"),
    "deploy/fleet/device/apply.py": (2, ANOTHER),
    "deploy/fleet/device/services.py": (2, ANOTHER + ", and old kernels have no pidfd"),
    "deploy/fleet/device/supervisor.py": (1, "its clock: ends, deadlines and signals"),
    "deploy/fleet/flash/links.py": (1, "a refused session says nothing about when to come again"),
    "deploy/gateway/cli.py": (1, SHOWS),
    "deploy/gateway/report.py": (1, PACES),
    "deploy/hub/catching_up.py": (1, ANOTHER),
    "deploy/hub/cli.py": (1, ANOTHER),
    "deploy/hub/drain_command.py": (1, ANOTHER),
    "deploy/hub/fleet_command.py": (1, SHOWS),
    "deploy/watchdog.py": (1, PACES),
    "edge/embedded/embedded_node.py": (1, "asks again whether a hub answers: no link tells of it"),
    "edge/embedded/reading.py": (1, "a consumer that refuses says nothing about when to ask again"),
    "edge/jetstream/api/long_work.py": (1, "lets others have their turn in the midst of long work"),
    "edge/monitor/profile_pages.py": (1, "how long a profile lasts: the time is the point"),
    "edge/ocsp/staples.py": (2, "asks a responder again, when its answer says or after a failure"),
    "edge/storage/node/node_store.py": (2, "lets the loop run while a stop empties the log"),
    "edge/storage/node/repair.py": (1, "lets the scrubber's timers run, and shows how far it is"),
    "federation/origins/origin_follower.py": (2, "chance, so that not all ask at once"),
    "hub/api/cluster.py": (1, "what a request waits for is decided in four places"),
    "hub/cluster/driver.py": (1, "lets the loop run while a stop empties the store"),
    "hub/node/healing.py": (2, "rests between slices; waits for what a replica applies"),
    "hub/node/service.py": (1, "lets the groups hand over before a stop"),
    "hub/streams/late_deliveries.py": (1, "a leader that is away does not say when to ask again"),
    "hub/enrolment/service.py": (1, RETRIES),
    "hub/routes/dialer.py": (1, RETRIES),
    "spark/cluster/executors.py": (1, "Spark tells Python nothing of a new executor"),
    "spark/read/range_reader.py": (1, RETRIES),
    "spark/read/stream_reader.py": (1, PACES),
    "spark/wire/waits.py": (1, RETRIES),
    "spark/write/sink.py": (1, "whoever had begun the batch looks at the ledger meanwhile"),
    "tests/clients/python/trouble.py": (1, PACES),
    "tests/clients/python/trouble_new.py": (1, PACES),
    "tests/clients/python/trouble_steps.py": (2, PACES),
    "tests/spark/cluster/counting_job.py": (1, "a task is under way for a while"),
}
"""How many calls of `sleep` a module may have, and why; a number only falls. In tests
`tests.waiting` looks again and again at what no event tells of."""

SILENCES = {
    "tests/clients/troubles.py": (3, "a node is away, or stands, for a while; leaders change"),
    "tests/edge/broker/test_slow_receivers.py": (1, "a reader that does not read"),
    "tests/deploy/keys/test_keys.py": (1, "a token ends by the wall clock"),
    "tests/deploy/store/test_cluster_key_rotation.py": (1, "a kill comes at any moment"),
    "tests/deploy/store/test_key_rotation.py": (1, "a kill comes at any moment"),
    "tests/deploy/store/test_sealing_commands.py": (2, "a kill comes at any moment"),
    "tests/edge/sharing/test_remote_latency.py": (1, "the latency that is measured"),
    "tests/edge/broker/imports/test_service_latency.py": (1, "the latency that is measured"),
    "tests/edge/broker/logins/test_before_login.py": (1, "a server without files does little"),
    "tests/edge/broker/listeners/test_tls_demands.py": (1, "a limit counts in full seconds"),
    "tests/edge/jetstream/consumer/test_consumer_wire.py": (2, "nothing more comes"),
    "tests/federation/origins/test_full_copies.py": (1, "nothing more is stored"),
    "tests/federation/leaf/test_bad_links.py": (1, "a slow link is not given up"),
    "tests/federation/leaf/test_leaf_senders.py": (1, "a peer that takes little"),
    "tests/federation/leaf/test_leaf_lanes.py": (1, "a line that is slow"),
    "tests/federation/leaf/test_leaf_interop.py": (3, "nothing more crosses"),
    "tests/hub/routes/test_held_back.py": (1, "a publisher waits"),
    "tests/federation/leaf/test_held_back.py": (3, "a publisher waits; how long a peer holds back"),
    "tests/hub/routes/test_linked_clusters.py": (3, "nothing comes a second time"),
    "tests/hub/cluster/test_replicas.py": (1, "a publisher without a leader tries again"),
    "tests/hub/streams/test_stale_deliveries.py": (1, "a node stands still"),
    "tests/hub/routes/test_route_pools.py": (1, "a route that answers stays"),
    "tests/spark/read/test_range_reads.py": (1, "messages have different times"),
}
"""Which tests let time pass (`silence`, `stand_by`), how often, and what for."""


def sleeps(path: Path) -> int:
    """Calls of `time.sleep` and `asyncio.sleep`. `sleep(0)` is none, since it lets the loop call
    what is due, unless a loop does nothing else."""
    found = 0
    text = path.read_text()
    if "sleep(" not in text:
        return 0
    tree = nodes(text)
    loops = [node for node in tree if isinstance(node, ast.While) and len(node.body) == 1]
    idle = {id(node) for loop in loops for node in ast.walk(loop.body[0])}
    for node in tree:
        if isinstance(node, ast.Call) and called(node.func) in SLEEPERS:
            yields = [getattr(each, "value", None) for each in node.args] == [0]
            found += not yields or id(node) in idle
    return found


SLEEPERS = {"time.sleep", "asyncio.sleep", "sleep"}


def called(function: ast.expr) -> str:
    """`name`, or `module.name`, of what is called; empty for anything else."""
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return ""


def silences(path: Path) -> int:
    """Calls of the helpers that let time pass."""
    text = path.read_text()
    if "tests.waiting" not in text:
        return 0
    return sum(
        isinstance(node, ast.Call) and called(node.func) in ("silence", "stand_by")
        for node in nodes(text)
    )


def test_nobody_sleeps_to_wait() -> None:
    paths = PRODUCT + sources("bench", "tests")
    found = {str(path.relative_to(ROOT)): n for path in paths if (n := sleeps(path))}
    allowed = {path: n for path, (n, _) in SLEEPS.items()}
    assert found == allowed, "wait for an event, or see tests/waiting.py; a number only falls"


def test_tests_let_time_pass_where_it_is_the_point() -> None:
    paths = [path for path in sources("tests") if path.name != "waiting.py"]
    found = {str(path.relative_to(ROOT)): n for path in paths if (n := silences(path))}
    assert found == {path: n for path, (n, _) in SILENCES.items()}


def test_no_cancellation_is_lost() -> None:
    """Until Python 3.12 `wait_for` returns, or raises what was waited for, when that is done in the
    turn in which it is cancelled: then the task goes on. `asyncio.timeout` does not."""
    assert len(PRODUCT) > 300
    found = [str(path.relative_to(ROOT)) for path in PRODUCT if "wait_for(" in path.read_text()]
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("time.sleep(1)", 1), ("await asyncio.sleep(0.1)", 1), ("sleep(x)", 1),
        ("await asyncio.sleep(0)", 0), ("cluster.sleep(5)", 0),
        ("while not done():\n        await asyncio.sleep(0)", 1),
    ],
)  # fmt: skip
def test_a_sleep_is_seen(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(f"async def one():\n    {text}\n")
    assert sleeps(tmp_path / "one.py") == count
