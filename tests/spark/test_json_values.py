"""JSON payloads decoded in the reader."""

import struct
from datetime import UTC, datetime

import pytest

from headwater.spark.errors import OptionError
from headwater.spark.read.json_values import ValueDecoder, parse_value_schema


def sequences(count: int) -> tuple[bytearray, int]:
    raw = bytearray(struct.pack(f"<{count}q", *range(11, 11 + count)))
    return raw, len(raw)


def test_schema_text() -> None:
    assert parse_value_schema("device string, v: double,`odd name` BIGINT") == {
        "device": "string",
        "v": "double",
        "odd name": "long",
    }


@pytest.mark.parametrize("text", ["", "a", "a blob", "a long, a int", "a array<int>", "1 long"])
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


def test_failfast_names_the_sequence() -> None:
    decoder = ValueDecoder({"n": "long"}, True)
    with pytest.raises(ValueError, match="sequence 12"):
        decoder.decode([b'{"n":1}', b"no"], sequences(2))


def test_a_time_without_zone_is_utc() -> None:
    rows = ValueDecoder({"t": "timestamp"}, False).decode(
        [b'{"t":"2026-11-21T03:00:00"}'], sequences(1)
    )
    assert rows["t"] == [datetime(2026, 11, 21, 3, tzinfo=UTC)]
