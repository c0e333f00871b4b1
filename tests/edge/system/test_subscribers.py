"""`$SYS.DEBUG.SUBSCRIBERS` counts on one node and in clusters, beside nats-server's, too."""

import contextlib
from collections.abc import Iterator

import pytest

from bench.servers import Server, free_port
from tests.operator_realm import Raw, recipe
from tests.waiting import until_seen

CONFIG = """
accounts {
    SYS: { users: [{user: s, password: p}], exports: [{service: "$SYS.DEBUG.SUBSCRIBERS"}] }
    A: {
        users: [{user: a, password: p}], exports: [{stream: "e.>"}]
        imports: [{service: {account: SYS, subject: "$SYS.DEBUG.SUBSCRIBERS"}, to: count}]
    }
    B: { users: [{user: b, password: p}], imports: [{stream: {account: A, subject: "e.>"}}] }
}
system_account: SYS
"""
SUBSCRIBED = "".join(
    f"SUB {subject} {sid}\r\n"
    for sid, subject in enumerate(
        ("x.1", "x.1", "x.*", "x.>", "x.1 g", "x.1 g", "x.* h", "y", "e.1", ">"), 1
    )
)
QUESTIONS = [
    "x.1", "x.1 g", "x.1 h", "x.1  g", "x.1 ", " x.1 g more", "x.*", "x.* g", "x.*  g", "x.>", ">",
    "*", "y", "none", "", "x.", "e.1", "e.>", "x.> h", "é", "$SYS.>", "count",
]  # fmt: skip


@contextlib.contextmanager
def nodes(names: list[str]) -> Iterator[list[Server]]:
    """One server, or a cluster of them."""
    routes = [free_port() for _ in names]
    to = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    with contextlib.ExitStack() as stack:
        found = []
        for name, port in zip(names, routes, strict=True):
            cluster = f'cluster {{ name: C, listen: "127.0.0.1:{port}", routes: [{to}] }}'
            text = f"server_name: n{port}\n{CONFIG}{cluster if len(names) > 1 else ''}"
            found.append(stack.enter_context(Server(recipe(name, text))))
        yield found


def client(server: Server, user: str) -> Raw:
    """A user who has logged in."""
    found = Raw(server.port)
    assert found.login(**{"user": user, "pass": "p"}) == []
    return found


def told(servers: list[Server]) -> dict[str, object]:
    """What the first server answers, when users of each have subscribed."""
    with contextlib.ExitStack() as stack:
        for user in ("a", "b"):
            for server in servers:
                assert stack.enter_context(client(server, user)).send(SUBSCRIBED) == []
        asking = stack.enter_context(client(servers[0], "a"))
        system = stack.enter_context(client(servers[0], "s"))
        until_seen(lambda: asking.request("count", b"y") == 2 * len(servers), "all count")
        found = {each: asking.request("count", each.encode()) for each in QUESTIONS}
        system.send("SUB x.1 1\r\n")
        return found | {
            f"system {each}": system.request("$SYS.DEBUG.SUBSCRIBERS", each.encode())
            for each in ("x.1", "x.*", "y")
        }


def test_one_node_counts_alike() -> None:
    with nodes(["headwater"]) as ours, nodes(["nats-server"]) as theirs:
        found = told(ours)
        assert found == told(theirs)
        assert (found["x.1"], found["x.1 g"], found["x.*"]) == (8, 2, 6)


def test_a_cluster_counts_alike() -> None:
    pairs = [["nats-server"] * 2, ["headwater"] * 2, ["headwater", "nats-server"]]
    found = []
    for pair in [*pairs, pairs[-1][::-1]]:
        with nodes(pair) as servers:
            found.append(told(servers))
    assert found[1:] == found[:1] * 3


@pytest.mark.parametrize("name", ["headwater", "nats-server"])
def test_a_server_without_sessions_is_not_waited_for(name: str) -> None:
    with nodes(["headwater", name]) as servers, client(servers[0], "a") as asking:
        asking.send(SUBSCRIBED)
        assert asking.request("count", b"y") == 2
