"""The decoder that makes columns, beside the one that makes objects: they always agree."""

import json
import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from headwater.spark.read.column_decoder import ColumnDecoder, takes_all
from headwater.spark.read.value_decoder import CORRUPT_COLUMN, ValueDecoder
from headwater.spark.read.value_types import parse_value_schema
from headwater.spark.wire.wire_reader import Columns

SCHEMA = (
    "device string, n long, i int, s short, y byte, x double, f float, b boolean, t timestamp, "
    "d date, at struct<lat: double, name: string, deep: struct<n: long, on: boolean>>, `é` string"
)
NAMES = ["device", "n", "i", "s", "y", "x", "f", "b", "t", "d", "at", "é", "other", ""]
INNER = ["lat", "name", "deep", "n", "on", "device", "more"]

NUMBERS = [
    "0", "-0", "-0.0", "0.0", "1", "-1", "007", "1.", ".5", "+1", "1e5", "1E-5", "1e", "1e400",
    "-1e400", "1e-400", "1e99999", "127", "128", "-128", "-129", "32767", "32768", "-32769",
    "2147483647", "2147483648", "-2147483649", "999999999999999999", "1000000000000000000",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616",
    "123456789012345678901234567890", "0.1", "0.30000000000000004", "1.7976931348623157e308",
    "1.7976931348623159e308", "5e-324", "2.2250738585072011e-308", "3.4028236e38", "16777217.0",
    "9007199254740993", "9007199254740993.0", "123456789.12345678901234567890", "1.0", "5.0e0",
    "60.00000000000000000000000000000000000000000000000001", "NaN", "Infinity", "-", "1_0", "0x1",
]  # fmt: skip
TEXTS = [
    '""', '"a"', '"press-17"', '"a long text that has more than sixteen bytes in it"', '"grün"',
    '"日本語"', '"\U0001f680"', r'"a\"b"', r'"a\\b"', r'"\u00e9"', r'"\ud83d\ude80"', r'"\ud800"',
    r'"\x"', '"tab\there"', '"nul\x00"', '"\x7f"', '"open', "'a'",
]  # fmt: skip
TIMES = [
    "2026-11-25T15:36:05Z", "2026-11-25T15:36:05.5Z", "2026-11-25T15:36:05.123456Z",
    "2026-11-25T15:36:05.1234567Z", "2026-11-25T15:36:05.123456789Z",
    "2026-12-31T23:59:59.9999995Z", "2026-12-31T23:59:59.99999949999Z",
    "1969-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z", "2026-11-25T15:36:05",
    "0001-01-01T00:00:00.0000005+01:00", "2026-11-25T15:36:05.0000005000000000000+02:00",
    "2026-11-25 15:36:05Z", "2026-11-25t15:36:05z", "2026-11-25T15:36:05+01:00",
    "2026-11-25T15:36:05-12:30", "2026-11-25T15:36:05+0100", "2026-11-25T15:36:05+24:00",
    "2026-11-25T15:36:60Z", "2026-11-25T24:00:00Z", "2026-11-25T15:36Z", "2026-11-25",
    "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00Z",
    "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2026-13-01", "2026-04-31", "2026-1-1",
    "1970-01-01", "0001-01-01", "9999-12-31", "2026-11-25T15:36:05.", "2026-11-25T15:36:05-00:00",
    "2026-11-25T15:36:05+00:60", "2026-11-25Z", "yesterday",
]  # fmt: skip
OTHERS = ["true", "false", "null", "nul", "True", "{}", "[]", "[1,2]", '{"a":[{"b":[]}]}', "[1,]"]
JUNK = ["", " ", "\t", "\n", ",", "}", "{", "]", "\x00", '"', "\ufeff", "//x"]


def columns_of(payloads: list[bytes]) -> Columns:
    """A batch, as a fetch makes it."""
    ends = [0]
    for payload in payloads:
        ends.append(ends[-1] + len(payload))
    offsets = struct.pack(f"<{len(ends)}i", *ends)
    numbers = struct.pack(f"<{len(payloads)}q", *range(11, 11 + len(payloads)))
    data = b"".join(payloads)
    batch = dict.fromkeys(Columns._fields)
    return Columns(
        **batch
        | {
            "rows": len(payloads),
            "sequence": (numbers, len(numbers)),
            "payload_offsets": (offsets, len(offsets)),
            "payload_data": (memoryview(data), len(data)),
        }  # type: ignore[arg-type]
    )


def types_of(fields: dict[str, DataType]) -> dict[str, pa.DataType]:
    schema = StructType([StructField(name, kind) for name, kind in fields.items()])
    arrow = to_arrow_schema(schema, timezone="UTC")
    return {name: arrow.field(name).type for name in fields}


def by_objects(
    decoder: ValueDecoder, fields: dict[str, DataType], payloads: list[bytes]
) -> dict[str, pa.Array]:
    found: dict[str, Any] = decoder.decode(payloads, columns_of(payloads).sequence)
    arrays = {name: pa.array(found[name], type=one) for name, one in types_of(fields).items()}
    return arrays | {CORRUPT_COLUMN: found[CORRUPT_COLUMN]}


def listed(array: pa.Array) -> str:
    """The values, with the sign of zero; times as numbers, as some lie outside of the calendar."""
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    return repr(array.to_pylist())


def compare(fields: dict[str, DataType], batches: list[list[bytes]]) -> None:
    """Both decoders make the same arrays and counts of all batches."""
    one, other = ValueDecoder(fields, False), ValueDecoder(fields, False)
    quick = ColumnDecoder(fields, other)
    for payloads in batches:
        wanted = by_objects(one, fields, payloads)
        found = quick.decode(columns_of(payloads), types_of(fields))
        for name, array in wanted.items():
            found[name].validate(full=True)
            assert listed(found[name]) == listed(array), name
        assert found.keys() == wanted.keys()
    assert (one.corrupt, one.bad_fields) == (other.corrupt, other.bad_fields)


def a_value(random_: random.Random, depth: int) -> str:
    kind = random_.randrange(12)
    if kind < 3:
        return random_.choice(NUMBERS)
    if kind < 5:
        return random_.choice(TEXTS)
    if kind < 7:
        return json.dumps(random_.choice(TIMES))
    if kind < 8:
        return repr(random_.choice([random_.uniform(-1e6, 1e6), random_.random() * 10.0 ** 30]))
    if kind < 9:
        return repr(struct.unpack("<d", random_.randbytes(8))[0])
    if kind < 11 and depth < 4:
        return an_object(random_, INNER, depth + 1)
    return random_.choice(OTHERS)


def a_fitting_value(random_: random.Random, name: str) -> str:
    return {
        "device": f'"press-{random_.randrange(1000)}"',
        "n": str(random_.randrange(-(1 << 59), 1 << 59)),
        "i": str(random_.randrange(-(1 << 31), 1 << 31)),
        "s": str(random_.randrange(-(1 << 15), 1 << 15)),
        "y": str(random_.randrange(-128, 128)),
        "x": repr(random_.gauss(0, 1000)),
        "f": f"{random_.gauss(0, 1000):.3f}",
        "b": random_.choice(["true", "false", "null"]),
        "t": json.dumps(random_.choice(TIMES[:3])),
        "d": f'"2026-11-{random_.randrange(1, 31):02d}"',
        "at": f'{{"lat": {random_.uniform(-90, 90)!r}, "deep": {{"on": true}}}}',
    }.get(name, '"ümlaut"')


def an_object(random_: random.Random, names: list[str], depth: int = 0) -> str:
    space = random_.choice(["", "", " ", "\n\t"])
    wanted = random_.sample(names, random_.randrange(len(names) + 1))
    if random_.random() < 0.05 and wanted:
        wanted.append(random_.choice(wanted))
    odd = random_.random()
    members = []
    for name in wanted:
        fits = random_.random() > odd / 3
        value = a_fitting_value(random_, name) if fits else a_value(random_, depth)
        shown = json.dumps(name, ensure_ascii=random_.random() < 0.2)
        members.append(f"{shown}{space}:{space}{value}")
    return f"{{{space}{f'{space},{space}'.join(members)}{space}}}"


def a_payload(random_: random.Random) -> bytes:
    text = an_object(random_, NAMES)
    kind = random_.random()
    if kind < 0.05:
        at = random_.randrange(len(text) + 1)
        text = text[:at] + random_.choice(JUNK) + text[at:]
    elif kind < 0.1:
        text = text[: random_.randrange(len(text) + 1)]
    elif kind < 0.12:
        text = a_value(random_, 0)
    data = text.encode("utf-8", "surrogatepass")
    if 0.2 < kind < 0.25 and data:
        at = random_.randrange(len(data))
        data = data[:at] + random_.randbytes(1) + data[at + 1 :]
    return data


def test_made_up_payloads_of_any_kind() -> None:
    fields = parse_value_schema(SCHEMA)
    assert takes_all(fields)
    random_ = random.Random(20261125)
    for _ in range(60):
        shapes = [[a_payload(random_) for _ in range(random_.randrange(1, 60))] for _ in range(3)]
        compare(fields, shapes)


@pytest.mark.parametrize("name", ["device", "n", "i", "s", "y", "x", "f", "b", "t", "d", "other"])
def test_each_odd_value_in_each_field(name: str) -> None:
    fields = parse_value_schema(SCHEMA)
    odd = NUMBERS + TEXTS + OTHERS + [json.dumps(time) for time in TIMES]
    payloads = [f'{{"{name}": {value}}}'.encode("utf-8", "surrogatepass") for value in odd]
    good = [b'{"device":"a","x":1.5}'] * len(payloads) * 2
    compare(fields, [payloads + good, [good[0], *payloads], payloads])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
def test_any_bytes(payloads: list[bytes]) -> None:
    fields = parse_value_schema("a long, b string, c struct<a: double>")
    compare(fields, [payloads, [b'{"a":1,"b":"' + one + b'"}' for one in payloads]])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=12), max_size=9))
def test_what_python_writes(values: list[Any]) -> None:
    fields = parse_value_schema("v double, w long, s string, f float")
    lines = [json.dumps({"v": v, "s": v, "w": v, "f": v}, ensure_ascii=False) for v in values]
    whole = [line.encode("utf-8", "surrogatepass") for line in lines]
    compare(fields, [[b'{"v":1}', *whole]])


def test_texts_grow_beyond_the_room_of_the_batch_before() -> None:
    fields = parse_value_schema("a string, b string")
    sizes = range(0, 5000, 7)
    some = [b'{"a":"%s","b":"%s"}' % (b"x" * size, b"y" * (size // 2)) for size in sizes]
    compare(fields, [[b'{"a":"x"}'], some, some[::-1]])


def test_batches_of_texts_for_the_other_decoder() -> None:
    fields = parse_value_schema("a string, n long")
    escaped = [b'{"a":"\\u00e9","n":%d}' % number for number in range(10)]
    plain = [b'{"a":"x","n":%d}' % number for number in range(10)]
    compare(fields, [escaped, *[plain] * 20, escaped, plain + escaped])


def test_more_fields_than_places_are_remembered() -> None:
    names = [f"f{number}" for number in range(300)]
    fields = parse_value_schema(", ".join(f"{name} long" for name in names))
    whole = json.dumps({name: at for at, name in enumerate(names)}).encode()
    turned = json.dumps({name: at for at, name in enumerate(reversed(names))}).encode()
    compare(fields, [[whole, turned, whole, whole], [b"{}", turned]])


def test_failfast_names_the_sequence_of_the_first_bad_payload() -> None:
    fields = parse_value_schema("n long")
    quick = ColumnDecoder(fields, ValueDecoder(fields, True))
    payloads = [b'{"n":1}', b'{"n":2}', b'{"n":"x"}', b"no", b'{"n":2}']
    with pytest.raises(ValueError, match="sequence 13 "):
        quick.decode(columns_of(payloads), types_of(fields))


def test_times_in_nanoseconds_are_not_left_to_the_other_decoder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Go writes times so: it would take several times as long."""
    fields = parse_value_schema("t timestamp")
    quick = ColumnDecoder(fields, ValueDecoder(fields, False))
    monkeypatch.delattr(ValueDecoder, "decode")
    found = quick.decode(columns_of([b'{"t":"2026-11-25T15:36:05.123456789Z"}']), types_of(fields))
    assert found["t"].cast("int64").to_pylist() == [1_795_620_965_123_457]


def test_types_that_are_left_to_the_other_decoder() -> None:
    for text in ("a decimal(10,2)", "a binary", "a array<long>", "a struct<b: map<string,long>>"):
        assert not takes_all(parse_value_schema(text))
    assert not takes_all({})
