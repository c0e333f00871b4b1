"""Small stores for damage: what is in them, and the check that one piece of damage did no more harm
than it may."""

from dataclasses import dataclass, field

from headwater.edge.ports.twins.files import TwinFiles
from headwater.edge.storage.directory.entry_keys import ENTRIES_OWNER
from headwater.edge.storage.segments.file_store import FileStore
from tests.edge.storage.twin_harness import Row, TwinHarness, contents, readable
from tests.edge.storage.whole.crash_history import State

SEGMENT = 8192
# Log segments in which two copies of a state stand in two pages of 4 KiB.
WIDE_SEGMENT = 32768
ONE, TWO = b"consumer/one", b"consumer/two"


@dataclass
class Truth:
    """What a stopped store holds."""

    disk: TwinFiles
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    owner: bytes = b""
    """Of the states: the first stream, of which they are consumers."""
    states: dict[bytes, State] = field(default_factory=dict)
    older: dict[bytes, list[State]] = field(default_factory=dict)
    """Values that states had before."""
    metas: dict[str, bytes] = field(default_factory=dict)
    erased: dict[str, set[int]] = field(default_factory=dict)
    """Sequences whose bytes were overwritten: they never come back."""
    packed: bool = False
    """Sealed and compressed."""
    before: list[TwinFiles] = field(default_factory=list)
    """The disk as it was at earlier moments."""

    segment: int = SEGMENT

    def harness(self, disk: TwinFiles) -> TwinHarness:
        """Opens a damaged copy."""
        return TwinHarness(disk, self.segment, "after", sealed=self.packed, compressed=self.packed)


def fill(harness: TwinHarness, truth: Truth) -> None:
    """Two streams with segments, indexes and a log; removed messages; states; a deleted stream."""
    size = truth.segment // SEGMENT
    erased: set[int] = set()
    first, second, gone = harness.create("A"), harness.create("B"), harness.create("C")
    harness.settle()
    log = harness.node.log
    owner = truth.owner = first.incarnation.encode()
    versions: dict[bytes, list[State]] = {ONE: [(b"start", [])], TWO: [(b"x" * 30, [])]}
    if truth.packed:
        # As a node of a cluster does.
        harness.node.expect_entries()
        log.put_state(ENTRIES_OWNER, b"7", b"entries of a group")
    log.put_state(owner, ONE, b"start")
    log.put_state(owner, TWO, b"x" * 30)
    for n in range(1, 61):
        first.add_message(b"s.%d" % (n % 3), b"message %d " % n * (n % 4))
        if n % 3 == 0:
            second.add_message(b"t", b"second %d" % n * size, b"NATS/1.0\r\nN: 1\r\n\r\n")
        if n == 20:
            gone.add_message(b"u", b"gone")
        if n % 10 == 0:
            first.delete(n - 5)
            first.delete(n - 3, True)
            erased.add(n - 3)
            log.add_delta(owner, ONE, b"%d" % n)
            value, deltas = versions[ONE][-1]
            versions[ONE].append((value, [*deltas, b"%d" % n]))
        if n % 5 == 0:
            harness.commit()
        if n % 20 == 0:
            truth.before.append(harness.disk.copy())
        if n == 40:
            harness.settle()
            second.purge(None, 6)
            harness.node.delete_stream(gone)
    harness.commit()
    harness.settle()
    truth.before.append(harness.disk.copy())
    for n in range(61, 68):
        first.add_message(b"s.9", b"message %d" % n * size)
        harness.commit()
    log.put_state(owner, TWO, b"y" * 20)
    versions[TWO].append((b"y" * 20, []))
    harness.commit()
    harness.loop.run_until(lambda: harness.node.state_copy.idle)
    truth.erased[first.incarnation] = erased
    truth.states = {key: found[-1] for key, found in versions.items()}
    truth.older = versions
    for store in (first, second):
        truth.rows[store.incarnation] = contents(store)
        truth.last[store.incarnation] = store.last_seq
        truth.metas[store.incarnation] = harness.node.meta_of(store)


def stopped(end: str, packed: bool = False, segment: int = SEGMENT) -> Truth:
    """A store that was stopped "clean"ly, "killed", or whose "power" was cut after everything was
    acknowledged, or a while later ("idle")."""
    harness = TwinHarness(segment_bytes=segment, sealed=packed, compressed=packed)
    harness.open()
    truth = Truth(harness.disk, packed=packed, segment=segment)
    fill(harness, truth)
    if end == "killed":
        harness.disk.kill()
        harness.loop.drop()
        return truth
    if end == "clean":
        harness.close()
    elif end == "idle":
        harness.disk.sync_all()
    harness.power_cut(0, "everything")
    return truth


@dataclass
class Harm:
    """What became of a damaged store."""

    missing: int = 0
    back: int = 0
    """Removed messages that are there again."""
    older_states: int = 0
    told: bool = False


def examine(
    truth: Truth, disk: TwinFiles, where: object, hurt_max: int = 1, stale: bool = False
) -> Harm:
    """Open a damaged store. Nothing wrong is served, no more than `hurt_max` messages are missing,
    and these are named; no stream or state vanishes; what is not as it was is told; the store goes
    on above every sequence it gave out; a further start finds the same. `stale`: an older file was
    put back, which may hold what was erased since."""
    harness = truth.harness(disk)
    found = harness.open()
    harm = Harm()
    assert found.keys() == truth.rows.keys(), (where, harness.node.problems)
    got = {incarnation: readable(store) for incarnation, store in found.items()}
    for incarnation, store in found.items():
        want = truth.rows[incarnation]
        check_stream(store, want, got[incarnation], where)
        assert stale or not got[incarnation].keys() & truth.erased.get(incarnation, set()), where
        harm.missing += len(want.keys() - got[incarnation].keys())
        harm.back += len(got[incarnation].keys() - want.keys())
        assert store.last_seq >= truth.last[incarnation], where
        assert harness.node.meta_of(store) == truth.metas[incarnation], where
    states = harness.node.log.states(truth.owner)
    for key, state in truth.states.items():
        if states.get(key) != state:
            assert is_allowed(truth, key, states.get(key), hurt_max > 1), (where, key, states)
            harm.older_states += 1
    told = bool(harness.node.problems) or any(store.lost for store in found.values())
    harm.told = told
    assert harm.missing <= hurt_max, (where, harm, harness.node.problems)
    assert told or not (harm.missing or harm.back or harm.older_states), (where, harm)
    go_on(harness, got, where)
    return harm


def check_stream(
    store: FileStore, want: dict[int, Row], got: dict[int, Row], where: object
) -> None:
    for sequence, row in got.items():
        if sequence in want:
            assert row == want[sequence], (where, sequence)
    for sequence in want.keys() - got.keys():
        assert sequence in store.lost, (where, sequence)


def is_allowed(truth: Truth, key: bytes, found: State, many: bool) -> bool:
    """Whether damage may leave this of a state: an older one, or the newest without an addition, or
    without several when `many` records may be hurt. Additions may come twice."""
    if found is None:
        return False
    value, deltas = found
    for wanted, added in truth.older[key]:
        missing = set(added) - set(deltas)
        if value == wanted and set(deltas) <= set(added) and (many or len(missing) <= 1):
            return True
    return False


def go_on(harness: TwinHarness, got: dict[str, dict[int, Row]], where: object) -> None:
    for incarnation, store in harness.streams.items():
        last = store.last_seq
        assert store.add_message(b"next", b"x") == last + 1, where
        got[incarnation][last + 1] = (b"next", b"", b"x")
    harness.commit()
    lost = {name: store.lost.keys() for name, store in harness.streams.items()}
    harness.power_cut(repr(where), "everything")
    found = harness.open()
    assert {name: readable(store) for name, store in found.items()} == got, where
    assert {name: store.lost.keys() for name, store in found.items()} == lost, where
    # Descriptors of a disk in memory keep it in memory.
    harness.power_cut(0, "everything")
