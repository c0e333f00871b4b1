"""Whose a store is, as its log slots and segments tell: their headers name the node, and verify
only with its id."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from headwater.edge.ports import files
from headwater.edge.storage.format.crc import checksum
from headwater.edge.storage.log.log_files import DATA_START, HEADER_COPIES, decode_header
from headwater.edge.storage.segments.segment_files import decode_segment_header

ID_BYTES = 16
LOG_ID_AT = 48
SEGMENT_ID_AT = 32


def ids_in_files(log: Path, streams: Path) -> Iterator[bytes]:
    """The node id of each slot in `log` and each segment below `streams` that has a good header."""
    folders = sorted(streams.iterdir()) if streams.exists() else []
    segments = (path for folder in folders for path in sorted(folder.glob("*.seg")))
    for path in chain(sorted(log.glob("slot-*.log")), segments):
        try:
            fd = files.open_file(path, files.READ_ONLY)
        except OSError:
            continue
        try:
            head, _ = files.read_parts(fd, DATA_START, 0)
        except OSError:
            continue
        finally:
            files.close(fd)
        found = id_of(head)
        if found is not None:
            yield found


def id_of(head: bytes) -> bytes | None:
    """The id in the first bytes of a slot or segment; None when neither copy verifies."""
    for copy in HEADER_COPIES:
        for at in (LOG_ID_AT, SEGMENT_ID_AT):
            node_id = head[copy + at : copy + at + ID_BYTES]
            decode = decode_header if at == LOG_ID_AT else decode_segment_header
            if len(node_id) == ID_BYTES and decode(head, int(checksum(node_id))) is not None:
                return node_id
    return None
