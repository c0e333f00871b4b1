"""Payloads decoded in the reader."""

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import cbor2
import msgspec
import pytest
from pyspark.sql import types as t

from headwater.spark.errors import OptionError
from headwater.spark.read.value_decoder import ValueDecoder, untyped
from headwater.spark.read.value_types import checked_type, infer_types, parse_value_schema


def sequences(count: int) -> tuple[bytearray, int]:
    raw = bytearray(struct.pack(f"<{count}q", *range(11, 11 + count)))
    return raw, len(raw)


def test_schema_text() -> None:
    assert parse_value_schema("device string, v: double,`odd name` BIGINT") == {
        "device": t.StringType(),
        "v": t.DoubleType(),
        "odd name": t.LongType(),
    }


@pytest.mark.parametrize("form", ["json", "simpleString"])
def test_the_text_of_a_spark_schema(form: str) -> None:
    inner = t.StructType([t.StructField("lat", t.DoubleType())])
    fields = {
        "id": t.LongType(), "d": t.DecimalType(10, 2), "at": inner,
        "tags": t.MapType(t.StringType(), t.ArrayType(t.DateType())),
    }  # fmt: skip
    schema = t.StructType([t.StructField(*each) for each in fields.items()])
    assert parse_value_schema(getattr(schema, form)()) == fields


FIELD = '{"name":"a","type":"long","nullable":true,"metadata":{}}'
TWICE = f'{{"type":"struct","fields":[{FIELD},{FIELD}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a blob", "a long, a int", "a array<int", "1 long", "a map<int,int>",
        "{", "{}", '{"type":"struct","fields":[1]}', TWICE, TWICE.replace("long", "void"),
        "struct<>", '{"type":"struct","fields":[{"name":"a","type":"nothing"}]}',
    ],
)  # fmt: skip
def test_bad_schema_text(text: str) -> None:
    with pytest.raises(OptionError):
        parse_value_schema(text)


def test_values_nulls_and_corrupt_rows() -> None:
    fields = parse_value_schema("d string, n long, i int, x double, b boolean, t timestamp")
    payloads = [
        b'{"d":"a","n":5,"i":1,"x":2,"b":true,"t":"2026-11-21T03:00:00.5Z","more":[1]}',
        b'{"d":null}',
        b"not json",
        b'{"n":"5"}',
        b'{"n":9223372036854775808}',
        b'{"i":3000000000}',
        b"[]",
        b"\xff",
    ]
    rows = ValueDecoder(fields, False).decode(payloads, sequences(len(payloads)))
    assert rows["d"] == ["a"] + [None] * 7
    assert rows["n"] == [5] + [None] * 7
    assert rows["x"][0] == 2.0 and rows["b"][0] is True
    assert rows["t"][0] == datetime(2026, 11, 21, 3, 0, 0, 500000, UTC)
    corrupt = rows["_corrupt_record"].to_pylist()
    assert corrupt[:3] == [None, None, "not json"]
    assert all(text is not None for text in corrupt[2:])


def test_a_bad_field_is_null_alone() -> None:
    fields = parse_value_schema("d string, n long, i int, x double, b boolean, t timestamp")
    good = b'"d":"a","n":5,"i":1,"x":2.5,"b":true,"t":"2026-11-21T03:00:00Z"'
    bad = {
        "d": b'"d":7',
        "n": b'"n":9223372036854775808',
        "i": b'"i":3000000000',
        "x": b'"x":"2.5"',
        "b": b'"b":1',
        "t": b'"t":"yesterday"',
    }
    payloads = [b"{%s}" % good, *(b"{%s,%s}" % (good, field) for field in bad.values()), b"[1]"]
    decoder = ValueDecoder(fields, False)
    rows = decoder.decode(payloads, sequences(len(payloads)))
    for index, name in enumerate(bad, 1):
        nulls = {field for field in fields if rows[field][index] is None}
        assert nulls == {name}
        assert rows["_corrupt_record"][index].as_py() == payloads[index].decode()
    assert all(rows[field][0] is not None and rows[field][-1] is None for field in fields)
    assert (decoder.corrupt, decoder.bad_fields) == (len(bad) + 1, len(bad))


@pytest.mark.parametrize(
    ("name", "encode"),
    [("json", msgspec.json.encode), ("msgpack", msgspec.msgpack.encode), ("cbor", cbor2.dumps)],
)
def test_a_bad_value_in_a_nested_one_is_null_alone(name: str, encode: Any) -> None:
    """As with `from_json`, which keeps what it can read of structs, arrays and maps."""
    places = "at struct<lat: double, to: struct<n: int>>"
    schema = parse_value_schema(f"{places}, all array<struct<n: int>>, m map<string, int>")
    decoder = ValueDecoder(schema, False, name)
    given: list[Any] = [
        {"at": {"lat": "x", "to": {"n": 1, "more": []}}, "m": {"a": 1, "b": [], "c": None}},
        {"at": {"lat": 1.5, "to": "y"}, "all": [{"n": 1}, None, {"n": "x"}, 7, {}]},
        {"at": 5, "all": {}, "m": 1},
    ]
    rows = decoder.decode([encode(one) for one in given], sequences(3))
    assert rows["at"] == [{"lat": None, "to": {"n": 1}}, {"lat": 1.5, "to": None}, None]
    assert rows["all"] == [None, [{"n": 1}, None, {"n": None}, None, {}], None]
    assert rows["m"] == [{"a": 1, "b": None, "c": None}, None, None]
    assert (decoder.corrupt, decoder.bad_fields) == (3, 8)


@pytest.mark.parametrize("field", [b"v", b"w"])
@pytest.mark.parametrize(
    ("name", "head", "tail"),
    [
        ("json", b'{"device": "a", "%s": ' + b"[" * 5000, b"]" * 5000 + b"}"),
        ("json", b'{"device": "a", "%s": ' + b'{"a": ' * 5000, b"1" + b"}" * 5001),
        ("msgpack", b"\x82\xa6device\xa1a\xa1%s" + b"\x91" * 5000, b"\xc0"),
        ("cbor", b"\xa2\x66device\x61a\x61%s" + b"\x81" * 5000, b"\xf6"),
    ],
)
def test_what_is_nested_too_deep_is_corrupt(
    name: str, head: bytes, tail: bytes, field: bytes
) -> None:
    """One such message ended each read of its stream, and each job."""
    encode = {"json": msgspec.json.encode, "msgpack": msgspec.msgpack.encode, "cbor": cbor2.dumps}
    payloads = [head % field + tail, encode[name]({"device": "b", "v": 2.0})]
    decoder = ValueDecoder(parse_value_schema("device string, v double"), False, name)
    found = decoder.decode(payloads, sequences(2))
    assert (found["device"][1], found["v"]) == ("b", [None, 2.0])
    assert decoder.corrupt == 1 and found["_corrupt_record"].null_count == 1


def test_a_decimal_that_does_not_fit_is_null_alone() -> None:
    """Also in a struct, an array and a map; and what is no finite number does not fit."""
    nested = "at struct<p: decimal(5,2), n: int>, all array<decimal(5,2)>"
    schema = parse_value_schema(f"{nested}, m map<string, decimal(5,2)>, d decimal(5,2)")
    decoder = ValueDecoder(schema, False)
    given = [
        b'{"at":{"p":1234.5,"n":1},"all":[1,1234,2.005],"m":{"a":1,"b":1000},"d":999.994}',
        b'{"at":{"p":1},"d":"NaN"}',
        b'{"all":["Infinity",1],"d":999.995}',
    ]
    rows = decoder.decode(given, sequences(3))
    assert rows["at"] == [{"p": None, "n": 1}, {"p": Decimal(1)}, None]
    assert rows["all"] == [[Decimal(1), None, Decimal("2.01")], None, [None, Decimal(1)]]
    assert rows["m"] == [{"a": Decimal(1), "b": None}, None, None]
    assert rows["d"] == [Decimal("999.99"), None, None]
    assert (decoder.corrupt, decoder.bad_fields) == (3, 6)
    with pytest.raises(ValueError, match="sequence 11 is not"):
        ValueDecoder(schema, True).decode(given, sequences(3))


def test_a_decimal_has_as_many_digits_as_sparks() -> None:
    """Python's own arithmetic rounds to 28 digits."""
    digits = "12345678901234567890123456789012345678"
    decoder = ValueDecoder(parse_value_schema("d decimal(38,0), e decimal(38,18)"), False)
    given = f'{{"d":-{digits},"e":{digits[:20]}.{digits[20:]}}}', f'{{"d":{digits}9}}'
    rows = decoder.decode([one.encode() for one in given], sequences(2))
    assert rows["d"] == [Decimal(f"-{digits}"), None]
    assert rows["e"] == [Decimal(f"{digits[:20]}.{digits[20:]}"), None]


def test_failfast_names_the_sequence() -> None:
    decoder = ValueDecoder({"n": t.LongType()}, True)
    with pytest.raises(ValueError, match="sequence 12"):
        decoder.decode([b'{"n":1}', b"no"], sequences(2))


def test_a_time_without_zone_is_utc() -> None:
    rows = ValueDecoder({"t": t.TimestampType()}, False).decode(
        [b'{"t":"2026-11-21T03:00:00"}'], sequences(1)
    )
    assert rows["t"] == [datetime(2026, 11, 21, 3, tzinfo=UTC)]


def test_nested_values_decimals_and_dates() -> None:
    fields = parse_value_schema(
        "price decimal(5,2), at struct<t: timestamp, xs: array<double>>, "
        "tags map<string, long>, day date, raw binary"
    )
    good = (
        b'{"price":1.235,"at":{"t":"2026-01-01T00:00:00","xs":[1,2.5,null]},'
        b'"tags":{"k":3},"day":"2026-02-03","raw":"AQI="}'
    )
    decoder = ValueDecoder(fields, False)
    rows = decoder.decode(
        [good, b'{"price":123456.1,"tags":{"k":"x"},"day":"2026-02-03"}'], sequences(2)
    )
    assert rows["price"] == [Decimal("1.24"), None]
    assert rows["at"][0] == {"t": datetime(2026, 1, 1, tzinfo=UTC), "xs": [1.0, 2.5, None]}
    assert rows["tags"] == [{"k": 3}, {"k": None}]
    assert rows["day"] == [date(2026, 2, 3)] * 2
    assert rows["raw"] == [b"\x01\x02", None]
    assert (decoder.corrupt, decoder.bad_fields) == (1, 2)


@pytest.mark.parametrize(
    ("name", "encode"), [("msgpack", msgspec.msgpack.encode), ("cbor", cbor2.dumps)]
)
def test_binary_formats(name: str, encode: object) -> None:
    fields = parse_value_schema("a long, b double, c array<string>, raw binary")
    payloads = [
        encode({"a": 1, "b": 2.5, "c": ["x"], "raw": b"\x00"}),  # type: ignore[operator]
        encode({"a": "x", "b": 1.5}),  # type: ignore[operator]
        b"\xff\xff",
        encode([1]),  # type: ignore[operator]
    ]
    decoder = ValueDecoder(fields, False, name)
    rows = decoder.decode(payloads, sequences(4))
    assert rows["a"] == [1, None, None, None]
    assert rows["b"] == [2.5, 1.5, None, None]
    assert rows["c"][0] == ["x"] and rows["raw"][0] == b"\x00"
    assert rows["_corrupt_record"].to_pylist() == [None, *(one.hex() for one in payloads[1:])]
    assert (decoder.corrupt, decoder.bad_fields) == (3, 1)
    assert untyped(name)(payloads[0])["a"] == 1


def test_types_learnt_from_samples() -> None:
    found = infer_types(
        [
            {"a": 1, "b": None, "c": True, "e": []},
            {"a": 1.5, "b": "x", "c": 2, "d": {"y": [1, None]}},
            [1],
            {"d": {"z": {}}, "f": 1 << 80},
        ]
    )
    assert t.StructType([t.StructField(*pair) for pair in found.items()]).simpleString() == (
        "struct<a:double,b:string,c:string,e:array<string>,"
        "d:struct<y:array<bigint>,z:string>,f:double>"
    )
    with pytest.raises(OptionError, match="valueSchema"):
        infer_types([1, "x"])


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (t.TimestampNTZType(), "take timestamp, and cast it"),
        (t.VarcharType(9), "take string, and cast it"),
        (t.MapType(t.IntegerType(), t.StringType()), "take string for the keys"),
        (t.NullType(), "read raw payloads"),
    ],
)
def test_types_that_values_cannot_have(kind: t.DataType, advice: str) -> None:
    with pytest.raises(OptionError, match=advice):
        checked_type(kind)
