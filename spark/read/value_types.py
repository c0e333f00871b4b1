"""Types of decoded values: from DDL, from sample messages, and for the decoder."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from pyspark.errors import PySparkException
from pyspark.sql import types as t

from headwater.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_PLAIN: dict[str, type[t.DataType]] = {
    "string": t.StringType,
    "bigint": t.LongType,
    "long": t.LongType,
    "int": t.IntegerType,
    "integer": t.IntegerType,
    "smallint": t.ShortType,
    "short": t.ShortType,
    "tinyint": t.ByteType,
    "byte": t.ByteType,
    "double": t.DoubleType,
    "float": t.FloatType,
    "boolean": t.BooleanType,
    "bool": t.BooleanType,
    "timestamp": t.TimestampType,
    "date": t.DateType,
    "binary": t.BinaryType,
}
_BITS: dict[type[t.DataType], int] = {
    t.LongType: 63,
    t.IntegerType: 31,
    t.ShortType: 15,
    t.ByteType: 7,
}
_TOKEN = re.compile(r"\s*(?:`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*)|(\d+)|([<>(),:]))")


class AnyText(t.StringType):
    """A string that takes whatever is there: what is no string is its JSON text.

    Fields of clashing types are learnt so, and those whose samples had no type. Spark sees a
    string (`plain_type`).
    """


def plain_type(kind: "DataType") -> "DataType":
    """The type as Spark knows it: string for `AnyText`, in nested types too."""
    if isinstance(kind, AnyText):
        return t.StringType()
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(plain_type(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(kind.keyType, plain_type(kind.valueType))
    if isinstance(kind, t.StructType):
        fields = [t.StructField(field.name, plain_type(field.dataType)) for field in kind.fields]
        return t.StructType(fields)
    return kind


#: Spark's decimals have up to 38 digits, Python's calculate with 28.
_DIGITS = Context(prec=38, rounding=ROUND_HALF_UP, traps=[InvalidOperation])
#: How deep types may be nested.
DEPTH_MAX = 16
#: Fields that are learnt from samples at most.
INFERRED_MAX = 1000


def parse_value_schema(text: str) -> "dict[str, DataType]":
    """Field names to types from DDL such as "device string, at struct<lat: double>".

    Types are string, long, int, short, byte, double, float, boolean, timestamp and date (RFC
    3339), decimal(p,s), binary (base64 in JSON), array<…>, map<string,…> and struct<…>. The text of
    a Spark schema does, too: `schema.json()` and `schema.simpleString()`. Raises OptionError.
    """
    if text.lstrip().startswith("{"):
        return _of_json(text)
    whole = re.fullmatch(r"\s*struct<(.*)>\s*", text, re.DOTALL | re.IGNORECASE)
    return _Ddl(whole[1] if whole else text).fields()


def _of_json(text: str) -> "dict[str, DataType]":
    """What `schema.json()` wrote."""
    try:
        schema = t.StructType.fromJson(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, PySparkException) as e:
        raise OptionError(f"valueSchema is no JSON of a Spark schema: {e!r}") from e
    for field in schema.fields:
        checked_type(field.dataType)
    if len(set(schema.names)) < len(schema.names):
        raise OptionError("valueSchema: a name is there twice")
    return {field.name: plain_type(field.dataType) for field in schema.fields}


class _Ddl:
    """Reads DDL from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise OptionError(f"valueSchema: {text[at:].strip()[:40]!r} is not understood")
            kind = ("name", "name", "number", "mark")[(match.lastindex or 1) - 1]
            self._tokens.append((kind, match.group(match.lastindex or 1)))
            at = match.end()
        self._at = 0

    def fields(self) -> "dict[str, DataType]":
        found = self._fields("", 0)
        if self._at < len(self._tokens):
            raise OptionError(f"valueSchema: {self._tokens[self._at][1]!r} was not expected")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _next_token(self, kind: str) -> str:
        if self._at == len(self._tokens) or self._tokens[self._at][0] != kind:
            raise OptionError(
                f"valueSchema: a {kind} was expected, not {self._peek() or 'the end'!r}; "
                "write for example valueSchema='device string, value double'"
            )
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _expect(self, mark: str) -> None:
        if self._next_token("mark") != mark:
            raise OptionError(f"valueSchema: {mark!r} is missing before {self._peek()!r}")

    def _fields(self, end: str, depth: int) -> "dict[str, DataType]":
        found: dict[str, DataType] = {}
        while True:
            name = self._next_token("name")
            if self._peek() == ":":
                self._next_token("mark")
            if name in found:
                raise OptionError(f"valueSchema: {name!r} is there twice")
            found[name] = self._type(name, depth)
            if self._peek() != ",":
                break
            self._next_token("mark")
        if end:
            self._expect(end)
        return found

    def _type(self, name: str, depth: int) -> "DataType":
        if depth > DEPTH_MAX:
            raise OptionError(f"valueSchema: {name!r} is nested more than {DEPTH_MAX} times")
        kind = self._next_token("name").lower()
        if kind in _PLAIN:
            return _PLAIN[kind]()
        if kind == "decimal":
            return self._decimal()
        if kind not in ("array", "map", "struct"):
            raise OptionError(
                f"valueSchema: type {kind!r} of {name!r} is none of {', '.join(_PLAIN)}, decimal, "
                "array, map, struct"
            )
        self._expect("<")
        if kind == "struct":
            fields = self._fields(">", depth + 1)
            return t.StructType([t.StructField(n, one) for n, one in fields.items()])
        if kind == "map" and self._next_token("name").lower() != "string":
            raise OptionError(f"valueSchema: the keys of map {name!r} must be string")
        if kind == "map":
            self._expect(",")
        inner = self._type(name, depth + 1)
        self._expect(">")
        return t.ArrayType(inner) if kind == "array" else t.MapType(t.StringType(), inner)

    def _decimal(self) -> "DataType":
        precision, scale = 10, 0
        if self._peek() == "(":
            self._next_token("mark")
            precision = int(self._next_token("number"))
            if self._peek() == ",":
                self._next_token("mark")
                scale = int(self._next_token("number"))
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise OptionError("valueSchema: decimal takes 1 to 38 digits, as in decimal(10,2)")
        return t.DecimalType(precision, scale)


#: What may be asked for in place of a type that values cannot have.
_NEAR = {
    t.TimestampNTZType: "timestamp",
    t.CharType: "string",
    t.VarcharType: "string",
    t.MapType: "string for the keys",
}


def checked_type(kind: "DataType") -> Any:
    """The Python type that a value is checked against. Raises OptionError for other types."""
    import msgspec

    bits = _BITS.get(type(kind))
    if bits is not None:
        return Annotated[int, msgspec.Meta(ge=-(1 << bits), le=(1 << bits) - 1)]
    if isinstance(kind, t.ArrayType):
        return list[checked_type(kind.elementType) | None]  # type: ignore[misc]
    if isinstance(kind, t.MapType) and isinstance(kind.keyType, t.StringType):
        return dict[str, checked_type(kind.valueType) | None]  # type: ignore[misc]
    if isinstance(kind, t.StructType):
        fields = {field.name: checked_type(field.dataType) | None for field in kind.fields}
        return TypedDict("Fields", fields, total=False)  # type: ignore[operator]
    plain = {
        AnyText: Any,
        t.StringType: str,
        t.DoubleType: float,
        t.FloatType: float,
        t.BooleanType: bool,
        t.TimestampType: datetime,
        t.DateType: date,
        t.DecimalType: Decimal,
        t.BinaryType: bytes,
    }
    if type(kind) not in plain:
        near = _NEAR.get(type(kind))
        advice = f"take {near}, and cast it in Spark" if near else "read raw payloads"
        raise OptionError(f"values cannot be decoded to {kind.simpleString()}: {advice}")
    return plain[type(kind)]


def fitter(
    kind: "DataType", bad: Callable[[], None] | None = None
) -> Callable[[Any], Any] | None:
    """What makes a checked value fit its column, None when nothing is to be done.

    `AnyText` gets its text. Times without a zone are taken as UTC. Decimals are rounded half up to
    their scale, as Spark does. A decimal with too many digits raises ValueError; with `bad` it is
    null alone, also in a struct, an array or a map, and `bad` is called.
    """
    if isinstance(kind, AnyText):
        return _text
    if isinstance(kind, t.TimestampType):
        return _as_utc
    if isinstance(kind, t.DecimalType):
        return _decimal_fitter(kind, bad)
    if isinstance(kind, t.ArrayType):
        each = fitter(kind.elementType, bad)
        return (
            None
            if each is None
            else lambda value: [None if one is None else each(one) for one in value]
        )
    if isinstance(kind, t.MapType):
        of = fitter(kind.valueType, bad)
        if of is None:
            return None
        return lambda value: {k: None if v is None else of(v) for k, v in value.items()}
    if isinstance(kind, t.StructType):
        fits = {field.name: fitter(field.dataType, bad) for field in kind.fields}
        fits = {name: fit for name, fit in fits.items() if fit is not None}
        return (lambda value: _fit_fields(value, fits)) if fits else None
    return None


def _fit_fields(value: dict[str, Any], fits: dict[str, Any]) -> dict[str, Any]:
    return {k: fits[k](v) if v is not None and k in fits else v for k, v in value.items()}


def _decimal_fitter(
    kind: t.DecimalType, bad: Callable[[], None] | None
) -> Callable[[Decimal], Decimal | None]:
    unit = Decimal(1).scaleb(-kind.scale)
    most = Decimal(10) ** (kind.precision - kind.scale)

    def rounded(value: Decimal) -> Decimal | None:
        try:
            found = value.quantize(unit, context=_DIGITS)
            # A comparison with "not a number" raises, too.
            if found.copy_abs() < most:
                return found
        except InvalidOperation:
            pass
        if bad is None:
            raise ValueError("a decimal has too many digits, or is no finite number")
        bad()
        return None

    return rounded


def _text(value: Any) -> str:
    """A string as it is, other values as JSON; what JSON does not know by its own text."""
    import msgspec

    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()


def _as_utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def infer_types(values: Iterable[Any]) -> "dict[str, DataType]":
    """Types that hold all of the sample `values`, which are decoded messages.

    Integers become long, and double where fractions are among them; fields of clashing types, and
    those that are null everywhere, become `AnyText`. Raises OptionError when no sample is an
    object.
    """
    found: DataType | None = None
    for value in values:
        if isinstance(value, dict):
            found = _widened(found, _type_of(value, 0))
    if not isinstance(found, t.StructType) or not found.fields:
        raise OptionError(
            "valueSchema=infer: none of the sampled messages is an object with fields; give "
            "valueSchema, or read raw payloads"
        )
    resolved = _resolved(found)
    assert isinstance(resolved, t.StructType)
    if len(resolved.fields) > INFERRED_MAX:
        raise OptionError(f"valueSchema=infer: there are more than {INFERRED_MAX} fields")
    return {field.name: field.dataType for field in resolved.fields}


def _type_of(value: Any, depth: int) -> "DataType":
    if isinstance(value, bool):
        return t.BooleanType()
    if isinstance(value, int):
        return t.LongType() if -(1 << 63) <= value < 1 << 63 else t.DoubleType()
    if isinstance(value, float):
        return t.DoubleType()
    if isinstance(value, bytes):
        return t.BinaryType()
    if isinstance(value, datetime):
        return t.TimestampType()
    if isinstance(value, dict) and depth < DEPTH_MAX:
        fields = {str(name): _type_of(one, depth + 1) for name, one in value.items()}
        return t.StructType([t.StructField(name, one) for name, one in fields.items()])
    if isinstance(value, list) and depth < DEPTH_MAX:
        inner: DataType | None = None
        for one in value:
            inner = _widened(inner, _type_of(one, depth + 1))
        return t.ArrayType(inner or t.NullType())
    if isinstance(value, str):
        return t.StringType()
    return t.NullType() if value is None else AnyText()


def _widened(left: "DataType | None", right: "DataType") -> "DataType":
    if isinstance(left, AnyText):
        return left
    if left is None or left == right or isinstance(left, t.NullType):
        return right
    if isinstance(right, t.NullType):
        return left
    if isinstance(left, t.StructType) and isinstance(right, t.StructType):
        fields = {field.name: field.dataType for field in left.fields}
        for field in right.fields:
            fields[field.name] = _widened(fields.get(field.name), field.dataType)
        return t.StructType([t.StructField(name, one) for name, one in fields.items()])
    if isinstance(left, t.ArrayType) and isinstance(right, t.ArrayType):
        return t.ArrayType(_widened(left.elementType, right.elementType))
    if {type(left), type(right)} == {t.LongType, t.DoubleType}:
        return t.DoubleType()
    return AnyText()


def _resolved(kind: "DataType") -> "DataType":
    """Nothing is left open: what was null everywhere, or an object without fields, is text."""
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(_resolved(kind.elementType))
    if isinstance(kind, t.StructType) and kind.fields:
        fields = [t.StructField(field.name, _resolved(field.dataType)) for field in kind.fields]
        return t.StructType(fields)
    if isinstance(kind, (t.NullType, t.StructType)):
        return AnyText()
    return kind
