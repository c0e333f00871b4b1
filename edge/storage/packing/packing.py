"""Bodies of records that are compressed, sealed, or both; one packer per stream.

A message is packed once, when it is appended, and its record's bytes stay as they are on their way
from the log to segments; so a damaged bit hurts one record, and copying needs no key. Compression
comes before sealing and uses a dictionary that was made from the stream's first messages. What
does not get smaller stays as it is. Layouts are described in docs/STORAGE.md.
"""

import struct
from collections.abc import Callable

import cython
from cython.cimports.cpython.bytes import (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cython.cimports.headwater.edge.kernel.kernel import Msg
from cython.cimports.headwater.edge.storage.format.crc import crc32c
from cython.cimports.headwater.edge.storage.format.record import (
    FLAG_COMPRESSED,
    FLAG_SEALED,
    HEADER_BYTES,
    RecordHeader,
    record_size,
)
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy, memset

from headwater.edge.storage.format.errors import StoreError
from headwater.edge.storage.packing.dictionary_pieces import shared_only
from headwater.security.sealing import DataKey

KEY_NUMBER_BYTES = cython.declare(cython.Py_ssize_t, 4)
TAG_BYTES = cython.declare(cython.Py_ssize_t, 16)
DICTIONARY_NUMBER_BYTES = cython.declare(cython.Py_ssize_t, 4)
# A message this short is never worth compressing.
COMPRESS_MIN = cython.declare(cython.Py_ssize_t, 32)
# What a dictionary is made from: so many messages, or so many bytes of them, if these are enough.
SAMPLES_MAX = cython.declare(cython.Py_ssize_t, 1000)
SAMPLES_MIN = cython.declare(cython.Py_ssize_t, 100)
SAMPLE_BYTES_MAX = cython.declare(cython.Py_ssize_t, 512 << 10)
# Only the begin of a long message is sampled.
SAMPLE_MAX = cython.declare(cython.Py_ssize_t, 4096)
DICTIONARY_BYTES = 16 << 10
# Where so many messages in a row lost less than a sixteenth by it, so many are not compressed.
TRIED = cython.declare(cython.int, 256)
PASSED_OVER = cython.declare(cython.int, 4096)
LEVEL = 1
# An opened message's buffer that is larger than this is not kept.
SCRATCH_KEEP = cython.declare(cython.Py_ssize_t, 65536)
BLOB = struct.Struct("<4sI")
BLOB_MAGIC = b"HWSB"
BLOB_BYTES = cython.declare(cython.Py_ssize_t, 8)


def make_dictionary(samples: list[bytes]) -> bytes:
    """A dictionary for messages like these, of what many of them have; b"" when they have too
    little in common. Takes about 50 ms, without the GIL."""
    import zstandard

    try:
        trained = zstandard.train_dictionary(DICTIONARY_BYTES, samples).as_bytes()
        return shared_only(trained, samples)
    except zstandard.ZstdError:
        return b""


@cython.cclass
class SealKey:
    """A data key with the functions that use it."""

    def __init__(self, key: DataKey, nonce_bytes: int, seal: int, open_: int):
        self.number = key.number
        self.secret = key.secret
        self.nonce_bytes = nonce_bytes
        self.seal = cython.cast(AeadSeal, cython.cast(cython.size_t, seal))
        self.open = cython.cast(AeadOpen, cython.cast(cython.size_t, open_))


@cython.cclass
class Packer:
    """See the module. `salt` are 24 bytes nobody else has; the first eight count on from the time
    that they should begin with."""

    def __init__(self, stream: int, salt: bytes):
        if len(salt) != 24:
            raise ValueError("the salt must have 24 bytes")
        self.stream = stream
        self.keys = {}
        self.expanders = {}
        self.contents = {}
        memcpy(self.nonce, cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(salt)), 24)

    def __dealloc__(self):
        free(self.scratch)

    # What it works with.

    def add_key(self, key: DataKey, newest: bool) -> None:
        """A key that opens; the `newest` one seals from now on. Raises SealingError."""
        from headwater.security.sealing import NONCE_BYTES, functions

        made = SealKey(key, NONCE_BYTES[key.cipher], *functions(key.cipher))
        self.keys[made.number] = made
        if newest:
            self.newest = made
            self.packs = True

    def set_compression(self, on: bool, on_samples: Callable[[list[bytes]], None]) -> None:
        """Compress what is appended from now on. `on_samples` is called once with messages to make
        a dictionary from, when there is none yet."""
        self.compress = on
        self.packs = on or self.newest is not None
        if on and self.compressor is None:
            self.use_dictionary(0, b"")
        self.on_samples = on_samples
        self.sample_bytes = 0
        self.samples = [] if on and self.dictionary == 0 else None

    def use_dictionary(self, number: int, content: bytes) -> None:
        """Compress with a dictionary (0: without one). Raises StoreError when it is none."""
        import zstandard

        options = zstandard.ZstdCompressionParameters.from_level(
            LEVEL,
            source_size=1024,
            format=zstandard.FORMAT_ZSTD1_MAGICLESS,
            write_content_size=True,
            write_checksum=False,
            write_dict_id=False,
        )
        try:
            chosen = zstandard.ZstdCompressionDict(content) if content else None
            if chosen is not None:
                chosen.precompute_compress(compression_params=options)
            made = zstandard.ZstdCompressor(dict_data=chosen, compression_params=options)
        except (zstandard.ZstdError, ValueError) as error:
            raise StoreError(f"not a dictionary: {error}") from error
        self.add_dictionary(number, content)
        self.compressor = made
        self.dictionary = number
        self.tried = 0
        if number:
            self.samples = None

    def add_dictionary(self, number: int, content: bytes) -> None:
        """Be able to read what was compressed with a dictionary (0: without one)."""
        import zstandard

        try:
            chosen = zstandard.ZstdCompressionDict(content) if content else None
            self.expanders[number] = zstandard.ZstdDecompressor(
                dict_data=chosen, format=zstandard.FORMAT_ZSTD1_MAGICLESS
            )
        except (zstandard.ZstdError, ValueError) as error:
            raise StoreError(f"not a dictionary: {error}") from error
        self.contents[number] = content

    def dictionary_content(self, number: int) -> bytes | None:
        """What `use_dictionary` was given; None when there is no such dictionary."""
        return self.contents.get(number)

    def drop_dictionary(self) -> None:
        """Compress without a dictionary until a new one is made; the old ones can be read."""
        if self.compressor is not None:
            self.use_dictionary(0, b"")
        self.sample_bytes = 0
        self.samples = [] if self.compress else None

    def use_like(self, other: Packer) -> None:
        """Compress as another packer of the stream does; samples are not taken."""
        if other.compress:
            self.use_dictionary(other.dictionary, other.contents.get(other.dictionary, b""))
        self.compress = other.compress
        self.packs = other.packs
        self.samples = None

    def forget_older(self, dictionaries: set[int]) -> None:
        """Forget these dictionaries, and every key but the newest."""
        for number in dictionaries:
            self.expanders.pop(number, None)
            self.contents.pop(number, None)
        if self.newest is not None:
            self.keys = {self.newest.number: self.newest}

    # Writing.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def prepare(self, m: cython.pointer(Msg)) -> cython.Py_ssize_t:
        """Compress a message if that helps; returns the length of its body. `fill` follows."""
        length: cython.Py_ssize_t = m.subject_len + m.size
        data: bytes
        self.squeezed = None
        if self.compress and length >= COMPRESS_MIN and self.worth_trying():
            data = PyBytes_FromStringAndSize(cython.NULL, length)
            memcpy(PyBytes_AS_STRING(data), m.subject, m.subject_len)
            memcpy(PyBytes_AS_STRING(data) + m.subject_len, m.body, m.size)
            if self.samples is not None:
                self.keep_sample(m)
            data = self.compressor.compress(data)
            self.tried_bytes += length
            if PyBytes_GET_SIZE(data) + DICTIONARY_NUMBER_BYTES < length:
                self.squeezed = data
                length = PyBytes_GET_SIZE(data) + DICTIONARY_NUMBER_BYTES
            self.kept_bytes += length
        if self.newest is not None:
            length += KEY_NUMBER_BYTES + self.newest.nonce_bytes + TAG_BYTES
        return length

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def worth_trying(self) -> cython.bint:
        """Whether to compress the next message: no, for a while, when it did not help of late,
        and no dictionary is on its way that may help."""
        settled: cython.bint = self.dictionary != 0 or self.on_samples is None
        self.tried += 1
        if self.tried < TRIED:
            return self.tried > 0
        self.tried = 0
        if settled and self.tried_bytes - self.kept_bytes < self.tried_bytes >> 4:
            self.tried = -PASSED_OVER
        self.tried_bytes = self.kept_bytes = 0
        return self.tried == 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def keep_sample(self, m: cython.pointer(Msg)) -> cython.int:
        """Keep a message for the dictionary; when there are enough, have one made."""
        n: cython.Py_ssize_t = min(m.size, SAMPLE_MAX)
        text: bytes = PyBytes_FromStringAndSize(
            cython.cast(cython.p_const_char, m.subject), m.subject_len
        ) + PyBytes_FromStringAndSize(cython.cast(cython.p_const_char, m.body), n)
        samples: list = self.samples
        samples.append(text)
        self.sample_bytes += len(text)
        if len(samples) >= SAMPLES_MAX or (
            self.sample_bytes >= SAMPLE_BYTES_MAX and len(samples) >= SAMPLES_MIN
        ):
            self.samples = None
            self.on_samples(samples)
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fill(self, header: cython.pointer(RecordHeader), m: cython.pointer(Msg)) -> cython.int:
        """Put the body prepared behind `header`, of which everything that describes the message
        is set, the body's length included. Sets flags."""
        body: cython.p_uchar = cython.cast(cython.p_uchar, header) + HEADER_BYTES
        at: cython.p_uchar = body
        sealed: cython.ulonglong = 0
        length: cython.Py_ssize_t
        bound: Bound
        key: SealKey = self.newest
        if key is not None:
            at += KEY_NUMBER_BYTES + key.nonce_bytes
        if self.squeezed is not None:
            header.flags |= FLAG_COMPRESSED
            memcpy(at, cython.address(self.dictionary), DICTIONARY_NUMBER_BYTES)
            length = PyBytes_GET_SIZE(self.squeezed)
            memcpy(at + DICTIONARY_NUMBER_BYTES, PyBytes_AS_STRING(self.squeezed), length)
            length += DICTIONARY_NUMBER_BYTES
            self.squeezed = None
        else:
            memcpy(at, m.subject, m.subject_len)
            memcpy(at + m.subject_len, m.body, m.size)
            length = m.subject_len + m.size
        if key is None:
            return 0
        header.flags |= FLAG_SEALED
        self.next_nonce()
        memcpy(body, cython.address(key.number), KEY_NUMBER_BYTES)
        memcpy(body + KEY_NUMBER_BYTES, self.nonce, key.nonce_bytes)
        bind(cython.address(bound), header)
        if key.seal(
            at,
            cython.address(sealed),
            at,
            length,
            cython.cast(cython.p_const_uchar, cython.address(bound)),
            cython.sizeof(Bound),
            cython.NULL,
            self.nonce,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key.secret)),
        ):
            raise StoreError("a message cannot be sealed")
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def next_nonce(self) -> cython.int:
        """Count the first eight bytes on."""
        count: cython.ulonglong
        memcpy(cython.address(count), self.nonce, 8)
        count += 1
        memcpy(self.nonce, cython.address(count), 8)
        return 0

    # Reading.

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def open(self, record: cython.p_const_uchar) -> cython.int:
        """Set `plain` and `plain_length`, valid until the next call; 0 when it does not open. The
        record's header was verified, and it is sealed or compressed."""
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), record)
        body: cython.p_const_uchar = record + HEADER_BYTES
        length: cython.Py_ssize_t = header.length
        before: cython.Py_ssize_t
        number: cython.uint = 0
        opened: cython.ulonglong = 0
        key: SealKey
        bound: Bound
        if header.flags & FLAG_SEALED:
            if length < KEY_NUMBER_BYTES:
                return 0
            memcpy(cython.address(number), body, KEY_NUMBER_BYTES)
            key = self.keys.get(number)
            if key is None:
                return 0
            before = KEY_NUMBER_BYTES + key.nonce_bytes
            if length < before + TAG_BYTES:
                return 0
            self.room(length)
            bind(cython.address(bound), header)
            if key.open(
                self.scratch,
                cython.address(opened),
                cython.NULL,
                body + before,
                length - before,
                cython.cast(cython.p_const_uchar, cython.address(bound)),
                cython.sizeof(Bound),
                body + KEY_NUMBER_BYTES,
                cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key.secret)),
            ):
                return 0
            body = self.scratch
            length = cython.cast(cython.Py_ssize_t, opened)
        if header.flags & FLAG_COMPRESSED:
            if not self.expand(body, length):
                return 0
        else:
            self.plain = body
            self.plain_length = length
        return (
            cython.cast(cython.longlong, header.subject_len) + header.header_len
            <= self.plain_length
        )

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def expand(self, data: cython.p_const_uchar, length: cython.Py_ssize_t) -> cython.int:
        """Undo compression; 0 when the dictionary is not there, or nothing sensible comes out."""
        number: cython.uint = 0
        if length < DICTIONARY_NUMBER_BYTES:
            return 0
        memcpy(cython.address(number), data, DICTIONARY_NUMBER_BYTES)
        if number == 0 and 0 not in self.expanders:
            self.add_dictionary(0, b"")
        expander = self.expanders.get(number)
        if expander is None:
            return 0
        try:
            self.expanded = expander.decompress(
                PyBytes_FromStringAndSize(
                    cython.cast(cython.p_const_char, data) + DICTIONARY_NUMBER_BYTES,
                    length - DICTIONARY_NUMBER_BYTES,
                )
            )
        except MemoryError:
            raise
        except Exception:
            return 0
        self.plain = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(self.expanded))
        self.plain_length = PyBytes_GET_SIZE(self.expanded)
        return 1

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def room(self, length: cython.Py_ssize_t) -> cython.int:
        """Have a buffer of at least `length` bytes."""
        want: cython.Py_ssize_t = max(length, 1024)
        if length > self.scratch_bytes or (
            self.scratch_bytes > SCRATCH_KEEP and length <= SCRATCH_KEEP
        ):
            free(self.scratch)
            self.scratch_bytes = 0
            self.scratch = cython.cast(cython.p_uchar, malloc(want))
            if self.scratch == cython.NULL:
                raise MemoryError
            self.scratch_bytes = want
        return 0

    def wipe(self) -> None:
        """Forget the message that was opened last."""
        if self.scratch != cython.NULL:
            memset(self.scratch, 0, self.scratch_bytes)
        self.expanded = None

    def plain_of(self, record: bytes) -> bytes | None:
        """Subject, headers and payload of a whole record; None when it does not open."""
        if len(record) < HEADER_BYTES or not self.open(
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(record))
        ):
            return None
        return PyBytes_FromStringAndSize(
            cython.cast(cython.p_const_char, self.plain), self.plain_length
        )

    def repack(self, record: bytes) -> bytes:
        """A whole verified record of a message as it would be written now, but for its place; as
        it is when it does not open, which is counted."""
        old: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(record))
        header: cython.pointer(RecordHeader) = cython.cast(cython.pointer(RecordHeader), old)
        made: cython.pointer(RecordHeader)
        result: bytes
        m: Msg
        length: cython.Py_ssize_t = header.length
        memset(cython.address(m), 0, cython.sizeof(Msg))
        m.subject = old + HEADER_BYTES
        if header.flags & (FLAG_SEALED | FLAG_COMPRESSED):
            if not self.open(old):
                self.unopened += 1
                return record
            m.subject = self.plain
            length = self.plain_length
        m.subject_len = header.subject_len
        m.body = m.subject + m.subject_len
        m.header_len = header.header_len
        m.size = length - m.subject_len
        length = self.prepare(cython.address(m))
        result = PyBytes_FromStringAndSize(cython.NULL, record_size(length))
        memset(PyBytes_AS_STRING(result), 0, record_size(length))
        made = cython.cast(cython.pointer(RecordHeader), PyBytes_AS_STRING(result))
        memcpy(made, header, HEADER_BYTES)
        made.flags &= ~(FLAG_SEALED | FLAG_COMPRESSED)
        made.length = cython.cast(cython.uint, length)
        self.fill(made, cython.address(m))
        made.body_crc = crc32c(0, cython.cast(cython.p_const_uchar, made) + HEADER_BYTES, length)
        return result

    # Other content of the stream.

    def seal_blob(self, content: bytes, purpose: bytes) -> bytes:
        """Seal a whole file's content if this stream is sealed; `purpose` says what it is."""
        sealed: cython.ulonglong = 0
        at: cython.p_uchar
        result: bytes
        ad: bytes = self.blob_context(purpose)
        key: SealKey = self.newest
        if key is None:
            return content
        self.next_nonce()
        head: bytes = (
            BLOB.pack(BLOB_MAGIC, key.number)
            + cython.cast(cython.p_char, self.nonce)[: key.nonce_bytes]
        )
        result = PyBytes_FromStringAndSize(cython.NULL, len(head) + len(content) + TAG_BYTES)
        at = cython.cast(cython.p_uchar, PyBytes_AS_STRING(result))
        memcpy(at, PyBytes_AS_STRING(head), len(head))
        if key.seal(
            at + len(head),
            cython.address(sealed),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(content)),
            len(content),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(ad)),
            len(ad),
            cython.NULL,
            self.nonce,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key.secret)),
        ):
            raise StoreError("it cannot be sealed")
        return result

    def open_blob(self, data: bytes, purpose: bytes) -> bytes | None:
        """Content that `seal_blob` returned; None when it does not open. What was never sealed is
        returned as it is."""
        opened: cython.ulonglong = 0
        result: bytes
        ad: bytes = self.blob_context(purpose)
        key: SealKey
        start: cython.Py_ssize_t
        if data[:4] != BLOB_MAGIC:
            return data
        if len(data) < BLOB_BYTES:
            return None
        key = self.keys.get(BLOB.unpack_from(data)[1])
        if key is None:
            return None
        start = BLOB_BYTES + key.nonce_bytes
        if len(data) < start + TAG_BYTES:
            return None
        result = PyBytes_FromStringAndSize(cython.NULL, len(data) - start - TAG_BYTES)
        if key.open(
            cython.cast(cython.p_uchar, PyBytes_AS_STRING(result)),
            cython.address(opened),
            cython.NULL,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)) + start,
            len(data) - start,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(ad)),
            len(ad),
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)) + BLOB_BYTES,
            cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(key.secret)),
        ):
            return None
        return result

    def blob_context(self, purpose: bytes) -> bytes:
        return purpose + struct.pack("<Q", self.stream)


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bind(bound: cython.pointer(Bound), header: cython.pointer(RecordHeader)) -> cython.void:
    """What stands in a header and must not be exchanged."""
    bound.flags = header.flags & (FLAG_SEALED | FLAG_COMPRESSED)
    bound.length = header.length
    bound.subject_len = header.subject_len
    bound.header_len = header.header_len
    bound.sequence = header.sequence
    bound.timestamp = header.timestamp
    bound.stream = header.stream
