"""What happens in a run, drawn from its seed before it begins, so that steps can be left out."""

from dataclasses import dataclass, replace

from headwater.edge.ports.twins.chance import SeededRandom
from tests.sim.jetstream.plan import Step, draw_steps

WORK = (
    *("publish",) * 34,
    *("burst",) * 4,
    *("pull",) * 12,
    *("look",) * 4,
)
GENTLE = (*("handover",) * 8, *("stop",) * 2)
"""What clients notice as a pause, and nothing else."""
HARD = (*("handover",) * 3, *("stop",), *("kill",) * 4, *("part",) * 3, *("both",))
ROUGH = ("kill", "part", "both")
FAULT_PERCENT = 16


@dataclass(frozen=True)
class Setting:
    """What a run is like."""

    gentle: bool
    """Leaders change by handovers alone."""
    storage: str
    listened: bool
    """Whether somebody else listens to the stream's subjects on every node."""
    standing: bool = False
    """Whether nodes stand still where they would be killed or parted else."""
    muting: bool = False
    """Whether the words of a leader are held back where two nodes would be parted else."""


def draw(seed: int, count: int) -> tuple[Setting, list[Step]]:
    """The setting and the plan of a seed."""
    chance = SeededRandom(f"held {seed}")
    setting = Setting(
        gentle=bool(chance.below(2)),
        storage=("file", "memory")[chance.below(2)],
        listened=bool(chance.below(3)),
    )
    faults = GENTLE if setting.gentle else HARD
    steps = draw_steps(chance, count, faults, WORK, FAULT_PERCENT, (4, 40, 900))
    still = SeededRandom(f"motionless {seed}")
    if not setting.gentle and not setting.listened and still.below(2):
        stands = [replace(step, kind="stand") if step.kind in ROUGH else step for step in steps]
        return replace(setting, standing=True), stands
    apart = SeededRandom(f"muted leaders {seed}")
    if setting.gentle or setting.listened or apart.below(3) == 2:
        return setting, steps
    mutes = [replace(step, kind="mute") if step.kind == "part" else step for step in steps]
    return replace(setting, muting=True), mutes
