"""What happens in a run, drawn from its seed before it begins, so that steps can be left out."""

from dataclasses import dataclass
from typing import Any

from headwater.edge.ports.twins.chance import SeededRandom

SECOND_NS = 1_000_000_000
KINDS = ("plain", "bounded", "subjects", "aged", "workqueue")
WORK = (
    *("publish",) * 30,
    *("pull",) * 16,
    *("again",) * 6,
    *("delete",) * 3,
    *("purge",) * 2,
    *("update",) * 2,
    *("consumer",) * 2,
    *("quiet",) * 3,
    *("look",) * 3,
)
FAULTS = (
    *("power",) * 6,
    *("kill",) * 5,
    *("stop",) * 2,
    *("cut",) * 4,
    *("full",) * 2,
    *("slow",) * 2,
    *("clock",) * 4,
)
FAULT_PERCENT = 22


@dataclass(frozen=True)
class Step:
    """One thing that happens, `ms` after the one before; a, b and c are chance."""

    ms: int
    kind: str
    a: int
    b: int
    c: int

    def __str__(self) -> str:
        return f"{self.ms:5} ms {self.kind} {self.a} {self.b} {self.c}"


@dataclass(frozen=True)
class Setting:
    """What the streams and consumers of a run are like."""

    kind: str
    mirrored: bool
    origin_dials: bool
    """Whether the node with the origin is the edge, which dials."""
    window_ns: int
    stream: dict[str, Any]
    consumers: tuple[dict[str, Any], ...]


def draw_steps(
    chance: SeededRandom,
    count: int,
    faults: tuple[str, ...],
    work: tuple[str, ...],
    percent: int = FAULT_PERCENT,
    pauses: tuple[int, int, int] = (3, 60, 600),
) -> list[Step]:
    """So many steps, `percent` of them faults. `pauses`: one of how many is long, and the longest
    of the others and of these, in ms."""
    one_of, short, long = pauses
    steps = []
    for _ in range(count):
        kinds = faults if chance.below(100) < percent else work
        kind = kinds[chance.below(len(kinds))]
        ms = 1 + chance.below(short if chance.below(one_of) else long)
        steps.append(Step(ms, kind, *(chance.below(1 << 30) for _ in range(3))))
    return steps


def draw(seed: int, count: int) -> tuple[Setting, list[Step]]:
    """The setting and the plan of a seed."""
    chance = SeededRandom(f"plan {seed}")
    setting = _setting(chance)
    return setting, draw_steps(chance, count, FAULTS, WORK)


def _setting(chance: SeededRandom) -> Setting:
    kind = KINDS[chance.below(len(KINDS))]
    window_ns = (10, 120)[chance.below(2)] * SECOND_NS
    stream: dict[str, Any] = {"subjects": ["s.>"], "duplicate_window": window_ns}
    if kind == "bounded":
        stream["max_msgs"] = 10 + chance.below(40)
    elif kind == "subjects":
        stream["max_msgs_per_subject"] = 3 + chance.below(10)
    elif kind == "aged":
        stream["max_age"] = (30 + chance.below(90)) * SECOND_NS
        stream["duplicate_window"] = window_ns = min(window_ns, stream["max_age"])
    elif kind == "workqueue":
        stream["retention"] = "workqueue"
    consumers = tuple(_consumer(chance, name, kind) for name in ("pull", "push"))
    mirrored = kind != "workqueue"
    return Setting(kind, mirrored, bool(chance.below(2)), window_ns, stream, consumers)


def _consumer(chance: SeededRandom, name: str, kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "durable_name": name,
        "ack_policy": "explicit",
        "ack_wait": (2 + chance.below(4)) * SECOND_NS,
        "max_deliver": (-1, 3, 5)[chance.below(3)],
        "max_ack_pending": (3, 8, 1000)[chance.below(3)],
    }
    if name == "push":
        config["deliver_subject"] = "deliver.push"
    if kind == "workqueue":
        config["filter_subjects"] = ["s.0", "s.1"] if name == "pull" else ["s.2", "s.3"]
    elif chance.below(3) == 0:
        config["filter_subjects"] = ["s.1", "s.3"]
    return config
