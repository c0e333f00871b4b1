"""`cluster.permissions`: what may come in by routes, and what may go out; on both servers."""

from contextlib import ExitStack

import nats
import pytest
from nats.aio.client import Client

from bench.servers import Recipe, Server, free_port, program

BOTH = {
    "headwater": (program("headwater"), "serve"),
    "nats-server": (program("nats-server"),),
}
RULES = 'permissions { import: { allow: ["in.>", "_INBOX.>"], deny: in.secret }, export: "out.>" }'


def config(name: str, port: int, other: int, rules: str) -> str:
    return (
        f'server_name: {name}\ncluster {{ name: c, listen: "127.0.0.1:{port}", pool_size: -1, '
        f'compression: off, routes: ["nats-route://127.0.0.1:{other}"], {rules} }}\n'
    )


LINKED_TRIES = 1000
"""A twentieth of a second each, before two nodes count as not linked."""


async def until_linked(first: Client, second: Client) -> None:
    """Wait until what is published on one node is seen on the other, both ways."""
    for here, there, subject in ((first, second, "out.ready"), (second, first, "in.ready")):
        seen = await there.subscribe(subject)
        for _ in range(LINKED_TRIES):
            await here.publish(subject)
            try:
                await seen.next_msg(0.05)
                break
            except nats.errors.TimeoutError:
                continue
        else:
            raise AssertionError(f"{subject} never arrived")
        await seen.unsubscribe()


async def seen_by(receiver: Client, sender: Client, subjects: list[str], last: str) -> set[str]:
    """Which of the subjects reach the receiver; `last` is one that must."""
    got: set[str] = set()
    done = await receiver.subscribe(last)
    subs = [await receiver.subscribe(subject) for subject in subjects]
    await receiver.flush()
    await sender.flush()
    for _ in range(100):
        await sender.publish(last)
        try:
            await done.next_msg(0.1)
            break
        except nats.errors.TimeoutError:
            continue
    for subject in [*subjects, last]:
        await sender.publish(subject, b"x")
    while (await done.next_msg(2)).data != b"x":
        continue
    for sub, subject in zip(subs, subjects, strict=True):
        try:
            await sub.next_msg(0.05)
            got.add(subject)
        except nats.errors.TimeoutError:
            continue
    return got


@pytest.mark.parametrize("name", BOTH)
async def test_routes_carry_what_is_permitted(name: str) -> None:
    ports = free_port(), free_port()
    texts = config("a", *ports, RULES), config("b", *reversed(ports), "")
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(Recipe(name, BOTH[name], text))) for text in texts]
        strict, plain = [
            await nats.connect(f"nats://127.0.0.1:{server.port}") for server in servers
        ]
        await until_linked(strict, plain)
        subjects = ["in.a", "in.secret", "out.a", "other"]
        assert await seen_by(strict, plain, subjects, "in.last") == {"in.a"}
        assert await seen_by(plain, strict, subjects, "out.last") == {"out.a"}
        await strict.close()
        await plain.close()
