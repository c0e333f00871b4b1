"""Block reads, as a client sees them: the request, whether a server knows it, and the blocks.

The format is that of `edge/jetstream/read/block_transfer.py`. The parts of a block are Arrow
buffers and are used where they are.
"""

import json
import struct
import time
from dataclasses import dataclass
from typing import Any

from headwater.spark.errors import AuthError
from headwater.spark.options import SourceOptions
from headwater.spark.wire.connection import Connection
from headwater.spark.wire.errors import WireError
from headwater.spark.wire.wire_reader import (
    HEADERS_MAP,
    HEADERS_OFF,
    PAYLOAD_ARROW,
    PAYLOAD_LIST,
    PAYLOAD_OFF,
    Columns,
    WireReader,
    cut_texts,
    is_ascii,
)

#: Filters that one request may have; with more, consumers are used.
FILTERS_MAX = 32

_HEAD = struct.Struct("<4sIIIQ8x")
_MAGIC = b"HWB1"
_LAST = 1


@dataclass(frozen=True)
class Wanted:
    """Which columns are kept, and how; see `WireReader`."""

    subject: bool = True
    payload: int = PAYLOAD_ARROW
    headers: int = HEADERS_OFF

    @property
    def names(self) -> list[str]:
        """The columns as a request calls them."""
        return [
            name
            for name, kept in (
                ("subject", self.subject),
                ("payload", self.payload != PAYLOAD_OFF),
                ("headers", self.headers != HEADERS_OFF),
            )
            if kept
        ]


def block_request(
    options: SourceOptions, stream: str, start: int, end: int
) -> tuple[str, dict[str, Any]]:
    """Subject and body of a request. A single filter is in the subject, as with consumers, so
    that rights can be bound to it."""
    subject = f"{options.api_prefix}.BLOCK.GET.{stream}"
    body: dict[str, Any] = {"seq": start, "end": end}
    if len(options.filters) == 1:
        subject += f".{options.filters[0]}"
    if options.filters:
        body["filters"] = list(options.filters)
    return subject, body


def serves_blocks(connection: Connection, options: SourceOptions, stream: str) -> bool:
    """Whether the stream can be read in blocks, by this user and with these filters.

    A server that knows nothing of blocks does not answer at all. A stream's INFO is asked for
    beside it, twice: a block would have come before the second one.
    """
    if len(options.filters) > FILTERS_MAX:
        return False
    subject, body = block_request(options, stream, 1, 1)
    reply = f"{connection.inbox}.p"
    connection.publish(subject, json.dumps(body | {"max_bytes": 1}).encode(), reply)
    info = f"{options.api_prefix}.STREAM.INFO.{stream}"
    marks = [f"{connection.inbox}.{name}" for name in ("p1", "p2")]
    connection.publish(info, b"", marks[0])
    deadline = time.monotonic() + options.endpoint.request_timeout
    while True:
        frame = connection.next_frame(deadline)
        try:
            if connection.control(frame):
                continue
        except AuthError:
            # Whoever may not read blocks may still read by a consumer.
            continue
        if frame.subject == reply:
            return not frame.headers and frame.payload.startswith(_MAGIC)
        if frame.subject == marks[0]:
            connection.publish(info, b"", marks[1])
        elif frame.subject == marks[1]:
            return False


def read_block(block: bytes, wanted: Wanted, maps: WireReader) -> tuple[Columns, int, bool]:
    """Columns, the sequence at which to go on, and whether the answer ends. Raises WireError."""
    if len(block) < _HEAD.size:
        raise WireError("a block is too short")
    magic, bits, rows, flags, following = _HEAD.unpack_from(block)
    if magic != _MAGIC:
        raise WireError("a block of an unknown kind")
    parts = _Parts(block, rows)
    sequence, times = parts.fixed(), parts.fixed()
    texts = [parts.text() if bits & bit else (None, None) for bit in (1, 2, 4)]
    subjects, payloads, headers = texts
    pairs, offsets = 0, headers[0]
    keys: list[Any] = [None] * 4
    if wanted.headers == HEADERS_MAP and rows:
        for text in parts.cut(headers):
            maps.add_headers(text)
        pairs, offsets, *keys = maps.drain_maps()
    columns = Columns(
        rows=rows,
        sequence=sequence,
        timestamp=times,
        subject_offsets=subjects[0],
        subject_data=subjects[1],
        payload_offsets=payloads[0],
        payload_data=payloads[1],
        payloads=parts.cut(payloads) if wanted.payload == PAYLOAD_LIST else None,
        header_offsets=offsets,
        header_data=headers[1],
        pairs=pairs,
        key_offsets=keys[0],
        key_data=keys[1],
        value_offsets=keys[2],
        value_data=keys[3],
    )
    if wanted.subject and subjects[1] and not parts.is_ascii(subjects):
        columns = _clean_subjects(columns, parts.cut(subjects))
    return columns, following, bool(flags & _LAST)


class _Parts:
    """The parts of a block, one after the other, each as (memory, size)."""

    def __init__(self, block: bytes, rows: int) -> None:
        self._block = block
        self._view = memoryview(block)
        self._rows = rows
        self._at = _HEAD.size
        self._text_at: dict[int, tuple[int, int]] = {}

    def fixed(self) -> tuple[Any, int]:
        """A column of 8 bytes a row."""
        return self._part(8 * self._rows)

    def text(self) -> tuple[tuple[Any, int], tuple[Any, int]]:
        """Offsets and bytes of a column of texts."""
        at = self._at
        offsets = self._part(4 * (self._rows + 1))
        size = int.from_bytes(offsets[0][-4:], "little", signed=True)
        data_at = self._at
        data = self._part(size)
        self._text_at[id(offsets)] = (at, data_at)
        return offsets, data

    def cut(self, text: tuple[Any, Any]) -> list[bytes]:
        """A column of texts as a list."""
        return cut_texts(self._block, *self._text_at[id(text[0])], self._rows)

    def is_ascii(self, text: tuple[Any, Any]) -> bool:
        """Whether all texts of a column are ASCII."""
        _, data_at = self._text_at[id(text[0])]
        return bool(is_ascii(self._block, data_at, data_at + text[1][1]))

    def _part(self, size: int) -> tuple[Any, int]:
        end = self._at + size
        if size < 0 or end > len(self._block):
            raise WireError("a block is shorter than its columns")
        part = self._view[self._at : end], size
        self._at = end + (-end % 8)
        return part


def _clean_subjects(columns: Columns, subjects: list[bytes]) -> Columns:
    """Subjects as UTF-8; bytes that are not UTF-8 become U+FFFD."""
    clean = [subject.decode("utf-8", "replace").encode() for subject in subjects]
    ends = [0]
    for subject in clean:
        ends.append(ends[-1] + len(subject))
    offsets = struct.pack(f"<{len(ends)}i", *ends)
    data = b"".join(clean)
    return columns._replace(subject_offsets=(offsets, len(offsets)), subject_data=(data, len(data)))
