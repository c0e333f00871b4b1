"""Subjects that mean harm, wherever a configuration holds one: refused where nats-server refuses
them, and beyond that only what could forge a line, or a placeholder that stands for nothing."""

from collections.abc import Callable
from typing import Any

import nats
import pytest

from tests.edge.jetstream.conftest import Client

HUGE = 2**63
TRANSFORMS = (
    f"{{{{partition({HUGE},1)}}}}", f"{{{{partition({HUGE - 1},1)}}}}", "{{partition(0,1)}}",
    "{{partition(-1,1)}}", "{{wildcard(99)}}", "{{wildcard(0)}}", "{{wildcard(-1)}}",
    f"{{{{wildcard({HUGE})}}}}", "{{split(1,)}}", "{{split(1,.)}}", "{{split(1, )}}",
    f"{{{{splitfromleft(1,{HUGE})}}}}", "{{slicefromright(1,0)}}", f"{{{{random({HUGE})}}}}",
    "{{random(-1)}}", "$99", "$0", "$-1", f"${HUGE}", "{{", "}}", "{{}}", "{{unknown(1)}}",
)  # fmt: skip
SUBJECTS = (
    "$SYS.x", "$SYS.>", "$JS.API.STREAM.DELETE.V", "$JS.ACK.S.D.1.1.1.1.1", "$NRG.x", "_INBOX.x",
    "_R_.x", "$KV.b.x", "a\r\nPING", "a\tb", "a b", "a\0", "a\x7f", ".", "a..b", "a.>", "*", "",
    "grün.日本", "{{wildcard(1)}} x",
)  # fmt: skip
STRICTER = {
    "{{wildcard(0)}}", "{{wildcard(-1)}}", "{{split(1,)}}", "{{split(1, )}}", "$0", f"${HUGE}",
}  # fmt: skip
"""Places of no wildcard, and delimiters that are none."""


def stream(**fields: Any) -> tuple[str, dict[str, Any]]:
    """A request to make a stream."""
    return "STREAM.CREATE.S", {"name": "S", "storage": "memory", "subjects": ["s.*"], **fields}


def origin(kind: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    """A request to make a stream that follows another one."""
    told: Any = {"name": "O", **fields}
    told = [told] if kind == "sources" else told
    return "STREAM.CREATE.S", {"name": "S", "storage": "memory", kind: told}


def consumer(**fields: Any) -> tuple[str, dict[str, Any]]:
    """A request to make a consumer."""
    return "CONSUMER.CREATE.O", {
        "stream_name": "O", "config": {"inactive_threshold": 10**9, **fields}
    }  # fmt: skip


PLACES: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "transform": lambda bad: stream(subject_transform={"src": "s.*", "dest": f"t.{bad}"}),
    "transform's source": lambda bad: stream(subject_transform={"src": bad, "dest": "t"}),
    "republish": lambda bad: stream(republish={"src": "s.*", "dest": bad}),
    "republish's source": lambda bad: stream(republish={"src": bad, "dest": "t"}),
    "stream": lambda bad: stream(subjects=[bad]),
    "source's transform": lambda bad: origin(
        "sources", subject_transforms=[{"src": "o.*", "dest": f"t.{bad}"}]
    ),
    "source's filter": lambda bad: origin("sources", filter_subject=bad),
    "source's api": lambda bad: origin("sources", external={"api": bad}),
    "source's deliveries": lambda bad: origin(
        "sources", external={"api": "$JS.x.API", "deliver": bad}
    ),
    "mirror's api": lambda bad: origin("mirror", external={"api": bad}),
    "deliveries": lambda bad: consumer(deliver_subject=bad),
    "group": lambda bad: consumer(deliver_subject="d", deliver_group=bad),
    "filter": lambda bad: consumer(filter_subject=bad),
}


async def refusals(url: str, place: str) -> dict[str, str]:
    """What a server refuses at a place, and its words."""
    connection = await nats.connect(url)
    client = Client(connection)
    found = {}
    for bad in (*TRANSFORMS, *SUBJECTS):
        await client.api("STREAM.CREATE.O", {"name": "O", "subjects": ["o.*"], "storage": "memory"})
        answer = await client.api(*PLACES[place](bad))
        if "error" in answer:
            found[bad] = answer["error"]["description"]
        for name in "SO":
            await client.api(f"STREAM.DELETE.{name}")
    await connection.close()
    return found


@pytest.mark.parametrize("place", PLACES)
async def test_hostile_subjects(both_urls: tuple[str, str], place: str) -> None:
    ours, theirs = [await refusals(url, place) for url in both_urls]
    assert theirs.keys() <= ours.keys()
    more = ours.keys() - theirs.keys() - STRICTER
    forging = {bad for bad in more if any(char <= " " or char == "\x7f" for char in bad)}
    assert more - forging - {""} == set()
    assert "a\r\nPING" in ours
