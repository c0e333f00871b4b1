"""What is wrong with a text that is no JSON, in the words of the reference decoder.

Only bodies that could not be decoded come here, once each: one pass, no recursion.
"""

from typing import NamedTuple

SPACE = b" \t\r\n"
_DIGITS = b"0123456789"
_HEX = _DIGITS + b"abcdefABCDEF"
_ESCAPES = b'bfnrt\\/"'
_ESCAPE_SIZE = 6
"""Bytes of the longest escape sequence: `\\u` and four digits."""
_SHORT = {
    '"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r",
    "\t": "\\t", "\v": "\\v",
}  # fmt: skip
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_AFTER = {ord("{"): "object key:value pair", ord("["): "array element"}
_VALUE = "looking for beginning of value"
_KEY = "looking for beginning of object key string"


class Fault(NamedTuple):
    """What is wrong with a character, and its place, from 1; at the end `reason` is empty."""

    reason: str
    offset: int


class _Stop(Exception):
    """The scan found a fault: a character, or a whole escape sequence of `size` bytes."""

    def __init__(self, why: str, at: int, size: int = 0) -> None:
        super().__init__(why)
        self.why = why
        self.at = at
        self.size = size


def first_value(text: bytes) -> tuple[int, Fault | None]:
    """Where the first value of `text` ends, and why it is none."""
    try:
        return _Scan(text).value(), None
    except _Stop as stop:
        if stop.size:
            end = stop.at + stop.size
            shown = _shown(text[stop.at : end])
            return stop.at, Fault(f"invalid escape sequence {shown} {stop.why}", end)
        return stop.at, _fault(text, stop.at, stop.why)


def is_all_values(text: bytes) -> bool:
    """Whether `text` is nothing but values, one behind the other."""
    scan = _Scan(text)
    try:
        while scan.at < len(text):
            scan.value()
            scan.space()
    except _Stop:
        return False
    return True


def trailing(text: bytes, end: int, why: str) -> Fault | None:
    """What stands behind a value that ends at `end`, other than space."""
    while end < len(text) and text[end] in SPACE:
        end += 1
    return None if end == len(text) else _fault(text, end, why)


def _fault(text: bytes, at: int, why: str) -> Fault:
    if at >= len(text):
        return Fault("", at)
    return Fault(f"invalid character '{_quoted(chr(text[at]))}' {why}", at + 1)


def _quoted(character: str) -> str:
    """A character as the reference decoder shows it: what is not printable is escaped."""
    if character in "'\\":
        return f"\\{character}"
    return character if character.isascii() and character.isprintable() else ascii(character)[1:-1]


def _shown(sequence: bytes) -> str:
    """An escape sequence as the reference decoder shows it: quoted when it cannot be printed."""
    text = sequence.decode("utf-8", "surrogateescape")
    if all(each.isprintable() and each not in "` \ufffd" for each in text):
        return f"`{text}`"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    """A character of a quoted text; a byte that is no character has its number."""
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if character.isprintable():
        return character
    if code < 32 or code == 127 or 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


class _Scan:
    """One walk over a text."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0

    def value(self) -> int:
        """Walk over one value; returns where it ends. Raises _Stop."""
        nested: list[int] = []
        while True:
            first = self.peek(_VALUE)
            if first in b"{[":
                self.at += 1
                nested.append(first)
                if not self.closes(nested):
                    self.key(nested)
                    continue
                nested.pop()
            else:
                self.scalar(first)
            while nested and self.ended(nested):
                nested.pop()
            if not nested:
                return self.at
            self.key(nested)

    def peek(self, why: str) -> int:
        """The next byte that is no space. Raises _Stop at the end."""
        self.space()
        return self.byte(why)

    def space(self) -> None:
        """Pass space, if there is any."""
        while self.at < len(self.text) and self.text[self.at] in SPACE:
            self.at += 1

    def byte(self, why: str) -> int:
        """The next byte. Raises _Stop at the end."""
        if self.at >= len(self.text):
            raise _Stop(why, self.at)
        return self.text[self.at]

    def closes(self, nested: list[int]) -> bool:
        """Pass the end of what has just begun, if it is empty."""
        empty = self.peek(_VALUE) == nested[-1] + 2
        self.at += empty
        return empty

    def ended(self, nested: list[int]) -> bool:
        """Pass what stands behind a part: True at the end of the whole, False at a comma."""
        why = f"after {_AFTER[nested[-1]]}"
        found = self.peek(why)
        if found not in (ord(","), nested[-1] + 2):
            raise _Stop(why, self.at)
        self.at += 1
        return found != ord(",")

    def key(self, nested: list[int]) -> None:
        """Pass a key and its colon, in an object."""
        if nested[-1] != ord("{"):
            return
        if self.peek(_KEY) != ord('"'):
            raise _Stop(_KEY, self.at)
        self.string()
        if self.peek("after object key") != ord(":"):
            raise _Stop("after object key", self.at)
        self.at += 1

    def scalar(self, first: int) -> None:
        """Pass a string, a number or a literal."""
        if first == ord('"'):
            self.string()
        elif first in _LITERALS:
            self.literal(_LITERALS[first])
        elif first in _DIGITS or first == ord("-"):
            self.number()
        else:
            raise _Stop(_VALUE, self.at)

    def literal(self, word: bytes) -> None:
        """Pass `word`."""
        for wanted in word:
            why = f"in literal {word.decode()} (expecting '{chr(wanted)}')"
            self.one_of(bytes([wanted]), why)

    def string(self) -> None:
        """Pass a string with its quotes."""
        self.at += 1
        while (found := self.byte("in string")) != ord('"'):
            if found < ord(" "):
                raise _Stop("in string", self.at)
            if found == ord("\\"):
                self.escape()
            else:
                self.at += 1
        self.at += 1

    def escape(self) -> None:
        """Pass an escape sequence."""
        sequence = self.text[self.at : self.at + _ESCAPE_SIZE]
        kind, digits = sequence[1:2], sequence[2:]
        if not kind or kind in _ESCAPES:
            size = 2
        elif kind != b"u":
            raise _Stop("in string", self.at, 2)
        elif digits.strip(_HEX):
            raise _Stop("in string", self.at, len(sequence))
        else:
            size = _ESCAPE_SIZE
        self.at = min(self.at + size, len(self.text))

    def number(self) -> None:
        """Pass a number."""
        why = "in numeric literal"
        if self.text[self.at] == ord("-"):
            self.at += 1
        if self.one_of(_DIGITS, why) != ord("0"):
            self.digits()
        if self.text[self.at : self.at + 1] == b".":
            self.at += 1
            self.one_of(_DIGITS, why)
            self.digits()
        if self.text[self.at : self.at + 1] in (b"e", b"E"):
            self.at += 1
            if self.byte(why) in b"+-":
                self.at += 1
            self.one_of(_DIGITS, why)
            self.digits()

    def digits(self) -> None:
        """Pass digits, if there are any."""
        while self.at < len(self.text) and self.text[self.at] in _DIGITS:
            self.at += 1

    def one_of(self, allowed: bytes, why: str) -> int:
        """Pass a byte that is in `allowed`, and return it. Raises _Stop."""
        found = self.byte(why)
        if found not in allowed:
            raise _Stop(why, self.at)
        self.at += 1
        return found
