"""What an entry of a stream's group says: the operations that its leader decided on in one round of
the loop.

    u8 version (1), then operations, each a head of 28 bytes and what follows it:
    u32 bytes that follow   u32 length of a message's header block   u16 length of the first part
    u8 kind   u8 flags   u64 sequence   i64 timestamp

Numbers are little endian. The kinds are in operations.pxd. A replica applies all operations of an
entry or none.
"""

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.headwater.edge.storage.format.record import record_size
from cython.cimports.libc.string import memcpy

from headwater.edge.storage.format.errors import StoreError

KNOWN_VERSION = ENTRY_VERSION
"""The newest version of entries that this program knows, for interpreted callers."""
# Of a record of the log besides what it holds: a seal, and a second copy of the header.
RECORD_MORE = cython.declare(cython.Py_ssize_t, 96)


@cython.cfunc
@cython.exceptval(-1, check=False)
def room_for(data: bytes) -> cython.Py_ssize_t:
    """Bytes that the log needs at most to apply an entry. Raises StoreError when it is none."""
    at: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data))
    left: cython.Py_ssize_t = PyBytes_GET_SIZE(data)
    need: cython.Py_ssize_t = 0
    op: Operation
    if left < 1 or at[0] != ENTRY_VERSION:
        raise StoreError("an entry of the stream is of a version that this node does not know")
    at += 1
    left -= 1
    while left:
        if left < cython.cast(cython.Py_ssize_t, cython.sizeof(Operation)):
            raise StoreError("an entry of the stream is cut off")
        memcpy(cython.address(op), at, cython.sizeof(Operation))
        at += cython.sizeof(Operation)
        left -= cython.sizeof(Operation)
        if (
            op.length > cython.cast(cython.size_t, left)
            or cython.cast(cython.size_t, op.first) + op.header_len > op.length
        ):
            raise StoreError("an entry of the stream is cut off")
        need += 2 * (record_size(op.length) + RECORD_MORE)
        at += op.length
        left -= op.length
    return need


def entry_room(data: bytes) -> int:
    """`room_for` for interpreted callers."""
    return room_for(data)
