"""JetStream limits of tokens in a cluster, tiers by replicas and flat ones, beside nats-servers."""

import asyncio
import contextlib
import copy
from pathlib import Path
from typing import Any

from headwater.security.claims import AccountLimits, JetStreamTier
from tests.hub.api.beside import Nodes, at_both, masked
from tests.operator_realm import Raw, Realm
from tests.waiting import until, until_seen

KILO = 1024


def limits(**fields: Any) -> AccountLimits:
    """Without limits but for these."""
    found = AccountLimits.unlimited()
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def realm() -> Realm:
    """A: tiers for one replica and for three; B: for three alone; C: flat; D: none."""
    made = Realm(more="CD")
    made.bodies["A"].limits = limits(
        tiered_limits={
            "R1": JetStreamTier(
                disk_storage=20 * KILO, mem_storage=0, streams=2, consumer=2, max_ack_pending=5,
                disk_max_stream_bytes=15 * KILO,
            ),
            "R3": JetStreamTier(
                disk_storage=10 * KILO, mem_storage=4 * KILO, streams=3, consumer=1,
                max_ack_pending=7, max_bytes_required=False,
            ),
        }
    )
    made.bodies["B"].limits = limits(
        tiered_limits={"R3": JetStreamTier(disk_storage=-1, mem_storage=-1, streams=-1)}
    )
    made.bodies["C"].limits = limits(disk_storage=30 * KILO, mem_storage=0, streams=3, consumer=1)
    return made


def stream(name: str, replicas: int, **fields: Any) -> dict[str, Any]:
    return {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, **fields}


def consumer(name: str, of: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", **fields}
    return f"CONSUMER.CREATE.{of}.{name}", {"stream_name": of, "config": config}


Request = tuple[str, str, Any]
REQUESTS: list[Request] = [
    ("D", "INFO", None),
    ("A", "INFO", None),
    ("B", "INFO", None),
    ("C", "INFO", None),
    ("A", "STREAM.CREATE.TWO", stream("TWO", 2)),
    ("B", "STREAM.CREATE.ONE", stream("ONE", 1)),
    ("A", "STREAM.CREATE.M", stream("M", 1, storage="memory", max_bytes=KILO)),
    ("A", "STREAM.CREATE.BIG", stream("BIG", 1, max_bytes=16 * KILO)),
    ("A", "STREAM.CREATE.BIG", stream("BIG", 3, max_bytes=11 * KILO)),
    ("A", "STREAM.CREATE.a", stream("a", 1, max_bytes=15 * KILO)),
    ("A", "STREAM.CREATE.b", stream("b", 1, max_bytes=6 * KILO)),
    ("A", "STREAM.CREATE.b", stream("b", 1, max_bytes=5 * KILO)),
    ("A", "STREAM.CREATE.c", stream("c", 1)),
    ("A", "STREAM.CREATE.c", {"name": "c", "subjects": ["c..x"]}),
    ("A", "STREAM.CREATE.c", {"name": "c", "subjects": ["a.x"]}),
    ("A", "STREAM.CREATE.c", {"name": "c", "subjects": ["c"], "max_age": 1}),
    ("A", "STREAM.CREATE.c", {"name": "c", "subjects": ["c"], "max_consumers": 9}),
    ("A", "STREAM.CREATE.a", stream("a", 1, max_bytes=99)),
    ("A", "STREAM.CREATE.d", stream("d", 3, max_bytes=8 * KILO)),
    ("A", "STREAM.CREATE.e", stream("e", 3, max_bytes=3 * KILO)),
    ("A", "STREAM.CREATE.e", stream("e", 3, max_bytes=4 * KILO, storage="memory")),
    ("A", "STREAM.CREATE.f", stream("f", 3, max_bytes=KILO)),
    ("A", "STREAM.CREATE.g", stream("g", 3, max_bytes=KILO)),
    ("A", "STREAM.UPDATE.f", stream("f", 3, max_bytes=3 * KILO)),
    ("A", "STREAM.UPDATE.f", stream("f", 3, max_bytes=2 * KILO)),
    ("A", "STREAM.UPDATE.f", stream("f", 3, max_bytes=2 * KILO, max_consumers=2)),
    ("A", "STREAM.UPDATE.a", stream("a", 1, max_bytes=16 * KILO)),
    ("A", *consumer("one", "a")),
    ("A", *consumer("two", "a")),
    ("A", *consumer("three", "a")),
    ("A", *consumer("one", "d")),
    ("A", *consumer("two", "d")),
    ("A", *consumer("much", "d", max_ack_pending=8)),
    ("A", "INFO", None),
    ("B", "STREAM.CREATE.big", stream("big", 3, max_bytes=100 * KILO)),
    ("B", "INFO", None),
    ("C", "STREAM.CREATE.a", stream("a", 3, max_bytes=11 * KILO)),
    ("C", "STREAM.CREATE.a", stream("a", 3, max_bytes=5 * KILO)),
    ("C", "STREAM.CREATE.b", stream("b", 1, max_bytes=16 * KILO)),
    ("C", "STREAM.CREATE.b", stream("b", 1, max_bytes=15 * KILO)),
    ("C", "STREAM.CREATE.c", stream("c", 1, max_bytes=1)),
    ("C", "INFO", None),
    ("A", "STREAM.DELETE.b", None),
    ("A", "STREAM.DELETE.f", None),
    ("A", "STREAM.CREATE.h", stream("h", 1, max_bytes=5 * KILO)),
    ("A", "INFO", None),
]


def login(port: int, made: Realm, name: str) -> Raw:
    client = Raw(port)
    assert client.login(made.user(name)) == []
    return client


def transcript(port: int, made: Realm) -> list[Any]:
    """The answers to all requests."""
    clients = {name: login(port, made, name) for name in "ABCD"}
    found = []
    for who, name, body in REQUESTS:
        answer = clients[who].request(f"$JS.API.{name}", b"" if body is None else body)
        found.append(shown(answer))
    for client in clients.values():
        client.close()
    return found


def shown(answer: Any) -> Any:
    """What both servers answer alike: not where a stream is, nor how long it took."""
    found = masked(answer)
    if isinstance(found, dict):
        for name in ("cluster", "state"):
            found.pop(name, None)
    return found


def leads(port: int, made: Realm) -> bool:
    """Whether the cluster answers and has all of its members. nats-server may not know an account's
    limits yet when it first hears of it."""
    for name in "ABC":
        with contextlib.suppress(OSError), Raw(port) as client:
            client.login(made.user(name))
            if "error" in (client.request("$JS.API.INFO") or {"error": "none"}):
                return False
    with contextlib.suppress(OSError), Raw(port) as client:
        client.login(made.user("B"))
        probe = stream("probe", 3)
        made_it = client.request("$JS.API.STREAM.CREATE.probe", probe)
        gone = client.request("$JS.API.STREAM.DELETE.probe")
        return "config" in (made_it or {}) and (gone or {}).get("success") is True
    return False


async def test_the_answers_are_those_of_nats_servers(tmp_path: Path) -> None:
    made = realm()

    async def told(nodes: Nodes) -> list[Any]:
        await until(lambda: asyncio.to_thread(leads, nodes.port, made), "there is a leader")
        return await asyncio.to_thread(transcript, nodes.port, made)

    found = await at_both(tmp_path, told, 3, made.config)
    different = [
        (request, theirs, mine)
        for request, theirs, mine in zip(REQUESTS, *found, strict=True)
        if theirs != mine
    ]
    assert not different, "\n\n".join(f"{r}\n{t}\n{m}" for r, t, m in different)


def refusal(client: Raw, subject: str) -> int:
    """The error code that messages of a kilobyte are refused with in the end; 0 for none."""

    def refused() -> int:
        answer = client.request(subject, b"x" * 1000) or {}
        return int(answer.get("error", {}).get("err_code", 0))

    return int(until_seen(refused, f"{subject} is refused"))


def stored(client: Raw, subject: str) -> bool:
    return "seq" in (client.request(subject, b"x" * 1000) or {})


def used(client: Raw, tier: str = "") -> int:
    """Bytes in files, by the account's info."""
    info = client.request("$JS.API.INFO")
    return int((info["tiers"][tier] if tier else info)["storage"])


def fill(port: int, made: Realm) -> tuple[list[Any], int]:
    """Publish until limits refuse it, and again when a token with other ones was pushed. Returns
    what was answered, and the bytes of all replicas when a tier refused."""
    a, c, system = (login(port, made, name) for name in "ACS")
    for client, name, replicas in ((a, "many", 3), (a, "one", 1), (c, "flat", 3)):
        config = stream(name, replicas)
        assert "config" in client.request(f"$JS.API.STREAM.CREATE.{name}", config)
    found: list[Any] = [refusal(a, "many.x"), refusal(c, "flat.x")]
    # A server that counted a message twice for a while lets more in later.
    until_seen(lambda: refusal(a, "many.x") and used(a, "R3") > 26_000, "all replicas count")
    until_seen(lambda: refusal(c, "flat.x") and used(c) > 26_000, "all replicas count")
    in_tier = used(a, "R3")

    def in_force() -> int:
        info = a.request("$JS.API.INFO") or {}
        return int(info["tiers"]["R3"]["limits"]["max_storage"]) if "tiers" in info else 0

    def limit(storage: int) -> None:
        push(system, made, "A", "R3", storage)
        until_seen(lambda: in_force() == storage, f"{storage} are in force")

    limit(6 * KILO)
    found += [refusal(a, "many.x"), stored(a, "one.x")]
    wide = stream("many", 3, max_bytes=7 * KILO)
    found.append(a.request("$JS.API.STREAM.UPDATE.many", wide)["error"])
    limit(40 * KILO)
    found.append(stored(a, "many.x"))
    until_seen(lambda: used(a, "R1") > 0, "a message of the other tier counts")
    for client in (a, c, system):
        client.close()
    return found, in_tier


def push(system: Raw, made: Realm, name: str, tier: str, storage: int) -> None:
    """Give an account's tier another limit."""
    made.bodies[name].limits.tiered_limits[tier].disk_storage = storage
    subject = f"$SYS.REQ.ACCOUNT.{made.account(name)}.CLAIMS.UPDATE"
    answer = system.request(subject, made.token(name).encode())
    assert answer["data"]["code"] == 200, answer


async def test_messages_beyond_limits_are_refused(tmp_path: Path) -> None:
    """By what all nodes hold together, and as soon as a token says so."""
    made = realm()

    async def told(nodes: Nodes) -> tuple[list[Any], int]:
        of = copy.deepcopy(made)
        await until(lambda: asyncio.to_thread(leads, nodes.port, of), "there is a leader")
        return await asyncio.to_thread(fill, nodes.port, of)

    (theirs, _), (mine, used_in_tier) = await at_both(tmp_path, told, 3, made.config)
    assert mine == theirs
    # nats-server learns late of its own other replicas, and lets more in.
    assert used_in_tier <= 3 * 10 * KILO
