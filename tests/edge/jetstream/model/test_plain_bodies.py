"""Bodies that are decoded in one pass are what the long way makes of them."""

import json
import random
from typing import Any

import msgspec
import pytest

from headwater.edge.jetstream.model import bodies, models
from headwater.edge.jetstream.model.errors import JetStreamError
from headwater.edge.wire.plain_json import is_plain

KINDS: tuple[Any, ...] = (
    models.MsgGetRequest,
    models.ConsumerRequest,
    models.StreamRequest,
    models.PurgeRequest,
    models.PullRequest,
)
VALUES: list[Any] = [
    0, 1, -1, 5, 5.0, 1e3, 10**17, 10**18, 2**63, 2**64, True, False, None, "", "a.b", "x:y", '"',
    "2020-01-01T00:00:00Z", "\u2028", [], ["a"], ["a", "a"], {}, {"name": "x", "src": "a"},
    [{"name": "x"}, {"name": "y"}], {"k": "v"}, {"k": 1},
]  # fmt: skip


def names() -> list[str]:
    """Fields of all kinds, some in large letters, and others."""
    found = {"config", "nothing", ":", "a:b"}
    for kind in (*KINDS, models.ConsumerConfig, models.StreamConfig):
        found |= {field.encode_name for field in msgspec.structs.fields(kind)}
    return sorted(found | {name.upper() for name in found})


def body(chance: random.Random, fields: list[str]) -> bytes:
    """A JSON object, now and then with a field twice."""
    items = []
    for _ in range(chance.randrange(5)):
        name, value = chance.choice(fields), chance.choice(VALUES)
        if name == "config":
            value = {chance.choice(fields): chance.choice(VALUES) for _ in range(3)}
        colon = chance.choice([":", " : ", "\n:\t"])
        items.append(json.dumps(name) + colon + json.dumps(value, ensure_ascii=False))
    return ("{" + ",".join(items) + "}").encode()


def decoded(payload: bytes, kind: Any, strict: bool, whole: bool) -> str:
    """What becomes of a body, as text."""
    try:
        return repr(bodies.decode(payload, kind, strict, whole))
    except JetStreamError as error:
        return f"{error.err_code} {error.description}"


def test_one_pass_or_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(20261129)
    fields = names()
    asked = []
    for _ in range(8000):
        kind, payload = chance.choice(KINDS), body(chance, fields)
        asked.append((payload, kind, chance.random() < 0.5, chance.random() < 0.5))
    quick = [decoded(*one) for one in asked]
    assert sum(is_plain(payload) for payload, *_ in asked) > 2000
    monkeypatch.setattr(bodies, "is_plain", lambda text: False)
    for one, found in zip(asked, quick, strict=True):
        assert found == decoded(*one), one


@pytest.mark.parametrize("text", [
    b'{"a":1,"a":2}', b'{"a" :1,"b":{"a":2}}', b'{"a":null}', b'{"a":"\\u0041"}', b'{"x_time":1}',
    b'{"pause_until":1}', b'{"a":123456789012345678}', b'{"a":"b",":x":1,":x":2}',
    b"{" + b",".join(b'"%d":1' % at for at in range(65)) + b"}",
])  # fmt: skip
def test_what_is_looked_at_twice(text: bytes) -> None:
    assert not is_plain(text)


@pytest.mark.parametrize("text", [
    b"", b"{}", b'{"a":1,"b":"a"}', b'{"a":"null","b":[1,2]}', b'{"a":12345678901234567}', b'"',
])  # fmt: skip
def test_what_is_plain(text: bytes) -> None:
    assert is_plain(text)
