"""Layouts and numbers of kinds in docs/STORAGE.md and docs/RAFT.md are those of the code."""

import re
import struct

import pytest

from tests.house.page_layouts import ROOT, c_struct, constant, described, enum_values, formats

STORAGE = (ROOT / "docs/STORAGE.md").read_text()
RAFT = (ROOT / "docs/RAFT.md").read_text()
RECORD = "edge/storage/format/record.pxd"
SEGMENTS = "edge/storage/segments/segment_files.py"
CODEC = "hub/raft/codec.py"
CONFIG = "hub/raft/model/config.py"
HARD = "hub/stored/hard_state_file.py"
CRC = "I"
TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


def of(path: str, *names: str) -> str:
    """Structs of a module, end to end."""
    return "".join(formats(path)[name] for name in names)


LAYOUTS = [
    (STORAGE, '4s "HWS2"', of("edge/storage/device/durable_file.py", "COPY_HEAD") + CRC),
    (STORAGE, '4s "HWLG"', of("edge/storage/log/log_files.py", "HEADER") + CRC),
    (STORAGE, "u64 batch number",
     of("edge/storage/log/batch_writer.py", "FOOTER") + c_struct(RECORD, "Run")),
    (STORAGE, "u64 stream id", c_struct("edge/storage/log/watermarks.pxd", "Watermark")),
    (STORAGE, '4s "HWSG"', of(SEGMENTS, "HEADER") + CRC),
    (STORAGE, "u64 last_seq", of(SEGMENTS, "FOOTER") + c_struct(RECORD, "Run")),
    (STORAGE, '4s "HWIX"',
     of(SEGMENTS, "INDEX_HEADER", "RUN") + "II" + of(SEGMENTS, "INDEX_ENTRY") + CRC),
    (STORAGE, '4s "HWID"', of("edge/storage/segments/index_bytes.py", "HEAD") + CRC),
    (STORAGE, "u32 log segment   u32 offset",
     of("edge/storage/recovery/state_copy.py", "HEAD", "ROW", "PIECE")),
    (STORAGE, "u64 sequence   i64 timestamp   u32 0 in",
     of("edge/storage/erase/erase_jobs.py", "LOCATION")),
    (STORAGE, "u32 offset of the record with",
     c_struct("edge/storage/format/record.pxd", "Adoption")),
    (STORAGE, "u16 length of what follows", c_struct(RECORD, "Bundled")),
    (STORAGE, "u32 flags (only", c_struct("edge/storage/packing/packing.pxd", "Bound")),
    (STORAGE, '4s "HWSB"', of("edge/storage/packing/packing.py", "BLOB")),
    (RAFT, "u16 voters", of(CONFIG, "HEAD", "PAIR", "NODE")),
    (RAFT, "u64 index of the first", of(CODEC, "ENTRIES", "ENTRY")),
    (RAFT, "u64 index before the first", of("hub/stored/group_log.py", "HEAD")),
    (RAFT, "u64 index   u64 term   u64 last", of("hub/stored/mark.py", "HEAD")),
    (RAFT, "u64 generation",
     of(HARD, "HEAD") + of("hub/raft/model/hard_state.py", "FIELDS") + of(HARD, "CRC")),
    (RAFT, "u64 number of the start", of("hub/stored/group_store.py", "CLEAN_STOP")),
    (RAFT, "u8 version   u64 sender", of(CODEC, "PACKET", "ROWS", "TAGGED_ROW")),
    (RAFT, "u8 kind   u8 flags (1 refused", of(CODEC, "MESSAGE", "TAG")),
    (RAFT, "u32 bytes that follow the head",
     c_struct("edge/storage/format/operation.pxd", "Operation")),
]  # fmt: skip


@pytest.mark.parametrize(("page", "begin", "code"), LAYOUTS, ids=[each[1] for each in LAYOUTS])
def test_a_layout_of_a_page_is_that_of_the_code(page: str, begin: str, code: str) -> None:
    assert described(page, begin) == code


def test_every_layout_of_a_page_is_compared() -> None:
    compared = [begin for _, begin, _ in LAYOUTS]
    # One number before what has no fixed size.
    compared += ["u32 number of the dictionary", "u32 number of the data key"]
    for page in (STORAGE, RAFT):
        blocks = re.findall(r"(?<=\n\n)    ((?:\d+s|[ui]\d+) .*)", page)
        assert blocks
        unseen = [each for each in blocks if not each.startswith(tuple(compared))]
        assert not unseen


@pytest.mark.parametrize(
    ("magic", "path"),
    [
        ("HWS2", "edge/storage/device/durable_file.py"), ("HWLG", "edge/storage/log/log_files.py"),
        ("HWSG", SEGMENTS), ("HWIX", SEGMENTS), ("HWSB", "edge/storage/packing/packing.py"),
        ("HWID", "edge/storage/segments/index_bytes.py"),
        ("HWIZ", "edge/storage/segments/index_bytes.py"),
        ("HWBACKUP1", "edge/jetstream/backup/backup_file.py"),
    ],
)  # fmt: skip
def test_what_files_begin_with_is_what_the_page_says(magic: str, path: str) -> None:
    assert magic in STORAGE
    assert f'b"{magic}' in (ROOT / path).read_text()


def test_checksums_cover_what_the_page_says() -> None:
    """`the N bytes before` is the size of what stands before the checksum."""
    for begin, path, name in (
        ('4s "HWLG"', "edge/storage/log/log_files.py", "HEADER"),
        ('4s "HWSG"', SEGMENTS, "HEADER"),
        ('4s "HWS2"', "edge/storage/device/durable_file.py", "COPY_HEAD"),
    ):
        size = struct.calcsize("<" + of(path, name))
        (block,) = re.findall(rf"^    {begin}.*\n(?:    .*\n)+", STORAGE, re.M)
        assert f"the {size} bytes before" in block
    header = struct.calcsize("<" + c_struct(RECORD, "RecordHeader"))
    assert f"| u32 | crc of the {header - 4} bytes before, from `seed` |" in STORAGE
    assert header == constant(RECORD, "HEADER_BYTES")
    assert struct.calcsize("<" + c_struct(RECORD, "Run")) == 24


def test_the_header_of_a_record_is_what_the_page_says() -> None:
    rows = re.findall(r"^\| (\d+) \| ([ui]\d+) \| .* \|$", STORAGE, re.M)
    code = "".join(TYPES[kind] for _, kind in rows)
    assert code == c_struct(RECORD, "RecordHeader")
    assert code == of("edge/storage/format/record_layout.py", "HEADER")
    offsets = [struct.calcsize("<" + code[:n]) for n in range(len(code))]
    assert [int(at) for at, _ in rows] == offsets


def test_kinds_of_records_are_what_the_page_says() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]{4,}) \|", STORAGE, re.M)
    assert {name: int(value) for value, name in rows} == enum_values(RECORD, "KIND_")


def test_flags_of_records_are_what_the_page_says() -> None:
    _, _, table = STORAGE.partition("| flag | meaning |")
    rows = re.findall(r"^\| (\w+) \| .* \|$", table.partition("\n\n")[0], re.M)
    assert [int(value, 0) for value in rows] == sorted(enum_values(RECORD, "FLAG_").values())


def test_operations_of_progress_are_what_the_page_says() -> None:
    _, _, table = STORAGE.partition("| | operation | follows |")
    rows = re.findall(r"^\| (\d+) \| ", table.partition("\n\n")[0], re.M)
    path = "edge/jetstream/progress/delta.py"
    names = ["TRACK", "DROP", "EXHAUST", "FORGIVE", "FLOOR", "RESET"]
    assert [int(value) for value in rows] == [constant(path, name) for name in names]
    positions = len(c_struct("edge/jetstream/progress/delta.pxd", "Position"))
    (block,) = re.findall(r"^    version \(1\)   .*\n(?:    .*\n)+", STORAGE, re.M)
    assert constant(path, "VERSION") == 1
    assert len(re.split(r"\s{3,}", block.strip())) == 1 + positions


def test_operations_of_entries_are_what_the_page_says() -> None:
    _, _, table = RAFT.partition("| kind | operation | what a replica does |")
    rows = re.findall(r"^\| (\d) \| ([a-z ]+) \| ", table.partition("\n\n")[0], re.M)
    found = enum_values("edge/jetstream/replication/operations.pxd", "OP_")
    found |= enum_values("edge/storage/format/operation.pxd", "OP_")
    assert {name.replace(" ", "_").upper(): int(value) for value, name in rows} == found


def test_kinds_of_entries_are_what_the_page_says() -> None:
    from headwater.hub.raft.model.entry import EntryKind

    assert [each.name for each in EntryKind] == ["NORMAL", "EMPTY", "CONFIG"]
    assert [int(each) for each in EntryKind] == [0, 1, 2]
    assert "Kind 0 is an operation of the state machine, 1 is empty" in RAFT
    assert f"begins with its version, {constant(CODEC, 'VERSION')}." in RAFT
    assert constant(CODEC, "OLDEST_VERSION") == 1


def test_states_of_the_log_are_those_of_the_page() -> None:
    """Every owner and key that the code names has its row."""
    _, _, table = STORAGE.partition("| owner | key | value |")
    rows = re.findall(r"^\| (.+?) \| (.+?) \| ", table.partition("\n\n")[0], re.M)
    said = {cell.strip("`") for row in rows for cell in row}
    named = set()
    for path in [*(ROOT / "edge").rglob("*.py"), *(ROOT / "hub").rglob("*.py"),
                 *(ROOT / "federation").rglob("*.py")]:  # fmt: skip
        found = re.findall(
            r"^\w*(?:OWNER|KEY|STATE_PREFIX|CONSUMER_PREFIX)(?:: Final)? = b\"(.+)\"$",
            path.read_text(),
            re.M,
        )
        named.update(found)
    assert len(named) >= 9
    assert not [key for key in named if not any(cell.startswith(key) for cell in said)]
