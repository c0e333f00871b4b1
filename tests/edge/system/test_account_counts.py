"""Limits of an account's connections hold for all nodes of a cluster, beside nats-server's, too."""

import contextlib
import time
from collections.abc import Iterator

import pytest

from bench.servers import Server, free_port
from tests.edge.system.test_account_claims import Admin
from tests.operator_realm import Raw, Realm, recipe
from tests.waiting import until_seen

PAIRS = [
    ("headwater", "headwater"),
    ("headwater", "nats-server"),
    ("nats-server", "headwater"),
    ("nats-server", "nats-server"),
]
FULL = ["-ERR 'maximum account active connections exceeded'"]


@contextlib.contextmanager
def cluster(
    pair: tuple[str, str], realm: Realm
) -> Iterator[tuple[list[Server], list[int]]]:
    """Two nodes that are connected, and the ports of their leaf listeners."""
    routes, leafs = [free_port(), free_port()], [free_port(), free_port()]
    with contextlib.ExitStack() as stack:
        servers = []
        for index, name in enumerate(pair):
            extra = (
                f"server_name: n{index}\nleafnodes {{ listen: '127.0.0.1:{leafs[index]}' }}\n"
                f"cluster {{ name: C, listen: '127.0.0.1:{routes[index]}', "
                f"routes: ['nats://127.0.0.1:{routes[1 - index]}'] }}"
            )
            servers.append(stack.enter_context(Server(recipe(name, realm.config(extra)))))
        until_seen(lambda: answers(servers, realm), "the nodes know one another")
        yield servers, leafs


def server_id(server: Server) -> str:
    with Raw(server.port) as client:
        return str(client.info["server_id"])


def answers(servers: list[Server], realm: Realm) -> bool:
    """Whether the second node answers a user of the first."""
    with Raw(servers[0].port) as system:
        assert system.login(realm.user("S")) == []
        subject = f"$SYS.REQ.SERVER.{server_id(servers[1])}.IDZ"
        return system.request(subject, seconds=0.3) is not None


def admitted(server: Server, realm: Realm, kept: list[Raw]) -> bool:
    """Whether one more of account A's users comes in; it stays."""
    client = Raw(server.port)
    answer = client.login(realm.user())
    if answer:
        assert answer == FULL
        client.close()
        return False
    kept.append(client)
    return True


def refused(server: Server, realm: Realm) -> bool:
    """Whether the next is refused; one that is not leaves again."""
    kept: list[Raw] = []
    if not admitted(server, realm, kept):
        return True
    kept[0].close()
    return False


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_clients_of_all_nodes_count(pair: tuple[str, str]) -> None:
    realm = Realm()
    realm.bodies["A"].limits.conn = 2
    here: list[Raw] = []
    there: list[Raw] = []
    with cluster(pair, realm) as (servers, _):
        one, other = servers

        def full(first: int, second: int) -> bool:
            """Whether so many are on the nodes, and no more on either."""
            filled = fill(one, realm, here, first) and fill(other, realm, there, second)
            return filled and refused(one, realm) and refused(other, realm)

        until_seen(lambda: full(1, 1), "one on each is all")
        here.pop().close()
        until_seen(lambda: full(0, 2), "two on the second are all")
        for client in there:
            client.close()
        until_seen(lambda: full(2, 0), "two on the first are all")
        # A node that goes takes its sessions along.
        one.stop()
        until_seen(lambda: fill(other, realm, there, 2), "the first node is gone")
    for client in (*here, *there):
        client.close()


def fill(server: Server, realm: Realm, kept: list[Raw], count: int) -> bool:
    """Whether so many are there; who was sent away comes again."""
    for client in [each for each in kept if ended(each)]:
        kept.remove(client)
        client.close()
    while len(kept) < count and admitted(server, realm, kept):
        pass
    return len(kept) == count


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_leafs_of_all_nodes_count(pair: tuple[str, str]) -> None:
    realm = Realm()
    realm.bodies["A"].limits.leaf = 1

    links: list[Raw] = []

    def linked(index: int) -> bool:
        """Whether a leaf link is let in; it stays."""
        links.append(Raw(leafs[index]))
        return FULL[0] not in links[-1].link(realm.user(), name=f"n{index}", cluster=f"c{index}")

    def full() -> bool:
        """Whether the first node has a link and the second takes none; a link that was let in
        there by mistake may have ended the first."""
        while links:
            links.pop().close()
        return linked(0) and not linked(1)

    with cluster(pair, realm) as (_, leafs):
        until_seen(full, "the account has its leaf")
        while links:
            links.pop().close()


@pytest.mark.parametrize("pair", PAIRS[:2], ids="-".join)
def test_who_is_too_many_by_the_other_nodes_word_is_sent_away(pair: tuple[str, str]) -> None:
    """A limit is lowered to what each node has by itself; the next word of another ends some."""
    realm = Realm()
    kept: list[Raw] = []
    with cluster(pair, realm) as (servers, _):
        for server in (*servers, *servers):
            assert admitted(server, realm, kept)
        realm.bodies["A"].limits.conn = 2
        for server in servers:
            Admin(realm, server.port).push(realm.token("A", int(time.time()) + 1))
        kept.pop().close()
        until_seen(lambda: sum(not ended(client) for client in kept) <= 2, "two are left at most")
    for client in kept:
        client.close()


def ended(client: Raw) -> bool:
    """Whether a connection is no more; one that is there hears itself."""
    if client.socket.fileno() < 0:
        return True
    return not any(line.startswith("MSG") for line in client.send("SUB a 1\r\nPUB a 0\r\n\r\n"))
