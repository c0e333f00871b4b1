"""Configurations that both servers are started with, and what each then says of itself.

Compared are: whether it starts, its INFO, who gets in and what that one hears, and the pages of
its monitor, without what each server knows of itself alone.
"""

import contextlib
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from os.path import commonprefix
from typing import Any

from bench.servers import HOST, Recipe, Server, ServerFailed, free_port, program
from tests.differ.frames import Frame
from tests.differ.shrink import shrunk
from tests.differ.starts.intended import intended_start
from tests.differ.starts.settings import Login, Settings, settings
from tests.differ.talk import Talk
from tests.inventory.both import Line
from tests.waiting import until_seen

OWN_NAMES = """
server_id id version go git_commit xkey headwater port nonce client_id api_lvl pid mem cpu cores
gomaxprocs gomemlimit start now uptime config_load_time config_digest connections
total_connections in_msgs out_msgs in_bytes out_bytes slow_consumers slow_consumer_stats
subscriptions http_req_stats http_port host client_ip proto ts created issued_at update_time
connect_urls ws_connect_urls feature_flags store_dir memory storage max_memory max_storage
reserved_memory reserved_storage reserved_store store api num_subscriptions client_connections
leafnode_connections stale_connections stale_connection_stats stalled_clients http_host complete
jwt reserved_file expanded used_slots seq ver time out_client_bytes in_client_bytes in_client_msgs
out_client_msgs num_matches cache_hit_rate num_cache avg_fanout cluster_port num_inserts
num_removes flags _nats.ver max_fanout
"""
OWN = frozenset(OWN_NAMES.split())
"""What is each server's own, or a count that the comparison itself changes."""
ANOTHER_LEVEL = ("default_max_consumers", 1000)
"""A default of 2.15."""
PAGES = (
    "/varz", "/accountz", "/accountz?acc=A", "/accountz?acc=B", "/accountz?acc=$G",
    "/jsz?config=1&accounts=1", "/healthz", "/leafz",
)  # fmt: skip
ASKED = (
    b"SUB _I.> 1\r\nPUB $SYS.REQ.USER.INFO _I.u 0\r\n\r\nPUB $JS.API.INFO _I.j 0\r\n\r\n"
    b"PUB a.b 2\r\nhi\r\n"
)
MADE = b"PUB $JS.API.%b _I.r %d\r\n%b\r\n"
STREAM = b'{"name":"S","subjects":["x.>"],"storage":"memory","max_bytes":1000}'
CONSUMER = b'{"stream_name":"S","config":{"name":"%b","ack_policy":"explicit"}}'
PARTS = 3
"""So many parts that differ are shown."""
SHOWN = 300
"""So many letters of an answer are shown."""
FULL = "-ERR 'maximum account active connections exceeded'"
STILL_COUNTED_S = 2.0
"""So long the end of a connection may go unseen by its account."""
ANSWER_S = 2.0
"""So long JetStream may take to answer what was made."""
PATIENCE_S = 10.0
"""So long a server may take to answer a PING."""


def pruned(value: Any) -> Any:
    """A value without what is each server's own."""
    if isinstance(value, dict):
        shown = {key: each for key, each in sorted(value.items()) if key not in OWN}
        found = {key: pruned(each) for key, each in shown.items() if (key, each) != ANOTHER_LEVEL}
        return {key: each for key, each in found.items() if each not in (None, {}, [])}
    if isinstance(value, list):
        return sorted((pruned(each) for each in value), key=str)
    if isinstance(value, str):
        return re.sub(r"\b[A-Z0-9]{20,60}\b|\d{4}-\d\d-\d\dT[\d:.]+Z|127.0.0.1:\d+", "OWN", value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Started:
    """One server with a configuration; what it says, part by part."""

    def __init__(self, name: str, command: tuple[str, ...], wanted: Settings) -> None:
        self.http = free_port()
        text = f'{wanted.text}http: "{HOST}:{self.http}"\n'
        self.server = Server(Recipe(name, command, text))
        self.wanted = wanted
        self.has_jetstream = False

    def told(self) -> dict[str, Any]:
        """All that is compared, by name; the reason of a refusal alone when it does not start."""
        try:
            with self.server:
                return {"started": True, **self._running()}
        except ServerFailed as error:
            return {"started": False, "reason": str(error)}

    def _running(self) -> dict[str, Any]:
        line = Line(self.server.port)
        self.has_jetstream = bool(line.info and line.info.get("jetstream"))
        found: dict[str, Any] = {"INFO": pruned(line.info) if line.info else line.refused}
        line.close()
        for login in self.wanted.logins:
            found[f"login {json.dumps(login)}"] = self._as(login)
        for page in PAGES:
            found[page] = self._page(page)
        return found

    def _as(self, login: Login) -> list[str]:
        """What a login hears. On nats-server one that has just closed still counts a moment
        when an account's connections are counted, so who is refused for that asks again."""
        heard: list[list[str]] = []

        def counted() -> bool:
            heard.append(self._asked(login))
            return FULL not in heard[-1]

        with contextlib.suppress(AssertionError):
            until_seen(counted, seconds=STILL_COUNTED_S)
        return heard[-1]

    def _asked(self, login: Login) -> list[str]:
        talk = Talk(self.server.port)
        first = {"verbose": False, "protocol": 1, "lang": "go", **login}
        bodies = {b"STREAM.CREATE.S": STREAM}
        bodies |= {b"CONSUMER.CREATE.S." + name: CONSUMER % name for name in (b"C", b"D")}
        made = (MADE % (subject, len(body), body) for subject, body in bodies.items())
        probes = (b"CONNECT %b\r\n" % json.dumps(first).encode(), ASKED, *made)
        for number, probe in enumerate(probes):
            talk.send(probe + b"PING\r\n", [])
            if not talk.until_pong(number + 1, PATIENCE_S):
                break
            if number:
                # What is made is answered when it is on the disk, which may be slow.
                if self.has_jetstream:
                    talk.until_messages(number + 2, ANSWER_S)
                talk.until_quiet()
        talk.close()
        return sorted(_shown(each) for each in talk.take() if each.verb != "INFO")

    def _page(self, path: str) -> Any:
        base = next((one for one in self.wanted.lines if one.startswith("http_base_path")), "")
        prefix = base.partition(": ")[2].strip('"').strip("/")
        url = f"http://{HOST}:{self.http}/{prefix}{path}" if prefix else (
            f"http://{HOST}:{self.http}{path}"
        )
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return pruned(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read()[:200]!r}"
        except (OSError, ValueError) as error:
            return type(error).__name__


def _shown(frame: Frame) -> str:
    if not frame.message:
        return " ".join((frame.verb, *(str(pruned(word)) for word in frame.words)))
    said = frame.header.partition(b"\r\n")[0].decode("latin-1")
    try:
        return said + json.dumps(pruned(json.loads(frame.payload)), sort_keys=True)
    except ValueError:
        return f"{said}{frame.payload!r}"


def started(wanted: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each server says of one configuration, ours and nats-server."""
    both = (
        Started("headwater", (program("headwater"), "serve"), wanted),
        Started("nats-server", (program("nats-server"),), wanted),
    )
    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(Started.told, both)
    return ours, theirs


def unlike_parts(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """What differs in what they say, but for intended differences: the part, ours and theirs."""
    if not (ours["started"] and theirs["started"]):
        if ours["started"] == theirs["started"] or intended_start(theirs.get("reason", "")):
            return []
        return [("start", ours.get("reason", "starts"), theirs.get("reason", "starts"))]
    return [
        (part, ours[part], theirs[part])
        for part in ours
        if ours[part] != theirs[part]
    ]


def compared(wanted: Settings) -> list[tuple[str, Any, Any]]:
    """What the servers say differently of one configuration."""
    return unlike_parts(*started(wanted))


def starts(seeds: Iterable[int], most: int) -> tuple[list[str], int]:
    """Starts of both servers: differences, and how many configurations were tried."""
    found: list[str] = []
    tried = 0
    for seed in seeds:
        wanted = settings(seed)
        tried += 1
        unlike = compared(wanted)
        # What differs once and then not was a matter of time.
        if not unlike or not compared(wanted):
            continue
        part = unlike[0][0]

        def fails(lines: list[str], part: str = part, wanted: Settings = wanted) -> bool:
            return any(each[0] == part for each in compared(Settings(lines, wanted.logins)))

        small = Settings(shrunk(wanted.lines, fails), wanted.logins)
        shown = compared(small) or unlike
        found.append(told(small, shown, seed))
        print(found[-1], flush=True)
        if len(found) >= most:
            break
    return found, tried


def told(wanted: Settings, unlike: list[tuple[str, Any, Any]], seed: int) -> str:
    """The differences of one configuration for a person, the first few of them."""
    shown = [_unlike(*each) for each in unlike[:PARTS]]
    return "\n".join([f"starts seed={seed}", wanted.text.rstrip(), *shown])


def _unlike(part: str, ours: Any, theirs: Any) -> str:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        ours, theirs = ({key: one.get(key) for key in keys} for one in (ours, theirs))
    if isinstance(ours, list) and isinstance(theirs, list):
        ours, theirs = (
            [one for one in ours if one not in theirs], [one for one in theirs if one not in ours],
        )  # fmt: skip
    ours, theirs = (str(one) for one in (ours, theirs))
    begin = max(0, len(commonprefix([ours, theirs])) - 60)
    ours, theirs = (one[begin : begin + SHOWN] for one in (ours, theirs))
    return f"  {part}\n    ours   {ours}\n    theirs {theirs}"
