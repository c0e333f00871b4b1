"""A47 to A58: nodes that lie, pages for anybody, and what everybody shares."""

import concurrent.futures
import contextlib
import json
import os
import re
import resource
import socket
import statistics
import struct
import time
from pathlib import Path

import pytest

from bench.servers import Server, free_port
from headwater.security.passwords import hash_password
from tests.abuse.attacked import UPGRADE, Attacked
from tests.certificates import certificate
from tests.measuring import within
from tests.operator_realm import Raw, Realm, recipe

CONNECT = b'CONNECT {"verbose":false,"user":"a","pass":"pa","headers":true}\r\n'


def test_a47_leafs_outside_their_rights(node: Attacked) -> None:
    """a leaf that names other accounts, sends to denied subjects, answers for others | the link \
ends or the message is dropped; no other account hears of it"""
    with node.login("b") as other, node.login("a") as ear:
        other.send("SUB > 1\r\n")
        ear.send("SUB secret.> 1\r\n")
        with node.leaf("shy") as leaf, contextlib.suppress(ConnectionError):
            leaf.send("LMSG secret.a 2\r\nhi\r\n")
        for frames in (
            "RMSG B x 2\r\nhi\r\n", "LMSG B x 2\r\nhi\r\n", "LMSG x + B y 2\r\nhi\r\n",
            "LMSG $SYS.REQ.SERVER.PING 0\r\n\r\n", "LMSG $LDS.x 0\r\n\r\n",
        ):
            with node.leaf() as leaf, contextlib.suppress(ConnectionError):
                leaf.send(frames)
        assert [line for line in other.send() if line] == []
        assert ear.send() == []


def test_a47_leafs_that_change_their_story(node: Attacked) -> None:
    """INFO again with permissions, with the hub's id, CONNECT again, 20,000 interests, its own \
interest as a loop | ignored, or the link ends; nobody's rights grow"""
    for frames in (
        'INFO {"import":{"allow":[">"]},"export":{"allow":[">"]},"connect_info":true}\r\n' * 3,
        'INFO {"server_id":"' + "x" * 3000 + '","leafnode_urls":["evil:1"]}\r\n',
        'CONNECT {"user":"s","pass":"ss","version":"2.11.0"}\r\n', "LS+ $LDS.x\r\n" * 5,
        "".join(f"LS+ flood.{n}\r\n" for n in range(20_000)), "LS- never.there\r\n" * 100,
        "-ERR 'Permissions Violation'\r\n" * 50,
    ):
        with node.leaf("shy") as leaf, node.login() as mouth:
            with contextlib.suppress(ConnectionError):
                leaf.send(frames)
            mouth.send("PUB secret.a 2\r\nhi\r\n")
            with contextlib.suppress(ConnectionError):
                assert not any("secret" in line for line in leaf.send())
        node.check()


def test_a47_a_hub_that_injects_before_tls(tmp_path: Path) -> None:
    """a hub, or who stands between, appends lines to the INFO that asks for TLS | what came \
before the handshake is no part of the link: it ends, and nothing of it is taken"""
    pair = certificate(tmp_path)
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(10)
    config = f"""
    leafnodes {{ remotes [ {{ url: "tls://127.0.0.1:{trap.getsockname()[1]}"
        tls {{ ca_file: "{pair.cert_file}" }} }} ] }}
    """
    info = {
        "server_id": "EVIL", "client_id": 1, "leafnode_urls": ["127.0.0.1:1"], "version": "2.11.0",
        "headers": True, "tls_required": True, "max_payload": 1000, "info_on_connect": True,
    }
    told = info | {"connect_info": True, "remote_account": "$G"}
    with Server(recipe("headwater", config)) as server, Raw(server.port) as ear:
        ear.login()
        ear.send("SUB > 1\r\n")
        link, _ = trap.accept()
        lines = b"INFO %s\r\nINFO %s\r\nLS+ >\r\nLMSG stolen 2\r\nhi\r\n" % (
            json.dumps(info).encode(), json.dumps(told).encode()
        )
        link.sendall(lines)
        link.settimeout(5)
        with contextlib.suppress(OSError):
            while link.recv(4096):
                pass
        assert not any("stolen" in line for line in ear.send())
        assert b"Leafnode connection created" not in server.log_path.read_bytes()
        link.close()
    trap.close()


def test_a48_routes_that_lie(node: Attacked) -> None:
    """a node of the cluster with a wrong password, with made-up accounts and Raft messages of \
2^64-1, with its own id twice | not admitted; accounts are not made by naming them; Raft is not \
spoken on routes"""
    wrong = b'CONNECT {"name":"P","cluster":"C","user":"r","pass":"x"}\r\n'
    assert b"RS+" not in node.ends(wrong + b'INFO {"server_id":"P"}\r\n', "route")
    before = set(json.loads(node.page("/accountz", "route_monitor")[1])["accounts"])
    with node.route() as peer:
        frames = b"".join(b"RS+ MADE%d x\r\nRMSG MADE%d x 0\r\n\r\n" % (n, n) for n in range(3000))
        raft = struct.pack("<QQQQ", *[2**64 - 1] * 4)
        for subject in (b"$NRG.V.S-R1", b"$NRG.AE.x", b"$NRG.P._meta_"):
            frames += b"RMSG A %s %d\r\n%s\r\n" % (subject, len(raft), raft)
        peer.socket.sendall(frames)
        with contextlib.suppress(ConnectionError):
            peer.send()
    after = set(json.loads(node.page("/accountz", "route_monitor")[1])["accounts"])
    assert not {name for name in after - before if name.startswith("MADE")}


def test_a49_addresses_of_others(node: Attacked) -> None:
    """connect_urls and leaf URLs with CR LF, of internal hosts, 10,000 of them, from a route or \
a leaf | bounded and clean: no line is forged, and a client is dialled nowhere by the node"""
    trap = socket.create_server(("127.0.0.1", 0))
    trap.settimeout(0.5)
    own = f"127.0.0.1:{trap.getsockname()[1]}"
    urls = [own, "x\r\nMSG a 1 0\r\n\r\n", "a b", *[f"10.0.0.{n}:1" for n in range(2000)]]
    for fields in ({"connect_urls": urls}, {"leafnode_urls": urls}):
        with node.login("a", protocol=1) as ear, node.leaf() as leaf, node.route("GOSSIP") as peer:
            told = json.dumps({"server_id": "GOSSIP", "cluster": "C", **fields})
            for link in (leaf, peer):
                with contextlib.suppress(ConnectionError):
                    link.send(f"INFO {told}\r\n")
            for line in ear.send():
                assert line.startswith(("INFO ", "PONG")), line
                assert len(line) < 64_000
    with pytest.raises(TimeoutError):
        trap.accept()
    trap.close()


def test_a50_tokens_that_are_paths(tmp_path: Path) -> None:
    """account ids like paths in claims requests | refused: only keys name files, below the \
resolver's folder"""
    realm = Realm()
    folder = tmp_path / "jwt"
    config = realm.config(resolver=f'{{ type: full, dir: "{folder}", allow_delete: true }}')
    token = realm.token("A").encode()
    asked = [
        (f"$SYS.REQ.ACCOUNT.{bad}.CLAIMS.{call}", token)
        for bad in ("../../evil", "..", "A" * 56, realm.account("A") + "/../x")
        for call in ("UPDATE", "LOOKUP", "DELETE")
    ]
    asked.append(("$SYS.REQ.CLAIMS.UPDATE", b"eyJ../../x.y.z"))
    asked.append(("$SYS.REQ.CLAIMS.PACK", b"../../../etc/passwd|x"))
    with Server(recipe("headwater", config)) as server, Raw(server.port) as raw:
        raw.login(realm.user("S"))
        for subject, body in asked:
            raw.socket.sendall(b"PUB %s x %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        raw.send()
        assert server.alive()
        assert b"Traceback" not in server.log_path.read_bytes()
    found = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert all(re.fullmatch(r"A[A-Z2-7]{55}\.jwt(\.deleted)?", name) for name in found), found


PAGES = {
    "smuggled": b"GET /varz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /connz HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\nab",
    "huge header": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"x" * (1 << 21) + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100_000 + b"\r\n",
    "huge length": b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "trace": b"TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "path": b"GET /../../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    "escaped path": b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n"
    b"Connection: close\r\n\r\n",
    "bare line feeds": b"GET / HTTP/1.1\nHost: x\n\n",
    "no http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
}


@pytest.mark.parametrize("kind", PAGES)
def test_a51_requests_of_pages(node: Attacked, kind: str) -> None:
    """smuggled requests, headers of a megabyte, TRACE, paths | an HTTP error or one page, then \
the end of the connection"""
    said = node.say(PAGES[kind], "monitor")
    assert b"root:" not in said
    assert said.count(b"HTTP/1.1 200") <= 1
    if kind not in ("path", "escaped path", "bare line feeds", "trace"):
        assert b"HTTP/1.1 200" not in said
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    "query",
    ["limit=-1", "limit=9223372036854775808", "offset=-1&limit=0", "offset=9999999999999999999999",
     "sort=nope", "auth=true", "subs=detail&limit=1000000", "callback=<script>x</script>",
     "callback=a%0d%0aX-Evil:%201", "cid=-1", "acc=%0d%0a", "filter_subject=%00", "%=%&&;=;"],
)
def test_a51_queries_of_pages(node: Attacked, query: str) -> None:
    """limits below zero and beyond 2^63, callbacks with markup and line ends, `auth` | a page \
or 400; no secret is shown, and no header is made of a query"""
    with node.login("a"):
        for page in ("connz", "subsz", "routez", "leafz", "accountz", "jsz", "varz", "healthz"):
            request = f"GET /{page}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            said = node.say(request.encode(), "monitor")
            head, _, body = said.partition(b"\r\n\r\n")
            assert b"X-Evil" not in head
            assert re.match(rb"HTTP/1\.1 (200|400|404|405|503)", head), (page, query, head)
            assert b"<script>" not in body or b"html" not in head
            for secret in (b'"pa"', b'"pr"', b"password", b"eyJ"):
                assert secret not in body, (page, query)


def test_a52_pages_for_developers(node: Attacked) -> None:
    """/debug and profiles | not there; `prof_port` has them, where it is set, for \
whoever reaches it"""
    for path in ("/debug", "/debug/pprof", "/debug/vars", "/debug/pprof/heap"):
        status, body = node.page(path)
        assert status == 404 or b"cmdline" not in body, path
        assert b"--pass" not in body and str(os.getpid()).encode() not in body


def test_a53_descriptors(node: Attacked) -> None:
    """every descriptor is taken | the listener rests; when there are some again, it goes on, and \
those who are there are served meanwhile"""
    with node.login("a") as there:
        used = len(os.listdir(f"/proc/{node.server.pid}/fd"))
        limits = resource.prlimit(node.server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(node.server.pid, resource.RLIMIT_NOFILE, (used + 2, limits[1]))
        links = [node.open() for _ in range(20)]
        try:
            assert there.send() == []
            assert there.request("$JS.API.INFO") is not None
        finally:
            resource.prlimit(node.server.pid, resource.RLIMIT_NOFILE, limits)
        for link in links:
            assert link.recv(4096).startswith(b"INFO")
            link.close()


@pytest.mark.alone
def test_a54_receivers_that_do_not_read(node: Attacked) -> None:
    """twenty receivers that read nothing, 40 MB for each | what waits is bounded: the producer \
waits, then the receiver is cut"""
    before = node.server.rss()
    ears = []
    for _ in range(20):
        link = node.open()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        link.sendall(CONNECT + b"SUB big 1\r\n")
        ears.append(link)
    with node.open() as mouth:
        mouth.sendall(CONNECT)
        mouth.settimeout(1)
        line = b"PUB big 500000\r\n" + bytes(500_000) + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(80):
                mouth.sendall(line)
        node.check()
        assert node.server.rss() - before < 400
    for link in ears:
        link.close()


def test_a55_expressions(node: Attacked) -> None:
    """durations, times and versions of 900,000 digits, spaces and dots | each text is bounded \
before an expression looks at it: answered at once"""
    with node.login("a", headers=True) as raw:
        body = {"name": "D", "subjects": ["d"], "allow_msg_ttl": True, "storage": "memory"}
        raw.request("$JS.API.STREAM.CREATE.D", body | {"allow_msg_schedules": True})
        began = time.monotonic()
        for name in ("Nats-TTL: ", "Nats-Schedule: @every ", "Nats-Schedule: @at ", "Nats-Incr: "):
            for probe in (b"1" * 900_000, b"1." * 400_000, b" " * 900_000, b"1h" * 400_000):
                block = b"NATS/1.0\r\n" + name.encode() + probe + b"\r\n\r\n"
                raw.socket.sendall(b"HPUB d %d %d\r\n%s\r\n" % (len(block), len(block), block))
        raw.send()
        for call in ("CONSUMER.CREATE.D", "STREAM.MSG.GET.D", "CONSUMER.PAUSE.D.c"):
            raw.request(f"$JS.API.{call}", {"pause_until": "1" * 900_000, "start_time": "2" * 9000})
        assert within(time.monotonic() - began, 5)
        raw.request("$JS.API.STREAM.DELETE.D")
    node.ends(b'CONNECT {"version":"1.1.' + b"9" * 5000 + b'"}\r\n', "leaf")


def test_a56_keys_that_collide(node: Attacked) -> None:
    """3,000 sids and subjects that are equal modulo 2^61-1 | maps have bytes for keys, whose \
hashes nobody can choose"""
    began = time.monotonic()
    prime = (1 << 61) - 1
    lines = b"".join(b"SUB n.%d %d\r\n" % (n * prime, n * prime) for n in range(1, 3000))
    with node.login() as raw:
        raw.socket.sendall(lines)
        assert raw.send() == []
    assert within(time.monotonic() - began, 2)


def test_a57_lines_of_the_log(node: Attacked) -> None:
    """names with line ends and terminal codes, 20,000 refusals | one line a record, escaped; \
a peer's lines are counted and summed up"""
    before = len(node.log)
    evil = "x\\r\\n[1] 2026/01/01 00:00:00.000000 [INF] forged \\u001b[31m"
    for _ in range(3):
        node.ends(f'CONNECT {{"user":"{evil}","pass":"{evil}","name":"{evil}"}}\r\n'.encode())
        leaf = f'CONNECT {{"user":"{evil}","name":"{evil}","cluster":"{evil}"}}\r\n'
        node.ends(leaf.encode(), "leaf")
        node.ends(f'INFO {{"compression":"{evil}"}}\r\n'.encode(), "leaf")
        node.ends(f'CONNECT {{"name":"{evil}","cluster":"{evil}"}}\r\n'.encode(), "route")
    with node.login("shy") as raw:
        raw.socket.sendall(b"PUB secret.a 0\r\n\r\n" * 20_000)
        raw.send()
    log = node.log[before:]
    assert b"\x1b" not in log and b"\n[1] " not in log
    assert len(log) < 200_000


def test_a58_time_that_tells(node: Attacked) -> None:
    """how long a wrong password takes | as long for users that do not exist: a hash for each, \
and plain ones are compared in constant time"""
    hashed = hash_password("right", cost=9)
    users = f"{{user: real, password: '{hashed}'}}, {{user: plain, password: open}}"
    config = f"authorization {{ timeout: 10, users: [{users}] }}"
    with Server(recipe("headwater", config)) as server:

        def taken(user: str) -> float:
            times = []
            for _ in range(5):
                with Raw(server.port) as raw:
                    began = time.monotonic()
                    assert raw.login(user=user, **{"pass": "wrong"}) != []
                    times.append(time.monotonic() - began)
            return statistics.median(times)

        real, none, plain = taken("real"), taken("nobody"), taken("plain")
        assert 0.3 < none / real < 3 and 0.3 < plain / real < 3


def test_cases_at_once(node: Attacked) -> None:
    """all listeners flooded by thirty at once | everybody else is served"""
    def flood(number: int) -> None:
        listener = ("client", "leaf", "route", "ws", "monitor")[number % 5]
        data = UPGRADE if listener == "ws" else b"PING\r\n" * 50_000
        node.say(data, listener)

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        list(pool.map(flood, range(30)))
    assert free_port()
