"""The stages of replicated entries, noted by a real cluster."""

import json
from pathlib import Path

import pytest

from bench.cluster import raft_stages
from bench.cluster.raft_stages import HEARD, LED, Trace
from bench.servers import ServerFailed


@pytest.mark.parametrize("publishers", [0, 4])
async def test_every_stage_of_an_entry_is_found(tmp_path: Path, publishers: int) -> None:
    rate, trace = await raft_stages.run(128, 640, publishers, tmp_path)
    assert rate > 0
    stages = dict(trace.stages())
    followers = [number for number in range(3) if number != trace.leader]
    names = [f"n{number}: {what}" for number in followers for what in HEARD]
    names += [f"leader: {what}" for what in ("written", "durable", *LED)]
    assert len([name for name in stages if name.startswith("leader: sent to")]) == 2
    last = max(trace.proposed)
    for name in names:
        assert last in stages[name], name
        assert stages[name][last] > trace.proposed[last], name
    assert stages["leader: acked"][last] <= stages["leader: applied"][last]
    assert all(node["syncs"] and node["written"] for node in trace.nodes)
    assert len(list(trace.lines())) > len(names)


def test_a_cluster_that_proposed_nothing_is_told(tmp_path: Path) -> None:
    path = tmp_path / "stages.json"
    path.write_text(json.dumps({"notes": []}))
    with pytest.raises(ServerFailed):
        Trace([path])
