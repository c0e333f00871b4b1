"""Sessions that last while the grounds for them change: clients and leaf links alike."""

import asyncio
import signal
import time
from pathlib import Path

import nats
import pytest

from bench.servers import Recipe, Server, free_port
from tests.operator_realm import SERVERS, Raw, Realm, recipe
from tests.waiting import until_seen

REVOKED = ["-ERR 'User Authentication Revoked'"]
REFUSED = ["-ERR 'Authorization Violation'"]


def from_file(name: str, path: Path) -> Recipe:
    """A server whose configuration the test rewrites."""
    start = recipe(name, "").command
    return Recipe(name, (*start, "-c", str(path), "-a", "127.0.0.1", "-p", "{port}"))


@pytest.mark.parametrize("name", SERVERS)
def test_the_operator_kicks_clients_and_leafs(name: str) -> None:
    realm = Realm()
    port = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    with Server(recipe(name, realm.config(extra))) as server, Raw(port) as link:
        link.link(realm.user())
        with Raw(server.port) as client, Raw(server.port) as system:
            client.login(realm.user())
            system.login(realm.user("S"))
            kick = f"$SYS.REQ.SERVER.{client.info['server_id']}.KICK"
            for victim in (client, link):
                system.request(kick, {"cid": victim.info["client_id"]}, seconds=0.2)
                victim.rest()
            assert system.send() == []


def test_revocation_by_reload_ends_clients_and_leafs(tmp_path: Path) -> None:
    realm = Realm()
    port = free_port()
    extra = f"leafnodes {{ listen: '127.0.0.1:{port}' }}"
    path = tmp_path / "server.conf"
    path.write_text(realm.config(extra))
    first, second, kept = realm.user(), realm.user(), realm.user()
    with Server(from_file("headwater", path)) as server, Raw(port) as link:
        link.link(second)
        with Raw(server.port) as client, Raw(server.port) as other:
            assert (client.login(first), other.login(kept)) == ([], [])
            realm.bodies["A"].revocations = {
                user.pair.public_key: int(time.time()) + 10 for user in (first, second)
            }
            path.write_text(realm.config(extra))
            server.signal(signal.SIGHUP)
            assert client.rest() == REVOKED
            assert link.rest()[-1:] == REVOKED
            assert other.send() == []


CONFIG = """
authorization {{ users: [{{user: a, password: {a}}}, {{user: b, password: b}}] }}
leafnodes {{ listen: '127.0.0.1:{leaf}', authorization {{
  users: [{{user: l, password: {l}}}, {{user: m, password: m}}] }} }}
cluster {{ name: C, listen: '127.0.0.1:{route}',
  authorization {{ user: r, password: {r}, timeout: 5 }} }}
"""


@pytest.mark.parametrize("name", SERVERS)
def test_who_is_no_user_any_more_is_cut_without_a_word(name: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    users = "{user: a, password: a}"
    path.write_text(f"accounts {{ A {{ users: [{{user: b, password: b}}, {users}] }} }}\n")
    with Server(from_file(name, path)) as server, Raw(server.port) as one, Raw(server.port) as kept:
        assert one.login(user="b", **{"pass": "b"}) == kept.login(user="a", **{"pass": "a"}) == []
        path.write_text(f"accounts {{ A {{ users: [{users}] }} }}\n")
        server.signal(signal.SIGHUP)
        assert one.rest() == []
        assert kept.send() == []


def test_a_changed_password_ends_who_used_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    ports = {"leaf": free_port(), "route": free_port()}
    path.write_text(CONFIG.format(a="a", l="l", r="r", **ports))
    with Server(from_file("headwater", path)) as server:
        a, b = Raw(server.port), Raw(server.port)
        old, new = Raw(ports["leaf"]), Raw(ports["leaf"])
        route = Raw(ports["route"])
        assert a.login(user="a", **{"pass": "a"}) == []
        assert b.login(user="b", **{"pass": "b"}) == []
        for link, user in ((old, "l"), (new, "m")):
            login = link.login(user=user, name=user, version="2.11.0", **{"pass": user})
            assert not any("-ERR" in line for line in login)
        connect = '{"name": "P", "cluster": "C", "user": "r", "pass": "r"}'
        info = '{"server_id": "P", "server_name": "p", "cluster": "C"}'
        told = route.send(f"CONNECT {connect}\r\nINFO {info}\r\n")
        assert not any("-ERR" in line for line in told)
        path.write_text(CONFIG.format(a="changed", l="changed", r="changed", **ports))
        server.signal(signal.SIGHUP)
        for ended in (a, old, route):
            assert ended.rest()[-1:] == REFUSED
        for kept in (b, new):
            assert not any("-ERR" in line for line in kept.send())
        for raw in (a, b, old, new, route):
            raw.close()


@pytest.mark.parametrize("name", SERVERS)
def test_what_a_reload_denies_is_kept_from_a_wider_subscription(name: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    rights = ", permissions: {subscribe: {deny: x.secret}}"
    config = "server_tags: [%s]\nauthorization {users: [{user: a, password: a%s}]}\n"
    told = "PUB x.secret 1\r\n1\r\nPUB x.open 1\r\n2\r\n"
    path.write_text(config % ("first", ""))
    with Server(from_file(name, path)) as server, Raw(server.port) as client:
        assert client.login(user="a", **{"pass": "a"}) == []
        seen = [client.send(f"SUB x.* 1\r\n{told}")]
        for tag, more in (("second", rights), ("third", "")):
            path.write_text(config % (tag, more))
            server.signal(signal.SIGHUP)
            # The new digest is in the log when it is in force for all.
            until_seen(lambda: server.log.count("Reloaded server configuration") == len(seen))
            seen.append(client.send(told))
        both, one = ["MSG x.secret 1 1", "1"], ["MSG x.open 1 1", "2"]
        assert seen == [both + one, one, both + one]


@pytest.mark.parametrize("name", SERVERS)
async def test_who_is_moved_to_another_account_subscribes_there(name: str, tmp_path: Path) -> None:
    """A client hears no reason, as there is nothing wrong with it: so it comes again."""
    path = tmp_path / "server.conf"
    config = "accounts {{ A {{ users: [{}{}] }}\n B {{ users: [{}{}] }} }}\n"
    a, b, moved = (f"{{user: {user}, password: p}}" for user in ("a", "b", "moved"))
    path.write_text(config.format(a, f", {moved}", b, ""))
    with Server(from_file(name, path)) as server:
        url = f"nats://moved:p@127.0.0.1:{server.port}"
        back = asyncio.Event()

        async def reconnected() -> None:
            back.set()

        client = await nats.connect(url, reconnect_time_wait=0.05, reconnected_cb=reconnected)
        there = await client.subscribe("x")
        await client.flush()
        path.write_text(config.format(a, "", b, f", {moved}"))
        server.signal(signal.SIGHUP)
        await asyncio.wait_for(back.wait(), 30)
        await client.flush()
        other = await nats.connect(url.replace("moved", "b"))
        await other.publish("x", b"1")
        assert (await there.next_msg(30)).data == b"1"
        await other.close()
        await client.close()


def test_a_leaf_does_not_pass_by_the_callout() -> None:
    """Where a service decides on logins, it decides on those of leaf links, too."""
    port = free_port()
    config = f"""
    authorization {{ users: [{{user: auth, password: auth}}, {{user: x, password: x}}]
      auth_callout {{ issuer: {Realm().account("A")}, auth_users: [auth] }} }}
    leafnodes {{ listen: '127.0.0.1:{port}' }}
    """
    with Server(recipe("headwater", config)), Raw(port) as link:
        login = link.login(user="x", version="2.11.0", **{"pass": "x"})
        assert login[-1:] == REFUSED
