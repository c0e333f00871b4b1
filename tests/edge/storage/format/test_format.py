"""What docs/STORAGE.md says is what is on disk: an independent decoder reads the same."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.edge.storage.device.durable_file import TwoCopyFile
from headwater.edge.storage.format.crc import checksum, checksum_by_tables
from tests.edge.storage.format.store_decoder import Decoder, crc, two_slots
from tests.edge.storage.store_harness import Harness, contents


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.end()


def test_checksum_has_the_published_values() -> None:
    """RFC 3720, appendix B.4."""
    for function in (checksum, checksum_by_tables):
        assert function(b"123456789") == 0xE3069283
        assert function(bytes(32)) == 0x8A9136AA
        assert function(b"\xff" * 32) == 0x62A8AB43
        assert function(bytes(range(32))) == 0x46DD794E
    pick = random.Random(3)
    for size in [*range(0, 300, 7), *range(490, 530), *range(1000, 3000, 77)]:
        data = pick.randbytes(size)
        assert checksum(data) == checksum_by_tables(data) == crc(0, data)
        assert checksum(data[5:], checksum(data[:5])) == checksum(data)


def decoded(path: Path) -> Decoder:
    decoder = Decoder(path)
    decoder.read()
    return decoder


@pytest.mark.parametrize("clean", [False, True])
def test_decoder_reads_what_the_store_holds(harness: Harness, clean: bool) -> None:
    harness.open()
    store = harness.create("ONE")
    other = harness.create("TWO", first_seq=500)
    for n in range(1, 1801):
        headers = b"NATS/1.0\r\nN: 1\r\n\r\n" if n % 7 == 0 else b""
        store.add_message(b"s.%d" % (n % 3), b"%d" % n * 9, headers)
        if n % 9 == 0:
            other.add_message(b"other", b"%d" % n)
            store.delete(n - 3)
        if n % 40 == 0:
            harness.node.log.add_delta(b"c", b"k", b"%d" % n)
            harness.breathe()
    store.purge(None, 200)
    store.skip(2000)
    other.purge()
    harness.node.log.put_state(b"c", b"k", b"whole")
    harness.node.log.add_delta(b"c", b"k", b"more")
    harness.commit()
    harness.settle()
    want = contents(store)
    ends = {item.stream_id: (item.first_seq, item.last_seq) for item in (store, other)}
    if clean:
        harness.close()
    else:
        harness.crash()
    decoder = decoded(harness.directory)
    assert decoder.indexes
    rows = decoder.streams[store.stream_id]
    assert {n: row["parts"] for n, row in rows.items()} == want
    assert decoder.streams[other.stream_id] == {}
    assert decoder.names == {store.stream_id: "ONE", other.stream_id: "TWO"}
    own = (b"\0segments", b"\0metas")
    states = {key: rows for key, rows in decoder.states.items() if rows and key[0] not in own}
    assert states == {(b"c", b"k"): [b"whole", b"more"]}
    for stream, (_, last) in ends.items():
        assert decoder.last[stream] == last
    assert decoder.first[other.stream_id] == ends[other.stream_id][0]


def test_decoder_reads_streams_that_have_no_files_yet(harness: Harness) -> None:
    harness.open()
    made = harness.create("MADE")
    harness.node.metas.stopped = True
    fresh = harness.node.create_stream("A", "FRESH", b"{}")
    fresh.add_message(b"s", b"first")
    harness.node.update_meta(made, b'{"changed":1}')
    harness.commit()
    harness.crash()
    assert not fresh.directory.exists()
    decoder = decoded(harness.directory)
    assert set(decoder.names.values()) == {"MADE", "FRESH"}
    assert [row["parts"] for row in decoder.streams[fresh.stream_id].values()] == [
        (b"s", b"", b"first")
    ]
    harness.open()
    harness.until(lambda: harness.node.metas.idle)
    harness.crash()
    decoder = decoded(harness.directory)
    assert set(decoder.names.values()) == {"MADE", "FRESH"}
    in_log = decoder.metas_in_log(decoder.log_rows())
    streams = harness.directory / "jetstream" / "streams"
    assert in_log == {path.name: two_slots(path / "meta") for path in streams.iterdir()}


def test_two_slot_file_survives_a_flip_anywhere(tmp_path: Path) -> None:
    file = TwoCopyFile(tmp_path / "x")
    assert file.read() is None
    file.write(b"first")
    file.write(b"second" * 1000)
    data = bytearray(file.path.read_bytes())
    for at in range(0, len(data), 11):
        data[at] ^= 32
        file.path.write_bytes(bytes(data))
        assert TwoCopyFile(file.path).read() == b"second" * 1000
        data[at] ^= 32
    assert TwoCopyFile(file.path).read() == b"second" * 1000
