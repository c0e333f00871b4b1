"""What goes wrong in a run: power, processes, disks, clocks and the link between the nodes."""

import errno
from typing import Any

from tests.sim.jetstream.machines import Machine
from tests.sim.jetstream.mirror import MIRROR
from tests.sim.jetstream.plan import Step
from tests.sim.jetstream.world import EPOCH_NS, SECOND_NS

OPERATIONS_MAX = 60
"""A node dies at one of so many operations of its disk from now on."""
JUMPS_S = (-3600, -86400, 3600, 86400, 10 * 365 * 86400, -20)
STEPS_NOTICED_NS = 5 * SECOND_NS
"""A wall clock that was set ahead is set back by a power cut within this time: what the node has
not written down by then, nobody can tell from time that passed while it was off."""
TRAPS = 3
"""Of so many removals one is followed by a power cut."""
TRAP_S = 0.2
STUCK_S = 6.0
"""So long a disk writes nothing while a mirror passes over what was just removed."""
SLOW_S = (0.002, 0.02, 0.2, 0.8)


class Faults:
    """The faults of one run."""

    def __init__(self, story: Any) -> None:
        self.story = story
        self.world = story.world
        self.calm = False
        self.set_at: dict[Machine, tuple[int, int]] = {}
        """When a clock was set ahead, and how it was before."""
        self.unnoticed_ns = 0
        """By how much clocks were set back while their machines were off, to a time after the node
        was first there: it cannot tell, and what it has may outlive its age by that."""

    def strike(self, step: Step) -> None:
        """Do one step of the plan."""
        machine = self.story.machines[step.a % 2] if step.b % 4 else self.story.origin
        getattr(self, f"_{step.kind}")(machine, step)

    def stop(self) -> None:
        """From now on nothing goes wrong."""
        self.calm = True
        self.story.network.mend()
        for machine in self.story.machines:
            machine.disk.full = False
            machine.disk.spare()
            machine.set_write_delay(0.0)
            if machine.gone:
                # A clock that is set now looks like time that passed.
                machine.start_again()
            else:
                machine.clock.set_by_ns = 0
        self.story.full_until_ns = self.world.now_ns + SECOND_NS

    def went_down(self, machine: Machine, harm: str) -> None:
        """A machine is off: say when it comes back, and with which clock."""
        if harm == "power":
            at, before = self.set_at.get(machine, (-STEPS_NOTICED_NS, 0))
            if self.world.now_ns - at < STEPS_NOTICED_NS:
                machine.clock.set_by_ns = min(before, machine.clock.set_by_ns)
            if self.story.chance.below(6) == 0:
                # Not ahead of what it showed: that would look like time that passed.
                machine.clock.set_by_ns = min(-EPOCH_NS, machine.clock.set_by_ns)
                self.world.note(f"{machine.name}: its clock has lost the time")
        delay = self.story.chance.below((2000, 200, 20000)[self.story.chance.below(3)])
        self.world.later(delay * 1_000_000, machine.start_again)

    def trap(self, step: Step) -> None:
        """The origin's power fails while its slow disk has not written what was just asked for."""
        machine = self.story.origin
        if step.c % TRAPS or machine.gone:
            return
        machine.set_write_delay(TRAP_S)
        life = machine.life
        self.world.later(int(TRAP_S * SECOND_NS / 2), self._spring, machine, life)

    def _spring(self, machine: Machine, life: int) -> None:
        machine.set_write_delay(0.0)
        if not self.calm and not machine.gone and machine.life == life:
            machine.crash("power")

    def pass_over(self, sequence: int) -> None:
        """The link is mended while the origin writes nothing to its disk; its power fails when the
        mirror has passed a message over that was just removed, or soon."""
        story, machine = self.story, self.story.origin
        machine.set_write_delay(STUCK_S)
        life = machine.life
        story.network.mend()

        def passed() -> bool:
            copy = story.copy.stream(MIRROR)
            return machine.life != life or copy is None or copy.store.last_seq >= sequence

        self.world.wait(passed, STUCK_S / 2)
        machine.set_write_delay(0.0)
        if not machine.gone and machine.life == life:
            machine.crash("power")

    def _power(self, machine: Machine, step: Step) -> None:
        self._die(machine, step, "power")

    def _kill(self, machine: Machine, step: Step) -> None:
        self._die(machine, step, "kill")

    def _die(self, machine: Machine, step: Step, harm: str) -> None:
        if machine.gone:
            return
        if step.c % 5 == 0:
            machine.crash(harm)
        else:
            machine.harm = harm
            machine.disk.cut_after(1 + step.c % OPERATIONS_MAX)

    def _stop(self, machine: Machine, step: Step) -> None:
        if not machine.gone:
            machine.stop()

    def _cut(self, machine: Machine, step: Step) -> None:
        network = self.story.network
        if not network.up:
            return
        network.cut(silently=bool(step.b % 2))
        self.story.mirror.touched()
        self.world.later((step.c % (500, 5000, 60000)[step.c % 3]) * 1_000_000, self._mend)

    def _mend(self) -> None:
        self.world.note("the link can be made again")
        self.story.network.mend()
        self.story.mirror.touched()

    def _full(self, machine: Machine, step: Step) -> None:
        if machine.disk.full:
            return
        machine.disk.full = True
        self.story.mirror.touched()
        seconds = 1 + step.c % 8
        if machine is self.story.origin:
            # It needs a while to notice that there is room again.
            self.story.full_until_ns = self.world.now_ns + (seconds + 5) * SECOND_NS
        self.world.later(seconds * SECOND_NS, self._room, machine)

    def _room(self, machine: Machine) -> None:
        self.world.note(f"{machine.name}: there is room")
        machine.disk.full = False

    def _slow(self, machine: Machine, step: Step) -> None:
        machine.set_write_delay(SLOW_S[step.c % len(SLOW_S)])
        self.world.later((1 + step.b % 5) * SECOND_NS, machine.set_write_delay, 0.0)

    def _clock(self, machine: Machine, step: Step) -> None:
        clock = machine.clock
        before = clock.set_by_ns
        if clock.set_by_ns and step.b % 2:
            wanted = 0
        else:
            wanted = before + JUMPS_S[step.c % len(JUMPS_S)] * SECOND_NS
        if machine.gone and wanted > before:
            return
        if EPOCH_NS + self.world.now_ns + wanted < 0:
            return
        clock.set_by_ns = wanted
        if machine.gone and before - wanted < self.world.now_ns:
            self.unnoticed_ns += before - wanted
        if wanted > before:
            self.set_at[machine] = (self.world.now_ns, before)
        self.world.note(f"{machine.name}: its clock is set by {(wanted - before) // SECOND_NS} s")


def no_room(error: BaseException) -> bool:
    """Whether something failed for want of room."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC
