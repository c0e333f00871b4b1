"""Numbers of thousands of digits in headers, which Python refuses to read, beside nats-server."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.servers import Server
from headwater.edge.jetstream.model.bounds import decimal
from tests.operator_realm import SERVERS, Raw, recipe
from tests.waiting import until_seen

DIGITS = "9" * 5000
CONFIG = "jetstream { store_dir: '{dir}' }\n"
STREAM = {
    "name": "V", "subjects": ["v.>"], "storage": "memory",
    "allow_atomic": True, "allow_msg_schedules": True, "allow_msg_ttl": True,
}  # fmt: skip
REQUESTS: dict[str, tuple[str, dict[str, str], str]] = {
    "batch": ("v.b", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": DIGITS}, "x"),
    "commit": ("v.b", {"Nats-Batch-Id": "c", "Nats-Batch-Sequence": "1",
                       "Nats-Batch-Commit": DIGITS}, "x"),
    "expected": ("v.e", {"Nats-Expected-Last-Sequence": DIGITS}, "x"),
    "schedule": ("v.s", {"Nats-Schedule": f"{DIGITS} * * * * *",
                         "Nats-Schedule-Target": "v.t"}, "x"),
    "interval": ("v.s", {"Nats-Schedule": f"@every {DIGITS}s", "Nats-Schedule-Target": "v.t"}, "x"),
    "level": ("$JS.API.INFO", {"Nats-Required-Api-Level": DIGITS}, ""),
    "pull": ("$JS.API.CONSUMER.MSG.NEXT.V.c", {"Nats-Required-Api-Level": DIGITS}, "1"),
}  # fmt: skip
"""Subject, headers and body of each."""


def answers(name: str) -> dict[str, str]:
    """The last line of what comes for each request."""
    found = {}
    with Server(recipe(name, CONFIG)) as server, Raw(server.port) as wire:
        assert wire.login() == []
        assert "error" not in wire.request("$JS.API.STREAM.CREATE.V", STREAM)
        consumer = {"durable_name": "c", "ack_policy": "explicit"}
        made = wire.request("$JS.API.CONSUMER.CREATE.V.c", {"stream_name": "V", "config": consumer})
        assert "error" not in made
        assert wire.send("SUB in 9\r\n") == []
        for case, (subject, headers, body) in REQUESTS.items():
            block = "NATS/1.0\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
            size = len(block) + len(body)
            lines = wire.send(f"HPUB {subject} in {len(block)} {size}\r\n{block}{body}\r\n")
            lines = lines or until_seen(wire.send, case)
            found[case] = "".join(lines[1:]).replace(DIGITS, "9...")
        assert "report this fault" not in server.log
    return found


def test_both_answer_alike() -> None:
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        ours, theirs = pool.map(answers, SERVERS)
    assert ours == theirs


@pytest.mark.parametrize(
    ("text", "most", "number"),
    [
        (b"0", 9, 0), (b"7", 9, 7), (b"10", 9, 9), (DIGITS.encode(), 9, 9), (b"", 9, None),
        (b"0" * 5000 + b"8", 9, 8), (b"-1", 9, None), (b"1.0", 9, None), ("²".encode(), 9, None),
    ],
)  # fmt: skip
def test_a_number_of_any_length_is_bounded(text: bytes, most: int, number: int | None) -> None:
    assert decimal(text, most) == number
