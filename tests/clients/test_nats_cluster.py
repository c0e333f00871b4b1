"""The `nats` tool says the same at three nodes of headwater and at three nats-servers."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.cluster.nodes import SERVERS, ClusterNodes
from bench.servers import HOST
from tests.clients.test_nats_tool import MISTAKES, commands
from tests.clients.tool_desk import Desk, Said, found
from tests.waiting import until_seen

TOOL = found("nats")
pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(TOOL is None, reason="the `nats` tool is not installed; run `make clients`"),
]
ACCOUNTS = """
accounts {
    SYS: { users: [ { user: sys, password: pw } ] }
    APP: { jetstream: enabled, users: [ { user: app, password: pw } ] }
}
system_account: SYS
"""
OF_ONE_ELECTION = [
    (re.compile(r"\b(Cluster|Raft) Group: .*"), "GROUP"),
    (re.compile(r"\bn[0-2]\b"), "NODE"),
    (re.compile(r"storage \d+B"), "storage USED"),
    (re.compile(r"Replica: NODE, .*"), "REPLICA"),
    (re.compile(r"\bnN [A-Za-z]\w+ (yes )?true"), "nN PEER true"),
    (re.compile(r"nN\*N|nN\*"), "nN"),
    (re.compile(r'"[A-Za-z0-9]{8}": '), '"PEER": '),
    (
        re.compile(r'"(last_replicated_index|last_seen|leader_since|voted_for|active)": "\w+",? ?'),
        "",
    ),
]
"""Who leads and how far the others are, and where each server puts its groups.

Headwater keeps a stream's consumers in the group of the stream.
"""


def shown(said: Said) -> list[str]:
    """What a command says of a cluster, whoever leads."""
    rows = [str(row) for row in said.shape()]
    if "report cpu" in said.line or "report mem" in said.line:
        rows = rows[:1]
    for pattern, name in OF_ONE_ELECTION:
        rows = [pattern.sub(name, row) for row in rows]
    return sorted(rows)


def play(server: str, folder: Path) -> list[Said]:
    """The transcript at a new cluster that has a leader."""
    own = folder / server
    own.mkdir()
    with ClusterNodes(SERVERS[server], more=ACCOUNTS) as nodes:
        nodes.start_all()
        desk = Desk(str(TOOL), own, f"nats://{HOST}:{nodes.ports[0]}", nodes.monitor_ports[0])
        warm = "stream add W --replicas=3 --subjects=w --defaults"
        until_seen(lambda: desk.run(warm).status == 0, "a cluster that takes streams", 90)
        assert desk.run("stream rm W --force").status == 0
        return [desk.run(line) for line in commands("cluster/three_nodes")]


def test_three_nodes(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as both:
        ours, theirs = both.map(lambda name: play(name, tmp_path), ("headwater", "real"))
    for one, other in zip(ours, theirs, strict=True):
        assert not any(word in other.text for word in MISTAKES), (other.line, other.text)
        assert (one.status, shown(one)) == (other.status, shown(other)), one.line
