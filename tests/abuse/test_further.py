"""What no case of the list tries: features that came later, and ways around several doors."""

import base64
import contextlib
import json
import struct
import time
from typing import Any

import pytest

from tests.abuse.attacked import CALM_S, EXTENSION, UPGRADE, Attacked
from tests.abuse.test_wire import CONNECT, deflated, frame
from tests.operator_realm import Raw
from tests.waiting import until_seen

EXTREMES = [
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**30,
    -1,
    -(2**63) - 1,
    1e308,
    "9" * 5000,
    None,
    [],
    {},
]
MANY = 20_000


@pytest.fixture
def stream(node: Attacked) -> Any:
    """A stream S with all features and a victim V, of one account; gone afterwards."""
    with node.login() as raw:
        for name in "SV":
            body = {
                "name": name,
                "subjects": [f"{name.lower()}.>"],
                "storage": "memory",
                "allow_direct": True,
                "allow_rollup_hdrs": True,
                "allow_msg_ttl": True,
                "allow_atomic": True,
                "allow_msg_schedules": True,
            }
            made = raw.request(f"$JS.API.STREAM.CREATE.{name}", body)
            assert "error" not in made, made
            for n in range(10):
                raw.request(f"{name.lower()}.{n}", b"x")
        yield raw
        for name in "SV":
            raw.request(f"$JS.API.STREAM.DELETE.{name}")


def headed(subject: str, lines: dict[str, Any], payload: bytes = b"x", reply: str = "") -> bytes:
    """A frame of a message with headers."""
    block = b"NATS/1.0\r\n" + b"".join(f"{k}: {v}\r\n".encode() for k, v in lines.items()) + b"\r\n"
    sizes = f"{len(block)} {len(block) + len(payload)}"
    return f"HPUB {subject} {reply} {sizes}\r\n".encode() + block + payload + b"\r\n"


def ask(raw: Raw, subject: str, lines: dict[str, Any], payload: bytes = b"x") -> Any:
    """The answer to a message with headers, as JSON; None when there is none."""
    raw.socket.sendall(b"SUB odd.reply 55\r\n" + headed(subject, lines, payload, "odd.reply"))
    raw.socket.sendall(b"UNSUB 55 1\r\n")
    return raw.answer()


def give(raw: Raw, subject: str, lines: dict[str, Any], payload: bytes = b"x") -> None:
    """A message with headers that need not be answered; returns when the server has read it."""
    raw.socket.sendall(headed(subject, lines, payload, "odd.reply"))
    raw.send()


def poke(raw: Raw, subject: str, body: Any = b"") -> None:
    """A request whose answers are taken by somebody who does not look at them."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    with contextlib.suppress(UnicodeDecodeError, ValueError):
        raw.request(subject, payload, 0.2)


def alive(raw: Raw) -> bool:
    """Whether the victim is still there, with what it holds."""
    found = raw.request("$JS.API.STREAM.INFO.V")
    return bool(found["state"]["messages"] == 10)


@pytest.mark.parametrize(
    "field",
    ["seq", "end", "start_time", "end_time", "filters", "columns", "block_bytes", "max_bytes"],
)
def test_block_reads_without_measure(node: Attacked, stream: Raw, field: str) -> None:
    """Every field of a block read at its extremes."""
    for value in EXTREMES:
        poke(stream, "$JS.API.BLOCK.GET.S", {field: value})
        poke(stream, "$JS.API.BLOCK.GET.S.s.>", {field: [value, value]})
    assert alive(stream)


def test_block_reads_nobody_takes(node: Attacked, stream: Raw) -> None:
    """Thousands of block reads at once, to nobody and to the API."""
    with node.login() as other:
        for reply in ("nobody", "$JS.API.STREAM.DELETE.V", "$JS.API.STREAM.PURGE.V", "s.5"):
            other.socket.sendall(f"PUB $JS.API.BLOCK.GET.S {reply} 0\r\n\r\n".encode() * 2000)
        other.send()
    assert alive(stream)


@pytest.mark.parametrize(
    "name",
    [
        "Nats-Batch-Id",
        "Nats-Batch-Sequence",
        "Nats-Batch-Commit",
        "Nats-TTL",
        "Nats-Incr",
        "Nats-Schedule",
        "Nats-Schedule-Target",
        "Nats-Schedule-TTL",
        "Nats-Schedule-Source",
        "Nats-Schedule-Time-Zone",
        "Nats-Schedule-Rollup",
        "Nats-Rollup",
        "Nats-Msg-Id",
        "Nats-Expected-Last-Subject-Sequence-Subject",
        "Nats-Required-Api-Level",
        "Nats-Trace-Dest",
        "Nats-Request-Info",
        "Nats-Stream-Source",
        "Nats-Pin-Id",
        "Nats-Marker-Reason",
    ],
)
def test_headers_at_their_extremes(node: Attacked, stream: Raw, name: str) -> None:
    """What headers of publishes say, in numbers and texts without bounds, alone and in a batch."""
    texts = [
        "2" * 4000,
        "-1",
        str(2**63),
        str(2**64),
        "1e400",
        "\x00",
        "*",
        ">",
        "a b",
        "..",
        "@at " * 3000,
        "@every 1ns",
        "@every " + "9" * 3000 + "h",
        "* " * 2000,
        "0 0 0 0 0 0",
        "*/0 * * * * *",
        "0-99999999 * * * * *",
        "@at 9999-12-31T23:59:59Z",
        "@at 0000-00-00T00:00:00Z",
        "$JS.API.STREAM.DELETE.V",
        "../../etc/localtime",
        "/etc/passwd",
        "commit",
        "all",
        "sub",
    ]
    for text in texts:
        give(stream, "s.odd", {name: text})
        give(stream, "s.odd", {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", name: text})
        give(
            stream,
            "s.odd",
            {
                "Nats-Schedule": "@at 2000-01-01T00:00:00Z",
                "Nats-Schedule-Target": "s.made",
                name: text,
            },
        )
    assert alive(stream)


def test_batches_that_never_end(node: Attacked, stream: Raw) -> None:
    """Thousands of batches that are begun, and one that goes on for ever."""
    frames = [
        headed("s.b", {"Nats-Batch-Id": f"b{n}", "Nats-Batch-Sequence": "1"}, b"x" * 1000)
        for n in range(5000)
    ]
    frames += [
        headed("s.b", {"Nats-Batch-Id": "long", "Nats-Batch-Sequence": str(n + 1)})
        for n in range(MANY)
    ]
    stream.socket.sendall(b"".join(frames))
    stream.send()
    assert alive(stream)


def test_a_schedule_reaches_no_api(node: Attacked, stream: Raw) -> None:
    """What a schedule makes goes to its own stream, and never to the API or other services."""
    targets = (
        "$JS.API.STREAM.DELETE.V",
        "$JS.hub.API.STREAM.DELETE.V",
        "$JS.ACK.V.c.1.1.1.1.0",
        "v.1",
        "_R_.x",
        "$SYS.REQ.SERVER.PING",
        ">",
        "s.*",
        "s.made",
    )
    for number, target in enumerate(targets):
        plan = {"Nats-Schedule": "@at 2000-01-01T00:00:00Z", "Nats-Schedule-Target": target}
        answer = ask(stream, f"s.plan.{number}", plan)
        assert ("error" in answer) == (target != "s.made"), answer
    # The last one is due as the others are, so when it was made, they would have been.
    until_seen(lambda: "message" in made(stream, "S", "s.made"), "the last schedule")
    assert alive(stream)


def made(raw: Raw, name: str, subject: str) -> Any:
    """The last message of a subject, or why there is none."""
    return raw.request(f"$JS.API.STREAM.MSG.GET.{name}", {"last_by_subj": subject})


def test_a_trace_reaches_no_api(node: Attacked, stream: Raw) -> None:
    """Traces go where their sender may publish, and are no requests."""
    for dest in ("$JS.API.STREAM.DELETE.V", "$JS.hub.API.STREAM.PURGE.V", "v.9", "$SYS.x"):
        give(stream, "s.t", {"Nats-Trace-Dest": dest})
        give(stream, "s.t", {"Nats-Trace-Dest": dest, "Nats-Trace-Only": "true"})
    assert stream.request("$JS.API.STREAM.INFO.V")["state"]["messages"] >= 10
    with node.login("shy") as shy:
        told = shy.send(headed("open", {"Nats-Trace-Dest": "secret.x"}).decode())
        assert not any("secret" in line and line.startswith("MSG") for line in told)


def test_ack_subjects_of_any_length(node: Attacked, stream: Raw) -> None:
    """Acks with tokens of thousands of digits, with too many and too few tokens, of both forms."""
    config = {"durable_name": "c", "ack_policy": "explicit"}
    stream.request(
        "$JS.API.CONSUMER.CREATE.S.c", {"stream_name": "S", "config": {**config, "name": "c"}}
    )
    poke(stream, "$JS.API.CONSUMER.MSG.NEXT.S.c")
    for number in ("9" * 700, str(2**63), str(2**64), "-1", "", "1.1", "x", "0x1"):
        for form in (
            "$JS.ACK.S.c.1.{0}.{0}.{0}.{0}",
            "$JS.ACK.hub.h.S.c.{0}.{0}.{0}.{0}.{0}.x",
            "$JS.ACK.S.c.{0}",
            "$JS.ACK.{0}.c.1.1.1.1.0",
            "$JS.FC.S.c.{0}",
        ):
            for word in (
                b"+ACK",
                b'-NAK {"delay": 1e300}',
                b'+NXT {"batch":%d}' % 2**63,
                b"+WPI",
                b"+TERM a\r\nb",
                b"-NAK " + b"9" * 3000,
                b"{" * 5000,
            ):
                subject = form.format(number).encode()
                stream.socket.sendall(b"PUB %b %d\r\n%b\r\n" % (subject, len(word), word))
    stream.send()
    assert alive(stream)
    info = stream.request("$JS.API.CONSUMER.INFO.S.c")
    assert info["ack_floor"]["stream_seq"] <= 10


@pytest.mark.parametrize(
    "field",
    [
        "batch",
        "expires",
        "no_wait",
        "max_bytes",
        "idle_heartbeat",
        "min_pending",
        "min_ack_pending",
        "group",
        "priority",
        "id",
    ],
)
def test_pulls_at_their_extremes(node: Attacked, stream: Raw, field: str) -> None:
    """Every field of a pull at its extremes, for consumers of each priority policy."""
    for policy in ("none", "overflow", "pinned_client", "prioritized"):
        config = {"durable_name": policy, "name": policy, "ack_policy": "explicit"}
        if policy != "none":
            config |= {"priority_policy": policy, "priority_groups": ["g"]}
        made = stream.request(
            f"$JS.API.CONSUMER.CREATE.S.{policy}", {"stream_name": "S", "config": config}
        )
        assert "error" not in made, made
        for value in EXTREMES:
            body = {"batch": 1, "expires": 10**8, "group": "g", field: value}
            raw = json.dumps(body).encode()
            stream.socket.sendall(
                b"PUB $JS.API.CONSUMER.MSG.NEXT.S.%b odd.x %d\r\n%b\r\n"
                % (policy.encode(), len(raw), raw)
            )
        assert stream.send() == []


def test_transforms_that_multiply(node: Attacked) -> None:
    """A subject that becomes thousands of times as long costs as much as the longest there is."""
    with node.login() as raw:
        dest = ".".join(["{{wildcard(1)}}"] * MANY)
        body = {
            "name": "M",
            "subjects": ["m.*"],
            "storage": "memory",
            "subject_transform": {"src": "m.*", "dest": "n." + dest},
        }
        begin = time.monotonic()
        made = raw.request("$JS.API.STREAM.CREATE.M", body)
        if "error" not in made:
            for _ in range(20):
                raw.request(f"m.{'y' * 3900}", b"x", 2)
            raw.request("$JS.API.STREAM.DELETE.M")
        assert raw.send() == []
        assert time.monotonic() - begin < CALM_S * 2


def test_tenants_ask_the_system(node: Attacked) -> None:
    """Requests of administration from a tenant, a leaf and by the domain's alias: nobody hears."""
    server = json.loads(node.page("/varz")[1])["server_id"]
    calls = [
        f"$SYS.REQ.SERVER.{server}.{call}"
        for call in ("RELOAD", "KICK", "LDM", "CONNZ", "VARZ", "HEALTHZ", "JSZ", "SHUTDOWN")
    ]
    calls += [
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.SERVER.PING.CONNZ",
        "$SYS.REQ.ACCOUNT.B.CONNZ",
        "$SYS.REQ.CLAIMS.UPDATE",
        "$SYS.REQ.CLAIMS.DELETE",
        "$SYS.REQ.CLAIMS.LIST",
        "$SYS.REQ.ACCOUNT.B.CLAIMS.LOOKUP",
        "$SYS.DEBUG.SUBSCRIBERS",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS._INBOX.x",
        "$SYS.ACCOUNT.B.DISCONNECT",
    ]
    with node.login() as raw, node.leaf() as leaf, node.login("s") as system:
        other = node.login("b")
        for call in calls:
            body = {"cid": other.info.get("client_id", 1), "account": "B"}
            answer = raw.request(call, body, 0.15)
            shown = json.dumps(answer)
            assert answer is None or '"B"' not in shown, (call, answer)
            leaf.socket.sendall(b"LMSG %b odd.x 2\r\n{}\r\n" % call.encode())
        leaf.send()
        assert other.send() == []
        assert system.send() == []
        other.close()


def test_the_clusters_words_from_tenants(node: Attacked) -> None:
    """Subjects by which nodes of other servers' clusters agree mean nothing."""
    raft = struct.pack("<QQQQ", 2**64 - 1, 2**64 - 1, 2**64 - 1, 2**64 - 1)
    with node.login() as raw, node.leaf() as leaf:
        for subject in (
            "$NRG.V.x",
            "$NRG.AE.x",
            "$NRG.P.x",
            "$R.x",
            "$JSC.SYNC.x",
            "$JSC.CI.A.S.c",
            "$JSC.R.x",
            "_GR_.x.y.z",
            "$GNR.x",
            "$G.x",
            "_R_.x.y",
            "$JS.ACK",
            "$JS",
        ):
            for payload in (raft, b"\xff" * 5000, b""):
                head = f"{subject} {len(payload)}\r\n".encode()
                raw.socket.sendall(b"PUB " + head + payload + b"\r\n")
                leaf.socket.sendall(b"LMSG " + head + payload + b"\r\n")
        raw.send()
        leaf.send()


def test_websocket_fragments(node: Attacked) -> None:
    """A message in a hundred thousand empty parts, parts between which a close or a ping comes,
    compression that is announced in a later part."""
    part = b"\x00\x80" + bytes(4)
    begin = time.monotonic()
    node.websocket(b"\x02\x80" + bytes(4) + part * 100_000 + frame(b"", 0x88))
    node.websocket(b"\x02\x80" + bytes(4) + frame(b"", 0x89) * 5000 + frame(b"", 0x88))
    node.websocket(
        frame(CONNECT[:5], 0x02) + frame(CONNECT[5:], 0xC0) + frame(b"", 0x88), squeezed=True
    )
    node.websocket(
        deflated(CONNECT) + deflated(b"PING\r\n" * 10_000) + frame(b"", 0x88), squeezed=True
    )
    assert time.monotonic() - begin < 4 * CALM_S
    assert UPGRADE and EXTENSION


def token(header: Any, claims: Any, signature: bytes = bytes(64)) -> str:
    """A token of any content."""

    def part(value: Any) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    return f"{part(header)}.{part(claims)}.{part(signature)}"


def test_claims_of_any_form(node: Attacked) -> None:
    """Tokens with huge lists, numbers beyond all bounds, nested and doubled claims."""
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    nats = {"type": "user", "version": 2}
    claims: list[Any] = [
        {**nats, "pub": {"allow": [f"a.{n}" for n in range(MANY)]}},
        {**nats, "subs": 2**70},
        {**nats, "times": [{"start": "9" * 5000, "end": "x"}] * 1000},
        {**nats, "src": ["0.0.0.0/" + "9" * 5000]},
        {**nats, "tags": ["\r\n[ERR] x"] * 100},
    ]
    bodies: list[Any] = [{"iss": "A" * 56, "sub": "U" * 56, "nats": each} for each in claims]
    bodies += [
        {"exp": 10**400},
        {"exp": -1, "iat": 1e308},
        b"[" * 100_000,
        b'{"exp":1e999}',
        b"\xff" * 99,
        b'{"nats":' * 9000,
        {"iss": ["x"], "sub": {}, "nats": []},
        b"",
    ]
    for body in bodies:
        for top in (head, {"alg": "none"}, b"{" * 9000):
            with Raw(node.server.port) as raw:
                told = raw.login(jwt=token(top, body), sig="AAAA")
                assert any("-ERR" in line for line in told) or told == []
                assert not any(line.startswith("MSG") for line in told)


@pytest.mark.parametrize(
    "query",
    [
        "/connz?cid=99999999999999999999999",
        "/connz?cid=1e999",
        "/connz?sort=%0d%0aX:y",
        "/connz?state=x",
        "/connz?subs=detail&limit=-1&offset=99999999999999999999",
        "/connz?acc=%00&user=%ff&mqtt_client=%0a",
        "/subsz?subs=1&test=" + "*." * 3000 + "*",
        "/subsz?subs=1&acc=" + "A" * 9000,
        "/jsz?acc=..&streams=1&consumers=1&config=1&limit=-9&offset=" + "9" * 400,
        "/jsz?raft=1&stream-leader-only=maybe",
        "/healthz?js-enabled-only=1&js-server-only=%0d%0a",
        "/healthz?account=A&stream=../..&consumer=%2e%2e",
        "/accountz?acc=" + "%41" * 3000,
        "/leafz?subs=2&acc=%0d",
        "/routez?subs=x",
        "/metrics?x=" + "&y=" * 3000,
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/varz?callback=" + "a" * 9000,
        "/?" + "a=1&" * 3500,
    ],
)
def test_queries_of_pages(node: Attacked, query: str) -> None:
    """A page or an error, in one piece, without secrets."""
    said = node.say(
        f"GET {query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode(), "monitor"
    )
    assert said.startswith(b"HTTP/1.1 "), said[:100]
    assert said[9:10] in b"234", said[:200]
    head = said.partition(b"\r\n\r\n")[0]
    assert b"X:y" not in head
    for secret in (b"root:", b'"pa"', b'"pb"', b'"ss"'):
        assert secret not in said


def test_names_of_kept_values(node: Attacked, stream: Raw) -> None:
    """Keys and objects of thousands of tokens, and purges of them by headers: one's own only."""
    body = {
        "name": "KV_k",
        "subjects": ["$KV.k.>"],
        "storage": "memory",
        "allow_rollup_hdrs": True,
        "max_msgs_per_subject": 1,
        "deny_delete": True,
        "allow_direct": True,
    }
    assert "error" not in stream.request("$JS.API.STREAM.CREATE.KV_k", body)
    for key in (
        ".".join("k" * 1800),
        "k" * 3900,
        "\u00e9" * 900,
        "=" * 900,
        "a..b",
        ".a",
        "a.",
        "*",
        ">",
    ):
        give(stream, f"$KV.k.{key}", {"KV-Operation": "PURGE", "Nats-Rollup": "all"})
        give(stream, f"$KV.k.{key}", {"KV-Operation": "x" * 5000})
        poke(stream, f"$JS.API.DIRECT.GET.KV_k.$KV.k.{key}")
    assert alive(stream)
    stream.request("$JS.API.STREAM.DELETE.KV_k")


def test_messages_of_thousands_of_headers(node: Attacked, stream: Raw) -> None:
    """A megabyte of header lines into a stream that reads them, and out by a consumer."""
    begin = time.monotonic()
    for line in (b"A:\r\n", b"Nats-Msg-Id: x\r\n", b"Nats-TTL: 1s\r\n", b":\r\n", b"a\r\n"):
        block = b"NATS/1.0\r\n" + line * (900_000 // len(line)) + b"\r\n"
        stream.socket.sendall(b"HPUB s.h odd.r %d %d\r\n%b\r\n" % (len(block), len(block), block))
    stream.send()
    assert time.monotonic() - begin < 4 * CALM_S
    assert alive(stream)


def test_a_request_of_another_account_by_its_headers(node: Attacked, stream: Raw) -> None:
    """Who says in a header that another account asks is not believed."""
    with node.login("b") as other:
        for forged in ('{"acc":"A"}', '{"acc":"SYS","svc":"x"}', "{" * 3000):
            give(other, "$JS.API.STREAM.DELETE.V", {"Nats-Request-Info": forged}, b"")
            give(other, "$JS.API.STREAM.INFO.V", {"Nats-Request-Info": forged}, b"")
    assert alive(stream)
