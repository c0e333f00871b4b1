"""Direct gets are answered as nats-server does, one by one and in batches."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import pytest

from tests.edge.jetstream.conftest import BUSY

Steps = list[tuple[Any, ...]]
STORAGES = ("memory", "file")


def setup(name: str, storage: str) -> Steps:
    subject = name.lower()
    config = {"name": name, "subjects": [f"{subject}.>"], "storage": storage, "allow_direct": True}
    return [
        (f"STREAM.CREATE.{name}", config),
        (f"={subject}.a", b"1"),
        (f"={subject}.b", b"2", {"K": "v"}),
        (f"={subject}.a", b"3"),
        (f"={subject}.c", b""),
    ]


@pytest.mark.parametrize("storage", STORAGES)
async def test_single(compare: Callable[[Steps], Awaitable[None]], storage: str) -> None:
    await compare(
        [
            *setup("DG", storage),
            ("DIRECT.GET.DG", {"seq": 1}),
            ("DIRECT.GET.DG", {"seq": 2}),
            ("DIRECT.GET.DG", {"seq": 99}),
            ("DIRECT.GET.DG", {"seq": 2, "no_hdr": True}),
            ("DIRECT.GET.DG", {"last_by_subj": "dg.a"}),
            ("DIRECT.GET.DG", {"next_by_subj": "dg.>", "seq": 2}),
            ("DIRECT.GET.DG", {"start_time": "2020-01-01T00:00:00Z"}),
            ("DIRECT.GET.DG.dg.a",),
            ("DIRECT.GET.DG.dg.b",),
            ("DIRECT.GET.DG.dg.c",),
            ("DIRECT.GET.DG.dg.none",),
            ("DIRECT.GET.DG.dg.*",),
            ("DIRECT.GET.DG.>",),
            ("DIRECT.GET.DG.none.*",),
            ("DIRECT.GET.DG.dg.a", {"seq": 1}),
            ("DIRECT.GET.DG.dg.a", b"{"),
            ("DIRECT.GET.DG",),
            ("DIRECT.GET.DG", b"{"),
            ("DIRECT.GET.DG", {}),
            ("DIRECT.GET.DG", {"seq": 1, "last_by_subj": "x"}),
            ("DIRECT.GET.DG", {"multi_last": ["none"]}),
            ("DIRECT.GET.DG", {"up_to_seq": 1, "up_to_time": "2020-01-01T00:00:00Z", "seq": 1}),
            ("DIRECT.GET.DG", {"seq": 1}, {"Nats-Required-Api-Level": "99"}),
            ("DIRECT.GET.OTHER", {"seq": 1}),
            ("STREAM.DELETE.DG",),
        ]
    )


async def gather(url: str, storage: str, requests: list[dict[str, Any]]) -> list[Any]:
    """All messages of each batch request, as (payload, headers)."""
    nc = await nats.connect(url)
    for subject, body, *headers in setup("DB", storage):
        subject = subject[1:] if subject.startswith("=") else f"$JS.API.{subject}"
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = headers[0] if headers else None
        answer = await nc.request(subject, body, timeout=10, headers=head)
        while BUSY in answer.data.decode():
            answer = await nc.request(subject, body, timeout=10, headers=head)
        assert "error" not in json.loads(answer.data), answer.data
    answers = []
    for request in requests:
        inbox = nc.new_inbox()
        sub = await nc.subscribe(inbox)
        await nc.publish("$JS.API.DIRECT.GET.DB", json.dumps(request).encode(), reply=inbox)
        found = []
        while True:
            msg = await sub.next_msg(timeout=10)
            headers = {k: v for k, v in (msg.headers or {}).items() if k != "Nats-Time-Stamp"}
            found.append((msg.data, headers))
            if "Status" in headers:
                break
        answers.append(found)
        await sub.unsubscribe()
    await nc.request("$JS.API.STREAM.DELETE.DB", b"", timeout=10)
    await nc.close()
    return answers


@pytest.mark.parametrize("storage", STORAGES)
async def test_batches(both_urls: tuple[str, str], storage: str) -> None:
    requests: list[dict[str, Any]] = [
        {"seq": 1, "batch": 10},
        {"seq": 1, "batch": 2},
        {"next_by_subj": "db.a", "batch": 5},
        {"next_by_subj": "db.none", "batch": 5},
        {"seq": 9, "batch": 5},
        {"seq": 1, "batch": 10, "max_bytes": 5},
        {"multi_last": ["db.a", "db.b"]},
        {"multi_last": ["db.>"]},
        {"multi_last": ["db.>"], "batch": 2},
        {"multi_last": ["db.>"], "up_to_seq": 2},
        {"multi_last": ["db.>"], "seq": 3},
        {"multi_last": ["db.>"], "seq": 9},
        {"multi_last": ["db.a"], "seq": 9},
        {"multi_last": ["db.none"], "seq": 9},
        {"multi_last": [""]},
        {"multi_last": ["", "db.a"]},
    ]
    ours, theirs = await asyncio.gather(*(gather(url, storage, requests) for url in both_urls))
    for request, our, their in zip(requests, ours, theirs, strict=True):
        assert our == their, f"after {request}"
