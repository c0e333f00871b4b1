"""What a start finds of groups in a node's store.

A stream and its mark are a replica's state; entries behind the mark are its log. A replica is
doubtful when messages of it are lost, or when it is not what its mark says: then it begins with
nothing and asks the group, and the old stream stays until a snapshot takes its place.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headwater.edge.storage.format.problem import Problem, ProblemKind
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.segments.file_store import FileStore
from headwater.hub.raft.model.config import Config
from headwater.hub.raft.model.hard_state import HardState
from headwater.hub.raft.model.ready import Restored
from headwater.hub.raft.model.snapshot import Snapshot
from headwater.hub.stored.group_log import OWNER, GroupLog, read_group_log
from headwater.hub.stored.mark import KEY, Mark, decode_mark

BOOT_GROUP = 0
"""In `raft.hard`, of no group: its term is the number of the node's newest start, its vote the
number of the node."""
CLEAN = "clean"


@dataclass
class StartReport:
    """What a start found."""

    boot: int
    clean: bool
    groups: dict[int, Restored] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


@dataclass
class FoundGroup:
    """A group. `doubtful`: its stream, when that is not to be used. `behind`: what the log in the
    store has of it does not reach the mark, so it has to say first where it goes on."""

    restored: Restored
    store: FileStore | None
    mark: Mark | None
    doubtful: FileStore | None = None
    behind: bool = False


def read_groups(
    node: NodeStore,
    group_of: Callable[[bytes], int],
    hards: dict[int, HardState],
    start: StartReport,
) -> dict[int, FoundGroup]:
    """Every group that left something. Whatever is wrong with the node's store makes the start
    unclean."""
    start.problems += node.problems
    stores = _streams(node, group_of, start)
    logs = node.log.states(OWNER)
    group_logs = {int(key): read_group_log(*row) for key, row in logs.items()}
    for owner, key in node.log.table.unopened:
        if owner == OWNER:
            group_logs.setdefault(int(key), GroupLog()).torn = True
    marks: dict[int, Mark | None] = {}
    for group, kept in stores.items():
        marks[group] = mark = _mark(node, kept)
        wrong = _wrong(kept, mark, group_logs.get(group))
        if wrong:
            text = f"the replica of group {group} is not used: {wrong}"
            start.problems.append(Problem(ProblemKind.UNSERVED, text))
            marks[group] = None
    start.problems += [
        Problem(ProblemKind.DAMAGED, f"the log of group {n} is torn")
        for n, group_log in group_logs.items()
        if group_log.torn
    ]
    start.clean = start.clean and not start.problems
    found = {}
    for group in sorted({*hards, *stores} - {BOOT_GROUP}):
        group_log = group_logs.get(group, GroupLog())
        mark, store = marks.get(group), stores.get(group)
        restored = _restored(group_log, mark, hards.get(group), start.clean)
        if mark is None:
            found[group] = FoundGroup(restored, None, None, store)
        else:
            behind = group_log.term(mark.index) != mark.term
            found[group] = FoundGroup(restored, store, mark, behind=behind)
    return found


def _streams(
    node: NodeStore, group_of: Callable[[bytes], int], start: StartReport
) -> dict[int, FileStore]:
    stores: dict[int, FileStore] = {}
    for store in node.stores():
        if not isinstance(store, FileStore):
            continue
        group = group_of(node.meta_of(store) or b"")
        if group and group in stores:
            text = f"group {group} has two streams"
            start.problems.append(Problem(ProblemKind.DAMAGED, text))
        elif group:
            stores[group] = store
    return stores


def _mark(node: NodeStore, store: FileStore) -> Mark | None:
    value = node.log.states(store.incarnation.encode()).get(KEY, (None, []))[0]
    return decode_mark(value) if value is not None else None


def _wrong(store: FileStore, mark: Mark | None, group_log: GroupLog | None) -> str:
    """What speaks against a replica; "" for nothing."""
    if mark is None:
        return "it has no mark"
    if store.lost:
        return f"{len(store.lost)} of its messages are lost"
    if (store.last_seq, store.messages) != (mark.last_seq, mark.messages):
        return (
            f"it ends at {store.last_seq} with {store.messages} messages, "
            f"its mark at {mark.last_seq} with {mark.messages}"
        )
    if group_log is not None and group_log.base > mark.index:
        return f"its log begins behind {group_log.base}, its mark is at {mark.index}"
    return ""


def _restored(
    group_log: GroupLog, mark: Mark | None, hard: HardState | None, clean: bool
) -> Restored:
    if mark is None:
        return Restored(Snapshot(0, 0, Config()), [], hard, lost=True)
    snapshot = Snapshot(mark.index, mark.term, mark.config)
    entries = group_log.behind(mark.index, mark.term)
    if hard is not None:
        last = mark.index + len(entries)
        hard = replace(hard, commit=max(hard.commit, mark.index, min(group_log.commit, last)))
    return Restored(snapshot, entries, hard, clean and hard is not None, lost=group_log.torn)
