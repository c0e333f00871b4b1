"""A round costs what the groups with work cost, however many there are."""

from collections import Counter

import pytest

from headwater.edge.storage.format.errors import StoreError
from headwater.hub.raft.raft import Raft
from headwater.hub.stored.replica import Replica
from tests.hub.stored.stored_harness import StoredNode

GROUPS = tuple(range(1, 41))


class Watched(dict[int, Replica]):
    """Replicas, and how often somebody went through all of them."""

    walks = 0

    def values(self):  # type: ignore[no-untyped-def]  # the views of dict have no public names
        self.walks += 1
        return super().values()


def test_a_round_goes_through_the_groups_with_work_only(monkeypatch: pytest.MonkeyPatch) -> None:
    node = StoredNode().open(first=True, groups=GROUPS)
    for group in GROUPS:
        node.lead(group)
    watched = node.store.replicas = Watched(node.store.replicas)
    asked: Counter[int] = Counter()
    true = Raft.has_ready

    def has_ready(raft: Raft) -> bool:
        asked[raft.group] += 1
        return true(raft)

    monkeypatch.setattr(Raft, "has_ready", has_ready)
    for group in GROUPS:
        node.multi_raft.touch(node.raft(group))
    node.propose(1, GROUPS[-1])
    assert len(node.rows(GROUPS[-1])) == 1
    assert [asked[group] for group in GROUPS[:-1]] == [1] * (len(GROUPS) - 1)
    assert watched.walks == 0


def test_a_mark_that_storage_refused_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    node = StoredNode().open(first=True)
    node.lead()
    replica = node.store.replicas[1]
    true, refused = Replica.write_mark, []

    def write_mark(one: Replica) -> None:
        if len(refused) < 20:
            refused.append(one.mark.index)
            raise StoreError("no room")
        true(one)

    monkeypatch.setattr(Replica, "write_mark", write_mark)
    node.propose(3)
    assert len(node.rows()) == 3 and replica.marked < replica.mark.index
    for _ in range(20):
        node.store.pump()
    assert replica.marked == replica.mark.index == node.raft().log.last


def test_a_group_that_is_gone_is_not_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    node = StoredNode().open(first=True)
    node.lead()

    def write_mark(one: Replica) -> None:
        raise StoreError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "write_mark", write_mark)
        node.propose(1)
    node.multi_raft.drop(1)
    node.store.erase(1)
    node.store.pump()
    assert node.store.replicas == {}


def test_nothing_is_kept_of_a_group_that_is_gone() -> None:
    """Streams come and go for years: each would leave a row."""
    node = StoredNode().open(first=True)
    node.lead()
    node.propose(3)
    assert 1 in node.store._commits
    node.multi_raft.drop(1)
    node.store.erase(1)
    node.store.pump()
    for name, found in vars(node.store).items():
        assert not isinstance(found, dict | set) or 1 not in found, name
