"""A stream that is written anew takes the old one's place in one step, whenever a crash comes."""

import asyncio
from pathlib import Path

import pytest

from headwater.edge.kernel.kernel import Kernel
from headwater.edge.storage.directory.store_options import StoreOptions
from headwater.edge.storage.node.node_store import NodeStore
from headwater.edge.storage.node.rebuild import FetchedMessage, Rebuild
from headwater.edge.storage.recovery.stream_recovery import RecoveredStream
from headwater.edge.storage.segments.file_store import FileStore
from headwater.edge.storage.segments.loss import LOST_KEY

LOST = {1, 5, 6, 20}


def opened(path: Path) -> tuple[NodeStore, list[RecoveredStream]]:
    node = NodeStore(Kernel(asyncio.get_running_loop()), StoreOptions(path, segment_bytes=1 << 20))
    return node, node.open()


async def make(path: Path) -> None:
    """A stream of 20 messages with a state; the last byte of some of them is wrong."""
    node, _ = opened(path)
    store = node.create_stream("A", "S", b"{}")
    for number in range(1, 21):
        store.add_message(b"s.%d" % number, b"payload %d." % number, b"", number)
    node.log.put_state(store.incarnation.encode(), b"consumer/c", b"value")
    node.log.add_delta(store.incarnation.encode(), b"consumer/c", b"more")
    await node.close()
    (segment,) = path.rglob("*.seg")
    data = segment.read_bytes()
    for number in LOST:
        data = data.replace(b"payload %d." % number, b"payload %d," % number)
    segment.write_bytes(data)


async def fetch(sequence: int) -> FetchedMessage | None:
    if sequence == 6:
        return None
    return FetchedMessage(b"s.%d" % sequence, b"", b"payload %d." % sequence, sequence)


def expected(sequence: int) -> bytes:
    return b"payload %d." % sequence


def lose(store: FileStore) -> None:
    for sequence in range(1, 21):
        try:
            store.get(sequence)
        except Exception as error:
            assert "bad body" in str(error)


def contents(store: FileStore) -> dict[int, bytes]:
    found = {}
    for sequence in range(1, 21):
        if store.subject_at(sequence) is not None:
            message = store.get(sequence)
            assert message is not None
            found[sequence] = message.payload
    return found


async def rebuild(path: Path, stop_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node, (stream,) = opened(path)
    lose(stream.store)
    assert set(stream.store.lost) == LOST
    work = Rebuild(node, stream, fetch, lambda done, total: None)

    class Stop(BaseException):
        """As a crash: nothing is tidied up."""

    def crash(*args: object) -> None:
        raise Stop

    def no_cleaning(store: object) -> None:
        """The process would be gone."""

    if stop_at == "before the step":
        monkeypatch.setattr(node, "finish_stream", crash)
        monkeypatch.setattr(node, "delete_stream", no_cleaning)
    elif stop_at == "after the step":
        monkeypatch.setattr(node, "delete_stream", crash)
    try:
        await work.run()
        assert stop_at == "never"
        assert work.put_back == [1, 5, 20]
    except Stop:
        assert stop_at != "never"
    node.stop_now()


@pytest.mark.parametrize("stop_at", ["never", "before the step", "after the step"])
def test_one_stream_is_there(tmp_path: Path, stop_at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        await make(tmp_path)
        await rebuild(tmp_path, stop_at, monkeypatch)
        node, streams = opened(tmp_path)
        (stream,) = streams
        store = stream.store
        wanted = LOST if stop_at == "before the step" else {6}
        assert set(store.lost) == wanted
        left = {n: expected(n) for n in range(1, 21) if n not in wanted}
        assert contents(store) == left
        assert store.last_seq == 20
        states = node.log.states(store.incarnation.encode())
        states.pop(LOST_KEY, None)
        assert states == {b"consumer/c": (b"value", [b"more"])}
        assert not any("not served" in str(problem) for problem in node.problems)
        assert not list((tmp_path / "jetstream" / "quarantine").iterdir())
        assert store.add_message(b"s.21", b"next") == 21
        await node.close()
        assert len(list((tmp_path / "jetstream" / "streams").iterdir())) == 1

    asyncio.run(run())


def test_a_clean_start_scans_no_data(tmp_path: Path) -> None:
    async def run() -> None:
        await make(tmp_path)
        node, _ = opened(tmp_path)
        assert node.numbers()["recovery_segments"] == 1
        assert node.numbers()["recovery_scanned_bytes"] == 0
        node.stop_now()
        for index in tmp_path.rglob("*.idx"):
            index.unlink()
        node, _ = opened(tmp_path)
        assert node.numbers()["recovery_scanned_bytes"] > 0
        node.stop_now()

    asyncio.run(run())
