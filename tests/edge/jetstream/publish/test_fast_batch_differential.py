"""Fast batches (ADR-50) are answered as nats-server answers them, message by message."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import nats
import pytest

START, APPEND, COMMIT, END, PING = range(5)
TIMEOUT_S = 10


@dataclass
class Step:
    """One message of a batch."""

    sequence: Any
    operation: Any
    gap: str = "fail"
    flow: Any = 2
    batch: str = "b"
    payload: bytes = b"x"
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def reply(self) -> str:
        """Reply subject below the client's inbox."""
        return f"{self.batch}.{self.flow}.{self.gap}.{self.sequence}.{self.operation}.$FI"


def run_of(first: int, last: int, **more: Any) -> list[Step]:
    """Messages `first` to `last`."""
    return [Step(n, START if n == 1 else APPEND, **more) for n in range(first, last + 1)]


SCRIPTS: dict[str, list[Step]] = {
    "commit with a message": [*run_of(1, 7), Step(8, COMMIT)],
    "commit without": [*run_of(1, 4), Step(5, END)],
    "one message": [Step(1, COMMIT)],
    "flow grows to what the client takes": [*run_of(1, 40, flow=16), Step(41, END)],
    "flow that is no number": [*run_of(1, 12, flow="x"), Step(13, END)],
    "two share": [
        *run_of(1, 3, flow=4),
        *run_of(1, 8, flow=4, batch="c"),
        *run_of(4, 9, flow=4),
        Step(9, COMMIT, batch="c"),
        Step(10, COMMIT),
    ],
    "gap ends it": [*run_of(1, 2), Step(5, APPEND), Step(6, APPEND)],
    "gap is fine": [
        *run_of(1, 2, gap="ok"),
        *run_of(5, 9, gap="ok"),
        Step(10, COMMIT, gap="ok"),
    ],
    "gap before the end": [*run_of(1, 2, gap="ok"), Step(9, END, gap="ok")],
    "ping": [*run_of(1, 3), Step(3, PING), Step(2, PING), Step(4, COMMIT)],
    "ping tells a gap": [*run_of(1, 3), Step(5, PING), Step(6, APPEND)],
    "ping and gaps are fine": [
        *run_of(1, 3, gap="ok"),
        Step(5, PING, gap="ok"),
        Step(6, COMMIT, gap="ok"),
    ],
    "unknown": [Step(4, APPEND), Step(2, PING), Step(3, COMMIT)],
    "malformed": [
        Step(1, 9),
        Step(0, APPEND),
        Step("x", APPEND),
        Step(2, START),
        Step(1, APPEND),
        Step(1, END),
        Step(1, START, gap="maybe"),
        Step(1, START, batch="n" * 65),
    ],
    "first is refused": [Step(1, START, headers={"Nats-Expected-Last-Sequence": "77"})],
    "later one is refused": [
        *run_of(1, 2),
        Step(3, APPEND, headers={"Nats-Expected-Stream": "OTHER"}),
        Step(4, APPEND),
    ],
    "refusals are fine": [
        *run_of(1, 2, gap="ok"),
        Step(3, APPEND, gap="ok", headers={"Nats-Expected-Last-Sequence": "77"}),
        Step(4, COMMIT, gap="ok"),
    ],
    "commit is refused": [
        *run_of(1, 2, gap="ok"),
        Step(3, COMMIT, gap="ok", headers={"Nats-Rollup": "all"}),
    ],
    "repeated": [
        *[Step(n, START if n == 1 else APPEND, headers={"Nats-Msg-Id": "i"}) for n in range(1, 5)],
        Step(5, COMMIT, headers={"Nats-Msg-Id": "i"}),
        Step(1, COMMIT, headers={"Nats-Msg-Id": "i"}),
    ],
    "too large": [*run_of(1, 2), Step(3, APPEND, payload=b"x" * 500), Step(3, COMMIT)],
}


async def play(url: str, steps: list[Step], **config: Any) -> list[Any]:
    """Every answer to these messages, then the PubAck of a plain one."""
    client = await nats.connect(url)
    answers: list[Any] = []
    done = asyncio.get_running_loop().create_future()
    inbox = client.new_inbox()

    async def on_answer(message: Any) -> None:
        place = message.subject.removeprefix(f"{inbox}.")
        answers.append((place, json.loads(message.data)))
        if place == "end":
            done.set_result(None)

    await client.subscribe(f"{inbox}.>", cb=on_answer)
    body = {"name": "FAST", "subjects": ["fast"], "max_msg_size": 400, **config}
    created = await client.request("$JS.API.STREAM.CREATE.FAST", json.dumps(body).encode())
    answers.append(json.loads(created.data).get("error"))
    for step in steps:
        await client.publish(
            "fast", step.payload, reply=f"{inbox}.{step.reply}", headers=step.headers or None
        )
    await client.publish("fast", b"end", reply=f"{inbox}.end")
    await asyncio.wait_for(done, TIMEOUT_S)
    await client.request("$JS.API.STREAM.DELETE.FAST")
    await client.close()
    return answers


@pytest.mark.parametrize("storage", ["memory", "file"])
@pytest.mark.parametrize("name", SCRIPTS)
async def test_script(name: str, storage: str, both_urls: tuple[str, str]) -> None:
    ours, theirs = [
        await play(url, SCRIPTS[name], storage=storage, allow_batched=True) for url in both_urls
    ]
    assert ours == theirs


async def test_going_back_ends_a_batch(headwater_url: str) -> None:
    """nats-server 2.15.1 calls it a gap and counts messages twice; later ones do this."""
    steps = [*run_of(1, 3, gap="ok"), Step(2, APPEND, gap="ok")]
    answers = await play(headwater_url, steps, allow_batched=True)
    last = answers[-2]
    assert last == (steps[-1].reply, {"stream": "FAST", "seq": 3, "batch": "b", "count": 3})


async def test_disabled(both_urls: tuple[str, str]) -> None:
    ours, theirs = [await play(url, [Step(1, COMMIT), *run_of(1, 2)]) for url in both_urls]
    assert ours == theirs


async def test_a_batch_that_is_turned_off_is_gone(both_urls: tuple[str, str]) -> None:
    for url in both_urls:
        client = await nats.connect(url)
        inbox = client.new_inbox()
        answers = await client.subscribe(f"{inbox}.>")
        body: dict[str, Any] = {"name": "OFF", "subjects": ["off"]}
        for action, allowed in (("CREATE", True), ("UPDATE", False), ("UPDATE", True)):
            body["allow_batched"] = allowed
            await client.request(f"$JS.API.STREAM.{action}.OFF", json.dumps(body).encode())
            sequence = 1 if action == "CREATE" else 2
            reply = f"{inbox}.{Step(sequence, APPEND if sequence > 1 else START).reply}"
            await client.publish("off", b"x", reply=reply)
            answer = json.loads((await answers.next_msg(TIMEOUT_S)).data)
            codes = {"CREATE": None, "UPDATE": 10208 if allowed else 10205}
            assert answer.get("error", {}).get("err_code") == codes[action]
        await client.request("$JS.API.STREAM.DELETE.OFF")
        await client.close()
