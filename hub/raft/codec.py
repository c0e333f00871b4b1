"""Entries, messages and packets as bytes. Data of entries is never looked at. What is large is not
copied to be encoded: pieces are given, which follow each other.

All numbers are little endian. A packet says its version first; a node refuses one it does not know,
so it is sent one that it knows. Version 2 has the sender's pace, and heartbeats as short rows: with
many groups they are most of what nodes say. Version 3 says with each message of what the group is.
"""

import struct
from collections.abc import Sequence
from itertools import count

from headwater.hub.raft.model.config import decode_config
from headwater.hub.raft.model.entry import Entry, data_of
from headwater.hub.raft.model.message import Kind, Message
from headwater.hub.raft.multi_raft import Packet

VERSION = 3
OLDEST_VERSION = 1
PACKET = struct.Struct("<BQQQQI")
ROWS = struct.Struct("<IH")
"""Behind the head of a packet from version 2 on: number of rows, pace in ms."""
ROWS_VERSION = 2
ROW = struct.Struct("<BQQQQQQ")
TAGGED_VERSION = 3
TAGGED_ROW = struct.Struct("<BQQQQQQQ")
TAG = struct.Struct("<Q")
"""Behind the head of a message from version 3 on."""
REPLY = 4
"""In a row's flags, beside FORCE."""
PACE_MS_MAX = (1 << 16) - 1
ENTRIES = struct.Struct("<QI")
ENTRY = struct.Struct("<QBI")
MESSAGE = struct.Struct("<BBQQQQQQQQQQQQIIIHI")
REJECT = 1
FORCE = 2
CONFIG = 4


def encode_heads(entries: Sequence[Entry]) -> bytes:
    """The begin of a run of entries: first index and heads. Their data follows, end to end."""
    first = entries[0].index if entries else 0
    heads = [ENTRY.pack(entry[0], entry[2], len(entry[3])) for entry in entries]
    return b"".join([ENTRIES.pack(first, len(heads)), *heads])


def encode_datas(entries: Sequence[Entry]) -> bytes:
    """The data of entries, end to end; of one entry its very own."""
    return entries[0].data if len(entries) == 1 else b"".join(map(data_of, entries))


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """A run of entries."""
    return encode_heads(entries) + encode_datas(entries)


def decode_entries(data: bytes | memoryview) -> list[Entry]:
    """What `encode_entries` made. Raises ValueError when it is something else."""
    try:
        first, size = ENTRIES.unpack_from(data)
        start = ENTRIES.size
        at = start + size * ENTRY.size
        entries = []
        for index, position in zip(count(first), range(start, at, ENTRY.size), strict=False):
            term, kind, length = ENTRY.unpack_from(data, position)
            entries.append(Entry(term, index, kind, bytes(data[at : at + length])))
            at += length
    except struct.error as error:
        raise ValueError(f"no entries: {error}") from error
    if at != len(data):
        raise ValueError("no entries: wrong length")
    return entries


def message_pieces(m: Message, version: int = VERSION) -> list[bytes]:
    """One message, without sender and receiver: the packet says those."""
    heads = encode_heads(m.entries) if m.entries else b""
    datas = list(map(data_of, m.entries))
    config = m.config.encode() if m.config is not None else b""
    flags = REJECT * m.reject | FORCE * m.force | CONFIG * (m.config is not None)
    head = MESSAGE.pack(
        m.kind,
        flags,
        m.group,
        m.term,
        m.incarnation,
        m.boot,
        m.to_boot,
        m.index,
        m.log_term,
        m.commit,
        m.hint,
        m.context,
        m.offset,
        m.size,
        m.digest,
        len(heads) + sum(map(len, datas)),
        len(config),
        0,
        len(m.part),
    )
    if version >= TAGGED_VERSION:
        head += TAG.pack(m.tag)
    return [head, heads, *datas, config, m.part]


def decode_message(
    data: bytes | memoryview, at: int, sender: int, to: int, version: int = VERSION
) -> tuple[Message, int]:
    """A message at `at`, and where the next begins. Raises ValueError."""
    try:
        kind, flags, *numbers, entries, config, _, part = MESSAGE.unpack_from(data, at)
        a = at + MESSAGE.size
        tag = 0
        if version >= TAGGED_VERSION:
            (tag,) = TAG.unpack_from(data, a)
            a += TAG.size
    except struct.error as error:
        raise ValueError(f"no message: {error}") from error
    group, term, incarnation, boot, to_boot, index, log_term, commit, hint, *rest = numbers
    context, offset, size, digest = rest
    b = a + entries
    c = b + config
    end = c + part
    if end > len(data):
        raise ValueError("no message: it is cut off")
    m = Message(
        Kind(kind),
        sender,
        to,
        group,
        term,
        incarnation,
        boot,
        to_boot,
        index,
        log_term,
        commit,
        decode_entries(data[a:b]) if entries else [],
        bool(flags & REJECT),
        hint,
        context,
        bool(flags & FORCE),
        offset,
        size,
        digest,
        bytes(data[c:end]),
        decode_config(bytes(data[b:c])) if flags & CONFIG else None,
        tag,
    )
    return m, end


def is_beat(m: Message, boot: int) -> bool:
    """Whether a message has nothing but what a row says."""
    return m.kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_REPLY) and m.boot == boot and not m.reject


def encode_beat(m: Message, version: int) -> bytes:
    """A heartbeat or its answer as a row."""
    flags = REPLY * (m.kind is Kind.HEARTBEAT_REPLY) | FORCE * m.force
    row = (flags, m.group, m.term, m.incarnation, m.to_boot, m.commit, m.context)
    return TAGGED_ROW.pack(*row, m.tag) if version >= TAGGED_VERSION else ROW.pack(*row)


def decode_beats(rows: bytes | memoryview, packet: Packet, tagged: bool) -> None:
    """Take rows into a packet; `tagged`: they say of what their groups are."""
    sender, to, boot = packet.sender, packet.to, packet.boot
    append = packet.messages.append
    for row in (TAGGED_ROW if tagged else ROW).iter_unpack(rows):
        flags, group, term, incarnation, to_boot, commit, context = row[:7]
        m = Message(
            Kind.HEARTBEAT_REPLY if flags & REPLY else Kind.HEARTBEAT,
            sender,
            to,
            group,
            term,
            incarnation,
            boot,
            to_boot,
        )
        m.commit = commit
        m.context = context
        m.force = bool(flags & FORCE)
        m.tag = row[7] if tagged else 0
        append(m)


def packet_pieces(packet: Packet, version: int = VERSION) -> list[bytes]:
    """Everything for one node, in a version that it knows, as pieces that follow each other."""
    numbers = (packet.sender, packet.to, packet.boot, packet.known_boot)
    beats: list[bytes] = []
    others: list[Message] = []
    for m in packet.messages:
        if version >= ROWS_VERSION and is_beat(m, packet.boot):
            beats.append(encode_beat(m, version))
        else:
            others.append(m)
    pieces = [PACKET.pack(version, *numbers, len(others))]
    if version >= ROWS_VERSION:
        pieces.append(ROWS.pack(len(beats), min(packet.pace_ns // 1_000_000, PACE_MS_MAX)))
        pieces.append(b"".join(beats))
    for m in others:
        pieces += message_pieces(m, version)
    return pieces


def encode_packet(packet: Packet, version: int = VERSION) -> bytes:
    """Everything for one node, in a version that it knows."""
    return b"".join(packet_pieces(packet, version))


def decode_packet(data: bytes | memoryview) -> Packet:
    """What `encode_packet` made. Raises ValueError when it is something else."""
    try:
        version, sender, to, boot, known_boot, size = PACKET.unpack_from(data)
    except struct.error as error:
        raise ValueError(f"no packet: {error}") from error
    if not OLDEST_VERSION <= version <= VERSION:
        raise ValueError(f"packets of version {version} are not known")
    packet = Packet(sender, to, boot, known_boot=known_boot)
    at = PACKET.size
    if version >= ROWS_VERSION:
        at = _decode_rows(data, at, packet, version >= TAGGED_VERSION)
    for _ in range(size):
        m, at = decode_message(data, at, sender, to, version)
        packet.messages.append(m)
    if at != len(data):
        raise ValueError("no packet: wrong length")
    return packet


def _decode_rows(data: bytes | memoryview, at: int, packet: Packet, tagged: bool) -> int:
    """Take the pace and the rows at `at`; returns where they end. Raises ValueError."""
    try:
        size: int
        pace_ms: int
        size, pace_ms = ROWS.unpack_from(data, at)
    except struct.error as error:
        raise ValueError(f"no packet: {error}") from error
    at += ROWS.size
    end = at + size * (TAGGED_ROW if tagged else ROW).size
    if end > len(data):
        raise ValueError("no packet: its rows are cut off")
    packet.pace_ns = pace_ms * 1_000_000
    decode_beats(data[at:end], packet, tagged)
    return end
