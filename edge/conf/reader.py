"""Reads values of a document into options, and collects everything that is wrong with them.

A block is read by a table: lower-case key to a `Field`, which takes the value, checks its
type and sets an attribute of the options record.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.edge.conf.enforcement import (
    NO_EFFECT,
    UNSUPPORTED,
    By,
    Inside,
    Refused,
    fate_of,
    is_off,
)
from headwater.edge.conf.grammar import Value
from headwater.edge.conf.problems import Problems
from headwater.edge.conf.quantities import (
    MAX_PORT,
    Address,
    parse_address,
    parse_duration,
    parse_storage_size,
    redact_url,
)

Field = Callable[["ConfigReader", str, Value, Any], None]
"""Takes reader, key as written, value and the record to fill."""


MAX_INT32 = 2**31 - 1


class Section(dict[str, Field]):
    """The table of one kind of block; `name` is what `enforcement` calls it."""

    def __init__(self, name: str, fields: Mapping[str, Field]) -> None:
        super().__init__(fields)
        self.name = name


def keys(names: str, field: Field) -> dict[str, Field]:
    """Table part in which every one of the space-separated `names` is read by `field`."""
    return dict.fromkeys(names.split(), field)


class ConfigReader:
    """Typed access to values. A method that gives None has reported why."""

    __slots__ = ("problems",)

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def error(self, value: Value, message: str) -> None:
        """Report an error at `value`."""
        self.problems.error(value.position, message)

    def warning(self, value: Value, message: str) -> None:
        """Report a warning at `value`."""
        self.problems.warning(value.position, message)

    def section(self, key: str, value: Value, table: Section, target: Any) -> bool:
        """Read the map `value` into `target` by `table`. False when it is no map."""
        members = self.map(key, value)
        if members is None:
            return False
        self.members(members, table, target)
        return True

    def members(self, members: Mapping[str, Value], table: Section, target: Any) -> None:
        """Read the members of a map by `table`; unknown keys are errors."""
        for key, value in members.items():
            field = table.get(key.lower())
            if field is not None:
                self.judge(table.name, key, value)
                field(self, key, value, target)
            elif not value.used:
                self.unknown(key, value, table)

    def judge(self, section: str, key: str, value: Value) -> None:
        """Report a key that nobody enforces, unless it is off."""
        fate = fate_of(section, key.lower())
        if fate is None:
            raise LookupError(f"no row of edge/conf/enforcement.py for {key!r} of {section!r}")
        if isinstance(fate, By | Inside) or is_off(value.data):
            return
        if isinstance(fate, Refused):
            self.error(value, f'"{key}": {UNSUPPORTED} {fate.why}')
        else:
            self.warning(value, f'"{key}" {NO_EFFECT}: {fate.why}')

    def unknown(self, key: str, value: Value, known: Iterable[str]) -> None:
        """Report an unknown key, with the known one that was probably meant."""
        from difflib import get_close_matches

        word = key.lower()
        close = get_close_matches(word, list(known))
        close.sort(key=lambda name: name[:1] != word[:1])
        hint = f', did you mean "{close[0]}"?' if close else ": remove it, or correct its name"
        self.error(value, f'unknown field "{key}"{hint}')

    def wrong_type(self, key: str, value: Value, expected: str) -> None:
        """Report that `value` is not of the expected type."""
        of = f"the value of variable '{value.variable}'" if value.variable else "it"
        remedy = ""
        if expected == "a string" and not isinstance(value.data, list | dict):
            remedy = f": put {of} in quotes"
        elif value.variable:
            remedy = f": correct {of}"
        self.error(value, f'"{key}" must be {expected}, not {type_name(value.data)}{remedy}')

    def map(self, key: str, value: Value) -> dict[str, Value] | None:
        """Members of a map."""
        if isinstance(value.data, dict):
            return value.data
        self.wrong_type(key, value, "a map")
        return None

    def array(self, key: str, value: Value) -> list[Value] | None:
        """Items of an array."""
        if isinstance(value.data, list):
            return value.data
        self.wrong_type(key, value, "an array")
        return None

    def string(self, key: str, value: Value) -> str | None:
        """A string."""
        if isinstance(value.data, str):
            return value.data
        self.wrong_type(key, value, "a string")
        return None

    def boolean(self, key: str, value: Value) -> bool | None:
        """A boolean."""
        if isinstance(value.data, bool):
            return value.data
        self.wrong_type(key, value, "a boolean")
        return None

    def integer(self, key: str, value: Value) -> int | None:
        """An integer."""
        if isinstance(value.data, int) and not isinstance(value.data, bool):
            return value.data
        self.wrong_type(key, value, "an integer")
        return None

    def strings(self, key: str, value: Value) -> list[str] | None:
        """A string, or an array of strings."""
        if isinstance(value.data, str):
            return [value.data]
        if not isinstance(value.data, list):
            self.wrong_type(key, value, "a string or an array of strings")
            return None
        found = [self.string(key, item) for item in value.data]
        return [text for text in found if text is not None]

    def duration(self, key: str, value: Value) -> float | None:
        """Seconds of a duration text."""
        text = self.string(key, value)
        if text is None:
            return None
        try:
            return parse_duration(text)
        except ValueError as error:
            self.error(value, f"error parsing {key}: {error}")
            return None

    def lenient_duration(self, key: str, value: Value) -> float | None:
        """Seconds of a duration text, or an integer number of seconds (with a warning)."""
        data = value.data
        if isinstance(data, int) and not isinstance(data, bool):
            self.warning(value, f'"{key}" should be converted to a duration')
            return float(data)
        return self.duration(key, value)

    def seconds(self, key: str, value: Value) -> float | None:
        """Seconds as a duration text or as any number."""
        data = value.data
        if isinstance(data, int | float) and not isinstance(data, bool):
            return float(data)
        return self.duration(key, value)

    def storage_size(self, key: str, value: Value) -> int | None:
        """Bytes as an integer, or as a text such as "1G"."""
        data = value.data
        if isinstance(data, int) and not isinstance(data, bool):
            return data
        text = self.string(key, value)
        if text is None:
            return None
        try:
            return parse_storage_size(text)
        except ValueError as error:
            self.error(value, f"{key}: {error}")
            return None

    def address(self, key: str, value: Value) -> Address | None:
        """A port, or "host:port"."""
        data = value.data
        if isinstance(data, int) and not isinstance(data, bool):
            return Address("", data) if self.port_fits(key, value, data) else None
        if not isinstance(data, str):
            self.wrong_type(key, value, "a port or host:port")
            return None
        try:
            found = parse_address(data)
        except ValueError as error:
            self.error(value, str(error))
            return None
        return found if self.port_fits(key, value, found.port) else None

    def port_fits(self, key: str, value: Value, port: int) -> bool:
        """Whether `port` can be one; -1 stands for any free port."""
        if -1 <= port <= MAX_PORT:
            return True
        self.error(
            value,
            f'"{key}": port {port} is out of range: '
            f'use 0 to {MAX_PORT}, or -1 for any free one',
        )
        return False

    def url(self, key: str, value: Value) -> str | None:
        """A URL, or the host:port form that stands for one."""
        text = self.string(key, value)
        if text is None:
            return None
        if not is_url(text.strip()):
            self.error(value, f'"{key}": error parsing url {text!r}: write it as nats://host:port')
            return None
        return text.strip()

    def urls(self, key: str, value: Value) -> list[str] | None:
        """An array of URLs; one that is listed twice is kept once, with a warning."""
        items = self.array(key, value)
        if items is None:
            return None
        found: list[str] = []
        for item in items:
            url = self.url(key, item)
            if url is not None and url in found:
                self.warning(item, f"duplicate {key} entry {redact_url(url)} detected")
            elif url is not None:
                found.append(url)
        return found


def type_name(data: object) -> str:
    """What a person calls the type of a value."""
    names = {
        bool: "a boolean",
        int: "an integer",
        float: "a number with a fraction",
        str: "a string",
        list: "an array",
        dict: "a map",
    }
    return names.get(type(data), "a date")


SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def is_url(text: str) -> bool:
    """Whether `text` can be taken for a URL."""
    if any(char.isspace() or not char.isprintable() for char in text):
        return False
    scheme, colon, _ = text.partition("/")[0].partition(":")
    if colon and not SCHEME.fullmatch(scheme):
        return False
    from urllib.parse import urlsplit

    try:
        return (urlsplit(text).port or 0) >= 0
    except ValueError:
        return False


def _setter(method: Callable[[ConfigReader, str, Value], Any], attribute: str) -> Field:
    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = method(reader, key, value)
        if found is not None:
            setattr(target, attribute, found)

    return field


def text(attribute: str) -> Field:
    """Field of a string."""
    return _setter(ConfigReader.string, attribute)


def boolean(attribute: str) -> Field:
    """Field of a boolean."""
    return _setter(ConfigReader.boolean, attribute)


def integer(attribute: str, low: int | None = None, high: int | None = None) -> Field:
    """Field of an integer from `low` to `high`."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.integer(key, value)
        if found is None:
            return
        if (low is not None and found < low) or (high is not None and found > high):
            span = f"from {low} to {high}" if low is not None else f"at most {high}"
            if high is None:
                span = f"at least {low}"
            reader.error(value, f'"{key}" must be {span}, not {found}')
            return
        setattr(target, attribute, found)

    return field


def strings(attribute: str) -> Field:
    """Field of a string or an array of strings, kept as a list."""
    return _setter(ConfigReader.strings, attribute)


def duration(attribute: str) -> Field:
    """Field of a duration that must be written as one."""
    return _setter(ConfigReader.duration, attribute)


def lenient_duration(attribute: str) -> Field:
    """Field of a duration that may be an integer number of seconds."""
    return _setter(ConfigReader.lenient_duration, attribute)


def seconds(attribute: str) -> Field:
    """Field of a duration, or of a number of seconds with or without a fraction."""
    return _setter(ConfigReader.seconds, attribute)


def storage_size(attribute: str) -> Field:
    """Field of a size as an integer or as a text such as "1G"."""
    return _setter(ConfigReader.storage_size, attribute)


def urls(attribute: str) -> Field:
    """Field of an array of URLs."""
    return _setter(ConfigReader.urls, attribute)


def port(attribute: str) -> Field:
    """Field of a port number; -1 is any free port."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.integer(key, value)
        if found is not None and reader.port_fits(key, value, found):
            setattr(target, attribute, found)

    return field


def listen(host: str = "host", port: str = "port") -> Field:
    """Field of a port or "host:port" that sets two attributes."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.address(key, value)
        if found is not None:
            setattr(target, host, found.host)
            setattr(target, port, found.port)

    return field


def name_without_spaces(attribute: str) -> Field:
    """Field of a name in which no space may be."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.string(key, value)
        if found is not None and " " in found:
            reader.error(value, f'"{key}" cannot contain spaces: choose a name without')
        elif found is not None:
            setattr(target, attribute, found)

    return field


def choice(attribute: str, choices: str) -> Field:
    """Field of one of the space-separated `choices`."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        found = reader.string(key, value)
        if found is not None and found not in choices.split():
            listed = ", ".join(repr(each) for each in choices.split())
            reader.error(value, f'"{key}" must be one of {listed}, not {found!r}')
        elif found is not None:
            setattr(target, attribute, found)

    return field


def text_map(attribute: str) -> Field:
    """Field of a map of strings."""

    def field(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
        members = reader.map(key, value)
        if members is not None:
            found = {name: reader.string(name, item) for name, item in members.items()}
            setattr(target, attribute, {n: t for n, t in found.items() if t is not None})

    return field


def ignored(reader: ConfigReader, key: str, value: Value, target: Any) -> None:
    """Field that is known and has no meaning here."""
