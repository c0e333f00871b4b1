"""Small stores for damage: what is in them, and the check that one piece of damage did no more harm
than it may."""

from dataclasses import dataclass, field

from crash_history import State
from twin_harness import Row, TwinHarness, contents, readable

from headwater.edge.storage.file_store import FileStore
from headwater.edge.twins.files import TwinFiles

SEGMENT = 4096


@dataclass
class Truth:
    """What a stopped store holds."""

    disk: TwinFiles
    rows: dict[str, dict[int, Row]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    states: dict[bytes, State] = field(default_factory=dict)
    older: dict[bytes, list[State]] = field(default_factory=dict)
    """Values that states had before."""
    metas: dict[str, bytes] = field(default_factory=dict)
    packed: bool = False
    """Sealed and compressed."""

    def harness(self, disk: TwinFiles) -> TwinHarness:
        """Opens a damaged copy."""
        return TwinHarness(disk, SEGMENT, "after", sealed=self.packed, compressed=self.packed)


def fill(harness: TwinHarness, truth: Truth) -> None:
    """Two streams with segments, indexes and a log; removed messages; states; a deleted stream."""
    first, second, gone = harness.create("A"), harness.create("B"), harness.create("C")
    harness.settle()
    log = harness.node.log
    versions: dict[bytes, list[State]] = {b"one": [(b"start", [])], b"two": [(b"x" * 30, [])]}
    log.put_state(b"o", b"one", b"start")
    log.put_state(b"o", b"two", b"x" * 30)
    for n in range(1, 61):
        first.add_message(b"s.%d" % (n % 3), b"message %d " % n * (n % 4))
        if n % 3 == 0:
            second.add_message(b"t", b"second %d" % n, b"NATS/1.0\r\nN: 1\r\n\r\n")
        if n == 20:
            gone.add_message(b"u", b"gone")
        if n % 10 == 0:
            first.delete(n - 5)
            log.add_delta(b"o", b"one", b"%d" % n)
            value, deltas = versions[b"one"][-1]
            versions[b"one"].append((value, [*deltas, b"%d" % n]))
        if n % 5 == 0:
            harness.commit()
        if n == 40:
            harness.settle()
            second.purge(None, 6)
            harness.node.delete_stream(gone)
    harness.commit()
    harness.settle()
    for n in range(61, 68):
        first.add_message(b"s.9", b"message %d" % n)
        harness.commit()
    log.put_state(b"o", b"two", b"y" * 20)
    versions[b"two"].append((b"y" * 20, []))
    harness.commit()
    truth.states = {key: found[-1] for key, found in versions.items()}
    truth.older = versions
    for store in (first, second):
        truth.rows[store.incarnation] = contents(store)
        truth.last[store.incarnation] = store.last_seq
        truth.metas[store.incarnation] = harness.node.meta_of(store)


def stopped(clean: bool, packed: bool = False) -> Truth:
    """A store that was stopped cleanly, or whose power was cut after everything was synced."""
    harness = TwinHarness(segment_bytes=SEGMENT, sealed=packed, compressed=packed)
    harness.open()
    truth = Truth(harness.disk, packed=packed)
    fill(harness, truth)
    if clean:
        harness.close()
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


def examine(truth: Truth, disk: TwinFiles, where: object, hurt_max: int = 1) -> Harm:
    """Open a damaged store. Nothing wrong is served, no more than `hurt_max` messages are missing,
    and these are named; no stream or state vanishes; what is not as it was is told; the store goes
    on above every sequence it gave out; a further start finds the same."""
    harness = truth.harness(disk)
    found = harness.open()
    harm = Harm()
    assert found.keys() == truth.rows.keys(), (where, harness.node.problems)
    got = {incarnation: readable(store) for incarnation, store in found.items()}
    for incarnation, store in found.items():
        want = truth.rows[incarnation]
        check_stream(store, want, got[incarnation], where)
        harm.missing += len(want.keys() - got[incarnation].keys())
        harm.back += len(got[incarnation].keys() - want.keys())
        assert store.last_seq >= truth.last[incarnation], where
        assert harness.node.meta_of(store) == truth.metas[incarnation], where
    states = harness.node.log.states(b"o")
    for key, state in truth.states.items():
        if states.get(key) != state:
            assert states.get(key) in allowed(truth, key), (where, key, states)
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


def allowed(truth: Truth, key: bytes) -> list[State]:
    """Values of a state that damage may leave: older ones, or the newest without some additions."""
    found = list(truth.older[key])
    for value, deltas in truth.older[key]:
        found += [(value, deltas[:n] + deltas[n + 1 :]) for n in range(len(deltas))]
    return found


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
