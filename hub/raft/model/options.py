"""The numbers of a group."""

from dataclasses import dataclass

from headwater.hub.raft.model.errors import invariant


@dataclass(frozen=True, slots=True)
class Options:
    """Ticks are the driver's; at 50 ms each, an election begins after half a second of silence."""

    election_ticks: int = 10
    """Silence of a leader that is borne. Each wait is this plus up to as much again, by chance."""
    heartbeat_ticks: int = 2
    """Between two heartbeats. Must be well below `election_ticks`."""
    tick_ns: int = 50_000_000
    """How long a tick lasts. Only leases need it."""
    lease_reads: bool = False
    """Answer reads without asking a quorum, while a lease holds by ticks *and* by the clock. The
    same at all members: they keep the silence that a lease counts on."""
    lease_share_percent: int = 70
    """Of the election timeout. The rest is for clocks and ticks that run differently."""
    append_bytes_max: int = 1 << 20
    """Of one APPEND; a single greater entry goes alone."""
    inflight_max: int = 64
    """APPENDs on their way to one follower."""
    inflight_bytes_max: int = 8 << 20
    """10 Gbit/s at 6 ms round trip."""
    uncommitted_bytes_max: int = 64 << 20
    """Of proposals that wait for a quorum; then `ProposalsFull`."""
    apply_bytes_max: int = 8 << 20
    """Handed to the state machine at a time, so that heartbeats go out in between."""
    defer_commits: bool = False
    """Tell a commit with the next entries, when the driver calls `tell_commit`, or with the next
    tick, and not at once in a message of its own. Members need not agree on it."""
    reads_max: int = 4096
    """Reads that wait for a quorum or for a first commit of the leader's term."""
    snapshot_part_bytes: int = 256 << 10
    """Of one SNAPSHOT message, about; one greater message of a stream goes alone."""
    snapshot_parts_max: int = 8
    """Parts on their way to one member."""
    snapshot_patience: int = 5
    """Rounds of heartbeats without an answer after which parts are sent again."""
    hibernate_ticks: int = 8
    """Quiet ticks after which a group goes to sleep; 0 for never. To wake one costs what two
    rounds of heartbeats cost, so a pause that is longer is worth it."""
    promote_lag_max: int = 1000
    """Entries a returning learner may lack when it becomes a voter."""

    def __post_init__(self) -> None:
        invariant(0 < self.heartbeat_ticks * 2 < self.election_ticks, "heartbeats are too rare")
        invariant(0 < self.lease_share_percent < 100, "a lease ends before an election may begin")
