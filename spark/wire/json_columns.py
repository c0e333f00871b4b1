"""JSON texts to Arrow columns: the wanted fields of many texts, without a Python object each.

Compiled. It takes the common texts, and only where there is no doubt about their meaning:
objects that are JSON (RFC 8259), whose wanted fields have their type and no escapes, and come once.
Every other text is left to the caller, whose parser decides what it means; its row is null
in each column until then. So there are no two opinions about what a text says.

A reader of telemetry sees texts whose fields come in one order and spacing. What stood
before the n-th value of the last object is therefore compared first, and read only if it differs.
"""

import cython
from cython.cimports.cpython.buffer import (
    PyBUF_SIMPLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cython.cimports.cpython.bytearray import (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cython.cimports.cpython.bytes import PyBytes_AS_STRING
from cython.cimports.headwater.spark.wire.json_scan import (
    Number,
    double_of,
    number_end,
    same,
    skip_space,
    string_end,
)
from cython.cimports.headwater.spark.wire.json_times import read_date, read_time
from cython.cimports.libc.stdint import int8_t, int16_t, int32_t, int64_t
from cython.cimports.libc.stdlib import calloc, free
from cython.cimports.libc.string import memcpy, memset

from headwater.spark.wire.errors import WireError

OBJECT, TEXT, INT8, INT16, INT32, INT64, DOUBLE, FLOAT, BOOLEAN, TIME, DATE = range(11)
"""Kinds of fields. TIME is RFC 3339 as microseconds since 1970 (int64), DATE days since then
(int32)."""

_OBJECT = cython.declare(cython.int, 0)
_TEXT = cython.declare(cython.int, 1)
_INT8 = cython.declare(cython.int, 2)
_INT16 = cython.declare(cython.int, 3)
_INT32 = cython.declare(cython.int, 4)
_INT64 = cython.declare(cython.int, 5)
_DOUBLE = cython.declare(cython.int, 6)
_FLOAT = cython.declare(cython.int, 7)
_BOOLEAN = cython.declare(cython.int, 8)
_TIME = cython.declare(cython.int, 9)

#: Fields of an object whose place is remembered.
CELLS = 64
_CELLS = cython.declare(cython.int, CELLS)
#: How deep a value that is not wanted may be nested.
DEPTH_MAX = 48
_DEPTH_MAX = cython.declare(cython.int, DEPTH_MAX)
#: Fields in all, with those in objects.
FIELDS_MAX = 4096
#: Digits that fit 64 bits whatever they are.
_DIGITS = cython.declare(cython.int, 18)
_MAX_TEXTS = cython.declare(cython.Py_ssize_t, (1 << 31) - 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _width(kind: cython.int) -> cython.Py_ssize_t:
    """Bytes of a value; 0 for kinds that have no fixed number of bytes."""
    if kind == _INT64 or kind == _DOUBLE or kind == _TIME:
        return 8
    if kind == _INT8:
        return 1
    if kind == _INT16:
        return 2
    return 0 if kind == _OBJECT or kind == _TEXT or kind == _BOOLEAN else 4


@cython.cfunc
@cython.exceptval(check=False)
def _skip(at: cython.p_const_char, end: cython.p_const_char) -> cython.p_const_char:
    """Behind the value at `at`, which must be JSON without escapes of code points."""
    number: Number
    open_: cython.char[48]
    depth: cython.int = 0
    after: cython.bint = False
    while at < end:
        # A value begins here, unless an object or a list has just ended.
        if not after:
            if at[0] == 34:
                at = string_end(at + 1, end, True)
                if at == cython.NULL:
                    return cython.NULL
                at += 1
            elif at[0] == 123 or at[0] == 91:
                if depth == _DEPTH_MAX:
                    return cython.NULL
                open_[depth] = at[0]
                depth += 1
                at = skip_space(at + 1, end)
                if at >= end:
                    return cython.NULL
                if at[0] != open_[depth - 1] + 2:
                    if open_[depth - 1] == 123:
                        at = _skip_name(at, end)
                        if at == cython.NULL:
                            return cython.NULL
                    continue
                at += 1
                depth -= 1
            elif at[0] == 116 or at[0] == 102 or at[0] == 110:
                at = _skip_word(at, end)
                if at == cython.NULL:
                    return cython.NULL
            else:
                at = number_end(at, end, cython.address(number))
                if at == cython.NULL:
                    return cython.NULL
        if depth == 0:
            return at
        at = skip_space(at, end)
        if at >= end:
            return cython.NULL
        after = at[0] == open_[depth - 1] + 2
        if after:
            depth -= 1
            at += 1
            continue
        if at[0] != 44:
            return cython.NULL
        at = skip_space(at + 1, end)
        if open_[depth - 1] == 123:
            at = _skip_name(at, end)
            if at == cython.NULL:
                return cython.NULL
    return at if after and depth == 0 else cython.NULL


@cython.cfunc
@cython.exceptval(check=False)
def _skip_name(at: cython.p_const_char, end: cython.p_const_char) -> cython.p_const_char:
    """From a field's name to its value."""
    if at >= end or at[0] != 34:
        return cython.NULL
    at = string_end(at + 1, end, True)
    if at == cython.NULL:
        return cython.NULL
    at = skip_space(at + 1, end)
    if at >= end or at[0] != 58:
        return cython.NULL
    return skip_space(at + 1, end)


@cython.cfunc
@cython.exceptval(check=False)
def _skip_word(at: cython.p_const_char, end: cython.p_const_char) -> cython.p_const_char:
    """Behind true, false or null."""
    if end - at >= 4 and (same(at, b"true", 4) or same(at, b"null", 4)):
        return at + 4
    if end - at >= 5 and same(at, b"false", 5):
        return at + 5
    return cython.NULL


@cython.final
@cython.cclass
class JsonColumns:
    """Columns of wanted fields, filled batch by batch.

    `fields` lists them as (name in UTF-8, kind, their own fields); only OBJECT has any.
    """

    def __init__(self, fields: list):
        self.names = []
        self.values = []
        self.valid = []
        self.ends = []
        self.text = 0
        todo: list = [(b"", OBJECT, fields)]
        for _, _, inner in todo:
            todo += inner
            if len(todo) > FIELDS_MAX:
                raise ValueError(f"there are more than {FIELDS_MAX} fields")
        self.count = len(todo)
        self.fields = cython.cast(cython.pointer(Field), calloc(len(todo), cython.sizeof(Field)))
        if self.fields == cython.NULL:
            raise MemoryError()
        following: cython.int = 1
        i: cython.int
        for i in range(self.count):
            self.names.append(todo[i][0])
            self.values.append(None)
            self.valid.append(None)
            self.ends.append(None)
            name: bytes = todo[i][0]
            one: cython.pointer(Field) = self.fields + i
            one.name = PyBytes_AS_STRING(name)
            one.name_size = len(name)
            one.kind = todo[i][1]
            one.first = one.guess = following
            one.count = len(todo[i][2])
            following += one.count
            if one.kind == _OBJECT:
                one.cells = cython.cast(cython.pointer(Cell), calloc(CELLS, cython.sizeof(Cell)))
                if one.cells == cython.NULL:
                    raise MemoryError()

    def __dealloc__(self):
        i: cython.int
        if self.fields != cython.NULL:
            for i in range(self.count):
                free(self.fields[i].cells)
            free(self.fields)

    def read(self, offsets: object, data: object, rows: cython.Py_ssize_t) -> list:
        """Make a batch of `rows` texts; the numbers of those that were left to the caller.

        The texts are an Arrow column: int32 offsets and bytes. Raises WireError when an offset
        points outside, and for a column of 2 GiB.
        """
        places: Py_buffer
        bytes_: Py_buffer
        PyObject_GetBuffer(offsets, cython.address(places), PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(data, cython.address(bytes_), PyBUF_SIMPLE)
            try:
                if rows < 0 or places.len // 4 <= rows:
                    raise WireError("a block is too short for its column")
                return self.read_all(
                    cython.cast(cython.p_const_char, places.buf),
                    cython.cast(cython.p_const_char, bytes_.buf),
                    bytes_.len,
                    rows,
                )
            finally:
                PyBuffer_Release(cython.address(bytes_))
        finally:
            PyBuffer_Release(cython.address(places))

    @cython.cfunc
    def read_all(
        self,
        offsets: cython.p_const_char,
        data: cython.p_const_char,
        size: cython.Py_ssize_t,
        rows: cython.Py_ssize_t,
    ) -> list:
        left: list = []
        start: int32_t = 0
        stop: int32_t = 0
        row: cython.Py_ssize_t
        self.begin(rows)
        memcpy(cython.address(start), offsets, 4)
        for row in range(rows):
            memcpy(cython.address(stop), offsets + 4 * (row + 1), 4)
            if start < 0 or stop < start or stop > size:
                raise WireError("an offset of a block points outside")
            self.row = row
            end: cython.p_const_char = data + stop
            while True:
                self.text += 1
                at: cython.p_const_char = self.read_object(0, data + start, end)
                if self.lacking == 0:
                    break
                self.take_back()
                self.grow(self.lacking, stop - start)
                self.lacking = 0
            if at == cython.NULL or skip_space(at, end) != end:
                self.take_back()
                self.put_null(0)
                left.append(row)
            start = stop
        return left

    def column(self, place: cython.int) -> tuple:
        """Of field `place` in this batch: its values, its ends and its validity bits, each None
        where there are none. Fields are numbered as they are listed, level by level, from 1."""
        if not 0 <= place < self.count:
            raise IndexError(place)
        one: cython.pointer(Field) = self.fields + place
        values: object = self.values[place]
        if one.kind == _TEXT:
            values = memoryview(values)[: one.used]
        return values, self.ends[place], self.valid[place] if one.has_null else None

    @cython.cfunc
    @cython.exceptval(-1)
    def begin(self, rows: cython.Py_ssize_t) -> cython.int:
        """New columns for so many rows."""
        i: cython.int
        bits: cython.Py_ssize_t = (rows + 7) // 8
        for i in range(self.count):
            one: cython.pointer(Field) = self.fields + i
            valid: bytearray = PyByteArray_FromStringAndSize(cython.NULL, bits)
            one.valid = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(valid))
            memset(one.valid, 255, bits)
            self.valid[i] = valid
            one.has_null = False
            if one.kind == _OBJECT:
                continue
            size: cython.Py_ssize_t = bits if one.kind == _BOOLEAN else rows * _width(one.kind)
            if one.kind == _TEXT:
                # The next batch likely needs what the one before needed.
                size = max(1024, one.used + (one.used >> 3))
                ends: bytearray = PyByteArray_FromStringAndSize(cython.NULL, 4 * (rows + 1))
                one.ends = cython.cast(cython.pointer(int32_t), PyByteArray_AS_STRING(ends))
                one.ends[0] = 0
                self.ends[i] = ends
                one.used = 0
                one.capacity = size
            values: bytearray = PyByteArray_FromStringAndSize(cython.NULL, size)
            one.values = PyByteArray_AS_STRING(values)
            if one.kind == _BOOLEAN:
                memset(one.values, 0, size)
            self.values[i] = values
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def grow(self, place: cython.int, size: cython.Py_ssize_t) -> cython.int:
        """Make room for a text of `size` bytes."""
        one: cython.pointer(Field) = self.fields + place
        need: cython.Py_ssize_t = max(2 * one.capacity, one.used + size)
        if need > _MAX_TEXTS:
            need = _MAX_TEXTS
        if one.used + size > need:
            raise WireError("a batch column would pass 2 GiB")
        values: bytearray = self.values[place]
        PyByteArray_Resize(values, need)
        one.values = PyByteArray_AS_STRING(values)
        one.capacity = need
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def put_null(self, place: cython.int) -> cython.void:
        """No value in this row, nor in the fields of an object."""
        one: cython.pointer(Field) = self.fields + place
        width: cython.Py_ssize_t = _width(one.kind)
        one.has_null = True
        one.valid[self.row >> 3] &= ~cython.cast(cython.uchar, 1 << (self.row & 7))
        if one.kind == _TEXT:
            one.ends[self.row + 1] = cython.cast(int32_t, one.used)
        elif one.kind == _OBJECT:
            i: cython.int
            for i in range(one.first, one.first + one.count):
                self.put_null(i)
        elif width:
            memset(one.values + width * self.row, 0, width)

    @cython.cfunc
    @cython.exceptval(check=False)
    def take_back(self) -> cython.void:
        """Forget what this row has in columns of texts."""
        i: cython.int
        for i in range(self.count):
            one: cython.pointer(Field) = self.fields + i
            if one.kind == _TEXT:
                one.used = one.ends[self.row]

    @cython.cfunc
    @cython.exceptval(check=False)
    def find(
        self, place: cython.int, name: cython.p_const_char, size: cython.Py_ssize_t
    ) -> cython.int:
        """The field of object `place` with this name, -1 for none."""
        whole: cython.pointer(Field) = self.fields + place
        at: cython.int = whole.guess
        _: cython.int
        for _ in range(whole.count):
            if at >= whole.first + whole.count:
                at = whole.first
            one: cython.pointer(Field) = self.fields + at
            if one.name_size == size and same(one.name, name, size):
                whole.guess = at + 1
                return at
            at += 1
        return -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def member(
        self,
        place: cython.int,
        number: cython.int,
        at: cython.p_const_char,
        end: cython.p_const_char,
        target: cython.pointer(cython.int),
    ) -> cython.p_const_char:
        """From behind the value before to the next value; a bracket when the object ends."""
        whole: cython.pointer(Field) = self.fields + place
        first: cython.p_const_char = at
        if number > 0:
            at = skip_space(at, end)
            if at < end and at[0] == 125:
                return at
            if at >= end or at[0] != 44:
                return cython.NULL
            at += 1
        at = skip_space(at, end)
        if at < end and at[0] == 125 and number == 0:
            return at
        if at >= end or at[0] != 34:
            return cython.NULL
        name: cython.p_const_char = at + 1
        at = string_end(name, end, False)
        if at == cython.NULL:
            return cython.NULL
        target[0] = self.find(place, name, at - name)
        at = skip_space(at + 1, end)
        if at >= end or at[0] != 58:
            return cython.NULL
        at = skip_space(at + 1, end)
        if number < _CELLS and at - first <= CELL_TEXT:
            cell: cython.pointer(Cell) = whole.cells + number
            memcpy(cell.text, first, at - first)
            cell.size = at - first
            cell.target = target[0]
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_object(
        self, place: cython.int, at: cython.p_const_char, end: cython.p_const_char
    ) -> cython.p_const_char:
        """Behind the object at `at`, NULL when it is left to the caller."""
        whole: cython.pointer(Field) = self.fields + place
        number: cython.int = 0
        found: cython.int = 0
        target: cython.int = -1
        at = skip_space(at, end)
        if at >= end or at[0] != 123:
            return cython.NULL
        at += 1
        while True:
            cell: cython.pointer(Cell) = whole.cells + number
            if (
                number < _CELLS
                and cell.size > 0
                and end - at > cell.size
                and same(at, cell.text, cell.size)
            ):
                at += cell.size
                target = cell.target
            else:
                at = self.member(place, number, at, end, cython.address(target))
                if at == cython.NULL:
                    return cython.NULL
                if at < end and at[0] == 125:
                    break
            if target < 0:
                at = _skip(at, end)
            else:
                one: cython.pointer(Field) = self.fields + target
                if one.filled == self.text:
                    return cython.NULL
                one.filled = self.text
                found += 1
                at = self.read_value(target, at, end)
            if at == cython.NULL:
                return cython.NULL
            if at < end and at[0] == 125:
                break
            number += 1
        if found < whole.count:
            i: cython.int
            for i in range(whole.first, whole.first + whole.count):
                if self.fields[i].filled != self.text:
                    self.put_null(i)
        return at + 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_value(
        self, place: cython.int, at: cython.p_const_char, end: cython.p_const_char
    ) -> cython.p_const_char:
        """Behind the value of a field, NULL when it is left to the caller."""
        one: cython.pointer(Field) = self.fields + place
        if at >= end:
            return cython.NULL
        if at[0] == 110:
            if end - at < 4 or not same(at, b"null", 4):
                return cython.NULL
            self.put_null(place)
            return at + 4
        if one.kind == _TEXT or one.kind >= _TIME:
            return self.read_text(place, at, end) if at[0] == 34 else cython.NULL
        if one.kind == _OBJECT:
            return self.read_object(place, at, end)
        if one.kind != _BOOLEAN:
            return self.read_number(place, at, end)
        if end - at >= 4 and same(at, b"true", 4):
            cython.cast(cython.p_uchar, one.values)[self.row >> 3] |= cython.cast(
                cython.uchar, 1 << (self.row & 7)
            )
            return at + 4
        return at + 5 if end - at >= 5 and same(at, b"false", 5) else cython.NULL

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_text(
        self, place: cython.int, at: cython.p_const_char, end: cython.p_const_char
    ) -> cython.p_const_char:
        """A string, a time or a date."""
        one: cython.pointer(Field) = self.fields + place
        time: int64_t = 0
        day: int32_t = 0
        at += 1
        stop: cython.p_const_char = string_end(at, end, False)
        if stop == cython.NULL:
            return cython.NULL
        size: cython.Py_ssize_t = stop - at
        if one.kind == _TEXT:
            if size > one.capacity - one.used:
                self.lacking = place
                return cython.NULL
            memcpy(one.values + one.used, at, size)
            one.used += size
            one.ends[self.row + 1] = cython.cast(int32_t, one.used)
        elif one.kind == _TIME:
            if not read_time(at, size, cython.address(time)):
                return cython.NULL
            cython.cast(cython.pointer(int64_t), one.values)[self.row] = time
        else:
            if not read_date(at, size, cython.address(day)):
                return cython.NULL
            cython.cast(cython.pointer(int32_t), one.values)[self.row] = day
        return stop + 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def read_number(
        self, place: cython.int, at: cython.p_const_char, end: cython.p_const_char
    ) -> cython.p_const_char:
        """A number, which must fit its type. Minus zero is left to the caller."""
        one: cython.pointer(Field) = self.fields + place
        number: Number
        value: cython.double = 0.0
        stop: cython.p_const_char = number_end(at, end, cython.address(number))
        # An object goes on after a number: where the text ends with it, something is missing.
        if stop == cython.NULL or stop == end:
            return cython.NULL
        if number.whole and (number.count > _DIGITS or (number.negative and not number.digits)):
            return cython.NULL
        if one.kind == _DOUBLE or one.kind == _FLOAT:
            if not double_of(at, cython.address(number), cython.address(value)):
                return cython.NULL
            if one.kind == _DOUBLE:
                cython.cast(cython.p_double, one.values)[self.row] = value
            else:
                cython.cast(cython.p_float, one.values)[self.row] = cython.cast(cython.float, value)
            return stop
        if not number.whole:
            return cython.NULL
        whole: int64_t = cython.cast(int64_t, number.digits)
        if number.negative:
            whole = -whole
        if one.kind == _INT64:
            cython.cast(cython.pointer(int64_t), one.values)[self.row] = whole
        elif one.kind == _INT32 and whole == cython.cast(int32_t, whole):
            cython.cast(cython.pointer(int32_t), one.values)[self.row] = cython.cast(int32_t, whole)
        elif one.kind == _INT16 and whole == cython.cast(int16_t, whole):
            cython.cast(cython.pointer(int16_t), one.values)[self.row] = cython.cast(int16_t, whole)
        elif one.kind == _INT8 and whole == cython.cast(int8_t, whole):
            cython.cast(cython.pointer(int8_t), one.values)[self.row] = cython.cast(int8_t, whole)
        else:
            return cython.NULL
        return stop
