"""Placement where each value of a tag may be used once, beside four nats-servers."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from tests.hub.api.beside import Nodes, at_both, led, masked, with_users
from tests.hub.api.test_moves_differential import placed, settled
from tests.waiting import connected, until

SIZE = 4
ZONES = ("zone:a", "ZONE:a", "zone:b", "")
"""Of each node: two share a value, and one has none."""


def in_zones(own: str) -> str:
    """The configuration of a node with its zone."""
    index = int(re.findall(r"az:(\d)", own)[0])
    tags = [f"az:{index}", "all", *filter(None, [ZONES[index]])]
    own = re.sub(r"server_tags: .*", f"server_tags: {json.dumps(tags)}", own)
    return with_users(own.replace("jetstream {", 'jetstream { unique_tag: "zone:", '))


def config(name: str, replicas: int = 1, *tags: str, **more: Any) -> dict[str, Any]:
    """A stream that asks for tags."""
    found = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, **more}
    return {**found, "placement": {"tags": list(tags)}} if tags else found


def made(name: str, replicas: int = 1, *tags: str, **more: Any) -> tuple[str, Any]:
    """The row that makes such a stream."""
    return f"STREAM.CREATE.{name}", config(name, replicas, *tags, **more)


def changed(name: str, replicas: int = 1, *tags: str) -> tuple[str, Any]:
    """The row that changes a stream to such a one."""
    return f"STREAM.UPDATE.{name}", config(name, replicas, *tags)


def moved(name: str) -> list[tuple[str, Any]]:
    """Rows that wait until a stream is where it is to be, and show where that is."""
    return [("wait", name), (f"STREAM.INFO.{name}", None)]


ROWS: list[tuple[str, Any]] = [
    made("A", 3),
    made("B", 4),
    made("C", 1, "az:3"),
    made("D", 1, "!all"),
    made("E", 2, "!zone:b", "!az:3"),
    made("F", 2, "!zone:a"),
    made("G", 2, "nope"),
    made("H", 2, "zone:b", "!az:0"),
    made("I", 2, "ZONE:a"),
    made("U", 3, "!ZONE:a"),
    made("V", 2, "NOPE", "Other"),
    made("W", 2, "!ALL"),
    made("Y", 4, "!AZ:0", "!az:0"),
    made("Z", 4, "All"),
    made("J", 2, "zone:nope"),
    made("K", 3, "zone:a"),
    made("L", 3, max_bytes=1 << 60),
    made("M", 3, placement={"cluster": "other"}),
    made("N", 3, placement={"cluster": "C"}),
    made("O", 3, placement={"preferred": "n0"}),
    made("P", 2, "zone:a"),
    made("Q", 1, "zone:A"),
    made("R", 2),
    made("S", 2, "all", "zone:a"),
    made("T", 2, "!az:0"),
    ("STREAM.PEER.REMOVE.R", {"peer": "n2"}),
    changed("R", 3),
    changed("R", 2, "nope"),
    changed("R", 2, "!az:0", "!az:2"),
    changed("R", 2, "zone:a"),
    *moved("R"),
    changed("Q", 2, "zone:a"),
    changed("Q", 3),
    changed("Q", 2),
    *moved("Q"),
    changed("T", 2, "!az:1"),
    *moved("T"),
    ("STREAM.PEER.REMOVE.T", {"peer": "n0"}),
    ("STREAM.PEER.REMOVE.P", {"peer": "n0"}),
    changed("P", 2),
    *moved("P"),
]


def zoned(answer: Any) -> Any:
    """An answer without which of the nodes of a zone it is, and without order among nodes and the
    tags that kept them away."""
    text = json.dumps(placed(masked(answer)), sort_keys=True)
    text = re.sub(r"\[('.*?')\]", lambda found: str(sorted(found[1].split(", "))), text)
    return re.sub(r'"n[01]"', '"na"', text)


async def transcript(user: Client) -> list[Any]:
    """What one cluster says to every row."""
    await until(partial(led, user), "there is a leader")
    found = []
    for name, body in ROWS:
        if name == "wait":
            await until(partial(settled, user, body), f"{body} is where it is to be", 60)
            continue
        payload = json.dumps(body).encode() if body is not None else b""
        answer = await user.request(f"$JS.API.{name}", payload, timeout=6)
        found.append(zoned(json.loads(answer.data)))
    return found


async def test_refusals_are_those_of_nats_servers(tmp_path: Path) -> None:
    async def told(nodes: Nodes) -> list[Any]:
        user = await connected(f"nats://a:a@127.0.0.1:{nodes.port}")
        try:
            return await transcript(user)
        finally:
            await user.close()

    answers = await at_both(tmp_path, told, SIZE, in_zones)
    for row, theirs, ours in zip([r for r in ROWS if r[0] != "wait"], *answers, strict=True):
        assert ours == theirs, row
