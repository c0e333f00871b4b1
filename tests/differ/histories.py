"""Histories of one stream, made up from a seed: publishes, deliveries, acks, administration, time.

A step is a dict whose `do` says what is done; names begin with `%`, which stands for the history's
own stream, so that many run beside each other.
"""

import json
import random
from collections.abc import Callable
from typing import Any

Step = dict[str, Any]

SECOND = 10**9
LEAVES = ["a", "b", "c", "a.x"]
DURABLES = ["C", "D", "E"]
FLAGS: dict[str, list[Any]] = {
    "retention": ["limits"] * 4 + ["interest", "workqueue"],
    "storage": ["memory", "memory", "file"],
    "max_msgs": [-1, -1, -1, 3, 5],
    "max_bytes": [-1, -1, -1, 400],
    "max_msgs_per_subject": [-1, -1, 1, 2],
    "max_msg_size": [-1, -1, -1, 60],
    "discard": ["old", "old", "new"],
    "discard_new_per_subject": [False, False, False, True],
    "duplicate_window": [0, 0, SECOND // 2],
    "max_age": [0, 0, 0, 0, SECOND],
    "allow_direct": [True, True, False],
    "allow_rollup_hdrs": [True, True, False],
    "allow_msg_ttl": [True, False],
    "allow_atomic": [True, False],
    "allow_batched": [True, False],
    "allow_msg_schedules": [False, False, True],
    "allow_msg_counter": [False] * 6 + [True],
    "deny_delete": [False] * 8 + [True],
    "deny_purge": [False] * 8 + [True],
    "subject_delete_marker_ttl": [0] * 6 + [SECOND],
    "first_seq": [0] * 6 + [10],
    "no_ack": [False] * 12 + [True],
    "republish": [None] * 6
    + [{"src": "%.a", "dest": "%r.a"}, {"src": "%.>", "dest": "%r.>", "headers_only": True}],
    "subject_transform": [None] * 8
    + [{"src": "%.b", "dest": "%.b.{{partition(3,1)}}"}, {"src": "%.*", "dest": "%.$1.t"}],
    "compression": ["none", "none", "s2"],
    "max_consumers": [-1] * 8 + [1],
    "consumer_limits": [None] * 8 + [{"max_ack_pending": 3}, {"inactive_threshold": 60 * SECOND}],
    "metadata": [None, None, {"k": "v"}],
    "description": [None, "d"],
    "mirror_direct": [False] * 8 + [True],
    "persist_mode": [None] * 6 + ["default", "async"],
}
CONSUMER: dict[str, list[Any]] = {
    "deliver_policy": ["all"] * 5
    + ["last", "new", "by_start_sequence", "by_start_time", "last_per_subject"],
    "ack_policy": ["explicit"] * 4 + ["all", "none"],
    "max_deliver": [-1, -1, 1, 2, 3],
    "max_ack_pending": [None, None, 1, 2, 10],
    "max_waiting": [None, None, 1, 2],
    "headers_only": [None] * 5 + [True],
    "ack_wait": [None, None, SECOND],
    "backoff": [None] * 6 + [[SECOND], [SECOND, 2 * SECOND]],
    "filter": [
        None,
        None,
        None,
        "%.a",
        "%.>",
        "%.*",
        "%.z",
        ["%.a", "%.b"],
        ["%.a", "%.a.x"],
        ["%.*", "%.*.*"],
    ],
    "max_batch": [None] * 5 + [2],
    "max_expires": [None] * 6 + [SECOND],
    "max_bytes": [None] * 6 + [200],
    "sample_freq": [None] * 6 + ["100"],
    "mem_storage": [None, None, None, True],
    "inactive_threshold": [None] * 5 + [60 * SECOND],
    "rate_limit_bps": [None] * 12 + [10**9],
    "replay_policy": [None] * 10 + ["original"],
    "pause_until": [None] * 14 + ["2100-01-01T00:00:00Z"],
    "description": [None, "d"],
    "metadata": [None, {"k": "v"}],
    "num_replicas": [None, 1],
}
PRIORITY: list[dict[str, Any]] = [
    {},
    {},
    {},
    {},
    {"priority_policy": "overflow", "priority_groups": ["g"]},
    {"priority_policy": "prioritized", "priority_groups": ["g"]},
    {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": SECOND},
]
ACKS = [
    "+ACK",
    "+ACK",
    "",
    "+OK",
    "-NAK",
    "-NAK",
    '-NAK {"delay":300000000}',
    "-NAK 300ms",
    '-NAK {"delay":"x"}',
    "-NAK x",
    '-NAK {"delay":-1}',
    "+WPI",
    "+TERM",
    "+TERM why",
    "+NXT",
    "+NXT 2",
    '+NXT {"batch":2,"no_wait":true}',
    '+NXT {"expires":300000000}',
    "x",
    "+ACKx",
    "-NAKx",
    "+ack",
    "+NXT x",
    "+TERM\n",
    " +ACK",
    "+NXT -1",
]
HEADERS: list[list[tuple[str, str]]] = [
    [("Nats-Msg-Id", "1")],
    [("Nats-Msg-Id", "2")],
    [("Nats-Msg-Id", "")],
    [("nats-msg-id", "1")],
    [("Nats-Expected-Stream", "%")],
    [("Nats-Expected-Stream", "X")],
    [("Nats-Expected-Last-Sequence", "0")],
    [("Nats-Expected-Last-Sequence", "1")],
    [("Nats-Expected-Last-Sequence", "2")],
    [("Nats-Expected-Last-Sequence", "x")],
    [("Nats-Expected-Last-Sequence", "-1")],
    [("Nats-Expected-Last-Sequence", "")],
    [("Nats-Expected-Last-Msg-Id", "1")],
    [("Nats-Expected-Last-Msg-Id", "9")],
    [("Nats-Expected-Last-Subject-Sequence", "0")],
    [("Nats-Expected-Last-Subject-Sequence", "1")],
    [("Nats-Expected-Last-Subject-Sequence", "x")],
    [
        ("Nats-Expected-Last-Subject-Sequence", "1"),
        ("Nats-Expected-Last-Subject-Sequence-Subject", "%.a"),
    ],
    [
        ("Nats-Expected-Last-Subject-Sequence", "2"),
        ("Nats-Expected-Last-Subject-Sequence-Subject", "%.*"),
    ],
    [
        ("Nats-Expected-Last-Subject-Sequence", "0"),
        ("Nats-Expected-Last-Subject-Sequence-Subject", "x"),
    ],
    [("Nats-Expected-Last-Subject-Sequence-Subject", "%.a")],
    [("Nats-Rollup", "sub")],
    [("Nats-Rollup", "all")],
    [("Nats-Rollup", "x")],
    [("Nats-Rollup", "")],
    [("Nats-Rollup", "SUB")],
    [("Nats-TTL", "1")],
    [("Nats-TTL", "1s")],
    [("Nats-TTL", "never")],
    [("Nats-TTL", "0")],
    [("Nats-TTL", "x")],
    [("Nats-TTL", "1h")],
    [("Nats-TTL", "-1")],
    [("Nats-TTL", "0.5s")],
    [("Nats-TTL", "")],
    [("Nats-TTL", "10ms")],
    [("Nats-Incr", "+1")],
    [("Nats-Incr", "-2")],
    [("Nats-Incr", "x")],
    [("Nats-Incr", "0")],
    [("Nats-Incr", "+99999999999999999999999")],
    [("Nats-Incr", "1")],
    [("Nats-Schedule", "@at 2099-01-01T00:00:00Z"), ("Nats-Schedule-Target", "%.c")],
    [("Nats-Schedule", "@at 2100-01-01T00:00:00Z"), ("Nats-Schedule-Target", "%.c")],
    [("Nats-Schedule", "@at 2100-01-01T00:00:00Z")],
    [("Nats-Schedule", "x"), ("Nats-Schedule-Target", "%.c")],
    [("Nats-Schedule", "@at 2100-01-01T00:00:00Z"), ("Nats-Schedule-Target", "x")],
    [("Nats-Schedule", "@at 2100-01-01T00:00:00Z"), ("Nats-Schedule-Target", "%.*")],
    [("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "%.c")],
    [("Nats-Schedule", "@every 1ms"), ("Nats-Schedule-Target", "%.c")],
    [
        ("Nats-Schedule", "0 0 0 1 1 *"),
        ("Nats-Schedule-Target", "%.c"),
        ("Nats-Schedule-Time-Zone", "Europe/Berlin"),
    ],
    [
        ("Nats-Schedule", "@daily"),
        ("Nats-Schedule-Target", "%.c"),
        ("Nats-Schedule-Time-Zone", "x"),
    ],
    [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "%.c"), ("Nats-Schedule-TTL", "1s")],
    [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "%.c"), ("Nats-Schedule-TTL", "x")],
    [
        ("Nats-Schedule", "@at 2099-01-01T00:00:00Z"),
        ("Nats-Schedule-Target", "%.c"),
        ("Nats-Schedule-Source", "%.a"),
    ],
    [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "%.c"), ("Nats-Schedule-Source", "%.*")],
    [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "%.c"), ("Nats-Schedule-Rollup", "sub")],
    [("Nats-Schedule", "@daily"), ("Nats-Schedule-Target", "%.c"), ("Nats-Schedule-Rollup", "x")],
    [("Nats-Scheduler", "%.a"), ("Nats-Schedule-Next", "purge")],
    [("Nats-Scheduler", "%.a"), ("Nats-Schedule-Next", "x")],
    [("Nats-Stream-Source", "x 1")],
    [("Nats-Marker-Reason", "MaxAge")],
    [("Nats-Stream", "x"), ("Nats-Subject", "y"), ("Nats-Sequence", "9")],
    [("Nats-Time-Stamp", "2020-01-01T00:00:00Z"), ("Nats-Last-Sequence", "3")],
    [("Nats-Num-Pending", "1"), ("Nats-UpTo-Sequence", "1")],
    [("Nats-Msg-Size", "5")],
    [("Nats-Pin-Id", "x")],
    [("Nats-Counter-Sources", "{}")],
    [("Nats-Request-Info", "{}")],
    [("Nats-Stream-Identity", "x")],
    [("Status", "503"), ("Description", "x")],
    [("Nats-Batch-Sequence", "1")],
    [("Nats-Batch-Commit", "1")],
    [("KV-Operation", "DEL")],
    [("KV-Operation", "PURGE")],
    [("A", "b")],
    [("A", "b"), ("A", "c")],
    [("Nats-Required-Api-Level", "99")],
    [("Nats-Batch-Id", "q"), ("Nats-Batch-Sequence", "1"), ("Nats-Batch-Commit", "1")],
]
ORIGIN: dict[str, list[Any]] = {
    "filter_subject": ["%.a", "%.*", "%.z", "%.>"],
    "opt_start_seq": [1, 2, 9],
    "opt_start_time": ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"],
    "subject_transforms": [
        [{"src": "%.a", "dest": "x.a"}],
        [{"src": "%.*", "dest": "x.$1"}],
        [{"src": "%.a", "dest": ""}, {"src": "%.b", "dest": "x.b"}],
        [{"src": "%.>", "dest": "x.{{partition(2,1)}}"}],
    ],
}
COPY: dict[str, list[Any]] = {
    "storage": ["memory", "file"],
    "max_msgs": [1, 2],
    "max_msgs_per_subject": [1],
    "subjects": [["%c.>"]],
    "subject_transform": [{"src": "%.a", "dest": "y.a"}, {"src": ">", "dest": "z.>"}],
    "retention": ["interest", "workqueue"],
    "discard": ["new"],
    "deny_delete": [True],
    "allow_rollup_hdrs": [True],
    "allow_msg_ttl": [True],
    "mirror_direct": [True],
    "first_seq": [5],
}
DIRECT: list[dict[str, Any]] = [
    {"seq": 1, "batch": 5},
    {"seq": 2},
    {"last_by_subj": "%.a"},
    {"multi_last": ["%.>"]},
    {"multi_last": ["%.a", "%.b"], "up_to_seq": 3},
    {"multi_last": ["%.>"], "up_to_time": "2100-01-01T00:00:00Z"},
    {"multi_last": ["%.>"], "up_to_time": "2000-01-01T00:00:00Z"},
    {"multi_last": ["%.*", "%.a"], "batch": 1},
    {"multi_last": ["%.a"], "up_to_seq": 2, "batch": 5},
    {"multi_last": ["%.a"], "seq": 2},
    {"multi_last": [], "batch": 2},
    {"up_to_seq": 2},
    {"up_to_seq": 3, "up_to_time": "2100-01-01T00:00:00Z"},
    {"seq": 2, "last_by_subj": "%.a"},
    {"seq": 1, "start_time": "2020-01-01T00:00:00Z"},
    {"next_by_subj": "%.a", "start_time": "2020-01-01T00:00:00Z"},
    {"batch": 3},
    {"batch": -1, "seq": 1},
    {"max_bytes": -1, "seq": 1, "batch": 2},
    {"no_hdr": True, "seq": 1},
    {"last_by_subj": "%.*", "batch": 2},
    {},
    {"next_by_subj": "%.*", "batch": 2, "max_bytes": 50},
    {"start_time": "2020-01-01T00:00:00Z", "batch": 2},
    {"start_time": "2100-01-01T00:00:00Z", "batch": 2},
]
PULLS: dict[str, list[Any]] = {
    "batch": [1, 2, 3, 5, 10, 0, -1],
    "expires": [SECOND // 4, SECOND // 4, 60 * SECOND, 0],
    "no_wait": [True, True, False],
    "max_bytes": [100, 1000, 0, -1],
    "idle_heartbeat": [SECOND // 10, 0, -1],
    "group": ["g", "g", "g", "h", ""],
    "min_pending": [1, 5],
    "min_ack_pending": [1, 3],
    "id": ["x"],
    "priority": [0, 1, 9, 10, -1],
    "unknown": [1],
}


def some(chance: random.Random, table: dict[str, list[Any]], most: int) -> dict[str, Any]:
    """A few of the fields of a table, without those that come out as nothing."""
    keys = chance.sample(list(table), min(chance.randrange(most + 1), len(table)))
    found = {key: chance.choice(table[key]) for key in keys}
    return {key: value for key, value in found.items() if value is not None}


class Maker:
    """Makes the steps of one history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(f"history {seed}")
        self.batches = 0
        self.stream: dict[str, Any] = {}

    def subject(self) -> str:
        return f"%.{self.chance.choice(LEAVES)}"

    def create_stream(self) -> Step:
        self.stream = {"name": "%", "subjects": ["%.>"], **some(self.chance, FLAGS, 7)}
        if self.chance.random() < 0.1:
            self.stream["subjects"] = ["%.*", "%.a.x"]
        return api("STREAM.CREATE.%", self.stream)

    def update_stream(self) -> Step:
        config = {**self.stream, **some(self.chance, FLAGS, 2)}
        return api(
            self.chance.choice(["STREAM.UPDATE.%", "STREAM.UPDATE.%", "STREAM.CREATE.%"]), config
        )

    def consumer(self) -> Step:
        """A pull or push consumer, made or changed."""
        chance = self.chance
        name = chance.choice(DURABLES)
        config: dict[str, Any] = {
            "durable_name": name,
            "ack_policy": "explicit",
            **some(chance, CONSUMER, 5),
        }
        filters = config.pop("filter", None)
        if isinstance(filters, str):
            config["filter_subject"] = filters
        elif filters:
            config["filter_subjects"] = filters
        if config.get("deliver_policy") == "by_start_sequence":
            config["opt_start_seq"] = chance.choice([1, 2, 3, 9])
        if config.get("deliver_policy") == "by_start_time":
            config["opt_start_time"] = chance.choice(
                ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"]
            )
        if chance.random() < 0.3:
            config["deliver_subject"] = f"%d.{name}"
            config.pop("max_waiting", None)
            for key in ("max_batch", "max_expires", "max_bytes"):
                config.pop(key, None)
            if chance.random() < 0.3:
                config["idle_heartbeat"] = SECOND // 2
                config["flow_control"] = chance.random() < 0.5
                if config["flow_control"] and chance.random() < 0.3:
                    config["ack_policy"] = "flow_control"
            if chance.random() < 0.2:
                config["deliver_group"] = "q"
        else:
            config.pop("rate_limit_bps", None)
            config |= chance.choice(PRIORITY)
        if self.stream.get("max_msg_size", -1) > 0:
            config.pop("rate_limit_bps", None)
        body: dict[str, Any] = {"stream_name": "%", "config": config}
        if chance.random() < 0.1:
            body["pedantic"] = True
        if chance.random() < 0.15:
            body["action"] = chance.choice(["create", "update"])
        return api(f"CONSUMER.CREATE.%.{name}", body)

    def publish(self) -> Step:
        chance = self.chance
        headers: list[tuple[str, str]] = []
        for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
            headers += chance.choice(HEADERS)
        if self.stream.get("allow_msg_counter") and chance.random() < 0.8:
            headers = chance.choice([h for h in HEADERS if h[0][0] == "Nats-Incr"])
        payload = (
            ""
            if headers and headers[0][0] == "Nats-Incr" and chance.random() < 0.9
            else "x" * chance.choice([0, 1, 10, 50, 100])
        )
        return {"do": "publish", "subject": self.subject(), "headers": headers, "payload": payload}

    def atomic(self) -> list[Step]:
        """An atomic batch, now and then with a fault in it."""
        chance = self.chance
        self.batches += 1
        name = chance.choice([f"b{self.batches}"] * 8 + ["", "x" * 65])
        size = chance.choice([1, 2, 2, 3, 4])
        steps: list[Step] = []
        for number in range(1, size + 1):
            sequence = str(number) if chance.random() < 0.95 else chance.choice(["0", "x", "7", ""])
            headers = [("Nats-Batch-Id", name), ("Nats-Batch-Sequence", sequence)]
            if chance.random() < 0.2:
                headers += chance.choice(HEADERS)
            if number == size and chance.random() < 0.9:
                headers.append(("Nats-Batch-Commit", chance.choice(["1"] * 6 + ["eob", "0", "x"])))
            steps.append(
                {
                    "do": "publish",
                    "subject": self.subject(),
                    "headers": headers,
                    "payload": f"m{number}",
                }
            )
        return steps

    def fast(self) -> list[Step]:
        """A fast batch, now and then with a fault in it."""
        chance = self.chance
        self.batches += 1
        size = chance.choice([1, 2, 3, 4])
        gap, flow = (
            chance.choice(["ok", "fail", "fail"]),
            chance.choice(
                ["0", "1", "2", "10", "x"] if chance.random() < 0.3 else ["1", "2", "10"]
            ),
        )
        steps: list[Step] = []
        for number in range(1, size + 1):
            op = 0 if number == 1 else 1
            if number == size:
                op = chance.choice([2, 2, 2, 3, 1, 4])
            sent = number if chance.random() < 0.94 else number + 1
            reply = f"%i.f{self.batches}.{flow}.{gap}.{sent}.{op}.$FI"
            headers = chance.choice(HEADERS) if chance.random() < 0.15 else []
            steps.append(
                {
                    "do": "publish",
                    "subject": self.subject(),
                    "headers": headers,
                    "payload": f"m{number}",
                    "reply": reply,
                }
            )
        return steps

    def pull(self) -> Step:
        chance = self.chance
        roll = chance.random()
        body: Any
        if roll < 0.1:
            body = chance.choice(
                [
                    "",
                    "3",
                    "0",
                    "-1",
                    "x",
                    "{",
                    "[]",
                    "null",
                    "{}",
                    " 2",
                    "1.5",
                    '"2"',
                    '{"batch":"x"}',
                    '{"batch":1}{"batch":2}',
                ]
            )
        else:
            fields = {
                "batch": chance.choice([1, 2, 3, 5]),
                "expires": SECOND // 4,
                **some(chance, PULLS, 3),
            }
            body = json.dumps(fields)
        return {"do": "pull", "consumer": chance.choice(DURABLES), "body": body}

    def ack(self) -> Step:
        chance = self.chance
        return {
            "do": "ack",
            "which": chance.randrange(50),
            "body": chance.choice(ACKS),
            "asked": chance.random() < 0.6,
        }

    def other(self) -> Step:
        """Requests about what is there."""
        chance = self.chance
        name = chance.choice(DURABLES)
        kinds: list[Callable[[], Step]] = [
            lambda: api("STREAM.INFO.%", {"subjects_filter": ">", "deleted_details": True}),
            lambda: api("STREAM.INFO.%", None),
            lambda: api(f"CONSUMER.INFO.%.{name}", None),
            lambda: api(f"CONSUMER.INFO.%.{name}", None),
            lambda: api("CONSUMER.LIST.%", None),
            lambda: api(
                "STREAM.PURGE.%",
                some(
                    chance,
                    {"filter": ["%.a", "%.>", "%.z"], "seq": [1, 2, 4], "keep": [0, 1, 2]},
                    2,
                ),
            ),
            lambda: api(
                "STREAM.MSG.DELETE.%",
                {"seq": chance.choice([1, 2, 3, 4, 9]), "no_erase": chance.random() < 0.5},
            ),
            lambda: api(
                "STREAM.MSG.GET.%",
                chance.choice(
                    [
                        {"seq": chance.choice([1, 2, 3, 9])},
                        {"last_by_subj": self.subject()},
                        {"next_by_subj": "%.a", "seq": 2},
                    ]
                ),
            ),
            lambda: {
                "do": "ask",
                "subject": "$JS.API.DIRECT.GET.%",
                "many": True,
                "body": json.dumps(chance.choice(DIRECT)),
            },
            lambda: {
                "do": "ask",
                "subject": f"$JS.API.DIRECT.GET.%.{self.subject()}",
                "body": "",
            },
            self.change,
            self.change,
        ]
        return chance.choice(kinds)()

    def change(self) -> Step:
        """Requests that end, pause or reset something."""
        chance = self.chance
        name = chance.choice(DURABLES)
        kinds: list[Callable[[], Step]] = [
            lambda: api(f"CONSUMER.DELETE.%.{name}", None),
            lambda: api(
                f"CONSUMER.PAUSE.%.{name}",
                {"pause_until": chance.choice(["2100-01-01T00:00:00Z", "2000-01-01T00:00:00Z"])},
            ),
            lambda: api(f"CONSUMER.UNPIN.%.{name}", {"group": "g"}),
            lambda: (
                api("STREAM.UPDATE.%", {**self.stream, "sealed": True})
                if chance.random() < 0.1
                else api("CONSUMER.NAMES.%", None)
            ),
            lambda: api(f"CONSUMER.RESET.%.{name}", some(chance, {"seq": [1, 2, 3, 99]}, 1)),
            lambda: (
                api("STREAM.DELETE.%", None)
                if chance.random() < 0.2
                else api("STREAM.INFO.%", None)
            ),
        ]
        return chance.choice(kinds)()

    def steps(self) -> list[Step]:
        chance = self.chance
        made: list[Step] = [self.create_stream()]
        made += [self.publish() for _ in range(chance.randrange(5))]
        made += [self.consumer() for _ in range(chance.choice([1, 1, 2]))]
        for _ in range(chance.randrange(6, 22)):
            kind = chance.choices(
                ["publish", "pull", "ack", "other", "consumer", "update", "atomic", "fast", "wait"],
                [8, 6, 8, 5, 1.5, 0.7, 1.2, 1.2, 0.7],
            )[0]
            if kind in ("atomic", "fast"):
                made += self.atomic() if kind == "atomic" else self.fast()
            elif kind == "wait":
                made.append({"do": "wait", "seconds": chance.choice([0.6, 1.6])})
            else:
                made.append(
                    {
                        "publish": self.publish,
                        "pull": self.pull,
                        "ack": self.ack,
                        "other": self.other,
                        "consumer": self.consumer,
                        "update": self.update_stream,
                    }[kind]()
                )
        return [
            *made,
            api("STREAM.INFO.%", {"subjects_filter": ">", "deleted_details": True}),
            api("CONSUMER.LIST.%", None),
        ]

    def copied(self) -> list[Step]:
        """A copy of what is left in the end, and what it holds."""
        chance = self.chance
        origin: dict[str, Any] = {"name": "%", **some(chance, ORIGIN, 2)}
        config: dict[str, Any] = {"name": "%M", **some(chance, COPY, 2)}
        if chance.random() < 0.5:
            config["mirror"] = origin
        else:
            config["sources"] = [origin]
        return [
            api("STREAM.CREATE.%M", config),
            {"do": "wait", "seconds": 1.6},
            api("STREAM.INFO.%M", {"subjects_filter": ">", "deleted_details": True}),
            *(api("STREAM.MSG.GET.%M", {"seq": seq}) for seq in (1, 2, 3)),
            {"do": "publish", "subject": "%.a", "headers": [], "payload": "late"},
            {"do": "wait", "seconds": 0.6},
            api("STREAM.INFO.%M", {"subjects_filter": ">", "deleted_details": True}),
        ]


def api(subject: str, body: Any) -> Step:
    """One request of the API."""
    return {
        "do": "ask",
        "subject": f"$JS.API.{subject}",
        "body": "" if body is None else json.dumps(body),
    }


def history(seed: int) -> list[Step]:
    """The steps of this seed."""
    return Maker(seed).steps()


def copies(seed: int) -> list[Step]:
    """The same, and a mirror or source of what is left in the end."""
    maker = Maker(seed)
    return [*maker.steps(), *maker.copied()]
