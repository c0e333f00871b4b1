"""/raftz: the Raft groups that a node is a member of, as nats-server shows its own.

A consumer is led with its stream, so it has no group of its own here.
"""

from typing import Any

from headwater.edge.jetstream.model.times import ZERO_TIME, format_time
from headwater.hub.api.cluster import Cluster
from headwater.hub.cluster.peers import peer_of
from headwater.hub.meta.assignment import META_GROUP, NO_GROUP
from headwater.hub.raft.raft import Raft

META_NAME = "_meta_"
QUEUES = ("ipq_proposal_len", "ipq_entry_len", "ipq_resp_len", "ipq_apply_len")


def raftz(cluster: Cluster, account: str, group: str) -> dict[str, Any]:
    """The groups of an account ("": the system account), by account and name. `group` names one of
    them; "" is all. Empty where there is none."""
    wanted = account or cluster.system_account
    rows = {
        name: _row(cluster, raft, since)
        for name, raft, since in _groups(cluster, wanted)
        if group in ("", name)
    }
    return {wanted: rows} if rows else {}


def _groups(cluster: Cluster, account: str) -> list[tuple[str, Raft, int]]:
    """Name, state and since when it is led here (ns, 0 when it is not) of each."""
    groups = cluster.group.driver.multi_raft.groups
    found: list[tuple[str, Raft, int]] = []
    if account == cluster.system_account and META_GROUP in groups:
        found.append((META_NAME, groups[META_GROUP], 0))
    for known in cluster.state.streams.values():
        assignment = known.assignment
        mine = assignment.account == account and assignment.group != NO_GROUP
        if mine and assignment.group in groups:
            here = cluster.here(account, assignment.name)
            name = cluster.cluster_info_of(assignment).raft_group
            found.append((name, groups[assignment.group], cluster.led_since(here)))
    return found


def _row(cluster: Cluster, raft: Raft, since: int) -> dict[str, Any]:
    log = raft.log
    voters = len(log.config.voters)
    row: dict[str, Any] = {
        "id": peer_of(raft.node),
        "state": raft.role.value.upper(),
        "size": voters,
        "quorum_needed": voters // 2 + 1,
        "committed": log.committed,
        "applied": log.applied,
        "leader": peer_of(raft.leader) if raft.leader else "",
        "ever_had_leader": raft.leader != 0 or log.committed > 0,
        "term": raft.term,
        "voted_for": peer_of(raft.vote) if raft.vote else "",
        "pterm": log.last_term,
        "pindex": log.last,
        "system_account": True,
        "traffic_account": cluster.system_account,
        **dict.fromkeys(QUEUES, 0),
        "wal": {
            "messages": len(log.entries),
            "bytes": log.bytes,
            "first_seq": log.base_index + 1,
            "first_ts": ZERO_TIME,
            "last_seq": log.last,
            "last_ts": ZERO_TIME,
            "consumer_count": 0,
        },
        "peers": {
            peer_of(node): _peer(cluster, raft, node)
            for node in sorted(log.config.voters)
            if node != raft.node
        },
    }
    if raft.recovering:
        row["catching_up"] = True
    if since:
        row["leader_since"] = format_time(since)
    return row


def _peer(cluster: Cluster, raft: Raft, node: int) -> dict[str, Any]:
    silence = cluster.founding.silence_ns(node)
    row: dict[str, Any] = {"name": cluster.names(node), "known": True}
    if silence:
        row["last_seen"] = format_time(cluster.jetstream.kernel.clock() - silence)
    progress = raft.progress.get(node)
    if raft.is_leader and progress is not None:
        row["last_replicated_index"] = progress.match
    return row
