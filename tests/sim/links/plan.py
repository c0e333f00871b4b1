"""What happens in a run of links, drawn from its seed before it begins."""

from dataclasses import dataclass
from typing import Any

from headwater.edge.ports.twins.chance import SeededRandom
from tests.sim.jetstream.plan import FAULTS, Step, draw_steps

WORK = (
    *("publish",) * 28,
    *("local",) * 8,
    *("delete",) * 3,
    *("purge",) * 2,
    *("recreate",) * 2,
    *("resume",) * 4,
    *("spring",) * 4,
    *("empty",) * 2,
    *("quiet",) * 4,
    *("look",) * 4,
)
FAULT_PERCENT = 20
COMPRESSIONS = ("off", "s2_fast", "s2_auto")
FILTERS = ("", "s.1", "s.*")


@dataclass(frozen=True)
class Setting:
    """What the nodes, links and streams of a run are like."""

    origin_dials: bool
    """Whether the node with the origin is the edge, which dials."""
    compression: str
    """Of the link."""
    bounded: int
    """`max_msgs` of the origin; 0 is none."""
    filter: str
    """Of the source that crosses the link; "" is all."""
    renamed: bool
    """Whether that source puts its messages under other subjects."""
    recreated: bool
    """Whether the origin is deleted and made again during the run."""

    def origin(self) -> dict[str, Any]:
        """The stream that is followed."""
        config: dict[str, Any] = {"name": "S", "subjects": ["s.>"]}
        if self.bounded:
            config["max_msgs"] = self.bounded
        return config

    def sources(self, api: str) -> dict[str, Any]:
        """The stream with two sources: one of its own domain, one across the link."""
        far: dict[str, Any] = {"name": "S", "external": {"api": api}}
        if self.renamed:
            far["subject_transforms"] = [{"src": self.filter or ">", "dest": self.destination()}]
        elif self.filter:
            far["filter_subject"] = self.filter
        return {"name": "A", "sources": [far, {"name": "L"}]}

    def destination(self) -> str:
        """What the subjects become when they are renamed."""
        return {"": "far.>", "s.1": "far.one", "s.*": "far.{{wildcard(1)}}"}[self.filter]

    def wants(self, subject: str) -> bool:
        """Whether the source takes messages of a subject."""
        return self.filter != "s.1" or subject == "s.1"

    def stored_as(self, subject: str) -> str:
        """Under which subject the stream with sources has a message of the origin."""
        if not self.renamed:
            return subject
        tails = {"": f"far.{subject}", "s.1": "far.one", "s.*": f"far.{subject[2:]}"}
        return tails[self.filter]


def draw(seed: int, count: int) -> tuple[Setting, list[Step]]:
    """The setting and the plan of a seed."""
    chance = SeededRandom(f"links {seed}")
    setting = Setting(
        origin_dials=bool(chance.below(2)),
        compression=COMPRESSIONS[chance.below(len(COMPRESSIONS))],
        bounded=(0, 0, 20 + chance.below(60))[chance.below(3)],
        filter=FILTERS[chance.below(len(FILTERS))],
        renamed=bool(chance.below(2)),
        recreated=bool(chance.below(2)),
    )
    return setting, draw_steps(chance, count, FAULTS, WORK, FAULT_PERCENT)
