"""Planted bugs of groups in a node's store. See `bug.py`."""

from dataclasses import replace

from headwater.hub.stored import group_store, start
from headwater.hub.stored.group_log import GroupLog, encode_run
from headwater.hub.stored.group_store import GroupStore
from headwater.hub.stored.hard_states import HardStates
from headwater.hub.stored.replica import Replica
from headwater.hub.stored.spill import Spill
from headwater.hub.stored.start import BOOT_GROUP
from tests.sim.planted.bug import BUGS, Bug


def _told_at_once(original):
    def tell(self):
        while self._unsynced:
            self.on_synced(self._unsynced.popleft().number)

    return tell


def _hard_unsynced(original):
    def sync(self):
        self._reach(self.written)

    return sync


def _forget_vote(original):
    return lambda self, group, hard: original(self, group, replace(hard, vote=0))


def _no_mark(original):
    def write_mark(self):
        if self.mark.index % 3 or not self.marked:
            original(self)

    return write_mark


def _mark_first(original):
    def apply(self, entries):
        if entries and self.store is not None and not self.waiting:
            before = self.mark
            self.mark = replace(before, index=entries[-1].index, term=entries[-1].term)
            self.write_mark()
            self.log.hand_over()
            self.mark = before
        return original(self, entries)

    return apply


def _ends_only(original):
    def wrong(store, mark, book):
        return "" if mark is not None else original(store, mark, book)

    return wrong


def _always_clean(original):
    def read(node, group_of, hards, found):
        kept = list(node.problems)
        node.problems = []
        found.clean = True
        result = original(node, group_of, hards, found)
        node.problems = kept
        return result

    return read


def _last_lost(original):
    def behind(self, index, term):
        return original(self, index, term)[:-1]

    return behind


def _install_not_logged(original):
    def write_ready(self, raft, ready):
        original(self, raft, replace(ready, snapshot=None))
        if ready.snapshot is not None:
            self._installed.discard(raft.group)
            self._behind.discard(raft.group)

    return write_ready


def _stale_tail(original):
    def add(self, run):
        before, base = list(self.entries), self.base
        original(self, run)
        if self.base == base:
            self.entries += before[len(self.entries) :]

    return add


def _newest_left_out(original):
    def whole(self, raft):
        original(self, raft)
        rows = raft.log
        return encode_run(rows.base_index, rows.base_term, rows.committed, rows.entries[:-1])

    return whole


def _only_boot(original):
    def write_hard(self, group, hard):
        if group == BOOT_GROUP:
            original(self, group, hard)

    return write_hard


def _next_data(original):
    def read(self, chunk):
        entries = original(self, chunk)
        datas = [entry.data for entry in entries]
        shifted = zip(entries, [*datas[1:], *datas[:1]], strict=True)
        return [entry._replace(data=data) for entry, data in shifted]

    return read


def _gone_too_far(original):
    return property(lambda self: original.fget(self) + 1)


def _term_of_now(original):
    return lambda self, spills, group, before, term: original(
        self, spills, group, before, term + 1
    )


STORE_BUGS = (
    Bug(
        "told-at-once",
        "a batch counts before the log is durable",
        ((GroupStore, "_report_synced", _told_at_once),),
    ),
    Bug(
        "hard-state-unsynced",
        "hard state is not synced",
        ((HardStates, "sync", _hard_unsynced),),
    ),
    Bug(
        "hard-state-without-vote",
        "hard state loses the vote",
        ((HardStates, "write", _forget_vote),),
    ),
    Bug("no-mark", "some marks are not written", ((Replica, "write_mark", _no_mark),)),
    Bug(
        "mark-first",
        "the mark is durable before what it speaks of",
        ((Replica, "apply", _mark_first),),
    ),
    Bug("no-doubt", "a replica that lost messages is used", ((start, "_wrong", _ends_only),)),
    Bug("always-clean", "every start is clean", ((group_store, "read_groups", _always_clean),)),
    Bug(
        "last-entry-lost", "a start leaves the last entry out", ((GroupLog, "behind", _last_lost),)
    ),
    Bug(
        "install-not-logged",
        "the log does not say that a snapshot replaced it",
        ((GroupStore, "_write_ready", _install_not_logged),),
    ),
    Bug(
        "stale-tail",
        "entries that were replaced come back at a start",
        ((GroupLog, "add", _stale_tail),),
    ),
    Bug(
        "checkpoint-without-newest",
        "a checkpoint of the log leaves a group's newest entry out",
        ((GroupStore, "_whole", _newest_left_out),),
    ),
    Bug(
        "old-entries-mixed-up",
        "entries that are read from files have each other's data",
        ((Spill, "_read", _next_data),),
    ),
    Bug(
        "old-entries-with-a-hole",
        "memory lets go of more than files have",
        ((Spill, "last", _gone_too_far),),
    ),
    Bug(
        "old-entries-of-another-term",
        "the term before entries in files is a wrong one",
        ((Spill, "__init__", _term_of_now),),
    ),
    Bug(
        "hard-state-unwritten",
        "hard state is not written",
        ((HardStates, "write", _only_boot),),
    ),
)
"""Each is found within `Bug.seeds` seeds of `STEPS` steps."""
for _each in STORE_BUGS:
    BUGS[_each.name] = _each
