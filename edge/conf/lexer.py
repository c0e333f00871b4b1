"""Text scanning for the NATS configuration grammar: characters, scalars and comments.

Knows nothing of maps, variables or files; `grammar` builds documents on top of it.
"""

from datetime import UTC, datetime
from typing import NoReturn

from headwater.edge.conf.problems import ConfigError, Position

Scalar = str | int | float | bool | datetime

END = ""
"""What `Lexer.peek` gives behind the last character."""

MAX_INTEGER = 2**63 - 1

_NEWLINES = "\n\r"
_BLANKS = " \t"
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_SUFFIX_LETTERS = "kKmMgGtTpPeE"
_SUFFIXES = {
    "": 1,
    **{
        letter + tail: int(base**power)
        for power, letter in enumerate("kmgtpe", start=1)
        for tail, base in (("", 1000), ("b", 1024), ("i", 1024), ("ib", 1024))
    },
}
_DATE_FORM = "00-00T00:00:00Z"


class Variable(str):
    """A bare `$name`: the name, still to be looked up."""

    __slots__ = ()


def is_space(char: str) -> bool:
    """Whether `char` separates words. Separator control characters do not."""
    return char.isspace() and not "\x1c" <= char <= "\x1f"


class Lexer:
    """A cursor over one text. Every error is a ConfigError with the place it was found at."""

    __slots__ = ("_line_starts", "cursor", "file", "text")

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.cursor = 0
        self._line_starts = [0]
        start = text.find("\n")
        while start >= 0:
            self._line_starts.append(start + 1)
            start = text.find("\n", start + 1)

    def position_at(self, index: int | None = None) -> Position:
        """Where a character stands, that of the cursor when None."""
        from bisect import bisect_right

        at = self.cursor if index is None else index
        line = bisect_right(self._line_starts, at)
        return Position(self.file, line, at - self._line_starts[line - 1] + 1)

    def fail(self, message: str, index: int | None = None) -> NoReturn:
        """Raises ConfigError for `index`, the cursor when None."""
        raise ConfigError([f"{self.position_at(index)}: Parse error: {message}"])

    def peek(self, ahead: int = 0) -> str:
        """Character `ahead` of the cursor, `END` behind the last one."""
        at = self.cursor + ahead
        return self.text[at] if at < len(self.text) else END

    def skip_blanks(self) -> None:
        """Move past blanks, but not past line ends."""
        while self.peek() and self.peek() in _BLANKS:
            self.cursor += 1

    def skip_spaces(self) -> None:
        """Move past white space of any kind."""
        while is_space(self.peek()):
            self.cursor += 1

    def skip_comment(self) -> bool:
        """Move past a comment, if one begins here, up to its line end."""
        if self.peek() != "#" and not (self.peek() == "/" and self.peek(1) == "/"):
            return False
        while self.peek() and self.peek() not in _NEWLINES:
            self.cursor += 1
        return True

    def at_line_end(self) -> bool:
        """Whether a line ends here."""
        return bool(self.peek()) and self.peek() in _NEWLINES

    def quoted(self, quote: str) -> str:
        """Text up to the closing `quote`, taken literally. The cursor is on the opening one."""
        opening = self.cursor
        closing = self.text.find(quote, opening + 1)
        if closing < 0:
            self.fail("quoted text is not closed", opening)
        self.cursor = closing + 1
        return self.text[opening + 1 : closing]

    def scalar(self) -> Scalar | Variable:
        """A value that is neither map nor array. The cursor is on its first character."""
        char = self.peek()
        if char == "'":
            return self.quoted("'")
        if char == '"':
            return self._double_quoted()
        if char == "(":
            return self._block()
        if char == "-":
            return self._number(negative=True)
        if char and char.isdigit() and char.isascii():
            return self._number(negative=False)
        if char == ".":
            self.fail("a number must start with a digit")
        if self.at_line_end():
            self.fail("expected a value but found the end of the line")
        return self._bare(self.cursor)

    def _double_quoted(self) -> str:
        opening = self.cursor
        self.cursor += 1
        parts: list[bytes] = []
        start = self.cursor
        while True:
            char = self.peek()
            if char == END:
                self.fail("quoted text is not closed", opening)
            if char == '"':
                parts.append(_raw(self.text[start : self.cursor]))
                self.cursor += 1
                return _text(parts)
            if char == "\\":
                parts.append(_raw(self.text[start : self.cursor]))
                parts.append(self._escape())
                start = self.cursor
            else:
                self.cursor += 1

    def _escape(self) -> bytes:
        """Bytes of the escape sequence whose backslash the cursor is on."""
        kind = self.peek(1)
        if kind == "x":
            digits = self.text[self.cursor + 2 : self.cursor + 4]
            if len(digits) != 2 or any(d not in "0123456789abcdefABCDEF" for d in digits):
                self.fail("expected two hexadecimal digits after \\x")
            self.cursor += 4
            return bytes([int(digits, 16)])
        if kind not in _ESCAPES or kind == END:
            self.fail('invalid escape: only \\xXX, \\t, \\n, \\r, \\" and \\\\ are known')
        self.cursor += 2
        return _ESCAPES[kind].encode()

    def _block(self) -> str:
        """Text between `(` and a `)` that has a line to itself."""
        opening = self.cursor
        search = opening + 1
        while True:
            closing = self.text.find("\n)", search)
            if closing < 0:
                self.fail("the block is not closed by a ) on a line of its own", opening)
            after = self.text[closing + 2 : closing + 3]
            if after in ("", "\n"):
                self.cursor = closing + 2
                return self.text[opening + 1 : closing + 1]
            search = closing + 1

    def _bare(self, start: int) -> str | bool | Variable:
        """Unquoted text from `start` (the cursor is in it or at its end), or what it stands for."""
        parts: list[bytes] = []
        begin = start
        while True:
            char = self.peek()
            if char == "\\":
                parts.append(_raw(self.text[begin : self.cursor]))
                parts.append(self._escape())
                begin = self.cursor
                continue
            if char == END or char in "\n\r;,]} \t'":
                break
            self.cursor += 1
        word = self.text[begin : self.cursor]
        if self.peek() == "'":
            self.cursor += 1
        elif not parts:
            if word.lower() in _BOOLEANS:
                return _BOOLEANS[word.lower()]
            if word.startswith("$"):
                return Variable(word[1:])
        return _text([*parts, _raw(word)])

    def _number(self, negative: bool) -> Scalar | Variable:
        start = self.cursor
        if negative:
            self.cursor += 1
            if not self._at_digit():
                self.fail("expected a digit after the minus sign")
        self._skip_digits()
        char = self.peek()
        if char == "-" and not negative:
            return self._date(start)
        if char == ".":
            return self._float_or_address(start)
        if char and char in _SUFFIX_LETTERS:
            return self._suffixed(start)
        if negative or self._number_may_end():
            return self._integer(start, self.cursor)
        return self._bare(start)

    def _suffixed(self, start: int) -> Scalar | Variable:
        digits_end = self.cursor
        self.cursor += 1
        while self.peek() and self.peek() in "bBiI":
            self.cursor += 1
        if not self._number_may_end():
            return self._bare(start)
        return self._integer(start, digits_end)

    def _integer(self, start: int, digits_end: int) -> int:
        suffix = self.text[digits_end : self.cursor].lower()
        if suffix not in _SUFFIXES:
            self.fail(f"unknown size suffix {suffix!r}", start)
        if digits_end - start > 20:
            self.fail("the integer is out of range", start)
        value = int(self.text[start:digits_end]) * _SUFFIXES[suffix]
        if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
            self.fail("the integer is out of range", start)
        return value

    def _float_or_address(self, start: int) -> float | str:
        self.cursor += 1
        if not self._at_digit():
            self.fail("a number must have a digit after the point")
        self._skip_digits()
        if self.peek() != ".":
            value = float(self.text[start : self.cursor])
            if value in (float("inf"), float("-inf")):
                self.fail("the number is out of range", start)
            return value
        while self._at_digit() or (self.peek() and self.peek() in ".:-"):
            self.cursor += 1
        return self.text[start : self.cursor]

    def _date(self, start: int) -> datetime:
        if self.cursor - start != 4:
            self.fail("a date must be in full Zulu form, such as 2016-05-04T18:53:41Z", start)
        for form in "-" + _DATE_FORM:
            char = self.peek()
            if not (self._at_digit() if form == "0" else char == form):
                self.fail("a date must be in full Zulu form, such as 2016-05-04T18:53:41Z", start)
            self.cursor += 1
        try:
            moment = datetime.strptime(self.text[start : self.cursor], "%Y-%m-%dT%H:%M:%SZ")
        except ValueError:
            self.fail("there is no such date", start)
        return moment.replace(tzinfo=UTC)

    def _at_digit(self) -> bool:
        char = self.peek()
        return bool(char) and "0" <= char <= "9"

    def _skip_digits(self) -> None:
        while self._at_digit():
            self.cursor += 1

    def _number_may_end(self) -> bool:
        char = self.peek()
        return char == END or char in "\n\r};,] \t"


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(parts: list[bytes]) -> str:
    return b"".join(parts).decode("utf-8", "surrogateescape")
