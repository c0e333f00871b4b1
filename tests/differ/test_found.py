"""What generated input has found, as fixed histories on both servers."""

import asyncio
import json
from typing import Any

import pytest

from tests.differ.histories import SECOND, Step, api
from tests.differ.lines_compared import Conversation
from tests.differ.pair import JETSTREAM, WORLDS, Pair
from tests.differ.player import Player


def publish(leaf: str) -> Step:
    return {"do": "publish", "subject": f"%.{leaf}", "headers": [], "payload": "x"}


def headed(leaf: str, header: str, value: str) -> Step:
    return {**publish(leaf), "headers": [(header, value)]}


def wait(seconds: float) -> Step:
    return {"do": "wait", "seconds": seconds}


def pull(batch: int) -> Step:
    body = json.dumps({"batch": batch, "expires": 60 * SECOND})
    return {"do": "pull", "consumer": "C", "body": body}


def asking(body: str) -> Step:
    return {"do": "pull", "consumer": "C", "body": body}


def nak(which: int) -> Step:
    return {"do": "ack", "which": which, "body": "-NAK", "asked": True}


def consumer(**more: Any) -> Step:
    config = {"durable_name": "C", "ack_policy": "explicit", **more}
    return api("CONSUMER.CREATE.%.C", {"stream_name": "%", "config": config})


STREAM = api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"]})
PUSHED = consumer(replay_policy="original", deliver_subject="%d.C")
PACED = consumer(replay_policy="original")
LIST = api("CONSUMER.LIST.%", None)
SPREAD = [STREAM, publish("a"), wait(0.5), publish("a"), wait(0.8), publish("a")]
BODIES = [
    ("STREAM.INFO.%", '{"offset":0}{"subjects_filter":">"}'),
    ("STREAM.MSG.GET.%", '{"seq":1}{"seq":2}'),
    ("STREAM.MSG.GET.%", '{"seq":2} {"next_by_subj":"%.a"}'),
    ("STREAM.MSG.GET.%", '{"seq":1} x'),
    ("STREAM.MSG.GET.%", '{"seq":1}{"seq":'),
    ("STREAM.MSG.GET.%", '{"seq":1}{"seq":null}'),
    ("STREAM.MSG.GET.%", '{"seq":1}{"odd":1}'),
    ("STREAM.UPDATE.%", '{"name":"%","subjects":["%.a"]}\n{"max_msgs":3,"subjects":["%.>"]}'),
    ("STREAM.UPDATE.%", '{"name":"%","consumer_limits":{"max_ack_pending":5}}'
     '{"consumer_limits":{"inactive_threshold":5000000000},"subjects":["%.>"]}'),
    ("STREAM.PURGE.%", '{"keep":1}{"filter":"%.a"}'),
    ("CONSUMER.CREATE.%.C", '{"stream_name":"%","config":{"durable_name":"C"}}'
     '{"config":{"ack_policy":"explicit"}}'),
    ("STREAM.MSG.DELETE.%", '{"seq":1}{"seq":2}'),
]  # fmt: skip
TWO = {"filter_subjects": ["%.a", "%.c"]}
STORED = [STREAM, publish("a"), publish("b"), publish("a"), publish("c")]
INFO = api("CONSUMER.INFO.%.C", None)
WORK = api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "retention": "workqueue"})
KEPT = api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "retention": "interest"})
FAR = 2**63 - 1
TOO_HIGH = [("Nats-Required-Api-Level", "99")]
LOW = [("Nats-Required-Api-Level", "1")]
FIRST = {"name": "%", "subjects": ["%.>"]}
FULL = api("STREAM.INFO.%", {"subjects_filter": ">", "deleted_details": True})


def pull_by(priority: int) -> Step:
    body = {"batch": 1, "expires": 5 * SECOND, "group": "g", "priority": priority}
    return {"do": "pull", "consumer": "C", "body": json.dumps(body)}


def pull_bytes(most: int) -> Step:
    body = json.dumps({"batch": 3, "expires": SECOND // 4, "max_bytes": most})
    return {"do": "pull", "consumer": "C", "body": body}


def ack(which: int) -> Step:
    return {"do": "ack", "which": which, "body": "+ACK", "asked": True}


def overflow(pending: int) -> Step:
    body = {"batch": 5, "expires": 60 * SECOND, "group": "g", "min_pending": pending}
    return {"do": "pull", "consumer": "C", "body": json.dumps(body)}


def begun(policy: str, **more: Any) -> list[Step]:
    return [*STORED, consumer(deliver_policy=policy, **TWO, **more), INFO, pull(5)]


AT = [("Nats-Schedule", "@at 2100-01-01T00:00:00Z"), ("Nats-Schedule-Target", "%.t")]
BAD_TTL = [("Nats-TTL", "x"), ("Nats-Expected-Last-Sequence", "9")]


def fast(
    *parts: tuple[int, int], gap: str = "ok", headers: list[tuple[str, str]] = BAD_TTL, **more: Any
) -> list[Step]:
    """A fast batch of sequences and operations; its second message has headers."""
    config = {"name": "%", "subjects": ["%.>"], "allow_batched": True, **more}
    batch = [
        {**publish("a"), "reply": f"%i.f.10.{gap}.{sequence}.{operation}.$FI"}
        for sequence, operation in parts
    ]
    batch[1]["headers"] = headers
    return [api("STREAM.CREATE.%", config), *batch, FULL]


def copied(**source: Any) -> list[Step]:
    """A stream with this source, and how far it says it is."""
    config = {"name": "%M", "sources": [{"name": "%", **source}]}
    seen = [wait(1.6), api("STREAM.INFO.%M", {"subjects_filter": ">"})]
    made = [STREAM, publish("a"), publish("b"), publish("c"), api("STREAM.CREATE.%M", config)]
    return [*made, *seen, publish("b"), *seen]


SOURCES: dict[str, dict[str, Any]] = {
    "": {},
    "with a filter": {"filter_subject": "%.a"},
    "that wants nothing": {"filter_subject": "%.z"},
    "from a sequence on": {"opt_start_seq": 2},
    "from a late sequence on": {"opt_start_seq": 9},
    "with transforms": {"subject_transforms": [
        {"src": "%.a", "dest": ""}, {"src": "%.b", "dest": "x.b"}]},
}  # fmt: skip
MIRROR = {"name": "%M", "mirror": {"name": "%"}, "subject_transform": {"src": ">", "dest": "z.>"}}
HISTORIES: dict[str, list[Step]] = {
    "the first sequence of an update is shown, and changes nothing": [
        STREAM, api("STREAM.UPDATE.%", {**FIRST, "first_seq": 10}), FULL,
        api("STREAM.CREATE.%", FIRST), publish("a"), api("STREAM.UPDATE.%", FIRST), FULL,
    ],
    "a mirror gives its messages other subjects": [
        STREAM, publish("a"), api("STREAM.CREATE.%M", MIRROR), wait(1.6), publish("b"), wait(0.6),
        api("STREAM.INFO.%M", {"subjects_filter": ">"}), api("STREAM.MSG.GET.%M", {"seq": 1}),
    ],
    "copies count not as consumers": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "max_consumers": 1}),
        consumer(), publish("a"), api("STREAM.CREATE.%M", {"name": "%M", "sources": [
            {"name": "%"}]}), wait(1.6), api("STREAM.INFO.%M", {"subjects_filter": ">"}), INFO,
        api("CONSUMER.CREATE.%.D", {"stream_name": "%", "config": {"durable_name": "D"}}),
    ],
    **{f"the last message of a source {name}": copied(**source)
        for name, source in SOURCES.items()},
    "a message that waits for its time goes before what is sent again": [
        *SPREAD, PUSHED, nak(0), wait(0.3), wait(1.5),
    ],
    "the time to the next message counts from the one sent last": [
        *SPREAD, PACED, pull(1), wait(0), pull(1), wait(0.7), nak(0), pull(1), pull(1), wait(0.9),
        wait(1.5),
    ],
    "a request waits as long as the message for it does in a replay": [
        *SPREAD, PACED, asking('{"batch":3,"expires":250000000,"no_wait":true}'),
        asking('{"batch":1,"expires":300000000}'), wait(1.6), pull(3), wait(0.3),
    ],
    "after a replay messages are sent again at once": [
        *SPREAD, PACED, pull(3), wait(1.6), nak(0), nak(2), nak(1), pull(3),
    ],
    "who names no group of a pinned consumer gets no pin": [
        STREAM, publish("a"), consumer(priority_policy="pinned_client", priority_groups=["g"]),
        {"do": "pull", "consumer": "C", "body": "[]"},
    ],
    "from a time on": begun("by_start_time", opt_start_time="2020-01-01T00:00:00Z"),
    "from a late time on": begun("by_start_time", opt_start_time="2100-01-01T00:00:00Z"),
    "from the first of times on": begun("by_start_time", opt_start_time="0001-01-01T00:00:00Z"),
    "from the last of each subject on": begun("last_per_subject"),
    "from the last on": begun("last"),
    "from no sequence on": begun("by_start_sequence", opt_start_seq=2**64 - 1),
    "spans as long as can be": [
        STREAM, consumer(ack_wait=FAR), consumer(inactive_threshold=FAR), consumer(max_deliver=FAR),
        api("CONSUMER.PAUSE.%.C", {"pause_until": "9999-12-31T23:59:59Z"}),
        api("CONSUMER.PAUSE.%.C", {"pause_until": "0001-01-01T00:00:00Z"}),
        consumer(ack_wait=2**63), api("CONSUMER.RESET.%.C", {"seq": 2**64 - 1}), INFO,
    ],
    "answers that come before the sync": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "persist_mode": "async"}),
        publish("a"), api("STREAM.UPDATE.%", {"name": "%", "subjects": ["%.>"]}),
    ],
    "who comes first of several pulls": [
        STREAM, consumer(priority_policy="prioritized", priority_groups=["g"]),
        pull_by(5), pull_by(1), publish("a"), publish("b"),
    ],
    "several values in one body": [
        STREAM, publish("a"), publish("b"), publish("a"),
        *({"do": "ask", "subject": f"$JS.API.{subject}", "body": body} for subject, body in BODIES),
    ],
    "a purge leaves consumers of other subjects where they are": [
        STREAM, publish("b"), publish("b"), consumer(filter_subject="%.a"),
        api("STREAM.PURGE.%", {"seq": 2, "filter": "%.z"}), LIST,
        api("STREAM.PURGE.%", {"filter": "%.b"}), LIST,
    ],
    "a purge of their subject moves consumers to what is left of it": [
        STREAM, publish("a"), publish("b"), publish("a.x"), publish("a"), consumer(
            filter_subject="%.a"), pull(1), api("STREAM.PURGE.%", {"filter": "%.*", "keep": 1}),
        LIST, api("STREAM.PURGE.%", {"filter": "%.a"}), LIST, publish("a"), pull(1),
    ],
    "a purge of a stream that never had a message": [
        STREAM, api("STREAM.PURGE.%", None), FULL, publish("a"), FULL,
    ],
    "a purge of what has gone by itself": [
        STREAM, publish("a"), consumer(), api("STREAM.MSG.DELETE.%", {"seq": 1}), LIST,
        api("STREAM.PURGE.%", None), LIST, publish("a"), pull(1), LIST,
    ],
    "a purge of one subject up to any sequence": [
        STREAM, publish("a"), publish("b"),
        api("STREAM.PURGE.%", {"seq": 2**64 - 1, "filter": "%.a"}), FULL, publish("a"), FULL,
    ],
    "roll-ups in letters of any size": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_rollup_hdrs": True}),
        *(step for word in ("SUB", "All", "sUb", "SUBS", "3UB", "al") for step in (
            publish("a"), publish("b"), headed("a", "Nats-Rollup", word), FULL)),
    ],
    "a bad TTL that nobody wants": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "retention": "interest"}),
        headed("a", "Nats-TTL", "0"), headed("a", "Nats-TTL", "x"), consumer(),
        headed("a", "Nats-TTL", "0"), headed("a", "Nats-TTL", "x"), FULL,
    ],
    "a bad TTL in a fast batch without TTLs": fast((1, 0), (2, 1), (3, 2)),
    "a bad TTL in a fast batch with TTLs": fast((1, 0), (2, 1), (3, 2), allow_msg_ttl=True),
    "a fast batch of counters without a step": fast(
        (1, 0), (2, 1), (3, 2), headers=[("Nats-Expected-Last-Sequence", "9")],
        allow_msg_counter=True),
    "a fast batch that expects what is not": fast((1, 0), (2, 1), (3, 2), headers=[
        ("Nats-Expected-Last-Sequence", "9"), ("Nats-Expected-Last-Subject-Sequence", "8")]),
    "what is looked at before a counter's step": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_msg_counter": True,
            "allow_rollup_hdrs": True}),
        {**publish("a"), "headers": [("Nats-Incr", "1"), ("Nats-Msg-Id", "1")], "payload": ""},
        *(headed("a", *pair) for pair in (
            ("Nats-Msg-Id", "1"), ("Nats-Msg-Id", "2"), ("Nats-Expected-Last-Msg-Id", "9"),
            ("Nats-Expected-Last-Msg-Id", "1"), ("Nats-Rollup", "x"), ("Nats-Rollup", "sub"),
            ("Nats-TTL", "1s"), ("Nats-Expected-Last-Sequence", "7"), ("Nats-Incr", ""))),
        api("STREAM.UPDATE.%", {"name": "%", "subjects": ["%.>"], "allow_msg_counter": True}),
        headed("a", "Nats-Rollup", "sub"), FULL,
    ],
    "a schedule where all are counters": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_msg_counter": True}),
        headed("a", "Nats-Schedule", "@every 1h"), headed("a", "Nats-Stream-Source", "x 1"),
        headed("a", "Nats-Scheduler", "x"), publish("a"),
    ],
    "a schedule with a roll-up in capitals": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_msg_schedules": True}),
        {**publish("a"), "headers": [*AT, ("Nats-Rollup", "SUB")]}, FULL,
        {**publish("a"), "headers": [*AT, ("Nats-Rollup", "ALL")]}, FULL,
    ],
    "a fast batch that begins with a ping": fast((1, 4), (1, 0), (2, 2)),
    "a fast batch that goes back": fast((1, 0), (1, 0), (2, 2), gap="fail", headers=[]),
    **{f"a fast batch with another last id than expected, gaps {gap}": fast(
        (1, 0), (2, 1), (3, 1), (4, 2), gap=gap, headers=[("Nats-Expected-Last-Msg-Id", "9")])
        for gap in ("ok", "fail")},
    "a fast batch that requires too much": fast((1, 0), (2, 1), (3, 2), headers=TOO_HIGH),
    "a fast batch with the headers of an atomic one": fast((1, 0), (2, 1), (3, 2), headers=[
        ("Nats-Batch-Id", "q"), ("Nats-Batch-Sequence", "1"), ("Nats-Batch-Commit", "1")]),
    "the same where both may be": fast((1, 0), (2, 1), (3, 2), allow_atomic=True, headers=[
        ("Nats-Batch-Id", "q"), ("Nats-Batch-Sequence", "1"), ("Nats-Batch-Commit", "1")]),
    "a fast batch where publishers get no acks": fast(
        (1, 0), (3, 1), (4, 1), (4, 4), (6, 3), headers=[], no_ack=True),
    "refusals of a fast batch where publishers get no acks": fast(
        (1, 0), (2, 1), (1, 1), (3, 2), gap="fail", no_ack=True),
    "a fast batch that is refused at once where publishers get no acks": fast(
        (1, 2), (1, 0), gap="fail", no_ack=True),
    "a request that nobody listens for takes no place": [
        STREAM, publish("a"), consumer(max_waiting=2), pull(5),
        {"do": "ack", "which": 0, "body": "+NXT", "asked": False}, pull(5), pull(5),
    ],
    "a request for one message that waits in a replay takes no place": [
        STREAM, publish("a"), wait(1.5), publish("a"), consumer(
            replay_policy="original", max_waiting=1), pull(1), pull(1), pull(1), pull(1),
        wait(1.5), INFO,
    ],
    "a request for two messages that waits in a replay takes one": [
        STREAM, publish("a"), wait(1.5), publish("a"), publish("a"), consumer(
            replay_policy="original", max_waiting=1), pull(1), pull(2), pull(1), wait(2),
        INFO, pull(1),
    ],
    "a fast batch that requires little": fast((1, 0), (2, 1), (3, 2), headers=LOW),
    "the threshold of a consumer that becomes durable, or ephemeral": [
        step for names in (("C", "", "", ""), ("", "C", "C")) for step in (
            STREAM, *(consumer(durable_name=name, description=str(at))
                for at, name in enumerate(names)),
            INFO, api("STREAM.DELETE.%", None))
    ],
    "a consumer without durable name made once more": [
        STREAM, *(api("CONSUMER.CREATE.%.X", {"stream_name": "%", "action": "create", "config": {
            "name": "X", "ack_policy": "explicit", **more}})
            for more in ({}, {}, {"inactive_threshold": 5 * SECOND}, {"description": "d"})),
    ],
    "a message that was delivered often enough and is refused with no delay": [
        *STORED, consumer(max_deliver=1), pull(3), nak(0), INFO,
        {**nak(1), "body": '-NAK {"delay":-1}'}, wait(0.1), INFO, {**nak(2), "body": "-NAK 0s"},
        wait(0.1), INFO,
    ],
    "requests of the overflow policy for what is sent again": [
        STREAM, publish("a"), consumer(priority_policy="overflow", priority_groups=["g"]),
        overflow(1), nak(0), overflow(2), nak(0), publish("a"),
    ],
    "an ack of what was delivered before a reset": [
        *STORED, consumer(), pull(2), api("CONSUMER.RESET.%.C", {"seq": 99}), ack(0), LIST,
    ],
    "a reset behind a purge that left what waits for its ack": [
        *STORED, consumer(filter_subject="%.c"), pull(1), api("STREAM.PURGE.%", {"seq": 3}), LIST,
        api("CONSUMER.RESET.%.C", {}), LIST, pull(5), LIST,
    ],
    "a refusal from before a reset": [
        *STORED, consumer(deliver_subject="%d.C"), ack(0), ack(1),
        api("CONSUMER.RESET.%.C", {}), nak(2), nak(3), wait(0.1), LIST,
    ],
    "a roll-up that finds nothing to remove moves consumers": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_rollup_hdrs": True}),
        consumer(), publish("a"), api("STREAM.MSG.DELETE.%", {"seq": 1}), LIST,
        headed("a", "Nats-Rollup", "sub"), LIST, pull(1), headed("b", "Nats-Rollup", "sub"), LIST,
    ],
    "a bound of bytes counts the header that tells the size": [
        STREAM, consumer(headers_only=True), pull_bytes(150), publish("a"),
        headed("a", "K", "v"), publish("c"),
    ],
    "a bound of bytes below nothing is told as it came": [
        STREAM, consumer(pause_until="2100-01-01T00:00:00Z"), pull_bytes(-5), wait(0.4),
    ],
    "names and room are judged before the filters of sources": [
        STREAM, *(api("STREAM.CREATE.%", {"name": "%", "storage": "memory", **more}) for more in (
            {"sources": [{"name": "%O", "filter_subject": "a..b"}]},
            {"mirror": {"name": "%O", "filter_subject": "a..b"}})),
        api("STREAM.DELETE.%", None),
        *(api(f"STREAM.{verb}.%", {"name": "%", "storage": "memory", **more, "sources": [
            {"name": "%O", "filter_subject": "a..b"}]})
            for verb in ("UPDATE", "CREATE") for more in ({}, {"max_bytes": 10**18})),
    ],
    "two places to begin": [
        api("STREAM.CREATE.%", {"name": "%", "sources": [{"name": "%O", "opt_start_seq": 2,
            "opt_start_time": "2020-01-01T00:00:00Z"}]}),
    ],
    "a copy that is published nowhere": [
        step for wanted in ({}, {"src": "%.a"}, {"src": "a..b", "headers_only": True})
        for step in (
            api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "republish": wanted}),
            publish("a"), FULL, api("STREAM.DELETE.%", None))
    ],
    "transforms that are none": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "subject_transform": {
            "src": source, "dest": destination}})
        for source in ("%.*", "%.a", "", ">", "%..a") for destination in (
            "p.*", "p..a", "p.$1", "p.{{partition(3)}}", "p.{{bad(1)}}", "p.>", ">", "", "p q",
            "p.{{wildcard(2)}}", "p.{{random(5)}}", "p.>.q")
    ],
    "what a request of another account carries is not counted": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "max_msg_size": 40}),
        *({**headed("a", *pair), "payload": "x" * size} for size in (28, 39, 40, 41) for pair in (
            ("Nats-Request-Info", "{}"), ("Other", "{}"), ("Nats-Batch-Id", "b"))),
        *({**publish("a"), "payload": "x" * size, "headers": [
            ("Nats-Request-Info", "{}"), ("A", "b")]} for size in (22, 23, 24)), FULL,
    ],
    "a TTL that is none where there is no room": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "max_msgs": 1, "discard": "new",
            "allow_msg_ttl": allowed}) if value is None else headed("b", "Nats-TTL", value)
        for allowed in (True, False) for value in (None, "1h", "0", "x", "00", "1h")
    ],
    "what a request of another account carries counts in batches": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "max_msg_size": 90}),
        *({**publish("a"), "payload": "x" * size, "headers": [
            ("Nats-Request-Info", "{}"), ("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1")]}
            for size in (5, 30)),
        *({**publish("a"), "payload": "x" * size, "reply": "%i.f.10.ok.1.0.$FI", "headers": [
            ("Nats-Request-Info", "{}"), ("A", "b")]} for size in (30, 60)), FULL,
    ],
    "a direct read of fewer than no messages": [
        *(step for before in ([], [publish("a"), publish("b")]) for step in (
            STREAM, *before, *(api("DIRECT.GET.%", body) for body in (
                {"batch": -1, "seq": 1}, {"batch": -1, "next_by_subj": "%.b"},
                {"batch": -1, "seq": 9})),
            api("STREAM.DELETE.%", None))),
    ],
    "the last of each subject, of a stream that keeps nothing": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "retention": "interest"}),
        publish("a"), consumer(deliver_policy="last_per_subject", filter_subject="%.*"), LIST,
    ],
    "an update that ends what is too old": [
        STREAM, publish("a"), wait(1.2), publish("b"), api("STREAM.UPDATE.%", {
            "name": "%", "subjects": ["%.>"], "max_age": SECOND}), FULL,
    ],
    "a purge of less than they want moves consumers to the first message": [
        STREAM, publish("a"), publish("b"), publish("a"), consumer(),
        api("STREAM.PURGE.%", {"filter": "%.a"}), LIST, pull(2),
        api("STREAM.PURGE.%", {"filter": "%.b"}), LIST,
    ],
    "numbers with signs as pulls, and who asks for fewer than none": [
        STREAM, *[publish("a")] * 4, consumer(max_ack_pending=2), asking("+2"), asking("-1"),
        asking('{"batch":1,"no_wait":true}'), LIST,
    ],
    "direct reads of fewer bytes than none, and of the last ones without headers": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_direct": True}),
        publish("a"), publish("b"), publish("c"), *(api("DIRECT.GET.%", body) for body in (
            {"seq": 1, "batch": 3, "max_bytes": -1}, {"seq": 1, "max_bytes": -1},
            {"multi_last": ["%.*"], "max_bytes": -1}, {"multi_last": ["%.*"], "no_hdr": True})),
    ],
    "what a work queue's worker awaits stays, though it is copied": [
        WORK, consumer(), publish("a"), api("STREAM.CREATE.%M", {
            "name": "%M", "sources": [{"name": "%"}]}), wait(1.6), FULL, publish("b"), wait(0.3),
        pull(1), {"do": "ack", "which": 0, "body": "+ACK", "asked": True}, FULL,
    ],
    "a mirror that is deleted takes its consumer along": [
        KEPT, api("STREAM.CREATE.%M", {"name": "%M", "mirror": {"name": "%"}}), wait(1.6),
        publish("a"), wait(0.3), FULL, api("STREAM.DELETE.%M", None), wait(0.3), FULL,
    ],
    "a source that is there no more takes its consumer along": [
        KEPT, api("STREAM.CREATE.%M", {"name": "%M", "sources": [{"name": "%"}]}), wait(1.6),
        publish("a"), wait(0.3), api("STREAM.UPDATE.%M", {"name": "%M", "subjects": ["%M"]}),
        wait(0.3), FULL,
    ],
    "a work queue that is copied takes one who wants all": [
        WORK, api("STREAM.CREATE.%M", {"name": "%M", "mirror": {"name": "%"}}), wait(1.6),
        consumer(), api("CONSUMER.CREATE.%.D", {"stream_name": "%", "config": {
            "durable_name": "D", "ack_policy": "explicit"}}), publish("b"), wait(0.3), FULL,
    ],
    "acknowledgements of too few or too many tokens": [
        STREAM, publish("a"), consumer(), pull(1), *(
            {**publish("a"), "subject": f"$JS.ACK.{tail}", "payload": "+ACK"} for tail in (
                "%.C.1.1.1.1", "%.C.1.1.1.1.0.0", "%.C", "_.x.%.C.1.1.1.1.0",
                "_.x.%.C.1.1.1.1.0.t", "%.D.1.1.1.1.0")), LIST,
    ],
    "an update may take a worker's filter away": [
        WORK, consumer(filter_subject="%.a"), api("CONSUMER.CREATE.%.D", {
            "stream_name": "%", "config": {
                "durable_name": "D", "ack_policy": "explicit", "filter_subject": "%.b"}}),
        consumer(), consumer(filter_subject="%.*"), LIST,
        api("CONSUMER.CREATE.%.E", {"stream_name": "%", "config": {
            "durable_name": "E", "ack_policy": "explicit", "filter_subject": "%.z"}}),
    ],
    "schedules whose target the stream lacks, and whose source is none": [
        api("STREAM.CREATE.%", {
            "name": "%", "subjects": ["%.>"], "allow_msg_schedules": True}),
        *({**publish("b"), "headers": [("Nats-Schedule", "@daily"),
            ("Nats-Schedule-Target", target), ("Nats-Schedule-Source", source)]}
            for target in ("x", "%.*", "%.c") for source in ("%.*", "x", "y", "%.b", "%.a")),
    ],
    "heartbeats of which twice as much is no number": [
        STREAM, consumer(),
        *(asking(json.dumps({"expires": SECOND // 10, "id": "x", "idle_heartbeat": 2**up - less}))
            for up, less in ((62, 1), (62, 0), (63, 1))),
    ],
    "a snapshot's configuration has no version of the server": [
        STREAM, api("STREAM.SNAPSHOT.%", {"deliver_subject": "a", "no_consumers": True}),
    ],
    "counters that tell nothing of their sources, or no JSON": [
        api("STREAM.CREATE.%", {"name": "%", "subjects": ["%.>"], "allow_direct": True,
            "allow_msg_counter": True}),
        *(step for value in ("{}", "null", '{"S":null}', '{"S":{"a":"5"}}', "[]", "x")
            for leaf in (f"n{len(value)}{value[1:2]}".replace('"', "q"),) for step in (
                {**publish(leaf), "payload": "", "headers": [
                    ("Nats-Incr", "2"), ("Nats-Counter-Sources", value)]},
                {**headed(leaf, "Nats-Incr", "1"), "payload": ""},
                api("DIRECT.GET.%", {"last_by_subj": f"%.{leaf}"}))),
    ],
}  # fmt: skip


TRACES = [b"Nats-Trace-Dest: trace.x", b"Nats-Trace-Dest: a..b\r\nNats-Trace-Only: true"]


@pytest.mark.parametrize("header", TRACES)
def test_a_trace_that_may_not_be_sent(header: bytes) -> None:
    """The message goes nowhere, and a verbose client gets no +OK for it."""
    block = b"NATS/1.0\r\n%b\r\n\r\n" % header
    login = b'CONNECT {"user":"bound","pass":"p","headers":true}\r\n'
    frame = b"SUB a.> 1\r\nHPUB a.b %d %d\r\n%by\r\n" % (len(block), len(block) + 1, block)
    with Pair(WORLDS["users"]) as pair:
        result = Conversation(pair.ports).play([(1, login, []), (1, frame, [])])
    assert result is None, result


@pytest.fixture(scope="module")
def ports() -> Any:
    with Pair(JETSTREAM) as pair:
        yield pair.ports


def test_nothing_is_done_while_a_request_ends(ports: tuple[int, int]) -> None:
    """Whether it still gets a message is chance then, on each server by itself."""
    ends = asking(json.dumps({"batch": 1, "expires": SECOND // 4}))

    async def once(ms: int) -> Any:
        steps = [STREAM, consumer(), ends, wait(ms / 1000), publish("a"), LIST]
        return await Player(ports).play(steps)

    async def played() -> list[Any]:
        return await asyncio.gather(*(once(ms) for ms in range(150, 182, 4)))

    assert asyncio.run(played()) == [None] * 8


@pytest.mark.parametrize("name", HISTORIES)
def test_found(ports: tuple[int, int], name: str) -> None:
    result = asyncio.run(Player(ports).play(HISTORIES[name]))
    assert result is None, f"step {result[0]}\nours   {result[1]}\ntheirs {result[2]}"
