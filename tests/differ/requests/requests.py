"""Requests of the API, made up from a seed: with every field that each knows, good and odd."""

import json
import random
from typing import Any

from tests.differ.histories import FLAGS, Step, api, some
from tests.differ.requests.fields import CONSUMER, FIELDS, ORIGIN, STREAM, USUAL


class Pairs(list[Any]):
    """An object: its keys may come twice."""


class Raw(str):
    """Text that goes out as it is."""


NUMBERS = [
    "-1", "0", "1", "0.5", "1.0", "1e0", "1e2", "1e300", "1e999", "01", "+1", "2147483647",
    "2147483648", "4294967296", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616", "-0.0", "1.5e1", "0x1",
    "NaN", "1_0", "1.", ".5", "-2147483649", "9007199254740993",
]  # fmt: skip
OTHER = [
    "null", "true", "false", "[]", "{}", '""', '"x"', "[null]", "[1]", '["x"]', '[["x"]]',
    '{"a":1}', "[{}]", "[null,null]", '"1"', '"true"', '"null"', "True", "nul", "'x'", '{"":""}',
]  # fmt: skip
TEXTS = [
    "", " ", "a b", "a.b", "*", ">", "a.>", "a..b", ".a", "a.", "\t", "a\tb", "\\", "/", "é", "Ā",
    "a\x00b", "\x7f", "\u2028", "x" * 255, "x" * 256, "x" * 5000, "$JS.API.>", "$SYS.a", "_INBOX.x",
    "%", "%.a", "%.>", "{{wildcard(1)}}", "%.$1", "$1", "%.{{partition(0,1)}}", "{{bad(1)}}",
    "ALL", "All", "all ", "<&>", "a,b", "0", "1s", "-1s", "1m0s", "%M",
    "0001-01-01T00:00:00Z", "2020-13-01T00:00:00Z", "2020-01-01", "9999-12-31T23:59:59.9999999999Z",
    "10000-01-01T00:00:00Z", "2020-01-01T00:00:00", "2020-01-01T00:00:00+25:00",
    "2020-01-01t00:00:00z", "2020-01-01T24:00:00Z", "2020-02-30T00:00:00Z", "1677-01-01T00:00:00Z",
    "2020-01-01T00:00:00,5Z", "2300-01-01T00:00:00Z", "2020-01-01T00:00:60Z",
]  # fmt: skip
RAW_TEXTS = [
    r'"\u0061"', r'"\ud800"', r'"\ud83d\ude00"', r'"\x"', r'"\u12"', '"\udcff"', '"\udcc3("',
    '"a\x01b"', '"a\nb"', '"', r'"\/"', r'"\u0000"', '"\x7f"', r'"\"',
]  # fmt: skip
BODIES = [
    "", " ", "null", "[]", "{", "}", "{}", "{} ", "\ufeff{}", '{"a"}', "{,}", '{"seq":1,}', "x",
    "0", '"x"', "true", "{}{}", "{}x", "\x00", '{"a":' * 300 + "1" + "}" * 300, "[{}]", "\n{}\n",
    '{"": 1}', "{'seq': 1}", "{seq: 1}", "//\n{}", "{}\x00", "\udcff",
    '{"a":' * 11000 + "1" + "}" * 11000,
]  # fmt: skip
TOKENS = ["%X", "%.x", "x" * 256, "é", "%M", "\\"]
LEVELS = ["0", "1", "2", "3", "4", "99", "x", "", "-1", "1.0", " 1"]


class Maker:
    """Makes the requests of one history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"requests {seed}")

    def object(self, table: dict[str, list[Any]], most: int, usual: list[str]) -> Pairs:
        """A few fields of a table, whose tables become objects."""
        chance = self.chance
        keys = chance.sample(list(table), min(chance.randrange(most + 1), len(table)))
        keys += [key for key in usual if key not in keys and chance.random() < 0.95]
        chance.shuffle(keys)
        return Pairs((key, self.value(chance.choice(table[key]))) for key in keys)

    def value(self, value: Any) -> Any:
        """A value of a table: as pairs, wherever it is an object."""
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if not isinstance(value, dict):
            return value
        for table, usual in ((ORIGIN, ["name"]), (STREAM, ["name"]), (CONSUMER, ["ack_policy"])):
            if value is table:
                return self.object(table, self.chance.choice([1, 3, 6]), usual)
        return Pairs((key, self.value(each)) for key, each in value.items())

    def places(self, value: Any) -> list[tuple[Any, int]]:
        """Each field and item: what it stands in, and where in that."""
        if not isinstance(value, list):
            return []
        found = []
        for at, each in enumerate(value):
            found.append((value, at))
            found += self.places(each[1] if isinstance(each, tuple) else each)
        return found

    def odd(self) -> Any:
        """A value that is mostly wrong."""
        chance = self.chance
        return chance.choice(
            [
                Raw(chance.choice(NUMBERS)),
                Raw(chance.choice(OTHER)),
                chance.choice(TEXTS),
                Raw(chance.choice(RAW_TEXTS)),
                Raw("null"),
            ]
        )

    def change(self, body: Pairs) -> None:
        """One change somewhere in the body."""
        chance = self.chance
        places = self.places(body)
        if not places:
            body.append((chance.choice(["x", "", "name", "seq"]), self.odd()))
            return
        where, at = chance.choice(places)
        field = where[at]
        if not isinstance(field, tuple):
            where[at] = self.odd()
            return
        key, value = field
        kind = chance.randrange(9)
        if kind <= 4:
            where[at] = (key, self.odd())
        elif kind == 5:
            del where[at]
        elif kind == 6:
            where.insert(chance.choice([at, len(where)]), (key, self.odd()))
        elif kind == 7:
            forms = [key.upper(), key.title(), key.replace("_", ""), f"{key} ", key.capitalize()]
            where[at] = (chance.choice(forms), value)
        else:
            where.insert(at, (chance.choice(["unknown", "", key.upper()]), self.odd()))

    def request(self) -> Step:
        """One request."""
        chance = self.chance
        subject = chance.choice(list(FIELDS))
        table = FIELDS[subject]
        body = self.object(table, chance.choice([1, 2, 4, 8]), USUAL.get(subject, []))
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3])):
            self.change(body)
        text = written(body)
        if chance.random() < 0.06 or (not table and chance.random() < 0.5):
            text = chance.choice(BODIES)
        elif chance.random() < 0.05:
            text += chance.choice([" ", "x", "{}", written(body), "\n", ",", "}", "\x00"])
        elif chance.random() < 0.03:
            text = text[: chance.randrange(len(text))]
        step: Step = {"do": "ask", "subject": f"$JS.API.{self.tokens(subject)}", "body": text}
        if chance.random() < 0.06:
            step["headers"] = [("Nats-Required-Api-Level", chance.choice(LEVELS))]
        if "DIRECT.GET" in subject or "MSG.NEXT" in subject:
            step["many"] = True
        return step

    def tokens(self, subject: str) -> str:
        """The subject; now and then another token in it."""
        chance = self.chance
        if chance.random() > 0.04:
            return subject
        parts = subject.split(".")
        kind = chance.randrange(3)
        odd = chance.choice(TOKENS)
        if kind == 0:
            parts[-1] = odd
        elif kind == 1:
            parts.append(odd)
        else:
            parts.pop()
        return ".".join(parts)

    def steps(self) -> list[Step]:
        """A stream with a few messages and two consumers, requests, and what came of them."""
        chance = self.chance
        config = {"name": "%", "subjects": ["%.>"], **some(chance, FLAGS, 3)}
        config.pop("max_age", None)
        made: list[Step] = [api("STREAM.CREATE.%", config)]
        made += [
            {"do": "publish", "subject": f"%.{leaf}", "headers": [], "payload": "x"}
            for leaf in chance.choices("ab", k=3)
        ]
        pushed = {"durable_name": "D", "ack_policy": "none", "deliver_subject": "%d.D"}
        made += [
            api("CONSUMER.CREATE.%.C", consumer({"durable_name": "C", "ack_policy": "explicit"})),
            api("CONSUMER.CREATE.%.D", consumer(pushed)),
        ]
        made += [self.request() for _ in range(chance.randrange(8, 20))]
        ends = api("STREAM.INFO.%", {"subjects_filter": ">", "deleted_details": True})
        more = [api(name, None) for name in ("CONSUMER.LIST.%", "STREAM.INFO.%M", "INFO")]
        return [*made, ends, *more]


def consumer(config: dict[str, Any]) -> dict[str, Any]:
    """What asks for a consumer of the stream."""
    return {"stream_name": "%", "config": config}


def written(value: Any) -> str:
    """A value as JSON, whose texts may be none."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        inside = ",".join(f"{json.dumps(key)}:{written(each)}" for key, each in value)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{','.join(written(each) for each in value)}]"
    return json.dumps(value)


def requests(seed: int) -> list[Step]:
    """The requests of this seed."""
    return Maker(seed).steps()
