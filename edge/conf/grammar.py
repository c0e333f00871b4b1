"""The NATS configuration grammar: text to a tree of values that know where they stand.

Keys are `name`, then `=`, `:` or blanks, then a value; values end at a line end, `,` or `;`.
Maps, arrays, scalars of several kinds, comments, `$variables` and `include` files.
"""

import os
from typing import Any

from headwater.edge.conf.lexer import END, Lexer, Scalar, Variable, is_space
from headwater.edge.conf.problems import ConfigError, Position

MAX_NESTING = 64
"""Maps and arrays that may enclose one another."""

MAX_INCLUDES = 32
"""Files that may include one another."""

MAX_FILE_BYTES = 64 * 1024 * 1024

TEXT_NAME = "(text)"
"""File name in positions of a text that came from no file."""

_BCRYPT_STARTS = ("2a$", "2b$", "2x$", "2y$")
_SEPARATORS = "=:"


class Value:
    """A value and its position: of its key in a map, its own in an array.

    `used` tells that a variable referred to it, so that its key need not be an option. `variable`
    is the name of the variable that the value came from, or empty.
    """

    __slots__ = ("data", "position", "used", "variable")

    def __init__(
        self,
        data: "Scalar | list[Value] | dict[str, Value]",
        position: Position,
        variable: str = "",
    ) -> None:
        self.data = data
        self.position = position
        self.used = False
        self.variable = variable

    def __repr__(self) -> str:
        return f"Value({self.data!r} at {self.position})"

    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.data, dict):
            return {key: value.plain() for key, value in self.data.items()}
        if isinstance(self.data, list):
            return [value.plain() for value in self.data]
        return self.data


Map = dict[str, Value]


def parse_file(path: str | os.PathLike[str]) -> Value:
    """The document in a file: a Value whose data is a map. Raises ConfigError."""
    return _parse_path(os.fspath(path), ())


def parse_text(text: str, name: str = TEXT_NAME, directory: str = ".") -> Value:
    """The document in `text`. Includes are looked for in `directory`. Raises ConfigError."""
    return _Parser(text, name, directory, ()).document()


def _parse_path(path: str, including: tuple[str, ...]) -> Value:
    try:
        if os.path.getsize(path) > MAX_FILE_BYTES:
            raise ConfigError([f"{path}: the file is too large to be a configuration"])
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([f"open {path}: {reason}"]) from error
    text = raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    chain = (*including, os.path.realpath(path))
    return _Parser(text, path, os.path.dirname(path), chain).document()


class _Parser:
    """One text being read. `scopes` are the open maps, outermost first, for variables."""

    __slots__ = ("chain", "directory", "lexer", "looking_up", "scopes")

    def __init__(
        self,
        text: str,
        file: str,
        directory: str,
        chain: tuple[str, ...],
        looking_up: frozenset[str] = frozenset(),
    ) -> None:
        self.lexer = Lexer(text, file)
        self.directory = directory
        self.chain = chain
        self.looking_up = looking_up
        self.scopes: list[Map] = []
        zero = text.find("\0")
        if zero >= 0:
            self.lexer.fail("a configuration cannot contain NUL characters", zero)

    def document(self) -> Value:
        """The whole text as a map. Braces around it, as in JSON, may be there or not."""
        root: Map = {}
        self.scopes.append(root)
        lexer = self.lexer
        depth = 0
        while True:
            lexer.skip_spaces()
            char = lexer.peek()
            if char == END:
                return Value(root, Position(lexer.file, 1, 1))
            if char == "{":
                depth += 1
                lexer.cursor += 1
            elif char == "}" and depth:
                depth -= 1
                lexer.cursor += 1
                if depth:
                    lexer.skip_spaces()
                    self._end_of_top_value(depth)
            elif char == "}" and not lexer.text[lexer.cursor + 1 :].strip():
                lexer.cursor += 1
            elif not lexer.skip_comment():
                self._pair(root)
                self._end_of_top_value(depth)

    def _end_of_top_value(self, depth: int) -> None:
        """What must follow a value outside of any map; `depth` counts the braces around it."""
        lexer = self.lexer
        lexer.skip_blanks()
        if lexer.skip_comment() or lexer.at_line_end():
            return
        char = lexer.peek()
        if char == END and not depth:
            return
        if char == "}" and depth:
            return
        if char in (",", ";", "}"):
            lexer.cursor += 1
            return
        found = repr(char) if char else "the end of the text"
        lexer.fail(f"expected the end of the line after a value but found {found}")

    def _pair(self, target: Map) -> None:
        """One `key value` or `include file`, into `target`."""
        lexer = self.lexer
        start = lexer.cursor
        key = self._key()
        if key is None:
            self._include(target)
            return
        position = lexer.position_at(start)
        lexer.skip_spaces()
        if lexer.peek() and lexer.peek() in _SEPARATORS:
            lexer.cursor += 1
            if len(self.scopes) > 1:
                lexer.skip_spaces()
        elif lexer.peek() == END:
            lexer.fail(f"key {key!r} has no value", start)
        lexer.skip_blanks()
        if len(self.scopes) > 1 and lexer.peek() in (",", "}", END):
            lexer.fail(f"key {key!r} has no value", start)
        value = self._value()
        value.position = position
        target[key] = value

    def _key(self) -> str | None:
        """The key at the cursor, or None when it is the keyword `include`."""
        lexer = self.lexer
        char = lexer.peek()
        if char in _SEPARATORS:
            lexer.fail(f"unexpected {char!r} where a key should be")
        if char in ("'", '"'):
            return lexer.quoted(char)
        start = lexer.cursor
        lexer.cursor += 1
        while True:
            char = lexer.peek()
            if char == END or char in _SEPARATORS or is_space(char):
                break
            lexer.cursor += 1
        key = lexer.text[start : lexer.cursor]
        if is_space(char) and key.lower() == "include":
            return None
        return key

    def _value(self) -> Value:
        lexer = self.lexer
        position = lexer.position_at()
        char = lexer.peek()
        if char == "{":
            return Value(self._map(), position)
        if char == "[":
            return Value(self._array(), position)
        scalar = lexer.scalar()
        if isinstance(scalar, Variable):
            return self._variable(str(scalar), position)
        return Value(scalar, position)

    def _map(self) -> Map:
        lexer = self.lexer
        opening = lexer.cursor
        lexer.cursor += 1
        if len(self.scopes) > MAX_NESTING:
            lexer.fail("maps and arrays are nested too deeply", opening)
        target: Map = {}
        self.scopes.append(target)
        while True:
            lexer.skip_spaces()
            char = lexer.peek()
            if char == END:
                lexer.fail("the map is not closed", opening)
            if char == "]":
                lexer.fail("unexpected ']' in a map")
            if char == "}":
                lexer.cursor += 1
                break
            if lexer.skip_comment():
                continue
            self._pair(target)
            self._end_of_member("}")
        self.scopes.pop()
        return target

    def _array(self) -> list[Value]:
        lexer = self.lexer
        opening = lexer.cursor
        lexer.cursor += 1
        if len(self.scopes) > MAX_NESTING:
            lexer.fail("maps and arrays are nested too deeply", opening)
        # An array is no scope for variables, but it counts as a level.
        self.scopes.append({})
        items: list[Value] = []
        while True:
            lexer.skip_spaces()
            char = lexer.peek()
            if char == END:
                lexer.fail("the array is not closed", opening)
            if char == ",":
                lexer.fail("unexpected ',' in an array")
            if char == "]":
                lexer.cursor += 1
                break
            if lexer.skip_comment():
                continue
            items.append(self._value())
            self._end_of_member("]")
        self.scopes.pop()
        return items

    def _end_of_member(self, closing: str) -> None:
        """What must follow a member of a map or array that is closed by `closing`."""
        lexer = self.lexer
        while True:
            lexer.skip_blanks()
            if not lexer.skip_comment():
                break
        char = lexer.peek()
        if char in (closing, END) or lexer.at_line_end():
            # That something is not closed is better said of where it was opened.
            return
        if char == "," or (char == ";" and closing == "}"):
            lexer.cursor += 1
            return
        lexer.fail(f"expected ',', a line end or {closing!r} after a value but found {char!r}")

    def _variable(self, name: str, position: Position) -> Value:
        if name.startswith(_BCRYPT_STARTS):
            return Value("$" + name, position)
        for scope in reversed(self.scopes):
            known = scope.get(name)
            if known is not None:
                known.used = True
                return Value(known.data, position, name)
        if name in self.looking_up:
            raise ConfigError(
                [
                    f"{position}: variable reference cycle for '{name}': give it a value that does "
                    "not lead back to it"
                ]
            )
        text = os.environ.get(name)
        if text is None:
            raise ConfigError(
                [
                    f"{position}: variable reference for '{name}' on line {position.line} "
                    "can not be found: define it above, or in the environment"
                ]
            )
        return Value(self._environment(name, text, position).data, position, name)

    def _environment(self, name: str, text: str, position: Position) -> Value:
        """Value of an environment variable, read as the grammar would."""
        looking_up = self.looking_up | {name}
        inner = _Parser(f"value={text}", f"${name}", self.directory, self.chain, looking_up)
        try:
            value = inner.document().data
        except ConfigError as error:
            reasons = "; ".join(error.problems)
            raise ConfigError(
                [f"{position}: variable reference for '{name}' could not be parsed: {reasons}"]
            ) from error
        found = value.get("value") if isinstance(value, dict) else None
        if found is None:
            raise ConfigError([f"{position}: variable '{name}' has no value: set it"])
        return found

    def _include(self, target: Map) -> None:
        """Merge the keys of an included file into `target`."""
        lexer = self.lexer
        lexer.skip_blanks()
        position = lexer.position_at()
        name = self._include_name()
        path = os.path.normpath(os.path.join(self.directory, name.lstrip("/")))
        if os.path.isabs(name) and not os.path.exists(path):
            path = name
        if os.path.realpath(path) in self.chain:
            raise ConfigError(
                [f"{position}: include file '{name}' includes itself: remove one of the includes"]
            )
        if len(self.chain) >= MAX_INCLUDES:
            raise ConfigError(
                [
                    f"{position}: include files are nested too deeply: at most {MAX_INCLUDES} may "
                    "include one another"
                ]
            )
        try:
            included = _parse_path(path, self.chain).data
        except ConfigError as error:
            hint = ": an include takes no variable, write the name" if name[:1] == "$" else ""
            raise ConfigError(
                [
                    f"{position}: error parsing include file '{name}': {each}{hint}"
                    for each in error.problems
                ]
            ) from error
        if isinstance(included, dict):
            target.update(included)

    def _include_name(self) -> str:
        lexer = self.lexer
        char = lexer.peek()
        if char in ("'", '"'):
            return lexer.quoted(char)
        if char == END or lexer.at_line_end() or char in "[{(\\-" or char.isdigit():
            lexer.fail(
                "expected the name of a file to include: put one that begins with a digit or a "
                "sign in quotes"
            )
        start = lexer.cursor
        while lexer.peek() and lexer.peek() not in "\n\r;} \t'":
            lexer.cursor += 1
        name = lexer.text[start : lexer.cursor]
        if lexer.peek() == "'":
            lexer.cursor += 1
        return name
