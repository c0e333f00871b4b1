"""Reads a store's files with nothing but docs/STORAGE.md and the standard library.

    python store_decoder.py <store_dir> [<key>]      prints every message that the files hold

Sealed and compressed streams need PyNaCl and zstandard.
"""

import hashlib
import hmac
import json
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TABLE = []
for index in range(256):
    value = index
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    TABLE.append(value)

RECORD = struct.Struct("<IBBHIIIIQqQIIII")
Row = dict[str, Any]
Fields = tuple[Any, ...]


def crc(seed: int, data: bytes) -> int:
    value = seed ^ 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ TABLE[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


def numbers(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def signed(value: int) -> int:
    return -(value + 1) // 2 if value & 1 else value // 2


def consumer_progress(deltas: list[bytes]) -> Row:
    """Positions of a consumer; "pending": (consumer sequence, time, deliveries) by sequence, and
    "exhausted": deliveries by sequence."""
    names = ("next_seq", "next_cseq", "delivered_seq", "floor_cseq", "floor_seq", "skip_resume")
    names += ("delivered_ns", "acked_ns")
    progress: Row = {}
    pending: dict[int, tuple[int, int, int]] = {}
    exhausted: dict[int, int] = {}
    for delta in deltas:
        items = numbers(delta)
        assert next(items) == 1
        progress = {name: next(items) for name in names}
        sequence = consumer_sequence = time = 0
        for operation in items:
            sequence += signed(next(items))
            if operation in (2, 3):
                pending.pop(sequence, None)
            if operation == 1:
                consumer_sequence += signed(next(items))
                time += signed(next(items))
                pending[sequence] = (consumer_sequence, time, next(items))
            elif operation == 3:
                exhausted[sequence] = next(items)
            elif operation == 4:
                exhausted.pop(sequence, None)
            elif operation in (5, 6):
                top = sequence if operation == 5 else 1 << 64
                pending = {key: row for key, row in pending.items() if key > top}
                exhausted = {key: row for key, row in exhausted.items() if key > top}
    return {**progress, "pending": pending, "exhausted": exhausted}


def two_slot(path: Path) -> bytes:
    return two_slots(path)[1]


def two_slots(path: Path) -> tuple[int, bytes]:
    """Generation and content."""
    data = path.read_bytes()
    best: tuple[int, bytes] = (-1, b"")
    for at in range(0, len(data), 4096):
        magic, version, _, generation, length = struct.unpack_from("<4sHHQI", data, at)
        (check,) = struct.unpack_from("<I", data, at + 20)
        content = data[at + 24 : at + 24 + length]
        if magic == b"HWS2" and version == 1 and crc(0, data[at : at + 20] + content) == check:
            best = max(best, (generation, content))
    assert best[0] >= 0, f"{path}: no valid copy"
    return best


def records(data: bytes, number: int, seed: int, end: int) -> list[Row]:
    """Every record from 512 on, up to the first that does not verify."""
    found = []
    at = 512
    while at + 64 <= end:
        fields = RECORD.unpack_from(data, at)
        magic, version, kind, flags, length, first, second, body_crc = fields[:8]
        sequence, timestamp, stream, segment, offset, chain, header_crc = fields[8:]
        if (magic, version, segment, offset) != (0x31525748, 1, number, at):
            break
        if crc(seed, data[at : at + 60]) != header_crc:
            break
        body = data[at + 64 : at + 64 + length]
        assert crc(0, body) == body_crc or kind == 16
        found.append(
            {
                "kind": kind,
                "flags": flags,
                "sequence": sequence,
                "timestamp": timestamp,
                "stream": stream,
                "parts": (body[:first], body[first : first + second], body[first + second :]),
                "body": body,
                "lengths": (first, second),
                "chain": chain,
                "crc": header_crc,
                "offset": at,
                "segment": segment,
                "body_crc": body_crc,
            }
        )
        at += (64 + length + 7) & ~7
    return found


def adopted(rows: list[Row], data: bytes) -> list[Row]:
    """The rows, each ADOPT with the messages that stand in an entry of the same file."""
    kinds = {row["offset"]: row["kind"] for row in rows}
    for row in rows:
        if row["kind"] == 15:
            record, at, length, _, last = struct.unpack("<IIIIQ", row["body"])
            assert kinds[record] in (6, 7) and record < row["offset"]
            row["messages"], end = [], at + length
            while at < end:
                size, second, first, kind, _, sequence, timestamp = struct.unpack_from(
                    "<IIHBBQq", data, at
                )
                at += 28
                body = data[at : at + size]
                at += size
                assert kind == 1 and sequence == row["sequence"] + len(row["messages"])
                parts = (body[:first], body[first : first + second], body[first + second :])
                row["messages"].append(
                    {**row, "kind": 1, "sequence": sequence, "timestamp": timestamp, "parts": parts}
                )
            assert at == end and sequence == last
    return rows


def bundled(rows: list[Row]) -> list[Row]:
    """The rows, each BUNDLE with its messages."""
    for row in rows:
        if row["kind"] != 16:
            continue
        row["messages"], at, body = [], row["lengths"][1], row["body"]
        while at < len(body):
            length, first, flags, later, check = struct.unpack_from("<HBBII", body, at)
            sequence = row["sequence"] + len(row["messages"])
            place = struct.pack("<QII", sequence, row["segment"], row["offset"] + 64 + at)
            text = body[at + 12 : at + 12 + length]
            stem = body[: row["lengths"][1]] if flags & 16 else b""
            assert crc(crc(crc(crc(0, place), body[at : at + 8]), stem), text) == check
            second = 0
            if flags & 1:
                second, text = struct.unpack_from("<H", text)[0], text[2:]
            if stem:
                front, back = stem[1 : 1 + stem[0]], stem[1 + stem[0] :]
                middle = first - len(front) - len(back)
                text = front + text[:middle] + back + text[middle:]
            flags = 0x8000 if flags & 2 else flags & 12
            parts = (text[:first], text[first : first + second], text[first + second :])
            message = {"kind": 1, "flags": flags, "sequence": sequence, "body": text}
            message |= {"timestamp": row["timestamp"] + later, "stream": row["stream"]}
            row["messages"].append({**message, "parts": parts, "lengths": (first, second)})
            at += 12 + length
        assert at == len(body) and len(row["messages"]) == row["lengths"][0]
        erased = any(message["flags"] & 0x8000 for message in row["messages"])
        assert erased or crc(0, body) == row["body_crc"]
    return rows


def unseal(cipher: str, secret: bytes, box: bytes, bound: bytes) -> bytes:
    """Opens a nonce followed by what was sealed with it."""
    from nacl import bindings

    size = {"xchacha20poly1305": 24, "aes256gcm": 12}[cipher]
    name = "aes256gcm" if size == 12 else "xchacha20poly1305_ietf"
    decrypt = getattr(bindings, f"crypto_aead_{name}_decrypt")
    opened: bytes = decrypt(box[size:], bound, box[:size], secret)
    return opened


class Keys:
    """Data keys and dictionaries of one stream."""

    def __init__(self, path: Path, identity: Row, key: bytes) -> None:
        self.stream = int(identity["id"], 16)
        self.keys = {}
        node_key = hmac.digest(b"headwater node key", key.strip(), hashlib.sha256)
        owner = f"{identity['id']}:{identity['incarnation']}"
        for row in identity.get("keys", []):
            bound = f"headwater data key\0{row['number']}\0{row['cipher']}\0{owner}".encode()
            secret = unseal("xchacha20poly1305", node_key, bytes.fromhex(row["key"]), bound)
            self.keys[row["number"]] = (row["cipher"], secret)
        self.dictionaries = {
            number: self.blob(two_slot(path / f"{number:06d}.dict"), b"dictionary")
            for number in identity.get("dictionaries", [])
        }

    def blob(self, data: bytes, purpose: bytes) -> bytes:
        if data[:4] != b"HWSB":
            return data
        cipher, secret = self.keys[struct.unpack_from("<I", data, 4)[0]]
        return unseal(cipher, secret, data[8:], purpose + struct.pack("<Q", self.stream))

    def open(self, row: Row) -> None:
        """Replace a message's parts by what is inside."""
        body, flags = row["body"], row["flags"]
        first, second = row["lengths"]
        if flags & 4:
            cipher, secret = self.keys[struct.unpack_from("<I", body)[0]]
            bound = struct.pack(
                "<IIIIQqQ",
                flags & 12,
                len(body),
                first,
                second,
                row["sequence"],
                row["timestamp"],
                row["stream"],
            )
            body = unseal(cipher, secret, body[4:], bound)
        if flags & 8:
            import zstandard

            number = struct.unpack_from("<I", body)[0]
            content = self.dictionaries[number] if number else b""
            body = zstandard.ZstdDecompressor(
                dict_data=zstandard.ZstdCompressionDict(content) if content else None,
                format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            ).decompress(body[4:])
        row["parts"] = (body[:first], body[first : first + second], body[first + second :])


class Index:
    """An index file: what it says of its segment."""

    HEADER = struct.Struct("<4sIIIQqQQQqIIIII")

    def __init__(self, data: bytes, seed: int) -> None:
        assert crc(seed, data[:-4]) == struct.unpack("<I", data[-4:])[0]
        unit = 0
        if data[:4] in (b"HWIZ", b"HWID"):
            unit = struct.unpack_from("<I", data, 16)[0] if data[:4] == b"HWID" else 0
            data = self.unpacked(data)
            assert crc(seed, data[:-4]) == struct.unpack("<I", data[-4:])[0]
        head = self.HEADER.unpack_from(data)
        assert head[0] == b"HWIX"
        self.format, self.number, self.generation, self.stream, self.created = head[1:6]
        self.covered, self.first_seq, self.last_seq, self.last_ts, self.log_segment = head[6:11]
        subjects, entries, deleted, lost = head[11:]
        at = self.HEADER.size
        self.deleted = runs(data[at : at + 16 * deleted])
        at += 16 * deleted
        self.lost = runs(data[at : at + 16 * lost])
        at += 16 * lost
        self.subjects = {}
        for _ in range(subjects):
            number, length = struct.unpack_from("<II", data, at)
            self.subjects[number] = data[at + 8 : at + 8 + length]
            at += 8 + length
        end = at + 32 * entries
        self.entries = list(struct.iter_unpack("<QqIIII", data[at:end]))
        if unit:
            self.entries = self.summed(self.entries, unit)
        self.lengths = [0] * entries
        if self.format == 2:
            self.lengths = list(struct.unpack_from(f"<{entries}I", data, end))
            end += 4 * entries
        assert end == len(data) - 4

    def unpacked(self, data: bytes) -> bytes:
        """A packed index as it was before: of its rows the bytes 0, 32, 64, ... come first, then 1,
        33, 65, ...; in earlier versions that is so for the whole file."""
        size = struct.unpack_from("<I", data, 4)[0]
        begin, length = struct.unpack_from("<II", data, 8) if data[:4] == b"HWID" else (0, size)
        shown = zlib.decompress(data[20 if data[:4] == b"HWID" else 8 : -4])
        assert len(shown) == size
        rows = shown[begin : begin + length]
        order = [at for first in range(32) for at in range(first, length, 32)]
        plain = bytes(byte for _, byte in sorted(zip(order, rows, strict=True)))
        return shown[:begin] + plain + shown[begin + length :]

    def summed(self, rows: list[tuple[int, ...]], unit: int) -> list[tuple[int, ...]]:
        """Rows of which these are the differences; times count in `unit` nanoseconds."""
        made, before = [], (0, 0, 0, 0, 0)
        for *parts, subject in rows:
            before = tuple(
                (a + b) % (1 << bits)
                for a, b, bits in zip(parts, before, (64, 64, 32, 32, 32), strict=True)
            )
            made.append((before[0], before[1] * unit, *before[2:], subject))
        return made


def runs(body: bytes) -> list[tuple[int, int]]:
    return list(struct.iter_unpack("<QQ", body))


class Decoder:
    """The content of a node's directory."""

    def __init__(self, store_dir: Path, key: bytes = b"") -> None:
        self.key = key
        self.keys: dict[int, Keys] = {}
        self.root = store_dir / "jetstream"
        identity = json.loads(two_slot(self.root / "HEADWATER"))
        assert identity["format"] in (1, 2, 3, 4)
        self.seed = crc(0, bytes.fromhex(identity["node_id"]))
        self.streams: dict[int, dict[int, Row]] = {}
        self.names: dict[int, str] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.removed: dict[int, set[int]] = {}
        self.owners: dict[bytes, int] = {}
        self.states: dict[tuple[bytes, bytes], list[bytes]] = {}
        self.indexes = 0

    def read(self) -> None:
        rows = self.log_rows()
        metas = {path.name: two_slots(path / "meta") for path in (self.root / "streams").iterdir()}
        for name, found in self.metas_in_log(rows).items():
            metas[name] = max(metas.get(name, found), found)
        for name, (_, meta) in sorted(metas.items()):
            path = self.root / "streams" / name
            identity = json.loads(meta.split(b"\n", 1)[0])
            stream = int(identity["id"], 16)
            self.names[stream] = identity["name"]
            self.streams[stream], self.owners[name.encode()] = {}, stream
            self.keys[stream] = Keys(path, identity, self.key)
            self.first[stream], self.last[stream], self.removed[stream] = 1, 0, set()
            ends = [self.read_segment(part, stream) for part in sorted(path.glob("*.seg"))]
            self.last[stream] = max(ends, default=0)
        for row in rows:
            self.apply(row)
        for stream, messages in self.streams.items():
            gone = self.removed[stream]
            for sequence in [n for n in messages if n < self.first[stream] or n in gone]:
                del messages[sequence]

    def read_segment(self, path: Path, stream: int) -> int:
        """Returns up to which sequence the stream's segments know everything, by this one. A
        segment that was written again may name messages that stand in a later one."""
        data = path.read_bytes()
        head = struct.unpack_from("<4sIIIQq16sI", data)
        assert head[:3] == (b"HWSG", 1, int(path.stem)) and head[4] == stream
        assert head[7] == crc(self.seed, data[:48])
        batch: list[Row] = []
        chain: int | None = 0
        ended = False
        end = 0
        rows = records(data, head[2], self.seed, len(data))
        for row in rows:
            erased = row["flags"] & 0x8000
            assert erased or chain is None or row["chain"] in (chain, 0 if ended else chain)
            chain = None if erased else row["crc"]
            ended = row["kind"] == 3
            if not ended:
                batch.append(row)
                continue
            last_seq, _, _, _, count, _ = struct.unpack_from("<QqIIII", row["body"])
            assert row["flags"] & 1 or count == len(batch)
            for item in batch:
                self.apply(item)
            batch = []
            self.first[stream] = max(self.first[stream], row["sequence"])
            end = max(end, last_seq)
        if path.with_suffix(".idx").exists():
            self.check_index(path.with_suffix(".idx"), stream, head, rows)
        return end

    def check_index(self, path: Path, stream: int, head: Fields, rows: list[Row]) -> None:
        """An index lists the messages of its segment, up to the bytes that it covers; one of an
        earlier generation is not used."""
        index = Index(self.keys[stream].blob(path.read_bytes(), b"index"), self.seed)
        assert (index.number, index.stream) == (int(path.stem), stream)
        if (index.generation, index.created) != (head[3], head[5]):
            return
        found = {row["sequence"]: row for row in rows if row["kind"] == 1}
        for (sequence, timestamp, offset, size, header_len, subject), length in zip(
            index.entries, index.lengths, strict=True
        ):
            row = found[sequence]
            if row["flags"] & 0x8000:
                continue
            if row["flags"] & 12:
                self.keys[stream].open(row)
            parts = row["parts"]
            assert (row["timestamp"], row["offset"]) == (timestamp, offset)
            assert (index.subjects[subject], len(parts[1])) == (parts[0], header_len)
            assert len(parts[1]) + len(parts[2]) == size
            assert length == (len(row["body"]) if row["flags"] & 12 else 0)
        self.indexes += 1

    def metas_in_log(self, rows: list[Row]) -> dict[str, tuple[int, bytes]]:
        """Of streams that were made or changed and whose meta file may be older, or not there."""
        found: dict[str, tuple[int, bytes]] = {}
        for row in rows:
            if row["kind"] in (6, 8) and row["parts"][0] == b"\0metas":
                _, key, value = row["parts"]
                found.pop(key.decode(), None)
                if row["kind"] == 6:
                    found[key.decode()] = struct.unpack_from("<Q", value)[0], value[8:]
        return found

    def log_rows(self) -> list[Row]:
        """The records that count, oldest first."""
        counting: list[Row] = []
        slots = {}
        for path in (self.root / "log").glob("slot-*.log"):
            data = path.read_bytes()
            head = struct.unpack_from("<4sIIIIIIIqQ16sI", data)
            if head[0] == b"HWLG" and head[11] == crc(self.seed, data[:64]):
                rows = records(data, head[2], self.seed, len(data))
                slots[head[2]] = (head, bundled(adopted(rows, data)))
        path_numbers: list[tuple[int, int]] = []
        number, end, oldest = max(slots, default=0), 0, 1
        while number >= oldest and number in slots:
            head, rows = slots[number]
            if not end:
                footers = [row for row in rows if row["kind"] == 11]
                end = footers[-1]["offset"] + 1 if footers else 512
            counted = [row for row in rows if row["offset"] < end]
            retired = [row["sequence"] for row in counted if row["kind"] == 12]
            oldest = max([oldest, head[6], *retired])
            path_numbers.insert(0, (number, end))
            number, end = head[3], head[4]
        for number, end in path_numbers:
            self.check_footers([row for row in slots[number][1] if row["offset"] < end])
            rows = [row for row in slots[number][1] if row["offset"] < end]
            counting += rows if number >= oldest else []
        return counting

    def check_footers(self, rows: list[Row]) -> None:
        """Every batch begins and ends at a block, and its footer tells how many records it has."""
        begin, count = 512, 0
        for row in rows:
            if row["kind"] != 11:
                count += 1
                continue
            account = row["parts"][0]
            assert struct.unpack_from("<QII", account) == (row["sequence"], begin, count)
            assert (len(account) - 16) % 24 == 0 and not any(row["body"][len(account) :])
            if row["flags"] & 1:
                begin, count = (row["offset"] + 64 + len(row["body"]) + 7) & ~7, 0
                assert begin % 512 == 0

    def apply(self, row: Row) -> None:
        stream = row["stream"]
        if row["kind"] in (6, 7, 8):
            owner, key, value = row["parts"]
            rows = self.states.setdefault((owner, key), [])
            if row["kind"] != 7:
                rows.clear()
            if row["kind"] != 8:
                rows.append(value)
        if stream not in self.streams:
            return
        messages = self.streams[stream]
        if row["kind"] == 1 and row["sequence"] > self.last[stream]:
            if row["flags"] & 12:
                self.keys[stream].open(row)
            if not row["flags"] & 0x8000:
                messages[row["sequence"]] = row
        elif row["kind"] in (15, 16):
            for message in row["messages"]:
                self.apply(message)
        elif row["kind"] in (2, 5):
            for first, last in runs(row["body"]):
                self.removed[stream].update(range(first, last + 1))
        elif row["kind"] == 3:
            self.first[stream] = max(self.first[stream], row["sequence"])
            self.last[stream] = max(self.last[stream], struct.unpack_from("<Q", row["body"])[0])
        elif row["kind"] == 4:
            self.last[stream] = max(self.last[stream], row["sequence"])


    def consumers(self) -> dict[str, tuple[Row, Row]]:
        """Description and progress by name."""
        found = {}
        for (owner, key), stored in self.states.items():
            if key.startswith(b"consumer/") and stored and owner in self.owners:
                keys = self.keys[self.owners[owner]]
                parts = [keys.blob(part, b"state\0" + key) for part in stored]
                (length,) = struct.unpack_from("<I", parts[0])
                begun = [parts[0][4 + length :], *parts[1:]]
                meta = json.loads(parts[0][4 : 4 + length])
                found[key[9:].decode()] = (meta, consumer_progress(begun))
        return found


def main() -> None:
    decoder = Decoder(Path(sys.argv[1]), sys.argv[2].encode() if len(sys.argv) > 2 else b"")
    decoder.read()
    for stream, messages in decoder.streams.items():
        for sequence, row in messages.items():
            subject, headers, payload = row["parts"]
            print(decoder.names[stream], sequence, row["timestamp"], subject, headers, payload)
    for name, (_, progress) in decoder.consumers().items():
        print("consumer", name, progress)


if __name__ == "__main__":
    main()
