"""Generated requests of the JetStream API, and what of their answers may differ.

Every field of every request is absent, null, of the wrong type, extreme, or one of a few values
that make sense together, drawn by hypothesis, so that what differs is shrunk to its cause.
"""

import json
import re
from typing import Any

from hypothesis import strategies as st

SECOND = 10**9
TIMES = ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00.5Z", "0001-01-01T00:00:00Z", "x"]
NUMBERS = [0, 1, 2, -1, -2, 5, 100, SECOND, 2**31]
SEQUENCES = [0, 1, 2, 3, 4, 100, -1]
DURATIONS = [0, -1, 1, SECOND // 10, SECOND, 60 * SECOND, 3600 * SECOND]
FLAGS: list[Any] = [True, False]
SUBJECTS = ["s.>", "s.a", "s.*", "t", "s..a", ">", "$JS.API.>", ""]
NAMES = ["S", "T", "a b", "a.b", "", "x" * 300]
WRONG: list[Any] = [None, "text", 1.5, {}, [], True]

MIRROR: list[Any] = [
    {"name": "O"},
    {"name": ""},
    {"name": "O", "opt_start_seq": 2},
    {"name": "O", "opt_start_time": "2020-01-01T00:00:00Z"},
    {"name": "O", "opt_start_seq": 2, "opt_start_time": "2020-01-01T00:00:00Z"},
    {"name": "O", "filter_subject": "o"},
    {"name": "O", "subject_transforms": [{"src": "o", "dest": "p"}]},
    {"name": "O", "subject_transforms": [{"src": "o", "dest": "p"}, {"src": "o", "dest": "q"}]},
    {"name": "O", "filter_subject": "o", "subject_transforms": [{"src": "o", "dest": "p"}]},
    {"name": "O", "subject_transforms": [{"src": "o..a", "dest": "p"}]},
    {"name": "O", "subject_transforms": [{"src": "o", "dest": "p.*"}]},
]
TRANSFORM: list[Any] = [{"src": "s.*", "dest": "u.$1"}, {"src": "s.>", "dest": "u.>"}]
STREAM: dict[str, list[Any]] = {
    "description": ["d", "x" * 5000],
    "subjects": [["s.>"], ["s.a", "s.b"], ["s.a", "s.*"], [], ["s..a"], [">"], ["$JS.API.>"]],
    "retention": ["limits", "interest", "workqueue", "odd"],
    "max_consumers": NUMBERS,
    "max_msgs": NUMBERS,
    "max_bytes": NUMBERS,
    "max_age": DURATIONS,
    "max_msgs_per_subject": NUMBERS,
    "max_msg_size": NUMBERS,
    "discard": ["old", "new", "odd"],
    "storage": ["memory", "file", "odd"],
    "num_replicas": [0, 1, 3, 6, -1],
    "no_ack": FLAGS,
    "duplicate_window": DURATIONS,
    "placement": [{"cluster": "c"}, {"tags": ["t"]}],
    "mirror": MIRROR,
    "sources": [[one] for one in MIRROR] + [[MIRROR[0], one] for one in MIRROR],
    "compression": ["none", "s2", "odd"],
    "first_seq": [0, 1, 100],
    "subject_transform": TRANSFORM,
    "republish": [*TRANSFORM, {"src": "s.>", "dest": "s.>"}],
    "allow_direct": FLAGS,
    "mirror_direct": FLAGS,
    "discard_new_per_subject": FLAGS,
    "sealed": FLAGS,
    "deny_delete": FLAGS,
    "deny_purge": FLAGS,
    "allow_rollup_hdrs": FLAGS,
    "consumer_limits": [
        {"max_ack_pending": 10},
        {"inactive_threshold": SECOND},
        {"inactive_threshold": -1},
    ],
    "allow_msg_ttl": FLAGS,
    "subject_delete_marker_ttl": DURATIONS,
    "allow_msg_counter": FLAGS,
    "allow_atomic": FLAGS,
    "allow_msg_schedules": FLAGS,
    "persist_mode": ["default", "async", "odd"],
    "allow_batched": FLAGS,
    "metadata": [{"k": "v"}, {}],
    "pedantic": FLAGS,
    "unknown": [1],
}
CONSUMER: dict[str, list[Any]] = {
    "durable_name": ["C", "D", ""],
    "name": ["C", "D", ""],
    "description": ["d", "x" * 5000],
    "deliver_policy": [
        "all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject", "odd",
    ],
    "opt_start_seq": [0, 1, 2, 100],
    "opt_start_time": TIMES,
    "ack_policy": ["none", "all", "explicit", "flow_control", "odd"],
    "ack_wait": DURATIONS,
    "max_deliver": [0, 1, -1, -2, 5],
    "backoff": [[SECOND], [SECOND, 2 * SECOND]],
    "filter_subject": ["s.a", "s.>", "t", "s..a", ""],
    "filter_subjects": [["s.a"], ["s.a", "s.b"], ["s.a", "s.*"], [""]],
    "replay_policy": ["instant", "original", "odd"],
    "rate_limit_bps": [0, 1, 100_000],
    "sample_freq": ["30", "30%", "x", "", "200", "-1"],
    "max_waiting": [0, 1, -1, 600],
    "max_ack_pending": [0, 1, -1, -2, 5000],
    "flow_control": FLAGS,
    "headers_only": FLAGS,
    "max_batch": [0, 1, -1],
    "max_expires": [0, 1, SECOND, -1],
    "max_bytes": [0, 1, -1],
    "deliver_subject": ["d", "d.*", "s.a", ""],
    "deliver_group": ["g", "g.x", ""],
    "idle_heartbeat": [0, SECOND, 1, -1],
    "inactive_threshold": [0, SECOND, -1],
    "num_replicas": [0, 1, 3, -1],
    "mem_storage": FLAGS,
    "direct": FLAGS,
    "metadata": [{"k": "v"}, {}],
    "pause_until": TIMES,
    "priority_groups": [["g"], ["g", "h"], [""], ["a b"]],
    "priority_policy": ["none", "overflow", "pinned_client", "prioritized", "", "odd"],
    "priority_timeout": [0, SECOND, -1],
    "unknown": [1],
}
REQUESTS: dict[str, dict[str, list[Any]]] = {
    "STREAM.INFO.S": {"deleted_details": FLAGS, "subjects_filter": SUBJECTS, "offset": NUMBERS},
    "STREAM.NAMES": {"offset": NUMBERS, "subject": SUBJECTS},
    "STREAM.LIST": {"offset": NUMBERS, "subject": SUBJECTS},
    "STREAM.PURGE.S": {"seq": SEQUENCES, "keep": SEQUENCES, "filter": SUBJECTS},
    "STREAM.MSG.GET.S": {
        "seq": SEQUENCES,
        "last_by_subj": SUBJECTS,
        "next_by_subj": SUBJECTS,
        "batch": [0, 1, -1],
        "max_bytes": [0, 1],
        "start_time": TIMES,
        "no_hdr": FLAGS,
        "multi_last": [["s.>"], ["s.a", "s.b"], ["s..a"], []],
        "up_to_seq": SEQUENCES,
        "up_to_time": TIMES,
    },
    "STREAM.MSG.DELETE.S": {"seq": SEQUENCES, "no_erase": FLAGS},
    "STREAM.DELETE.S": {"unknown": [1]},
    "CONSUMER.INFO.S.D": {"unknown": [1]},
    "CONSUMER.NAMES.S": {"offset": NUMBERS},
    "CONSUMER.LIST.S": {"offset": NUMBERS},
    "CONSUMER.PAUSE.S.D": {"pause_until": TIMES},
    "CONSUMER.UNPIN.S.D": {"group": ["g", "", "a b"]},
    "CONSUMER.RESET.S.D": {"seq": SEQUENCES},
    "CONSUMER.DELETE.S.D": {"unknown": [1]},
}


def _lists(values: list[Any]) -> bool:
    """Whether a field holds lists, for which an empty one is not of the wrong type."""
    return isinstance(values[0], list)


def fields(known: dict[str, list[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
    """A few fields of one object, mostly with values of their type."""
    pairs = st.sampled_from(list(known)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.one_of(
                st.sampled_from(known[name]),
                st.sampled_from(known[name]),
                st.sampled_from(known[name]),
                st.sampled_from([one for one in WRONG if one != [] or not _lists(known[name])]),
            ),
        )
    )
    return st.lists(pairs, max_size=most).map(dict)


def stream_steps() -> st.SearchStrategy[tuple[str, Any]]:
    """Creations and updates of one stream. No update says where the stream began: here that
    changes nothing, and nats-server tells a creation by it later."""

    def step(verb: str, found: dict[str, Any]) -> tuple[str, Any]:
        if verb == "UPDATE":
            found.pop("first_seq", None)
        return f"STREAM.{verb}.S", {"name": "S", "storage": "memory", **found}

    return st.builds(step, st.sampled_from(["CREATE", "UPDATE"]), fields(STREAM, 4))


def consumer_steps() -> st.SearchStrategy[tuple[str, Any]]:
    """Creations and updates of one consumer."""
    subjects = [
        "CONSUMER.CREATE.S.C",
        "CONSUMER.CREATE.S.C",
        "CONSUMER.DURABLE.CREATE.S.C",
        "CONSUMER.CREATE.S.C.s.a",
        "CONSUMER.CREATE.S.C.s.>",
    ]
    return st.tuples(
        st.sampled_from(subjects),
        st.builds(
            lambda plain, config, action, pedantic: {
                "stream_name": "S",
                "config": {"ack_policy": "explicit", **plain, **config},
                **({"action": action} if action else {}),
                **({"pedantic": True} if pedantic else {}),
            },
            st.sampled_from([{"durable_name": "C"}, {"durable_name": "C"}, {"name": "C"}]),
            fields(CONSUMER, 4),
            st.sampled_from(["", "", "create", "update", "odd"]),
            st.sampled_from([False, False, True]),
        ),
    )


def other_steps() -> st.SearchStrategy[tuple[str, Any]]:
    """All other requests."""
    return st.sampled_from(list(REQUESTS)).flatmap(
        lambda subject: st.tuples(st.just(subject), fields(REQUESTS[subject], 3))
    )


def histories() -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Requests to a stream S with three messages and a consumer D; another stream is O."""
    return st.lists(st.one_of(stream_steps(), consumer_steps(), other_steps()), max_size=4)


OWN = {
    "created", "ts", "first_ts", "last_ts", "time", "last_active", "pause_remaining",
    "_nats.ver", "_nats.level", "active", "lag",
}
"""Own to a server or a moment: times, versions, how far a source is just now."""

INTENDED = {
    "_headwater.*": "metadata: what more headwater tells of a source: its state, rate and backlog",
    "first_seq": "of a configuration: an update repeats where a stream began, and changes it not",
}
"""Fields that differ by intention, and why. The sentences of JSON decoders differ, too: they name
types of the language that the server is written in. Not generated is what makes nats-server walk
through billions of sequences (a purge up to such a number), nor a deliver group with a space, which
is refused: it would stand in frames of links; nor filters of sources that are no subjects, which
nats-server takes in an update, and copies nothing then; nor empty lists, which are something else
than no list to nats-server, when a consumer or stream is made again."""


HOLDS_REQUESTS = re.compile(r'"subjects": \["(\$JS\.API\.)?>"\]')
"""A stream that stores requests of the API: whether one is stored before it is answered is chance
on nats-server, where a thread of its own stores it. Headwater answers first."""

HELD = {"state", "num_pending", "purged"}
"""Counts of messages, which depend on that."""


UNORDERED = "violates consumers: "
"""What stands before names that nats-server tells in any order."""


def comparable(value: Any, left_out: frozenset[str] = frozenset()) -> Any:
    """An answer without what is own to a server, differs by intention, or is `left_out`."""
    if isinstance(value, list | tuple):
        return [comparable(item, left_out) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("err_code") == 10025:
        return {**value, "description": "invalid JSON"}
    if UNORDERED in value.get("description", ""):
        told, _, names = value["description"].partition(UNORDERED)
        return {**value, "description": told + UNORDERED + ", ".join(sorted(names.split(", ")))}
    dropped = OWN | ({"first_seq"} if "retention" in value else set())
    if "src" in value and value.get("dest") in ("", ">"):
        # A republish without destination publishes nothing; nats-server, in an update, says `>`.
        dropped |= {"dest"}
    if "active" in value:
        # How far a mirror is; nats-server tells its filter once it copies.
        dropped |= {"filter_subject"}
    return {
        key: comparable(item, left_out)
        for key, item in value.items()
        if key not in dropped | left_out and not key.startswith("_headwater.")
    }


def counts_by_chance(steps: list[tuple[str, Any]]) -> frozenset[str]:
    """Fields that chance decides once these steps were done."""
    held = HOLDS_REQUESTS.search(json.dumps([body for _, body in steps], default=str))
    return frozenset(HELD) if held else frozenset()
